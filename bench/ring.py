"""What a ring and its tiers cost, and what tiers save.

Run by `MODE=ring make bench`. Four comparisons, each within one run, what is compared taking turns:

1. Ingest into a full ring of rows beside the same table when it is empty, by statements of one row and of 500.
2. Ingest with three tiers beside the same table without.
3. A question answered from a tier beside the same one computed from the raw rows; the answers must be the same.
4. Late rows, one in a hundred, spread over all buckets: what their refresh costs beside building the tiers anew.

The client of 1 and 2 is C (clients.py), commits are handed to the operating system (rrd_flush_log_at_trx_commit=2).
Each figure is the median of the rounds.

Settings, from the environment: ROUNDS, RUN_MS, RING (rows), ROWS (of 3 and 4), SENSORS. Results go to the terminal and to
build/bench/ring.json.
"""

import json
import statistics
import sys
import time

import clients
import data
import knobs
from private_server import BUILD, PrivateServer

FOLDER = BUILD / "bench" / "ring"
TIERS = "TIERS='30m:1y,4h:3y,1d'"
STEP = 300
START = 1_700_006_400
LATE = 100

def settings():
    return {"rounds": knobs.number("ROUNDS", 5), "run_ms": knobs.number("RUN_MS", 3000), "ring": knobs.number("RING", 1_000_000),
            "rows": knobs.number("ROWS", 2_000_000), "sensors": knobs.number("SENSORS", 200), "clients": knobs.number("CLIENTS", 2)}


class Table:
    """A table that the C client writes to, each reading later than those before."""

    def __init__(self, server, name, options, count):
        self.server, self.name, self.clients = server, name, count
        self.options = options
        self.next = 1_000_000_000
        self.create()

    def empty(self):
        self.server.sql(f"DROP TABLE ring.{self.name}")
        self.create()
        self.next = 1_000_000_000

    def create(self):
        self.server.sql(f"CREATE TABLE ring.{self.name} ({data.SENSORDATA_DEFINITION}) ENGINE=RRD {self.options}")

    def run(self, rows, run_ms):
        """Rows a second, and the server's CPU time for each, the flush of what was written included."""
        done = clients.insert(self.server, f"ring.{self.name}", "sensor", "insert", self.clients, run_ms, self.next, rows)
        # No client is ahead of the others by more than all of them wrote.
        self.next += done["statements"] * rows * STEP
        return done

    def count(self):
        return int(self.server.sql(f"SELECT COUNT(*) FROM ring.{self.name}")[0][0])


def compare(config, rows, first, second):
    """Two ways to ingest, in turn: functions that give a run's figures."""
    runs = ([], [])
    for number in range(config["rounds"]):
        for way in (0, 1) if number % 2 else (1, 0):
            runs[way].append((first, second)[way](rows, config["run_ms"]))
    return [clients.medians(of) for of in runs]


def full_and_empty(server, config):
    options = f"MAX_ROWS={config['ring']}"
    full = Table(server, "full", options, config["clients"])
    empty = Table(server, "empty", options, config["clients"])
    while full.count() < config["ring"]:
        full.run(500, config["run_ms"])

    def into_empty(rows, run_ms):
        empty.empty()
        return empty.run(rows, run_ms)

    results = []
    for rows in (1, 500):
        figures = compare(config, rows, full.run, into_empty)
        assert full.count() == config["ring"], "the full ring is not full"
        results.append({"rows": rows, "full": figures[0], "empty": figures[1]})
    return results


def tiers_on_and_off(server, config):
    on = Table(server, "tiers_on", TIERS, config["clients"])
    off = Table(server, "tiers_off", "", config["clients"])

    def into(table):
        def way(rows, run_ms):
            table.empty()
            return table.run(rows, run_ms)
        return way

    results = []
    for rows in (1, 500):
        figures = compare(config, rows, into(on), into(off))
        results.append({"rows": rows, "on": figures[0], "off": figures[1]})
    return results


def timed(cursor, text):
    start = time.monotonic()
    cursor.execute(text)
    rows = cursor.fetchall()
    return (time.monotonic() - start) * 1000, rows


def flushed(cursor, table):
    """Waits until the table's rows are in files, and its tiers up to date; how long that took, ms."""
    start = time.monotonic()
    cursor.execute(f"ALTER TABLE {table} COMMENT='{start}'")
    return (time.monotonic() - start) * 1000


TIER_COLUMNS = "sensor, ts, a_avg, a_min, a_max, a_count, a_first, a_last"
RAW_COLUMNS = "sensor, time_bucket('{width}', ts) AS bucket, AVG(a), MIN(a), MAX(a), COUNT(a), first(a, ts), last(a, ts)"
QUESTIONS = (
    ("one sensor, all days", "1d", "sensor = 7"),
    ("all sensors, all days", "1d", "TRUE"),
    ("one sensor, half hours of all days", "30m", "sensor = 7"),
)


def same(left, right):
    def close(a, b):
        return a == b or (a is not None and b is not None and abs(a - b) <= 1e-9 * max(abs(a), abs(b)))

    return len(left) == len(right) and all(close(a, b) for x, y in zip(left, right) for a, b in zip(x, y))


