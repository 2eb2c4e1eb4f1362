#!/bin/bash
# Makes the Debian package mariadb-plugin-rrd for the server version that scripts/setup.sh found, and its debug symbols, in
# build/deb/. The plugin is the one of build/plugin/; debhelper strips it, finds the libraries it needs and packs it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
scripts/setup.sh deb
# shellcheck disable=SC1091 -- written by setup.sh
. build/env

engine=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
version=$engine+$RRD_MARIADB_VERSION
# The commit's time, so that the same commit gives the same package.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
maintainer=$(git log -1 --format=%ae)

tree=build/deb/tree
rm -rf build/deb
mkdir -p "$tree"
cp -r packaging/debian "$tree/debian"
cp packaging/rrd.cnf build/plugin/ha_rrd.so "$tree/"
for file in control changelog; do
    sed -e "s/@SERVER@/$RRD_MARIADB_PACKAGE/" -e "s/@UPSTREAM@/$RRD_MARIADB_VERSION/" -e "s/@VERSION@/$version/" \
        -e "s/@MAINTAINER@/$maintainer/" -e "s/@DATE@/$(date -Ru -d "@$SOURCE_DATE_EPOCH")/" \
        "$tree/debian/$file.in" >"$tree/debian/$file"
    rm "$tree/debian/$file.in"
done
cargo metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu |
    python3 packaging/copyright.py >"$tree/debian/copyright"

(cd "$tree" && dpkg-buildpackage --build=binary --no-sign -d) >build/deb/log 2>&1 ||
    { tail -20 build/deb/log >&2; echo "deb: see build/deb/log" >&2; exit 1; }
rm -rf "$root/$tree"
ls -l build/deb/*.deb
