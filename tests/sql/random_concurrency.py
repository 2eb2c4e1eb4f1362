"""Random transactions of several connections at once: whatever happens, nothing is lost and nobody sees half of it.

Each worker draws transactions at random: transfers between accounts, counters incremented in several ways, jobs taken
with SKIP LOCKED, one key inserted by all, reads that must not change within their snapshot, pairs that only SERIALIZABLE
keeps in bounds, locking reads of rows whose keys move ahead of them, rows of RRD and InnoDB changed together. Statements are killed at random while tables are flushed and
merged. Only lock time-outs, deadlocks, duplicates and kills may end a statement; sums and counts are checked while it
runs and at the end.
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

from private_server import PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "random-concurrency"
DUPLICATE, TIMEOUT, DEADLOCK, KILLED = 1062, 1205, 1213, 1317
EXPECTED = (DUPLICATE, TIMEOUT, DEADLOCK, KILLED)

ACCOUNTS = 12
BALANCE = 1000
COUNTERS = 5
JOBS = 2000
PAIRS = 3
KEYS = 400
ITEMS = 16

SET_UP = [
    "CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL) ENGINE={engine}",
    f"INSERT INTO accounts SELECT seq, {BALANCE} FROM seq_1_to_{ACCOUNTS}",
    "CREATE TABLE counters (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE={engine}",
    f"INSERT INTO counters SELECT seq, 0 FROM seq_1_to_{COUNTERS}",
    "CREATE TABLE mirror (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB",
    f"INSERT INTO mirror SELECT seq, 0 FROM seq_1_to_{COUNTERS}",
    "CREATE TABLE twin (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE={engine}",
    f"INSERT INTO twin SELECT seq, 0 FROM seq_1_to_{COUNTERS}",
    "CREATE TABLE jobs (id INT PRIMARY KEY, note VARCHAR(20)) ENGINE={engine}",
    f"INSERT INTO jobs SELECT seq, CONCAT('job ', seq) FROM seq_1_to_{JOBS}",
    "CREATE TABLE pairs (id INT, side INT, v INT NOT NULL, PRIMARY KEY (id, side)) ENGINE={engine}",
    f"INSERT INTO pairs SELECT p.seq, s.seq, 20 FROM seq_1_to_{PAIRS} p, seq_1_to_2 s",
    # Item i has the numbers whose rest is i: keys can move without meeting each other.
    "CREATE TABLE items (id BIGINT PRIMARY KEY, item INT NOT NULL, place BIGINT NOT NULL, seen INT NOT NULL,"
    " UNIQUE (item), KEY (place)) ENGINE={engine}",
    f"INSERT INTO items SELECT seq - 1, seq - 1, seq - 1, 0 FROM seq_1_to_{ITEMS}",
    "CREATE TABLE readings (sensor INT, ts INT, worker INT, PRIMARY KEY (sensor, ts)) ENGINE={engine}",
]


class Broken(Exception):
    """A promise was not kept."""


def check(condition, text):
    if not condition:
        raise Broken(text)


class Totals:
    """What the workers say that they committed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ended = 0
        self.progress = threading.Condition()
        self.counters = collections.Counter()
        self.twins = collections.Counter()
        self.jobs = collections.Counter()
        self.keys = collections.Counter()
        self.outcomes = collections.Counter()

    def note_end(self):
        """A transaction has ended."""
        with self.progress:
            self.ended += 1
            self.progress.notify_all()

    def wait_for_others(self, count):
        """Waits until so many more transactions have ended; not for long, since all others may wait for the caller."""
        with self.progress:
            wanted = self.ended + count
            self.progress.wait_for(lambda: self.ended >= wanted, timeout=0.1)

    def add(self, of, key, count=1):
        with self.lock:
            getattr(self, of)[key] += count


