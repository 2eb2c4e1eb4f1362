"""The public data sets, as the package vega_datasets ships them, and the tables they go into.

Each data set is read whole. The tables differ on purpose in what they ask of an engine: text and
dates as series and time, decimals, doubles with all their digits, wide rows, NULLs, no key.
"""

import csv
import json
from datetime import datetime
from importlib import util
from pathlib import Path

FILES = Path(util.find_spec("vega_datasets").origin).parent / "_data"


class DataSet:
    """A table's name, columns and rows; `order` puts the rows in one defined order."""

    def __init__(self, name, columns, order, rows):
        self.name = name
        self.columns = columns
        self.order = order
        self.rows = rows


def read_csv(name):
    with (FILES / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_json(name):
    # Numbers stay text, so that a decimal column gets the digits of the file.
    return json.loads((FILES / name).read_text(), parse_float=str, parse_int=str)


def rows_of(records, *names):
    """The named columns of each record; empty text means that there is no value."""
    return [tuple(record[name] if record[name] != "" else None for name in names) for record in records]


def hourly_temperatures():
    rows = []
    for station, file in (("Seattle", "seattle-temps.csv"), ("San Francisco", "sf-temps.csv")):
        rows += [(station, r["date"].replace("/", "-"), r["temp"]) for r in read_csv(file)]
    columns = "station VARCHAR(20) NOT NULL, date DATETIME NOT NULL, temp DOUBLE, PRIMARY KEY (station, date)"
    return DataSet("hourly_temperatures", columns, "station, date", rows)


def seattle_weather():
    names = ("date", "precipitation", "temp_max", "temp_min", "wind", "weather")
    columns = (
        "date DATETIME NOT NULL PRIMARY KEY, precipitation DECIMAL(5,1), temp_max DECIMAL(4,1), "
        "temp_min DECIMAL(4,1), wind FLOAT, weather ENUM('drizzle','rain','sun','snow','fog')"
    )
    return DataSet("seattle_weather", columns, "date", rows_of(read_csv("seattle-weather.csv"), *names))


def stocks():
    rows = [
        (r["symbol"], datetime.strptime(r["date"], "%b %d %Y").date().isoformat(), r["price"])
        for r in read_csv("stocks.csv")
    ]
    columns = "symbol VARCHAR(8) NOT NULL, date DATE NOT NULL, price DOUBLE, PRIMARY KEY (symbol, date)"
    return DataSet("stocks", columns, "symbol, date", rows)


def iowa_electricity():
    columns = "year DATE NOT NULL, source VARCHAR(20) NOT NULL, net_generation INT, PRIMARY KEY (source, year)"
    rows = rows_of(read_csv("iowa-electricity.csv"), "year", "source", "net_generation")
    return DataSet("iowa_electricity", columns, "source, year", rows)


def us_employment():
    records = read_csv("us-employment.csv")
    names = list(records[0])
    columns = "month TIMESTAMP NOT NULL DEFAULT 0 PRIMARY KEY, "
    columns += ", ".join(f"{name} DECIMAL(9,1)" for name in names[1:])
    return DataSet("us_employment", columns, "month", rows_of(records, *names))


def airports():
    names = ("iata", "name", "city", "state", "country", "latitude", "longitude")
    columns = (
        "iata CHAR(4) NOT NULL PRIMARY KEY, name VARCHAR(60), city TEXT, state CHAR(2), country VARCHAR(40), "
        "latitude DOUBLE, longitude DOUBLE"
    )
    return DataSet("airports", columns, "iata", rows_of(read_csv("airports.csv"), *names))


def la_riots():
    names = (
        "first_name", "last_name", "age", "gender", "race", "death_date", "address", "neighborhood", "type",
        "longitude", "latitude",
    )  # fmt: skip
    columns = (
        "first_name VARCHAR(40), last_name VARCHAR(40), age TINYINT UNSIGNED, gender VARCHAR(10), race VARCHAR(20), "
        "death_date DATE, address TEXT, neighborhood VARCHAR(60), type VARCHAR(60), longitude DOUBLE, latitude DOUBLE"
    )
    return DataSet("la_riots", columns, "last_name, first_name, death_date", rows_of(read_csv("la-riots.csv"), *names))


def ohlc():
    names = ("date", "open", "high", "low", "close", "signal", "ret")
    columns = (
        "date DATETIME(3) NOT NULL PRIMARY KEY, open DOUBLE, high DOUBLE, low DOUBLE, close DOUBLE, "
        "`signal` VARCHAR(20), ret DOUBLE"
    )
    return DataSet("ohlc", columns, "date", rows_of(read_json("ohlc.json"), *names))


def driving():
    names = ("side", "year", "miles", "gas")
    columns = "side VARCHAR(6) NOT NULL, year YEAR NOT NULL PRIMARY KEY, miles MEDIUMINT, gas DECIMAL(4,2)"
    return DataSet("driving", columns, "year", rows_of(read_json("driving.json"), *names))


def all_data_sets():
    return [
        hourly_temperatures(), seattle_weather(), stocks(), iowa_electricity(), us_employment(), airports(),
        la_riots(), ohlc(), driving(),
    ]  # fmt: skip
