"""The clients in C, which cost little beside the server: insert_client.c writes rows, query_client.c asks.

Python would measure itself: it needs longer to build a statement or to take an answer apart than the server to run it.
"""

import functools
import os
import statistics
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
from private_server import BUILD, ServerError  # noqa: E402


@functools.cache
def build(name):
    """Compiles a client and returns its path."""
    program = BUILD / "bench" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, HERE / f"{name}.c", "-lmariadb", "-lpthread"],
                   check=True)
    return program


def call(command, what, text=None):
    """What the program prints; `text` is its input."""
    done = subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True)
    if done.returncode:
        raise ServerError(f"{what}: {done.stderr.strip()}")
    return done.stdout


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def insert(server, table, form, kind, clients, run_ms, first, rows=1, *more):
    """Lets so many clients write statements of so many rows for so long, and returns how fast they were and what a row cost
    the server. Readings begin at the time `first`. `more`: the series of each client, and the most statements that it writes."""
    command = [build("insert_client"), server.socket, table, form, kind, clients, run_ms, first, rows, *more]
    before = cpu_seconds(server.pid())
    statements, seconds, mean, p99 = (float(word) for word in call(command, table).split())
    cpu = cpu_seconds(server.pid()) - before
    return {"statements": int(statements), "seconds": seconds, "rows_a_second": statements * rows / seconds,
            "mean_us": mean, "p99_us": p99, "cpu_us_a_row": cpu / statements / rows * 1e6}


def medians(runs):
    """Of each figure of runs of the same kind the median."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def query(server, statements, runs, budget_ms, answers=None):
    """For each statement the milliseconds of its runs, the first of which warms the caches; SET statements have none. Their rows
    go to the file `answers`."""
    command = [build("query_client"), server.socket, runs, budget_ms] + ([answers] if answers else [])
    text = "".join(" ".join(statement.split()) + "\n" for statement in statements)
    return [[float(word) / 1000 for word in line.split()] for line in call(command, "queries", text).splitlines()]


@contextmanager
def on_one_core(server):
    """The server and what is started here share a core meanwhile. Small reads would measure otherwise how long the other core,
    or a virtual machine's idea of it, takes to wake up: four times as long as the read, or not at all, as the scheduler likes."""
    def keep_to(cores):
        for thread in [0, *(int(task.name) for task in Path(f"/proc/{server.pid()}/task").iterdir())]:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)

    cores = os.sched_getaffinity(0)
    keep_to({min(cores)})
    try:
        yield
    finally:
        keep_to(cores)


def rows_of(file):
    """The rows that query_client wrote, numbers as such."""
    return [tuple(map(value_of, line.split("\t"))) for line in Path(file).read_text().splitlines()]


def value_of(word):
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return None if word == "NULL" else word
