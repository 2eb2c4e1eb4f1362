"""Random statements on tables of this engine and on InnoDB twins in the same server: nothing may differ.

Two sessions send the same text, one with a database of ENGINE=RRD tables, the other with InnoDB ones.
Compared are affected rows, error numbers, texts of duplicate keys, the number of warnings, results of
queries, and now and then the whole tables, also after a restart. A second pair of sessions writes to
other tables in transactions of its own; a third, the observers, reads, sometimes from a snapshot that stays open.

A difference prints the seed and then the shortest list of statements that was found to show it.
"""

import argparse
import os
import random
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pymysql.connections import MySQLResult  # noqa: E402
from pymysql.constants import COMMAND  # noqa: E402
from pymysql.err import MySQLError  # noqa: E402
from random_schemas import SCHEMAS, SESSION  # noqa: E402
from random_statements import Generator  # noqa: E402

from private_server import PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "random-sql"
ER_DUP_ENTRY = 1062
SHRINK_SECONDS = 60


class Twins:
    """Two sessions that get the same statements, one for each engine."""

    def __init__(self, server, engines):
        self.sides = [server.connect(database=f"side_{n}", autocommit=True) for n, _ in enumerate(engines)]
        for side in self.sides:
            side.query(SESSION)

    def run(self, statement):
        """Sends the statement on both sides at once, so that both work, and returns both outcomes."""
        for side in self.sides:
            side._execute_command(COMMAND.COM_QUERY, statement)
        return [outcome(side) for side in self.sides]

    def close(self):
        for side in self.sides:
            side.close()


def outcome(side):
    """What a client sees of the statement just sent: error, or rows and counts."""
    result = MySQLResult(side)
    side._result = result
    try:
        result.read()
    except MySQLError as error:
        number, text = (*error.args, "")[:2]
        if number in (0, 2006, 2013):
            raise  # the server is gone: that is not an outcome
        return ("error", number, text if number == ER_DUP_ENTRY else "")
    if result.has_next:
        raise ServerError("one statement, two results")
    return ("ok", result.affected_rows, result.warning_count, result.rows, result.insert_id)


class Difference(Exception):
    """The two engines do not agree on the last of these statements."""

    def __init__(self, statement, outcomes):
        super().__init__(statement)
        self.statement = statement
        self.outcomes = outcomes

    def kind(self):
        """What has to stay the same while the list of statements is made shorter."""
        numbers = [found[1] if found[0] == "error" else "rows" if found[3] else "ok" for found in self.outcomes]
        return (self.statement.split()[0], *numbers)


