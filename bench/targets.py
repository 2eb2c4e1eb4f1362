"""What the project wants to reach, and whether a run did: each target with what was measured, in the same run."""

import math
from dataclasses import dataclass

OURS = "RRD"

# Of sensordata, uncompressed: three INTs and five DOUBLEs.
ROW_BYTES = 3 * 4 + 5 * 8


@dataclass
class Target:
    what: str
    target: str
    measured: str
    is_met: bool | None  # None: not measured

    @property
    def verdict(self):
        return {True: "met", False: "**not met**", None: "not measured"}[self.is_met]


def of(results, part, engine, key):
    return results.get(part, {}).get(engine, {}).get(key)


def missing(what, target):
    return Target(what, target, "", None)


def speed(results, key):
    """Ours over BLACKHOLE's, and InnoDB's over ours."""
    rows = f"{results['data'][key]['rows'] / 1e6:g} M rows of " if key in results["data"] else ""
    what, target = f"LOAD DATA of {rows}({key}), one session", "at most 1.3 times BLACKHOLE's time, at least 2.2 times InnoDB's speed"
    ours, ceiling, peer = (of(results, "load", engine, key) for engine in (OURS, "BLACKHOLE", "InnoDB"))
    if not (ours and ceiling and peer):
        return missing(what, target)
    slower, faster = ours["seconds"] / ceiling["seconds"], peer["seconds"] / ours["seconds"]
    measured = f"{slower:.2f} times ({ours['seconds']:.1f} s to {ceiling['seconds']:.1f} s), {faster:.1f} times"
    return Target(what, target, measured, slower <= 1.3 and faster >= 2.2)


def two_sessions(results):
    what, target = "two sessions at once into one table", "at most 1.5 times BLACKHOLE's time with two"
    ours, ceiling = (of(results, "load", engine, "a, two sessions") for engine in (OURS, "BLACKHOLE"))
    if not (ours and ceiling):
        return missing(what, target)
    slower = ours["seconds"] / ceiling["seconds"]
    return Target(what, target, f"{slower:.2f} times ({ours['rows_a_second'] / 1e6:.2f} M rows a second)", slower <= 1.5)


def inserts(results):
    what, target = "1000-row INSERTs, 2 clients", "at most 1.15 times BLACKHOLE's time"
    ours, ceiling, loose, loose_ceiling = (
        of(results, "insert", engine, f"1000 rows, 2 clients{how}") for how in ("", ", not synced") for engine in (OURS, "BLACKHOLE")
    )
    if not (ours and ceiling):
        return missing(what, target)
    slower = ceiling["rows_a_second"] / ours["rows_a_second"]
    measured = f"{slower:.2f} times, each commit synced"
    if loose and loose_ceiling:
        measured += f"; {loose_ceiling['rows_a_second'] / loose['rows_a_second']:.2f} times without"
    return Target(what, target, measured, slower <= 1.15)


def size(results, key, most):
    what, target = f"size of ({key}), everything on disk", f"at most {most:g} times the entropy bound"
    ours, data = of(results, "load", OURS, key), results["data"].get(key)
    if not ours:
        return missing(what, target)
    row = ours["bytes_on_disk"] / ours["rows"]
    times = row / data["bound"]
    others = [f"{engine} {theirs['bytes_on_disk'] / theirs['rows'] / data['bound']:.1f}" for engine in ("DuckDB", "ClickHouse")
              if (theirs := of(results, "load", engine, key))]
    return Target(what, target, f"{times:.2f} times ({row:.2f} bytes a row){'; ' if others else ''}{', '.join(others)}", times <= most)


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def ratios(results, part, peer):
    """By name ours over the peer's time, where both have one; None where only ours has none."""
    ours, theirs = (results.get(part, {}).get(engine, {}) for engine in (OURS, peer))
    return {name: ours[name]["ms"] / theirs[name]["ms"] if ours[name]["ms"] else None for name in ours
            if theirs.get(name, {}).get("ms")}


