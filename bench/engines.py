"""The engines of MariaDB that are compared, each in a private server of its own with settings that suit it.

BLACKHOLE keeps nothing: it shows what the SQL layer alone takes, and shares RRD's server, so that the two can take turns.
Every engine, here and in embedded.py, has the same methods; what it cannot do, its attributes say.
"""

import shutil
import threading
import time
from pathlib import Path

import clients
from data import DAY, Table
from disk import process_bytes_written
from private_server import PrivateServer

# A cache for each; MyISAM's rows are in that of the operating system.
CACHE = "1G"

SETTLE_LIMIT_S = 300

# A query is ended after this long, for engines without an index.
QUERY_LIMIT_S = 60


class MariaDB:
    """A table engine of MariaDB. `server` must run while anything is asked of it.

    What takes part in what is decided by how long it takes: `data` are the data sets that it loads, `trickle` is how much of the
    trickle it gets (0: none).
    """

    is_server = True
    dialect = "mariadb"
    clients = (1, 2, 8)

    def __init__(self, server, name, clause=None, has_key=True, data="abcde", two_sessions=True, inserts=True, queries=True,
                 scans=False, trickle=0, is_by_day=False, folder=None, before_load=None, flush=None, after_flush=None):  # fmt: skip
        self.server, self.name, self.clause = server, name, clause or f"ENGINE={name}"
        self.data, self.two_sessions, self.inserts = data, two_sessions, inserts
        self.queries, self.scans, self.trickle = queries, scans, trickle
        self.has_key, self.is_by_day, self.folder = has_key, is_by_day, folder
        self.before_load, self.flush, self.after_flush = before_load, flush, after_flush
        self.keeps_rows = name != "BLACKHOLE"
        self.hot = has_key  # without, each small read is a scan
        self.database = "bench_" + "".join(c if c.isalnum() else "_" for c in name.lower())
        self.empty_bytes = self.peak_before = 0

    # -- tables --------------------------------------------------------------------------------

    def table(self, name):
        return f"{self.database}.{name}"

    def begin(self):
        """Before tables are created whose size counts: an engine with a folder of its own, where dropped tables leave traces (in
        a log, in files that are merged later), starts with none; what is on the disk now is not of the tables."""
        if self.folder:
            self.peak_before = self.peak_memory()
            self.server.stop()
            shutil.rmtree(self.server.data / self.folder)
            self.server.start()
        self.empty_bytes = self._files()

    def create(self, table: Table, span=None):
        """Creates the table; `span` is first and last second of its rows, by which it may be partitioned."""
        definition = table.definition if self.has_key else table.definition.split(", PRIMARY KEY")[0]
        partitions = self._partitions(*span) if self.is_by_day and span else ""
        self.server.sql(f"CREATE DATABASE IF NOT EXISTS {self.database}; "
                        f"CREATE TABLE {self.table(table.name)} ({definition}) {self.clause} {partitions}")

    def drop(self, table):
        self.server.sql(f"DROP TABLE {self.table(table.name)}")

    @staticmethod
    def _partitions(first, last):
        ends = range(first // DAY * DAY + DAY, last + DAY, DAY)
        parts = "".join(f"PARTITION d{end // DAY} VALUES LESS THAN ({end}), " for end in ends)
        return f"PARTITION BY RANGE (ts) ({parts}PARTITION later VALUES LESS THAN MAXVALUE)"

    # -- loading -------------------------------------------------------------------------------

    def load(self, table, files):
        """Loads each file in a session of its own, all at once. Returns the seconds until the last is done."""
        errors = []

        def one(connection, file):
            try:
                with connection.cursor() as cursor:
                    if self.before_load:
                        cursor.execute(self.before_load)
                    ready.wait()
                    cursor.execute(f"LOAD DATA INFILE '{file}' INTO TABLE {self.table(table.name)} FIELDS TERMINATED BY ','")
            except Exception as error:  # noqa: BLE001 - it is raised again, in the thread that waits
                errors.append(error)
            finally:
                connection.close()

        ready = threading.Barrier(len(files) + 1)
        threads = [threading.Thread(target=one, args=(self.server.connect(autocommit=True), file)) for file in files]
        for thread in threads:
            thread.start()
        ready.wait()
        start = time.monotonic()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - start
        if errors:
            raise errors[0]
        return seconds

    def settle(self, tables, quiet_s):
        """Lets the engine write what it has only in memory or in its log, and waits for work in the background until neither
        the size of the files nor what was written has changed for so long. Returns how long it went on, in seconds."""
        start = time.monotonic()
        for table in tables if self.flush else ():
            self.server.sql(self.flush.format(table=self.table(table.name)))
        changed, state = time.monotonic(), None
        while (now := time.monotonic()) - changed < quiet_s and now - start < SETTLE_LIMIT_S:
            if (new := (self._files(), self.dirtied() >> 20)) != state:
                state, changed = new, now
            time.sleep(0.1)
        if self.after_flush:
            self.server.sql(self.after_flush)
        return changed - start

    # -- what it costs -------------------------------------------------------------------------

    def bytes_on_disk(self):
        """What the tables take of the disk: what the files have grown by since begin(), all but InnoDB's own log, whose size is
        fixed."""
        return self._files() - self.empty_bytes

    def log_bytes_on_disk(self):
        """What the log takes of that, where it is in files of its own."""
        return self._files("log") if self.folder == "#sql.rrd" else 0

    def _files(self, below="."):
        total = 0
        for file in (self.server.data / (self.folder or ".") / below).rglob("*"):
            try:
                if file.is_file():
                    total += file.stat().st_blocks * 512
            except FileNotFoundError:
                pass  # a merge removed it meanwhile
        return total

    def dirtied(self):
        """A measure of what the server writes, to see whether it still does."""
        return process_bytes_written(self.server.pid())

    def peak_memory(self):
        """The most memory that the server had, in bytes."""
        return max(self.peak_before, peak_memory_of(self.server.pid()))

    def memory(self):
        """What it has now."""
        return status_bytes(self.server.pid(), "VmRSS")

    def cpu_seconds(self):
        return clients.cpu_seconds(self.server.pid())

    def counters(self):
        """The engine's own counters; only RRD's are of interest."""
        return {name: int(value) for name, value in self.server.sql("SHOW GLOBAL STATUS LIKE 'Rrd\\_%'") if value.isdigit()}

    # -- asking --------------------------------------------------------------------------------

    def ask(self, text, runs, budget_ms, setting=None):
        """The milliseconds of each run of the query, warmed up, and its rows; no runs: it took too long."""
        answers = self.server.folder / "answers"
        (times,) = clients.query(self.server, [*self._before(setting), text], runs, budget_ms, answers)
        return warm(times), clients.rows_of(answers)

    def times(self, texts, runs, budget_ms):
        """Of each query, a small one, the milliseconds of each run, warmed up."""
        with clients.on_one_core(self.server):
            return [warm(times) for times in clients.query(self.server, [*self._before(), *texts], runs, budget_ms)]

    def _before(self, setting=None):
        return [f"SET max_statement_time = {QUERY_LIMIT_S}"] + ([f"SET {setting}"] if setting else [])

    def row_at_a_time(self):
        """The setting with which nothing is computed inside of the engine, if there is one."""
        return "rrd_pushdown = OFF" if self.server.sql("SHOW VARIABLES LIKE 'rrd\\_pushdown'") else None

    # -- inserting -----------------------------------------------------------------------------

    def insert(self, table, count, rows, run_ms, first, *more):
        return clients.insert(self.server, self.table(table.name), "poll", "insert", count, run_ms, first, rows, *more)

    def set_durability(self, level):
        """1: every commit is on disk before it is acknowledged; 2: with the operating system."""
        for name in ("rrd", "innodb", "rocksdb"):
            if self.server.sql(f"SHOW VARIABLES LIKE '{name}\\_flush\\_log\\_at\\_trx\\_commit'"):
                self.server.sql(f"SET GLOBAL {name}_flush_log_at_trx_commit = {level}")

    def version(self):
        return "MariaDB " + self.server.sql("SELECT VERSION()")[0][0]


def warm(runs):
    """Without the first run, which warms the caches, unless it is the only one."""
    return runs[1:] or runs


def peak_memory_of(pid):
    return status_bytes(pid, "VmHWM")


def status_bytes(pid, name):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


# What the servers are started with, as the report says.
SERVER_OPTIONS = {
    "rrd": (f"--rrd-cache-size={CACHE}",),
    "innodb": (f"--innodb-buffer-pool-size={CACHE}", "--innodb-log-file-size=512M", "--innodb-autoextend-increment=1", "--innodb-io-capacity=10000"),
    "rocksdb": (f"--rocksdb-block-cache-size={CACHE}", "--innodb-buffer-pool-size=64M",
                "--rocksdb-default-cf-options=compression=kLZ4Compression;bottommost_compression=kZSTD"),
    "archive": ("--innodb-buffer-pool-size=64M",),
    "myisam": ("--key-buffer-size=512M", "--innodb-buffer-pool-size=64M"),
}  # fmt: skip

PLUGINS = {"rrd": ("ha_rrd", "ha_blackhole"), "rocksdb": ("ha_rocksdb",), "archive": ("ha_archive",)}


def server(folder, kind, name=None):
    options = (*SERVER_OPTIONS[kind], "--max-allowed-packet=64M", "--skip-log-bin")
    return PrivateServer(folder / (name or kind), options, PLUGINS.get(kind, ()))


def in_server_of_rrd(server):
    return [MariaDB(server, "BLACKHOLE", data="abcd", queries=False),
            MariaDB(server, "RRD", scans=True, trickle=1, folder="#sql.rrd", flush="ALTER TABLE {table} COMMENT='flushed'")]


def innodb(server, name, **arguments):
    dirty = "SET GLOBAL innodb_max_dirty_pages_pct = "
    return MariaDB(server, name, "ENGINE=InnoDB", flush=dirty + "0", after_flush=dirty + "DEFAULT", **arguments)


def groups(folder):
    """Pairs of a server and the engines in it, which take turns."""
    kinds = {kind: server(folder, kind) for kind in SERVER_OPTIONS}
    by_day = server(folder, "innodb", "by-day")
    yield kinds["rrd"], in_server_of_rrd(kinds["rrd"])
    yield kinds["innodb"], [innodb(kinds["innodb"], "InnoDB", scans=True, trickle=1 / 16)]
    yield by_day, [innodb(by_day, "InnoDB by day", data="acd", two_sessions=False, is_by_day=True)]
    # It refuses large statements unless it may commit parts of them.
    yield kinds["rocksdb"], [MariaDB(kinds["rocksdb"], "MyRocks", "ENGINE=ROCKSDB", data="acde", two_sessions=False, trickle=1 / 16, folder="#rocksdb",
                                     before_load="SET rocksdb_commit_in_the_middle = 1, rocksdb_bulk_load_size = 20000",
                                     flush="SET GLOBAL rocksdb_force_flush_memtable_now = 1; "
                                           "SET GLOBAL rocksdb_compact_cf = 'default'")]
    # It has no keys but of one AUTO_INCREMENT column, and one session writes at a time.
    yield kinds["archive"], [MariaDB(kinds["archive"], "Archive", has_key=False, data="acde", two_sessions=False)]
    yield kinds["myisam"], [MariaDB(kinds["myisam"], "MyISAM", data="a", two_sessions=False, inserts=False, queries=False, scans=True)]
