"""What the benchmark loads: files of rows, the tables they go into, and the fewest bytes that a row can take.

| | rows | bound |
|---|---|---|
| a | two-decimal random walks | known |
| b | the same, most readings as the one before | known |
| c | counters | known |
| d | random doubles: nothing to save | known |
| e | public series: temperatures of two stations by the hour, Seattle's weather by the day, stock prices by the month | not known |

a to d come from rrd-gen (bench/gen), which draws each step from a table, so the entropy of a row is exact; keys and times
are regular and the first values of a sensor are left out, so the bound is a little low. The rows of e are those of tests/real.
"""

import json
import lzma
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from private_server import BUILD, ROOT

GENERATOR = BUILD / "cargo" / "release" / "rrd-gen"
DAY = 86_400

# MariaDB's types; embedded.py has what others call them.
SENSORDATA = (
    ("ts", "INT UNSIGNED NOT NULL"),
    ("sensor_id", "INT UNSIGNED NOT NULL"),
    *((name, "DOUBLE NOT NULL") for name in ("data1", "data2", "data3", "data4", "data6")),
    ("cnt", "INT UNSIGNED NOT NULL"),
)  # fmt: skip
SENSORDATA_KEY = ("sensor_id", "ts")


def definition(columns, key):
    """Columns and key, as MariaDB wants them in brackets."""
    return ", ".join(f"{name} {kind}" for name, kind in columns) + f", PRIMARY KEY ({', '.join(key)})"


SENSORDATA_DEFINITION = definition(SENSORDATA, SENSORDATA_KEY)


@dataclass(frozen=True)
class Table:
    """A table, and the file of its rows."""

    name: str
    columns: tuple  # of (name, type)
    key: tuple  # of names
    file: Path
    rows: int

    @property
    def definition(self):
        return definition(self.columns, self.key)


@dataclass
class DataSet:
    key: str
    title: str
    tables: list
    csv_bytes: int
    bound: float | None  # bytes a row
    about: dict = field(default_factory=dict)  # of generated data: sensors, first_ts, last_ts, step_s
    halves: list = field(default_factory=list)  # the rows in two files, half of the sensors in each
    xz: float | None = None  # bytes a row of `xz -9e`, where the bound is not known

    @property
    def rows(self):
        return sum(table.rows for table in self.tables)

    @property
    def files(self):
        return [table.file for table in self.tables] + self.halves


# Key, mode of rrd-gen, title, rows as a part of ROWS.
GENERATED = (
    ("a", "walk", "two-decimal random walks", 1),
    ("b", "still", "mostly unchanged readings", 2),
    ("c", "counter", "counters", 1 / 10),
    ("d", "random", "random doubles", 1 / 10),
)

PUBLIC_TITLE = "public weather and stocks"


def sensordata(file, about):
    return Table("sensordata", SENSORDATA, SENSORDATA_KEY, file, about["rows"])


def command(mode, rows, sensors, seed, *more):
    return [GENERATOR, "--mode", mode, "--rows", str(rows), "--sensors", str(sensors), "--seed", str(seed), *more]


def generate(mode, rows, sensors, seed, file, *more):
    """Writes rows to the file and returns what the generator says about them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        done = subprocess.run(command(mode, rows, sensors, seed, *more), stdout=out, stderr=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stderr)


def generated(key, config, folder):
    """One of a to d, written to files in the folder; of (a) the halves too, for two sessions."""
    _, mode, title, part = next(row for row in GENERATED if row[0] == key)
    same = (mode, max(1, int(config["rows"] * part)), config["sensors"], config["seed"])
    file = folder / f"{mode}.csv"
    about = generate(*same, file)
    halves = []
    if key == "a":
        halves = [folder / f"{mode}-{half}.csv" for half in (1, 2)]
        for half in (1, 2):
            generate(*same, halves[half - 1], "--share", f"{half}/2")
    return DataSet(key, title, [sensordata(file, about)], about["csv_bytes"], about["entropy_bytes_a_row"], about, halves)


def public(folder):
    """The public series, written to files in the folder."""
    sys.path.insert(0, str(ROOT / "tests" / "real"))
    import data_sets

    text, number, small = "VARCHAR(20) NOT NULL", "DOUBLE", "DECIMAL(5,1)"
    wanted = (
        (data_sets.hourly_temperatures(), (("station", text), ("date", "DATETIME NOT NULL"), ("temp", number)), ("station", "date")),
        (data_sets.seattle_weather(), (("date", "DATETIME NOT NULL"), ("precipitation", small), ("temp_max", small),
                                       ("temp_min", small), ("wind", number), ("weather", text)), ("date",)),
        (data_sets.stocks(), (("symbol", text), ("date", "DATE NOT NULL"), ("price", number)), ("symbol", "date")),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    tables, csv_bytes, xz_bytes = [], 0, 0
    for source, columns, key in wanted:
        rows = [",".join(plain(value, kind) for value, (_, kind) in zip(row, columns)) + "\n" for row in source.rows]
        content = "".join(rows).encode()
        file = folder / f"{source.name}.csv"
        file.write_bytes(content)
        tables.append(Table(source.name, columns, key, file, len(rows)))
        csv_bytes += len(content)
        xz_bytes += len(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    rows = sum(table.rows for table in tables)
    return DataSet("e", PUBLIC_TITLE, tables, csv_bytes, None, xz=xz_bytes / rows)


def plain(value, kind):
    """A field as all engines read it: times as 2010-01-31 23:00:00, no value as \\N."""
    if value is None:
        return "\\N"
    if kind.startswith("DATETIME"):
        value = value.replace("/", "-")
        return value + {10: " 00:00:00", 16: ":00"}.get(len(value), "")
    return value


def make(key, config, folder):
    """The data set of this key, its files in the folder."""
    return public(folder) if key == "e" else generated(key, config, folder)


def remove(data_set):
    for file in data_set.files:
        file.unlink(missing_ok=True)
