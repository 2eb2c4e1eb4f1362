"""The parts of the benchmark. Each gets the engines of one server, which take turns, and writes down what it found.

A figure that is measured several times is the median of the rounds. `results` is a dict by part, then by engine.
"""

import statistics

import clients
import data
import queries
import ring
from disk import device_bytes_written
from private_server import BUILD
from progress import step

# Where the readings of inserts begin, and how long InnoDB's partitions reach from there.
FIRST_TS = 1_700_006_400
INSERT_SPAN = (FIRST_TS, FIRST_TS + 30 * data.DAY)

# The trickle: clients that poll all series between them, and rows of a commit.
TRICKLE_CLIENTS, TRICKLE_ROWS = 8, 100
TRICKLE_KEYS = {1: "each commit synced", 2: "synced once a second"}


# Where all engines have their files.
WORK = BUILD / "bench" / "work"


def put(results, part, engine, key, value):
    results.setdefault(part, {}).setdefault(engine.name, {})[key] = value


def create(engine, data_set):
    engine.begin()
    about = data_set.about
    for table in data_set.tables:
        engine.create(table, (about["first_ts"], about["last_ts"]) if about else None)


def drop(engine, data_set):
    for table in data_set.tables:
        engine.drop(table)


def written_since(before):
    """What the disk has written since it had written so much, if it can be told."""
    now = device_bytes_written(WORK)
    return {} if before is None or now is None else {"bytes_written": now - before}


# -- load --------------------------------------------------------------------------------------


def load(engines, data_set, config, results, answers):
    """One session, and two where the data set has its halves in files. The tables stay, as one session loaded them."""
    engines = [engine for engine in engines if data_set.key in engine.data]
    if data_set.halves:
        in_turn([engine for engine in engines if engine.two_sessions], data_set, 2, config, results, answers)
        for engine in engines:
            if engine.two_sessions:
                drop(engine, data_set)
    in_turn(engines, data_set, 1, config, results, answers)


def in_turn(engines, data_set, sessions, config, results, answers):
    """Each engine loads the data set; those with a neighbour load (a) as often as there are rounds, in turn."""
    rounds = config["loads"] if len(engines) > 1 and data_set.key == "a" else 1
    runs = {engine.name: [] for engine in engines}
    for number in range(rounds):
        for engine in engines:
            if number:
                drop(engine, data_set)
            with step(f"{engine.name}: load of ({data_set.key}), {data_set.rows:,} rows, sessions: {sessions}") as notes:
                run = load_once(engine, data_set, sessions, config["quiet_s"])
                notes.append(f"load {run['seconds']:.1f} s, CPU {run['cpu_us_a_row']:.2f} us a row")
                if engine.keeps_rows:
                    notes.append(f"{run['bytes_on_disk'] / data_set.rows:.2f} bytes a row")
            runs[engine.name].append(run)
    for engine in engines:
        figures = clients.medians(runs[engine.name]) | {"rows": data_set.rows, "runs": [run["seconds"] for run in runs[engine.name]]}
        put(results, "load", engine, data_set.key if sessions == 1 else f"{data_set.key}, two sessions", figures)
        if engine.keeps_rows:
            for table in data_set.tables:
                text = queries.contents(table)
                _, found = engine.ask(text.format(table=engine.table(table.name)), 0, 1)
                answers.take(engine, f"({data_set.key}) {table.name}, all rows", found)
                if found[0][0] != table.rows:
                    answers.differences.append(f"{engine.name}: {table.name} has {found[0][0]} rows, the file {table.rows}")


def load_once(engine, data_set, sessions, quiet_s):
    create(engine, data_set)
    before, cpu = device_bytes_written(WORK), engine.cpu_seconds()
    if sessions == 1:
        seconds = sum(engine.load(table, [table.file]) for table in data_set.tables)
    else:
        seconds = engine.load(data_set.tables[0], data_set.halves)
    cpu = engine.cpu_seconds() - cpu
    settled = engine.settle(data_set.tables, quiet_s)
    return {"seconds": seconds, "settled_s": settled, "rows_a_second": data_set.rows / seconds, "cpu_us_a_row": cpu / data_set.rows * 1e6,
            "bytes_on_disk": engine.bytes_on_disk(), "log_bytes": engine.log_bytes_on_disk(),
            **written_since(before)}


# -- queries -----------------------------------------------------------------------------------


def ask(engines, data_set, config, results, answers):
    """The eight queries, hot reads and plain scans, of the loaded data set (a)."""
    table = data_set.tables[0].name
    for engine in engines:
        def text_of(query, engine=engine):
            return query.format(table=engine.table(table), hour=queries.HOURS[engine.dialect])
        if engine.queries:
            ask_eight(engine, data_set.about, text_of, config, results, answers)
            ask_hot(engine, data_set.about, text_of, config, results, answers)
        if engine.scans:
            ask_scans(engine, text_of, config, results, answers)


def ask_eight(engine, about, text_of, config, results, answers):
    for name, query in queries.eight(about).items():
        with step(f"{engine.name}: {name}") as notes:
            runs, answer = engine.ask(text_of(query), config["eight_runs"], config["budget_ms"])
            put(results, "queries", engine, name, summary(runs))
            if runs:
                notes.append(f"{statistics.median(runs):.2f} ms")
                answers.take(engine, name, answer)
            else:
                notes.append("ended, it took too long")


def ask_hot(engine, about, text_of, config, results, answers):
    if not engine.hot:
        return
    for name, reads in queries.hot(about, config["hot"]).items():
        with step(f"{engine.name}: hot, {name}") as notes:
            runs = engine.times([text_of(read) for read in reads], config["runs"] + 1, config["budget_ms"])
            # Of each read the fastest: the others are the machine's.
            put(results, "hot", engine, name, summary([min(run) for run in runs if run]))
            notes.append(f"{results['hot'][engine.name][name]['ms']:.3f} ms")
            answers.take(engine, f"hot, {name}", engine.ask(text_of(reads[0]), 0, config["budget_ms"])[1])


