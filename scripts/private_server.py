"""A private MariaDB server with the engine in it: the one place that knows how to run it.

As a program (through server.sh) it starts, stops and reports the server of `make server`; as a
module it gives tests, bench and demo a server of their own: `with PrivateServer(folder) as s`.

All files lie in one folder: data/, tmp/, error.log, rrd.sock, mariadbd.pid. No TCP port is
opened, no configuration file is read, and the server runs as whoever starts it.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PLUGINS = BUILD / "plugin"
DEFAULT_FOLDER = BUILD / "server"

# Engines of Debian's packages that tests and benchmark compare with.
PEERS = ("ha_blackhole.so", "ha_archive.so", "ha_rocksdb.so")

# The kernel's limit for the path of a Unix socket, without the closing zero byte.
SOCKET_PATH_MAX = 107

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120


class ServerError(Exception):
    """The server did not start, stop or answer; the text says what to look at."""


def environment():
    """The paths that scripts/setup.sh found, as a dict."""
    file = BUILD / "env"
    if not file.exists():
        raise ServerError("build/env is missing: run scripts/setup.sh (or make build)")
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)


class PrivateServer:
    """One mariadbd with its own folder. `plugins` are loaded at start, `options` go to mariadbd."""

    def __init__(self, folder=DEFAULT_FOLDER, options=(), plugins=("ha_rrd",)):
        self.folder = Path(folder).resolve()
        self.options = list(options)
        self.plugins = list(plugins)
        self.env = environment()
        self.data = self.folder / "data"
        self.log = self.folder / "error.log"
        self.pid_file = self.folder / "mariadbd.pid"
        self.process = None  # set while this very object is the server's parent
        self.log_start = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    # -- life of the server ------------------------------------------------------------------

    def start(self):
        """Starts the server and returns when it answers. Creates the data folder the first time."""
        if self.pid():
            raise ServerError(f"already running, pid {self.pid()}")
        self._link_plugins()
        self._create_data()
        self.log.touch()
        self.log_start = self.log.stat().st_size
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._wait_until_it_answers()
        self._check_plugins()

    def stop(self):
        """Shuts the server down cleanly; nothing happens when it does not run."""
        self._end(signal.SIGTERM)
        self._drop_short_link()

    def kill(self):
        """kill -9: what a crash of the process leaves on disk stays there."""
        self._end(signal.SIGKILL)

    def restart(self):
        self.stop()
        self.start()

    def erase(self):
        """Removes the folder with all in it; ends a server that an aborted run left there."""
        self.kill()
        self._drop_short_link()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pid(self):
        """The process id of the running server of this folder, or None."""
        if self.process is not None:
            return self.process.pid if self.process.poll() is None else None
        try:
            pid = int(self.pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        # The number in a stale file may belong to somebody else by now.
        return pid if f"--datadir={self.data}".encode() in command else None

    # -- talking to it -----------------------------------------------------------------------

    @property
    def socket(self):
        """The path of the Unix socket; behind a short link where the folder's path is too long."""
        path = self.folder / "rrd.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
            return path
        link = self.folder / "socket-link"
        if not link.is_symlink() or not Path(os.readlink(link)).exists():
            short = Path(tempfile.mkdtemp(prefix="rrd-")) / "s"
            short.symlink_to(self.folder)
            link.unlink(missing_ok=True)
            link.symlink_to(short)
        return Path(os.readlink(link)) / "rrd.sock"

    def sql(self, text, database=None, check=True):
        """Runs SQL in the command-line client; rows come back as lists of text (NULL is 'NULL')."""
        command = [self.env["RRD_MARIADB_CLIENT"], "--no-defaults", f"--socket={self.socket}"]
        command += ["--user=root", "--batch", "--skip-column-names", "--local-infile=1"]
        if database:
            command.append(f"--database={database}")
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise ServerError(done.stderr.strip())
        return [line.split("\t") for line in done.stdout.splitlines()]

    def connect(self, **arguments):
        """A PyMySQL connection (needs build/venv, see scripts/venv.sh)."""
        import pymysql

        arguments = {"user": "root", "charset": "utf8mb4", "local_infile": True} | arguments
        return pymysql.connect(unix_socket=str(self.socket), **arguments)

    def tail_of_log(self, lines=20):
        """The end of what the server logged since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    # -- inside ------------------------------------------------------------------------------

    def _link_plugins(self):
        PLUGINS.mkdir(parents=True, exist_ok=True)
        for name in PEERS:
            installed = Path(self.env["RRD_SYSTEM_PLUGINS"]) / name
            try:
                if installed.exists():
                    (PLUGINS / name).symlink_to(installed)
            except FileExistsError:
                pass  # linked before, or by another server that starts just now
        for name in self.plugins:
            if not (PLUGINS / f"{name}.so").exists():
                raise ServerError(f"build/plugin/{name}.so is missing: run make build")

    def _create_data(self):
        if (self.data / "mysql").is_dir():
            return
        for folder in (self.data, self.folder / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        command = [self.env["RRD_MARIADB_INSTALL_DB"], "--no-defaults", f"--datadir={self.data}", f"--tmpdir={self.folder / 'tmp'}"]
        command += [f"--user={getpass.getuser()}", "--auth-root-authentication-method=normal"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServerError(f"mariadb-install-db failed:\n{done.stdout}{done.stderr}")

    def _command(self):
        return [
            self.env["RRD_MARIADBD"],
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.data}",
            f"--tmpdir={self.folder / 'tmp'}",
            f"--socket={self.socket}",
            f"--pid-file={self.pid_file}",
            f"--plugin-dir={PLUGINS}",
            "--plugin-maturity=unknown",
            *(f"--plugin-load-add={name}" for name in self.plugins),
            "--skip-networking",
            "--character-set-server=utf8mb4",
            *self.options,
        ]

    def _wait_until_it_answers(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                code = self.process.returncode
                raise ServerError(f"the server ended at once ({code}); from {self.log}:\n{self.tail_of_log()}")
            if self._greets():
                return
            time.sleep(0.05)
        self.kill()
        raise ServerError(f"the server did not answer in {START_TIMEOUT_S} s, see {self.log}")

    def _check_plugins(self):
        # The server starts without a plugin that it cannot load, and only logs the reason.
        loaded = self.sql("SELECT DISTINCT plugin_library FROM information_schema.plugins WHERE plugin_status = 'ACTIVE'")
        missing = [name for name in self.plugins if [f"{name}.so"] not in loaded]
        if missing:
            lines = self.tail_of_log(1000).splitlines()
            reason = "\n".join(line for line in lines if "[ERROR]" in line or "[Warning]" in line)
            self.stop()
            raise ServerError(f"the server did not load {', '.join(missing)}; from {self.log}:\n{reason}")

    def _greets(self):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self.socket))
                return probe.recv(1) != b""
            except OSError:
                return False

    def _drop_short_link(self):
        link = self.folder / "socket-link"
        if link.is_symlink():
            short = Path(os.readlink(link))
            short.unlink(missing_ok=True)
            if short.parent.exists():
                short.parent.rmdir()
            link.unlink()

    def _end(self, how):
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, how)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.pid() is not None:
            if time.monotonic() > deadline:
                raise ServerError(f"pid {pid} is still there after {STOP_TIMEOUT_S} s, see {self.log}")
            time.sleep(0.02)
        self.process = None


def main(arguments):
    usage = "use: server.sh start|stop|status [--folder F] [options for mariadbd]"
    if not arguments:
        sys.exit(usage)
    action, *options = arguments
    folder = DEFAULT_FOLDER
    if options[:1] == ["--folder"] and len(options) > 1:
        folder, options = Path(options[1]), options[2:]
    server = PrivateServer(folder, options)
    if action == "start":
        if not server.pid():
            server.start()
        print(f"running, pid {server.pid()}. Connect with:")
        print(f"  mariadb --no-defaults --socket={server.socket} --user=root")
        print("Stop it with: make stop")
    elif action == "stop":
        was = server.pid()
        server.stop()
        print(f"stopped, pid {was}" if was else "not running")
    elif action == "status":
        print(f"running, pid {server.pid()}, socket {server.socket}" if server.pid() else "not running")
        sys.exit(0 if server.pid() else 3)
    else:
        sys.exit(usage)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ServerError as error:
        sys.exit(f"server: {error}")
