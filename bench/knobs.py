"""Settings from the environment."""

import os


def number(name, default):
    return int(os.environ.get(name) or default)


def words(name, default):
    return (os.environ.get(name) or default).split()
