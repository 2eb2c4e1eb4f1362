"""What a server takes: many tables, columns, chunks and connections, wide rows, large blobs.

Each test builds its own tables, looks at them before and after a restart, and tells how long the steps took. Times are
printed, never judged: the machine may be busy. LIMITS=full takes the promised sizes instead of small ones.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pymysql.err import MySQLError  # noqa: E402

from private_server import PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "limits"
CLIENT = ROOT / "bench" / "insert_client.c"
FULL = os.environ.get("LIMITS") == "full"
MEMTABLES = 64 << 20
# Files that the engine opens, beside those of the server: see limits::OPEN_SEGMENT_FILES.
MOST_OPEN_FILES = 600
MIB = 1 << 20


class Wrong(Exception):
    """Something that must not be; the text says what."""


def check(condition, text):
    if not condition:
        raise Wrong(text)


def size(small, full):
    return full if FULL else small


class Clock:
    """Collects "step 1.2 s" for the report."""

    def __init__(self):
        self.steps = []
        self.last = time.monotonic()

    def step(self, name):
        now = time.monotonic()
        self.steps.append(f"{name} {now - self.last:.2f} s")
        self.last = now

    def skip(self):
        self.last = time.monotonic()

    def __str__(self):
        return ", ".join(self.steps)


def one(server, text, database="test"):
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchall()


def status(server, name):
    return int(one(server, f"SHOW GLOBAL STATUS LIKE 'rrd_{name}'")[0][1])


def open_segments(server):
    names = []
    for link in Path(f"/proc/{server.pid()}/fd").iterdir():
        try:
            names.append(os.readlink(link))
        except FileNotFoundError:
            pass
    return sum(name.endswith(".rrds") for name in names)


def fresh(server):
    one(server, "DROP DATABASE IF EXISTS test", None)
    one(server, "CREATE DATABASE test", None)


def engine_opened_s(server):
    """How long the engine took to open, from its own line in the error log; None if it does not say."""
    found = re.findall(r"RRD.*opened in ([0-9.]+) s", server.tail_of_log(1000))
    return float(found[-1]) if found else None


def flush(cursor, table):
    """Rows in memory go to segments: an instant ALTER leaves none in the old layout."""
    cursor.execute(f"ALTER TABLE {table} COMMENT = 'flushed {time.monotonic()}', ALGORITHM=INSTANT")


def restart(server, clock, how="restart"):
    server.stop()
    clock.skip()
    server.start()
    clock.step(how)


# -- tests -------------------------------------------------------------------------------------------------------------


def tables(server):
    """Tables cost what is in them: no step looks through all of them for each one."""
    count = size(100, 10_000)
    clock = Clock()
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        for number in range(count):
            cursor.execute(f"CREATE TABLE t{number} (id INT, ts INT, v DOUBLE, PRIMARY KEY (id, ts)) ENGINE=RRD")
        clock.step(f"{count} tables made")
        # Every memtable has something in it, and together they pass their limit more than once.
        cursor.execute("SET GLOBAL rrd_flush_log_at_trx_commit = 2")
        cursor.execute(f"SET GLOBAL rrd_memtable_size = {size(1, 8) * MIB}")
        for row in range(3):
            for number in range(count):
                cursor.execute(f"INSERT INTO t{number} VALUES (1, {row}, 0.5), (2, {row}, {number})")
        clock.step(f"{3 * count} inserts")
        cursor.execute(f"SET GLOBAL rrd_memtable_size = {MEMTABLES}")
        cursor.execute("SET GLOBAL rrd_flush_log_at_trx_commit = 1")
    clock.skip()
    restart(server, clock)
    check(open_segments(server) <= MOST_OPEN_FILES, f"{open_segments(server)} open segments after the start")
    with server.connect(database="test") as connection, connection.cursor() as cursor:
        for number in range(0, count, max(1, count // 200)):
            cursor.execute(f"SELECT COUNT(*), SUM(v) FROM t{number}")
            check(cursor.fetchone() == (6, 1.5 + 3 * number), f"rows of table {number}")
        clock.step("200 of them read")
        cursor.execute("DROP DATABASE test")
        clock.step("all dropped")
        cursor.execute("CREATE DATABASE test")
    folders = [f for f in (server.data / "#sql.rrd").glob("table-*")]
    check(not folders, f"{len(folders)} folders of dropped tables are left")
    return clock


def columns(server):
    """2,000 columns work; more than the server allows is its own clear error."""
    count = 2000
    clock = Clock()
    kinds = ["INT", "DOUBLE", "VARCHAR(10)", "DATETIME", "DECIMAL(10,2)"]
    names = [f"c{i} {kinds[i % len(kinds)]}" for i in range(count - 2)]
    one(server, f"CREATE TABLE wide (id INT, ts INT, {', '.join(names)}, PRIMARY KEY (id, ts)) ENGINE=RRD")
    clock.step("made")
    values = [["1", "0.5", "'text'", "'2024-05-06 07:08:09'", "12.34"][i % 5] for i in range(count - 2)]
    rows = ", ".join(f"(1, {ts}, {', '.join(values)})" for ts in range(50))
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO wide VALUES {rows}")
        clock.step("50 rows")
        cursor.execute("UPDATE wide SET c0 = 7, c1997 = NULL WHERE id = 1 AND ts = 10")
        cursor.execute("OPTIMIZE TABLE wide")
        clock.step("optimized")
        cursor.execute("SELECT * FROM wide ORDER BY ts")
        read = cursor.fetchall()
        check((len(read), len(read[0])) == (50, count), "rows of the wide table")
        check(read[10][2] == 7 and read[10][-1] is None and read[11][2] == 1, "the updated row")
        cursor.execute("SELECT SUM(c0), MAX(c1996), COUNT(c1997) FROM wide")
        check(cursor.fetchone()[0] == 56, "the sum of a column")
        clock.step("read")
    too_many = ", ".join(f"c{i} INT" for i in range(5000))
    try:
        one(server, f"CREATE TABLE wider ({too_many}) ENGINE=RRD")
        raise Wrong("a table of 5,000 columns")
    except MySQLError as error:
        check(error.args[0] == 1117, f"5,000 columns: {error}")
    return clock


def wide_rows(server):
    """Rows of 60 KB: as large as the server lets a row be without blobs."""
    count = size(300, 3000)
    clock = Clock()
    one(server, "CREATE TABLE texts (id INT, ts INT, a VARCHAR(15000), b VARCHAR(15000), c VARCHAR(15000), d VARCHAR(15000), PRIMARY KEY (id, ts)) CHARSET=latin1 ENGINE=RRD")
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        for first in range(0, count, 100):
            # Texts that do not compress to nothing.
            cursor.execute(
                "INSERT INTO texts SELECT 1, seq, x.a, REVERSE(x.a), CONCAT(SUBSTR(x.a, 2), seq), UPPER(x.a) FROM "
                f"(SELECT s.seq, (SELECT GROUP_CONCAT(MD5(p.seq * 10007 + s.seq) SEPARATOR '') FROM seq_1_to_468 p) a "
                f"FROM seq_{first + 1}_to_{first + 100} s) x"
            )
        clock.step(f"{count} rows")
        digest = "SELECT COUNT(*), SUM(LENGTH(a) + LENGTH(b) + LENGTH(c) + LENGTH(d)), SUM(CRC32(CONCAT(a, b, c, d))) FROM texts"
        cursor.execute(digest)
        before = cursor.fetchone()
        check(before[0] == count and before[1] > count * 59_000, f"rows of 60 KB: {before}")
        cursor.execute("OPTIMIZE TABLE texts")
        clock.step("optimized")
        cursor.execute(digest)
        check(cursor.fetchone() == before, "rows of 60 KB, merged")
        clock.step("read")
    restart(server, clock)
    check(one(server, digest)[0] == before, "rows of 60 KB after a restart")
    return clock


def blobs(server):
    """Blobs of 100 MB go in, are changed, survive a flush, a merge and a restart."""
    length = size(20, 100) * 1_000_000
    clock = Clock()
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE files (id INT, ts INT, name VARCHAR(20), body LONGBLOB, PRIMARY KEY (id, ts)) ENGINE=RRD")
        body = os.urandom(length)
        cursor.execute("INSERT INTO files VALUES (1, 1, 'random', %s)", (body,))
        clock.step("sent")
        cursor.execute("SELECT body FROM files WHERE id = 1")
        check(cursor.fetchone()[0] == body, "the blob that was sent")
        clock.step("fetched")
        cursor.execute("INSERT INTO files SELECT 1, 2, 'copy', CONCAT(body, 'x') FROM files")
        cursor.execute("INSERT INTO files VALUES (1, 3, 'small', 'abc')")
        cursor.execute("UPDATE files SET body = CONCAT('y', body) WHERE ts = 1")
        cursor.execute("REPLACE INTO files SELECT id, 3, 'replaced', body FROM files WHERE ts = 2")
        clock.step("copied and changed")
        digest = "SELECT ts, name, LENGTH(body), MD5(body) FROM files ORDER BY ts"
        cursor.execute(digest)
        before = cursor.fetchall()
        check([row[2] for row in before] == [length + 1, length + 1, length + 1], f"lengths {before}")
        cursor.execute("FLUSH TABLES")
        cursor.execute("OPTIMIZE TABLE files")
        clock.step("optimized")
        cursor.execute(digest)
        check(cursor.fetchall() == before, "blobs, merged")
        clock.step("read")
    restart(server, clock)
    check(list(one(server, digest)) == list(before), "blobs after a restart")
    return clock


def chunks(server):
    """A table of many chunks: a flush over all of them, a start, a query that needs one, a merge of each."""
    count = size(600, 10_000)
    clock = Clock()
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE hours (id INT UNSIGNED, ts INT UNSIGNED, v DOUBLE, PRIMARY KEY (id, ts)) ENGINE=RRD CHUNK='3600s'")
        many = f"SELECT s.seq, c.seq * 3600 + {{}}, s.seq + c.seq FROM seq_1_to_10 s, seq_1_to_{count} c"
        cursor.execute(f"INSERT INTO hours {many.format(5)}")
        flush(cursor, "hours")
        clock.step(f"{count} chunks loaded and flushed")
        # Late rows for each of them, by way of the memtable.
        cursor.execute("BEGIN")
        for first in range(1, count, 1000):
            last = min(first + 999, count)
            rows = ", ".join(f"(1, {c * 3600 + 10}, 1)" for c in range(first, last + 1))
            cursor.execute(f"INSERT INTO hours VALUES {rows} ON DUPLICATE KEY UPDATE v = 2")
        cursor.execute("COMMIT")
        flush(cursor, "hours")
        clock.step("late rows in each, flushed")
    restart(server, clock)
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        middle = count // 2 * 3600
        cursor.execute(f"SELECT COUNT(*), SUM(v) FROM hours WHERE id = 3 AND ts BETWEEN {middle} AND {middle + 86399}")
        check(cursor.fetchone()[0] == 24, "a day of a series")
        clock.step("a day read")
        cursor.execute(f"REPLACE INTO hours VALUES (3, {middle + 5}, 7)")
        cursor.execute("SELECT ts FROM hours WHERE id = 3 ORDER BY ts DESC LIMIT 1")
        check(cursor.fetchone()[0] == count * 3600 + 5, "the newest row")
        clock.step("replaced one, newest one")
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT id) FROM hours")
        check(cursor.fetchone() == (11 * count, 10), "all rows")
        clock.step("all read")
        check(open_segments(server) <= MOST_OPEN_FILES, f"{open_segments(server)} segments are open after all were read")
        cursor.execute("OPTIMIZE TABLE hours")
        clock.step("optimized")
        cursor.execute("SELECT COUNT(*), SUM(v) FROM hours")
        check(cursor.fetchone()[0] == 11 * count, "all rows, merged")
        clock.step("all read")
    # Nothing is due for a merge any more: whatever is open now was opened for the query.
    restart(server, clock)
    check(open_segments(server) <= 20, f"{open_segments(server)} segments are open after the start")
    one(server, f"SELECT COUNT(*), SUM(v) FROM hours WHERE id = 3 AND ts BETWEEN {middle} AND {middle + 86399}")
    clock.step("a day read")
    check(open_segments(server) <= 60, f"{open_segments(server)} segments are open after a day was read")
    one(server, "SELECT ts FROM hours WHERE id = 4 ORDER BY ts DESC LIMIT 1")
    clock.step("newest one")
    check(open_segments(server) <= 120, f"{open_segments(server)} segments are open after the newest row was read")
    return clock


def connections(server):
    """Many connections that insert at once through the thread pool, and wait for each other's row locks."""
    count = size(200, 1000)
    program = FOLDER / "clients"
    subprocess.run(["gcc", "-O2", "-o", program, CLIENT, "-lmariadb", "-lpthread"], check=True)
    clock = Clock()
    one(
        server,
        "CREATE TABLE sensor (ts INT UNSIGNED, sensor_id INT UNSIGNED, a DOUBLE, b DOUBLE, c DOUBLE, d DOUBLE, e DOUBLE, cnt INT UNSIGNED, "
        "PRIMARY KEY (sensor_id, ts)) ENGINE=RRD",
    )
    command = [program, server.socket, "test.sensor", "sensor", "insert", count, 3000, 1]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    check(done.returncode == 0, f"{count} clients: {done.stderr}")
    statements = int(done.stdout.split()[0])
    clock.step(f"{count} clients, {statements} inserts")
    check(one(server, "SELECT COUNT(*), COUNT(DISTINCT sensor_id) FROM sensor")[0] == (statements, count), "rows of all clients")
    waiting_for_locks(server, clock, size(40, 200))
    return clock


