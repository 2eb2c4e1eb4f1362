"""Backups of a busy server, restored into an empty one; dumps; repairs: through real servers.

Writers go on while a backup is taken and note what was acknowledged. The restored server must have all of that, each
writer's work without a gap, no transaction in part, and must work on. `run NAME...` tries only the named tests.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pymysql.err import MySQLError  # noqa: E402

from private_server import PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "backup"
BACKUPS = FOLDER / "backups"
ENGINE_FOLDER = "#sql.rrd"
WRITERS = 4
ACCOUNTS = 10
LARGE_ROWS = 90_000
SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))

ER_WRONG_VALUE_FOR_VAR = 1231
ER_SPECIFIC_ACCESS_DENIED = 1227
ER_OPTION_PREVENTS_STATEMENT = 1290
ER_BAD_OPTION_VALUE = 1912
ER_SET_STATEMENT_NOT_SUPPORTED = 1971


class Wrong(Exception):
    """Something that must not be; the text says what."""


class Skipped(Exception):
    """This machine does not allow the test."""


def check(condition, text):
    if not condition:
        raise Wrong(text)


class Server(PrivateServer):
    def query(self, text, **arguments):
        with self.connect(**{"database": "test"} | arguments) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall()

    def error_of(self, text, **arguments):
        try:
            self.query(text, **arguments)
            return 0, ""
        except MySQLError as error:
            return error.args[:2]


def fresh(name, options=()):
    """A started server of its own folder, with a database `test`."""
    server = Server(FOLDER / name, options=options)
    server.erase()
    server.start()
    server.sql("CREATE DATABASE IF NOT EXISTS test")
    return server


def restored(backup, name="restored"):
    """A server that starts on a backup put into an empty data folder, as docs/howto/backup.md says."""
    server = fresh(name)
    server.stop()
    shutil.rmtree(server.data / ENGINE_FOLDER)
    # cp, as a person would do it: it must be enough to copy the folder's contents.
    subprocess.run(["cp", "-a", f"{backup}/.", str(server.data)], check=True)
    server.start()
    return server


def new_folder(name):
    BACKUPS.mkdir(parents=True, exist_ok=True)
    path = BACKUPS / name
    for old in (path, path.with_name(path.name + ".partial")):
        shutil.rmtree(old, ignore_errors=True)
    return path


def take(server, path):
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET rrd_backup_to='{path}'")
        cursor.execute("SHOW WARNINGS")
        return cursor.fetchall()[0][2]


# -- writers --------------------------------------------------------------------------------------


def is_large(n):
    """Whether a writer's n-th transaction has a statement that goes straight to segments."""
    return n % 30 == 7


