"""The figures of a run as PNG files. An engine has the same colour in all of them; RRD's is the strong one."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402

COLOURS = {"RRD": "#c0392b", "BLACKHOLE": "#2c3e50", "InnoDB": "#2980b9", "InnoDB by day": "#7fb3d5", "MyRocks": "#16a085",
           "Archive": "#a0826d", "MyISAM": "#7f8c8d", "DuckDB": "#f39c12", "DuckDB sorted": "#f8c471", "ClickHouse": "#8e44ad"}  # fmt: skip


def bars(axes, groups, series, values, horizontal=False):
    """Bars of each series side by side in each group; values[series][group] may be missing."""
    width = 0.8 / max(1, len(series))
    for number, name in enumerate(series):
        places = [index + (number - (len(series) - 1) / 2) * width for index in range(len(groups))]
        heights = [values[name].get(group) or 0 for group in groups]
        draw = axes.barh if horizontal else axes.bar
        draw(places, heights, width * 0.92, label=name, color=COLOURS.get(name, "#999999"))
    set_ticks = axes.set_yticks if horizontal else axes.set_xticks
    set_ticks(range(len(groups)), groups)
    if horizontal:
        axes.invert_yaxis()
    axes.grid(axis="x" if horizontal else "y", alpha=0.3)
    axes.set_axisbelow(True)


def save(figure, file):
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def load(results, file):
    found = results["load"]
    keys = [key for key in ("a", "a, two sessions", "b", "c", "d") if any(key in figures for figures in found.values())]
    labels = {key: f"({key[0]}){key[1:]}" for key in keys}
    figure, axes = pyplot.subplots(figsize=(11, 5), dpi=110)
    values = {name: {labels[key]: figures[key]["rows_a_second"] / 1e6 for key in keys if key in figures} for name, figures in found.items()}
    bars(axes, list(labels.values()), list(found), values)
    axes.set_ylabel("million rows a second")
    axes.set_title("Load from a file (BLACKHOLE keeps nothing: the SQL layer alone)")
    axes.legend(fontsize=8, ncols=2)
    save(figure, file)


def size(results, file):
    found = {name: figures for name, figures in results["load"].items() if name != "BLACKHOLE"}
    keys = [key for key in "abcd" if key in results["data"]]
    labels = [f"({key}) {results['data'][key]['title']}" for key in keys]
    figure, axes = pyplot.subplots(figsize=(11, 5), dpi=110)
    values = {name: {label: figures[key]["bytes_on_disk"] / figures[key]["rows"] for key, label in zip(keys, labels) if key in figures}
              for name, figures in found.items()}
    bars(axes, labels, list(found), values)
    for index, key in enumerate(keys):
        bound = results["data"][key]["bound"]
        axes.hlines(bound, index - 0.45, index + 0.45, colors="black", linestyles="--", linewidth=1.2,
                    label="entropy bound" if index == 0 else None)
    axes.set_yscale("log")
    axes.set_ylabel("bytes a row on disk")
    axes.set_title("Size: everything on disk, beside the fewest bytes possible")
    axes.legend(fontsize=8, ncols=2)
    save(figure, file)


def queries(results, file):
    found = results["queries"]
    names = list(dict.fromkeys(query for figures in found.values() for query in figures))
    figure, axes = pyplot.subplots(figsize=(11, 9), dpi=110)
    values = {name: {query: figure_of["ms"] for query, figure_of in figures.items()} for name, figures in found.items()}
    bars(axes, names, list(found), values, horizontal=True)
    axes.set_xscale("log")
    axes.set_xlabel("ms, median (logarithmic)")
    axes.set_title("The eight queries")
    axes.legend(fontsize=8)
    save(figure, file)


def insert(results, file):
    found = results["insert"]
    keys = [key for key in dict.fromkeys(key for figures in found.values() for key in figures) if "not synced" not in key]
    figure, axes = pyplot.subplots(figsize=(11, 5), dpi=110)
    values = {name: {key: figures[key]["rows_a_second"] for key in keys if key in figures} for name, figures in found.items()}
    bars(axes, keys, list(found), values)
    axes.set_yscale("log")
    axes.set_ylabel("rows a second (logarithmic)")
    axes.set_title("INSERT, each commit synced")
    axes.tick_params(axis="x", labelrotation=30)
    axes.legend(fontsize=8, ncols=2)
    save(figure, file)


def billion(results, file):
    found = results["billion"]["engines"]
    figure, (rows, disk, memory) = pyplot.subplots(3, sharex=True, figsize=(10, 9), dpi=110)
    for name, engine in found.items():
        minutes = [sample["s"] / 60 for sample in engine["samples"]]
        colour = {"color": COLOURS.get(name, "#999999"), "label": name}
        rows.plot(minutes, [sample["rows"] / 1e6 for sample in engine["samples"]], **colour)
        if name != "BLACKHOLE":
            disk.plot(minutes, [sample["bytes_on_disk"] / 1e9 for sample in engine["samples"]], **colour)
        memory.plot(minutes, [sample["memory"] / 2**20 for sample in engine["samples"]], **colour)
    for axes, label in ((rows, "million rows"), (disk, "GB on disk"), (memory, "memory of the server, MiB")):
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    rows.set_title("One LOAD DATA from a pipe")
    memory.set_xlabel("minutes")
    save(figure, file)


def draw(results, out):
    for part, make in (("load", load), ("load", size), ("queries", queries), ("insert", insert), ("billion", billion)):
        if results.get(part):
            make(results, out / f"{make.__name__}.png")
