"""The same rows and the same questions in this engine and its peers.

Run by `make bench`. It loads the data sets (data.py) into each engine (engines.py, embedded.py), one server after the other,
and measures the parts (parts.py): load, size, what is written, queries, inserts, a trickle, a full ring. It compares the
answers of all engines, and writes a table, plots and the figures into docs/bench/ (report.py, plots.py).

Settings, from the environment:
  ROWS      of data set a, and so of the others (10,000,000)       SENSORS (1000), SEED (1)
  ENGINES   some of them, separated by commas                      DATA     some of a b c d e
  MODE      some of the parts: load queries insert trickle full-ring; or one of what is measured apart: billion (billion.py),
            single (single_row.py), classic (classic.py), ring (ring.py), footprint (footprint.py); report: write it again
  QUICK=1   all of it with little data, in less than three minutes: whether it works, not how fast it is
  OUT       the folder for table and plots. docs/bench for the whole benchmark, else build/bench/out
Exit code 1 when two engines answer differently, or RRD could not be measured.
"""

import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import about  # noqa: E402
import billion  # noqa: E402
import classic  # noqa: E402
import data  # noqa: E402
import embedded  # noqa: E402
import engines  # noqa: E402
import footprint  # noqa: E402
import knobs  # noqa: E402
import parts  # noqa: E402
import report  # noqa: E402
import ring  # noqa: E402
import single_row  # noqa: E402
import targets  # noqa: E402
from private_server import BUILD, ROOT  # noqa: E402
from progress import say, step  # noqa: E402

FOLDER = BUILD / "bench"
APART = {"billion": billion.main, "single": single_row.main, "classic": classic.main, "ring": ring.main, "footprint": footprint.main}
PARTS = ("load", "queries", "insert", "trickle", "full-ring")
ROWS = 10_000_000


def settings():
    is_quick = bool(knobs.number("QUICK", 0))

    def choose(slow, quick):
        return quick if is_quick else slow

    return {
        "rows": knobs.number("ROWS", choose(ROWS, 100_000)),
        "sensors": knobs.number("SENSORS", choose(1000, 200)),
        "seed": knobs.number("SEED", 1),
        "data": knobs.words("DATA", "a b c d e"),
        "parts": knobs.words("MODE", " ".join(PARTS)),
        "engines": [name.strip().lower() for name in (os.environ.get("ENGINES") or "").split(",") if name.strip()],
        "quick": is_quick,
        "loads": choose(2, 1),  # of (a) by engines that take turns
        "quiet_s": choose(2, 0.3),  # without which work in the background counts as done
        "runs": choose(5, 2),  # of each hot read and scan
        # Of each of the eight queries. The median must not be one of the first: in a virtual machine those find a core asleep.
        "eight_runs": choose(25, 2),
        "budget_ms": choose(3000, 300),  # after which none is run again
        "hot": choose(100, 20),  # small reads of each kind
        "rounds": choose(3, 1),  # of inserts by engines that take turns
        "run_ms": choose(1000, 100),  # of each round
        "series": choose(100_000, 8000),  # of the trickle
        "polls": choose(288, 2),  # every five minutes for a day
        "ring": choose(1_000_000, 50_000),
    }


def is_whole(config):
    names = ("ENGINES", "MODE", "DATA", "QUICK", "ROWS", "SENSORS")
    return not any(os.environ.get(name) for name in names) and config["rows"] == ROWS


def wanted(group, config):
    """The engines of a group that were asked for."""
    return [engine for engine in group if not config["engines"] or engine.name.lower() in config["engines"]]


def measure(group, data_sets, config, results, answers):
    """All parts of the engines of one server, which runs."""
    for engine in group:
        results["versions"][engine.name] = engine.version()
    for key, data_set in data_sets.items():
        parts.load(group, data_set, config, results, answers)
        loaded = [engine for engine in group if key in engine.data]
        if key == "a" and "queries" in config["parts"]:
            parts.ask(loaded, data_set, config, results, answers)
        for engine in loaded:
            parts.drop(engine, data_set)
    if "insert" in config["parts"]:
        parts.insert(group, config, results)
    if "trickle" in config["parts"]:
        parts.trickle(group, config, results)
    if "full-ring" in config["parts"]:
        parts.full_ring(group, config, results)
    results["peak_memory"][" and ".join(engine.name for engine in group)] = group[0].peak_memory()


def run(config):
    work = parts.WORK
    shutil.rmtree(work, ignore_errors=True)
    results = {"about": about.this(work), "settings": config, "versions": {}, "data": {}, "peak_memory": {}, "failed": {},
               "seconds": {}}
    answers = parts.Answers()
    keys = [key for key in config["data"] if "load" in config["parts"] or key == "a" and "queries" in config["parts"]]
    data_sets = {}
    for key in keys:
        with step(f"writing the rows of ({key})") as notes:
            data_set = data_sets[key] = data.make(key, config, work / "rows")
            notes.append(f"{data_set.rows:,} rows, {data_set.csv_bytes / 1e6:.0f} MB")
        results["data"][key] = {"title": data_set.title, "rows": data_set.rows, "csv_bytes": data_set.csv_bytes,
                                "bound": data_set.bound, "xz": data_set.xz} | data_set.about
    for server, all_of_it in [*engines.groups(work), *embedded.groups(work)]:
        group = wanted(all_of_it, config)
        if not group:
            continue
        start = time.monotonic()
        names = " and ".join(engine.name for engine in group)
        say(f"-- {names}")
        try:
            with server:
                measure(group, data_sets, config, results, answers)
        except Exception as error:  # noqa: BLE001 - the others can be measured without it
            say(f"{names} left out: {error}")
            results["failed"][names] = str(error).strip().splitlines()[-1]
        finally:
            server.erase()
        results["seconds"][names] = round(time.monotonic() - start, 1)
    results["answers_compared"], results["differences"] = answers.compared, answers.differences
    shutil.rmtree(work, ignore_errors=True)
    return results


def main():
    mode = os.environ.get("MODE") or ""
    if mode in APART:
        APART[mode]()
        return
    config = settings()
    default = ROOT / "docs" / "bench" if is_whole(config) or mode == "report" else FOLDER / "out"
    out = Path(os.environ.get("OUT") or default)
    out.mkdir(parents=True, exist_ok=True)
    if mode == "report":
        report.write(out)
        return
    unknown = [part for part in config["parts"] if part not in PARTS]
    if unknown:
        sys.exit(f"MODE: there is no {' '.join(unknown)}; there are {' '.join([*PARTS, *APART])} report")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another benchmark of this clone is running")
        results = run(config)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print()
    report.write(out)
    print(report.in_words(targets.all_of(results)))
    say(f"written to {out}")
    if results["differences"]:
        sys.exit("different answers: " + "; ".join(results["differences"]))
    if any("RRD" in names for names in results["failed"]):
        sys.exit("RRD could not be measured")


if __name__ == "__main__":
    main()
