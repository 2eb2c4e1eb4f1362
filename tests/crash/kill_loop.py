"""Kills a busy server with -9 again and again; every time all that was acknowledged has to be there, and nothing torn.

Four writers, each with its own keys between those of the others, insert, replace, change, delete and
load, in single statements and in transactions, and keep a model of what was acknowledged. The server
is killed at a random moment. After the restart each writer's rows are its model, or its model with the
one statement or commit that was under way applied as a whole.

Odd rounds run with the smallest memtable, so that flushes and merges are hit; every fifth round kills
the server once more while it recovers. ROUNDS and SEED in the environment change the defaults.
"""

import argparse
import os
import random
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pymysql.err import MySQLError  # noqa: E402

from private_server import PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "kill-loop"
WRITERS = 4
MOST_ROWS = 8_000  # of one writer in one table; above, it deletes a series
LOST = (2006, 2013, 2014, 0, 2003)
ROLLED_BACK = (1205, 1213)
BLOB_BYTES = (0, 10, 10, 10, 60, 60, 300, 3000)

# The tables: how to create them, and their key columns. `writer` is kept last among the key parts, so
# that the rows of all writers lie mixed.
TABLES = {
    "readings": (
        "sensor INT, ts INT, writer INT, v BIGINT, pad VARBINARY(4000), PRIMARY KEY (sensor, ts, writer)",
        ("sensor", "ts"),
    ),
    "hosts": (
        "pad MEDIUMBLOB, host VARCHAR(20) COLLATE utf8mb4_general_ci, n INT, writer INT, v BIGINT, PRIMARY KEY (host, n, writer)",
        ("host", "n"),
    ),
    "loose": ("writer INT, series INT, n INT, v BIGINT, pad BLOB", ("series", "n")),
}


class Stop(Exception):
    """The server is gone, as it was meant to be."""


class Wrong(Exception):
    """Something that must not be; the text says what."""


