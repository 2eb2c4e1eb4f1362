"""Clients of the primary: random statements and transactions over tables of both engines.

Each statement is deterministic, so that the STATEMENT format may log it. Errors that a client has to expect
(duplicate, deadlock, time-out) end the transaction; any other error is the test's failure. What was committed is not
modelled here: the replica must show what the primary shows.
"""

import random
import threading

from pymysql.err import MySQLError

from pair import Wrong

TABLES = {
    "readings": "sensor INT, ts INT, v BIGINT, d DOUBLE, note VARCHAR(60), PRIMARY KEY (sensor, ts)",
    "hosts": "host VARCHAR(20) COLLATE utf8mb4_general_ci, n INT, v BIGINT, pad MEDIUMBLOB, PRIMARY KEY (host, n)",
    "loose": "writer INT, n INT, v BIGINT, d DECIMAL(12,3), t DATETIME(3), pad BLOB",
    "mixed": "id INT PRIMARY KEY, e ENUM('a','b','c'), s SET('x','y'), b BIT(5), f FLOAT, t TEXT, ts TIMESTAMP(2) NULL,"
    " y YEAR, dec_v DECIMAL(20,5), g INT AS (id * 2) VIRTUAL, h INT AS (id + 1) STORED, c CHAR(5) DEFAULT 'dflt'",
    "keyed": "id BIGINT AUTO_INCREMENT PRIMARY KEY, code VARCHAR(10), v INT, k INT, note TEXT, UNIQUE code (code), KEY vk (v, k)",
    "counted": "n INT NOT NULL AUTO_INCREMENT, a INT, b VARCHAR(40), KEY (n), KEY (a)",
    "ledger": "id INT PRIMARY KEY, v BIGINT",
}
OTHER_ENGINE = {"ledger": "InnoDB"}
EXPECTED = (1062, 1205, 1213)
LOST = (2006, 2013, 2014, 0, 2003, 1053, 1927, 1158)
KEYS = 120  # few, so that clients meet


def create(server):
    for table, columns in TABLES.items():
        server.sql(f"CREATE TABLE test.{table} ({columns}) ENGINE={OTHER_ENGINE.get(table, 'RRD')}")


def lost(error):
    return isinstance(error, OSError) or (isinstance(error, MySQLError) and (not error.args or error.args[0] in LOST))


