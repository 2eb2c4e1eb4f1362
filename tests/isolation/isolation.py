"""Random transactions of many clients, judged: does what they saw come from any order of transactions?

Clients append values to lists and read lists, one row or many, with and without locks, under all isolation levels, in plain and
in XA transactions with savepoints. Meanwhile statements and connections are killed, tables are altered, flushed and merged, and
once in a while the whole server is killed. What each transaction did and saw goes to judge.py, which knows nothing of the engine.

What is promised (docs/reference/locking.md) says which reads bind: those that lock, plain ones under SERIALIZABLE, and those of transactions
under REPEATABLE READ that write nothing. Each run prints the histories that were checked and their anomalies by kind.
"""

import argparse
import collections
import random
import sys
import threading
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pymysql.err import MySQLError  # noqa: E402

from judge import ABORTED, ANOMALIES, COMMITTED, UNKNOWN, Append, Read, Transaction, judge  # noqa: E402
from private_server import PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "isolation"
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

# 1062 duplicate, 1205 time-out, 1213 deadlock, 1317 killed, 1412 the table was altered, 1969 out of time: the transaction is
# rolled back and another one begun. 1402 and 1614: the same of an XA transaction.
EXPECTED = {1062, 1205, 1213, 1317, 1412, 1402, 1614, 1969}
# The connection, or the server, has gone: whether a COMMIT was done is not known.
GONE = {0, 1053, 1927, 2002, 2003, 2006, 2013, 2014, 2055}
XA_NOT_KNOWN = 1397

# Keys of a history; those of the first table are there from the beginning, of the others nothing is.
KEYS = 6
TRANSACTIONS_OF_A_HISTORY = 120

# One column as key, a key behind a series, and a key beside the list.
TABLES = {
    "lists": "CREATE TABLE lists (id INT PRIMARY KEY, v TEXT NOT NULL) ENGINE={engine}",
    "series": "CREATE TABLE series (s INT, ts INT, v TEXT NOT NULL, PRIMARY KEY (s, ts)) ENGINE={engine}",
    "coded": "CREATE TABLE coded (id INT AUTO_INCREMENT PRIMARY KEY, code INT NOT NULL, v TEXT NOT NULL, UNIQUE (code))"
    " ENGINE={engine}",
}


class Broken(Exception):
    """Something else than an anomaly went wrong."""


def where(table, number):
    """The condition that finds a list by its whole key."""
    return {
        "lists": f"id = {number}",
        "series": f"s = {number % 3} AND ts = {number}",
        "coded": f"code = {number}",
    }[table]


def parse(text):
    return [int(value) for value in text.split(",") if value]


class Histories:
    """Transactions by the history that they belong to; each has keys of its own."""

    def __init__(self):
        self.lock = threading.Condition()
        self.begun = 0
        self.value = 0
        self.transactions = collections.defaultdict(list)
        self.outcomes = collections.Counter()

    def begin(self):
        """The number of the history that the next transaction belongs to."""
        with self.lock:
            self.begun += 1
            self.lock.notify_all()
            return self.begun // TRANSACTIONS_OF_A_HISTORY

    def wait_until_begun(self, count):
        """Waits for so many transactions, a second at most; whether they have begun."""
        with self.lock:
            return self.lock.wait_for(lambda: self.begun >= count, timeout=1)

    def next_value(self):
        with self.lock:
            self.value += 1
            return self.value

    def add(self, history, transaction):
        with self.lock:
            self.transactions[history].append(transaction)
            self.outcomes[transaction.status] += 1


