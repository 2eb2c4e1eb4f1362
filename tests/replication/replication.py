"""A replica of ENGINE=RRD shows what its primary shows: in each binary log format, with and without parallel workers,
and after kill -9 of either or both at random moments.

Each configuration is a test: clients write for a while, then the replica catches up and all tables are compared. Then
come ROUNDS rounds of kills, spread over the configurations; after each of them the servers are only started again. A
primary that had committed something other than what its binary log says would differ from its replica.
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time
import traceback

from pymysql.err import MySQLError

import workload
from pair import FOLDER, Pair, ServerError, Wrong

CLIENTS = 4
# format, workers, mode, row image
CONFIGURATIONS = [
    ("ROW", 4, "optimistic", "FULL"),
    ("MIXED", 4, "conservative", "FULL"),
    ("STATEMENT", 4, "optimistic", "FULL"),
    ("ROW", 4, "aggressive", "MINIMAL"),
    ("ROW", 0, "conservative", "NOBLOB"),
    ("MIXED", 4, "optimistic", "FULL"),
    ("MIXED", 4, "aggressive", "FULL"),
    ("STATEMENT", 0, "conservative", "FULL"),
    ("STATEMENT", 4, "conservative", "FULL"),
    ("STATEMENT", 4, "aggressive", "FULL"),
    ("ROW", 4, "conservative", "MINIMAL"),
    ("MIXED", 0, "conservative", "FULL"),
    ("ROW", 4, "minimal", "FULL"),
]


class Test:
    """The pair of servers, its clients, and the count."""

    def __init__(self, arguments):
        self.rng = random.Random(f"{arguments.seed}/test")
        self.seconds = arguments.seconds
        self.pair = Pair()
        self.crowd = workload.Crowd(CLIENTS, arguments.seed, FOLDER)
        self.passed = self.failed = 0

    def run(self, arguments):
        self.pair.create()
        workload.create(self.pair.primary)
        self.test("XA transactions", self.xa)
        self.test("rings and tiers", self.rings)
        self.test("dumps with tiers", self.dumps)
        for keeps_log in (True, False):
            log = "and a binary log" if keeps_log else "and no binary log"
            self.test(f"rows side by side, MIXED {log}", lambda keeps_log=keeps_log: self.rows_side_by_side(keeps_log))
        for configuration in CONFIGURATIONS[: arguments.configurations]:
            self.pair.configure(*configuration)
            self.test(" ".join(map(str, configuration)), self.steady)
        for number in range(arguments.rounds):
            if self.failed:
                break
            configuration = CONFIGURATIONS[number % len(CONFIGURATIONS)]
            self.pair.configure(*configuration)
            victims = self.rng.choice([["primary"], ["replica"], ["primary", "replica"]])
            what = f"kill -9 of {' and '.join(victims)}, round {number}, {' '.join(map(str, configuration))}"
            self.test(what, lambda victims=victims: self.kill(victims))
        if not self.failed:
            self.test("the replica's position is in a table of ENGINE=RRD", self.position_table)

    def test(self, name, body):
        if self.failed:
            return
        started, statements = time.monotonic(), self.crowd.statements
        try:
            body()
        except (Wrong, ServerError, MySQLError, AssertionError) as problem:
            self.failed += 1
            print(f"{name}: FAILED\n{''.join(traceback.format_exception_only(problem))}", flush=True)
            return
        self.passed += 1
        done = self.crowd.statements - statements
        print(f"{name}: passed, {done} statements, {time.monotonic() - started:.1f} s", flush=True)

    # -- the tests ---------------------------------------------------------------------------

    def steady(self):
        self.crowd.start(self.pair.primary)
        time.sleep(self.seconds)
        self.crowd.stop()
        self.pair.catch_up()
        self.pair.compare(workload.TABLES)

    def kill(self, victims):
        servers = [getattr(self.pair, victim) for victim in victims]
        self.crowd.start(self.pair.primary)
        time.sleep(self.rng.uniform(0.2, self.seconds))
        killers = [threading.Thread(target=server.kill) for server in servers]
        for killer in killers:
            killer.start()
            if self.rng.random() < 0.5:
                time.sleep(self.rng.uniform(0, 0.1))
        for killer in killers:
            killer.join()
        if "primary" not in victims:
            time.sleep(self.rng.uniform(0, 0.5))
        self.crowd.stop()
        if "replica" in victims and self.rng.random() < 0.3:
            self.kill_while_starting(self.pair.replica)
        for server in servers:
            server.start()
        self.pair.catch_up()
        self.pair.compare(workload.TABLES)

    def kill_while_starting(self, server):
        timer = threading.Timer(self.rng.uniform(0.1, 1.0), lambda: server.process and server.process.kill())
        timer.start()
        try:
            server.start()
        except ServerError:
            pass  # killed before it answered, as wanted
        timer.join()
        server.kill()

    def xa(self):
        """Prepared, then killed: the second phase comes after the restart, and reaches the replica."""
        primary = self.pair.primary
        primary.sql("XA START 'one'; INSERT INTO test.readings VALUES (9, 1, 1, 1, 'xa'); XA END 'one'; XA PREPARE 'one'")
        primary.sql("XA START 'two'; INSERT INTO test.readings VALUES (9, 2, 1, 1, 'xa'); XA END 'two'; XA PREPARE 'two'")
        self.pair.primary.kill()
        self.pair.primary.start()
        prepared = sorted(row[3] for row in primary.sql("XA RECOVER"))
        if prepared != ["one", "two"]:
            raise Wrong(f"XA RECOVER after kill -9 lists {prepared}")
        primary.sql("XA COMMIT 'one'; XA ROLLBACK 'two'")
        self.pair.catch_up()
        self.pair.compare(workload.TABLES)
        rows = self.pair.replica.sql("SELECT ts FROM test.readings WHERE sensor = 9")
        if rows != [["1"]]:
            raise Wrong(f"of the XA transactions the replica has {rows}")

    def rings(self):
        """Rings and tiers of a replica are its own; rows that left its ring earlier than the primary's do not stop it."""
        primary, replica = self.pair.primary, self.pair.replica
        primary.sql(
            "CREATE TABLE test.ring (sensor INT, ts INT, v INT, PRIMARY KEY (sensor, ts), KEY (v)) ENGINE=RRD"
            " MAX_ROWS=2000 TIERS='10m'; CREATE TABLE test.aged LIKE test.ring;"
            " ALTER TABLE test.aged MAX_ROWS=0 RETENTION='1d'"
        )
        for table in ("ring", "aged"):
            primary.sql(
                f"INSERT INTO test.{table} SELECT seq % 10, 1700000000 + seq * 7, seq FROM test.seq_1_to_10000;"
                f" REPLACE INTO test.{table} VALUES (1, 1700069000, -1), (1, 5, -2);"
                f" DELETE FROM test.{table} WHERE v BETWEEN 9900 AND 9910"
            )
        self.pair.catch_up()
        queries = [f"SELECT * FROM test.`{table}` ORDER BY 1, 2" for table in ("ring", "ring$10m", "aged", "aged$10m")]
        for query in queries:
            if primary.sql(query) != replica.sql(query):
                raise Wrong(f"the replica has another result of {query}")
        if primary.sql("SELECT COUNT(*) FROM test.ring") != [["1989"]]:
            raise Wrong("the ring of the primary has a wrong number of rows")
        replica.sql("SET sql_log_bin = 0; ALTER TABLE test.aged RETENTION='10m'")
        primary.sql(
            "UPDATE test.aged SET v = v + 1 WHERE ts < 1700040000; DELETE FROM test.aged WHERE ts < 1700035000;"
            " UPDATE test.aged SET ts = 1700070001 WHERE sensor = 3 AND ts < 1700036000 LIMIT 1"
        )
        self.pair.catch_up()
        shorter = "SELECT sensor, ts, v FROM test.aged WHERE ts >= 1700070001 - 600 ORDER BY 1, 2"
        if primary.sql(shorter) != replica.sql("SELECT * FROM test.aged ORDER BY 1, 2"):
            raise Wrong("the shorter ring of the replica has other rows than the end of the primary's")
        primary.sql("DROP TABLE test.ring, test.aged")
        self.pair.catch_up()

    def dumps(self):
        """What a dump says of tiers does not reach the replica, whose tables may be of another engine; its rows do."""
        primary, replica = self.pair.primary, self.pair.replica
        self.pair.configure("MIXED", 4, "optimistic")
        columns = "sensor INT, ts INT, v INT, PRIMARY KEY (sensor, ts)"
        for table in ("early", "late"):
            primary.sql(f"CREATE TABLE test.{table} ({columns}) ENGINE=RRD TIERS='1h, 1d'")
            primary.sql(f"INSERT INTO test.{table} SELECT seq % 10, 1700000000 + seq * 60, seq FROM test.seq_1_to_5000")
        primary.sql(f"SET sql_log_bin = 0; CREATE TABLE test.plain ({columns}) ENGINE=RRD TIERS='1d'")
        replica.sql(f"SET sql_log_bin = 0; CREATE TABLE test.plain ({columns}) ENGINE=InnoDB")
        tables = ["early", "late", "early$1h", "early$1d", "late$1h", "late$1d"]
        dump = ["mariadb-dump", "--no-defaults", f"--socket={primary.socket}", "--user=root", "test"]
        whole = subprocess.run([*dump, *tables], capture_output=True, text=True, check=True).stdout
        tier = subprocess.run([*dump, "plain$1d"], capture_output=True, text=True, check=True).stdout
        for text in (whole, whole, tier, "INSERT INTO plain VALUES (1, 1700000000, 1)", whole):
            primary.sql(text, "test")
        self.pair.catch_up()
        self.pair.compare([*tables, "plain"])
        primary.sql("DROP TABLE test.early, test.late, test.plain")
        self.pair.catch_up()

    def rows_side_by_side(self, keeps_log):
        """A worker that waits for a row does not hold up one that writes another row, whether the replica has a binary log of
        its own or not; and the second one need not be tried again when the first one goes on."""
        primary, replica = self.pair.primary, self.pair.replica
        self.pair.configure("MIXED", 4, "optimistic")
        options = replica.options
        if not keeps_log:
            replica.options = [option for option in options if option != "--log-slave-updates"]
        replica.stop()
        replica.start()
        primary.sql("CREATE TABLE test.apart (a INT PRIMARY KEY, v INT) ENGINE=RRD; INSERT INTO test.apart VALUES (1,0), (2,0)")
        self.pair.catch_up()
        retried = "SHOW GLOBAL STATUS LIKE 'Slave_retried_transactions'"
        before = replica.sql(retried)
        with replica.connect(autocommit=False) as holder, holder.cursor() as cursor:
            cursor.execute("SELECT * FROM test.apart WHERE a = 1 FOR UPDATE")
            primary.sql("UPDATE test.apart SET v = 1 WHERE a = 1; UPDATE test.apart SET v = 2 WHERE a = 2")
            is_waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Waiting for prior transaction to commit'"
            deadline = time.monotonic() + 10
            while replica.sql(is_waiting) != [["1"]]:
                if time.monotonic() > deadline:
                    raise Wrong(f"the second transaction did not come to its commit: {replica.sql('SHOW PROCESSLIST')}")
                time.sleep(0.05)
            holder.rollback()
        self.pair.catch_up()
        self.pair.compare(["apart"])
        if replica.sql(retried) != before:
            raise Wrong(f"a transaction had to be tried again: {before} {replica.sql(retried)}")
        primary.sql("DROP TABLE test.apart")
        self.pair.catch_up()
        replica.options = options
        replica.stop()
        replica.start()

    def position_table(self):
        tables = self.pair.replica.sql(
            "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = 'mysql'"
            " AND table_name LIKE 'gtid_slave_pos%'"
        )
        if ["gtid_slave_pos_RRD", "RRD"] not in tables:
            raise Wrong(f"the replica's position is kept in {tables}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "8")))
    parser.add_argument("--configurations", type=int, default=len(CONFIGURATIONS))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seed", default=os.environ.get("SEED", "1"))
    arguments = parser.parse_args()
    test = Test(arguments)
    try:
        test.run(arguments)
    finally:
        test.pair.stop()
    print(f"replication: {test.crowd.statements} statements, {test.crowd.refused} refused as they may be", flush=True)
    if test.failed:
        print(f"seed {arguments.seed}; the servers' folders are left as they are: {FOLDER}")
    else:
        test.pair.erase()
    print(f"{test.passed} passed, {test.failed} failed")
    return 1 if test.failed else 0


if __name__ == "__main__":
    sys.exit(main())
