"""Bytes on disk over twenty laps: a ring of rows, one of age, one of bytes, and InnoDB with a DELETE every night.

Run by `make footprint`. All four get the same statements in turn: readings of all sensors at each step, of which some come
up to two days late, updates and deletes of stretches of the last three days. A lap is the seven days that are kept. Time is
that of the readings, some 100,000 times as fast as the clock, so background work of the engines is seen to lag much more
than in life. Sizes are those of the tables' files, sampled each quarter of a day; the log of the RRD engine, which is that
of all its tables, is a line of its own (InnoDB's log is not counted).

Settings, from the environment: LAPS, SENSORS, MAX_BYTES, SEED. The plot goes to docs/bench/footprint.png (or PLOT), the
samples to build/bench/footprint.json.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import knobs  # noqa: E402
from private_server import BUILD, PrivateServer  # noqa: E402

FOLDER = BUILD / "bench" / "footprint"
STEP = 300
DAY = 86_400
KEPT_DAYS = 7
QUARTER = DAY // 4
START = 1_700_006_400
POLLS_A_STATEMENT = 6
LATE = 0.02
UPDATES, DELETES = 4, 1  # statements a quarter of a day, of a stretch of six hours of one sensor

COLUMNS = ("sensor INT UNSIGNED NOT NULL, ts INT UNSIGNED NOT NULL, temperature DOUBLE, pressure DOUBLE, used DOUBLE, "
           "cnt INT UNSIGNED, PRIMARY KEY (sensor, ts)")


def settings():
    sensors = knobs.number("SENSORS", 100)
    return {
        "laps": knobs.number("LAPS", 20),
        "sensors": sensors,
        "seed": knobs.number("SEED", 1),
        "rows_a_lap": sensors * KEPT_DAYS * DAY // STEP,
        "max_bytes": knobs.number("MAX_BYTES", 6 * sensors * KEPT_DAYS * DAY // STEP),
    }


def tables(config):
    return {
        "by_rows": f"ENGINE=RRD MAX_ROWS={config['rows_a_lap']}",
        "by_age": f"ENGINE=RRD RETENTION='{KEPT_DAYS}d'",
        "by_bytes": f"ENGINE=RRD MAX_BYTES='{config['max_bytes']}'",
        "innodb": "ENGINE=InnoDB",
    }


NAMES = {
    "by_rows": "RRD, MAX_ROWS",
    "by_age": f"RRD, RETENTION='{KEPT_DAYS}d'",
    "by_bytes": "RRD, MAX_BYTES",
    "innodb": "InnoDB, DELETE every night",
    "log": "RRD's log, of all three",
}


class Readings:
    """What the sensors say, and when it comes."""

    def __init__(self, config):
        self.random = random.Random(config["seed"])
        self.sensors = config["sensors"]
        self.walks = [[20.0, 0] for _ in range(self.sensors)]
        self.late = {}  # quarter of a day in which they come -> rows

    def poll(self, ts):
        """The rows of one step that come in time."""
        rows = []
        noise, chance, below = self.random.gauss, self.random.random, self.random.randrange
        for sensor, walk in enumerate(self.walks):
            walk[0] += noise(0, 0.1)
            walk[1] += below(1000)
            row = f"({sensor},{ts},{walk[0]:.2f},{noise(1000, 5):.2f},{100 * chance():.1f},{walk[1]})"
            if chance() < LATE:
                due = ts // QUARTER + self.random.randrange(1, 8)
                self.late.setdefault(due, []).append(row)
            else:
                rows.append(row)
        return rows

    def statements(self, quarter):
        """A quarter of a day's."""
        first = quarter * QUARTER
        for start in range(first, first + QUARTER, STEP * POLLS_A_STATEMENT):
            polls = range(start, start + STEP * POLLS_A_STATEMENT, STEP)
            yield "INSERT INTO {table} VALUES " + ",".join(row for ts in polls for row in self.poll(ts))
        late = self.late.pop(quarter, None)
        if late:
            yield "INSERT IGNORE INTO {table} VALUES " + ",".join(late)
        for number in range(UPDATES + DELETES):
            sensor, end = self.random.randrange(self.sensors), first - self.random.randrange(3 * DAY)
            where = f"WHERE sensor = {sensor} AND ts BETWEEN {end - QUARTER} AND {end}"
            if number < UPDATES:
                yield "UPDATE {table} SET temperature = temperature + 1, pressure = NULL " + where
            else:
                yield "DELETE FROM {table} " + where


def files(folder):
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


class Sizes:
    """Bytes of the tables' files."""

    def __init__(self, server, names):
        self.data = server.data
        ids = dict(server.sql("SELECT table_name, table_id FROM information_schema.rrd_tables"))
        self.folders = {name: self.data / "#sql.rrd" / f"table-{int(ids[name]):08x}" for name in names if name in ids}

    def sample(self):
        # A merge may remove a file while it is being counted.
        while True:
            try:
                sizes = {name: files(folder) for name, folder in self.folders.items()}
                sizes["log"] = files(self.data / "#sql.rrd" / "log")
                sizes["innodb"] = (self.data / "footprint" / "innodb.ibd").stat().st_size
                return sizes
            except FileNotFoundError:
                continue


