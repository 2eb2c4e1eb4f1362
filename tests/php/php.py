"""Runs classic.php, a client of PHP, on a private server; then on it once more after kill -9: the ring is what it was."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from private_server import BUILD, PrivateServer  # noqa: E402

RING = 25920


def main():
    server = PrivateServer(BUILD / "test" / "php", ["--rrd-flush-log-at-trx-commit=2", "--max-allowed-packet=64M"])
    server.erase()
    with server:
        client = ["php", "-d", "memory_limit=1G", "-d", "precision=17", str(ROOT / "tests" / "php" / "classic.php"), str(server.socket)]
        done = subprocess.run(client, capture_output=True, text=True)
        lines = (done.stdout + done.stderr).splitlines()
        counts = lines[-1].split() if lines and lines[-1].endswith(" failed") else []
        passed, failed = (int(counts[0]), int(counts[2])) if counts else (0, 1)
        print("\n".join(lines[:-1] if counts else lines))
        checks = "SELECT COUNT(*), MIN(rrd_key), MAX(rrd_key), SUM(average) FROM classic.statistic_rrd"
        before = server.sql(checks)
        server.kill()
        server.start()
        after = server.sql(checks)
        kept = before == after and before[0][0] == str(RING)
        if not kept:
            print(f"FAILED: before kill -9 {before}, after it {after}")
        passed, failed = passed + kept, failed + (not kept)
    server.erase()
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
