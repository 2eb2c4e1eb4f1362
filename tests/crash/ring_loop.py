"""Kills a server with -9 while it fills rings with tiers: what is there afterwards is exactly what the ring has left.

One client inserts readings in the order of their times, with some late ones, changes and deletes among the newest, into
rings of rows, of age, and of rows of a series, with tiers. After each kill -9 and restart each table is its model, or its
model with the statement that was under way; each tier is what all readings that ever were in a bucket make of it.
ROUNDS and SEED in the environment change the defaults.
"""

import argparse
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

FOLDER = ROOT / "build" / "test" / "ring-loop"
LOST = (2006, 2013, 2014, 0, 2003)
SERIES = 20
BUCKET = 600
START = 1_700_000_000
COLUMNS = "sensor INT, ts INT UNSIGNED, v INT, PRIMARY KEY (sensor, ts), KEY (v)"
TABLES = {
    "by_rows": "MAX_ROWS=3000",
    "by_age": "RETENTION='1h'",
    "by_series": "SERIES_MAX_ROWS='100'",
}


class Wrong(Exception):
    """Something that must not be; the text says what."""


class Ring:
    """A table with a ring, in the simplest words."""

    def __init__(self, name):
        self.name = name
        self.rows = {}  # (ts, sensor) -> v: what is left
        self.ever = {}  # what is left, and what has left; not what was deleted

    def copy(self):
        other = Ring(self.name)
        other.rows, other.ever = dict(self.rows), dict(self.ever)
        return other

    def put(self, key, v):
        self.rows[key] = self.ever[key] = v

    def delete(self, key):
        del self.rows[key], self.ever[key]

    def settle(self):
        keys = sorted(self.rows)
        if self.name == "by_rows":
            gone = keys[: max(0, len(keys) - 3000)]
        elif self.name == "by_age":
            oldest = keys[-1][0] - 3600 if keys else 0
            gone = [key for key in keys if key[0] < oldest]
        else:
            of = {}
            for key in keys:
                of.setdefault(key[1], []).append(key)
            gone = [key for series in of.values() for key in series[: max(0, len(series) - 100)]]
        for key in gone:
            del self.rows[key]

    def tier(self):
        buckets = {}
        for (ts, sensor), v in self.ever.items():
            buckets.setdefault((sensor, ts // BUCKET * BUCKET), []).append((ts, v))
        one = lambda of: (len(of), sum(v for _, v in of), min(v for _, v in of), max(v for _, v in of),  # noqa: E731
                          min(of)[1], max(of)[1])
        return {key: one(of) for key, of in buckets.items()}


class Client:
    """Sends statements, and knows what was acknowledged."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.rings = {name: Ring(name) for name in TABLES}
        self.pending = None  # the ring that the statement under way makes
        self.now = START
        self.statements = 0
        self.problem = None

    def run(self, server):
        try:
            connection = server.connect(database="test", autocommit=True)
            cursor = connection.cursor()
            while True:
                name = self.rng.choice(sorted(TABLES))
                text = self.change(self.rings[name].copy())
                cursor.execute(text)
                self.rings[name], self.pending = self.pending, None
                self.statements += 1
        except (MySQLError, OSError) as error:
            if getattr(error, "args", (0,))[0] not in LOST and not isinstance(error, OSError):
                self.problem = f"{error!r}"
        except Exception as error:  # noqa: BLE001 -- the main thread reports it
            self.problem = repr(error)

    def change(self, ring):
        self.pending = ring
        newest = sorted(ring.rows)[-40:]
        what = self.rng.random()
        if what < 0.1 and newest:
            ts, sensor = key = self.rng.choice(newest)
            ring.delete(key)
            text = f"DELETE FROM {ring.name} WHERE sensor = {sensor} AND ts = {ts}"
        elif what < 0.2 and newest:
            (ts, sensor), v = self.rng.choice(newest), self.rng.randint(0, 1000)
            ring.put((ts, sensor), v)
            text = f"REPLACE INTO {ring.name} VALUES ({sensor}, {ts}, {v})"
        else:
            values = []
            for _ in range(self.rng.choice([1, 10, 300])):
                self.now += self.rng.randint(0, 3)
                late = self.rng.randint(0, 30) if self.rng.random() < 0.1 else 0
                sensor, ts, v = self.rng.randrange(SERIES), self.now - late, self.rng.randint(0, 1000)
                ring.put((ts, sensor), v)
                values.append(f"({sensor}, {ts}, {v})")
            text = f"REPLACE INTO {ring.name} VALUES {', '.join(values)}"
        ring.settle()
        return text


def check(server, client):
    """Compares the tables with their models."""
    connection = server.connect(database="test", autocommit=True)
    cursor = connection.cursor()
    for name, ring in client.rings.items():
        cursor.execute(f"SELECT ts, sensor, v FROM {name}")
        rows = {(ts, sensor): v for ts, sensor, v in cursor.fetchall()}
        pending = client.pending
        if pending is not None and pending.name == name and rows == pending.rows and rows != ring.rows:
            ring = client.rings[name] = pending
        if rows != ring.rows:
            lost, more = sorted(set(ring.rows) - set(rows)), sorted(set(rows) - set(ring.rows))
            raise Wrong(f"{name} has {len(rows)} rows, not {len(ring.rows)}: lost {lost[:3]}, more {more[:3]}")
        cursor.execute(f"SELECT COUNT(*) FROM {name} FORCE INDEX (v) WHERE v >= 0")
        if cursor.fetchone()[0] != len(rows):
            raise Wrong(f"{name}: its index leads to other rows")
        cursor.execute(f"SELECT sensor, ts, v_count, v_sum, v_min, v_max, v_first, v_last FROM `{name}$10m`")
        tier = {(row[0], row[1]): tuple(int(x) for x in row[2:]) for row in cursor.fetchall()}
        if tier != ring.tier():
            expected = ring.tier()
            wrong = sorted(key for key in set(tier) | set(expected) if tier.get(key) != expected.get(key))
            key = wrong[0]
            raise Wrong(f"{name}$10m: {len(wrong)} buckets differ, {key}: {tier.get(key)}, not {expected.get(key)}")
        cursor.execute(f"CHECK TABLE {name}")
        if (verdict := cursor.fetchall()[-1][3]) != "OK":
            raise Wrong(f"{name}: {verdict}")
    client.pending = None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "8")))
    parser.add_argument("--seed", default=os.environ.get("SEED", "1"))
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    client = Client(arguments.seed)
    server = PrivateServer(FOLDER, options=["--rrd-memtable-size=1M"])
    server.erase()
    server.start()
    for name, options in TABLES.items():
        server.sql(f"CREATE TABLE {name} ({COLUMNS}) ENGINE=RRD {options} TIERS='10m, 1h'", "test")
    for number in range(arguments.rounds):
        writer = threading.Thread(target=client.run, args=(server,))
        writer.start()
        time.sleep(rng.uniform(0.5, 3))
        server.kill()
        writer.join()
        server.start()
        try:
            if client.problem:
                raise Wrong(client.problem)
            check(server, client)
        except Wrong as wrong:
            print(f"round {number}: {wrong}; seed {arguments.seed}, the folder is left as it is: {FOLDER}")
            server.stop()
            return 1
    server.stop()
    print(f"rings: {arguments.rounds} kills, {client.statements} statements, seed {arguments.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
