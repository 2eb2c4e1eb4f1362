"""Random tables for random_aggregates.py: columns of all types, keys of all kinds, rows that repeat values, tiers."""

import random

BASE = 1_600_000_000


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class Column:
    """A column: SQL type, and values as SQL text. `kind` says what queries may do with it."""

    def __init__(self, name, sql_type, kind, draw, nullable):
        self.name = name
        self.sql_type = sql_type
        self.kind = kind
        self.draw = draw
        self.nullable = nullable
        self.is_ms = False

    def value(self, rng):
        if self.nullable and rng.random() < 0.15:
            return "NULL"
        return self.draw(rng)

    def definition(self):
        return f"{self.name} {self.sql_type} {'NULL' if self.nullable else 'NOT NULL'}"


INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}


def integer(rng, name, nullable):
    word = rng.choice(list(INTEGERS))
    bits = INTEGERS[word]
    unsigned = rng.random() < 0.5
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    spread = rng.choice((3, 20, 1000))

    def draw(rng):
        if rng.random() < 0.02:
            return str(rng.choice((low, high, low + 1, high - 1)))
        return str(max(low, min(high, rng.randint(-spread, spread) if not unsigned else rng.randint(0, spread))))

    zerofill = unsigned and rng.random() < 0.1
    sql_type = word + (" UNSIGNED" if unsigned else "") + (" ZEROFILL" if zerofill else "")
    return Column(name, sql_type, "integer", draw, nullable)


def decimal(rng, name, nullable):
    digits = rng.choice((3, 5, 9, 10, 12, 18, 20, 30, 43, 50, 65))
    scale = rng.randint(0, min(digits, 30))
    spread = min(10 ** rng.choice((1, 2, 4)), 10 ** (digits - scale) - 1)

    def draw(rng):
        if rng.random() < 0.02:
            whole = "9" * (digits - scale) or "0"
            return rng.choice(("", "-")) + whole + ("." + "9" * scale if scale else "")
        fraction = str(rng.randint(0, 99)).rjust(min(scale, 2), "0")[: min(scale, 2)]
        return rng.choice(("", "", "-")) + str(rng.randint(0, spread)) + ("." + fraction if scale else "")

    unsigned = rng.random() < 0.1
    if unsigned:
        signed = draw
        draw = lambda rng: signed(rng).lstrip("-")  # noqa: E731
    return Column(name, f"DECIMAL({digits},{scale})" + (" UNSIGNED" if unsigned else ""), "decimal", draw, nullable)


def double(rng, name, nullable):
    sql_type = rng.choice(("DOUBLE", "DOUBLE", "FLOAT", "FLOAT(7,2)", "DOUBLE(12,3)"))
    scale = rng.choice((1, 100, 10000))

    def draw(rng):
        draw = rng.random()
        if draw < 0.1:
            return str(rng.randint(-3, 3))
        if draw < 0.13:
            return rng.choice(("0", "1e-20", "-1e-3", "99999.5"))
        return repr(round(rng.uniform(-scale, scale), rng.choice((1, 2, 6))))

    return Column(name, sql_type, "double", draw, nullable)


COLLATIONS = (
    "utf8mb4_general_ci",
    "utf8mb4_bin",
    "utf8mb4_nopad_bin",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_nopad_ci",
    "utf8mb4_uca1400_ai_ci",
    "latin1_swedish_ci",
    "latin1_bin",
)
WORDS = ("", "a", "A", "a ", "ab", "aB", "b", "B", "B ", "zz", "z z", "10", "9", "long" * 4)
ACCENTED = (*WORDS, "\u00e4", "\u00df", "ss", "\u00c4")


