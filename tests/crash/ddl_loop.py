"""Kills a server that alters tables with -9, again and again: every table must be the one before or after the statement.

Each client has tables of its own, and knows their columns, keys and rows. It adds, drops, moves and renames columns, adds
and drops keys, copies, renames, swaps, truncates, creates and drops tables, and writes rows in between. After
each restart the tables are those of the last acknowledged statement or of the one that was under way, wholly: names,
columns, rows, what each key leads to; and nothing else is there, neither for the server nor for the engine.
ROUNDS and SEED in the environment change the defaults.
"""

import copy
import os
import random
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pymysql.err import MySQLError  # noqa: E402

from private_server import PrivateServer  # noqa: E402

FOLDER = ROOT / "build" / "test" / "ddl-loop"
CLIENTS = 3
MOST_TABLES = 3
MOST_ROWS = 300


class Wrong(Exception):
    """Something that must not be; the text says what."""


class Client:
    """One connection with its own tables: `state` is what was acknowledged, `after` what the open statement makes of it."""

    def __init__(self, number, seed):
        self.number = number
        self.rng = random.Random(f"{seed}/{number}")
        self.state = {}  # name -> {"columns": [(name, type, default)], "keys": {name: column}, "rows": {id: {column: value}}}
        self.after = None
        self.problem = None
        self.statements = 0
        self.names = 0

    def run(self, server):
        self.problem = None
        try:
            connection = server.connect(database="test", autocommit=True)
            while True:
                self.after = copy.deepcopy(self.state)
                text = self.change(self.after)
                if text is None:
                    continue
                with connection.cursor() as cursor:
                    cursor.execute(text)
                self.state, self.after = self.after, None
                self.statements += 1
        except (MySQLError, OSError) as error:
            if not is_lost(error):
                self.problem = f"{error!r} for {text}"
        except Exception as error:  # noqa: BLE001 -- the main thread reports it
            self.problem = repr(error)

    # -- statements: each changes `state` and gives its text -------------------------------------

    def change(self, state):
        if not state:
            return self.create(state)
        forms = [self.insert] * 6 + [self.update] * 2 + [self.add_column] * 4 + [self.drop_column] * 3
        forms += [self.move_column, self.rename_column, self.widen, self.force] + [self.add_key] * 2 + [self.drop_key]
        forms += [self.rename, self.swap, self.truncate, self.drop, self.create]
        name = self.rng.choice(sorted(state))
        form = self.rng.choice(forms)
        return form(state) if form in (self.create, self.swap) else form(state, name)

    def new_name(self):
        self.names += 1
        return f"c{self.number}_{self.names}"

    def create(self, state):
        if len(state) >= MOST_TABLES:
            return None
        name = self.new_name()
        state[name] = {"columns": [("id", "INT", None), ("a0", "INT", 5)], "keys": {}, "rows": {}}
        return f"CREATE TABLE {name} (id INT PRIMARY KEY, a0 INT DEFAULT 5) ENGINE=RRD"

    def drop(self, state, name):
        del state[name]
        return f"DROP TABLE {name}"

    def truncate(self, state, name):
        state[name]["rows"] = {}
        return f"TRUNCATE TABLE {name}"

    def rename(self, state, name):
        new = self.new_name()
        state[new] = state.pop(name)
        return self.rng.choice([f"RENAME TABLE {name} TO {new}", f"ALTER TABLE {name} RENAME TO {new}"])

    def swap(self, state):
        if len(state) < 2:
            return None
        a, b = self.rng.sample(sorted(state), 2)
        state[a], state[b] = state[b], state[a]
        return f"RENAME TABLE {a} TO c{self.number}_swap, {b} TO {a}, c{self.number}_swap TO {b}"

    def insert(self, state, name):
        table = state[name]
        if len(table["rows"]) > MOST_ROWS:
            return self.truncate(state, name)
        first = max(table["rows"], default=0) + 1
        count = self.rng.choice([1, 1, 20])
        for key in range(first, first + count):
            table["rows"][key] = {c: key if c == "id" else default for c, _, default in table["columns"]}
        return f"INSERT INTO {name} (id) VALUES " + ", ".join(f"({key})" for key in range(first, first + count))

    def update(self, state, name):
        column, value = self.some_column(state[name]), self.rng.randint(0, 10_000)
        if column is None:
            return None
        for key, row in state[name]["rows"].items():
            if key % 3 == 0:
                row[column] = value
        return f"UPDATE {name} SET {column} = {value} WHERE id % 3 = 0"

    def some_column(self, table, without_key=False):
        keyed = set(table["keys"].values()) if without_key else set()
        names = [c for c, _, _ in table["columns"] if c != "id" and c not in keyed]
        return self.rng.choice(names) if names else None

    def add_column(self, state, name):
        table = state[name]
        self.names += 1
        column, default = f"a{self.names}", self.rng.choice([None, 7, self.rng.randint(0, 1000)])
        place = self.rng.choice(["FIRST", "", f"AFTER {self.rng.choice(table['columns'])[0]}"])
        order = [c for c, _, _ in table["columns"]]
        at = {"FIRST": 0, "": len(order)}.get(place)
        at = order.index(place.split()[1]) + 1 if at is None else at
        table["columns"].insert(at, (column, "INT", default))
        for row in table["rows"].values():
            row[column] = default
        return f"ALTER TABLE {name} ADD COLUMN {column} INT DEFAULT {'NULL' if default is None else default} {place}"

    def drop_column(self, state, name):
        table = state[name]
        column = self.some_column(table, without_key=True)
        if column is None:
            return None
        table["columns"] = [c for c in table["columns"] if c[0] != column]
        for row in table["rows"].values():
            del row[column]
        return f"ALTER TABLE {name} DROP COLUMN {column}"

    def definition(self, entry):
        column, kind, default = entry
        return f"{column} {kind} DEFAULT {'NULL' if default is None else default}"

    def move_column(self, state, name):
        table = state[name]
        column = self.some_column(table)
        if column is None:
            return None
        (entry,) = [c for c in table["columns"] if c[0] == column]
        table["columns"] = [entry] + [c for c in table["columns"] if c != entry]
        return f"ALTER TABLE {name} MODIFY {self.definition(entry)} FIRST"

    def rename_column(self, state, name):
        table = state[name]
        column = self.some_column(table)
        if column is None:
            return None
        self.names += 1
        new = f"a{self.names}"
        table["columns"] = [(new, *c[1:]) if c[0] == column else c for c in table["columns"]]
        table["keys"] = {k: new if c == column else c for k, c in table["keys"].items()}
        for row in table["rows"].values():
            row[new] = row.pop(column)
        return f"ALTER TABLE {name} RENAME COLUMN {column} TO {new}"

    def widen(self, state, name):
        table = state[name]
        column = self.some_column(table)
        if column is None:
            return None
        table["columns"] = [(c, "BIGINT", d) if c == column else (c, k, d) for c, k, d in table["columns"]]
        (entry,) = [c for c in table["columns"] if c[0] == column]
        return f"ALTER TABLE {name} MODIFY {self.definition(entry)}"

    def force(self, _state, name):
        return f"ALTER TABLE {name} FORCE"

    def add_key(self, state, name):
        column = self.some_column(state[name])
        if column is None or len(state[name]["keys"]) > 2:
            return None
        self.names += 1
        state[name]["keys"][f"k{self.names}"] = column
        return f"ALTER TABLE {name} ADD KEY k{self.names} ({column})"

    def drop_key(self, state, name):
        if not state[name]["keys"]:
            return None
        key = self.rng.choice(sorted(state[name]["keys"]))
        del state[name]["keys"][key]
        return f"ALTER TABLE {name} DROP KEY {key}"

    # -- after the crash ---------------------------------------------------------------------

    def verify(self, connection):
        found = {name: read_table(connection, name) for name in tables(connection) if name.startswith(f"c{self.number}_")}
        expected = [as_found(self.state)] + ([as_found(self.after)] if self.after is not None else [])
        if found not in expected:
            raise Wrong(f"client {self.number}: found {brief(found)}, expected {' or '.join(map(brief, expected))}")
        if found != expected[0]:
            self.state = self.after
        self.after = None


