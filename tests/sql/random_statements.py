"""The statements that random_sql.py makes up for the tables of random_schemas.py."""

from random_schemas import SCHEMAS, quoted

# The whole of one table is compared once in so many statements.
CHECK_EVERY = 60

# Without NO_AUTO_VALUE_ON_ZERO: a row with the number 0 behind a generated one uses up a value in InnoDB alone.
MODES = ["DEFAULT", "DEFAULT", "''", "'STRICT_ALL_TABLES'", "'PAD_CHAR_TO_FULL_LENGTH'"]
ZONES = ["'+02:00'", "'+02:00'", "'SYSTEM'", "'-11:30'"]
LEVELS = ["REPEATABLE READ", "READ COMMITTED"]


class Session:
    """A session that writes, and the tables that it writes to while another one writes to others."""

    def __init__(self, name, schemas):
        self.name = name
        self.schemas = schemas
        self.in_transaction = False
        self.savepoints = []


class Generator:
    """Makes up statements; knows which transactions and savepoints are open."""

    def __init__(self, rng):
        self.rng = rng
        joined = [schema for schema in SCHEMAS if schema.name in ("tickets", "lines_")]
        rest = [schema for schema in SCHEMAS if schema not in joined]
        # Where two sessions wrote to one table, gap locks of the one engine would decide, and the clock.
        self.writer = Session("writer", joined + rest[::2])
        self.second = Session("second", rest[1::2])
        self.has_joins = len(joined) == 2
        self.session = self.writer
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
            (18, self.select),
            (12, self.transaction),
            (4, self.observe),
            (2, self.last_insert_id),
            (1, self.rare),
        ]
        self.weights = [weight for weight, _ in self.forms]
        self.joins = [self.join_update, self.join_delete, self.join_insert, self.join_select, self.join_select]

    def next(self):
        """The next statement or two, each with the name of the session that runs it and the table written to."""
        self.count += 1
        self.session = self.rng.choices([self.writer, self.second], [3, 1 if self.second.schemas else 0])[0]
        schema = self.rng.choice(self.session.schemas)
        if self.count % CHECK_EVERY == 0:
            return [(self.session.name, f"SELECT * FROM {schema.name} ORDER BY {schema.order}", schema)]
        if self.session is self.writer and self.has_joins and self.rng.random() < 0.06:
            found = self.rng.choice(self.joins)()
        else:
            (form,) = self.rng.choices([form for _, form in self.forms], self.weights)
            found = form(schema)
        if isinstance(found, str):
            found = self.prepared(found) if self.rng.random() < 0.05 else [(self.session.name, found)]
        return [(who, text, schema) for who, text in found]

    def prepared(self, statement):
        name = self.session.name
        text = quoted(statement.replace("\\", "\\\\"))
        again = [(name, "EXECUTE p")] if self.rng.random() < 0.5 else []
        return [(name, f"PREPARE p FROM {text}"), (name, "EXECUTE p"), *again, (name, "DROP PREPARE p")]

    def end_transactions(self):
        self.observer_reads = False
        for session in (self.writer, self.second):
            session.in_transaction, session.savepoints = False, []
        return [("writer", "COMMIT"), ("second", "COMMIT"), ("observer", "COMMIT")]

    # -- writing -----------------------------------------------------------------------------

    def rows(self, schema, most=8):
        number = 1 if self.rng.random() < 0.5 else self.rng.randint(2, most)
        return ", ".join("(" + ", ".join(column.value(self.rng) for column in schema.columns) + ")" for _ in range(number))

    def returning(self, schema):
        if self.rng.random() < 0.93:
            return ""
        return f" RETURNING {', '.join(column.name for column in self.rng.sample(schema.columns, 2))}"

    def insert(self, schema):
        most = self.rng.choice([40, 150]) if self.rng.random() < 0.05 else 8
        if schema.auto and self.rng.random() < 0.3:
            columns = [column for column in schema.columns if column is not schema.auto]
            values = ", ".join(column.value(self.rng) for column in columns)
            return f"INSERT INTO {schema.name} ({', '.join(column.name for column in columns)}) VALUES ({values})"
        return f"INSERT INTO {schema.name} ({schema.list}) VALUES {self.rows(schema, most)}{self.returning(schema)}"

    def insert_ignore(self, schema):
        return f"INSERT IGNORE INTO {schema.name} ({schema.list}) VALUES {self.rows(schema)}"

    def selected(self, schema):
        """SELECT ... of the table's own rows, some columns changed, in an order that leaves no doubt."""
        changed = {column for column in schema.columns if self.rng.random() < 0.4}
        fields = [column.change(self.rng) if column in changed else column.name for column in schema.columns]
        fields = ["NULL" if column is schema.auto and self.rng.random() < 0.7 else field for column, field in zip(schema.columns, fields)]
        text = ", ".join("NULL" if field == "DEFAULT" else field for field in fields)
        return f"SELECT {text} FROM {schema.name} WHERE {self.where(schema)} ORDER BY {schema.order} LIMIT {self.rng.randint(1, 9)}"

    def insert_select(self, schema):
        ignore = self.rng.choice(["", "IGNORE "])
        return f"INSERT {ignore}INTO {schema.name} ({schema.list}) {self.selected(schema)}"

    def replace_select(self, schema):
        return f"REPLACE INTO {schema.name} ({schema.list}) {self.selected(schema)}"

    def replace(self, schema):
        return f"REPLACE INTO {schema.name} ({schema.list}) VALUES {self.rows(schema)}{self.returning(schema)}"

    def on_duplicate(self, schema):
        ignore = "IGNORE " if self.rng.random() < 0.1 else ""
        columns = self.rng.sample(schema.others, self.rng.randint(1, len(schema.others)))
        if schema.key + schema.unique and self.rng.random() < 0.08:
            columns = [self.rng.choice(schema.key + schema.unique)]
        sets = [f"{column.name} = " + (f"VALUES({column.name})" if self.rng.random() < 0.4 else column.change(self.rng)) for column in columns]
        if schema.auto and self.rng.random() < 0.2:
            sets = [f"{schema.auto.name} = LAST_INSERT_ID({schema.auto.name})"]
        return f"INSERT {ignore}INTO {schema.name} ({schema.list}) VALUES {self.rows(schema)} ON DUPLICATE KEY UPDATE {', '.join(sets)}"

    def update(self, schema):
        columns = self.rng.sample(schema.others, self.rng.randint(1, len(schema.others)))
        sets = ", ".join(f"{column.name} = {column.change(self.rng)}" for column in columns)
        return f"UPDATE {self.ignore()}{schema.name} SET {sets} WHERE {self.where(schema)}{self.limit(schema)}"

    def update_key(self, schema):
        if not schema.key + schema.unique:
            return self.update(schema)
        column = self.rng.choice(schema.key + schema.unique)
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

    def last_insert_id(self, _):
        return "SELECT LAST_INSERT_ID()"

    # -- two tables at once: a row of lines_ belongs to at most one of tickets ----------------

    def join_update(self):
        tickets, lines = self.writer.schemas[:2]
        sets = self.rng.choice(["l.amount = t.v", "l.amount = l.amount + 1, t.v = 7", "t.v = 3, l.body = t.code", "l.body = t.seen"])
        return f"UPDATE {self.ignore()}lines_ l JOIN tickets t ON t.id = l.ticket SET {sets} WHERE {self.side_of_join(tickets, lines)}"

    def join_delete(self):
        tickets, lines = self.writer.schemas[:2]
        gone = self.rng.choice(["l", "t", "l, t"])
        if self.rng.random() < 0.2:
            return f"DELETE l FROM lines_ l LEFT JOIN tickets t ON t.id = l.ticket WHERE t.id IS NULL AND {self.condition(lines.key[0])}"
        return f"DELETE {gone} FROM lines_ l JOIN tickets t ON t.id = l.ticket WHERE {self.side_of_join(tickets, lines)}"

    def join_insert(self):
        tickets, _ = self.writer.schemas[:2]
        verb = self.rng.choice(["INSERT", "INSERT IGNORE", "REPLACE"])
        update = " ON DUPLICATE KEY UPDATE amount = amount + 1" if verb == "INSERT" and self.rng.random() < 0.5 else ""
        return (
            f"{verb} INTO lines_ (ticket, number, note, amount) SELECT id, {self.rng.randint(0, 6)}, {self.rng.choice(['code', 'NULL'])}, slot "
            f"FROM tickets WHERE {self.where(tickets)} ORDER BY id LIMIT {self.rng.randint(1, 12)}{update}"
        )

    def join_select(self):
        tickets, lines = self.writer.schemas[:2]
        where = self.side_of_join(tickets, lines)
        return self.rng.choice(
            [
                f"SELECT * FROM lines_ l JOIN tickets t ON t.id = l.ticket WHERE {where} ORDER BY l.ticket, l.number",
                f"SELECT t.id, COUNT(l.number), SUM(l.amount) FROM tickets t LEFT JOIN lines_ l ON t.id = l.ticket WHERE {where} GROUP BY t.id",
                f"SELECT id, code FROM tickets WHERE slot IN (SELECT number FROM lines_ WHERE {self.where(lines)}) ORDER BY id",
                f"SELECT ticket, number FROM lines_ WHERE EXISTS (SELECT 1 FROM tickets WHERE code = note AND slot > 3) ORDER BY 1, 2",
                f"SELECT id FROM tickets WHERE {self.where(tickets)} UNION SELECT ticket FROM lines_ WHERE {self.where(lines)} ORDER BY 1",
            ]
        )

    def side_of_join(self, tickets, lines):
        alias, schema = self.rng.choice([("t", tickets), ("l", lines)])
        column = self.rng.choice(schema.key + schema.others)
        return f"{alias}.{self.condition(column)}"

    # -- reading -----------------------------------------------------------------------------

    def where(self, schema):
        """Conditions: mostly on a prefix of a key, sometimes on another column."""
        parts = []
        keys = [key for key in (schema.key, schema.key, *schema.indexes.values()) if key]
        if keys and self.rng.random() < 0.85:
            key = self.rng.choice(keys)
            depth = self.rng.randint(1, len(key))
            parts += [f"{column.name} = {column.plain(self.rng)}" for column in key[: depth - 1]]
            parts.append(self.condition(key[depth - 1]))
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

    def table_to_read(self, schema):
        if schema.indexes and self.rng.random() < 0.3:
            return f"{schema.name} FORCE INDEX ({self.rng.choice(list(schema.indexes))})"
        return schema.name

    def select(self, schema):
        draw = self.rng.random()
        where = self.where(schema)
        order = self.rng.choice([schema.order, schema.reverse])
        table = self.table_to_read(schema)
        locking = self.rng.choice(["", "", "", "", "", " FOR UPDATE", " LOCK IN SHARE MODE"])
        if draw < 0.35:
            return f"SELECT * FROM {table} WHERE {where} ORDER BY {order}{locking}"
        if draw < 0.55:
            columns = ", ".join(column.name for column in self.rng.sample(schema.columns, self.rng.randint(1, 2)))
            return f"SELECT {columns} FROM {table} WHERE {where} ORDER BY {order} LIMIT {self.rng.randint(1, 10)}{locking}"
        if draw < 0.65 and schema.indexes:
            return self.index_walk(schema)
        column = self.rng.choice([column for column in schema.columns if column.ordered])
        if draw < 0.85 or not schema.key:
            return f"SELECT COUNT(*), COUNT({column.name}), MIN({column.name}), MAX({column.name}) FROM {table} WHERE {where}"
        if draw < 0.95:
            return f"SELECT {column.name}, COUNT(*) FROM {schema.name} WHERE {where} GROUP BY {column.name} ORDER BY {column.name}"
        return f"SELECT COUNT(*), COUNT({schema.others[0].name}) FROM {schema.name}"

    def index_walk(self, schema):
        """The rows in the order of a secondary key; rows that are equal in it are ordered by the rest."""
        name, key = self.rng.choice(list(schema.indexes.items()))
        if not all(column.ordered for column in key):
            return f"SELECT COUNT(*) FROM {schema.name} FORCE INDEX ({name}) WHERE {self.condition(key[0])}"
        way = self.rng.choice(["", " DESC"])
        order = ", ".join(f"{schema.name}.{column.name}{way}" for column in key)
        limit = f" LIMIT {self.rng.randint(1, 20)}" if self.rng.random() < 0.7 else ""
        fields = ", ".join(column.name for column in key)
        if self.rng.random() < 0.3:
            return f"SELECT DISTINCT {key[0].name} FROM {schema.name} FORCE INDEX ({name}) ORDER BY {schema.name}.{key[0].name}{way}"
        # Texts that compare as equal may be written differently: which comes first is not said by the key.
        weighed = ", ".join(f"HEX(WEIGHT_STRING({column.name}))" if column.values.__name__ == "texts" else column.name for column in key)
        return f"SELECT {weighed or fields} FROM {schema.name} FORCE INDEX ({name}) WHERE {self.condition(key[0])} ORDER BY {order}{limit}"

    def observe(self, schema):
        """Another session reads: from the newest rows, or from a snapshot that stays open for a while."""
        draw = self.rng.random()
        if draw < 0.15:
            self.observer_reads = not self.observer_reads
            level = self.rng.choice(LEVELS)
            if not self.observer_reads:
                return [("observer", "COMMIT")]
            return [
                ("observer", f"SET TRANSACTION ISOLATION LEVEL {level}"),
                ("observer", "START TRANSACTION WITH CONSISTENT SNAPSHOT" if level[0:4] == "REPE" else "BEGIN"),
            ]
        text = self.select(self.rng.choice(SCHEMAS) if self.rng.random() < 0.5 else schema)
        return [("observer", text.removesuffix(" FOR UPDATE").removesuffix(" LOCK IN SHARE MODE"))]

    # -- transactions and the rest -----------------------------------------------------------

    def transaction(self, _):
        session = self.session
        if not session.in_transaction:
            session.in_transaction = True
            return self.rng.choice(["BEGIN", "START TRANSACTION", "START TRANSACTION WITH CONSISTENT SNAPSHOT"])
        draw = self.rng.random()
        if draw < 0.3:
            name = self.rng.choice(["s1", "s2", "s3"])
            session.savepoints = [other for other in session.savepoints if other != name] + [name]
            return f"SAVEPOINT {name}"
        if draw < 0.55 and session.savepoints:
            at = self.rng.randrange(len(session.savepoints))
            name = session.savepoints[at]
            if self.rng.random() < 0.2:
                session.savepoints = session.savepoints[:at]
                return f"RELEASE SAVEPOINT {name}"
            session.savepoints = session.savepoints[: at + 1]
            return f"ROLLBACK TO {name}"
        session.in_transaction, session.savepoints = False, []
        return "COMMIT" if draw < 0.85 else "ROLLBACK"

    def rare(self, schema):
        """Modes, emptied tables, and the engine's files brought into another shape."""
        draw = self.rng.random()
        name = self.session.name
        if draw < 0.2:
            return f"SET sql_mode = {self.rng.choice(MODES)}"
        if draw < 0.35:
            return f"SET time_zone = {self.rng.choice(ZONES)}, timestamp = {1700000000 + self.rng.randint(0, 9)}"
        if draw < 0.4:
            return f"SET SESSION TRANSACTION ISOLATION LEVEL {self.rng.choice(LEVELS)}"
        found = self.end_transactions()
        if draw < 0.5:
            if schema.auto:
                schema.auto.begin_again()
            return [*found, (name, f"TRUNCATE TABLE {schema.name}")]
        if draw < 0.55:
            return [*found, (name, f"DELETE FROM {schema.name}")]
        if draw < 0.6 and schema.auto:
            return [*found, (name, f"ALTER TABLE {schema.name} AUTO_INCREMENT = {self.rng.randint(4, 200)}")]
        return [*found, ("engine", f"OPTIMIZE TABLE {schema.name}")]