class Worker:
    """One connection that runs one random transaction after the other."""

    def __init__(self, number, server, seed, totals):
        self.number = number
        self.random = random.Random(seed * 1000 + number)
        self.totals = totals
        self.connection = server.connect(database="test", autocommit=False)
        self.id = self.connection.thread_id()
        self.done = []
        self.query("SET rrd_lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")

    def query(self, text):
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall()

    def changed(self, text):
        """The number of rows that a statement says it changed."""
        with self.connection.cursor() as cursor:
            return cursor.execute(text)

    def run_until(self, deadline):
        kinds = [
            (self.transfer, 5),
            (self.increment_read_value, 4),
            (self.increment_in_place, 4),
            (self.increment_by_upsert, 2),
            (self.increment_twins, 2),
            (self.take_job, 4),
            (self.insert_key, 3),
            (self.read_snapshot, 3),
            (self.read_each_statement, 2),
            (self.read_shared, 2),
            (self.decrement_pair, 3),
            (self.move_items, 6),
            (self.read_moving_items, 4),
        ]
        names, weights = zip(*kinds)
        while time.monotonic() < deadline:
            (kind,) = self.random.choices(names, weights)
            self.attempt(kind)

    def attempt(self, kind):
        """Runs a transaction; what it did counts only when its COMMIT said so."""
        self.done = []
        outcome = "committed"
        try:
            kind()
            self.query("COMMIT")
        except MySQLError as error:
            outcome = error.args[0]
            check(outcome in EXPECTED, f"{kind.__name__}: unexpected error {error}")
            self.connection.rollback()
            self.done = []
        for of, key, count in self.done:
            self.totals.add(of, key, count)
        self.totals.add("outcomes", outcome)
        self.totals.note_end()

    def begin(self, level="REPEATABLE READ"):
        self.query(f"SET TRANSACTION ISOLATION LEVEL {level}")
        self.query("BEGIN")

    def begin_any(self):
        self.begin(self.random.choice(("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")))

    def pause(self):
        if self.random.random() < 0.3:
            self.totals.wait_for_others(self.random.randint(1, 3))

    def two_accounts(self):
        return self.random.sample(range(1, ACCOUNTS + 1), 2)

    def transfer(self):
        self.begin_any()
        one, other = self.two_accounts()
        amount = self.random.randint(1, 50)
        if self.random.random() < 0.5:
            rows = dict(self.query(f"SELECT id, balance FROM accounts WHERE id IN ({one}, {other}) FOR UPDATE"))
            self.pause()
            self.query(f"UPDATE accounts SET balance = {rows[one] - amount} WHERE id = {one}")
            self.query(f"UPDATE accounts SET balance = {rows[other] + amount} WHERE id = {other}")
        else:
            self.query(f"UPDATE accounts SET balance = balance - {amount} WHERE id = {one}")
            self.pause()
            self.query("SAVEPOINT s")
            self.query(f"UPDATE accounts SET balance = balance + 1 WHERE id = {other}")
            self.query("ROLLBACK TO s")
            self.query(f"UPDATE accounts SET balance = balance + {amount} WHERE id = {other}")

    def increment_read_value(self):
        self.begin_any()
        counter = self.random.randint(1, COUNTERS)
        ((n,),) = self.query(f"SELECT n FROM counters WHERE id = {counter} FOR UPDATE")
        self.pause()
        self.query(f"UPDATE counters SET n = {n + 1} WHERE id = {counter}")
        self.done.append(("counters", counter, 1))

    def increment_in_place(self):
        self.begin_any()
        counters = self.random.sample(range(1, COUNTERS + 1), 2)
        if self.random.random() < 0.2:
            self.query("UPDATE counters SET n = n + 1")
            counters = range(1, COUNTERS + 1)
        else:
            for counter in counters:
                self.query(f"UPDATE counters SET n = n + 1 WHERE id = {counter}")
                self.pause()
        self.done += [("counters", counter, 1) for counter in counters]

    def increment_by_upsert(self):
        self.begin_any()
        counter = self.random.randint(1, COUNTERS)
        self.query(f"INSERT INTO counters VALUES ({counter}, 0) ON DUPLICATE KEY UPDATE n = n + 1")
        self.done.append(("counters", counter, 1))

    def increment_twins(self):
        self.begin()
        counter = self.random.randint(1, COUNTERS)
        for table in self.random.sample(("twin", "mirror"), 2):
            self.query(f"UPDATE {table} SET n = n + 1 WHERE id = {counter}")
        self.done.append(("twins", counter, 1))

    def take_job(self):
        self.begin(self.random.choice(("READ COMMITTED", "REPEATABLE READ")))
        rows = self.query("SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
        for (job,) in rows:
            self.pause()
            count = self.changed(f"DELETE FROM jobs WHERE id = {job}")
            check(count == 1, f"DELETE of job {job}, which is locked, said OK and {count} rows")
            self.done.append(("jobs", job, 1))

    def insert_key(self):
        self.begin()
        key = self.random.randint(1, KEYS)
        self.query(f"INSERT INTO readings VALUES ({key % 7}, {key}, {self.number})")
        self.pause()
        self.done.append(("keys", key, 1))

    def read_snapshot(self):
        self.begin(self.random.choice(("REPEATABLE READ", "SERIALIZABLE")))
        first = self.query("SELECT * FROM accounts ORDER BY id")
        check(sum(row[1] for row in first) == ACCOUNTS * BALANCE, f"a snapshot with another sum: {first}")
        self.pause()
        again = self.query("SELECT * FROM accounts ORDER BY id DESC")
        check(first == again[::-1], f"a snapshot that changed: {first} {again}")

    def read_each_statement(self):
        self.begin("READ COMMITTED")
        for _ in range(2):
            ((total, rows),) = self.query("SELECT SUM(balance), COUNT(*) FROM accounts")
            check((total, rows) == (ACCOUNTS * BALANCE, ACCOUNTS), f"half a transfer: {total} in {rows} accounts")
            self.pause()

    def read_shared(self):
        self.begin_any()
        one, other = self.two_accounts()
        text = f"SELECT * FROM accounts WHERE id IN ({one}, {other}) LOCK IN SHARE MODE"
        first = self.query(text)
        self.pause()
        again = self.query(text)
        check(first == again, f"a row changed under a shared lock: {first} {again}")
        if self.random.random() < 0.3:
            self.query(f"UPDATE accounts SET balance = balance WHERE id = {one}")

    def decrement_pair(self):
        """Keeps v1 + v2 >= 0, which needs that nobody changes the other side meanwhile."""
        self.begin("SERIALIZABLE")
        pair, side = self.random.randint(1, PAIRS), self.random.randint(1, 2)
        rows = self.query(f"SELECT side, v FROM pairs WHERE id = {pair}")
        check(len(rows) == 2 and sum(v for _, v in rows) >= 0, f"a pair below zero: {rows}")
        self.pause()
        step = -15 if sum(v for _, v in rows) >= 15 else 7
        self.query(f"UPDATE pairs SET v = v + {step} WHERE id = {pair} AND side = {side}")

    def move_items(self):
        """Moves rows towards the end of the table, or of an index: whoever walks there with locks meets them once."""
        self.begin(self.random.choice(("READ COMMITTED", "REPEATABLE READ")))
        column = self.random.choice(("id", "place"))
        for item in self.random.sample(range(ITEMS), self.random.randint(1, 3)):
            ahead = ITEMS * self.random.randint(1, 5)
            self.query(f"UPDATE items SET {column} = {column} + {ahead} WHERE item = {item}")
            self.pause()

    def read_moving_items(self):
        self.begin(self.random.choice(("READ COMMITTED", "REPEATABLE READ")))
        way = self.random.choice(("PRIMARY", "place"))
        order = {"PRIMARY": "id", "place": "place"}[way]
        if self.random.random() < 0.3:
            count = self.changed(f"UPDATE items FORCE INDEX ({way}) SET seen = seen + 1 WHERE {order} >= 0")
            check(count == ITEMS, f"UPDATE along {way} of {ITEMS} rows that move changed {count}")
            return
        lock = self.random.choice(("FOR UPDATE", "LOCK IN SHARE MODE"))
        rows = self.query(f"SELECT item, id, place FROM items FORCE INDEX ({way}) WHERE {order} >= 0 ORDER BY {order} {lock}")
        check(sorted(row[0] for row in rows) == list(range(ITEMS)), f"{lock} along {way}, of {ITEMS} rows that move: {rows}")


class Disturber:
    """Kills statements, flushes and merges."""

    def __init__(self, server, seed, workers, totals):
        self.totals = totals
        self.connection = server.connect(database="test", autocommit=True)
        self.random = random.Random(seed)
        self.workers = workers

    def run_until(self, deadline):
        with self.connection.cursor() as cursor:
            while time.monotonic() < deadline:
                self.totals.wait_for_others(10)
                if self.random.random() < 0.1:
                    table = self.random.choice(("accounts", "counters", "jobs", "readings", "pairs", "twin", "items"))
                    cursor.execute(f"CHECK TABLE {table}")
                    check(cursor.fetchall()[-1][3] == "OK", f"CHECK TABLE {table} found damage")
                else:
                    cursor.execute(f"KILL QUERY {self.random.choice(self.workers).id}")


def final_checks(server, totals):
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:

        def rows(text):
            cursor.execute(text)
            return cursor.fetchall()

        total = rows("SELECT SUM(balance) FROM accounts")[0][0]
        check(total == ACCOUNTS * BALANCE, f"the accounts have {total}")
        counters = dict(rows("SELECT id, n FROM counters"))
        check(counters == {c: totals.counters[c] for c in counters}, f"{counters} instead of {totals.counters}")
        twins, mirror = dict(rows("SELECT id, n FROM twin")), dict(rows("SELECT id, n FROM mirror"))
        check(twins == mirror == {c: totals.twins[c] for c in twins}, f"{twins} {mirror} {totals.twins}")
        left = {job for (job,) in rows("SELECT id FROM jobs")}
        check(all(count == 1 for count in totals.jobs.values()), "a job was taken twice")
        check(left == set(range(1, JOBS + 1)) - set(totals.jobs), "jobs were lost")
        keys = {key for (key,) in rows("SELECT ts FROM readings")}
        check(all(count == 1 for count in totals.keys.values()), "a key was inserted twice")
        check(keys == set(totals.keys), "rows that were inserted are missing, or there are others")
        low = rows("SELECT id, SUM(v) FROM pairs GROUP BY id HAVING SUM(v) < 0")
        check(not low, f"pairs below zero: {low}")
        locks = rows("SHOW GLOBAL STATUS LIKE 'Rrd_row_locks'")
        check(all(value == "0" for _, value in locks), f"locks were left behind: {locks}")
        items = sorted(rows(f"SELECT item, id MOD {ITEMS}, place MOD {ITEMS} FROM items"))
        check(items == [(i, i, i) for i in range(ITEMS)], f"items were lost, or are there twice: {items}")
        for table in ("accounts", "counters", "twin", "jobs", "pairs", "readings", "items"):
            check(rows(f"CHECK TABLE {table}")[-1][3] == "OK", f"CHECK TABLE {table} found damage")


def run(server, arguments, seed):
    engine = arguments.engine
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS test")
        cursor.execute("USE test")
        for statement in SET_UP:
            cursor.execute(statement.format(engine=engine))
    totals = Totals()
    workers = [Worker(number, server, seed, totals) for number in range(arguments.workers)]
    deadline = time.monotonic() + arguments.seconds
    failures = []

    def guarded(work):
        try:
            work.run_until(deadline)
        except Exception as error:  # whatever ends a thread is the result of the test
            failures.append("".join(traceback.format_exception(error)))

    threads = [threading.Thread(target=guarded, args=[work]) for work in [*workers, Disturber(server, seed, workers, totals)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in workers:
        worker.connection.close()
    if failures:
        raise Broken("\n".join(failures))
    final_checks(server, totals)
    return totals.outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default="RRD")
    arguments = parser.parse_args()
    options = ["--innodb-flush-log-at-trx-commit=0", "--loose-rrd-flush-log-at-trx-commit=0"]
    options += ["--loose-rrd-memtable-size=1M", "--loose-innodb-snapshot-isolation=OFF"]
    server = PrivateServer(FOLDER, options)
    server.erase()
    try:
        with server:
            outcomes = run(server, arguments, arguments.seed)
    except (Broken, MySQLError, ServerError) as error:
        print(f"seed {arguments.seed}: {error}\nthe server's last words:\n{server.tail_of_log(20)}")
        return 1
    finally:
        server.kill()
    shown = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    print(f"random concurrency: seed {arguments.seed}, {arguments.workers} connections: {shown}; nothing lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