def text(rng, name, nullable):
    draw = rng.random()
    if draw < 0.2:
        sql_type = rng.choice(("VARBINARY(20)", "BINARY(8)", "BLOB"))
        words = WORDS[:-1]
    else:
        collation = rng.choice(COLLATIONS)
        word = rng.choice(("VARCHAR(20)", "VARCHAR(20)", "CHAR(16)", "TEXT", "VARCHAR(300)"))
        sql_type = f"{word} CHARACTER SET {collation.split('_')[0]} COLLATE {collation}"
        words = ACCENTED if rng.random() < 0.5 else WORDS
    return Column(name, sql_type, "text", lambda rng: quoted(rng.choice(words)), nullable)


def date(rng, name, nullable):
    digits = rng.choice((0, 0, 3, 6))
    word = rng.choice(("DATE", "DATETIME", "TIMESTAMP", "TIME", "YEAR", "DATETIME", "TIMESTAMP"))
    spread = rng.choice((5000, 500_000, 30_000_000))
    sql_type = word + (f"({digits})" if digits and word not in ("DATE", "YEAR") else "")

    def draw(rng):
        second = BASE + rng.randint(0, spread)
        if word == "YEAR":
            return str(rng.choice((2000, 2001, 2020, 1970, 1901, 0)))
        if word == "TIME":
            return f"SEC_TO_TIME({rng.randint(-spread, spread) % 3000000}.{rng.randint(0, 3)})"
        if word != "TIMESTAMP" and rng.random() < 0.01:
            return rng.choice(("'1000-01-01'", "'9999-12-31'"))
        return f"FROM_UNIXTIME({second}.{rng.randint(0, 999999):06})"

    return Column(name, sql_type, "timestamp" if word == "TIMESTAMP" else "date", draw, nullable)


def odd(rng, name, nullable):
    sql_type, values = rng.choice(
        (
            ("ENUM('x','b','a')", ("'x'", "'b'", "'a'")),
            ("SET('x','b','a')", ("'x'", "'b,a'", "''", "'x,a'")),
            ("BIT(12)", ("b'1'", "b'101'", "b'0'", "4095")),
            ("INET6", ("'::1'", "'::2'", "'fe80::1'")),
            ("UUID", ("'00000000-0000-0000-0000-000000000001'", "'ffffffff-0000-1000-8000-000000000002'")),
            ("BOOLEAN", ("TRUE", "FALSE")),
        )
    )
    return Column(name, sql_type, "odd", lambda rng: rng.choice(values), nullable)


MAKERS = (integer, integer, integer, decimal, decimal, double, double, text, text, date, date, odd)


def time_column(rng):
    """The last column of the key: a time as people keep it."""
    step = rng.choice((1, 10, 60, 300))
    count = rng.choice((50, 500, 5000))

    def second(rng):
        return BASE + step * rng.randint(0, count)

    word = rng.choice(("INT UNSIGNED", "INT", "BIGINT", "BIGINT UNSIGNED", "MS", "SIGNED", "TIMESTAMP", "DATETIME"))
    digits = rng.choice(("", "", "(3)", "(6)"))
    if word == "TIMESTAMP" or word == "DATETIME":
        fraction = "." + str(rng.choice((0, 5, 25))) if digits else ""
        kind = "timestamp" if word == "TIMESTAMP" else "date"
        return Column("ts", word + digits, kind, lambda rng: f"FROM_UNIXTIME({second(rng)}{fraction})", False)
    if word == "MS":
        column = Column("ts", "BIGINT", "integer", lambda rng: str(second(rng) * 1000 + rng.randint(0, 3)), False)
        column.is_ms = True
        return column
    if word == "SIGNED":
        spread = step * count
        return Column("ts", rng.choice(("INT", "BIGINT")), "integer", lambda rng: str(rng.randint(-spread, spread)), False)
    return Column("ts", word, "integer", lambda rng: str(second(rng)), False)