class Writers:
    """Threads that write until they are told to stop; `acknowledged[w]` numbers what writer w was told is done."""

    def __init__(self, server):
        self.server = server
        self.acknowledged = [0] * WRITERS
        self.problems = []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(w,)) for w in range(WRITERS)]

    @staticmethod
    def create(server):
        server.sql(
            "CREATE TABLE log_a (writer INT, ts INT, v DOUBLE, note VARCHAR(60), PRIMARY KEY (writer, ts)) ENGINE=RRD;"
            "CREATE TABLE log_b (writer INT, ts INT, v DOUBLE, PRIMARY KEY (writer, ts)) ENGINE=RRD;"
            "CREATE TABLE log_i (writer INT, ts INT, PRIMARY KEY (writer, ts)) ENGINE=InnoDB;"
            "CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT) ENGINE=RRD;"
            f"INSERT INTO account SELECT seq, 1000 FROM seq_1_to_{ACCOUNTS}",
            "test",
        )

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def wait_for(self, commits):
        """Until each writer was told of so many."""
        deadline = time.monotonic() + 120
        while min(self.acknowledged) < commits and not self.problems:
            check(time.monotonic() < deadline, f"writers do not go on: they were told of {self.acknowledged} commits")
            time.sleep(0.05)

    def wait_for_more(self, commits):
        """Until each writer was told of so many since now."""
        self.wait_for(max(self.acknowledged) + commits)

    def write(self, w):
        rng = random.Random(SEED + w)
        try:
            with self.server.connect(database="test", autocommit=False) as connection, connection.cursor() as cursor:
                n = 0
                while not self.ended.is_set():
                    self.step(cursor, connection, rng, w, n)
                    n += 1
                    self.acknowledged[w] = n
        except MySQLError as error:
            self.problems.append(error)

    def step(self, cursor, connection, rng, w, n):
        """One transaction over three RRD tables and one of InnoDB; now and then a large one."""
        cursor.execute("INSERT INTO log_a VALUES (%s, %s, %s, %s)", (w, n, rng.random(), str(rng.random())))
        cursor.execute("INSERT INTO log_b VALUES (%s, %s, %s)", (w, n, rng.random()))
        cursor.execute("INSERT INTO log_i VALUES (%s, %s)", (w, n))
        # Each writer moves amounts between two accounts of its own: nobody waits for a lock.
        first, second = 2 * w + 1, 2 * w + 2
        amount = rng.randrange(100)
        cursor.execute("UPDATE account SET amount = amount - %s WHERE id = %s", (amount, first))
        cursor.execute("UPDATE account SET amount = amount + %s WHERE id = %s", (amount, second))
        if is_large(n):
            cursor.execute(
                f"INSERT INTO log_a SELECT {1000 + w}, {n} * 100000 + seq, SIN(seq), MD5(seq) FROM seq_1_to_{LARGE_ROWS}"
            )
        connection.commit()


def check_prefix(server, at_least, what):
    """Each writer's transactions are there without a gap, none in part, at least those that had been acknowledged."""
    for w in range(WRITERS):
        ((rows, last),) = server.query(f"SELECT COUNT(*), COALESCE(MAX(ts), -1) FROM log_a WHERE writer = {w}")
        check(rows == last + 1, f"{what}: writer {w} has {rows} rows up to {last}")
        check(rows >= at_least[w], f"{what}: writer {w} was told of {at_least[w]} commits, {rows} are there")
        ((other,),) = server.query(f"SELECT COUNT(*) FROM log_b WHERE writer = {w}")
        check(other == rows, f"{what}: writer {w} has {rows} rows in one table, {other} in the other")
        large = server.query(f"SELECT COUNT(*) FROM log_a WHERE writer = {1000 + w}")[0][0]
        wanted = sum(LARGE_ROWS for n in range(rows) if is_large(n))
        check(large == wanted, f"{what}: writer {w} has {large} rows of large statements, not {wanted}")
        ((total,),) = server.query(f"SELECT SUM(amount) FROM account WHERE id IN ({2 * w + 1}, {2 * w + 2})")
        check(total == 2000, f"{what}: the accounts of writer {w} add up to {total}")
    for table in ("log_a", "log_b", "account"):
        answer = server.query(f"CHECK TABLE {table}")[-1][3]
        check(answer == "OK", f"{what}: CHECK TABLE {table} says {answer}")


def works_on(server):
    server.sql(
        "INSERT INTO log_b VALUES (99, 1, 1), (99, 2, 2); UPDATE account SET amount = amount + 0;"
        "CREATE TABLE later (a INT PRIMARY KEY) ENGINE=RRD; INSERT INTO later VALUES (1); DROP TABLE later",
        "test",
    )
    server.restart()
    check(server.query("SELECT COUNT(*) FROM log_b WHERE writer = 99") == ((2,),), "what was written later is not there")


