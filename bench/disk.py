"""What goes to the disk, and how long a sync takes.

What a process is said to have written (write_bytes in /proc/<pid>/io) counts each page that it dirtied, and with the large
folios of newer kernels a whole megabyte for a few bytes in it: 16 times as much as was written, in a file of zeros that is
overwritten and synced bit by bit. So the device is asked. It counts what others write too: nothing else should run.
"""

import os
import statistics
import time
from pathlib import Path


def device_bytes_written(folder):
    """Bytes that the folder's device has written since the system started, all that was held back included; None if the folder
    is not on a block device."""
    os.sync()
    device = os.stat(folder).st_dev
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == (os.major(device), os.minor(device)):
            return int(fields[9]) * 512
    return None


def process_bytes_written(pid):
    """Bytes of pages that a process has dirtied, without those of files that were removed before they got to the disk."""
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(io["write_bytes"]) - int(io["cancelled_write_bytes"])


def sync_ms(folder):
    """How long it takes to write a page and to have it on disk: what a durable commit costs at least."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "sync"
    times = []
    with file.open("wb", buffering=0) as out:
        out.write(bytes(1 << 20))
        for number in range(100):
            start = time.perf_counter()
            out.seek(number * 4096)
            out.write(bytes([number]) * 4096)
            os.fdatasync(out.fileno())
            times.append((time.perf_counter() - start) * 1000)
    file.unlink()
    return statistics.median(times)