class Client:
    """Runs one random transaction after the other, on a new connection when the old one was killed."""

    def __init__(self, number, server, seed, histories):
        self.number = number
        self.server = server
        self.random = random.Random(seed * 1000 + number)
        self.histories = histories
        self.connection = None
        self.id = None
        self.count = 0

    def connect(self, deadline):
        while self.connection is None:
            try:
                self.connection = self.server.connect(database="test", autocommit=True)
                self.id = self.connection.thread_id()
                self.query("SET rrd_lock_wait_timeout = 1, lock_wait_timeout = 2")
            except MySQLError as error:
                self.drop()
                if time.monotonic() > deadline + 60:
                    raise Broken(f"no connection: {error}") from error
                self.server.started.wait(1)

    def drop(self):
        connection, self.connection, self.id = self.connection, None, None
        if connection is not None:
            try:
                connection.close()
            except MySQLError:
                pass

    def query(self, text):
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall()

    def run_until(self, deadline):
        while time.monotonic() < deadline:
            self.connect(deadline)
            self.transaction(deadline)
        self.drop()

    def transaction(self, deadline):
        self.count += 1
        name = f"{self.number}.{self.count}"
        history = self.histories.begin()
        level = self.random.choice(LEVELS)
        xid = f"x{name}" if self.random.random() < 0.2 else None
        steps = []
        reads_only = self.random.random() < 0.3
        status = ABORTED
        try:
            self.query(f"SET TRANSACTION ISOLATION LEVEL {level}")
            self.query(f"XA START '{xid}'" if xid else "BEGIN")
            for _ in range(self.random.randint(1, 5)):
                self.step(history, level, steps, reads_only, bool(xid))
            if self.random.random() < 0.1:
                self.end(xid, "ROLLBACK")
            else:
                status = UNKNOWN
                self.end(xid, "COMMIT")
                status = COMMITTED
        except MySQLError as error:
            status = self.failed(error, xid, status, deadline)
        binds = level == "REPEATABLE READ" and all(isinstance(step, Read) and not step.binds for step in steps)
        for step in steps if binds else ():
            step.binds = True
        self.histories.add(history, Transaction(f"{name} ({level})", status, steps))

    def end(self, xid, how):
        if not xid:
            self.query(how)
            return
        self.query(f"XA END '{xid}'")
        self.query(f"XA PREPARE '{xid}'")
        self.query(f"XA {how} '{xid}'")

    def failed(self, error, xid, status, deadline):
        """How a transaction with an error ended."""
        code = error.args[0] if error.args else 0
        if code not in EXPECTED and code not in GONE and not (xid and code in (1399, XA_NOT_KNOWN)):
            raise Broken(f"unexpected error {error}")
        if status == UNKNOWN and code in (1062, 1213):
            status = ABORTED
        if xid:
            # Prepared or not: the connection is of no use any more, and who comes next decides.
            was = self.id
            self.drop()
            return self.decide(xid, was, status, deadline)
        try:
            self.connection.rollback()
        except (MySQLError, AttributeError):
            self.drop()
        if code in GONE:
            self.drop()
        return status

    def decide(self, xid, was, status, deadline):
        """Rolls back what connection `was` may have prepared; the status as it was if there is nothing to roll back."""
        while True:
            self.connect(deadline)
            try:
                # Until its end is through with it, the old connection may still prepare the transaction.
                while self.query(f"SELECT 1 FROM information_schema.processlist WHERE id = {was}"):
                    pass
                self.query(f"XA ROLLBACK '{xid}'")
                return ABORTED
            except MySQLError as error:
                code = error.args[0] if error.args else 0
                if code == XA_NOT_KNOWN:
                    return status
                if code not in EXPECTED and code not in GONE:
                    raise Broken(f"XA ROLLBACK: {error}") from error
                self.drop()

    def step(self, history, level, steps, reads_only, is_xa):
        table = self.random.choice(list(TABLES))
        number = history * KEYS + self.random.randrange(KEYS)
        choice = self.random.random()
        if reads_only or choice < 0.45:
            self.read(table, number, level, steps, may_lock=not reads_only)
        elif choice < 0.55:
            self.read_range(history, level, steps)
        elif choice < 0.62 and not is_xa:
            self.query("SAVEPOINT s")
            before = len(steps)
            self.append(table, number, steps)
            self.query("ROLLBACK TO s")
            for step in steps[before:]:
                step.undone = True
        else:
            self.append(table, number, steps)

    def append(self, table, number, steps):
        value = self.histories.next_value()
        into = {
            "lists": f"lists (id, v) VALUES ({number}, '{value}')",
            "series": f"series (s, ts, v) VALUES ({number % 3}, {number}, '{value}')",
            "coded": f"coded (code, v) VALUES ({number}, '{value}')",
        }[table]
        ways = ["upsert", "update"]
        if table == "lists":
            # The row is there from the beginning.
            ways = ["update", "update", "upsert"]
        way = self.random.choice(ways)
        if way == "upsert":
            self.query(f"INSERT INTO {into} ON DUPLICATE KEY UPDATE v = CONCAT(v, ',{value}')")
        else:
            with self.connection.cursor() as cursor:
                changed = cursor.execute(f"UPDATE {table} SET v = CONCAT(v, ',{value}') WHERE {where(table, number)}")
            if changed == 0:
                # Nobody has inserted the row, and the key is locked but under READ COMMITTED: 1062 tells of who did.
                self.query(f"INSERT INTO {into}")
        steps.append(Append((table, number), value))

    def read(self, table, number, level, steps, may_lock):
        lock = self.random.choice(("", "", " FOR UPDATE", " LOCK IN SHARE MODE")) if may_lock else ""
        rows = self.query(f"SELECT v FROM {table} WHERE {where(table, number)}{lock}")
        values = parse(rows[0][0]) if rows else []
        # Under READ COMMITTED the lock of a key without a row is given back.
        binds = level == "SERIALIZABLE" or (bool(lock) and (bool(rows) or level != "READ COMMITTED"))
        steps.append(Read((table, number), values, binds))

    def read_range(self, history, level, steps):
        first = history * KEYS
        rows = self.query(f"SELECT id, v FROM lists WHERE id BETWEEN {first} AND {first + KEYS - 1} ORDER BY id")
        found = dict(rows)
        for number in range(first, first + KEYS):
            # A history whose rows are not there yet has none in any order.
            if number in found:
                steps.append(Read(("lists", number), parse(found[number]), level == "SERIALIZABLE"))


