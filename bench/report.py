"""The figures of a run as Markdown: targets first, then each part as a table; plots.py draws them.

It reads results.json, and billion.json where it is, from the folder that it writes results.md into.
"""

import json
import math
import sys

import embedded
import engines
import plots
import targets
from queries import SCANS


def table(head, rows):
    """A Markdown table; the first column is text, the others numbers."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines) + "\n"


def number(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def milliseconds(figure):
    """Three digits of a time; nothing where it was not measured, a mark where it took too long."""
    if figure is None:
        return ""
    if figure["ms"] is None:
        return f"> {engines.QUERY_LIMIT_S:,} s"
    return f"{figure['ms']:,.{0 if figure['ms'] >= 100 else 1 if figure['ms'] >= 10 else 2 if figure['ms'] >= 1 else 3}f}"


def names_of(results, part):
    """The engines of a part, in the order in which they ran."""
    return list(results.get(part, {}))


def about(results):
    made, config = results["about"], results["settings"]
    machine = made["machine"]
    lines = [
        f"Made by `make bench`, {made['date']}, commit {made['commit']}.",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}; "
        f"to write a page and sync it takes {machine['sync_ms']} ms; load average before the run {machine['load_before']:.1f}.",
    ]
    if "versions" in results:
        versions = dict.fromkeys(results["versions"].values())
        lines += [f"Versions: {', '.join(versions)}.",
                  f"ROWS={config['rows']}, SENSORS={config['sensors']}, SEED={config['seed']}"
                  + (", QUICK=1: **too little data to say how fast anything is**." if config["quick"] else ".")]
    return "\n".join(lines) + "\n"


def target_table(results):
    return table(["", "target", "measured", ""], [[t.what, t.target, t.measured, t.verdict] for t in targets.all_of(results)])


def data_table(results):
    rows = []
    for key, data in results["data"].items():
        bound = f"{data['bound']:.2f}" if data["bound"] else f"not known; `xz -9e` of the text: {data['xz']:.2f}"
        rows.append([f"({key}) {data['title']}", number(data["rows"]), number(data["csv_bytes"] / data["rows"], 1), bound])
    return table(["data set", "rows", "bytes a row, text", "entropy bound, bytes a row"], rows)


def load_table(results):
    """Speed, and in brackets the CPU time of the server, which depends less on what else ran."""
    keys = [key for key in ("a", "a, two sessions", "b", "c", "d") if any(key in r for r in results["load"].values())]

    def cell(figures):
        return f"{figures['rows_a_second'] / 1000:,.0f} ({figures['cpu_us_a_row']:.2f})" if figures else ""

    return table(["thousand rows a second (CPU, us a row)", *(f"({key[0]}){key[1:]}" for key in keys)],
                 [[name, *(cell(found.get(key)) for key in keys)] for name, found in results["load"].items()])


def size_table(results):
    keys = [key for key in "abcde" if key in results["data"]]
    bounds = [results["data"][key]["bound"] for key in keys]

    def cell(figures, bound):
        if not figures:
            return ""
        row = figures["bytes_on_disk"] / figures["rows"]
        return f"{row:.2f}" + (f" ({row / bound:.2f})" if bound else "")

    rows = [[name, *(cell(found.get(key), bound) for key, bound in zip(keys, bounds))]
            for name, found in results["load"].items() if name != "BLACKHOLE"]
    ours = results["load"].get("RRD", {})
    logs = [number(ours[key]["log_bytes"] / ours[key]["rows"], 2) if key in ours else "" for key in keys]
    rows += [["RRD's log, which is in it", *logs]] if ours else []
    return table(["bytes a row (times the bound)", *(f"({key})" for key in keys)],
                 [["entropy bound", *(number(bound, 2) for bound in bounds)], *rows])


def written_table(results):
    keys = [key for key in "abcd" if key in results["data"]]

    def cell(figures):
        if "bytes_written" not in (figures or {}):
            return ""
        return f"{figures['bytes_written'] / figures['rows']:.1f} ({figures['bytes_written'] / figures['bytes_on_disk']:.1f})"

    return table(["bytes written a row (per byte kept)", *(f"({key})" for key in keys), "background work after (a), s"],
                 [[name, *(cell(found.get(key)) for key in keys), number(found["a"]["settled_s"], 1) if "a" in found else ""]
                  for name, found in results["load"].items() if name != "BLACKHOLE"])


def insert_table(results):
    keys = list(dict.fromkeys(key for found in results["insert"].values() for key in found))
    names = names_of(results, "insert")
    return table(["rows a second", *names],
                 [[key, *(number(results["insert"][name].get(key, {}).get("rows_a_second")) for name in names)] for key in keys])


def times_table(results, part, keys=None):
    names = names_of(results, part)
    keys = keys or list(dict.fromkeys(key for found in results[part].values() for key in found))
    return table(["ms", *names], [[key, *(milliseconds(results[part][name].get(key)) for name in names)] for key in keys])


def trickle_table(results):
    def row(name, key, found):
        figures = {"bytes_written": math.nan} | found
        return [f"{name}, {key}", number(figures["rows"]), number(figures["rows_a_second"]), number(figures["bytes_written"] / figures["rows"], 1),
                number(figures["bytes_on_disk"] / figures["rows"], 1), number(figures["bytes_written"] / figures["bytes_on_disk"], 1)]

    return table(["", "rows", "rows a second", "bytes written a row", "bytes kept a row", "written per byte kept"],
                 [row(name, key, found) for name, runs in results["trickle"].items() for key, found in runs.items()])


def ring_table(results):
    rows = [[f"{found['rows']} rows a statement", number(found["full"]["rows_a_second"]), number(found["empty"]["rows_a_second"]),
             number(found["full"]["rows_a_second"] / found["empty"]["rows_a_second"], 2)] for found in results["ring"]["RRD"]["figures"]]
    return table(["rows a second, two clients, commits not synced", "full ring", "empty ring", "full to empty"], rows)


def billion_section(found):
    rows = []
    for name, engine in found["engines"].items():
        kept = engine["bytes_on_disk"] / 1e9 if name != "BLACKHOLE" else None
        rows.append([name, number(engine["seconds"] / 60, 1), number(engine["rows_a_second"] / 1000), number(kept, 2),
                     number(engine["peak_memory_settled"] / 2**20), number(engine["settled_s"], 1)])
    head = ["", "minutes", "thousand rows a second", "GB on disk", "peak memory, MiB", "background work after it, s"]
    text = f"{about(found)}\n{found['settings']['rows']:,} rows of {found['settings']['sensors']:,} sensors.\n\n" + table(head, rows)
    asked = {name: engine["queries"] for name, engine in found["engines"].items() if "queries" in engine}
    if asked:
        first = next(iter(asked.values()))
        text += "\n" + table(["ms", *asked], [[key, *(milliseconds({"ms": times[key]}) for times in asked.values())] for key in first])
    return text


def settings_text():
    options = "\n".join(f"- `{kind}`: `{' '.join(words)}`" for kind, words in engines.SERVER_OPTIONS.items())
    return (f"{options}\n- all: `*_flush_log_at_trx_commit=1` (each commit on disk before it is acknowledged) but where a line says "
            "\"not synced\" (2), no binary log, everything else as it comes.\n"
            f"- DuckDB: `memory_limit='{embedded.MEMORY}'`, no key (it is not needed for these questions), rows in the order of the file; "
            "\"sorted\": in the order of sensor and time.\n"
            "- ClickHouse: MergeTree ordered by sensor and time, DOUBLE with Gorilla and ZSTD, integers with DoubleDelta and ZSTD, "
            "`fsync_after_insert=1`, after a load `OPTIMIZE FINAL`, no query condition cache.\n")


SECTIONS = (
    ("Load", "load", load_table, "load.png"),
    ("Size on disk", "load", size_table, "size.png"),
    ("Bytes written to disk by a load", "load", written_table, None),
    ("INSERT", "insert", insert_table, "insert.png"),
    ("The eight queries, over (a)", "queries", lambda r: times_table(r, "queries"), "queries.png"),
    ("Hot reads, over (a)", "hot", lambda r: times_table(r, "hot"), None),
    ("Plain scans, rows one at a time, over (a)", "scans", lambda r: times_table(r, "scans", list(SCANS)), None),
    ("A trickle", "trickle", trickle_table, None),
    ("A full ring", "ring", ring_table, None),
)


def sections(results):
    yield "# Figures\n"
    yield "README.md in this folder says how they are made and how to read them. This file is written by the benchmark.\n"
    yield about(results)
    yield "## Targets\n"
    yield target_table(results)
    if results["data"]:
        yield "## Data\n"
        yield data_table(results)
    for title, part, make, plot in SECTIONS:
        if results.get(part):
            yield f"## {title}\n"
            if plot:
                yield f"![{title}]({plot})\n"
            yield make(results)
    if results.get("billion"):
        yield "## A billion rows\n"
        yield "![A billion rows](billion.png)\n"
        yield billion_section(results["billion"])
    yield "## Settings\n"
    yield settings_text()
    yield "## The run\n"
    memory = ", ".join(f"{names} {value / 2**20:,.0f} MiB" for names, value in results["peak_memory"].items())
    if memory:
        yield f"Peak memory over all parts: {memory}.\n"
    seconds = ", ".join(f"{names} {value:.0f} s" for names, value in results["seconds"].items())
    if seconds:
        yield f"It took: {seconds}; together {sum(results['seconds'].values()) / 60:.1f} min.\n"
    yield f"Answers compared: {results['answers_compared']}; different: {'; '.join(results['differences']) or 'none'}.\n"
    for names, reason in results["failed"].items():
        yield f"**{names} could not be measured**: {reason}\n"


NOTHING = {"data": {}, "peak_memory": {}, "seconds": {}, "failed": {}, "differences": [], "answers_compared": 0}


def write(out):
    """Writes results.md and the plots."""
    results, apart = read(out / "results.json"), read(out / "billion.json")
    if apart:
        results = (results or NOTHING | {"about": apart["about"], "settings": apart["settings"] | {"quick": False}}) | {"billion": apart}
    if not results:
        sys.exit(f"there is neither results.json nor billion.json in {out}")
    (out / "results.md").write_text("\n".join(sections(results)))
    plots.draw(results, out)


def in_words(found):
    """Targets for the terminal, a line each."""
    width = max(len(target.what) for target in found)
    return "\n".join(f"{target.what:<{width}}  {target.verdict.strip('*'):<12}  {target.measured}" for target in found)


def read(file):
    return json.loads(file.read_text()) if file.exists() else None
