"""Damaged, missing, newer and unwritable files, a second server, a foreign plugin: through a real server.

Each fault is given to a server that was shut down, in one file of the engine. Whatever the fault: the
server starts and other engines' tables work, no row that it shows is wrong, the message names the file,
and with the file put back everything is there. Damage of one table's segment leaves the others at work.
"""

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pymysql.err import MySQLError  # noqa: E402

from private_server import PLUGINS, PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "faults"
ENGINE_FOLDER = "#sql.rrd"
ROWS = 20_000
VERSION_AT = 8  # of every kind of file, see docs/internals/format-*.md
SMALL_DISK_MB = 64
LARGER_DISK_MB = 512
ER_UNKNOWN_STORAGE_ENGINE = 1286


class Wrong(Exception):
    """Something that must not be; the text says what."""


class Server(PrivateServer):
    """A server that goes on when the engine refuses to start; `loaded` says whether it did."""

    def _check_plugins(self):
        self.loaded = self.sql("SELECT COUNT(*) FROM information_schema.engines WHERE engine = 'RRD'") == [["1"]]

    def log_text(self):
        return self.tail_of_log(100_000)

    def query(self, text):
        with self.connect(database="test") as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchall()


def check(condition, text):
    if not condition:
        raise Wrong(text)


def digest(rows):
    return hashlib.sha256(repr(rows).encode()).hexdigest()


class Scene:
    """A stopped server with known rows, and a copy of the engine's folder to go back to."""

    def __init__(self):
        self.server = Server(FOLDER)
        self.engine = self.server.data / ENGINE_FOLDER
        self.copy = FOLDER / "copy"
        self.rng = random.Random(7)

    def make(self):
        server = self.server
        server.erase()
        server.start()
        check(server.loaded, f"the engine is not there:\n{server.tail_of_log()}")
        server.sql("CREATE DATABASE IF NOT EXISTS test; CREATE TABLE test.plain (a INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO test.plain VALUES (1)")
        self.create("victim")
        (self.victim_folder,) = self.engine.glob("table-*")
        self.create("other")
        server.sql("INSERT INTO victim SELECT 77, seq, 1, 'in the log' FROM seq_1_to_50", "test")
        for number in range(20):
            server.sql(f"INSERT INTO other VALUES (99, {number}, 0, 'late'), (100, {number}, 0, 'late')", "test")
        self.expected = {table: self.read(table) for table in ("victim", "other")}
        server.kill()
        self.killed = FOLDER / "killed"
        shutil.copytree(self.engine, self.killed)
        server.start()
        server.stop()
        shutil.copytree(self.engine, self.copy)

    def create(self, table):
        # Values that do not compress to nothing, so that the segments have some blocks to damage.
        self.server.sql(
            f"CREATE TABLE {table} (id INT, ts INT, v DOUBLE, s VARCHAR(40), PRIMARY KEY (id, ts)) ENGINE=RRD; "
            f"INSERT INTO {table} SELECT seq % 10, seq, SIN(seq) * 1000, MD5(seq) FROM seq_1_to_{ROWS}; OPTIMIZE TABLE {table}",
            "test",
        )

    def read(self, table):
        return digest(self.server.query(f"SELECT * FROM {table} ORDER BY id, ts"))

    def restore(self, copy=None):
        shutil.rmtree(self.engine, ignore_errors=True)
        shutil.copytree(copy or self.copy, self.engine)

    def files(self, kind):
        """The engine's files of one kind that hold something, the largest first."""
        folder, pattern = {
            "segment": (self.victim_folder, "seg-*.rrds"),
            "log": (self.engine, "log-*.rrdl"),
            "manifest": (self.engine, "manifest-*.rrdm"),
        }[kind]
        found = sorted(folder.rglob(pattern), key=lambda path: -path.stat().st_size)
        check(found, f"no {kind} file in {folder}: {[path.name for path in folder.iterdir()]}")
        return found

    # -- what has to hold, whatever the fault -------------------------------------------------

    def try_out(self, kind, path, may_miss_last=False):
        """Starts the server on the damaged folder; returns the message that the fault gave, or None."""
        server = self.server
        server.start()
        try:
            check(server.query("SELECT * FROM plain") == ((1,),), "an InnoDB table does not work")
            if not server.loaded:
                message = naming(server.log_text(), path)
                check(message, f"refused without naming {path.name}:\n{server.tail_of_log(15)}")
                check(kind != "segment", f"one table's damage keeps the whole engine from starting: {message}")
                code = error_of(server, "SELECT COUNT(*) FROM victim")[0]
                check(code == ER_UNKNOWN_STORAGE_ENGINE, f"without the engine the table's error is {code}")
                return message
            check(self.read("other") == self.expected["other"] or may_miss_last, "another table has wrong rows")
            message = self.judge_victim(path, may_miss_last)
            if not may_miss_last:
                server.sql("INSERT INTO other VALUES (-1,-1,0,'new'); DELETE FROM other WHERE id = -1", "test")
            return message
        finally:
            self.end()

    def judge_victim(self, path, may_miss_last):
        server = self.server
        problem = None
        try:
            check(self.read("victim") == self.expected["victim"] or may_miss_last, "the damaged table shows wrong rows")
        except MySQLError as error:
            problem = str(error)
            check(naming(problem, path), f"the error does not name {path.name}: {problem}")
        for text in ("SELECT * FROM victim WHERE id = 3 ORDER BY ts DESC LIMIT 5", "SELECT COUNT(*), SUM(v) FROM victim"):
            error_of(server, text)
        answers = checked(server)
        if problem:
            check(answers[-1][3] != "OK", f"CHECK TABLE finds nothing, reading says {problem}")
            check("victim" in str(answers), f"CHECK TABLE does not name the table: {answers}")
        elif answers[-1][3] != "OK":
            problem = str(answers)
            check(naming(problem, path), f"CHECK TABLE does not name {path.name}: {answers}")
        return problem

    def end(self):
        """Ends the server, which must not have ended by itself."""
        alive = self.server.pid() is not None
        self.server.kill()
        check(alive, f"the server ended by itself:\n{self.server.tail_of_log(40)}")


