"""A primary and a replica: two private servers, the second one following the first over a port of the loopback device.

Both keep a binary log that is synced at each commit. The replica keeps its position in a table of ENGINE=RRD, so that
its transactions have one engine. Nothing here repairs anything: after a kill both servers are only started again.
"""

import socket
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from private_server import PrivateServer, ServerError  # noqa: E402, F401

FOLDER = ROOT / "build" / "test" / "replication"
CATCH_UP_S = 240

SMALL = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=1"]
BOTH = ["--sync-binlog=1", "--gtid-strict-mode=1", "--log-slave-updates", "--max-binlog-size=2M", "--slave-net-timeout=10"]
BOTH += ["--rrd-lock-wait-timeout=20", "--innodb-lock-wait-timeout=20", "--local-infile=1", "--rrd-memtable-size=4M"]


class Wrong(Exception):
    """Something that must not be; the text says what."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Pair:
    """The two servers."""

    def __init__(self, folder=FOLDER):
        self.port = free_port()
        network = ["--skip-networking=0", "--bind-address=127.0.0.1"]
        primary = ["--server-id=1", "--log-bin=primary-bin", *network, f"--port={self.port}"]
        replica = ["--server-id=2", "--log-bin=replica-bin", "--gtid-pos-auto-engines=RRD", "--slave-transaction-retries=50"]
        self.primary = PrivateServer(folder / "primary", [*SMALL, *BOTH, *primary])
        self.replica = PrivateServer(folder / "replica", [*SMALL, *BOTH, *replica])

    def create(self):
        self.erase()
        self.primary.start()
        self.replica.start()
        self.primary.sql(
            "CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'secret'; GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1';"
            "CREATE DATABASE IF NOT EXISTS test"
        )
        self.replica.sql(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={self.port}, MASTER_USER='repl',"
            "MASTER_PASSWORD='secret', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE"
        )

    def erase(self):
        self.replica.erase()
        self.primary.erase()

    def stop(self):
        self.replica.stop()
        self.primary.stop()

    def configure(self, binlog_format, threads, mode, image="FULL"):
        """Settings of this part of the test; they outlive a kill as options of the next start."""
        self.primary.sql(f"SET GLOBAL binlog_format={binlog_format}; SET GLOBAL binlog_row_image={image}")
        self.replica.sql(
            f"STOP SLAVE; SET GLOBAL slave_parallel_threads={threads}; SET GLOBAL slave_parallel_mode={mode}; START SLAVE"
        )
        keep = ("--binlog-format", "--binlog-row-image", "--slave-parallel")
        for server in (self.primary, self.replica):
            server.options = [option for option in server.options if not option.startswith(keep)]
        self.primary.options += [f"--binlog-format={binlog_format}", f"--binlog-row-image={image}"]
        self.replica.options += [f"--slave-parallel-threads={threads}", f"--slave-parallel-mode={mode}"]

    # -- following ---------------------------------------------------------------------------

    def slave_status(self):
        with self.replica.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            return dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True))

    def catch_up(self):
        """Waits until the replica has applied all that the primary has in its binary log."""
        ((position,),) = self.primary.sql("SELECT @@gtid_binlog_pos")
        deadline = time.monotonic() + CATCH_UP_S
        while True:
            ((done,),) = self.replica.sql(f"SELECT MASTER_GTID_WAIT('{position}', 2)")
            if done == "0":
                return
            status = self.slave_status()
            errors = [status["Last_IO_Error"] if status["Last_IO_Errno"] not in (0, 2003, 2013, 2026) else ""]
            errors += [status["Last_SQL_Error"]] if status["Slave_SQL_Running"] == "No" else []
            if any(errors):
                raise Wrong(f"the replica stopped: {' '.join(errors)}")
            if time.monotonic() > deadline:
                raise Wrong(f"the replica did not reach {position} in {CATCH_UP_S} s: {status}")

    def compare(self, tables):
        """All rows of all tables, and CHECKSUM TABLE, are the same on both."""
        for table in tables:
            rows = [self.rows(server, table) for server in (self.primary, self.replica)]
            if rows[0] != rows[1]:
                lost, extra = sample(rows[0], rows[1]), sample(rows[1], rows[0])
                raise Wrong(f"{table}: only on the primary {lost}; only on the replica {extra}")
        names = ", ".join(f"test.{table}" for table in tables)
        # Not of VIRTUAL columns: CHECKSUM takes whatever the server's record holds of them, from any earlier row.
        of_virtual = "SELECT table_name FROM information_schema.columns WHERE table_schema = 'test' AND extra LIKE 'VIRTUAL%'"
        virtual = {table for (table,) in self.primary.sql(of_virtual)}
        summed = ", ".join(f"test.{table}" for table in tables if table not in virtual)
        sums = [server.sql(f"CHECKSUM TABLE {summed}") for server in (self.primary, self.replica)]
        if sums[0] != sums[1]:
            raise Wrong(f"CHECKSUM TABLE differs: {sums}")
        for server in (self.primary, self.replica):
            for answer in server.sql(f"CHECK TABLE {names} EXTENDED"):
                if answer[3] != "OK":
                    raise Wrong(f"CHECK TABLE: {answer}")

    def rows(self, server, table):
        with server.connect(database="test") as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return sorted(repr(row) for row in cursor.fetchall())


def sample(mine, other):
    others = set(other)
    only = [row for row in mine if row not in others]
    return f"{len(only)} of {len(mine)}: {[row[:200] for row in only[:3]]}"