class Run:
    """One pair of databases, and what was sent to it so far."""

    ignore_counts = False
    contradictions = 0  # how often InnoDB gave another answer once it could not use an index

    def __init__(self, server, engines):
        self.server = server
        self.engines = engines
        self.sent = []
        with server.connect(autocommit=True) as admin, admin.cursor() as cursor:
            for number, engine in enumerate(engines):
                cursor.execute(f"CREATE OR REPLACE DATABASE side_{number} CHARACTER SET utf8mb4")
                cursor.execute(f"USE side_{number}")
                cursor.execute(SESSION)
                for schema in SCHEMAS:
                    cursor.execute(f"{schema.create} ENGINE={engine}")
        self.connect()

    def connect(self):
        self.twins = {name: Twins(self.server, self.engines) for name in ("writer", "second", "observer")}

    def close(self):
        for twins in self.twins.values():
            twins.close()

    def send(self, who, statement):
        self.sent.append((who, statement))
        if who == "engine":
            first, *_ = self.twins["writer"].sides
            first.query(statement)
            return
        if who == "restart":
            self.restart()
            return
        one, other = self.twins[who].run(statement)
        # An ALTER TABLE that copies counts the rows, one that need not does not.
        ignores_counts = self.ignore_counts or statement.startswith("ALTER")
        if one == other:
            return one
        if ignores_counts and one[0] == other[0] == "ok" and one[2:] == other[2:]:
            return one
        if one[0] == other[0] == "ok" and one[3] is not None and self.without_indexes(who, statement) == one:
            # InnoDB has been seen to miss rows in a range of an index on a virtual column.
            Run.contradictions += 1
            return one
        raise Difference(statement, (one, other))

    def without_indexes(self, who, query):
        """What the other engine answers to a query that reads one table when it may not use its secondary keys."""
        if query == "EXECUTE p":
            prepared = next(text for name, text in reversed(self.sent) if name == who and text.startswith("PREPARE p"))
            query = prepared.removeprefix("PREPARE p FROM ")[1:-1].replace("''", "'")
        for schema in SCHEMAS:
            found = re.search(rf" FROM {schema.name}( FORCE INDEX \([a-z_]+\))?(?= |$)", query)
            if query.startswith("SELECT") and schema.indexes and found:
                hint = f" FROM {schema.name} IGNORE INDEX ({', '.join(schema.indexes)})"
                side = self.twins[who].sides[1]
                side._execute_command(COMMAND.COM_QUERY, query[: found.start()] + hint + query[found.end() :])
                return outcome(side)
        return None

    def restart(self):
        """Restarts the server. InnoDB then forgets AUTO_INCREMENT values that were reserved and not used, RRD those of
        rows that were rolled back: so that both go on with the same one, it is set."""
        following = "SELECT table_name, auto_increment FROM information_schema.tables WHERE table_schema = DATABASE() AND auto_increment > 0"
        counters = [dict(found[3]) for found in self.twins["writer"].run(following)]
        self.close()
        self.server.restart()
        self.connect()
        for table in counters[0]:
            largest = max(int(counter[table]) for counter in counters)
            self.send("writer", f"ALTER TABLE {table} AUTO_INCREMENT = {largest}")

    def compare_tables(self):
        for schema in SCHEMAS:
            self.send("writer", f"SELECT * FROM {schema.name} ORDER BY {schema.order}")


def attempt(server, engines, statements, kind):
    """Whether these statements, on fresh tables, show a difference of this kind."""
    run = Run(server, engines)
    try:
        for who, statement in statements:
            if who == "restart":
                return False
            run.send(who, statement)
        run.compare_tables()
    except Difference as difference:
        return difference.kind() == kind
    finally:
        run.close()
    return False


