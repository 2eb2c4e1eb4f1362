"""What a run was made on: machine, versions, commit, date."""

import datetime
import os
import platform
import subprocess

from disk import sync_ms
from private_server import ROOT


def machine(folder):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory / 2**20, 1), "kernel": platform.release(),
            "sync_ms": round(sync_ms(folder), 2), "load_before": os.getloadavg()[0]}


def commit():
    def git(*words):
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/bench")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (" and changes" if changed else "")


def this(folder):
    return {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"), "commit": commit(), "machine": machine(folder)}
