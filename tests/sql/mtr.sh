#!/bin/bash
# Runs the mysql-test suites of suite/ through the installed mysql-test-run, on a server with our plugin in it.
#
#   mtr.sh [--engine=E] [options and test names for mysql-test-run]
#
# Two suites: the tests of rrd_like_innodb name no engine, and their .result files were recorded with InnoDB, so what
# they expect does not come from our own code; rrd holds what only this engine has. --engine=InnoDB runs the tests on
# InnoDB: with --record it (re)makes the results of rrd_like_innodb.
#
# mysql-test-run wants everything under its own folder, which is not ours to write to. So it runs in a folder of
# symbolic links to the installed one, with our two suites and the overlays of ../engine_suites added; all that it
# writes lands in build/test/mtr, or the folder beside it that RRD_MTR_HOME names. RRD_MTR_VAR may put the servers' files
# elsewhere, as in memory.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
# shellcheck disable=SC1091 -- written by setup.sh
. build/env

engine=RRD
case ${1:-} in
--engine=*) engine=${1#--engine=}; shift ;;
esac

home=$root/build/test/${RRD_MTR_HOME:-mtr}
links=$home/links
var=${RRD_MTR_VAR:-$home/var-$engine}

# Every file a link, but the folders our own, since what a failed test gave is written beside its result.
make_links() {
    local entry
    rm -rf "$links"
    mkdir -p "$links"
    for entry in bin sbin lib share; do
        ln -s "/usr/$entry" "$links/$entry"
    done
    cp -rs "$RRD_MTR" "$links/mysql-test"
    ln -s "$root/tests/engine_suites/overlay" "$links/mysql-test/plugin/rrd"
    for entry in "$root"/tests/sql/suite/*; do
        ln -s "$entry" "$links/mysql-test/suite/"
    done
    [ "$engine" != RRD ] || expect_differences
}

# Results of MariaDB's suites in which this engine is known to differ: ../engine_suites/differences has a patch for each.
expect_differences() {
    local patches=$root/tests/engine_suites/differences patch test result
    while read -r patch; do
        test=${patch#"$patches/"}
        result=$(dirname "$test")/r/$(basename "$test" .diff).result
        cp --remove-destination "$RRD_MTR/suite/$result" "$links/mysql-test/suite/$result"
        patch --quiet "$links/mysql-test/suite/$result" "$patch"
    done < <(find "$patches" -name '*.diff')
}

# Sockets lie in the folder for temporary files, and their paths may have 107 characters at most.
tmp=$var/tmp
if [ ${#tmp} -gt 60 ]; then
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
fi

mkdir -p "$home"
# Two runs at once would use the same folder: the second one waits.
exec 9>"$home/lock"
flock 9
make_links
options=(
    --vardir="$var" --tmpdir="$tmp" --force --max-test-fail=0 --testcase-timeout=8 --retry=0 --nowarnings --nocheck-testcases
    --mysqld=--plugin-dir="$root/build/plugin" --mysqld=--plugin-maturity=unknown --mysqld=--innodb --mysqld=--loose-sequence
    --mysqld=--default-storage-engine="$engine"
)
[ "$engine" != RRD ] || options+=(--mysqld=--plugin-load-add=ha_rrd)
[ "$(id -u)" != 0 ] || options+=(--mysqld=--user=root)
[ $# -gt 0 ] || set -- --suite=rrd,rrd_like_innodb --parallel=2
status=0
(cd "$links/mysql-test" && perl ./mariadb-test-run.pl "${options[@]}" "$@" 9>&-) || status=$?
# What a failed test gave instead of its result is written beside the result.
find "$root/tests/sql/suite" -name '*.reject' -exec mv -t "$home" {} +
exit "$status"
