"""DuckDB and ClickHouse, which run inside of a Python process: a process of its own for each, so that what it writes and
keeps in memory is its own, and so that it may fail alone.

They have the methods of engines.MariaDB. Their answers are taken as columns (DuckDB: numpy, ClickHouse: Native), which costs
them less than rows over a socket cost a server.
"""

import json
import multiprocessing
import multiprocessing.managers
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

from engines import peak_memory_of, warm

MEMORY = "2GB"

# MariaDB's types in theirs.
DUCKDB_TYPES = {"INT UNSIGNED": "UINTEGER", "DATETIME": "TIMESTAMP"}
CLICKHOUSE_TYPES = {"INT UNSIGNED": "UInt32", "DOUBLE": "Float64", "DATETIME": "DateTime", "DATE": "Date32",
                    "VARCHAR(20)": "LowCardinality(String)", "DECIMAL(5,1)": "Decimal(5, 1)"}  # fmt: skip
CODECS = {"Float64": "Gorilla, ZSTD", "DateTime": "DoubleDelta, ZSTD", "UInt32": "DoubleDelta, ZSTD"}

STEP_S = 300


class Embedded:
    """What both have in common, inside of the process."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.tables = set()
        self.open()

    def end(self):
        """Closes it, before the process ends; what its bindings have to say of an interpreter that ends is not of interest."""
        self.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())

    def begin(self):
        pass

    def bytes_on_disk(self):
        return sum(file.stat().st_blocks * 512 for file in self.folder.rglob("*") if file.is_file())

    def log_bytes_on_disk(self):
        return 0

    def peak_memory(self):
        return peak_memory_of("self")

    def cpu_seconds(self):
        return time.process_time()

    def counters(self):
        return {}

    def load(self, table, files):
        start = time.monotonic()
        for file in files:
            self.load_file(table, file)
        return time.monotonic() - start

    def ask(self, text, runs, budget_ms, setting=None):
        start = time.perf_counter()
        rows = self.answer(text)
        first = (time.perf_counter() - start) * 1000
        return (self.timed(text, runs, budget_ms) if first < budget_ms else [first]), rows

    def times(self, texts, runs, budget_ms):
        return [warm(self.timed(text, runs, budget_ms)) for text in texts]

    def timed(self, text, runs, budget_ms):
        """The milliseconds of each run."""
        done, begin = [], time.perf_counter()
        while len(done) <= runs and (time.perf_counter() - begin) * 1000 < budget_ms:
            start = time.perf_counter()
            self.take(text)
            done.append((time.perf_counter() - start) * 1000)
        return done

    def insert(self, table, count, rows, run_ms, first):
        """As insert_client.c does, but that the statements are made before the clock starts."""
        work = [statements(self.table(table.name), client, rows, run_ms, first) for client in range(count)]
        done, ready = [], threading.Barrier(count + 1)

        def one(client):
            execute = self.session()
            ready.wait()
            begin = time.monotonic()
            number = 0
            while number < len(work[client]) and time.monotonic() - begin < run_ms / 1000:
                execute(work[client][number])
                number += 1
            done.append((number, time.monotonic() - begin))

        threads = [threading.Thread(target=one, args=(client,)) for client in range(count)]
        for thread in threads:
            thread.start()
        ready.wait()
        for thread in threads:
            thread.join()
        total, seconds = sum(number for number, _ in done), max(seconds for _, seconds in done)
        return {"statements": total, "seconds": seconds, "rows_a_second": total * rows / seconds}


def statements(table, client, rows, run_ms, first, series=1000):
    """Enough INSERTs for so long, of polled series; walks in hundredths, as those of insert_client.c."""
    count = run_ms * 2 if rows == 1 else max(4, run_ms // 20)
    step, walks = random.Random(client).randint, [[10_000] * 5 for _ in range(series)]
    texts, number = [], 0
    for _ in range(count):
        parts = []
        for _ in range(rows):
            walk = walks[number % series]
            walk[:] = (abs(value + step(-52, 52)) for value in walk)
            parts.append(f"({first + number // series * STEP_S},{client * series + number % series + 1},"
                         f"{','.join(str(value / 100) for value in walk)},1)")
            number += 1
        texts.append(f"INSERT INTO {table} VALUES {','.join(parts)}")
    return texts


class DuckDB(Embedded):
    is_sorted = False

    def open(self):
        import duckdb

        self.folder.mkdir(parents=True, exist_ok=True)
        self.connection = duckdb.connect(str(self.folder / "bench.duckdb"))
        self.connection.execute(f"SET memory_limit = '{MEMORY}'")

    def close(self):
        self.connection.close()

    def table(self, name):
        return name

    def create(self, table, span=None):
        columns = ", ".join(f"{name} {translated(kind, DUCKDB_TYPES)}" for name, kind in table.columns)
        self.connection.execute(f"CREATE TABLE {table.name} ({columns})")
        self.tables.add(table.name)

    def drop(self, table):
        self.connection.execute(f"DROP TABLE {table.name}")
        self.tables.remove(table.name)
        if not self.tables:  # the file would keep its size
            self.close()
            shutil.rmtree(self.folder)
            self.open()

    def load_file(self, table, file):
        columns = ", ".join(f"'{name}': '{translated(kind, DUCKDB_TYPES).split(' NOT')[0]}'" for name, kind in table.columns)
        order = f" ORDER BY {', '.join(table.key)}" if self.is_sorted else ""
        self.connection.execute(f"INSERT INTO {table.name} SELECT * FROM read_csv('{file}', header = false, delim = ',', "
                                f"nullstr = '\\N', columns = {{{columns}}}){order}")

    def settle(self, tables, quiet_s):
        start = time.monotonic()
        self.connection.execute("CHECKPOINT")
        return time.monotonic() - start

    def answer(self, text):
        return self.connection.execute(text).fetchall()

    def take(self, text):
        self.connection.execute(text).fetchnumpy()

    def session(self):
        return self.connection.cursor().execute

    def version(self):
        return "DuckDB " + self.connection.execute("SELECT version()").fetchone()[0].lstrip("v")


class SortedDuckDB(DuckDB):
    """Its rows in the order of the key, not in that of time, as they come."""

    is_sorted = True


class ClickHouse(Embedded):
    def open(self):
        from chdb import session

        self.chdb = session.Session(str(self.folder))
        self.execute("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")

    def close(self):
        self.chdb.close()

    def execute(self, text, form="CSV"):
        return self.chdb.query(text, form)

    def table(self, name):
        return f"bench.{name}"

    def create(self, table, span=None):
        columns = ", ".join(self.column(name, kind) for name, kind in table.columns)
        # A commit is then as durable as those of the others.
        durable = "fsync_after_insert = 1, fsync_part_directory = 1"
        self.execute(f"CREATE TABLE {self.table(table.name)} ({columns}) ENGINE = MergeTree ORDER BY ({', '.join(table.key)}) "
                     f"SETTINGS {durable}")

    @staticmethod
    def column(name, kind):
        own = translated(kind, CLICKHOUSE_TYPES)
        nullable = " NOT NULL" not in own
        own = own.removesuffix(" NOT NULL")
        codec = f" CODEC({CODECS[own]})" if own in CODECS else " CODEC(ZSTD)"
        return f"{name} {f'Nullable({own})' if nullable else own}{codec}"

    def drop(self, table):
        self.execute(f"DROP TABLE {self.table(table.name)} SYNC")

    def load_file(self, table, file):
        self.execute(f"INSERT INTO {self.table(table.name)} FROM INFILE '{file}' FORMAT CSV")

    def settle(self, tables, quiet_s):
        start = time.monotonic()
        for table in tables:
            self.execute(f"OPTIMIZE TABLE {self.table(table.name)} FINAL")
        return time.monotonic() - start

    def bytes_on_disk(self):
        """Of the parts that are in use; merged ones stay for minutes."""
        return self.answer("SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'bench'")[0][0]

    def answer(self, text):
        lines = self.execute(text + self.without_caches, "JSONCompactEachRow").bytes().decode().splitlines()
        return [tuple(json.loads(line)) for line in lines]

    # Of the conditions of a query it remembers which parts have no row.
    without_caches = " SETTINGS use_query_condition_cache = 0"

    def take(self, text):
        self.execute(text + self.without_caches, "Native").bytes()

    def session(self):
        return self.execute

    def version(self):
        return "ClickHouse " + self.answer("SELECT version()")[0][0]


def translated(kind, types):
    for theirs, own in types.items():
        if kind.removesuffix(" NOT NULL") == theirs:
            return own + kind[len(theirs):]
    return kind


class Manager(multiprocessing.managers.BaseManager):
    pass


for kind in (DuckDB, SortedDuckDB, ClickHouse):
    Manager.register(kind.__name__, kind)


class Process:
    """An engine in a process of its own, seen from outside; what is not here is done there."""

    is_server = two_sessions = scans = trickle = False
    keeps_rows = queries = hot = inserts = True
    data = "abcde"

    def __init__(self, name, kind, dialect, folder, clients=(1, 2, 8), data="abcde"):
        self.name, self.kind, self.dialect, self.folder, self.data = name, kind, dialect, folder, data
        self.clients = clients
        self.manager = None

    def __enter__(self):
        self.erase()
        self.manager = Manager(ctx=multiprocessing.get_context("spawn"))
        self.manager.start()
        self.engine = getattr(self.manager, self.kind)(str(self.folder))
        return self

    def __exit__(self, *_):
        try:
            self.engine.end()
        finally:
            self.manager.shutdown()

    def erase(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def __getattr__(self, name):
        return getattr(self.__dict__["engine"], name)


def groups(folder):
    """As engines.groups: what to enter, and the engines in it."""
    duckdb = Process("DuckDB", "DuckDB", "duckdb", folder / "duckdb")
    in_order = Process("DuckDB sorted", "SortedDuckDB", "duckdb", folder / "duckdb-sorted", data="a")
    in_order.inserts = False
    # One session in a process.
    clickhouse = Process("ClickHouse", "ClickHouse", "clickhouse", folder / "clickhouse", clients=(1,))
    return [(engine, [engine]) for engine in (duckdb, in_order, clickhouse)]
