"""Shows the engine to a person, in a minute: speed and size beside InnoDB, SQL, and a crash.

Uses a private server of its own in build/demo and leaves it stopped. Exit code 1 when an
acknowledged row is missing after the crash or an answer differs from InnoDB's.
"""

import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path

import pymysql
from private_server import BUILD, PrivateServer, ServerError

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "bench"), str(ROOT / "tests" / "real")]
import data  # noqa: E402
import data_sets  # noqa: E402
import engines  # noqa: E402
import queries  # noqa: E402

FOLDER = BUILD / "demo"
ROWS = int(os.environ.get("ROWS") or 2_000_000)

# Another engine's name here shows that one instead.
ENGINE = os.environ.get("ENGINE") or "RRD"

# How long the writer writes before the server is killed.
WRITING_S = 3


def title(text):
    print(f"\n== {text}", flush=True)


def show(names, rows):
    """Prints rows as a table."""
    cells = [tuple(names)] + [tuple(text_of(value) for value in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def text_of(value):
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def ask(cursor, text):
    """Runs a query and prints it with its answer and time."""
    print(f"\n  {text}")
    start = time.monotonic()
    cursor.execute(text)
    rows = cursor.fetchall()
    milliseconds = (time.monotonic() - start) * 1000
    show([column[0] for column in cursor.description], rows)
    print(f"  {len(rows)} rows, {milliseconds:.1f} ms")


def load_side_by_side(server):
    """Loads the generated rows into both engines and compares rate, size and answers."""
    file = FOLDER / "rows.csv"
    about = data.generate("walk", ROWS, 1000, 1, file)
    rows = data.sensordata(file, about)
    print(f"  {ROWS:,} readings of {about['sensors']} sensors, every five minutes, five two-decimal values each.")
    print(f"  Their entropy, the fewest bytes possible: {about['entropy_bytes_a_row']:.2f} bytes a row.")
    peer, ours = engines.innodb(server, "InnoDB"), engines.MariaDB(server, ENGINE, folder="#sql.rrd" if ENGINE == "RRD" else None)
    table = []
    for engine in (peer, ours):
        if not engine.folder:
            engine.begin()
        engine.create(rows)
        rate = ROWS / engine.load(rows, [file])
        engine.settle([rows], 2)
        table.append((engine.name, f"{rate:,.0f}", f"{engine.bytes_on_disk() / ROWS:.2f}"))
    file.unlink()
    show(("engine", "rows/s", "bytes a row"), table)

    title("The same questions to both")
    table, differing = [], []
    for name, query in queries.eight(about).items():
        answers, times = [], []
        for engine in (peer, ours):
            text = query.format(table=engine.table(rows.name), hour=queries.HOURS[engine.dialect])
            runs, answer = engine.ask(text, 3, 3000)
            answers.append(answer)
            times.append(f"{statistics.median(runs):.2f}")
        same = queries.same(*answers)
        differing += [] if same else [name]
        table.append((name, *times, "yes" if same else "NO"))
    show(("question", "InnoDB, ms", f"{ENGINE}, ms", "same answer"), table)
    return not differing


def show_real_data(cursor):
    """Public weather and stock series, and what SQL makes of them."""
    cursor.execute("CREATE DATABASE real_data")
    cursor.execute("USE real_data")
    for data_set in (data_sets.seattle_weather(), data_sets.stocks()):
        cursor.execute(f"CREATE TABLE {data_set.name} ({data_set.columns}) ENGINE={ENGINE}")
        marks = ", ".join(["%s"] * len(data_set.rows[0]))
        cursor.executemany(f"INSERT INTO {data_set.name} VALUES ({marks})", data_set.rows)
        print(f"  {data_set.name}: {len(data_set.rows)} rows")
    ask(cursor, "SELECT YEAR(date) AS year, SUM(precipitation) AS rain_mm, MAX(temp_max) AS hottest, "
        "MIN(temp_min) AS coldest, SUM(weather = 'sun') AS sunny_days FROM seattle_weather GROUP BY year")
    ask(cursor, "SELECT symbol, COUNT(*) AS months, MIN(price) AS lowest, AVG(price) AS average, MAX(price) AS highest "
        "FROM stocks GROUP BY symbol")
    if ENGINE == "RRD":  # functions that come with the plugin
        ask(cursor, "SELECT time_bucket('1y', date) AS year, first(price, date) AS january, last(price, date) AS december, "
            "last(price, date) / first(price, date) AS grew_by FROM stocks WHERE symbol = 'AAPL' GROUP BY year")


class Writer(threading.Thread):
    """Inserts one row after the other and remembers those that the server said OK to."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.connection = server.connect(database="crash", autocommit=True)
        self.acknowledged = []

    def run(self):
        numbers = random.Random(1)
        number = 0
        try:
            with self.connection.cursor() as cursor:
                while True:
                    row = (1_700_000_000 + number // 10, number % 10, numbers.random())
                    cursor.execute("INSERT INTO readings VALUES (%s, %s, %s)", row)
                    self.acknowledged.append(row)
                    number += 1
        except pymysql.err.Error:
            pass  # the server is gone, as planned


def crash(server):
    """Kills the server under a writer. Returns whether every acknowledged row is there after it."""
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE crash")
        cursor.execute("CREATE TABLE crash.readings (ts INT UNSIGNED NOT NULL, sensor_id INT UNSIGNED NOT NULL, "
                       f"value DOUBLE, PRIMARY KEY (sensor_id, ts)) ENGINE={ENGINE}")
    writer = Writer(server)
    writer.start()
    time.sleep(WRITING_S)
    server.kill()
    writer.join()
    print(f"  killed with kill -9 after {len(writer.acknowledged):,} acknowledged single-row INSERTs")
    start = time.monotonic()
    server.start()
    print(f"  restarted, answering after {time.monotonic() - start:.2f} s")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT ts, sensor_id, value FROM crash.readings")
        found = set(cursor.fetchall())
    lost = len(set(writer.acknowledged) - found)
    extra = len(found) - (len(writer.acknowledged) - lost)
    print(f"  acknowledged {len(writer.acknowledged):,}, found again {len(writer.acknowledged) - lost:,}, lost {lost}")
    # The one INSERT that was under way may have been stored without the client hearing of it.
    print(f"  stored, but the answer was cut off: {extra}")
    return lost == 0 and extra <= 1 and len(writer.acknowledged) > 0


def main():
    plugins = ["ha_rrd"] if ENGINE == "RRD" else []
    options = ["--innodb-buffer-pool-size=1G", "--loose-rrd-cache-size=1G"]
    server = PrivateServer(FOLDER, options, plugins)
    server.erase()
    with server:
        version = server.sql("SELECT VERSION()")[0][0]
        print(f"A private server, MariaDB {version}, runs with the engine {ENGINE}.")
        with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            title("Loading the same file into InnoDB and " + ENGINE)
            same = load_side_by_side(server)
            title("Real data: Seattle's weather and stock prices")
            show_real_data(cursor)
        title("A crash while rows are written")
        complete = crash(server)
    server.erase()
    title("Result")
    print(f"  same answers as InnoDB: {'yes' if same else 'NO'}")
    print(f"  every acknowledged row survived the crash: {'yes' if complete else 'NO'}")
    print("  the server is stopped, its files are removed")
    sys.exit(0 if same and complete else 1)


if __name__ == "__main__":
    try:
        main()
    except ServerError as error:
        sys.exit(f"demo: {error}")