def waiting_for_locks(server, clock, waiters):
    """More statements wait for one row than the pool has threads: whoever holds it must still be served."""
    holder = server.connect(database="test")
    with holder.cursor() as cursor:
        cursor.execute("UPDATE sensor SET cnt = 0 WHERE sensor_id = 1 AND ts = 1")
    waiting = [server.connect(database="test", autocommit=True) for _ in range(waiters)]
    for connection in waiting:
        connection._execute_command(3, "UPDATE sensor SET cnt = cnt + 1 WHERE sensor_id = 1 AND ts = 1")
    with holder.cursor() as cursor:
        cursor.execute("SELECT cnt FROM sensor WHERE sensor_id = 1 AND ts = 1")
        check(cursor.fetchone() == (0,), "the holder reads its row")
        cursor.execute("COMMIT")
    for connection in waiting:
        connection._read_query_result()
        connection.close()
    with holder.cursor() as cursor:
        cursor.execute("SELECT cnt FROM sensor WHERE sensor_id = 1 AND ts = 1")
        check(cursor.fetchone() == (waiters,), "every waiter got its turn")
    holder.close()
    clock.step(f"{waiters} waiters for one row")


TESTS = [tables, columns, wide_rows, blobs, chunks, connections]
OPTIONS = {"connections": ["--thread-handling=pool-of-threads", "--max-connections=1100"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="tests to run (default: all)")
    names = parser.parse_args().names
    common = ["--max-allowed-packet=1G", f"--loose-rrd-memtable-size={MEMTABLES}", "--group-concat-max-len=1M"]
    passed = failed = 0
    server = PrivateServer(FOLDER / "server", common)
    server.erase()
    for test in TESTS:
        if names and test.__name__ not in names:
            continue
        server.options = common + OPTIONS.get(test.__name__, [])
        try:
            server.start()
            fresh(server)
            print(f"ok    {test.__name__}: {test(server)}", flush=True)
            passed += 1
        except (Wrong, MySQLError, ServerError) as problem:
            failed += 1
            print(f"WRONG {test.__name__}: {problem}\n{server.tail_of_log(5)}", flush=True)
        server.stop()
    if not failed:
        server.erase()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