def tables(connection):
    with connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        return [row[0] for row in cursor.fetchall()]


def read_table(connection, name):
    """Columns, keys and rows; every key must lead to the same rows."""
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW COLUMNS FROM {name}")
        columns = [row[0] for row in cursor.fetchall()]
        cursor.execute(f"SHOW KEYS FROM {name} WHERE Key_name <> 'PRIMARY'")
        keys = {row[2]: row[4] for row in cursor.fetchall()}
        cursor.execute(f"SELECT * FROM {name} ORDER BY id")
        rows = cursor.fetchall()
        for key, column in keys.items():
            cursor.execute(f"SELECT * FROM {name} FORCE INDEX ({key}) WHERE {column} IS NULL OR {column} >= 0")
            if sorted(cursor.fetchall(), key=repr) != sorted(rows, key=repr):
                raise Wrong(f"key {key} of {name} does not lead to all rows")
        cursor.execute(f"CHECK TABLE {name}")
        if (findings := cursor.fetchall())[-1][3] != "OK":
            raise Wrong(f"CHECK TABLE {name}: {findings}")
    return columns, keys, rows


def as_found(state):
    def table(t):
        columns = [c for c, _, _ in t["columns"]]
        return columns, dict(t["keys"]), tuple(tuple(row[c] for c in columns) for _, row in sorted(t["rows"].items()))

    return {name: table(t) for name, t in state.items()}


