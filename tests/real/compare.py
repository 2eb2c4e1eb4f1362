"""Public data sets in this engine and in InnoDB: every value must be the same.

For each data set: the rows go into an InnoDB table by INSERT, into a table of this engine by the
same INSERTs, and into a second one by LOAD DATA from InnoDB's dump. Compared are all rows in
order, the server's CHECKSUM TABLE, and aggregates; then all rows again after kill -9 and a
restart. Prints a line for each check, and "N passed, N failed" last.
"""

import contextlib
import os
import sys
from pathlib import Path

import pymysql

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from data_sets import all_data_sets  # noqa: E402
from private_server import BUILD, PrivateServer  # noqa: E402

FOLDER = BUILD / "test" / "real"

# Another engine's name here tests the comparison itself.
ENGINE = os.environ.get("ENGINE") or "RRD"

# Columns of a data set start with their name; aggregates are asked for each.
NUMBER_TYPES = ("DOUBLE", "FLOAT", "DECIMAL", "INT", "MEDIUMINT", "TINYINT")

SUM_TOLERANCE = 1e-12


class Results:
    """Counts checks and prints each; a failed one with its first difference."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, expected, found, same=lambda a, b: a == b):
        if len(expected) == len(found) and all(map(same, expected, found)):
            self.passed += 1
            print(f"ok      {name}")
            return
        self.failed += 1
        print(f"FAILED  {name}: {len(expected)} rows expected, {len(found)} found")
        for a, b in zip(expected, found):
            if not same(a, b):
                print(f"        expected {a}\n        found    {b}")
                break


    @contextlib.contextmanager
    def errors_of(self, name):
        """Counts an error of the server as a failed check, so that the other data sets still run."""
        try:
            yield
        except pymysql.err.Error as error:
            self.failed += 1
            print(f"FAILED  {name}: {error}")


def same_but_for_sums(expected, found):
    """Rows are equal; floating-point numbers may differ in their last digits."""

    def same(a, b):
        if isinstance(a, float) and isinstance(b, float):
            return abs(a - b) <= SUM_TOLERANCE * max(abs(a), abs(b))
        return a == b

    return len(expected) == len(found) and all(map(same, expected, found))


def select(cursor, text):
    cursor.execute(text)
    return cursor.fetchall()


def all_rows(cursor, database, data_set):
    return select(cursor, f"SELECT * FROM {database}.{data_set.name} ORDER BY {data_set.order}")


def fill(cursor, data_set):
    """Creates and fills the three tables."""
    for database, engine in (("peer", "InnoDB"), ("inserted", ENGINE), ("loaded", ENGINE)):
        cursor.execute(f"CREATE TABLE {database}.{data_set.name} ({data_set.columns}) ENGINE={engine}")
    marks = ", ".join(["%s"] * len(data_set.rows[0]))
    for database in ("peer", "inserted"):
        cursor.executemany(f"INSERT INTO {database}.{data_set.name} VALUES ({marks})", data_set.rows)
    dump = FOLDER / f"{data_set.name}.txt"
    cursor.execute(f"SELECT * FROM peer.{data_set.name} INTO OUTFILE '{dump}'")
    cursor.execute(f"LOAD DATA INFILE '{dump}' INTO TABLE loaded.{data_set.name}")


def aggregates(data_set):
    """COUNT, MIN and MAX of every column, and SUM and AVG of the numbers."""
    asked = ["COUNT(*)"]
    for column in split_columns(data_set.columns):
        name, kind = column.split()[:2]
        asked += [f"COUNT({name})", f"MIN({name})", f"MAX({name})"]
        if kind.split("(")[0] in NUMBER_TYPES:
            asked += [f"SUM({name})", f"AVG({name})"]
    return "SELECT " + ", ".join(asked) + " FROM {table}"


def split_columns(columns):
    """The column definitions, without keys; commas inside of brackets do not part them."""
    parts, depth = [""], 0
    for character in columns:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if not part.strip().startswith(("PRIMARY KEY", "KEY"))]


def compare(cursor, data_set, results):
    name = data_set.name
    expected = all_rows(cursor, "peer", data_set)
    count = len(data_set.rows)
    results.check(f"{name}: the file's {count} rows are in InnoDB", [count], [len(expected)])
    peer_sums = select(cursor, aggregates(data_set).format(table=f"peer.{name}"))
    peer_checksum = select(cursor, f"CHECKSUM TABLE peer.{name}")[0][1]
    for database in ("inserted", "loaded"):
        results.check(f"{name}: every value, {database}", expected, all_rows(cursor, database, data_set))
        checksum = select(cursor, f"CHECKSUM TABLE {database}.{name}")[0][1]
        results.check(f"{name}: CHECKSUM TABLE, {database}", [peer_checksum], [checksum])
        sums = select(cursor, aggregates(data_set).format(table=f"{database}.{name}"))
        results.check(f"{name}: aggregates, {database}", peer_sums, sums, same_but_for_sums)


def compare_after_crash(cursor, data_set, results):
    expected = all_rows(cursor, "peer", data_set)
    for database in ("inserted", "loaded"):
        found = all_rows(cursor, database, data_set)
        results.check(f"{data_set.name}: every value after kill -9, {database}", expected, found)


def main():
    results = Results()
    data_sets = all_data_sets()
    server = PrivateServer(FOLDER, plugins=["ha_rrd"] if ENGINE == "RRD" else [])
    server.erase()
    with server:
        with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            for database in ("peer", "inserted", "loaded"):
                cursor.execute(f"CREATE DATABASE {database}")
            for data_set in data_sets:
                with results.errors_of(data_set.name):
                    fill(cursor, data_set)
                    compare(cursor, data_set, results)
        server.kill()
        server.start()
        with server.connect() as connection, connection.cursor() as cursor:
            for data_set in data_sets:
                with results.errors_of(data_set.name):
                    compare_after_crash(cursor, data_set, results)
    print(f"{results.passed} passed, {results.failed} failed")
    sys.exit(1 if results.failed else 0)


if __name__ == "__main__":
    main()
