"""The round-robin table as people built it in 2007 to 2009, of a trigger and a key table, beside MAX_ROWS of this engine.

Run by `MODE=classic make bench`. The trigger gives each row the next of 25920 keys, and REPLACE INTO puts it in the place
of the row that had it. It is measured on InnoDB and on MyISAM, which were the choices; RRD does without. All tables are full
before anything is measured, the statements are the same, and the engines take turns within one run. The client is C
(clients.py), one connection, autocommit. "sync" makes every commit durable (innodb_ and rrd_flush_log_at_trx_commit 1),
"write" hands it to the operating system (2); MyISAM knows neither.

Settings, from the environment: ROUNDS, RUN_MS, DURABILITY (1 2), BATCHES (rows of a statement: 1 500). Each figure is the
median of the rounds. Results go to the terminal and to build/bench/classic.json.
"""

import json

import clients
import knobs
import single_row
from private_server import BUILD, PrivateServer, ServerError

FOLDER = BUILD / "bench" / "classic"
RING = 25920
SECONDS_A_ROW = 300

COLUMNS = """
  rrd_key INT UNSIGNED NOT NULL{auto}, attribute_key INT UNSIGNED NOT NULL,
  start_utime INT UNSIGNED NOT NULL, end_utime INT UNSIGNED NOT NULL, n INT UNSIGNED NOT NULL,
  average DOUBLE NOT NULL, minimum DOUBLE NOT NULL, maximum DOUBLE NOT NULL,
  PRIMARY KEY (rrd_key), UNIQUE KEY (attribute_key, start_utime), KEY (start_utime)"""

RING_TABLE = "CREATE TABLE {table} (" + COLUMNS + f") ENGINE={{engine}} ROW_FORMAT=FIXED MAX_ROWS={RING}"

TRIGGER_TABLE = "CREATE TABLE {table} (" + COLUMNS + f""") ENGINE={{engine}} MAX_ROWS={RING};
CREATE TABLE {{table}}_key (rrd_key INT UNSIGNED NOT NULL) ENGINE={{engine}};
INSERT INTO {{table}}_key VALUES (0);
DELIMITER |
CREATE TRIGGER {{table}}_insert BEFORE INSERT ON {{table}} FOR EACH ROW
BEGIN
  SELECT rrd_key % {RING} + 1 INTO @rrd_key FROM {{table}}_key;
  UPDATE {{table}}_key SET rrd_key = @rrd_key;
  SET NEW.rrd_key = @rrd_key;
END|
DELIMITER ;"""

# Name, engine, definition, words behind rrd_key.
CONTENDERS = (
    ("RRD, ring", "RRD", RING_TABLE, " AUTO_INCREMENT"),
    ("InnoDB, trigger", "InnoDB", TRIGGER_TABLE, ""),
    ("MyISAM, trigger", "MyISAM", TRIGGER_TABLE, ""),
)


class Contender:
    """A table that is being written to; every reading of it is later than those before."""

    def __init__(self, server, name, engine, definition, auto):
        self.server, self.name = server, name
        self.table = f"classic_{engine.lower()}"
        self.next_utime = 1_000_000_000
        server.sql(definition.format(table=self.table, engine=engine, auto=auto), database="classic")

    def run(self, rows, run_ms):
        """Statements of so many rows each, for so long; what one row took."""
        done = clients.insert(self.server, f"classic.{self.table}", "statistic", "replace", 1, run_ms, self.next_utime, rows)
        self.next_utime += done["statements"] * rows * SECONDS_A_ROW
        return done

    def check(self):
        """The table holds exactly the newest rows."""
        count, oldest = self.server.sql(f"SELECT COUNT(*), MIN(start_utime) FROM classic.{self.table}")[0]
        expected = self.next_utime - RING * SECONDS_A_ROW
        if int(count) != RING or int(oldest) != expected:
            raise ServerError(f"{self.name}: {count} rows from {oldest}, not {RING} from {expected}")


def measure(contenders, rows, config):
    runs = {contender.name: [] for contender in contenders}
    for number in range(config["rounds"]):
        for contender in contenders if number % 2 else reversed(contenders):
            runs[contender.name].append(contender.run(rows, config["run_ms"]))
    return {name: clients.medians(of) for name, of in runs.items()}


def report(results):
    names = [contender[0] for contender in CONTENDERS]
    ours = names[0]
    print(f"\n{'rows a second':<30}" + "".join(f"{name:>18}" for name in names)
          + "".join(f"{'RRD / ' + name.split(',')[0]:>14}" for name in names[1:]))
    for result in results:
        rates = {name: result["figures"][name]["rows_a_second"] for name in names}
        line = f"{'sync' if result['durability'] == 1 else 'write'}, {result['rows']} row{'s' * (result['rows'] > 1)} a call"
        print(f"{line:<30}" + "".join(f"{rates[name]:>18,.0f}" for name in names)
              + "".join(f"{rates[ours] / rates[name]:>14.1f}" for name in names[1:]))
        cpu = "".join(f"{result['figures'][name]['cpu_us_a_row']:>18.1f}" for name in names)
        print(f"{'   server CPU us a row':<30}{cpu}", flush=True)


def main():
    config = {
        "rounds": knobs.number("ROUNDS", 5),
        "run_ms": knobs.number("RUN_MS", 1000),
        "durability": [int(n) for n in knobs.words("DURABILITY", "1 2")],
        "batches": [int(n) for n in knobs.words("BATCHES", "1 500")],
    }
    server = PrivateServer(FOLDER, ["--innodb-buffer-pool-size=1G", "--key-buffer-size=128M"])
    server.erase()
    results = []
    with server:
        server.sql("CREATE DATABASE classic")
        contenders = [Contender(server, *words) for words in CONTENDERS]
        single_row.set_durability(server, 2, False)
        for contender in contenders:
            while server.sql(f"SELECT COUNT(*) FROM classic.{contender.table}") != [[str(RING)]]:
                contender.run(500, config["run_ms"])
        for durability in config["durability"]:
            single_row.set_durability(server, durability, False)
            for rows in config["batches"]:
                figures = measure(contenders, rows, config)
                results.append({"durability": durability, "rows": rows, "figures": figures})
                for contender in contenders:
                    contender.check()
                print(".", end="", flush=True)
    server.erase()
    report(results)
    (BUILD / "bench" / "classic.json").write_text(json.dumps({"settings": config, "results": results}, indent=2) + "\n")
    print("\nwritten to build/bench/classic.json")
