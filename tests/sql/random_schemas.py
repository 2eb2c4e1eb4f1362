"""The tables of random_sql.py and the statements that it makes up for them."""

SESSION = "SET time_zone = '+02:00', sql_mode = DEFAULT, timestamp = 1700000000"

TEXTS = ["", "a", "A", "a ", "ab", "aB", "b", "B", "\u00e4", "z z", "\u00df", "\U0001f600", "10", "long" * 4]


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


class Column:
    """A column's name and how to make up values for it, as SQL text."""

    def __init__(self, name, values, changes=(), ordered=True, nullable=True):
        self.name = name
        self.values = values
        self.changes = changes
        self.ordered = ordered
        self.nullable = nullable

    def value(self, rng):
        draw = rng.random()
        if self.nullable and draw < 0.12:
            return "NULL"
        if draw < 0.14:
            return "DEFAULT"
        return self.values(rng)

    def plain(self, rng):
        return self.values(rng)

    def change(self, rng):
        if self.changes and rng.random() < 0.6:
            return rng.choice(self.changes)
        return self.value(rng)


class Schema:
    """A table: how to create it, its key, its other columns, and an order that leaves no doubt."""

    def __init__(self, name, create, key, others, order=None):
        self.name = name
        self.create = f"CREATE TABLE {name} ({create})"
        self.key = key
        self.others = others
        self.columns = key + others
        # With the table's name, since a selected literal 'a' would be a column called a.
        self.order = order or ", ".join(f"{name}.{column.name}" for column in key)
        self.reverse = ", ".join(f"{part} DESC" for part in self.order.split(", "))
        self.list = ", ".join(column.name for column in self.columns)


def integers(low, high, odd=()):
    return lambda rng: str(rng.choice(odd)) if odd and rng.random() < 0.01 else str(rng.randint(low, high))


def texts(rng):
    return quoted(rng.choice(TEXTS) + (str(rng.randint(0, 9)) if rng.random() < 0.3 else ""))


def doubles(rng):
    return rng.choice(["0", "1.5", "-2.25", "1e10", "0.1", str(round(rng.uniform(-100, 100), 2))])


def moments(rng):
    return f"'2024-0{rng.randint(1, 6)}-1{rng.randint(0, 3)} 0{rng.randint(0, 3)}:00:00.{rng.choice(['000', '001', '5', '999'])}'"


def days(rng):
    return f"'202{rng.randint(3, 4)}-0{rng.randint(1, 3)}-0{rng.randint(1, 9)}'"


def decimals(rng):
    return f"{rng.randint(-3, 3)}.{rng.choice(['0', '25', '50', '99'])}"


def blobs(rng):
    draw = rng.random()
    if draw < 0.05:
        return f"REPEAT('x', {rng.choice([255, 256, 5000, 70000])})"
    if draw < 0.5:
        return "x'" + bytes(rng.randrange(256) for _ in range(rng.randint(0, 12))).hex() + "'"
    return quoted("text" * rng.randint(0, 30))


