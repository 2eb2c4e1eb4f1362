"""Random aggregate queries on random tables: three answers that may not differ.

Each query runs on a table of this engine with rrd_pushdown on, on the same table with rrd_pushdown off (the server's own
way), and on an InnoDB twin. Compared are the columns of the result (type, length, digits), the rows, warnings and
errors; floating sums may differ by 1e-12 of their size. Part of a table lies in segments, part in memory, and part may be
the changes of the transaction that asks. Queries come plain, prepared, in views, derived tables, subqueries and unions.

A difference prints the seed and leaves a file that shows it. The last lines say how many queries the engine took.
"""

import argparse
import random
import re
import sys
import time
import unicodedata
from collections import Counter
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pymysql.err import MySQLError  # noqa: E402
from random_aggregate_queries import Queries  # noqa: E402
from random_aggregate_tables import Table  # noqa: E402

from private_server import PrivateServer  # noqa: E402

FOLDER = ROOT / "build" / "test" / "random-aggregates"
FLOATS = (4, 5)  # MySQL's type numbers of FLOAT and DOUBLE
NO_DIGITS = 31  # the scale of floats without a fixed number of digits
DECIMAL = 246
NUMBERS = (1, 2, 3, 4, 5, 8, 9, 13, DECIMAL)
TOLERANCE = 1e-12
KEPT_WARNINGS = 64
ER_DIVISION_BY_ZERO = 1365
# NOT NULL, UNSIGNED. Others depend on how the server goes about it, with any engine.
FLAGS = 1 | 32

SQL_MODES = ("DEFAULT", "''", "'NO_UNSIGNED_SUBTRACTION'", "'ONLY_FULL_GROUP_BY'", "'ANSI'", "'ORACLE'")
ZONES = ("'+00:00'", "'+02:00'", "'-05:30'", "'SYSTEM'")


class Difference(Exception):
    """Two answers to one query that ought to be one."""


class Answer:
    """What a client sees: an error, or columns, rows and warnings."""

    def __init__(self, cursor, query):
        self.error = None
        self.rows = []
        self.columns = []
        self.warnings = []
        try:
            cursor.execute(query)
        except MySQLError as error:
            if error.args[0] in (0, 2006, 2013):
                raise
            self.error = error.args[0]
            return
        fields = getattr(cursor._result, "fields", None) or ()
        self.columns = [column_of(field) for field in fields]
        self.rows = [list(row) for row in cursor.fetchall()]
        if cursor._result.warning_count:
            cursor.execute("SHOW WARNINGS")
            # How often a value is computed depends on how the server goes about it; it keeps 64.
            # Of a division the server may warn before it has counted anything, for one of its plans and not another.
            found = {(code, without_zeros(text)) for _, code, text in cursor.fetchall() if code != ER_DIVISION_BY_ZERO}
            self.warnings = sorted(found)

    def sorted_rows(self, ordered):
        return self.rows if ordered else sorted(self.rows, key=sort_key)


def column_of(field):
    """A column of a result. Digits of texts and lengths of numbers depend on how the server goes about it, with any engine."""
    scale = field.scale if field.type_code in NUMBERS else None
    length = field.length if field.type_code not in NUMBERS or field.type_code == DECIMAL else None
    return (field.name, field.type_code, length, scale, field.flags & FLAGS)


def without_zeros(text):
    """How many digits a value has in a warning depends on how the server goes about it."""
    return re.sub(r"(\.\d*?)0+'", r"\1'", text)


def sort_key(row):
    """An order that floats which differ a little, and -0, do not change."""
    return [f"{value + 0.0:.6g}" if isinstance(value, float) else plain_text(value) for value in row]


def plain_text(value):
    if isinstance(value, Decimal) and not value:
        value = abs(value)
    return folded(str(value))


def folded(text):
    """What collations without case and accents make of a text, and of spaces at its end."""
    parts = unicodedata.normalize("NFD", text.casefold().replace(" ", ""))
    return "".join(part for part in parts if not unicodedata.combining(part))


