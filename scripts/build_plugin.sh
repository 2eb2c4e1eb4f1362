#!/bin/bash
# Builds build/plugin/ha_rrd.so: the Rust store as a static library, linked under the C++ handler.
# Safe to run twice at once: the second run waits for the first.
# RRD_PROFILE=quick builds faster and runs slower: for work on the engine.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p build
exec 9>build/.lock
flock 9

scripts/setup.sh
export CARGO_TARGET_DIR=$PWD/build/cargo
export RRD_PROFILE=${RRD_PROFILE:-release}
cargo build --profile "$RRD_PROFILE" --quiet -p rrd-ffi
MAKEFLAGS='' make --no-print-directory -s -j"$(nproc)" -f scripts/plugin.mk