class Writer:
    """One client with its own keys: sends statements, and knows what was acknowledged."""

    def __init__(self, number, seed):
        self.number = number
        self.rng = random.Random(f"{seed}/{number}")
        self.rows = {table: {} for table in TABLES}  # acknowledged: key -> (v, pad)
        self.change = {}  # of the open statement or transaction: (table, key) -> (v, pad), or None if deleted
        self.committing = False
        self.statements = 0
        self.conflicts = 0
        self.problem = None
        self.next_loose = 0
        self.file = FOLDER / f"load-{number}.csv"

    # -- the life of a round -----------------------------------------------------------------

    def run(self, server):
        """Writes until the server goes away."""
        self.problem = None
        try:
            self.connection = server.connect(database="test", autocommit=True)
            while True:
                self.step()
        except Stop:
            pass
        except (MySQLError, OSError) as error:
            if not lost(error):
                self.problem = error
        except Exception as error:  # noqa: BLE001 -- the main thread reports it
            self.problem = error

    def step(self):
        forms = [(40, self.insert), (20, self.insert_many), (20, self.replace), (10, self.on_duplicate), (8, self.update)]
        forms += [(5, self.delete), (12, self.transaction), (1, self.load)]
        if any(len(rows) > MOST_ROWS for rows in self.rows.values()):
            forms.append((30, self.delete_series))
        (form,) = self.rng.choices([form for _, form in forms], [weight for weight, _ in forms])
        if form == self.transaction:
            form()
            return
        self.change, self.committing = {}, True
        self.guarded(form)
        self.acknowledge()

    def transaction(self):
        self.change, self.committing = {}, False
        self.execute("BEGIN")
        for _ in range(self.rng.randint(1, 6)):
            form = self.rng.choice([self.insert, self.insert_many, self.replace, self.on_duplicate, self.update, self.delete])
            if not self.guarded(form):
                return
        if self.rng.random() < 0.15:
            self.execute("ROLLBACK")
            self.change = {}
            return
        self.committing = True
        if self.guarded(lambda: self.execute("COMMIT")):
            self.acknowledge()

    def guarded(self, form):
        """Runs a statement; False if the server rolled the transaction back."""
        try:
            form()
            return True
        except MySQLError as error:
            if error.args[0] not in ROLLED_BACK:
                raise
            self.conflicts += 1
            self.change, self.committing = {}, False
            self.execute("ROLLBACK")
            return False

    def acknowledge(self):
        apply(self.rows, self.change)
        self.change, self.committing = {}, False

    def execute(self, text):
        self.statements += 1
        try:
            with self.connection.cursor() as cursor:
                return cursor.execute(text)
        except Exception as error:
            # The client library fails in odd ways when its socket goes away in the middle of a file.
            if lost(error) or not self.connection.open:
                raise Stop from error
            if not isinstance(error, MySQLError) or error.args[0] not in ROLLED_BACK:
                raise Wrong(f"writer {self.number}: {error} for {text[:200]}") from error
            raise

    # -- statements --------------------------------------------------------------------------

    def sees(self, table, key):
        return self.change.get((table, key), self.rows[table].get(key))

    def new_key(self, table):
        if table == "loose":
            self.next_loose += 1
            return (self.next_loose % 7, self.next_loose)
        first = self.rng.randint(0, 9) if table == "readings" else f"host {'aAbB'[self.rng.randint(0, 3)]}"
        # One spelling of a key for the model: the collation does not tell 'a' from 'A'.
        first = first.lower() if isinstance(first, str) else first
        return (first, self.rng.randint(0, 20_000))

    def old_keys(self, table, most):
        keys = self.rows[table]
        if not keys:
            return []
        # Python's dicts cannot be drawn from: a few of the newest will do, and one from a random place.
        newest = list(reversed(keys))[: most * 5] if len(keys) < 500 else [key for key, _ in zip(reversed(keys), range(most * 5))]
        return [key for key in self.rng.sample(newest, min(most, len(newest))) if self.sees(table, key) is not None]

    def value(self):
        return (self.rng.randint(-(2**50), 2**50), self.rng.randbytes(self.rng.choice(BLOB_BYTES)))

    def put(self, verb, table, keys, tail=""):
        rows = {key: self.value() for key in keys}
        texts = ", ".join(
            f"({literal(key[0])}, {key[1]}, {self.number}, {v}, x'{pad.hex()}')" for key, (v, pad) in rows.items()
        )
        first, second = TABLES[table][1]
        self.change |= {(table, key): row for key, row in rows.items()}
        self.execute(f"{verb} INTO {table} ({first}, {second}, writer, v, pad) VALUES {texts} {tail}")

    def insert(self, most=1):
        table = self.rng.choice(list(TABLES))
        keys = {self.new_key(table) for _ in range(self.rng.randint(1, most))}
        keys = [key for key in keys if self.sees(table, key) is None]
        if keys:
            self.put("INSERT", table, keys)

    def insert_many(self):
        # From 64 new rows on they stay together, see docs/internals/architecture.md.
        self.insert(self.rng.choice([50, 300]))

    def replace(self):
        table = self.rng.choice(["readings", "hosts"])
        keys = self.old_keys(table, 3) + [self.new_key(table)]
        self.put("REPLACE", table, set(keys))

    def on_duplicate(self):
        table = self.rng.choice(["readings", "hosts"])
        keys = set(self.old_keys(table, 3) + [self.new_key(table)])
        self.put("INSERT", table, keys, "ON DUPLICATE KEY UPDATE v = VALUES(v), pad = VALUES(pad)")

    def update(self):
        table = self.rng.choice(list(TABLES))
        for key in self.old_keys(table, 1):
            v, pad = self.sees(table, key)
            self.change[table, key] = (v + 1, pad)
            self.execute(f"UPDATE {table} SET v = v + 1 WHERE {self.where(table, key)}")

    def delete(self):
        table = self.rng.choice(list(TABLES))
        keys = self.old_keys(table, 4)
        if keys:
            self.change |= {(table, key): None for key in keys}
            self.execute(f"DELETE FROM {table} WHERE {' OR '.join(f'({self.where(table, key)})' for key in keys)}")

    def delete_series(self):
        table = max(TABLES, key=lambda name: len(self.rows[name]))
        first = self.rng.choice(sorted({key[0] for key in self.rows[table]}))
        self.change |= {(table, key): None for key in self.rows[table] if key[0] == first}
        column = TABLES[table][1][0]
        self.execute(f"DELETE FROM {table} WHERE {column} = {literal(first)} AND writer = {self.number}")

    def where(self, table, key):
        first, second = TABLES[table][1]
        return f"{first} = {literal(key[0])} AND {second} = {key[1]} AND writer = {self.number}"

    def load(self):
        rows = {}
        for _ in range(self.rng.choice([100, 1000, 1000, 4000])):
            key = self.new_key("readings")
            if self.sees("readings", key) is None:
                rows[key] = (self.rng.randint(0, 10**6), b"loaded" * self.rng.randint(0, 40))
        lines = (f"{key[0]},{key[1]},{self.number},{v},{pad.decode()}\n" for key, (v, pad) in rows.items())
        self.file.write_text("".join(lines))
        self.change |= {("readings", key): row for key, row in rows.items()}
        self.execute(f"LOAD DATA LOCAL INFILE '{self.file}' INTO TABLE readings FIELDS TERMINATED BY ','")

    # -- after the crash ---------------------------------------------------------------------

    def verify(self, found):
        """`found` is what the tables hold of this writer now."""
        if found == self.rows:
            self.change = {}
            return "absent"
        if self.committing:
            expected = {table: dict(rows) for table, rows in self.rows.items()}
            apply(expected, self.change)
            if found == expected:
                self.rows, self.change = expected, {}
                return "present"
        raise Wrong(f"writer {self.number}: {self.explain(found)}")

    def explain(self, found):
        lines = []
        for table in TABLES:
            has, had = found[table], self.rows[table]
            lost_rows = [key for key in had if key not in has and (table, key) not in self.change]
            extra = [key for key in has if key not in had and (table, key) not in self.change]
            other = [key for key in has if key in had and has[key] != had[key] and (table, key) not in self.change]
            lines.append(f"{table}: lost {sample(lost_rows)}, never written {sample(extra)}, other values {sample(other)}")
        under_way = [place for place in self.change]
        applied = [place for place in under_way if found[place[0]].get(place[1]) == self.change[place]]
        lines.append(f"under way (commit asked for: {self.committing}): {len(applied)} of {len(under_way)} changes are there")
        return "; ".join(lines)


