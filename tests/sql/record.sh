#!/bin/bash
# Records the results of rrd_like_innodb (all, or the tests named) with InnoDB.
set -euo pipefail
cd "$(dirname "$0")"
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(cd suite/rrd_like_innodb/t && ls -- *.test | sed 's/\.test$//')
exec ./mtr.sh --engine=InnoDB --record --suite=rrd_like_innodb "${names[@]}"
