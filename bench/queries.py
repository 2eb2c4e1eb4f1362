"""The questions, and whether two answers are the same.

{table} stands for the engine's table, {hour} for the hour of ts in its SQL. All engines get the same text but for these.
"""

import random
from decimal import Decimal

DAY, HOUR = 86_400, 3600

# A sum of doubles depends on the order of its terms; two engines may differ by this much of it.
TOLERANCE = 1e-9

HOURS = {"mariadb": "ts DIV 3600", "duckdb": "ts // 3600", "clickhouse": "intDiv(ts, 3600)"}


def eight(about):
    """Name and text of the eight queries over the data set that rrd-gen told this about."""
    last, sensors = about["last_ts"], about["sensors"]
    sensor = min(7, sensors)
    ten = ", ".join(str(number) for number in sorted(random.Random(about["seed"]).sample(range(1, sensors + 1), min(10, sensors))))
    by_hour = "SELECT sensor_id, {hour} AS hour, AVG(data1) AS average FROM {table}"
    grouped = "GROUP BY sensor_id, {hour} ORDER BY sensor_id, hour"
    return {
        "all rows": "SELECT COUNT(*), AVG(data1), MAX(data1) FROM {table}",
        "by sensor": "SELECT sensor_id, COUNT(*), AVG(data1), MAX(data1) FROM {table} GROUP BY sensor_id ORDER BY sensor_id",
        "one sensor's last day": f"SELECT * FROM {{table}} WHERE sensor_id = {sensor} AND ts > {last - DAY} ORDER BY ts",
        "last reading of one": f"SELECT * FROM {{table}} WHERE sensor_id = {sensor} ORDER BY ts DESC LIMIT 1",
        "ten sensors by hour, a day": f"{by_hour} WHERE sensor_id IN ({ten}) AND ts > {last - DAY} {grouped}",
        "all sensors by hour, 12 h": f"{by_hour} WHERE ts > {last - DAY // 2} {grouped}",
        "one hour of all sensors": f"SELECT * FROM {{table}} WHERE ts > {last - HOUR} ORDER BY sensor_id, ts",
        "last reading of all": "SELECT r.* FROM {table} r JOIN (SELECT sensor_id, MAX(ts) AS ts FROM {table} GROUP BY sensor_id) "
                               "newest ON r.sensor_id = newest.sensor_id AND r.ts = newest.ts ORDER BY r.sensor_id",
    }  # fmt: skip


def hot(about, count):
    """Name and texts of small reads, each of so many sensors and times by chance; their rows are in the caches soon."""
    chance = random.Random(about["seed"])
    first, last, step = about["first_ts"], about["last_ts"], about["step_s"]

    def places():
        # The last two steps may not have all sensors.
        steps = max(1, (last - first) // step - 1)
        return [(chance.randint(1, about["sensors"]), first + chance.randrange(steps) * step) for _ in range(count)]

    def of(sensor, condition):
        return f"SELECT * FROM {{table}} WHERE sensor_id = {sensor} {condition}"

    return {
        "one reading": [of(sensor, f"AND ts = {ts}") for sensor, ts in places()],
        "newest reading of one": [of(sensor, "ORDER BY ts DESC LIMIT 1") for sensor, _ in places()],
        "an hour of one": [of(sensor, f"AND ts BETWEEN {ts} AND {ts + HOUR - 1} ORDER BY ts") for sensor, ts in places()],
        "the last day of one": [of(sensor, f"AND ts > {last - DAY} ORDER BY ts") for sensor, _ in places()],
    }


# Rows one at a time: what the engine hands to the server, where nothing is computed inside of it.
SCANS = {
    "scan, one column": "SELECT COUNT(*), SUM(data1) FROM {table}",
    "scan, all columns": "SELECT SUM(ts + sensor_id + data1 + data2 + data3 + data4 + data6 + cnt) FROM {table}",
}


def contents(table):
    """One query whose answer says whether a table has the rows of its file."""
    asked = ["COUNT(*)"]
    for name, kind in table.columns:
        is_number = kind.split()[0] in ("DOUBLE", "INT") or kind.startswith("DECIMAL")
        asked += [f"SUM({name})", f"COUNT({name})"] if is_number else [f"COUNT(DISTINCT {name})"]
    return f"SELECT {', '.join(asked)} FROM {{table}}"


def same(one, other):
    """Whether the rows of two answers are equal, but for the last digits of floating-point numbers."""
    def same_value(a, b):
        if isinstance(a, float | Decimal) or isinstance(b, float | Decimal):
            return a is not None and b is not None and abs(float(a) - float(b)) <= TOLERANCE * max(abs(float(a)), abs(float(b)))
        return a == b
    return len(one) == len(other) and all(len(r) == len(s) and all(map(same_value, r, s)) for r, s in zip(one, other))