def apply(rows, change):
    for (table, key), row in change.items():
        if row is None:
            rows[table].pop(key, None)
        else:
            rows[table][key] = row


def lost(error):
    return isinstance(error, OSError) or (isinstance(error, MySQLError) and (not error.args or error.args[0] in LOST))


def literal(value):
    return f"'{value}'" if isinstance(value, str) else str(value)


def sample(keys):
    return f"{len(keys)} {keys[:3]}" if keys else "none"


class Loop:
    """The server and its writers, round after round."""

    def __init__(self, engine, seed):
        self.engine = engine
        self.rng = random.Random(f"{seed}/loop")
        self.writers = [Writer(number, seed) for number in range(WRITERS)]
        options = ["--rrd-flush-log-at-trx-commit=1"] if engine == "RRD" else []
        self.server = PrivateServer(FOLDER, options, ("ha_rrd",) if engine == "RRD" else ())
        self.options = self.server.options
        self.outcomes = {"absent": 0, "present": 0}

    def create(self):
        self.server.erase()
        self.server.start()
        for table, (columns, _) in TABLES.items():
            self.server.sql(f"CREATE DATABASE IF NOT EXISTS test; CREATE TABLE test.{table} ({columns}) ENGINE={self.engine}")
        self.server.stop()

    def round(self, number):
        small = number % 2 == 1 and self.engine == "RRD"
        self.server.options = self.options + (["--rrd-memtable-size=1M"] if small else [])
        self.server.start()
        threads = [threading.Thread(target=writer.run, args=(self.server,)) for writer in self.writers]
        for thread in threads:
            thread.start()
        time.sleep(self.rng.uniform(0.1, 2.0))
        early = self.server.pid() is None
        self.server.kill()
        for thread in threads:
            thread.join()
        if early:
            raise Wrong(f"the server ended by itself:\n{self.server.tail_of_log(40)}")
        for writer in self.writers:
            if writer.problem:
                raise Wrong(f"writer {writer.number}: {writer.problem!r}")
        if number % 5 == 4:
            self.kill_while_recovering()
        self.server.start()
        self.verify()
        self.server.stop() if number % 3 == 0 else self.server.kill()

    def kill_while_recovering(self):
        timer = threading.Timer(self.rng.uniform(0.02, 0.4), lambda: self.server.process and self.server.process.kill())
        timer.start()
        try:
            self.server.start()
        except ServerError:
            pass  # killed before it answered, as wanted
        timer.join()
        self.server.kill()

    def verify(self):
        found = [{table: {} for table in TABLES} for _ in self.writers]
        with self.server.connect(database="test") as connection, connection.cursor() as cursor:
            for table, (_, (first, second)) in TABLES.items():
                columns = f"{first}, {second}, writer, v, pad"
                order = f"{first}, {second}, writer"
                cursor.execute(f"SELECT {columns} FROM {table} ORDER BY {order}")
                rows = cursor.fetchall()
                for a, b, writer, v, pad in rows:
                    mine = found[writer][table]
                    key = (a.lower() if isinstance(a, str) else a, b)
                    if key in mine:
                        raise Wrong(f"{table}: the key {key} of writer {writer} is there twice")
                    mine[key] = (v, pad)
                cursor.execute(f"SELECT {columns} FROM {table} ORDER BY {first} DESC, {second} DESC, writer DESC")
                if list(reversed(cursor.fetchall())) != list(rows):
                    raise Wrong(f"{table}: read backward it has other rows than read forward")
                cursor.execute(f"SELECT COUNT(*), SUM(v) FROM {table}")
                if cursor.fetchone() != (len(rows), sum(row[3] for row in rows) if rows else None):
                    raise Wrong(f"{table}: COUNT and SUM differ from the rows")
                cursor.execute(f"CHECK TABLE {table} EXTENDED")
                answers = cursor.fetchall()
                if [answer[3] for answer in answers] != ["OK"]:
                    raise Wrong(f"{table}: CHECK TABLE says {answers}")
        for writer in self.writers:
            self.outcomes[writer.verify(found[writer.number])] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "50")))
    parser.add_argument("--seed", default=os.environ.get("SEED", "1"))
    parser.add_argument("--engine", default="RRD")
    arguments = parser.parse_args()
    loop = Loop(arguments.engine, arguments.seed)
    started = time.monotonic()
    done = 0
    try:
        loop.create()
        for done in range(arguments.rounds):
            loop.round(done)
        done = arguments.rounds
    except (Wrong, ServerError) as problem:
        print(f"round {done}, seed {arguments.seed}: {problem}\nthe server's folder is left as it is: {FOLDER}")
        return 1
    finally:
        loop.server.kill()
    rows = sum(len(rows) for writer in loop.writers for rows in writer.rows.values())
    statements = sum(writer.statements for writer in loop.writers)
    conflicts = sum(writer.conflicts for writer in loop.writers)
    print(
        f"kill -9: {done} rounds, {statements} statements acknowledged or cut off, {rows} rows at the end, {conflicts} conflicts; "
        f"of the work cut off {loop.outcomes['present']} times wholly there, {loop.outcomes['absent']} times none; "
        f"nothing lost, nothing torn, {time.monotonic() - started:.0f} s"
    )
    loop.server.erase()
    return 0


if __name__ == "__main__":
    sys.exit(main())