def ask(cursor, config):
    """Each question from the tier and from the raw rows."""
    results = []
    for title, width, where in QUESTIONS:
        tier = f"SELECT {TIER_COLUMNS} FROM `readings${width}` WHERE {where} ORDER BY sensor, ts"
        raw = f"SELECT {RAW_COLUMNS.format(width=width)} FROM readings WHERE {where} GROUP BY sensor, bucket ORDER BY sensor, bucket"
        times = ([], [])
        for _ in range(config["rounds"]):
            (tier_ms, left), (raw_ms, right) = timed(cursor, tier), timed(cursor, raw)
            times[0].append(tier_ms)
            times[1].append(raw_ms)
        results.append({"question": title, "rows": len(left), "tier_ms": statistics.median(times[0]),
                        "raw_ms": statistics.median(times[1]), "same": same(left, right)})
    return results


def queries_and_refresh(server, config):
    with server.connect(autocommit=True, database="ring") as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE readings (sensor INT UNSIGNED NOT NULL, ts INT UNSIGNED NOT NULL, a DOUBLE, b DOUBLE, "
                       f"PRIMARY KEY (sensor, ts)) ENGINE=RRD {TIERS}")
        sensors, last = config["sensors"], config["rows"] - 1
        load_ms, _ = timed(cursor, f"INSERT INTO readings SELECT seq MOD {sensors}, {START} + seq DIV {sensors} * {STEP}, "
                           f"ROUND(20 + 10 * SIN(seq / 9000) + RAND(seq), 2), ROUND(RAND(seq) * 1000, 1) FROM seq_0_to_{last}")
        load_ms += flushed(cursor, "readings")
        questions = ask(cursor, config)
        # A reading between two others, of every hundredth, in an order that has nothing to do with theirs.
        late = config["rows"] // LATE
        late_ms, _ = timed(cursor, f"INSERT INTO readings SELECT (seq * {LATE}) MOD {sensors}, {START} + (seq * {LATE}) DIV {sensors} * "
                           f"{STEP} + 1 + seq MOD 7, 99, 99 FROM seq_0_to_{late - 1} ORDER BY seq * 7919 MOD {late}")
        dirty = ask(cursor, config | {"rounds": 1})
        refresh_ms = flushed(cursor, "readings")
        clean = ask(cursor, config | {"rounds": 1})
        cursor.execute("CREATE TABLE again LIKE readings")
        build_ms, _ = timed(cursor, "INSERT INTO again SELECT * FROM readings")
        build_ms += flushed(cursor, "again")
    return {"load_ms": load_ms, "questions": questions, "late_rows": late, "late_ms": late_ms, "dirty": dirty,
            "refresh_ms": refresh_ms, "clean": clean, "build_ms": build_ms}


def report_ingest(title, results, ours, theirs):
    print(f"\n{title:<34}{ours:>12}{theirs:>12}{'ratio':>8}{'CPU us a row':>24}")
    for result in results:
        rates = result[ours]["rows_a_second"], result[theirs]["rows_a_second"]
        cpu = result[ours]["cpu_us_a_row"], result[theirs]["cpu_us_a_row"]
        print(f"{result['rows']:>5} rows a call, rows a second   {rates[0]:>12,.0f}{rates[1]:>12,.0f}{rates[0] / rates[1]:>8.2f}"
              f"{cpu[0]:>12.1f}{cpu[1]:>12.1f}", flush=True)


def report_tiers(result):
    print(f"\n{'':<44}{'rows':>9}{'tier, ms':>11}{'raw, ms':>11}{'faster by':>11}")
    for q in result["questions"]:
        print(f"{q['question']:<44}{q['rows']:>9,}{q['tier_ms']:>11.1f}{q['raw_ms']:>11.1f}{q['raw_ms'] / q['tier_ms']:>11.0f}"
              f"{'' if q['same'] else '   DIFFERENT'}")
    print(f"\n{result['late_rows']:,} late rows in all buckets: insert {result['late_ms']:.0f} ms, refresh {result['refresh_ms']:.0f} ms")
    for name, when in (("dirty", "before the refresh"), ("clean", "after it")):
        answers = ", ".join(f"{q['tier_ms']:.1f}" for q in result[name])
        right = "the same as raw" if all(q["same"] for q in result[name]) else "DIFFERENT from raw"
        print(f"  tier queries {when}: {answers} ms, {right}")
    print(f"  all rows and tiers built anew: {result['build_ms']:.0f} ms; late rows and their refresh are "
          f"{(result['late_ms'] + result['refresh_ms']) / result['build_ms']:.0%} of it")


def main():
    config = settings()
    server = PrivateServer(FOLDER, ["--rrd-flush-log-at-trx-commit=2", "--rrd-memtable-size=16M", "--max-allowed-packet=64M",
                                    "--rrd-cache-size=512M"])
    server.erase()
    with server:
        server.sql("CREATE DATABASE ring")
        result = {"settings": config, "full": full_and_empty(server, config)}
        report_ingest("ring of rows", result["full"], "full", "empty")
        result["tiers"] = tiers_on_and_off(server, config)
        report_ingest("three tiers", result["tiers"], "on", "off")
        result["queries"] = queries_and_refresh(server, config)
        report_tiers(result["queries"])
    server.erase()
    (BUILD / "bench" / "ring.json").write_text(json.dumps(result, indent=2) + "\n")
    print("\nwritten to build/bench/ring.json")
    answers = [q["same"] for part in ("questions", "dirty", "clean") for q in result["queries"][part]]
    if not all(answers):
        sys.exit("a tier differs from its raw rows")