SCHEMAS = [
    Schema(
        "readings",
        "sensor_id INT UNSIGNED, ts INT UNSIGNED, v DOUBLE, n INT NOT NULL DEFAULT 5, note VARCHAR(12), PRIMARY KEY (sensor_id, ts)",
        [Column("sensor_id", integers(0, 7, (-1, 4294967296)), nullable=False), Column("ts", integers(0, 60), nullable=False)],
        [
            Column("v", doubles, ("v + 1", "v * 2", "v / 3")),
            Column("n", integers(-100, 100, (2147483648,)), ("n + 1", "n - ts", "n DIV 2")),
            Column("note", texts, ("CONCAT(note, 'x')", "UPPER(note)"), ordered=False),
        ],
    ),
    Schema(
        "hosts",
        "v BIGINT, host VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, s SET('p','q','r') DEFAULT 'q', "
        "clock INT, flag BIT(3), PRIMARY KEY (host, clock)",
        [Column("host", texts, nullable=False), Column("clock", integers(-5, 20), nullable=False)],
        [
            Column("v", integers(-(2**60), 2**60), ("v + clock", "-v")),
            Column("s", lambda rng: quoted(rng.choice(["", "p", "q,r", "p,q,r", "nope"] if rng.random() < 0.1 else ["", "p", "q,r"]))),
            Column("flag", integers(0, 7, (8,)), ordered=False),
        ],
    ),
    Schema(
        "events",
        "id SMALLINT, at TIMESTAMP(3) NOT NULL DEFAULT '2024-01-01', made DATETIME(6), kind ENUM('on','off'), "
        "doubled INT AS (id * 2) VIRTUAL, kept VARCHAR(10) AS (UPPER(kind)) STORED, PRIMARY KEY (id, at)",
        [Column("id", integers(0, 5, (40000,)), nullable=False), Column("at", moments, ("at + INTERVAL 1 HOUR",), nullable=False)],
        [
            Column("made", moments, ("made - INTERVAL 1 SECOND", "at")),
            Column("kind", lambda rng: quoted(rng.choice(["on", "off"]))),
        ],
    ),
    Schema(
        "prices",
        "day DATE, price DECIMAL(6,2), item CHAR(3) CHARACTER SET latin1, amount DECIMAL(30,10), t TIME(2), PRIMARY KEY (item, price, day)",
        [
            Column("item", lambda rng: quoted(rng.choice(["x", "X", "y", "yy", ""])), ordered=False, nullable=False),
            Column("price", decimals, ("price + 0.01",), nullable=False),
            Column("day", days, ("day + INTERVAL 1 DAY",), nullable=False),
        ],
        [
            Column("amount", lambda rng: f"{rng.randint(-(10**15), 10**15)}.{rng.randint(0, 10**10)}", ("amount / 3", "amount * 1.5")),
            Column("t", lambda rng: f"'{rng.choice(['', '-'])}{rng.randint(0, 800)}:00:0{rng.randint(0, 9)}.5'", ("-t",)),
        ],
    ),
    Schema(
        "loose",
        "a INT, b VARCHAR(10) CHARACTER SET utf8mb4, c FLOAT",
        [],
        [
            Column("a", integers(-5, 30), ("a + 1",)),
            Column("b", texts, ("LOWER(b)",), ordered=False),
            Column("c", lambda rng: rng.choice(["0.5", "2", "-8.25"])),
        ],
        order="loose.a, HEX(loose.b), loose.c",
    ),
    Schema(
        "documents",
        "body BLOB, name VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, more MEDIUMTEXT CHARACTER SET latin1, y YEAR, PRIMARY KEY (name)",
        [Column("name", texts, nullable=False)],
        [
            Column("body", blobs, ("CONCAT(body, body)", "LEFT(body, 3)"), ordered=False),
            Column("more", lambda rng: quoted("m" * rng.randint(0, 400)), ("CONCAT(more, name)",), ordered=False),
            Column("y", integers(1990, 2010, (1800,)), ("y + 1",)),
        ],
    ),
    Schema(
        "switches",
        "port BINARY(3) NOT NULL, slot TINYINT NOT NULL, u BIGINT UNSIGNED, ip INET6, UNIQUE KEY the_one (port, slot)",
        [
            Column("port", lambda rng: rng.choice(["'a'", "'b'", "x'00'", "x'ff00'"]), nullable=False),
            Column("slot", integers(-20, 20, (128,)), ("slot + 1", "-slot"), nullable=False),
        ],
        [
            Column("u", integers(0, 2**64 - 1), ("u - 1", "u DIV 2")),
            Column("ip", lambda rng: quoted(rng.choice(["::", "::1", "2001:db8::5", "bad"] if rng.random() < 0.1 else ["::", "::1"])), ordered=False),
        ],
    ),
]

# The whole of one table is compared once in so many statements.
CHECK_EVERY = 60