def busy_backup(name, options):
    server = fresh(name, options)
    rng = random.Random(SEED)
    try:
        Writers.create(server)
        with Writers(server) as writers:
            taken = []
            for number in range(2):
                writers.wait_for(12 * (number + 1) + rng.randrange(24))
                before = list(writers.acknowledged)
                path = new_folder(f"{name}-{number}")
                note = take(server, path)
                taken.append((path, before, note))
            writers.wait_for_more(1)
        check(not writers.problems, f"a writer failed: {writers.problems}")
        check_prefix(server, writers.acknowledged, "the live server")
    finally:
        server.stop()
    for path, before, _ in taken:
        copy = restored(path)
        try:
            check_prefix(copy, before, path.name)
            works_on(copy)
        finally:
            copy.erase()
    server.start()
    check_prefix(server, writers.acknowledged, "the live server after restores")
    server.erase()
    return f"seed {SEED}, {sum(writers.acknowledged)} commits; {taken[-1][2]}"


def writers_go_on_while_a_backup_is_taken():
    return busy_backup("busy", ["--rrd-memtable-size=4M"])


def writers_go_on_with_a_binary_log():
    """With it each commit has two phases; a backup between them must not keep a server from starting."""
    return busy_backup("binlog", ["--log-bin", "--rrd-memtable-size=4M"])


# -- who may, and where to ------------------------------------------------------------------------


def the_privilege_of_backup_stage_is_needed():
    server = fresh("rights")
    try:
        server.sql("CREATE USER plain@localhost; CREATE USER keeper@localhost; GRANT RELOAD ON *.* TO keeper@localhost")
        path = new_folder("rights")
        code, text = server.error_of(f"SET rrd_backup_to='{path}'", user="plain", database=None)
        check(code == ER_SPECIFIC_ACCESS_DENIED and "RELOAD" in text, f"without RELOAD: {code} {text}")
        check(not path.exists(), "a backup was made without the privilege")
        code, text = server.error_of(f"SET rrd_backup_to='{path}'", user="keeper", database=None)
        check(code == 0 and path.exists(), f"with RELOAD: {code} {text}")
        return "1227 without RELOAD"
    finally:
        server.erase()


def only_a_new_folder_outside_the_data_is_taken():
    server = fresh("places", [f"--secure-file-priv={BACKUPS}"])
    try:
        path = new_folder("places")
        (BACKUPS / "sub").mkdir(exist_ok=True)
        cases = [
            ("monday", ER_WRONG_VALUE_FOR_VAR, "whole path"),
            ("", ER_WRONG_VALUE_FOR_VAR, "whole path"),
            (str(BACKUPS / "missing" / "monday"), ER_OPTION_PREVENTS_STATEMENT, "secure-file-priv"),
            (str(BACKUPS / "sub"), ER_BAD_OPTION_VALUE, "new folder"),
            (str(FOLDER / "elsewhere"), ER_OPTION_PREVENTS_STATEMENT, "secure-file-priv"),
        ]
        for value, wanted, words in cases:
            code, text = server.error_of(f"SET rrd_backup_to='{value}'")
            check(code == wanted and words in text, f"'{value}': {code} {text}")
        code, text = server.error_of("SET rrd_backup_to=NULL")
        check(code == ER_WRONG_VALUE_FOR_VAR, f"NULL: {code} {text}")
        code, text = server.error_of(f"SET STATEMENT rrd_backup_to='{path}' FOR SELECT 1")
        check(code == ER_SET_STATEMENT_NOT_SUPPORTED, f"SET STATEMENT: {code} {text}")
        check(not path.exists(), "a refused backup was made")
        check(server.error_of(f"SET GLOBAL rrd_backup_to='{path}/'")[0] == 0 and path.exists(), "SET GLOBAL takes none")
        server.options = []
        server.restart()
        code, text = server.error_of(f"SET rrd_backup_to='{server.data / 'copy'}'")
        check(code == ER_WRONG_VALUE_FOR_VAR and "data folder" in text, f"in the data folder: {code} {text}")
        code, text = server.error_of(f"SET rrd_backup_to='{BACKUPS / 'missing' / 'monday'}'")
        check(code == ER_BAD_OPTION_VALUE and "does not exist" in text, f"without a parent: {code} {text}")
        return "refused"
    finally:
        server.erase()
        (BACKUPS / "sub").rmdir()


# -- with the server's locks ----------------------------------------------------------------------