def brief(state):
    return str({name: (columns, keys, len(rows)) for name, (columns, keys, rows) in state.items()})


def is_lost(error):
    return isinstance(error, OSError) or not error.args or error.args[0] in (0, 2003, 2006, 2013, 2014)


def main():
    seed = os.environ.get("SEED") or str(random.randrange(10**6))
    rounds = int(os.environ.get("ROUNDS") or 15)
    print(f"ddl loop: SEED={seed} ROUNDS={rounds}", flush=True)
    rng = random.Random(f"{seed}/loop")
    server = PrivateServer(FOLDER, ["--rrd-flush-log-at-trx-commit=1"])
    server.erase()
    server.start()
    server.sql("CREATE DATABASE IF NOT EXISTS test")
    clients = [Client(number, seed) for number in range(CLIENTS)]
    try:
        for number in range(rounds):
            threads = [threading.Thread(target=client.run, args=(server,)) for client in clients]
            [thread.start() for thread in threads]
            time.sleep(rng.uniform(0.2, 3.0))
            server.kill()
            [thread.join() for thread in threads]
            for client in clients:
                if client.problem:
                    raise Wrong(f"round {number}, client {client.number}: {client.problem}")
            server.start()
            connection = server.connect(database="test", autocommit=True)
            [client.verify(connection) for client in clients]
            known = sum(len(client.state) for client in clients)
            with connection.cursor() as cursor:
                cursor.execute("SHOW GLOBAL STATUS LIKE 'Rrd_tables'")
                if (of_engine := int(cursor.fetchone()[1])) != known or len(tables(connection)) != known:
                    raise Wrong(f"round {number}: {known} tables, the server has {tables(connection)}, the engine {of_engine}")
            connection.close()
        print(f"ddl loop: {rounds} kills, {sum(client.statements for client in clients)} statements, all tables whole")
        return 0
    except Wrong as wrong:
        print(f"ddl loop: SEED={seed}: {wrong}")
        return 1
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