def ask_scans(engine, text_of, config, results, answers):
    setting = engine.row_at_a_time()
    for name, query in queries.SCANS.items():
        with step(f"{engine.name}: {name}{', ' + setting if setting else ''}") as notes:
            runs, answer = engine.ask(text_of(query), config["runs"], config["budget_ms"], setting)
            put(results, "scans", engine, name, summary(runs) | {"setting": setting})
            notes.append(f"{statistics.median(runs):.0f} ms")
            answers.take(engine, name, answer)


def summary(runs):
    return {"ms": statistics.median(runs) if runs else None, "runs": [round(run, 4) for run in runs[:10]]}


# -- inserts -----------------------------------------------------------------------------------


def insert(engines, config, results):
    """Statements of 1, 500 and 1000 rows by 1, 2 and 8 clients, each commit durable; and of 1000 without. Engines with a neighbour
    have several rounds, in turn."""
    engines = [engine for engine in engines if engine.inserts]
    table = data.Table("inserted", data.SENSORDATA, data.SENSORDATA_KEY, None, 0)
    combinations = [(1, rows, count) for rows in (1, 500, 1000) for count in (1, 2, 8)]
    if any(engine.is_server for engine in engines):
        combinations.append((2, 1000, 2))
    for durability, rows, count in combinations:
        able = [engine for engine in engines if count in engine.clients]
        if not able:
            continue
        names = " and ".join(engine.name for engine in able)
        with step(f"{names}: INSERT of {rows} rows, clients: {count}{', commits not synced' if durability == 2 else ''}") as notes:
            runs = {engine.name: [] for engine in able}
            for number in range(config["rounds"] if len(engines) > 1 else 1):
                for engine in able if number % 2 else reversed(able):
                    runs[engine.name].append(insert_once(engine, table, durability, rows, count, config["run_ms"]))
            for engine in able:
                figures = clients.medians(runs[engine.name])
                put(results, "insert", engine, insert_key(durability, rows, count), figures)
                notes.append(f"{figures['rows_a_second']:,.0f} rows/s")


def insert_key(durability, rows, count):
    return f"{rows} row{'s' * (rows > 1)}, {count} client{'s' * (count > 1)}" + (", not synced" if durability == 2 else "")


def insert_once(engine, table, durability, rows, count, run_ms):
    if engine.is_server:
        engine.set_durability(durability)
    engine.create(table, INSERT_SPAN)
    figures = engine.insert(table, count, rows, run_ms, FIRST_TS)
    engine.drop(table)
    return figures


# -- the trickle -------------------------------------------------------------------------------


def trickle(engines, config, results):
    """Many series, polled in turn by eight clients, a hundred readings a commit, each commit durable and then synced once a
    second: what goes to the disk."""
    for engine in engines:
        if not engine.trickle:
            continue
        polls = max(1, int(config["polls"] * engine.trickle))
        for durability, key in TRICKLE_KEYS.items():
            with step(f"{engine.name}: a trickle of {config['series']:,} series, {polls} readings of each, {key}") as notes:
                figures = trickle_once(engine, config, durability, polls)
                put(results, "trickle", engine, key, figures)
                rows = figures["rows"]
                notes.append(f"{figures.get('bytes_written', 0) / rows:.1f} bytes written a row, {figures['bytes_on_disk'] / rows:.1f} kept")


def trickle_once(engine, config, durability, polls):
    table = data.Table("trickle", data.SENSORDATA, data.SENSORDATA_KEY, None, 0)
    engine.begin()
    engine.set_durability(durability)
    engine.create(table, INSERT_SPAN)
    counters, before = engine.counters(), device_bytes_written(WORK)
    each = config["series"] // TRICKLE_CLIENTS
    done = engine.insert(table, TRICKLE_CLIENTS, TRICKLE_ROWS, 3_600_000, FIRST_TS, each, each * polls // TRICKLE_ROWS)
    settled = engine.settle([table], config["quiet_s"])
    figures = written_since(before)
    counted = {name: value - counters.get(name, 0) for name, value in engine.counters().items()}
    figures |= {"rows": done["statements"] * TRICKLE_ROWS, "rows_a_second": done["rows_a_second"], "settled_s": settled,
                "bytes_on_disk": engine.bytes_on_disk(), "log_bytes": engine.log_bytes_on_disk(), "counters": counted}
    engine.drop(table)
    return figures


# -- the full ring -----------------------------------------------------------------------------


def full_ring(engines, config, results):
    for engine in engines:
        if engine.name != "RRD":
            continue
        with step(f"{engine.name}: a ring of {config['ring']:,} rows, full and empty") as notes:
            engine.set_durability(2)
            engine.server.sql("CREATE DATABASE ring")
            found = ring.full_and_empty(engine.server, {"ring": config["ring"], "rounds": config["rounds"],
                                                        "run_ms": config["run_ms"], "clients": 2})
            engine.server.sql("DROP DATABASE ring")
            put(results, "ring", engine, "figures", found)
            notes.append(", ".join(f"{f['full']['rows_a_second'] / f['empty']['rows_a_second']:.2f}" for f in found))


class Answers:
    """The answers of all engines to each question, compared with the first engine's."""

    def __init__(self):
        self.first, self.compared, self.differences = {}, 0, []

    def take(self, engine, question, answer):
        if question not in self.first:
            self.first[question] = (engine.name, answer)
            return
        name, expected = self.first[question]
        self.compared += 1
        if not queries.same(expected, answer):
            self.differences.append(f"{engine.name} and {name}: {question}")