def is_stuck(server, table, value):
    """A thread whose INSERT waits; it goes on by itself once it may."""
    thread = threading.Thread(target=lambda: server.query(f"INSERT INTO {table} VALUES (50, {value}, 1)", autocommit=True))
    thread.start()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        states = server.query("SELECT state FROM information_schema.processlist WHERE info LIKE 'INSERT INTO log_b VALUES (50,%'")
        if any("backup lock" in str(state).lower() for (state,) in states):
            return thread
        check(thread.is_alive(), "an INSERT went through although commits are blocked")
        time.sleep(0.05)
    raise Wrong(f"the INSERT is in state {states}")


def rrd_and_innodb_agree_under_backup_stage():
    server = fresh("stages")
    try:
        Writers.create(server)
        counts = []
        with Writers(server) as writers, server.connect(database="test") as keeper, keeper.cursor() as cursor:
            writers.wait_for(12)  # a large statement among them
            for number, stages in enumerate((("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"), None)):
                for stage in stages or ():
                    cursor.execute(f"BACKUP STAGE {stage}")
                if not stages:
                    cursor.execute("FLUSH TABLES WITH READ LOCK")
                before = list(writers.acknowledged)
                waiting = is_stuck(server, "log_b", number)
                path = new_folder(f"stages-{number}")
                cursor.execute(f"SET rrd_backup_to='{path}'")
                cursor.execute("SELECT writer, COUNT(*) FROM log_i GROUP BY writer ORDER BY writer")
                counts.append((path, before, cursor.fetchall()))
                keeper.commit()
                check(waiting.is_alive(), "a commit went through while commits were blocked")
                cursor.execute("BACKUP STAGE END" if stages else "UNLOCK TABLES")
                waiting.join()
                writers.wait_for_more(2)
        check(not writers.problems, f"a writer failed: {writers.problems}")
        for path, before, innodb in counts:
            copy = restored(path)
            try:
                check_prefix(copy, before, path.name)
                rrd = copy.query(f"SELECT writer, COUNT(*) FROM log_a WHERE writer < {WRITERS} GROUP BY writer ORDER BY writer")
                check(rrd == innodb, f"{path.name}: InnoDB has {innodb}, the backup {rrd}")
            finally:
                copy.erase()
        return f"InnoDB and the backup have {counts[0][2]}"
    finally:
        server.erase()


def ddl_goes_on_around_backups():
    """Tables come, change and go while backups are taken: each backup has a definition for each table, and opens."""
    server = fresh("ddl")
    ended = threading.Event()
    problems = []

    def change():
        try:
            with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
                while not ended.is_set():
                    cursor.execute("CREATE TABLE moving (a INT PRIMARY KEY, b INT) ENGINE=RRD")
                    cursor.execute("INSERT INTO moving VALUES (1, 1)")
                    cursor.execute("ALTER TABLE moving MODIFY b BIGINT, ALGORITHM=COPY")
                    cursor.execute("RENAME TABLE moving TO moved")
                    cursor.execute("DROP TABLE moved")
        except MySQLError as error:
            problems.append(error)

    thread = threading.Thread(target=change)
    try:
        server.sql("CREATE TABLE fixed (a INT PRIMARY KEY) ENGINE=RRD; INSERT INTO fixed VALUES (1)", "test")
        thread.start()
        paths = []
        for number in range(12):
            paths.append(new_folder(f"ddl-{number}"))
            take(server, paths[-1])
        ended.set()
        thread.join()
        check(not problems, f"DDL failed: {problems}")
        seen = set()
        for path in paths:
            names = {file.stem for file in (path / "test").glob("*.frm")}
            check("fixed" in names and not any(name.startswith("#sql") for name in names), f"{path.name} has {names}")
            seen |= names
        copy = restored(paths[-1])
        try:
            tables = [row[0] for row in copy.query("SHOW TABLES")]
            for table in tables:
                check(copy.query(f"CHECK TABLE {table}")[-1][3] == "OK", f"{table} of {paths[-1].name} is not OK")
        finally:
            copy.erase()
        return f"{len(paths)} backups, tables seen: {sorted(seen)}"
    finally:
        ended.set()
        server.erase()


