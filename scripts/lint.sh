#!/bin/bash
# Formatting, clippy and the licence check of the Rust side, and the syntax of the scripts.
# C++ needs no step here: every build compiles it with -Wall -Wextra -Werror.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=$PWD/build/cargo

for script in scripts/*.sh .ci/run; do bash -n "$script"; done
cargo fmt --all --check
cargo clippy --workspace --all-targets --release -- -D warnings

# cargo-deny takes minutes to compile, so it is built once, inside build/.
deny=build/tools/bin/cargo-deny
if [ ! -x "$deny" ]; then
    echo "building cargo-deny (once, some minutes)"
    cargo install --quiet --locked --root build/tools cargo-deny
fi
"$deny" --all-features --log-level error check licenses bans sources