def naming(text, path):
    """The line of the text that names the file, without what comes before the message."""
    lines = [line for line in text.splitlines() if path.name in line]
    return lines[0][-300:] if lines else None


def error_of(server, text):
    try:
        server.query(text)
        return (0, "")
    except MySQLError as error:
        return error.args[:2]


def checked(server):
    try:
        return server.query("CHECK TABLE victim EXTENDED")
    except MySQLError as error:
        return ((("test.victim", "check", "error", str(error))),)


# -- the faults -----------------------------------------------------------------------------------


def flip(path, at, bit):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def places(scene, size, count):
    """Bytes to damage: the header, the end, and some in between."""
    return sorted({4, 17, size - 1, size // 2} | {scene.rng.randrange(32, size) for _ in range(count)})


def flipped(scene, kind, count, must_find):
    """One bit turned over, in many places, one after the other."""
    size = scene.files(kind)[0].stat().st_size
    found = 0
    for at in places(scene, size, count):
        scene.restore()
        path = scene.files(kind)[0]
        flip(path, at, scene.rng.randrange(8))
        try:
            found += scene.try_out(kind, path) is not None
        except Wrong as wrong:
            raise Wrong(f"bit flipped in byte {at} of {size}: {wrong}") from wrong
    check(found or not must_find, f"no damage of any {kind} was noticed")
    return f"{found} of {len(places(scene, size, 0)) + count} noticed, none gave a wrong row"


def flipped_segment(scene):
    return flipped(scene, "segment", 10, True)


def flipped_log(scene):
    return flipped(scene, "log", 6, True)


def flipped_manifest(scene):
    return flipped(scene, "manifest", 6, True)


def truncated(scene, kind):
    messages = []
    size = scene.files(kind)[0].stat().st_size
    for length in (0, 7, 40, size // 2, size - 1):
        scene.restore()
        path = scene.files(kind)[0]
        kept = path.read_bytes()
        os.truncate(path, length)
        try:
            messages.append(scene.try_out(kind, path))
            if length == size // 2:
                path.write_bytes(kept)
                back(scene)
        except (Wrong, MySQLError) as wrong:
            raise Wrong(f"cut to {length} of {size} bytes: {wrong}") from wrong
    check(any(messages), f"a cut {kind} is not noticed")
    return next(message for message in messages if message)


def truncated_segment(scene):
    return truncated(scene, "segment")


def truncated_log(scene):
    return truncated(scene, "log")


def truncated_manifest(scene):
    return truncated(scene, "manifest")


def missing(scene, kind):
    scene.restore()
    path = scene.files(kind)[0]
    kept = path.read_bytes()
    path.unlink()
    message = scene.try_out(kind, path) if kind == "segment" else missing_for_all(scene, path)
    check(message, "nobody noticed")
    path.write_bytes(kept)
    back(scene)
    return message


def missing_for_all(scene, path):
    """Without a log or manifest the engine may not start, and says which file or folder it is about."""
    scene.server.start()
    try:
        check(scene.server.query("SELECT * FROM plain") == ((1,),), "an InnoDB table does not work")
        text = scene.server.log_text()
        if scene.server.loaded:
            check(path.name.startswith("log-"), "it started without its manifest")
            check(scene.read("victim") == scene.expected["victim"], "rows are lost without a word")
            check(scene.read("other") == scene.expected["other"], "rows are lost without a word")
            return "not needed after a clean shutdown"
        lines = [line for line in text.splitlines() if "#sql.rrd" in line or path.stem.split("-")[0] in line]
        check(lines, f"refused without a word of it:\n{scene.server.tail_of_log(15)}")
        return lines[0][-300:]
    finally:
        scene.end()


def back(scene):
    """With the file put back everything is as it was."""
    scene.server.start()
    try:
        check(scene.server.loaded, f"with the file put back the engine does not start:\n{scene.server.tail_of_log(15)}")
        for table in ("victim", "other"):
            check(scene.read(table) == scene.expected[table], f"with the file put back {table} has other rows")
        check(checked(scene.server)[-1][3] == "OK", f"with the file put back: {checked(scene.server)}")
    finally:
        scene.server.kill()


def missing_segment(scene):
    return missing(scene, "segment")


def missing_log(scene):
    return missing(scene, "log")


def missing_manifest(scene):
    return missing(scene, "manifest")


def newer(scene, kind):
    """A file of a later format: version and checksum are in order, so it is not taken for damage."""
    import zlib

    scene.restore()
    path = scene.files(kind)[0]
    data = bytearray(path.read_bytes())
    length = {"segment": 32, "log": 64, "manifest": 32}[kind]
    data[VERSION_AT : VERSION_AT + 4] = (200).to_bytes(4, "little")
    data[length - 4 : length] = zlib.crc32(data[: length - 4]).to_bytes(4, "little")
    kept = path.read_bytes()
    path.write_bytes(data)
    message = scene.try_out(kind, path)
    check(message and "version 200" in message, f"nothing is said of the newer version: {message}")
    path.write_bytes(kept)
    back(scene)
    return message


def newer_segment(scene):
    return newer(scene, "segment")


def newer_log(scene):
    return newer(scene, "log")


def newer_manifest(scene):
    return newer(scene, "manifest")


def torn_log_of_a_killed_server(scene):
    """What a power cut leaves: the newest log file ends early. Rows at its end may be missing, in whole statements."""
    lost = []
    for cut in (1, 30, 200):
        scene.restore(scene.killed)
        path = sorted(scene.engine.rglob("log-*.rrdl"))[-1]
        os.truncate(path, path.stat().st_size - cut)
        scene.server.start()
        try:
            if not scene.server.loaded:
                check(naming(scene.server.log_text(), path), "refused without naming the file")
                lost.append("refused")
                continue
            pairs = scene.server.query("SELECT ts, COUNT(*) FROM other WHERE id >= 99 GROUP BY ts ORDER BY ts")
            check([ts for ts, _ in pairs] == list(range(len(pairs))), f"not the last statements are missing: {pairs}")
            check(all(count == 2 for _, count in pairs), f"half a statement is there: {pairs}")
            check(len(pairs) >= 16, f"a cut of {cut} bytes lost {20 - len(pairs)} statements")
            check(scene.read("victim") == scene.expected["victim"], "another table lost rows")
            lost.append(f"{20 - len(pairs)} lost")
        finally:
            scene.end()
    return ", ".join(lost)


def unreadable_rubbish_is_left_alone(scene):
    """Files that are not the engine's, and unfinished ones, are no reason not to start."""
    scene.restore()
    (scene.engine / "README").write_text("a stranger's file")
    (scene.engine / "log" / "log-ffffffffffffffff.rrdl.tmp").write_bytes(b"unfinished")
    (scene.victim_folder / "seg-00000000ffffffff.rrds.tmp").write_bytes(b"unfinished")
    (scene.victim_folder / "seg-00000000fffffffe.rrds").write_bytes(b"not named by the manifest")
    back(scene)
    check((scene.engine / "README").exists(), "a stranger's file was removed")
    return "started"


def failing_flushes_are_told_and_counted(scene):
    """A flush that fails each second is in the error log, though not each second, and goes on once it can."""
    scene.restore()
    scene.server.start()
    try:
        scene.server.sql("SET GLOBAL rrd_memtable_size = 1048576")
        away = scene.victim_folder.with_suffix(".away")
        scene.victim_folder.rename(away)
        scene.server.sql("INSERT INTO victim SELECT 1000, seq, 0, 'late' FROM seq_1_to_16000", "test")
        failures = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Rrd_flush_failures'"
        deadline = time.monotonic() + 60
        while int(scene.server.sql(failures)[0][0]) < 14 and time.monotonic() < deadline:
            time.sleep(0.2)
        tried = int(scene.server.sql(failures)[0][0])
        check(tried >= 14, f"{tried} flushes failed within a minute")
        lines = [line for line in scene.server.log_text().splitlines() if "could not write a memtable" in line]
        check(lines and "[ERROR] ENGINE=RRD: table 'test/victim': " in lines[-1], f"not in the error log: {lines}")
        check(len(lines) < tried, f"{len(lines)} lines for {tried} failures")
        report = scene.server.query("SHOW ENGINE RRD STATUS")[0][2]
        check("the last flush failed: cannot create" in report, report)
        away.rename(scene.victim_folder)
        while "the last flush failed" in scene.server.query("SHOW ENGINE RRD STATUS")[0][2]:
            check(time.monotonic() < deadline, "flushes fail for ever")
            time.sleep(0.2)
        check("ENGINE=RRD: table 'test/victim': a memtable was written to disk again" in scene.server.log_text(), "no word of it")
        return lines[-1][-120:]
    finally:
        scene.server.kill()


def second_server_on_the_folder(scene):
    """Another server whose data folder leads to the same files is refused, the first one works on."""
    scene.restore()
    scene.server.start()
    second = Server(FOLDER / "second")
    try:
        second.erase()
        second.data.mkdir(parents=True)
        (second.data / ENGINE_FOLDER).symlink_to(scene.engine)
        second._create_data()
        second.start()
        check(not second.loaded, "two servers write to one folder")
        lines = [line for line in second.log_text().splitlines() if "in use by another server" in line]
        check(lines, f"refused for another reason:\n{second.tail_of_log(15)}")
        check(scene.read("victim") == scene.expected["victim"], "the first server lost rows")
        scene.server.sql("INSERT INTO other VALUES (-1,-1,0,'new'); DELETE FROM other WHERE id = -1", "test")
        return lines[0][-200:]
    finally:
        second.erase()
        scene.server.kill()


def plugin_for_another_server(scene):
    """A plugin whose interface version is another server's is refused by name; the server works without it."""
    scene.restore()
    folder = FOLDER / "plugins"
    folder.mkdir(exist_ok=True)
    data = (PLUGINS / "ha_rrd.so").read_bytes()
    major, minor, patch = (int(part) for part in scene.server.env["RRD_MARIADB_VERSION"].split("."))
    version = major * 10_000 + minor * 100 + patch
    ours, theirs = ((number << 8).to_bytes(4, "little") for number in (version, version - 1))
    check(ours in data, "the interface version is not in the plugin's file")
    (folder / "ha_rrd.so").write_bytes(data.replace(ours, theirs))
    scene.server.options = [f"--plugin-dir={folder}"]
    try:
        scene.server.start()
        check(not scene.server.loaded, "a plugin for another server was loaded")
        lines = [line for line in scene.server.log_text().splitlines() if "RRD" in line and "version" in line]
        check(lines, f"refused without a word of the version:\n{scene.server.tail_of_log(15)}")
        check(scene.server.query("SELECT * FROM plain") == ((1,),), "an InnoDB table does not work")
        return lines[0][-200:]
    finally:
        scene.server.kill()
        scene.server.options = []
        shutil.rmtree(folder)


def folder_of_another_user(scene):
    """Files and folders can be read by the server's own user alone."""
    scene.restore()
    scene.server.start()
    try:
        scene.server.sql("CREATE TABLE modes (a INT PRIMARY KEY) ENGINE=RRD; INSERT INTO modes VALUES (1); OPTIMIZE TABLE modes", "test")
        newest = [path for path in scene.engine.rglob("*") if path.stat().st_mtime > time.time() - 30]
        wide = [path.name for path in newest if path.stat().st_mode & 0o077]
        check(newest, "no new file")
        check(not wide, f"others may read {wide}")
        return f"{len(newest)} new files"
    finally:
        scene.server.kill()


# What DBAs and mariadb-upgrade say to a folder that the server takes for a database with a name of old times.
STATEMENTS_ON_FOLDERS = (
    "ALTER DATABASE `#mysql50#{0}` UPGRADE DATA DIRECTORY NAME",
    "DROP DATABASE `#mysql50#{0}`",
    "DROP TABLE `#mysql50#{0}`.t",
    "CREATE TABLE `#mysql50#{0}`.t (a INT)",
    "RENAME TABLE test.plain TO `#mysql50#{0}`.plain",
    "USE `#mysql50#{0}`",
)


def folder_without_the_plugin(scene):
    """A server without the plugin neither lists the engine's folder as a database nor moves or removes it."""
    scene.restore()
    server, before = scene.server, sorted(scene.engine.rglob("*"))
    server.plugins, loaded = [], server.plugins
    try:
        server.start()
        databases = [row[0] for row in server.query("SHOW DATABASES")]
        check(not any("rrd" in name for name in databases), f"it is listed: {databases}")
        for statement in STATEMENTS_ON_FOLDERS:
            try:
                server.query(statement.format(ENGINE_FOLDER))
            except MySQLError as refused:
                check(refused.args[0] in (1102, 1103), f"{statement}: {refused}")
            else:
                raise Wrong(f"{statement} was not refused")
        for tool in (["mariadb-upgrade", "--force"], ["mariadb-check", "--fix-db-names", "--fix-table-names", "--all-databases"]):
            done = subprocess.run(
                [tool[0], "--no-defaults", *tool[1:], f"--socket={server.socket}", "--user=root"], capture_output=True, text=True
            )
            check(done.returncode == 0, f"{tool}: {done.stdout[-500:]}{done.stderr}")
        server.stop()
        check(sorted(scene.engine.rglob("*")) == before, "files of the engine came or went")
    finally:
        server.kill()
        server.plugins = loaded
    back(scene)
    return "neither seen nor touched"


def folder_that_went_astray(scene):
    """No empty engine begins beside definitions of its tables or a folder with another name."""
    scene.restore()
    away = scene.engine.with_name("@0023rrd")
    told = []
    for moved in (away, FOLDER / "elsewhere"):
        scene.engine.rename(moved)
        try:
            scene.server.start()
            check(not scene.server.loaded, "the engine began empty")
            check(scene.server.query("SELECT * FROM plain") == ((1,),), "an InnoDB table does not work")
            lines = [line for line in scene.server.log_text().splitlines() if "ENGINE=RRD" in line]
            wanted = f"mv -T './{away.name}' './{ENGINE_FOLDER}'" if moved == away else ".frm' defines a table of this engine"
            check(lines and wanted in lines[-1], f"no word of it: {lines}")
            told.append(lines[-1][-80:])
        finally:
            scene.server.kill()
        check(not scene.engine.exists(), "a folder was made all the same")
        moved.rename(scene.engine)
        back(scene)
    return told


class SmallDisk:
    """A file system in memory of a given size, mounted on the engine's folder."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MB}m,mode=700", "tmpfs", str(self.folder)])
        return self

    def grow(self):
        run(["mount", "-o", f"remount,size={LARGER_DISK_MB}m", str(self.folder)])

    def __exit__(self, *_):
        run(["umount", str(self.folder)])


class Skipped(Exception):
    """This machine does not allow the test."""


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Skipped(done.stderr.strip())


def full_disk(scene):
    """A statement that does not fit fails and leaves nothing; all before it stay; with more room it goes on."""
    shutil.rmtree(scene.engine)
    server = scene.server
    notes = []
    with SmallDisk(scene.engine) as disk:
        shutil.copytree(scene.copy, scene.engine, dirs_exist_ok=True)
        try:
            server.start()
            check(server.loaded, f"the engine did not start:\n{server.tail_of_log(15)}")
            acknowledged, error = fill(server)
            notes.append(f"{acknowledged} statements, then: {error}")
            check("full" in str(error) or "space" in str(error), f"no word of a full disk: {error}")
            check_rows(scene, acknowledged, "when the disk was full")
            big = error_of(server, "INSERT INTO other SELECT -2, seq, seq, REPEAT(MD5(seq), 1) FROM seq_1_to_2000000")
            check(big[0] != 0, "two million rows fitted on a full disk")
            check_rows(scene, acknowledged, f"after a large statement failed ({big})")
            server.kill()
            server.start()
            check(server.loaded, f"the engine does not start on a full disk:\n{server.tail_of_log(15)}")
            check_rows(scene, acknowledged, "after a restart on the full disk")
            disk.grow()
            after = error_of(server, "INSERT INTO other VALUES (-3, 1, 1, 'room')")
            notes.append("goes on by itself with more room" if after[0] == 0 else f"with more room needs a restart: {after}")
            server.kill()
            server.start()
            server.sql("INSERT INTO other VALUES (-3, 2, 1, 'room'); DELETE FROM other WHERE id = -3", "test")
            check_rows(scene, acknowledged, "with more room")
        finally:
            scene.end()
    return "; ".join(notes)


def fill(server):
    """Inserts until it fails: how many statements were acknowledged, and the error."""
    with server.connect(database="test", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filler (n INT PRIMARY KEY, v BLOB) ENGINE=RRD")
        for number in range(100_000):
            noise = os.urandom(20_000).hex()
            try:
                cursor.execute(f"INSERT INTO filler VALUES ({2 * number}, x'{noise}'), ({2 * number + 1}, '')")
            except MySQLError as error:
                return number, error
    raise Wrong("a full disk takes everything")


def check_rows(scene, acknowledged, when):
    for table in ("victim", "other"):
        count = scene.server.query(f"SELECT COUNT(*), MIN(id), MAX(id) FROM {table}")
        check(scene.read(table) == scene.expected[table], f"{when}, {table} has other rows, (count, least and greatest id) {count}")
    found = scene.server.query("SELECT COUNT(*), MAX(n), SUM(LENGTH(v)) FROM filler")
    wanted = ((2 * acknowledged, 2 * acknowledged - 1, 20_000 * acknowledged),)
    check(found == wanted, f"{when}, filler has {found}, not {wanted}")


FAULTS = [
    flipped_segment,
    truncated_segment,
    missing_segment,
    newer_segment,
    flipped_log,
    truncated_log,
    missing_log,
    newer_log,
    torn_log_of_a_killed_server,
    flipped_manifest,
    truncated_manifest,
    missing_manifest,
    newer_manifest,
    unreadable_rubbish_is_left_alone,
    failing_flushes_are_told_and_counted,
    second_server_on_the_folder,
    plugin_for_another_server,
    folder_of_another_user,
    folder_without_the_plugin,
    folder_that_went_astray,
    full_disk,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="faults to try (default: all)")
    names = parser.parse_args().names
    scene = Scene()
    passed = failed = 0
    try:
        scene.make()
        for fault in FAULTS:
            if names and fault.__name__ not in names:
                continue
            started = time.monotonic()
            try:
                told = fault(scene)
                passed += 1
                print(f"ok    {fault.__name__} ({time.monotonic() - started:.1f} s): {told}", flush=True)
            except Skipped as reason:
                print(f"not tried on this machine: {fault.__name__}: {reason}", flush=True)
            except (Wrong, MySQLError, ServerError) as problem:
                failed += 1
                scene.server.kill()
                print(f"WRONG {fault.__name__}: {problem}", flush=True)
    except (Wrong, MySQLError, ServerError) as problem:
        failed += 1
        print(f"WRONG, before any fault: {problem}")
    finally:
        scene.server.kill()
    if not failed:
        scene.server.erase()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
