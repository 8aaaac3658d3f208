#!/usr/bin/env bash
# Run the tests of one tier and count.  Usage: run.sh BUILD_DIR [FILE...]           (all files: tests/*/test_*.sh and .c)
#                                        or:   run.sh BUILD_DIR --programs [FILE...]: only say which programs that takes
#
# $TIER says how much: check, test (the default) or verify.  Tests read it too (tests/tier.h), and thin their sweeps by it.
# The head of a test file says, a line each, where it runs (docs/adding/README.md has an example):
#     tier: check         already in `make check`; `tier: verify`: only in `make verify`; otherwise from `make test` on
#     ranks: 1 2 3        on so many devices, in `make check` on up to 4 of them; without this line it is one plain process
#     verify ranks: 6 8   and on these in `make verify`
#     verify parts: 24    a script that takes long: in `make verify` 24 runs, of which run k gets SHARE=k/24 and does its share
# Every run has a limit, no run can read this script's input, and one failing run does not stop the others.
# $JOBS runs go side by side (on 2 cores 3): one works while another waits.
# $PART, such as 2/6: the second of six parts.  Run i of all is in part N of M if i mod M = N - 1, counted from 0.
set -u
case ${1:--} in -*) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;; esac
build=$1; shift
: "${MPIEXEC:=mpiexec}"
export BUILD=$build TIER=${TIER:-test}
case $TIER in
    check)  limit=300 ;;                        # for what hangs: a busy machine may take ten times as long as a quiet one
    test)   limit=600 ;;
    verify) limit=7200 ;;
    *) echo "tests/run.sh: TIER=$TIER: must be check, test or verify" >&2; exit 2 ;;
esac
limit=${TIMEOUT:-$limit}
part=${PART:-1/1}
if ! [[ $part =~ ^([1-9][0-9]{0,3})/([1-9][0-9]{0,3})$ ]] || [ "${BASH_REMATCH[1]}" -gt "${BASH_REMATCH[2]}" ]; then
    echo "tests/run.sh: PART=$part: must be N/M, two numbers with 1 <= N <= M, such as 2/6" >&2; exit 2
fi
part_number=${BASH_REMATCH[1]} part_count=${BASH_REMATCH[2]} place=0
unset PART                                      # a test that starts this script starts all of its own runs
cores=$(nproc)
jobs=${JOBS:-$((cores > 4 ? cores / 2 : cores > 1 ? 3 : 1))}
passed=0 failed=0 used=0 begun=$EPOCHREALTIME
broken=() times=()
export OPENBLAS_NUM_THREADS OMP_NUM_THREADS OMP_WAIT_POLICY=passive MPIEXEC_TIMEOUT=$limit
# What costs processor time and computes nothing, as emulated_devices/launch has it too: threads of the BLAS that yield for 25 ms
# after each product; MPICH's processes, which spin while they start if they are to share memory; hwloc's look at the machine; UCX's
# sockets and files.  With all of these the program need not start itself again to have them, 10 ms of a processor each time.
export OPENBLAS_THREAD_TIMEOUT=${OPENBLAS_THREAD_TIMEOUT:-4} UCX_HANDLE_ERRORS=none UCX_LOG_LEVEL=fatal UCX_WARN_UNUSED_ENV_VARS=n
if "$MPIEXEC" --version 2>/dev/null | grep -q ch4:ucx; then
    export MPIR_CVAR_NOLOCAL=${MPIR_CVAR_NOLOCAL:-1} HWLOC_COMPONENTS=${HWLOC_COMPONENTS:-no_os,stop} UCX_TLS=${UCX_TLS:-^posix,tcp}
fi
unset CMOCKA_MESSAGE_OUTPUT CMOCKA_XML_FILE
# Open MPI's mpiexec: more devices than cores, also by root, none tied to a core; see permit_open_mpi in emulated_devices/launch/launch.c.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none

# ---- what runs in this tier ---------------------------------------------------------------------------------------------------
says() { sed -nE "/^#include/q; s/^( \*|#) $2: //p" "$1"; }              # says FILE KEY, in its head

in_tier() {
    local tier; tier=$(says "$1" tier)
    case $TIER-$tier in
        check-check | test-check | test- | verify-check | verify- | verify-verify) return 0 ;;
        check- | check-verify | test-verify) return 1 ;;
    esac
    echo "$1: tier: $tier: must be check or verify" >&2
    exit 2
}

ranks_of() {
    local p
    for p in $(says "$1" ranks) $([ "$TIER" != verify ] || says "$1" 'verify ranks'); do
        [ "$TIER" = check ] && [ "$p" -gt 4 ] || echo "$p"
    done
}

