"""The tables of random_sql.py, and values for their columns."""

SESSION = "SET time_zone = '+02:00', sql_mode = DEFAULT, timestamp = 1700000000"

TEXTS = ["", "a", "A", "a ", "ab", "aB", "b", "B", "\u00e4", "z z", "\u00df", "\U0001f600", "10", "long" * 4]


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


class Column:
    """A column's name and how to make up values for it, as SQL text; `sought` are those of conditions."""

    def __init__(self, name, values, changes=(), ordered=True, nullable=True, sought=None):
        self.name = name
        self.values = values
        self.sought = sought or values
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
        return self.sought(rng)

    def change(self, rng):
        if self.changes and rng.random() < 0.6:
            return rng.choice(self.changes)
        return self.value(rng)


class Schema:
    """A table: how to create it, its columns by the part they play, and an order that leaves no doubt.

    `key` are the columns of the clustering key, `unique` those of other unique keys, `others` the rest. A change of one
    of the first two may fail for one order of the rows and not for another, so that it is made in a certain order only.
    `indexes` are the secondary keys that conditions use, by name, and `auto` is the AUTO_INCREMENT column.
    """

    def __init__(self, name, create, key, others, order=None, unique=(), indexes=None, auto=None):
        self.name = name
        self.create = f"CREATE TABLE {name} ({create})"
        self.key = key
        self.others = others
        self.unique = list(unique)
        self.columns = key + self.unique + others
        self.indexes = indexes or {}
        self.auto = auto
        # With the table's name, since a selected literal 'a' would be a column called a.
        self.order = order or ", ".join(f"{name}.{column.name}" for column in key)
        self.reverse = ", ".join(f"{part} DESC" for part in self.order.split(", "))
        self.list = ", ".join(column.name for column in self.columns)


class Auto(Column):
    """An AUTO_INCREMENT column: mostly left to the engine, and known to be about as large as the newest id told."""

    def __init__(self, name, most):
        super().__init__(name, self.draw, changes=(f"{name} + 1", f"{name} + 100"), nullable=False)
        self.newest = 1
        self.most = most

    def told(self, insert_id):
        if insert_id and insert_id < self.most:
            self.newest = insert_id

    def begin_again(self):
        """The table was emptied together with its counter."""
        self.newest = 1

    def draw(self, rng):
        return str(rng.randint(max(self.newest - 30, 1), min(self.newest + 5, self.most)))

    def value(self, rng):
        draw = rng.random()
        if draw < 0.75:
            return rng.choice(["NULL", "NULL", "DEFAULT", "0"])
        # After a value below 1 InnoDB's counter is 3 at least, by its innobase_next_autoinc(); ours does not move.
        return "-3" if draw < 0.76 and self.newest > 3 else self.draw(rng)


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


def instants(rng):
    """Moments on both sides of where Berlin's clocks change, in the hour that is not and in the one that is twice."""
    day = rng.choice(["2024-03-31", "2024-10-27", "2024-03-30"])
    clock = f"{rng.choice([0, 1, 1, 2, 2, 3])}:{rng.choice(['00:00', '30:00', '59:59'])}"
    if rng.random() < 0.3:
        return f"FROM_UNIXTIME({rng.choice([1711846800, 1729987200, 1729990800]) + rng.randint(-2, 2) * 900}.{rng.choice(['0', '25', '999999'])})"
    return f"'{day} 0{clock}{rng.choice(['', '.5', '.000001', '.999'])}'"


def instants_once(rng):
    """Moments outside the hour that is twice: within it a range of an index and a comparison with the column differ, with
    any engine, so that what is found depends on the plan."""
    while True:
        moment = instants(rng)
        seconds = float(moment[14:-1]) if moment.startswith("FROM_UNIXTIME") else 0
        if not moment.startswith("'2024-10-27 02") and not 1729987200 <= seconds < 1729994400:
            return moment


def tickets():
    ident = Auto("id", 4_294_967_295)
    code = Column("code", texts, ("CONCAT(code, 'x')", "UPPER(code)"), nullable=False)
    slot = Column("slot", integers(0, 20), ("slot + 1", "-slot"))
    kind = Column("kind", lambda rng: quoted(rng.choice(["on", "off"])), ("'off'",))
    v = Column("v", integers(-9, 9), ("v + 1", "id", "slot"))
    return Schema(
        "tickets",
        "id INT UNSIGNED AUTO_INCREMENT, code VARCHAR(14) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL, slot INT, "
        "kind ENUM('on','off') DEFAULT 'on', v INT, seen TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), "
        "PRIMARY KEY (id), UNIQUE KEY by_code (code), UNIQUE KEY by_slot (slot, kind), KEY by_v (v DESC, code(2))",
        [ident],
        [v],
        unique=[code, slot, kind],
        indexes={"by_code": [code], "by_slot": [slot, kind], "by_v": [v, code]},
        auto=ident,
    )