class Client:
    """One connection that writes until told to stop, or until the server goes away."""

    def __init__(self, number, seed, folder):
        self.rng = random.Random(f"{seed}/{number}")
        self.number = number
        self.file = folder / f"load-{number}.csv"
        self.problem = None
        self.statements = self.refused = 0
        self.time = 1000 * number

    def run(self, server, stop):
        self.problem = None
        try:
            self.connection = server.connect(database="test", autocommit=True)
            while not stop.is_set():
                self.step()
            self.connection.close()
        except Exception as error:  # noqa: BLE001 -- the main thread reports it
            if not lost(error) and getattr(self, "connection", None) is not None and self.connection.open:
                self.problem = error

    def step(self):
        if self.rng.random() < 0.45:
            self.transaction()
        else:
            self.guarded(self.statement())

    def transaction(self):
        has_savepoint = False
        if not self.guarded("BEGIN"):
            return
        for _ in range(self.rng.randint(1, 6)):
            if not self.guarded(self.statement()):
                return
            if self.rng.random() < 0.15:
                has_savepoint = True
                self.guarded("SAVEPOINT here")
            elif has_savepoint and self.rng.random() < 0.2:
                self.guarded("ROLLBACK TO here")
        self.guarded("ROLLBACK" if self.rng.random() < 0.1 else "COMMIT")

    def guarded(self, text):
        """Runs a statement; False if it failed in a way that has to be expected: the transaction is then undone."""
        self.statements += 1
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(text)
            return True
        except MySQLError as error:
            if error.args and error.args[0] in EXPECTED:
                self.refused += 1
                with self.connection.cursor() as cursor:
                    cursor.execute("ROLLBACK")
                return False
            if not lost(error):
                raise Wrong(f"client {self.number}: {error} for {text[:300]}") from error
            raise

    # -- statements --------------------------------------------------------------------------

    def statement(self):
        r = self.rng
        forms = [
            (8, self.insert_readings), (4, self.insert_hosts), (4, self.insert_loose), (4, self.insert_mixed),
            (4, self.replace), (4, self.on_duplicate), (3, self.ignore), (6, self.update), (4, self.update_loose),
            (4, self.delete), (3, self.delete_loose), (3, self.move_key), (4, self.ledger), (1, self.copy), (1, self.load),
            (1, self.update_join), (5, self.insert_keyed), (4, self.change_keyed), (3, self.counted),
        ]
        (form,) = r.choices([form for _, form in forms], [weight for weight, _ in forms])
        return form()

    def text(self):
        r = self.rng
        return "NULL" if r.random() < 0.2 else f"'{r.choice('abcdefgh') * r.choice([0, 1, 5, 30])}'"

    def insert_readings(self):
        r, rows = self.rng, []
        for _ in range(r.choice([1, 1, 5, 40])):
            self.time += 1
            ts = self.time if r.random() < 0.7 else r.randint(0, KEYS)
            rows.append(f"({r.randint(0, 5)}, {ts}, {r.randint(-9, 9)}, {r.random()!r}, {self.text()})")
        return f"INSERT INTO readings VALUES {', '.join(rows)}"

    def insert_hosts(self):
        r = self.rng
        return f"INSERT INTO hosts VALUES ('{r.choice('aAbBcC')}x', {r.randint(0, KEYS)}, {r.randint(0, 99)}, REPEAT('p', {r.choice([0, 10, 3000])}))"

    def insert_loose(self):
        r = self.rng
        row = f"({self.number}, {r.randint(0, 9)}, {r.randint(0, 3)}, {r.randint(0, 3)}.5, '2026-01-01 00:00:00.{r.randint(0, 3)}', {self.text()})"
        return f"INSERT INTO loose VALUES {', '.join([row] * r.choice([1, 2, 3]))}"

    def insert_mixed(self):
        r = self.rng
        values = f"'{r.choice('abc')}', 'x,y', b'{r.randint(0, 1)}01', {r.randint(0, 99)}.25, {self.text()}, {r.choice(['NULL', 'NOW(2)'])}, {r.choice([1999, 2026])}, {r.randint(0, 9)}.5"
        return f"INSERT INTO mixed (id, e, s, b, f, t, ts, y, dec_v) VALUES ({r.randint(0, KEYS)}, {values})"

    def replace(self):
        r = self.rng
        rows = ", ".join(f"({r.randint(0, 5)}, {r.randint(0, KEYS)}, {r.randint(100, 200)}, NULL, 'replaced')" for _ in range(r.randint(1, 4)))
        return f"REPLACE INTO readings VALUES {rows}"

    def on_duplicate(self):
        r = self.rng
        return f"INSERT INTO hosts (host, n, v) VALUES ('{r.choice('aAb')}x', {r.randint(0, KEYS)}, 1) ON DUPLICATE KEY UPDATE v = v + 1000"

    def ignore(self):
        r = self.rng
        rows = ", ".join(f"({r.randint(0, KEYS)}, 'ignored')" for _ in range(r.randint(1, 30)))
        return f"INSERT IGNORE INTO mixed (id, t) VALUES {rows}"

    def update(self):
        r = self.rng
        return r.choice([
            f"UPDATE readings SET v = v + 1 WHERE sensor = {r.randint(0, 5)} AND ts BETWEEN {r.randint(0, KEYS)} AND {r.randint(0, KEYS)}",
            f"UPDATE readings SET d = {r.random()!r}, note = {self.text()} WHERE sensor = {r.randint(0, 5)} AND ts = {r.randint(0, KEYS)}",
            f"UPDATE hosts SET pad = {self.text()} WHERE host = 'AX' AND n = {r.randint(0, KEYS)}",
            f"UPDATE mixed SET e = '{r.choice('abc')}', f = f + 1, c = 'upd' WHERE id = {r.randint(0, KEYS)}",
            f"UPDATE mixed SET t = {self.text()} WHERE e = 'b' AND id < {r.randint(0, KEYS)}",
        ])

    def update_loose(self):
        r = self.rng
        return f"UPDATE loose SET v = {r.randint(0, 3)}, pad = {self.text()} WHERE writer = {self.number} AND n = {r.randint(0, 9)}"

    def delete(self):
        r = self.rng
        return r.choice([
            f"DELETE FROM readings WHERE sensor = {r.randint(0, 5)} AND ts = {r.randint(0, KEYS)}",
            f"DELETE FROM readings WHERE sensor = {r.randint(0, 5)} ORDER BY ts LIMIT {r.randint(1, 30)}",
            f"DELETE FROM hosts WHERE n < {r.randint(0, KEYS)} AND host = 'bx'",
            f"DELETE FROM mixed WHERE id IN ({r.randint(0, KEYS)}, {r.randint(0, KEYS)})",
        ])

    def delete_loose(self):
        r = self.rng
        return f"DELETE FROM loose WHERE writer = {self.number} AND n = {r.randint(0, 9)} AND v = {r.randint(0, 3)}"

    def move_key(self):
        r = self.rng
        return r.choice([
            f"UPDATE readings SET ts = {r.randint(0, KEYS)} WHERE sensor = {r.randint(0, 5)} AND ts = {r.randint(0, KEYS)}",
            f"UPDATE mixed SET id = {r.randint(0, KEYS)} WHERE id = {r.randint(0, KEYS)}",
        ])

    def ledger(self):
        r = self.rng
        return f"INSERT INTO ledger VALUES ({r.randint(0, KEYS)}, 1) ON DUPLICATE KEY UPDATE v = v + 1"

    def copy(self):
        r = self.rng
        return f"INSERT IGNORE INTO readings (sensor, ts, v) SELECT {r.randint(0, 5)}, id, 7 FROM mixed WHERE id > {r.randint(0, KEYS)} ORDER BY id"

    def update_join(self):
        return f"UPDATE readings, ledger SET readings.v = ledger.v, ledger.v = 0 WHERE ledger.id = readings.ts AND ledger.id = {self.rng.randint(0, KEYS)}"

    def insert_keyed(self):
        r = self.rng
        rows = ", ".join(f"('c{r.randint(0, KEYS)}', {r.randint(0, 9)}, {r.randint(0, 9)}, {self.text()})" for _ in range(r.choice([1, 1, 3])))
        verb, tail = r.choice([
            ("INSERT", ""), ("INSERT", ""), ("REPLACE", ""), ("INSERT IGNORE", ""),
            ("INSERT", " ON DUPLICATE KEY UPDATE v = v + 1, note = 'again'"),
        ])
        return f"{verb} INTO keyed (code, v, k, note) VALUES {rows}{tail}"

    def change_keyed(self):
        r = self.rng
        return r.choice([
            f"UPDATE keyed SET v = {r.randint(0, 9)} WHERE code = 'c{r.randint(0, KEYS)}'",
            f"UPDATE keyed SET k = k + 1 WHERE v = {r.randint(0, 9)}",
            f"UPDATE keyed SET code = 'c{r.randint(0, KEYS)}' WHERE code = 'c{r.randint(0, KEYS)}'",
            f"DELETE FROM keyed WHERE v = {r.randint(0, 9)} AND k = {r.randint(0, 9)}",
            f"DELETE FROM keyed WHERE code = 'c{r.randint(0, KEYS)}'",
        ])

    def counted(self):
        r = self.rng
        return r.choice([
            f"INSERT INTO counted (a, b) VALUES ({r.randint(0, 9)}, 'b'), ({r.randint(0, 9)}, {self.text()})",
            f"INSERT INTO counted (a, b) SELECT a, 'copied' FROM counted WHERE a = {r.randint(0, 9)} ORDER BY n LIMIT 3",
            f"UPDATE counted SET b = {self.text()} WHERE a = {r.randint(0, 9)} AND n < {r.randint(0, KEYS)}",
            f"DELETE FROM counted WHERE a = {r.randint(0, 9)}",
        ])

    def load(self):
        r = self.rng
        lines = []
        for _ in range(r.choice([10, 500, 3000])):
            self.time += 1
            lines.append(f"{r.randint(0, 5)},{self.time},{r.randint(0, 9)},{r.random()!r},{'loaded' * r.randint(0, 9)}\n")
        self.file.write_text("".join(lines))
        local = r.choice(["LOCAL ", ""])
        return f"LOAD DATA {local}INFILE '{self.file}' INTO TABLE readings FIELDS TERMINATED BY ','"


class Crowd:
    """Several clients at once."""

    def __init__(self, count, seed, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.clients = [Client(number, seed, folder) for number in range(count)]

    def start(self, server):
        self.stop_asked = threading.Event()
        self.threads = [threading.Thread(target=client.run, args=(server, self.stop_asked)) for client in self.clients]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stop_asked.set()
        for thread in self.threads:
            thread.join()
        for client in self.clients:
            if client.problem:
                raise client.problem

    @property
    def statements(self):
        return sum(client.statements for client in self.clients)

    @property
    def refused(self):
        return sum(client.refused for client in self.clients)
