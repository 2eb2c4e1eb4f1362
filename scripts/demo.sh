#!/bin/bash
# The demonstration of `make demo`: builds what is missing and runs demo.py.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build_plugin.sh
scripts/venv.sh
CARGO_TARGET_DIR=$PWD/build/cargo cargo build --release --quiet -p rrd-gen
exec build/venv/bin/python scripts/demo.py
