"""Single-row INSERT and REPLACE of several clients, this engine beside InnoDB with the same durability.

Run by `MODE=single make bench`. The clients are C (clients.py), so that they cost little beside the server. Each
figure is the median over ROUNDS of short runs, the engines in turn, because a shared machine is not equally fast
at all times; the server's CPU time for a statement depends less on what else runs. "sync" makes every commit durable
(rrd_flush_log_at_trx_commit and innodb_flush_log_at_trx_commit 1), "write" hands it to the operating system (2). With the binary log, sync_binlog is 1 where commits are durable, else 0.

Settings, from the environment: CLIENTS, FORMS (sensor, statistic), DURABILITY (1 2), BINLOG (0 1), KINDS (insert
replace again), ROUNDS, RUN_MS, ENGINES (two). Results go to the terminal and to build/bench/single_row.json.
"""

import json

import clients
import data
from knobs import number, words
from private_server import BUILD, PrivateServer, ServerError

FOLDER = BUILD / "bench" / "single-row"

FORMS = {
    "sensor": f"CREATE TABLE {{table}} ({data.SENSORDATA_DEFINITION}) ENGINE={{engine}}",
    "statistic": """CREATE TABLE {table} (
  rrd_key INT UNSIGNED NOT NULL AUTO_INCREMENT, attribute_key INT UNSIGNED NOT NULL,
  start_utime INT UNSIGNED NOT NULL, end_utime INT UNSIGNED NOT NULL, n INT UNSIGNED NOT NULL,
  average DOUBLE NOT NULL, minimum DOUBLE NOT NULL, maximum DOUBLE NOT NULL,
  PRIMARY KEY (rrd_key), UNIQUE KEY (attribute_key, start_utime), KEY (start_utime)) ENGINE={engine}""",
}

KINDS = {"insert": "INSERT", "replace": "REPLACE, new", "again": "REPLACE, there"}


def settings():
    return {
        "engines": words("ENGINES", "RRD InnoDB"),
        "clients": [int(n) for n in words("CLIENTS", "1 2 8")],
        "forms": words("FORMS", "sensor statistic"),
        "durability": [int(n) for n in words("DURABILITY", "1 2")],
        "binlog": [int(n) for n in words("BINLOG", "0 1")],
        "kinds": words("KINDS", "insert replace again"),
        "rounds": number("ROUNDS", 5),
        "run_ms": number("RUN_MS", 700),
    }


def make_tables(server, config):
    """The tables of each form for each engine; forms that an engine refuses are left out."""
    forms = []
    server.sql("CREATE DATABASE single")
    for form in config["forms"]:
        try:
            for engine in config["engines"]:
                server.sql(FORMS[form].format(table=f"single.{form}_{engine.lower()}", engine=engine))
            forms.append(form)
        except ServerError as error:
            print(f"no tables of the form '{form}': {error}")
    return forms


def set_durability(server, durability, has_binlog):
    names = [f"{engine}_flush_log_at_trx_commit = {durability}" for engine in ("rrd", "innodb")]
    if has_binlog:
        names.append(f"sync_binlog = {1 if durability == 1 else 0}")
    for name in names:
        server.sql(f"SET GLOBAL {name}")


def measure(server, config, form, count):
    """Runs of all kinds, the engines in turn; by kind and engine a list of runs."""
    runs = {kind: {engine: [] for engine in config["engines"]} for kind in config["kinds"]}
    for number in range(config["rounds"]):
        for engine in config["engines"] if number % 2 else reversed(config["engines"]):
            table = f"single.{form}_{engine.lower()}"
            server.sql(f"TRUNCATE {table}")
            # "again" needs the rows of an insert.
            first = 1_000_000_000
            for kind in ("insert", "again", "replace"):
                if kind in config["kinds"] or (kind == "insert" and "again" in config["kinds"]):
                    at = first + (0 if kind != "replace" else 500_000_000)
                    run = clients.insert(server, table, form, kind, count, config["run_ms"], at)
                    if kind in runs:
                        runs[kind][engine].append(run)
    return runs


def summary(runs):
    return clients.medians(runs) | {"rates": [round(run["rows_a_second"]) for run in runs]}


COLUMNS = {"statements/s": "rows_a_second", "mean us": "mean_us", "p99 us": "p99_us", "server CPU us": "cpu_us_a_row"}


def report(results, config):
    ours, theirs = config["engines"]
    print(f"\n{'':46}" + "".join(f"{name:>16}" for name in COLUMNS) + f"{'ratio':>8}")
    print(f"{'':46}" + f"{ours:>8}{theirs:>8}" * len(COLUMNS))
    for r in results:
        durability = "sync" if r["durability"] == 1 else "write"
        binlog = ", binlog" if r["binlog"] else ""
        name = f"{r['form']}, {durability}{binlog}, {KINDS[r['kind']]}, {r['clients']} client{'s' * (r['clients'] > 1)}"
        cells = "".join(f"{r[ours][c]:>8.0f}{r[theirs][c]:>8.0f}" for c in COLUMNS.values())
        print(f"{name:<46}{cells}{r[ours]['rows_a_second'] / r[theirs]['rows_a_second']:>8.2f}", flush=True)


def run(config):
    results = []
    for binlog in config["binlog"]:
        options = ["--innodb-buffer-pool-size=1G", "--loose-rrd-cache-size=1G"]
        options += ["--log-bin=binlog", "--server-id=1"] if binlog else []
        server = PrivateServer(FOLDER, options)
        server.erase()
        with server:
            forms = make_tables(server, config)
            for form in forms:
                for durability in config["durability"]:
                    set_durability(server, durability, binlog)
                    for count in config["clients"]:
                        runs = measure(server, config, form, count)
                        place = {"form": form, "durability": durability, "binlog": binlog, "clients": count}
                        for kind, by_engine in runs.items():
                            figures = {engine: summary(r) for engine, r in by_engine.items()}
                            results.append(place | {"kind": kind} | figures)
                        print(".", end="", flush=True)
        server.erase()
    report(results, config)
    return results


def main():
    config = settings()
    results = run(config)
    file = BUILD / "bench" / "single_row.json"
    file.write_text(json.dumps({"settings": config, "results": results}, indent=2) + "\n")
    print("\nwritten to build/bench/single_row.json")


if __name__ == "__main__":
    main()