def run(server, config):
    samples = []
    seconds = dict.fromkeys(tables(config), 0.0)
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE footprint")
        cursor.execute("USE footprint")
        for name, options in tables(config).items():
            cursor.execute(f"CREATE TABLE {name} ({COLUMNS}) {options}")
        sizes = Sizes(server, tables(config))
        readings = Readings(config)
        first = START // QUARTER
        for quarter in range(first, first + config["laps"] * KEPT_DAYS * 4):
            for statement in readings.statements(quarter):
                for name in tables(config):
                    start = time.monotonic()
                    cursor.execute(statement.format(table=name))
                    seconds[name] += time.monotonic() - start
            if quarter % 4 == 3:
                start = time.monotonic()
                cursor.execute(f"DELETE FROM innodb WHERE ts < {(quarter + 1) * QUARTER - KEPT_DAYS * DAY}")
                seconds["innodb"] += time.monotonic() - start
            samples.append({"lap": (quarter + 1 - first) / (4 * KEPT_DAYS)} | sizes.sample())
            if len(samples) % (4 * KEPT_DAYS) == 0:
                print(".", end="", flush=True)
        rows = {}
        for name in tables(config):
            cursor.execute(f"SELECT COUNT(*) FROM {name}")
            rows[name] = cursor.fetchone()[0]
    return {"settings": config, "samples": samples, "seconds": seconds, "rows": rows}


def report(result):
    config, samples = result["settings"], result["samples"]
    print(f"\n\n{config['laps']} laps of {config['rows_a_lap']:,} rows; MB on disk (from the third lap on: least, most)")
    marks = [lap for lap in (1, 2, 3, 5, 10, 15, 20) if lap <= config["laps"]]
    print(f"{'':<30}" + "".join(f"{f'lap {lap}':>9}" for lap in marks) + f"{'least':>9}{'most':>9}{'rows':>11}{'B a row':>9}"
          f"{'time, s':>9}")
    for name, title in NAMES.items():
        at = {round(sample["lap"], 6): sample[name] for sample in samples}
        steady = [sample[name] for sample in samples if sample["lap"] > min(2, config["laps"] / 2)]
        cells = "".join(f"{at[lap] / 1e6:>9.2f}" for lap in marks) + f"{min(steady) / 1e6:>9.2f}{max(steady) / 1e6:>9.2f}"
        if name in result["rows"]:
            rows = result["rows"][name]
            cells += f"{rows:>11,}{steady[-1] / rows:>9.1f}{result['seconds'][name]:>9.0f}"
        print(f"{title:<30}{cells}")
    most = max(sample["by_bytes"] for sample in samples)
    least = min(sample["by_bytes"] for sample in samples if sample["lap"] > 2 or config["laps"] <= 2)
    limit = config["max_bytes"]
    print(f"\nring of bytes: at most {most:,} of {limit:,} bytes ({most / limit:.0%}), from the third lap on at least {least / limit:.0%}")


def plot(result, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    samples, config = result["samples"], result["settings"]
    figure, (rings, others) = pyplot.subplots(2, sharex=True, figsize=(10, 7), dpi=110, height_ratios=(3, 2))
    laps = [sample["lap"] for sample in samples]
    for axes, names in ((rings, ("by_rows", "by_age", "by_bytes")), (others, ("innodb", "log"))):
        for name in names:
            axes.plot(laps, [sample[name] / 1e6 for sample in samples], label=NAMES[name], linewidth=1.2)
        axes.set_ylabel("MB on disk")
        axes.set_xlim(0, config["laps"])
        axes.grid(alpha=0.3)
    rings.axhline(config["max_bytes"] / 1e6, linestyle="--", linewidth=0.8, color="grey", label="MAX_BYTES")
    rings.set_title("Bytes on disk under inserts, late rows, updates and deletes")
    others.set_xlabel(f"laps of {KEPT_DAYS} days ({config['rows_a_lap']:,} rows each)")
    for axes in (rings, others):
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right", ncols=2, fontsize=8)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)


def main():
    config = settings()
    options = ["--rrd-flush-log-at-trx-commit=2", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=512M",
               "--rrd-memtable-size=8M", "--max-allowed-packet=64M"]
    server = PrivateServer(FOLDER, options)
    server.erase()
    with server:
        result = run(server, config)
    server.erase()
    (BUILD / "bench" / "footprint.json").write_text(json.dumps(result) + "\n")
    report(result)
    file = Path(os.environ.get("PLOT") or ROOT / "docs" / "bench" / "footprint.png")
    plot(result, file)
    print(f"plot: {file}")


if __name__ == "__main__":
    main()