class Table:
    """Tables r (this engine) and i (InnoDB) of the same definition."""

    def __init__(self, rng):
        self.rng = rng
        self.time = time_column(rng)
        self.series = None
        draw = rng.random()
        if draw < 0.8:
            maker = rng.choice((integer, integer, integer, text, decimal, date))
            self.series = maker(rng, "s", False)
            while self.series.sql_type.startswith(("TEXT", "BLOB")):
                self.series = maker(rng, "s", False)
        others = [rng.choice(MAKERS)(rng, f"c{n}", rng.random() < 0.6) for n in range(rng.randint(2, 6))]
        self.columns = [column for column in (self.series, self.time, *others) if column]
        self.has_key = rng.random() < 0.9
        self.rows = rng.choice((0, 1, 30, 300, 300, 2000))
        self.has_tiers = False

    def definition(self):
        parts = [column.definition() for column in self.columns]
        key = [column.name + (" DESC" if self.rng.random() < 0.1 else "") for column in (self.series, self.time) if column]
        if self.has_key:
            parts.append(f"PRIMARY KEY ({', '.join(key)})")
        if self.rng.random() < 0.3:
            indexed = self.rng.choice([c for c in self.columns if c.kind in ("integer", "date", "timestamp", "double")])
            parts.append(f"KEY k ({indexed.name})")
        return ", ".join(parts)

    def tiers(self, definition):
        """Options of half of the tables that may have tiers: buckets with many rows, so that they answer."""
        rng = random.Random(definition)
        has_number = any(column.kind in ("integer", "decimal", "double") for column in self.columns if column.name[0] == "c")
        if not self.has_key or not has_number or " DESC" in definition or rng.random() < 0.5:
            return ""
        unit = " TIME_UNIT='ms'" if self.time.is_ms else ""
        return f" TIME_COLUMN='ts'{unit} TIERS='{rng.choice(('1h, 1d', '1d, 1mo', '6h, 1y', '1w', '1mo, 1y'))}'"

    def insert(self, name, rows):
        return f"INSERT IGNORE INTO {name} VALUES " + ", ".join(rows)

    def make_rows(self, count):
        rows = []
        for _ in range(count):
            rows.append("(" + ", ".join(column.value(self.rng) for column in self.columns) + ")")
        return rows

    def both(self, statement):
        return [statement("r"), statement("i")]

    def statements(self):
        """Makes both tables and fills them."""
        definition = self.definition()
        made = ["DROP TABLE IF EXISTS r, i", "SET sql_mode='ALLOW_INVALID_DATES'", "SET time_zone='+00:00'"]
        parts = self.rng.choice(("",) * 5 + (" PARTITION BY KEY (ts) PARTITIONS 3",))
        tiers = "" if parts else self.tiers(definition)
        self.has_tiers = tiers != ""
        made += [f"CREATE TABLE r ({definition}) ENGINE=RRD{tiers}{parts}", f"CREATE TABLE i ({definition}) ENGINE=InnoDB"]
        left = self.rows
        while left > 0:
            rows = self.make_rows(min(left, self.rng.choice((1, 50, 500))))
            left -= len(rows)
            made += self.both(lambda name, rows=rows: self.insert(name, rows))
            if self.rng.random() < 0.3:
                made.append("OPTIMIZE TABLE r")
            if self.rng.random() < 0.3:
                made += self.changes()
        return made

    def changes(self):
        """A few changes of both tables."""
        made = []
        for _ in range(self.rng.randint(1, 3)):
            draw = self.rng.random()
            column = self.rng.choice(self.columns[2:] or self.columns)
            value = column.value(self.rng)
            sought = self.rng.choice(self.columns)
            where = f"{sought.name} = {sought.draw(self.rng)}"
            if draw < 0.4:
                rows = self.make_rows(self.rng.randint(1, 20))
                made += self.both(lambda name, rows=rows: self.insert(name, rows))
            elif draw < 0.7 and column not in (self.series, self.time):
                made += self.both(
                    lambda name, column=column, value=value, where=where: (
                        f"UPDATE IGNORE {name} SET {column.name} = {value} WHERE {where}"
                    )
                )
            else:
                made += self.both(lambda name, where=where: f"DELETE IGNORE FROM {name} WHERE {where}")
        return made
