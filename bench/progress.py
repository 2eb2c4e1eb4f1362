"""What runs, and how long it took, a line each."""

import contextlib
import time

START = time.monotonic()


def say(text, end="\n"):
    seconds = int(time.monotonic() - START)
    print(f"[{seconds // 60:3}:{seconds % 60:02}] {text}", end=end, flush=True)


@contextlib.contextmanager
def step(text):
    """Says what begins, and how long it took, with what is added to the list that it gives."""
    say(f"{text} ...", end="")
    start, notes = time.monotonic(), []
    try:
        yield notes
    except BaseException:
        print(" failed", flush=True)
        raise
    print(f" {time.monotonic() - start:.1f} s{', ' if notes else ''}{', '.join(notes)}", flush=True)