class Generator:
    """Makes up statements; knows which transactions and savepoints are open."""

    def __init__(self, rng):
        self.rng = rng
        self.in_transaction = False
        self.savepoints = []
        self.observer_reads = False
        self.count = 0
        self.forms = [
            (18, self.insert),
            (8, self.insert_ignore),
            (4, self.insert_select),
            (10, self.replace),
            (2, self.replace_select),
            (14, self.on_duplicate),
            (10, self.update),
            (5, self.update_key),
            (9, self.delete),
            (16, self.select),
            (10, self.transaction),
            (4, self.observe),
            (1, self.rare),
        ]
        self.weights = [weight for weight, _ in self.forms]

    def next(self):
        """The next statement or two, each with the name of the session that runs it."""
        self.count += 1
        schema = self.rng.choice(SCHEMAS)
        if self.count % CHECK_EVERY == 0:
            return [("writer", f"SELECT * FROM {schema.name} ORDER BY {schema.order}")]
        (form,) = self.rng.choices([form for _, form in self.forms], self.weights)
        found = form(schema)
        return found if isinstance(found, list) else [("writer", found)]

    def end_transactions(self):
        self.in_transaction, self.observer_reads, self.savepoints = False, False, []
        return [("writer", "COMMIT"), ("observer", "COMMIT")]

    # -- writing -----------------------------------------------------------------------------

    def rows(self, schema, most=8):
        number = 1 if self.rng.random() < 0.5 else self.rng.randint(2, most)
        return ", ".join("(" + ", ".join(column.value(self.rng) for column in schema.columns) + ")" for _ in range(number))

    def insert(self, schema):
        most = 40 if self.rng.random() < 0.05 else 8
        return f"INSERT INTO {schema.name} ({schema.list}) VALUES {self.rows(schema, most)}"

    def insert_ignore(self, schema):
        return f"INSERT IGNORE INTO {schema.name} ({schema.list}) VALUES {self.rows(schema)}"

    def selected(self, schema):
        """SELECT ... of the table's own rows, some columns changed, in an order that leaves no doubt."""
        fields = ", ".join(column.change(self.rng) if self.rng.random() < 0.4 else column.name for column in schema.columns)
        fields = fields.replace("DEFAULT", "NULL")
        return f"SELECT {fields} FROM {schema.name} WHERE {self.where(schema)} ORDER BY {schema.order} LIMIT {self.rng.randint(1, 9)}"

    def insert_select(self, schema):
        ignore = self.rng.choice(["", "IGNORE "])
        return f"INSERT {ignore}INTO {schema.name} ({schema.list}) {self.selected(schema)}"

    def replace_select(self, schema):
        return f"REPLACE INTO {schema.name} ({schema.list}) {self.selected(schema)}"

    def replace(self, schema):
        return f"REPLACE INTO {schema.name} ({schema.list}) VALUES {self.rows(schema)}"

    def on_duplicate(self, schema):
        ignore = "IGNORE " if self.rng.random() < 0.1 else ""
        columns = self.rng.sample(schema.others, self.rng.randint(1, len(schema.others)))
        if schema.key and self.rng.random() < 0.05:
            columns = [self.rng.choice(schema.key)]
        sets = ", ".join(
            f"{column.name} = " + (f"VALUES({column.name})" if self.rng.random() < 0.4 else column.change(self.rng)) for column in columns
        )
        return f"INSERT {ignore}INTO {schema.name} ({schema.list}) VALUES {self.rows(schema)} ON DUPLICATE KEY UPDATE {sets}"

    def update(self, schema):
        columns = self.rng.sample(schema.others, self.rng.randint(1, len(schema.others)))
        sets = ", ".join(f"{column.name} = {column.change(self.rng)}" for column in columns)
        return f"UPDATE {self.ignore()}{schema.name} SET {sets} WHERE {self.where(schema)}{self.limit(schema)}"

    def update_key(self, schema):
        if not schema.key:
            return self.update(schema)
        column = self.rng.choice(schema.key)
        order = self.rng.choice([schema.order, schema.reverse])
        return (
            f"UPDATE {self.ignore()}{schema.name} SET {column.name} = {column.change(self.rng)} WHERE {self.where(schema)} "
            f"ORDER BY {order} LIMIT {self.rng.randint(1, 5)}"
        )

    def delete(self, schema):
        return f"DELETE FROM {schema.name} WHERE {self.where(schema)}{self.limit(schema)}"

    def ignore(self):
        return "IGNORE " if self.rng.random() < 0.15 else ""

    def limit(self, schema):
        if self.rng.random() < 0.7:
            return ""
        return f" ORDER BY {self.rng.choice([schema.order, schema.reverse])} LIMIT {self.rng.randint(0, 6)}"

    # -- reading -----------------------------------------------------------------------------

    def where(self, schema):
        """Conditions: mostly on a prefix of the key, sometimes on another column."""
        parts = []
        if schema.key and self.rng.random() < 0.85:
            depth = self.rng.randint(1, len(schema.key))
            parts += [f"{column.name} = {column.plain(self.rng)}" for column in schema.key[: depth - 1]]
            parts.append(self.condition(schema.key[depth - 1]))
        if not parts or self.rng.random() < 0.2:
            parts.append(self.condition(self.rng.choice(schema.others)))
        return self.rng.choice([" AND ", " AND ", " OR "]).join(parts)

    def condition(self, column):
        draw = self.rng.random()
        name, value, other = column.name, column.plain(self.rng), column.plain(self.rng)
        if draw < 0.45:
            return f"{name} = {value}"
        if draw < 0.6:
            return f"{name} BETWEEN {value} AND {other}"
        if draw < 0.7:
            return f"{name} IN ({value}, {other}, {column.plain(self.rng)})"
        if draw < 0.75 and column.nullable:
            return f"{name} IS {self.rng.choice(['', 'NOT '])}NULL"
        return f"{name} {self.rng.choice(['<', '<=', '>', '>=', '<>'])} {value}"

    def select(self, schema):
        draw = self.rng.random()
        where = self.where(schema)
        order = self.rng.choice([schema.order, schema.reverse])
        if draw < 0.35:
            return f"SELECT * FROM {schema.name} WHERE {where} ORDER BY {order}"
        if draw < 0.6:
            columns = ", ".join(column.name for column in self.rng.sample(schema.columns, self.rng.randint(1, 2)))
            return f"SELECT {columns} FROM {schema.name} WHERE {where} ORDER BY {order} LIMIT {self.rng.randint(1, 10)}"
        column = self.rng.choice([column for column in schema.columns if column.ordered])
        if draw < 0.85 or not schema.key:
            return f"SELECT COUNT(*), COUNT({column.name}), MIN({column.name}), MAX({column.name}) FROM {schema.name} WHERE {where}"
        if draw < 0.95:
            return f"SELECT {column.name}, COUNT(*) FROM {schema.name} WHERE {where} GROUP BY {column.name} ORDER BY {column.name}"
        return f"SELECT COUNT(*), COUNT({schema.others[0].name}) FROM {schema.name}"

    def observe(self, schema):
        """Another session reads: from the newest rows, or from a snapshot that stays open for a while."""
        draw = self.rng.random()
        if draw < 0.15:
            self.observer_reads = not self.observer_reads
            level = self.rng.choice(["REPEATABLE READ", "READ COMMITTED"])
            if not self.observer_reads:
                return [("observer", "COMMIT")]
            return [
                ("observer", f"SET TRANSACTION ISOLATION LEVEL {level}"),
                ("observer", "START TRANSACTION WITH CONSISTENT SNAPSHOT" if level[0:4] == "REPE" else "BEGIN"),
            ]
        return [("observer", self.select(schema))]

    # -- transactions and the rest -----------------------------------------------------------

    def transaction(self, _):
        if not self.in_transaction:
            self.in_transaction = True
            return self.rng.choice(["BEGIN", "START TRANSACTION"])
        draw = self.rng.random()
        if draw < 0.3:
            name = self.rng.choice(["s1", "s2", "s3"])
            self.savepoints = [other for other in self.savepoints if other != name] + [name]
            return f"SAVEPOINT {name}"
        if draw < 0.55 and self.savepoints:
            at = self.rng.randrange(len(self.savepoints))
            name = self.savepoints[at]
            if self.rng.random() < 0.2:
                self.savepoints = self.savepoints[:at]
                return f"RELEASE SAVEPOINT {name}"
            self.savepoints = self.savepoints[: at + 1]
            return f"ROLLBACK TO {name}"
        self.in_transaction, self.savepoints = False, []
        return "COMMIT" if draw < 0.85 else "ROLLBACK"

    def rare(self, schema):
        """Modes, emptied tables, and the engine's files brought into another shape."""
        draw = self.rng.random()
        if draw < 0.3:
            return f"SET sql_mode = {self.rng.choice(['DEFAULT', quoted('')])}"
        found = self.end_transactions()
        if draw < 0.45:
            return [*found, ("writer", f"TRUNCATE TABLE {schema.name}")]
        if draw < 0.5:
            return [*found, ("writer", f"DELETE FROM {schema.name}")]
        return [*found, ("engine", f"OPTIMIZE TABLE {schema.name}")]
