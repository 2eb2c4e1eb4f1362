"""1,238,201,948 rows of data set (b) through one LOAD DATA, from a pipe: what a table of 2012 had, which was compared then.

Run by `MODE=billion make bench`. BLACKHOLE first: how long the SQL layer takes for these rows; then RRD: time, size, memory,
and the eight queries on all of it. The generator writes into a named pipe, so no file of some 60 GB is needed.

Settings, from the environment: ROWS, SENSORS, SEED, ENGINES (BLACKHOLE,RRD), OUT. Figures go to docs/bench/billion.json, of
fewer rows to build/bench/out/; the report takes them from there.
"""

import fcntl
import json
import os
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

import about
import data
import engines
import knobs
import parts
import queries
import report
import targets
from disk import device_bytes_written
from private_server import BUILD, ROOT
from progress import say, step

FOLDER = parts.WORK
ROWS = 1_238_201_948
SAMPLE_S = 5
QUIET_S = 5
PIPE_BYTES = 1 << 20
SAY_EVERY_S = 60


def settings():
    return {"rows": knobs.number("ROWS", ROWS), "sensors": knobs.number("SENSORS", 1000), "seed": knobs.number("SEED", 1),
            "engines": [name.strip() for name in (os.environ.get("ENGINES") or "BLACKHOLE,RRD").split(",")]}


def bytes_a_row(config):
    """Of the text, of the first million rows."""
    rows = min(config["rows"], 1_000_000)
    return data.generate("still", rows, config["sensors"], config["seed"], Path(os.devnull))["csv_bytes"] / rows


class Pipe:
    """A named pipe that the generator writes to."""

    def __init__(self, config):
        self.path = FOLDER / "rows.pipe"
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        os.mkfifo(self.path, 0o644)
        # For reading as well, so that it opens before the server does.
        end = os.open(self.path, os.O_RDWR)
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        command = data.command("still", config["rows"], config["sensors"], config["seed"])
        self.generator = subprocess.Popen(command, stdout=end, stderr=subprocess.PIPE, text=True)
        os.close(end)

    def written(self):
        lines = Path(f"/proc/{self.generator.pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))

    def close(self):
        """Ends the generator, which has ended by itself unless the load failed. Returns what it said."""
        if self.generator.poll() is None:
            self.generator.terminate()
        said = self.generator.communicate()[1]
        self.path.unlink()
        return said


def load(engine, table, config, row_bytes):
    """Loads all rows; returns seconds, samples of what happened meanwhile, and what the generator says of the rows."""
    pipe = Pipe(config)
    samples, done = [{"s": 0, "rows": 0, "bytes_on_disk": engine.bytes_on_disk(), "memory": engine.memory()}], threading.Event()

    def watch():
        start = said = time.monotonic()
        while not done.wait(SAMPLE_S):
            now = time.monotonic()
            try:
                rows = pipe.written() / row_bytes
            except (OSError, StopIteration):
                continue  # the generator is through, the load not yet
            samples.append({"s": round(now - start, 1), "rows": int(rows), "bytes_on_disk": engine.bytes_on_disk(),
                            "memory": engine.memory()})
            if now - said > SAY_EVERY_S:
                said = now
                say(f"   {rows / 1e6:,.0f} M rows, {rows / (now - start) / 1e6:.2f} M a second, "
                    f"{samples[-1]['bytes_on_disk'] / 1e6:,.0f} MB, memory {samples[-1]['memory'] / 2**20:,.0f} MiB")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        seconds = engine.load(table, [pipe.path])
    finally:
        done.set()
        watcher.join()
        rows_about = pipe.close()
    samples.append({"s": round(seconds, 1), "rows": config["rows"], "bytes_on_disk": engine.bytes_on_disk(), "memory": engine.memory()})
    return seconds, samples, json.loads(rows_about)


def measure(engine, config, row_bytes):
    table = data.sensordata(None, {"rows": config["rows"]})
    engine.begin()
    engine.create(table)
    before = device_bytes_written(FOLDER)
    say(f"{engine.name}: load of {config['rows']:,} rows from a pipe")
    seconds, samples, rows_about = load(engine, table, config, row_bytes)
    say(f"{engine.name}: loaded in {seconds:.0f} s, {config['rows'] / seconds / 1e6:.2f} M rows a second")
    result = {"seconds": seconds, "rows_a_second": config["rows"] / seconds, "peak_memory": engine.peak_memory(), "samples": samples}
    with step(f"{engine.name}: work in the background"):
        result["settled_s"] = engine.settle([table], QUIET_S)
    result |= parts.written_since(before)
    result |= {"bytes_on_disk": engine.bytes_on_disk(), "peak_memory_settled": engine.peak_memory(), "bound": rows_about["entropy_bytes_a_row"]}
    if engine.keeps_rows:
        result["queries"] = ask(engine, table, rows_about)
        _, found = engine.ask(f"SELECT COUNT(*) FROM {engine.table(table.name)}", 0, 1)
        result["rows_found"] = found[0][0]
        result["peak_memory_queries"] = engine.peak_memory()
    return result


def ask(engine, table, rows_about):
    found = {}
    for name, query in queries.eight(rows_about).items():
        with step(f"{engine.name}: {name}") as notes:
            text = query.format(table=engine.table(table.name), hour=queries.HOURS[engine.dialect])
            runs, _ = engine.ask(text, 2, 5000)
            found[name] = statistics.median(runs) if runs else None
            notes.append(f"{found[name]:.1f} ms" if runs else "ended, it took too long")
    return found


def main():
    config = settings()
    out = Path(os.environ.get("OUT") or (ROOT / "docs" / "bench" if config["rows"] == ROWS else BUILD / "bench" / "out"))
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    results = {"about": about.this(FOLDER), "settings": config, "engines": {}}
    row_bytes = bytes_a_row(config)
    for name in config["engines"]:
        # A server for each, so that its memory is that of this load.
        server = engines.server(FOLDER, "rrd")
        engine = next(engine for engine in engines.in_server_of_rrd(server) if engine.name.lower() == name.lower())
        try:
            with server:
                results["engines"][engine.name] = measure(engine, config, row_bytes)
        finally:
            server.erase()
    (out / "billion.json").write_text(json.dumps(results, indent=1) + "\n")
    shutil.rmtree(FOLDER, ignore_errors=True)
    report.write(out)
    print(report.in_words([targets.billion({"billion": results})]))
    say(f"written to {out}")
    for name, result in results["engines"].items():
        if result.get("rows_found", config["rows"]) != config["rows"]:
            raise SystemExit(f"{name} has {result['rows_found']} rows of {config['rows']}")