def eight_queries(results):
    what, target = "the eight queries", "geometric mean at most DuckDB's time, none over twice"
    found = ratios(results, "queries", "DuckDB")
    if not found:
        return missing(what, target)
    if None in found.values():
        return Target(what, target, "one of them took too long", False)
    worst = max(found, key=found.get)
    measured = f"{mean(found.values()):.2f} times; worst: {worst}, {found[worst]:.2f} times"
    return Target(what, target, measured, mean(found.values()) <= 1 and found[worst] <= 2)


def hot_reads(results):
    what, target = "hot reads", "at most InnoDB's time"
    found = ratios(results, "hot", "InnoDB")
    if not found:
        return missing(what, target)
    measured = f"{mean(found.values()):.2f} times; " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items())
    return Target(what, target, measured, max(found.values()) <= 1)


def scan(results):
    what, target = "plain row-at-a-time scan", "at least MyISAM's speed"
    found = ratios(results, "scans", "MyISAM")
    if not found:
        return missing(what, target)
    faster = {name: 1 / ratio for name, ratio in found.items()}
    has_setting = all(of(results, "scans", OURS, name)["setting"] for name in found)
    measured = ", ".join(f"{name.removeprefix('scan, ')} {value:.2f} times" for name, value in faster.items())
    return Target(what, target, measured + ("" if has_setting else " (no rrd_pushdown to switch off)"), min(faster.values()) >= 1)


def billion(results):
    what = "1,238,201,948 rows of (b) from a pipe"
    target = "at most 1.3 times BLACKHOLE's time, under 33 min if BLACKHOLE allows it; under 2 GB; memory under 2 GiB"
    found = results.get("billion", {})
    ours, ceiling = (found.get("engines", {}).get(engine) for engine in (OURS, "BLACKHOLE"))
    if not ours:
        return missing(what, target)
    rows = found["settings"]["rows"]
    minutes, memory = ours["seconds"] / 60, ours["peak_memory_settled"] / 2**30
    measured = f"{minutes:.1f} min, {ours['bytes_on_disk'] / 1e9:.2f} GB, peak memory {memory:.2f} GiB"
    is_met = ours["bytes_on_disk"] < 2e9 and memory < 2
    if ceiling:
        slower = ours["seconds"] / ceiling["seconds"]
        measured += f", {slower:.2f} times BLACKHOLE's {ceiling['seconds'] / 60:.1f} min"
        is_met = is_met and slower <= 1.3 and (minutes < 33 or ceiling["seconds"] / 60 >= 33)
    if rows != 1_238_201_948:
        return Target(what, target, f"only {rows:,} rows: {measured}", None)
    return Target(what, target, measured, is_met if ceiling else None)


def trickle(results):
    what, target = "bytes written per byte kept, trickle of 100,000 series", "at most 3"
    runs = results.get("trickle", {}).get(OURS)
    if not runs:
        return missing(what, target)
    measured, by_disk = [], []
    for key, figures in runs.items():
        kept = figures["bytes_on_disk"] - figures["log_bytes"]
        own = sum(figures["counters"].get(f"Rrd_{kind}_bytes_written", 0) for kind in ("log", "segment", "manifest"))
        # A sync writes whole pages, and where each commit is synced log files are filled with zeros first; the disk also has the
        # file system's own journal, and whatever else the machine writes.
        written = figures.get("bytes_written", own)
        by_disk.append(written / kept)
        measured.append(f"{key}: {own / kept:.1f} handed to the file system, "
                        f"{written / kept:.1f} by the disk ({written / figures['rows']:.1f} bytes a row, {kept / figures['rows']:.1f} kept)")
    if results["settings"]["series"] != 100_000:
        return Target(what, target, f"only {results['settings']['series']:,} series: {'; '.join(measured)}", None)
    return Target(what, target, "; ".join(measured), max(by_disk) <= 3)


def all_of(results):
    return [speed(results, "a"), speed(results, "b"), two_sessions(results), inserts(results),
            size(results, "a", 1.10), size(results, "b", 2), eight_queries(results), hot_reads(results), scan(results),
            billion(results), trickle(results)]
