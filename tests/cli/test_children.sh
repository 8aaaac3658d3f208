# Commands that start other processes: a signal ends them with all that they have started, and one that hangs is named.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/processes.sh"

# Whether a process below another one has a command line that matches.
is_below() { local p; for p in $(descendants "$1"); do tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline"; echo; done | grep -qE -- "$2"; }

any_alive() { local p; for p in "$@"; do ! is_alive "$p" || return 0; done; return 1; }

# ends_all SIGNAL PATTERN WORDS...: orrery WORDS gets a signal when a process that it has started matches; then all of them end soon.
ends_all() {
    local signal=$1 pattern=$2 job below waited seen=; shift 2
    command="orrery $*; kill -$signal"
    set -m; "$program" "$@" </dev/null >"$place/out" 2>"$place/err" & job=$!; set +m
    for waited in $(seq 1200); do is_below $job "$pattern" && seen=yes && break; is_alive $job || break; sleep 0.05; done
    [ -n "$seen" ] || complain "it has not started $pattern"
    below=$(descendants $job)
    kill -"$signal" $job
    for waited in $(seq 600); do any_alive $job $below || break; sleep 0.05; done
    look
    ! any_alive $job $below || { complain "left running: $(for p in $job $below; do ! is_alive $p || tr '\0' ' ' <"/proc/$p/cmdline"; done)"; kill -KILL $job $below 2>/dev/null; }
    status=0; wait $job 2>/dev/null || status=$?
    expect_status $((128 + $(kill -l "$signal")))
    case $signal in KILL) expect_silent ;; *) [ "$1" = sweep ] || expect_error "stopped: .*; what it had started has ended" ;; esac
}

# SIGHUP may be ignored by who has started us: then it is by all of us.
signals='TERM INT KILL'; [ -n "$(trap -p HUP)" ] || signals="$signals HUP"

# Each message late, so that the mesh of two takes long.
test_bench_step() {
    export ORRERY_DELAY=3000000
    local signal
    for signal in $signals; do ends_all $signal 'train --model tiny --dp 2' bench step --model tiny --devices 2 --runs 1 --rounds 1; done
    unset ORRERY_DELAY
}

test_other_benches() {
    mkdir temporary; export TMPDIR=$PWD/temporary
    ends_all TERM 'bench check' bench check --model 11m
    for _ in $(seq 100); do [ -n "$(ls temporary)" ] || break; sleep 0.1; done; expect_nothing temporary; unset TMPDIR
    ends_all INT 'bench plan' bench plan --model tiny --devices 16384 --unfolded
}

# A compiler is several processes.
test_compilers() {
    printf '#!/bin/sh\nsleep 1000\n' >slow; chmod +x slow; : >mine.c
    cp "$top/emulated_devices/device/cuda/kernels/rmsnorm.cu" mine.cu
    mkdir temporary; export TMPDIR=$PWD/temporary
    CC=$PWD/slow ends_all TERM 'sleep 1000' train --plugin mine.c
    expect_nothing temporary; unset TMPDIR
    ends_all HUP 'cc1plus|clang' kernel mine.cu --check
}

test_sweep() {
    printf 'set:\n  model: tiny\n  steps: 100000\n  dp: 2\ngrid:\n  lr: [1e-3, 2e-3]\n' >grid.yaml
    local signal
    for signal in $signals; do rm -rf S; ends_all $signal 'train --config' sweep grid.yaml --out S; done
}

# A student's function that never returns.
test_exercises() {
    run learn --start mine; expect_status 0
    sed 's/{$/{ for (;;) continue;/' "$top/tutorials/01_sums/sums.c" >mine/01_sums/sums.c
    local signal
    for signal in TERM KILL; do ends_all $signal '^worker' learn 1 --in mine; done
    ends_all INT '^worker' grade mine --lessons 1
}

# Who has started us may not want to hear of children, which is inherited; mpiexec would wait for its own for ever.  (`timeout` alone would undo it.)
test_ignored_children() {
    env --ignore-signal=CHLD true 2>/dev/null || { echo 'skipped: this env knows no signals'; return; }
    local seconds=100
    command='orrery train, SIGCHLD ignored'
    watched env --ignore-signal=CHLD "$program" train --model tiny --dp 2 --steps 1; expect_status 0
    command='orrery bench step, SIGCHLD ignored'
    watched env --ignore-signal=CHLD "$program" bench step --model tiny --devices 2 --runs 1 --rounds 1; expect_status 0; expect_silent
}

test_under_a_launcher() {
    run_under 2 bench step --model tiny --runs 1 --rounds 1 --devices 2
    expect_status 2; expect_error 'starts its runs of `orrery train` itself; not under a launcher'
}

# Why a run was stopped: which of its processes waited, and the last thing that one of them had said.
test_a_run_that_hangs() {
    export ORRERY_DELAY=100000000
    run bench step --model tiny --devices 2 --runs 1 --rounds 1 --run-limit 3
    expect_status 1; expect_error 'orrery train --model tiny --dp 2 .*: had not ended after 3 s, and was stopped; then .*orrery [0-9]+ waits'
    unset ORRERY_DELAY
}

run_tests test_bench_step test_other_benches test_compilers test_sweep test_exercises test_ignored_children test_under_a_launcher test_a_run_that_hangs