def shrink(server, engines, statements, kind):
    """Leaves out ever smaller pieces of the list as long as what remains still shows a difference."""
    deadline = time.monotonic() + SHRINK_SECONDS
    last_restart = max((at for at, (who, _) in enumerate(statements) if who == "restart"), default=-1)
    if not attempt(server, engines, statements[last_restart + 1 :], kind):
        return None
    statements = statements[last_restart + 1 :]
    piece = max(len(statements) // 2, 1)
    while time.monotonic() < deadline:
        at = 0
        smaller = False
        while at < len(statements) and time.monotonic() < deadline:
            without = statements[:at] + statements[at + piece :]
            if attempt(server, engines, without, kind):
                statements, smaller = without, True
            else:
                at += piece
        if piece == 1 and not smaller:
            break
        piece = max(piece // 2, 1)
    return statements


def report(difference, seed, run):
    print(f"DIFFERENCE with seed {seed}, statement {len(run.sent)}:")
    print(f"  {difference.statement}")
    one, other = difference.outcomes
    for engine, found in zip(run.engines, (one, other)):
        print(f"  {engine}: {describe(found)}")
    if one[0] == other[0] == "ok" and one[3] is not None and other[3] is not None:
        print(f"  rows only of {run.engines[0]}: {[row for row in one[3] if row not in other[3]][:5]}")
        print(f"  rows only of {run.engines[1]}: {[row for row in other[3] if row not in one[3]][:5]}")


def describe(found):
    if found[0] == "error":
        return f"error {found[1]} {found[2]}"
    rows = "" if found[3] is None else f", {len(found[3])} rows: {found[3][:5]}"
    return f"{found[1]} affected, {found[2]} warnings, id {found[4]}{rows}"


def left_behind(server):
    """What an engine that is idle and has no tables should not hold: snapshots, locks, rows in memory, table folders."""
    with server.connect(autocommit=True) as admin, admin.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'")
        deadline = time.monotonic() + 60
        while cursor.fetchone()[0] > 1:  # the others' connections are closing
            if time.monotonic() > deadline:
                return ["connections that were closed a minute ago"]
            time.sleep(0.1)
            cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root'")
        for number in range(2):
            cursor.execute(f"DROP DATABASE IF EXISTS side_{number}")
        cursor.execute("SHOW GLOBAL STATUS WHERE variable_name IN ('Rrd_open_snapshots', 'Rrd_row_locks', 'Rrd_tables')")
        return [f"{name} = {value}" for name, value in cursor.fetchall() if value != "0"]


def print_shortest(server, engines, sent, kind):
    shortest = shrink(server, engines, sent, kind)
    if shortest is None:
        print("the statements do not show it when run again on fresh tables (a matter of time or of what was flushed)")
        return
    names = {schema.name for schema in SCHEMAS if any(schema.name in text for _, text in shortest)}
    print(f"shortest list found, {len(shortest)} statements:")
    print(f"  {SESSION};")
    for schema in SCHEMAS:
        if schema.name in names:
            print(f"  {schema.create} ENGINE={engines[0]};")
    for who, statement in shortest:
        print(f"  {'' if who == 'writer' else f'/* {who} */ '}{statement};")
    print("and then every table is read")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--statements", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None, help="default: a fixed one")
    parser.add_argument("--engine", default="RRD", help="compared with InnoDB")
    parser.add_argument("--schemas", help="only these tables, as in readings,tickets")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the server: for several runs at once")
    parser.add_argument("--no-restart", action="store_true")
    parser.add_argument("--ignore-counts", action="store_true", help="go on when only affected rows differ")
    arguments = parser.parse_args()
    Run.ignore_counts = arguments.ignore_counts
    if arguments.schemas:
        SCHEMAS[:] = [schema for schema in SCHEMAS if schema.name in arguments.schemas.split(",")]
    seed = 20_240_229 if arguments.seed is None else arguments.seed
    engines = (arguments.engine, "InnoDB")
    # Time zone SYSTEM, for which the server needs no tables: with a summer time.
    os.environ["TZ"] = "Europe/Berlin"
    options = ["--innodb-flush-log-at-trx-commit=0", "--loose-rrd-flush-log-at-trx-commit=0"]
    plugins = ("ha_rrd",) if arguments.engine == "RRD" else ()
    server = PrivateServer(arguments.folder, options, plugins)
    server.erase()
    try:
        with server:
            return compare(server, engines, seed, arguments)
    except (MySQLError, ServerError) as error:
        print(f"seed {seed}: {error!r}; the server's last words:\n{server.tail_of_log(30)}")
        return 1
    finally:
        server.kill()


def compare(server, engines, seed, arguments):
    generator = Generator(random.Random(seed))
    run = Run(server, engines)
    started = time.monotonic()
    restarts = set() if arguments.no_restart else {arguments.statements // 3, arguments.statements * 2 // 3}
    try:
        for number in range(arguments.statements):
            for who, statement, schema in generator.next():
                found = run.send(who, statement)
                if schema.auto and found and found[0] == "ok":
                    schema.auto.told(found[4])
            if number in restarts:
                for who, statement in generator.end_transactions():
                    run.send(who, statement)
                run.send("restart", "")
                run.compare_tables()
        for who, statement in generator.end_transactions():
            run.send(who, statement)
        run.compare_tables()
    except Difference as difference:
        report(difference, seed, run)
        sent = run.sent
        run.close()
        print_shortest(server, engines, sent, difference.kind())
        return 1
    except (MySQLError, ServerError):
        print("the last statements:")
        for who, statement in run.sent[-8:]:
            print(f"  /* {who} */ {statement[:600]};")
        raise
    seconds = time.monotonic() - started
    run.close()
    if left := left_behind(server):
        print(f"seed {seed}: without connections and tables there still is {', '.join(left)}")
        return 1
    print(
        f"random SQL: seed {seed}, {len(run.sent)} statements on {len(SCHEMAS)} schemas, {len(restarts)} restarts, "
        f"no difference to {engines[1]}, "
        f"which contradicted itself {Run.contradictions} times, {len(run.sent) / seconds:.0f} statements/s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