def same_value(one, other, type_code, scale):
    if one == other:
        return True
    if one is None or other is None:
        return False
    if type_code in FLOATS and isinstance(one, (int, float)) and isinstance(other, (int, float)):
        last_digit = 1.01 * 10.0**-scale if scale < NO_DIGITS else 0
        return abs(one - other) <= max(last_digit, TOLERANCE * max(abs(one), abs(other), 1e-3))
    if isinstance(one, str) and isinstance(other, str) and same_numbers(one, other):
        return True
    if isinstance(one, str) and isinstance(other, str):
        # Which way of writing a group is shown is the first that was met, and the twins may meet others first.
        return folded(one) == folded(other)
    return False


def same_numbers(one, other):
    """Texts made of floats."""
    numbers, others = (re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text) for text in (one, other))
    if not numbers or len(numbers) != len(others):
        return False
    return all(same_value(float(a), float(b), FLOATS[0], NO_DIGITS) for a, b in zip(numbers, others))


def compare(one, other, query):
    if one.error != other.error:
        raise Difference(f"error {one.error} and {other.error}")
    if one.columns != other.columns:
        raise Difference(f"columns {one.columns} and {other.columns}")
    rows, others = one.sorted_rows(query.ordered), other.sorted_rows(query.ordered)
    if len(rows) != len(others):
        raise Difference(f"{len(rows)} and {len(others)} rows")
    kinds = [(column[1], column[3]) for column in one.columns]
    for row, other_row in zip(rows, others):
        for value, other_value, (type_code, scale) in zip(row, other_row, kinds):
            if not same_value(value, other_value, type_code, scale):
                raise Difference(f"row {row} and {other_row}")
    if not same_warnings(one.warnings, other.warnings, query):
        raise Difference(f"warnings {one.warnings} and {other.warnings}")


def same_warnings(one, other, query):
    """Whether both warn of the same. Which rows a LIMIT leaves uncomputed is the plan's own affair."""
    if max(len(one), len(other)) >= KEPT_WARNINGS:
        return True
    if any(" LIMIT " in statement for statement in (*query.setup, query.sql)):
        return set(one) <= set(other) or set(other) <= set(one)
    return one == other


