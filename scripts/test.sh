#!/bin/bash
# Builds the plugin and runs every test of the project: the Rust crates, fuzz targets, consolidation beside the real rrdtool, then
# SQL, isolation, MariaDB's engine suites, crash, limits and data-set tests on a real server. Each runner's own count is
# summed; the last line is "N passed, N failed".
#
# A runner in tests/ prints its count as its last line in the same form and exits non-zero on a
# failure. A runner that is missing or ends without a count is a failure, not a skip. What failed is
# repeated at the end, so that the end of a long log says what to look at. A part that hangs is ended by its time limit (each
# takes a few minutes), and the others run.
set -uo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=$PWD/build/cargo

mkdir -p build/test
passed=0
failed=0
summary=build/test/summary
: > "$summary"
part_seconds=${PART_SECONDS:-1800}

# Runs a part within its time limit; 124 if that ended it. Servers have process groups of their own: those that it left are
# known by their folders.
within_limit() {
    local status pid
    timeout --kill-after=30 "$part_seconds" "$@"
    status=$?
    # 137: it did not end when it was asked to.
    [ "$status" != 137 ] || status=124
    if [ "$status" = 124 ]; then
        for pid in $(grep -lzE -- "^--(datadir|defaults-file)=$PWD/build/test/" /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3); do
            kill -9 "$pid"
        done
    fi
    return "$status"
}

# cargo prints one "test result: ok. 12 passed; 0 failed; ..." for each test binary.
run_cargo() {
    local log=build/test/cargo.log status ok bad
    # Link-time optimisation of each test program would take longer than the tests.
    printf '== cargo test --workspace --profile quick\n'
    within_limit cargo test --workspace --profile quick --no-fail-fast 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    ok=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$log")
    bad=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$log")
    count "$status" "$ok" "$bad" "cargo test" "$log"
}

run_runner() {
    local runner=$1 log status line
    log=build/test/$(basename "$(dirname "$runner")").log
    printf '== %s\n' "$runner"
    if [ ! -x "$runner" ]; then
        printf '%s is missing\n' "$runner" | tee -a "$summary"
        failed=$((failed + 1))
        return
    fi
    within_limit "$runner" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -1)
    # shellcheck disable=SC2086 -- four words
    set -- ${line:-0 passed, 0 failed}
    [ -n "$line" ] || [ "$status" != 0 ] || status=1
    count "$status" "$1" "$3" "$runner" "$log"
}

# count STATUS PASSED FAILED PART LOG: a failed exit without a failed test (a compile error, a crash) is one failure.
count() {
    local status=$1 ok=$2 bad=$3 part=$4 log=$5 ended="exit $1"
    [ "$status" != 124 ] || ended="ended by its time limit of $part_seconds s"
    [ "$status" = 0 ] || [ "$bad" != 0 ] || bad=1
    passed=$((passed + ok))
    failed=$((failed + bad))
    printf '%s: %d passed, %d failed, %s\n' "$part" "$ok" "$bad" "$ended" >> "$summary"
    [ "$bad" = 0 ] || what_failed "$log" | cut -c 1-300 | sed 's/^/    /' >> "$summary"
}

# The lines of a log that say what failed or did not finish, and its end. A panic has its message on the next line, and a
# mysql-test the lines in which its result differs.
what_failed() {
    awk '/^(FAIL|not ok|error)|panicked at|^test .* FAILED/ { print; lines = /panicked at/ ? 2 : 0; next }
        /\[ fail \]/ { print; differences = 10; next }
        lines > 0 { print; lines-- }
        differences > 0 && /^[-+][^-+]/ { print; differences-- }
        /\[ pass \]/ { differences = 0 }' "$1" | head -24
    awk '/ has been running for over / { slow[$2] } /^test .* \.\.\. / { delete slow[$2] }
        END { for (test in slow) print "not through: " test }' "$1"
    printf '...\n'
    tail -8 "$1"
}

if ! scripts/build_plugin.sh; then
    printf 'the build failed, so no test was run\n0 passed, 1 failed\n'
    exit 1
fi
run_cargo
run_runner tests/fuzz/run
run_runner tests/rrdtool/run
run_runner tests/sql/run
run_runner tests/isolation/run
run_runner tests/engine_suites/run
run_runner tests/php/run
run_runner tests/crash/run
run_runner tests/replication/run
run_runner tests/backup/run
run_runner tests/limits/run
run_runner tests/real/run
run_runner tests/docs/run

printf '== what ran\n'
cat "$summary"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