class Disturber:
    """Kills, alters, flushes and merges, at the pace of the clients: each time that so many transactions have begun."""

    ALTERATIONS = (
        "ALTER TABLE lists ADD COLUMN extra INT, ALGORITHM=INSTANT",
        "ALTER TABLE lists DROP COLUMN extra",
        "ALTER TABLE series ADD KEY by_ts (ts)",
        "ALTER TABLE series DROP KEY by_ts",
        "ALTER TABLE coded FORCE",
        "OPTIMIZE TABLE lists",
        "OPTIMIZE TABLE series",
        "CHECK TABLE coded",
        "FLUSH TABLES lists",
    )

    def __init__(self, server, seed, clients, histories, kills_server):
        self.server = server
        self.random = random.Random(seed)
        self.clients = clients
        self.histories = histories
        self.kills_server = kills_server
        self.connection = None
        self.counts = collections.Counter()

    def run_until(self, deadline):
        acted_at = 0
        while time.monotonic() < deadline:
            if not self.histories.wait_until_begun(acted_at + 15):
                continue
            acted_at = self.histories.begun
            try:
                self.act()
            except MySQLError:
                self.connection = None

    def act(self):
        if self.kills_server and self.random.random() < 0.004:
            self.counts["server kills"] += 1
            self.server.started.clear()
            self.server.kill()
            self.server.start()
            self.server.started.set()
            self.connection = None
        if self.connection is None:
            self.connection = self.server.connect(database="test", autocommit=True)
        with self.connection.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 1")
            choice = self.random.random()
            victim = self.random.choice(self.clients).id
            if choice < 0.15:
                self.counts["DDL"] += 1
                cursor.execute(self.random.choice(self.ALTERATIONS))
            elif victim is not None:
                how = "QUERY" if choice < 0.8 else "CONNECTION"
                self.counts["kills"] += 1
                cursor.execute(f"KILL {how} {victim}")


def set_up(server, engine):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS test")
        cursor.execute("USE test")
        for table, definition in TABLES.items():
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            cursor.execute(definition.format(engine=engine))
        cursor.execute("INSERT INTO lists (id, v) SELECT seq, '' FROM seq_0_to_199999")


def final_lists(server):
    final = collections.defaultdict(dict)
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        for table, key in (("lists", "id"), ("series", "ts"), ("coded", "code")):
            cursor.execute(f"SELECT {key}, v FROM {table} WHERE v != ''")
            for number, text in cursor.fetchall():
                final[number // KEYS][table, number] = parse(text)
        cursor.execute("XA RECOVER")
        left = cursor.fetchall()
        if left:
            raise Broken(f"prepared transactions were left behind: {left}")
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Rrd_row_locks'")
        for _, locks in cursor.fetchall():
            if locks != "0":
                raise Broken(f"{locks} row locks were left behind")
        for table in TABLES:
            cursor.execute(f"CHECK TABLE {table}")
            answer = cursor.fetchall()[-1][3]
            if answer != "OK":
                raise Broken(f"CHECK TABLE {table}: {answer}")
    return final


def run(server, arguments):
    set_up(server, arguments.engine)
    server.started = threading.Event()
    server.started.set()
    histories = Histories()
    clients = [Client(n, server, arguments.seed, histories) for n in range(arguments.connections)]
    disturber = Disturber(server, arguments.seed, clients, histories, arguments.kill_server)
    deadline = time.monotonic() + arguments.seconds
    problems = []

    def guarded(who):
        try:
            who.run_until(deadline)
        except Exception:  # noqa: BLE001 -- told below
            problems.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(who,)) for who in [*clients, disturber]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise Broken("\n".join(problems))
    return report(histories, final_lists(server), disturber)


def report(histories, final, disturber):
    """Judges each history; the number of anomalies."""
    kinds = collections.Counter()
    for number, transactions in sorted(histories.transactions.items()):
        for finding in judge(transactions, final.get(number, {})):
            kinds[finding.kind] += 1
            if kinds[finding.kind] <= 3:
                print(f"FAIL {finding.kind}: history {number}: {finding.text}")
                for transaction in transactions:
                    if transaction.name in finding.text:
                        print(f"    {transaction}")
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(histories.outcomes.items()))
    disturbed = ", ".join(f"{count} {what}" for what, count in sorted(disturber.counts.items()))
    print(f"{len(histories.transactions)} histories checked; transactions: {outcomes}; beside them {disturbed}")
    print("anomalies: " + ", ".join(f"{kind} {kinds[kind]}" for kind in ANOMALIES))
    return sum(kinds.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--engine", default="RRD")
    parser.add_argument("--kill-server", action="store_true", help="kill the server now and then as well")
    arguments = parser.parse_args()
    print(f"isolation: seed {arguments.seed}, {arguments.connections} connections, {arguments.seconds:g} s", flush=True)
    server = PrivateServer(FOLDER)
    # What an aborted run has left prepared would hold its locks.
    server.erase()
    with server:
        try:
            return 1 if run(server, arguments) else 0
        except (Broken, ServerError) as problem:
            print(f"FAIL {problem}\n{server.tail_of_log()}")
            return 1


if __name__ == "__main__":
    sys.exit(main())