def lines():
    ticket = Column("ticket", integers(1, 60), nullable=False)
    number = Column("number", integers(-3, 6, (40000,)), nullable=False)
    note = Column("note", texts, ("CONCAT(note, number)",))
    amount = Column("amount", decimals, ("amount + 1", "ticket"))
    return Schema(
        "lines_",
        "ticket INT UNSIGNED, number SMALLINT, note VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, amount DECIMAL(9,2), body TEXT, "
        "PRIMARY KEY (ticket, number), UNIQUE KEY by_note (note), KEY by_amount (amount, note DESC), KEY by_body (body(3))",
        [ticket, number],
        [amount, Column("body", lambda rng: quoted(rng.choice(["", "abc", "abd", "AB", "b "]) * rng.randint(1, 2)), ("CONCAT(body, 'x')",))],
        unique=[note],
        indexes={"by_note": [note], "by_amount": [amount, note]},
    )


def labels():
    name = Column("name", lambda rng: quoted(rng.choice(["x", "X", "y ", "yy", "", "\u00e4", "a\t"])), ordered=False, nullable=False)
    at = Column("at", instants, ("at + INTERVAL 1 HOUR", "at - INTERVAL 15 MINUTE"), nullable=False, sought=instants_once)
    tag = Column("tag", lambda rng: quoted(rng.choice(["t", "T ", "u"]) + str(rng.randint(0, 99))), ("CONCAT(tag, 'z')",), ordered=False)
    size = Column("size", integers(-100, 100, (128,)), ("size + 1",))
    born = Column("born", instants, ("born + INTERVAL 30 MINUTE", "at"), nullable=False, sought=instants_once)
    return Schema(
        "labels",
        "name CHAR(6) CHARACTER SET latin1, at TIMESTAMP(6) NOT NULL DEFAULT '2024-01-01', tag CHAR(8) CHARACTER SET latin1 COLLATE latin1_german1_ci, "
        "size TINYINT, born TIMESTAMP(3) NOT NULL DEFAULT '2024-01-01', "
        "PRIMARY KEY (name, at), UNIQUE KEY by_tag (tag), KEY by_size (size, name DESC), KEY by_birth (born)",
        [name, at],
        [size, born],
        unique=[tag],
        indexes={"by_tag": [tag], "by_size": [size, name], "by_birth": [born]},
    )


def pairs():
    a = Column("a", integers(0, 12), ("a + 1", "-a"))
    b = Column("b", lambda rng: quoted(rng.choice("pqr") + rng.choice(["", " ", "x"])), ("UPPER(b)",), ordered=False)
    c = Column("c", doubles, ("c + 1", "-c"))
    return Schema(
        "pairs",
        "a INT, b VARCHAR(6) CHARACTER SET latin1, c DOUBLE, d DATE, UNIQUE KEY by_both (a, b), KEY by_c (c), KEY by_d (d DESC)",
        [],
        [c, Column("d", days, ("d + INTERVAL 1 DAY",))],
        order="pairs.a, HEX(pairs.b), pairs.c, pairs.d",
        unique=[a, b],
        indexes={"by_both": [a, b], "by_c": [c]},
    )


def computed():
    ident = Auto("id", 32767)
    a = Column("a", integers(-20, 20), ("a + 1", "id"))
    s = Column("s", texts, ("CONCAT(s, 'y')",), ordered=False)
    twice = Column("twice", integers(-40, 40))
    # Not longer than the column: a range of a longer constant is one of the server's guesses, good or bad by the plan.
    short = Column("short", lambda rng: quoted(rng.choice(["", "a", "A", "b", "10", "\u00e4", "z "])), ordered=False)
    return Schema(
        "computed",
        "id SMALLINT AUTO_INCREMENT, a INT, s VARCHAR(16) CHARACTER SET utf8mb4, twice INT AS (a * 2) STORED, "
        "short VARCHAR(2) CHARACTER SET utf8mb4 AS (LEFT(s, 2)) VIRTUAL, day DATE, "
        "PRIMARY KEY (day, id), KEY (id), KEY by_twice (twice), KEY by_short (short, a)",
        [Column("day", days, nullable=False), ident],
        [a, s],
        indexes={"by_twice": [twice], "by_short": [short, a], "id": [ident]},
        auto=ident,
    )


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
    tickets(),
    lines(),
    labels(),
    pairs(),
    computed(),
]
