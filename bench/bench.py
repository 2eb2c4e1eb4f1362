"""The same rows and the same queries in this engine and its peers, side by side.

Run by `make bench`. One private server holds all engines, each with the same cache. Rows come
from rrd-gen, so the fewest bytes that any store could use are known. BLACKHOLE keeps nothing: its
load rate is what the SQL layer takes from a file at best.

Settings, from the environment: ROWS, SENSORS, SEED, MODE (see rrd-gen), CACHE (bytes or 1G),
ENGINES (space-separated), RUNS (of each query). MODE=single measures
single rows instead, MODE=classic the table of 2007, MODE=ring rings and tiers, MODE=footprint bytes
over time: see single_row.py, classic.py, ring.py, footprint.py. Results go to the terminal and to
build/bench/result.json. Exit code 1 when two engines answer differently.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import classic  # noqa: E402
import footprint  # noqa: E402
import ring  # noqa: E402
import single_row  # noqa: E402
from private_server import BUILD, PrivateServer  # noqa: E402

FOLDER = BUILD / "bench"
GENERATOR = BUILD / "cargo" / "release" / "rrd-gen"

# What a peer's plugin is called, where the engine is not built in.
PLUGIN_OF = {"RRD": "ha_rrd", "BLACKHOLE": "ha_blackhole", "ROCKSDB": "ha_rocksdb", "ARCHIVE": "ha_archive"}

# MyRocks refuses large statements unless it may commit parts of them.
BEFORE_LOAD = {"ROCKSDB": "SET rocksdb_commit_in_the_middle = 1"}

# MyRocks keeps the last rows in its log until told; its files are then as small as they get.
AFTER_LOAD = {"ROCKSDB": "SET GLOBAL rocksdb_force_flush_memtable_and_lzero_now = 1"}

TABLE = """CREATE TABLE {table} (
  ts INT UNSIGNED NOT NULL, sensor_id INT UNSIGNED NOT NULL,
  data1 DOUBLE NOT NULL, data2 DOUBLE NOT NULL, data3 DOUBLE NOT NULL, data4 DOUBLE NOT NULL,
  data6 DOUBLE NOT NULL, cnt INT UNSIGNED NOT NULL,
  PRIMARY KEY (sensor_id, ts)) ENGINE={engine}"""

# A sum of doubles depends on the order of its terms; two engines may differ by this much of it.
SUM_TOLERANCE = 1e-9

# Files after a load count as settled when their size has not changed for this long.
SETTLED_S = 3
SETTLE_LIMIT_S = 300


def settings():
    def number(name, default):
        return int(os.environ.get(name) or default)

    return {
        "rows": number("ROWS", 10_000_000),
        "sensors": number("SENSORS", 1000),
        "seed": number("SEED", 1),
        "runs": number("RUNS", 5),
        "mode": os.environ.get("MODE") or "walk",
        "cache": os.environ.get("CACHE") or "1G",
        "engines": (os.environ.get("ENGINES") or "BLACKHOLE InnoDB RRD").split(),
    }


def generate(config, file):
    """Writes the rows to the file and returns what the generator says about them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [GENERATOR]
    for name in ("rows", "sensors", "seed", "mode"):
        command += [f"--{name}", str(config[name])]
    with file.open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stderr)


def queries(data):
    """Name and text of each query; {table} stands for the engine's table."""
    last, sensor = data["last_ts"], min(7, data["sensors"])
    day, half_day = 24 * 3600, 12 * 3600
    point = last - 10 * data["step_s"] if data["rows"] > 20 * data["sensors"] else data["first_ts"]
    return {
        "count, avg, max over all": "SELECT COUNT(*), AVG(data1), MAX(data1) FROM {table}",
        "the same by sensor": "SELECT sensor_id, COUNT(*), AVG(data1), MAX(data1) FROM {table} GROUP BY sensor_id "
        "ORDER BY sensor_id",
        "one sensor's last day": f"SELECT * FROM {{table}} WHERE sensor_id = {sensor} AND ts > {last - day} ORDER BY ts",
        "one sensor's newest": f"SELECT * FROM {{table}} WHERE sensor_id = {sensor} ORDER BY ts DESC LIMIT 1",
        "one reading": f"SELECT * FROM {{table}} WHERE sensor_id = {sensor} AND ts = {point}",
        "all by hour, 12 h": "SELECT sensor_id, ts DIV 3600 AS hour, AVG(data1) FROM {table} "
        f"WHERE ts > {last - half_day} GROUP BY sensor_id, hour ORDER BY sensor_id, hour",
    }


def table_of(engine):
    return f"bench_{engine.lower()}.sensordata"


def load(server, connection, engine, file, rows):
    """Creates the engine's table and loads the file; the engine's database is its own."""
    before = bytes_on_disk(server, engine)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE bench_{engine.lower()}")
        cursor.execute(TABLE.format(table=table_of(engine), engine=engine))
        if engine in BEFORE_LOAD:
            cursor.execute(BEFORE_LOAD[engine])
        start = time.monotonic()
        cursor.execute(f"LOAD DATA INFILE '{file}' INTO TABLE {table_of(engine)} FIELDS TERMINATED BY ','")
        connection.commit()
        seconds = time.monotonic() - start
        if engine in AFTER_LOAD:
            cursor.execute(AFTER_LOAD[engine])
    settled = wait_until_settled(server, engine)
    stored = bytes_on_disk(server, engine) - before
    return {
        "load_s": seconds,
        "rows_a_second": rows / seconds,
        "settled_after_s": settled,
        "bytes_a_row": stored / rows,
    }


