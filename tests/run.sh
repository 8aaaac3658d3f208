#!/usr/bin/env bash
# Run test programs and count.  Usage: run.sh BUILD_DIR tests/*/test_*.c
#
# A test file says in a line " * ranks: 1 2 3" on how many devices it runs; without that line it is one plain process.
# Every run has a limit, no run can read this script's input, and one failing run does not stop the others.
set -u
build=$1; shift
export BUILD=$build
limit=${TIMEOUT:-180}
cores=$(nproc)
passed=0 failed=0 start=$SECONDS
export OPENBLAS_NUM_THREADS OMP_NUM_THREADS OMP_WAIT_POLICY=passive MPIEXEC_TIMEOUT=$limit
unset CMOCKA_MESSAGE_OUTPUT CMOCKA_XML_FILE

run() {                                         # run NAME LOG COMMAND...
    local name=$1 log=$2 t0=$SECONDS rc=0; shift 2
    mkdir -p "$(dirname "$log")"
    timeout -k 10 $((limit + 10)) "$@" </dev/null >"$log" 2>&1 || rc=$?
    local ok bad
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(grep -c '^\[  FAILED  \] [a-z_0-9]*$' "$log")
    if [ $rc -eq 0 ] && [ "$ok" -gt 0 ]; then
        printf '  ok    %-52s %3d tests  %3ds\n' "$name" "$ok" $((SECONDS - t0))
    else
        [ "$bad" -gt 0 ] || bad=1               # a crash, a hang or a program that ran no test
        printf '  FAIL  %-52s status %d: %s\n' "$name" "$rc" "$*"
        sed 's/^/        | /' "$log" | tail -n 40
    fi
    passed=$((passed + ok)); failed=$((failed + (rc != 0 || ok == 0 ? bad : 0)))
}

for src in "$@"; do
    bin=$build/${src%.c}
    name=${src#tests/}; name=${name%.c}
    ranks=$(sed -n 's|^ \* ranks: ||p' "$src")
    if [ -z "$ranks" ]; then
        OMP_NUM_THREADS=$cores OPENBLAS_NUM_THREADS=$cores run "$name" "$bin.log" "$bin"
    else
        for p in $ranks; do
            OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 run "$name, $p devices" "$bin.$p.log" "$MPIEXEC" -n "$p" "$bin"
        done
    fi
done
for script in tests/*/test_*.sh; do
    [ -e "$script" ] || continue
    name=${script#tests/}; OMP_NUM_THREADS=$cores run "${name%.sh}" "$build/${script%.sh}.log" bash "$script"
done
echo "$passed passed, $failed failed    ($((SECONDS - start)) s on $cores cores)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