def a_backup_on_another_file_system():
    server = fresh("copied")
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == FOLDER.stat().st_dev:
        raise Skipped("there is no other file system to write to")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        try:
            Writers.create(server)
            with Writers(server) as writers:
                writers.wait_for(12)
            server.sql("OPTIMIZE TABLE log_a", "test")
            before = server.query("SELECT COUNT(*) FROM log_a")
            note = take(server, f"{folder}/copy")
            check("bytes linked 0," in note, f"linked to another file system: {note}")
        finally:
            server.erase()
        copy = restored(f"{folder}/copy")
        try:
            check(copy.query("SELECT COUNT(*) FROM log_a") == before, "rows are missing")
        finally:
            copy.erase()
    return note


# -- dumps ----------------------------------------------------------------------------------------

ALL_TYPES = """
CREATE TABLE typed (
  id INT NOT NULL, ts DATETIME(3) NOT NULL,
  t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, m MEDIUMINT, b BIGINT, bu BIGINT UNSIGNED, bi BIT(13),
  f FLOAT, d DOUBLE, de DECIMAL(30,10), y YEAR, da DATE, ti TIME(6), stamp TIMESTAMP(6) NULL, dt DATETIME,
  c CHAR(10), vc VARCHAR(300) CHARACTER SET utf8mb4, bin BINARY(5), vb VARBINARY(40),
  tx TEXT, bl LONGBLOB, e ENUM('a','b','c'), se SET('x','y','z'), js JSON, u UUID, i6 INET6,
  PRIMARY KEY (id, ts)
) ENGINE=RRD;
INSERT INTO typed SELECT seq % 7, '2024-01-01' + INTERVAL seq SECOND,
  IF(seq % 5, seq % 127 - 60, NULL), seq % 255, seq - 3000, seq * 91 - 40000, -seq * 1e12, seq * 1e14, seq % 8192,
  seq / 4, SIN(seq) * 1e100, seq / 7, 1901 + seq % 250, '0001-01-01' + INTERVAL seq * 37 DAY,
  SEC_TO_TIME(seq * 1.000001 - 4000), '2001-01-01' + INTERVAL seq * 1.37 SECOND, NULL,
  CONCAT(' ', seq, '  '), CONCAT('\\'"\\\\\\n\\t', CHAR(seq % 60000 + 200 USING utf8mb4)), UNHEX(HEX(seq)), UNHEX(MD5(seq)),
  REPEAT(MD5(seq), seq % 20), UNHEX(REPEAT(SHA1(seq), seq % 50)), ELT(seq % 3 + 1, 'a', 'b', 'c'), seq % 8,
  JSON_OBJECT('a', seq), CONCAT('123e4567-e89b-12d3-a456-', LPAD(HEX(seq), 12, '0')), CONCAT('fe80::', HEX(seq))
  FROM (SELECT CAST(seq AS SIGNED) AS seq FROM seq_1_to_5000) AS s;
INSERT INTO typed (id, ts) VALUES (-1, '9999-12-31 23:59:59.999'), (-1, '1000-01-01');
CREATE TABLE keyless (a INT, b VARCHAR(20)) ENGINE=RRD;
INSERT INTO keyless SELECT seq % 10, 'again' FROM seq_1_to_100;
CREATE TABLE counted (n INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=RRD;
INSERT INTO counted (v) SELECT seq FROM seq_1_to_100;
CREATE TABLE ring (id INT, ts TIMESTAMP NOT NULL, v DOUBLE, PRIMARY KEY (id, ts)) ENGINE=RRD CHUNK='1 DAY' COMPRESSION='fast';
INSERT INTO ring SELECT seq % 3, '2024-05-05' + INTERVAL seq MINUTE, seq FROM seq_1_to_3000;
"""