def bytes_on_disk(server, engine):
    """What the engine's files take of the disk. InnoDB: its table space alone, without its shared
    files. Any other engine: everything in the data folder that is not InnoDB's, logs included."""
    own_space = server.data / "bench_innodb"
    if engine.lower() == "innodb":
        files = own_space.glob("*") if own_space.exists() else []
    else:
        shared = ("ib", "undo")
        files = (f for f in server.data.rglob("*") if own_space not in f.parents and not f.name.startswith(shared))
    total = 0
    for file in files:
        try:
            if not file.is_dir():
                total += file.stat().st_blocks * 512
        except FileNotFoundError:
            pass  # an engine's merge removed it meanwhile
    return total


def wait_until_settled(server, engine):
    """Waits for work in the background (merges, page flushes) and returns how long it went on."""
    start = changed = time.monotonic()
    size = bytes_on_disk(server, engine)
    while (now := time.monotonic()) - changed < SETTLED_S and now - start < SETTLE_LIMIT_S:
        time.sleep(0.1)
        new = bytes_on_disk(server, engine)
        if new != size:
            size, changed = new, time.monotonic()
    return changed - start


def measure(connection, text, runs):
    """The query's answer, and the median time that the server itself took for it, in ms."""
    times = []
    with connection.cursor() as cursor:
        cursor.execute("SET profiling_history_size = 1")
        cursor.execute(text)  # once to warm the caches, not counted
        for _ in range(runs):
            cursor.execute("SET profiling = 1")
            cursor.execute(text)
            answer = cursor.fetchall()
            cursor.execute("SET profiling = 0")
            cursor.execute("SHOW PROFILES")
            times.append(float(cursor.fetchall()[-1][1]) * 1000)
    return answer, statistics.median(times)


def same_answer(one, other):
    def same(a, b):
        if isinstance(a, float) and isinstance(b, float):
            return abs(a - b) <= SUM_TOLERANCE * max(abs(a), abs(b))
        return a == b

    return len(one) == len(other) and all(len(r) == len(s) and all(map(same, r, s)) for r, s in zip(one, other))


def run(config, file, data):
    """Loads and queries every engine. Returns the results by engine and the differing answers."""
    cache = config["cache"]
    options = [f"--innodb-buffer-pool-size={cache}", f"--loose-rrd-cache-size={cache}"]
    if "ROCKSDB" in config["engines"]:
        options.append(f"--rocksdb-block-cache-size={cache}")
    plugins = [PLUGIN_OF[e] for e in config["engines"] if e in PLUGIN_OF]
    results, differences = {}, []
    server = PrivateServer(FOLDER / "server", options, plugins)
    server.erase()
    with server:
        connection = server.connect()
        for engine in config["engines"]:
            print(f"loading {engine} ...", flush=True)
            results[engine] = load(server, connection, engine, file, data["rows"])
        readable = [e for e in config["engines"] if e != "BLACKHOLE"]
        for engine in readable:
            results[engine]["query_ms"] = {}
        for name, text in queries(data).items():
            print(f"asking: {name} ...", flush=True)
            answers = {}
            for engine in readable:
                query = text.format(table=table_of(engine))
                answers[engine], results[engine]["query_ms"][name] = measure(connection, query, config["runs"])
            first = readable[0]
            differences += [f"{e} and {first}: {name}" for e in readable[1:] if not same_answer(answers[first], answers[e])]
        connection.close()
    server.erase()
    return results, differences


def report(config, data, results):
    engines = list(results)
    peer = "InnoDB" if "InnoDB" in results else engines[0]
    ratio = "RRD" in results and peer != "RRD"

    def line(name, cells, last=""):
        print(f"{name:26}" + "".join(f"{cell:>13}" for cell in cells) + (f"{last:>19}" if ratio else ""))

    def versus(get, more_is_better):
        if not ratio:
            return ""
        ours, theirs = get(results["RRD"]), get(results[peer])
        return f"{(ours / theirs if more_is_better else theirs / ours):.1f} x"

    print(f"\n{data['rows']:,} rows, {data['sensors']:,} sensors, mode {data['mode']}, seed {data['seed']}, ", end="")
    print(f"cache {config['cache']}; entropy bound {data['entropy_bytes_a_row']:.2f} bytes a row\n")
    line("", engines, "RRD is better by")
    line("load, thousand rows/s", [f"{r['rows_a_second'] / 1000:.0f}" for r in results.values()],
         versus(lambda r: r["rows_a_second"], True))
    line("bytes a row", [f"{r['bytes_a_row']:.2f}" for r in results.values()],
         versus(lambda r: r["bytes_a_row"], False))
    line("background work, s", [f"{r['settled_after_s']:.1f}" for r in results.values()])
    for name in queries(data):
        cells = [f"{r['query_ms'][name]:.2f} ms" if "query_ms" in r else "-" for r in results.values()]
        line(name, cells, versus(lambda r: r["query_ms"][name], False))


def main():
    other = {"single": single_row, "classic": classic, "ring": ring, "footprint": footprint}.get(os.environ.get("MODE"))
    if other:
        other.main()
        return
    config = settings()
    print(f"generating {config['rows']:,} rows ...", flush=True)
    file = FOLDER / "rows.csv"
    data = generate(config, file)
    results, differences = run(config, file, data)
    file.unlink()
    report(config, data, results)
    output = {"settings": config, "data": data, "engines": results, "different_answers": differences}
    (FOLDER / "result.json").write_text(json.dumps(output, indent=2) + "\n")
    print("\nwritten to build/bench/result.json")
    if differences:
        sys.exit("different answers: " + "; ".join(differences))


if __name__ == "__main__":
    main()
