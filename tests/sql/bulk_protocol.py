"""Runs bulk_protocol.c on this engine and on InnoDB: what the client sees must be the same."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from private_server import PrivateServer, ServerError  # noqa: E402

FOLDER = ROOT / "build" / "test" / "bulk-protocol"
SOURCE = Path(__file__).resolve().with_suffix(".c")


def main():
    server = PrivateServer(FOLDER)
    server.erase()
    FOLDER.mkdir(parents=True)
    program = FOLDER / "bulk_protocol"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCE, "-lmariadb"], check=True)
    try:
        with server:
            server.sql("CREATE DATABASE IF NOT EXISTS test")
            engines = ("RRD", "InnoDB")
            ours, theirs = (
                subprocess.run([program, server.socket, engine], capture_output=True, text=True) for engine in engines
            )
    except ServerError as error:
        print(f"bulk protocol: {error}")
        return 1
    if ours.returncode or theirs.returncode:
        print(f"bulk protocol: {ours.stderr}{theirs.stderr}{server.tail_of_log()}")
        return 1
    differences = [pair for pair in zip(ours.stdout.splitlines(), theirs.stdout.splitlines(), strict=False) if pair[0] != pair[1]]
    if ours.stdout != theirs.stdout:
        print("bulk protocol: the engines differ\n" + "\n".join(f"  RRD:    {one}\n  InnoDB: {two}" for one, two in differences))
        return 1
    server.erase()
    print(f"bulk protocol: {len(ours.stdout.splitlines())} lines as with InnoDB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