def a_dump_reloads_to_identical_tables():
    server = fresh("dump")
    try:
        server.sql("CREATE DATABASE again")
        server.sql(f"SET sql_mode=''; {ALL_TYPES}", "test")
        tables = ("typed", "keyless", "counted", "ring")
        client = Path(server.env["RRD_MARIADB_CLIENT"])
        dump = [str(client.with_name("mariadb-dump")), "--no-defaults", f"--socket={server.socket}", "--user=root"]
        text = subprocess.run(dump + ["--single-transaction", "--hex-blob", "test"], capture_output=True, check=True).stdout
        load = [str(client), "--no-defaults", f"--socket={server.socket}", "--user=root", "again"]
        subprocess.run(load, input=text, check=True)
        for table in tables:
            sums = server.query(f"CHECKSUM TABLE test.{table}, again.{table}")
            check(sums[0][1] is not None and sums[0][1] == sums[1][1], f"checksums differ: {sums}")
            shown = [server.query(f"SHOW CREATE TABLE {base}.{table}")[0][1] for base in ("test", "again")]
            check(shown[0] == shown[1], f"definitions differ: {shown}")
            rows = [server.query(f"SELECT * FROM {base}.{table}") for base in ("test", "again")]
            check(sorted(map(repr, rows[0])) == sorted(map(repr, rows[1])), f"rows of {table} differ")
            check(rows[0], f"{table} is empty")
        for base in ("test", "again"):
            server.sql(f"INSERT INTO {base}.counted (v) VALUES (1)")
        numbers = [server.query(f"SELECT MAX(n) FROM {base}.counted") for base in ("test", "again")]
        check(numbers[0] == numbers[1], f"AUTO_INCREMENT goes on elsewhere: {numbers}")
        return f"{len(text)} bytes of dump"
    finally:
        server.erase()


# -- repair ---------------------------------------------------------------------------------------