# ---- one run ------------------------------------------------------------------------------------------------------------------
since() { local us=$((${EPOCHREALTIME/./} - ${1/./})); printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10)); }

# Each run has two files beside its log: the lines that it prints, and its numbers.
run() {                                         # run NAME LOG COMMAND...
    local name=$1 log=$2 t0=$EPOCHREALTIME rc=0 ok bad time cpu; shift 2
    mkdir -p "$(dirname "$log")"
    timeout -k 10 $((limit + 10)) "$@" </dev/null >"$log" 2>&1 || rc=$?
    time=$(since "$t0")
    times >"$log.times"                         # the second line: of all processes that this subshell waited for
    cpu=$(awk -F '[ms ]' 'NR == 2 { printf "%.1f", $1 * 60 + $2 + $4 * 60 + $5 }' "$log.times")
    rm "$log.times"
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(grep '^\[  FAILED  \] [a-z_0-9]*$' "$log" | sort -u | wc -l)        # cmocka names each twice
    if [ $rc -eq 0 ] && [ "$ok" -gt 0 ]; then
        bad=0
        printf '  ok    %-52s %3d tests %6ss, of processors %6ss\n' "$name" "$ok" "$time" "$cpu"
    else
        [ "$bad" -gt 0 ] || bad=1               # a crash, a hang or a program that ran no test
        printf '  FAIL  %-52s status %d: %s\n' "$name" "$rc" "$*"
        sed 's/^/        | /' "$log" | tail -n 40
    fi >"$log.lines"
    echo "$ok $bad $time $cpu $name" >"$log.numbers"
}

# Print and count the runs that have ended.
collect() {
    local log still=() ok bad time cpu name
    for log in "${running[@]}"; do
        if ! [ -s "$log.numbers" ]; then still+=("$log"); continue; fi
        read -r ok bad time cpu name <"$log.numbers"
        cat "$log.lines"
        rm "$log.lines" "$log.numbers"
        times+=("$time $name")
        passed=$((passed + ok)) failed=$((failed + bad))
        used=$(awk "BEGIN { printf \"%.1f\", $used + $cpu }")
        [ "$bad" -eq 0 ] || broken+=("$name")
    done
    running=("${still[@]}")
}

running=()
start() {                                       # start NAME LOG COMMAND...: as soon as one of the $jobs places is free
    [ $((place++ % part_count)) -eq $((part_number - 1)) ] || return 0
    while [ ${#running[@]} -ge "$jobs" ]; do wait -n; collect; done
    rm -f "$2.numbers"
    run "$@" &
    running+=("$2")
}

run_file() {                                    # run_file FILE: as often as its head asks for
    local file=$1 base=${1%.*} p
    local name=${base#tests/} bin=$build/$base
    case $file in
        *.sh)                                   # as a user starts it
            local as_user=(env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS) parts
            parts=$([ "$TIER" != verify ] || says "$file" 'verify parts')
            if [ -z "$parts" ]; then start "$name" "$bin.log" "${as_user[@]}" bash "$file"; return; fi
            for ((p = 1; p <= parts; p++)); do
                SHARE=$p/$parts start "$name, part $p of $parts" "$bin.$p.log" "${as_user[@]}" bash "$file"
            done
            return ;;
    esac
    if ! grep -q '^ \* ranks: ' "$file"; then
        OMP_NUM_THREADS=$cores OPENBLAS_NUM_THREADS=$cores start "$name" "$bin.log" "$bin"
        return
    fi
    for p in $(ranks_of "$file"); do
        OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 start "$name, $p devices" "$bin.$p.log" "$MPIEXEC" -n "$p" "$bin"
    done
}

# ---- all of them --------------------------------------------------------------------------------------------------------------
only_say=
if [ "${1:-}" = --programs ]; then only_say=yes; shift; fi
[ $# -gt 0 ] || set -- tests/*/test_*.sh tests/*/test_*.c   # scripts take longer, so they start first
files=()
for file in "$@"; do if in_tier "$file"; then files+=("$file"); fi; done
if [ -n "$only_say" ]; then
    for file in "${files[@]}"; do case $file in *.c) echo "$build/${file%.c}" ;; esac; done
    exit 0
fi

for file in "${files[@]}"; do run_file "$file"; done
wait
collect
echo
echo "longest: $(printf '%s\n' "${times[@]}" | sort -rn | awk 'NR <= 5 { s = $1; sub(/^[^ ]* /, ""); printf "%s%s %ss", sep, $0, s; sep = "; " }')"
for name in "${broken[@]}"; do echo "failed: $name"; done
what=$TIER
[ "$part_count" = 1 ] || what="$TIER, part $part_number of $part_count"
echo "$passed passed, $failed failed    ($what, $(since "$begun") s on $cores cores, of processors ${used%.*} s)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