class Run:
    """A server and what was asked of it."""

    def __init__(self, server):
        self.connection = server.connect(autocommit=True)
        self.cursor = self.connection.cursor()
        self.cursor.execute("CREATE OR REPLACE DATABASE random_aggregates CHARACTER SET utf8mb4")
        self.cursor.execute("USE random_aggregates")
        self.taken = Counter()
        self.asked = Counter()
        self.unsure = 0

    def pushdowns(self):
        return self.counter("Rrd_pushdowns")

    def counter(self, name):
        self.cursor.execute(f"SHOW GLOBAL STATUS LIKE '{name}'")
        return int(self.cursor.fetchone()[1])

    def table(self, seed, queries):
        """One random table and some queries of it."""
        rng = random.Random(seed)
        table = Table(rng)
        self.settings = [
            f"SET sql_mode={rng.choice(SQL_MODES)}",
            f"SET time_zone={rng.choice(ZONES)}",
            f"SET div_precision_increment={rng.choice((0, 2, 4, 4, 9, 30))}",
            f"SET rrd_scan_threads={rng.choice((0, 1, 2, 3))}",
            "SET timestamp=1700000000",
        ]
        self.statements = table.statements()
        for statement in self.settings[-1:] + self.statements + self.settings:
            self.execute(statement)
        is_open = rng.random() < 0.4
        if is_open:
            self.statements += ["START TRANSACTION", *table.changes()]
            for statement in self.statements[self.statements.index("START TRANSACTION") :]:
                self.execute(statement)
        try:
            source = Queries(rng, table, is_open)
            for _ in range(queries):
                self.query(source.query())
            source = Queries(random.Random(seed), table, is_open)
            for _ in range(queries // 2 if table.has_tiers else 0):
                self.query(source.of_tier())
        finally:
            self.cursor.execute("ROLLBACK")

    def query(self, query):
        self.cursor.execute("SET rrd_pushdown=ON")
        before = self.pushdowns()
        pushed = self.answer(query, "r")
        self.asked[query.form] += 1
        self.taken[query.form] += self.pushdowns() > before
        self.cursor.execute("SET rrd_pushdown=OFF")
        plain = self.answer(query, "r")
        twin = self.answer(query, "i")
        try:
            self.check(query, pushed, plain, twin)
        except Difference as found:
            raise Difference("\n  ".join([str(found), *query.before("r"), query.text("r")])) from None

    def execute(self, statement):
        try:
            self.cursor.execute(statement)
        except MySQLError as error:
            raise SystemExit(f"{error} in {statement[:300]}") from None

    def answer(self, query, table):
        for statement in query.before(table):
            setup = Answer(self.cursor, statement)
            if setup.error:
                return setup
        return Answer(self.cursor, query.text(table))

    def check(self, query, pushed, plain, twin):
        """The server's own ways to group do not always agree: an average in an expression may be rounded before or not."""
        try:
            compare(pushed, plain, query)
        except Difference as found:
            if not any(self.agree(query, pushed, other) for other in self.other_ways(query, twin)):
                raise Difference(f"pushdown on and off: {found}") from None
            self.unsure += 1
            return
        if not self.agree(query, pushed, twin) and self.agree(query, plain, twin):
            raise Difference(f"{pushed.rows[:5]}.. with pushdown, {twin.rows[:5]}.. from InnoDB")

    @staticmethod
    def agree(query, one, other):
        try:
            compare(one, other, query)
        except Difference:
            return False
        return True

    def other_ways(self, query, twin):
        """What the server answers when told to group in other ways."""
        yield twin
        for hint in ("SQL_BIG_RESULT", "SQL_SMALL_RESULT", "SQL_BUFFER_RESULT"):
            hinted = query.hinted(hint)
            yield self.answer(hinted, "r")
            yield self.answer(hinted, "i")


def report(run, seed, problem):
    path = FOLDER / f"difference-{seed}.sql"
    path.write_text(";\n".join([*run.statements, *run.settings]) + f";\n-- {problem}\n".replace("\n  ", "\n"))
    print(f"seed {seed}: {problem}\n{path} makes the table")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="the first table's (default: from the clock)")
    parser.add_argument("--tables", type=int, default=0, help="how many tables; 0: as many as fit into --seconds")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--queries", type=int, default=60, help="queries of each table")
    parser.add_argument("--keep-going", action="store_true", help="report all tables with differences")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(time.time())
    server = PrivateServer(FOLDER, options=["--rrd-memtable-size=4M"])
    server.erase()
    end = time.monotonic() + options.seconds
    failed = tables = 0
    with server:
        run = Run(server)
        while (tables < options.tables) if options.tables else time.monotonic() < end:
            try:
                run.table(seed + tables, options.queries)
            except Difference as problem:
                failed += 1
                report(run, seed + tables, problem)
                if not options.keep_going:
                    break
            tables += 1
        from_tiers = run.counter("Rrd_tier_answers")
        run.connection.close()
    for form, asked in sorted(run.asked.items()):
        print(f"{form}: {asked} queries, {run.taken[form]} answered by the engine")
    total, taken = sum(run.asked.values()), sum(run.taken.values())
    print(f"{tables} tables from seed {seed} on, {total} queries, {taken} answered by the engine, {failed} differences")
    print(f"of those {from_tiers} by tiers, for part of the time at least")
    print(f"in {run.unsure} cases the server's own plans do not agree with each other")
    if total > 500 and (taken < total / 4 or not from_tiers):
        print("the engine answers hardly any: the test tests nothing")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