def repair_saves_what_holds_and_says_what_is_lost():
    server = fresh("repair")
    try:
        server.sql(
            "CREATE TABLE victim (id INT, ts DATETIME, v DOUBLE NOT NULL, s VARCHAR(40), PRIMARY KEY (id, ts), KEY (s)) ENGINE=RRD;"
            "INSERT INTO victim SELECT seq DIV 10000, '2024-01-01' + INTERVAL seq SECOND, SIN(seq), MD5(seq) FROM seq_0_to_39999;"
            "OPTIMIZE TABLE victim",
            "test",
        )
        before = {row[:2]: row for row in server.query("SELECT * FROM victim")}
        server.stop()
        files = sorted((server.data / ENGINE_FOLDER).glob("table-*/seg-*.rrds"), key=lambda f: -f.stat().st_size)
        folder = min(path.parent for path in files)
        path = next(path for path in files if path.parent == folder)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 16
        path.write_bytes(data)
        server.start()
        check(server.error_of("SELECT * FROM victim")[0] != 0, "damage is read over")
        found = server.query("CHECK TABLE victim")
        check(found[-1][3] == "Corrupt", f"CHECK TABLE says {found}")
        told = server.query("REPAIR TABLE victim")
        check(told[-1][2:] == ("status", "OK"), f"REPAIR TABLE ends with {told[-1]}")
        text = "\n".join(row[3] for row in told)
        check(path.name in text and "lost" in text and "with keys from" in text, f"REPAIR TABLE says {text}")
        after = server.query("SELECT * FROM victim")
        check(20_000 <= len(after) <= 40_000, f"{len(after)} rows are left")
        wrong = [row for row in after if row != before[row[:2]] and (row[2], row[3]) != (before[row[:2]][2], None)]
        check(not wrong, f"wrong rows: {wrong[:3]}")
        check(server.query("CHECK TABLE victim")[-1][3] == "OK", "not OK after the repair")
        for row in after[:: len(after) // 5]:
            got = server.query(f"SELECT COUNT(*) FROM victim FORCE INDEX (s) WHERE s = '{row[3]}'")
            check(row[3] is None or got == ((1,),), f"index s leads to {got} rows for {row}")
        check(path.with_name(path.name + ".damaged").exists(), "the damaged file is gone")
        again = server.query("REPAIR TABLE victim")
        check(len(again) == 1 and again[0][3] == "OK", f"a sound table: {again}")
        server.restart()
        check(server.query("SELECT * FROM victim") == after, "other rows after a restart")
        server.sql("INSERT INTO victim VALUES (99, NOW(), 1, 'new'); DROP TABLE victim", "test")
        check(not list(path.parent.glob("*.damaged")), "DROP TABLE leaves the damaged file")
        return text.replace("\n", "; ")
    finally:
        server.erase()


# -- mariabackup ----------------------------------------------------------------------------------


def together_with_mariabackup():
    """One point in time for both: commits are blocked by BACKUP STAGE in a session while both copy."""
    program = shutil.which("mariadb-backup") or shutil.which("mariabackup")
    if not program:
        raise Skipped("mariadb-backup is not installed")
    server = fresh("maria")
    try:
        Writers.create(server)
        path, whole = new_folder("maria-rrd"), new_folder("maria-rest")
        with Writers(server) as writers, server.connect() as keeper, keeper.cursor() as cursor:
            writers.wait_for(12)
            before = list(writers.acknowledged)
            for stage in ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"):
                cursor.execute(f"BACKUP STAGE {stage}")
            cursor.execute(f"SET rrd_backup_to='{path}'")
            common = ["--no-defaults", f"--target-dir={whole}"]
            where = [f"--socket={server.socket}", "--user=root", f"--datadir={server.data}"]
            run([program, *common, "--backup", "--no-lock", *where])
            cursor.execute("BACKUP STAGE END")
            writers.wait_for_more(2)
        check(not writers.problems, f"a writer failed: {writers.problems}")
        run([program, *common, "--prepare"])
        copy = Server(FOLDER / "maria-copy")
        copy.erase()
        (copy.folder / "tmp").mkdir(parents=True)
        run([program, *common, "--copy-back", f"--datadir={copy.data}"])
        subprocess.run(["cp", "-a", f"{path}/.", str(copy.data)], check=True)
        copy.start()
        try:
            check_prefix(copy, before, "both")
            pairs = copy.query(
                "SELECT i.writer, i.n, a.n FROM (SELECT writer, COUNT(*) n FROM log_i GROUP BY writer) i "
                f"LEFT JOIN (SELECT writer, COUNT(*) n FROM log_a WHERE writer < {WRITERS} GROUP BY writer) a USING (writer)"
            )
            check(all(i == a for _, i, a in pairs), f"InnoDB and RRD disagree: {pairs}")
        finally:
            copy.erase()
        return f"{pairs}"
    finally:
        server.erase()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stderr[-2000:]}")


TESTS = [
    writers_go_on_while_a_backup_is_taken,
    writers_go_on_with_a_binary_log,
    the_privilege_of_backup_stage_is_needed,
    only_a_new_folder_outside_the_data_is_taken,
    rrd_and_innodb_agree_under_backup_stage,
    ddl_goes_on_around_backups,
    a_backup_on_another_file_system,
    a_dump_reloads_to_identical_tables,
    repair_saves_what_holds_and_says_what_is_lost,
    together_with_mariabackup,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="tests to run (default: all)")
    names = parser.parse_args().names
    passed = failed = 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for test in TESTS:
        if names and test.__name__ not in names:
            continue
        started = time.monotonic()
        try:
            told = test()
            passed += 1
            print(f"ok    {test.__name__} ({time.monotonic() - started:.1f} s): {told}", flush=True)
        except Skipped as reason:
            print(f"not tried on this machine: {test.__name__}: {reason}", flush=True)
        except (Wrong, MySQLError, ServerError, subprocess.SubprocessError) as problem:
            failed += 1
            print(f"WRONG {test.__name__}: {problem}", flush=True)
    if not failed:
        shutil.rmtree(FOLDER, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
