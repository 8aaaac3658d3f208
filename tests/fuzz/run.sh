#!/usr/bin/env bash
# Let libFuzzer look for inputs that break a reader.  Usage: run.sh BUILD_DIR SECONDS [NAME...]
#
# Each program of tests/fuzz runs for so long, as many at once as there are cores (JOBS), from the inputs of its corpus and whatever it
# has found in earlier runs, which BUILD_DIR/corpus keeps.  An input that does harm is left in BUILD_DIR/found.
set -u
build=$1 limit=$2; shift 2
jobs=${JOBS:-$(nproc)} start=$SECONDS
[ $# -gt 0 ] || set -- $(ls tests/fuzz/test_fuzz_*.c | sed 's|.*/test_fuzz_||; s|\.c$||')

fuzz() {
    local name=$1 log=$build/$1.log rc=0 patience=10
    [ "$name" != preprocess ] || patience=100           # it waits for compilers
    mkdir -p "$build/corpus/$name" "$build/found"
    timeout -k 10 $((limit + 120)) "$build/tests/fuzz/test_fuzz_$name" -max_total_time="$limit" -max_len=4096 -timeout=$patience -rss_limit_mb=2048 \
        -artifact_prefix="$build/found/$name-" "$build/corpus/$name" "tests/fuzz/corpus/$name" </dev/null >"$log" 2>&1 || rc=$?
    local runs new
    runs=$(grep -o 'Done [0-9]* runs' "$log" | tr -dc 0-9)
    new=$(ls "$build/corpus/$name" | wc -l)
    if [ $rc -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
        printf '  ok    %-14s %12s inputs tried, %5d kept\n' "$name" "$runs" "$new"
    else
        printf '  FAIL  %-14s status %d\n' "$name" $rc
        grep -m 3 -E 'ERROR:|runtime error|Test unit written' "$log" | sed 's/^/        | /'
        tail -n 5 "$log" | sed 's/^/        | /'
        return 1
    fi
}

failed=0 running=0
for name in "$@"; do
    if [ $running -ge "$jobs" ]; then wait -n || failed=$((failed + 1)); running=$((running - 1)); fi
    fuzz "$name" &
    running=$((running + 1))
done
while [ $running -gt 0 ]; do wait -n || failed=$((failed + 1)); running=$((running - 1)); done
echo "$(($# - failed)) passed, $failed failed    ($((SECONDS - start)) s, $limit s each)"
[ $failed -eq 0 ]
