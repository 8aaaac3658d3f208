# One command, many processes: they start together, end together, and whoever dies is named.
. "$(dirname "$0")/lib.sh"

. "$(dirname "$0")/processes.sh"

is_orrery() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -q "^$program train" || ps -o args= -p "$1" 2>/dev/null | grep -q "^$program train"; }

# A device is an orrery that was not started by an orrery: that would be a guardian, a witness, or all of this.
is_device() { is_orrery "$1" && ! is_orrery "$(all_processes | awk -v pid="$1" '$1 == pid { print $2 }')"; }

# Start a run that would last for ever, and wait for its first step.  Leaves its process in `job`, the devices in `devices`.
start() {
    make_text
    command="orrery train --steps 1000000 $*"
    out='' err='' devices=()
    : >"$place/out"
    set -m                                          # with a process group of its own, where interrupts are not ignored
    "$program" train --model tiny --data "$text" --steps 1000000 "$@" </dev/null >"$place/out" 2>"$place/err" &
    job=$!
    set +m
    for _ in $(seq 3000); do grep -q '^step' "$place/out" && break; sleep 0.1; done
    family=$(descendants $job)
    for p in $family; do is_device "$p" && devices+=("$p"); done
}

# It must end by itself soon, and everything with it.
finish() {
    local waited=0 p
    while is_alive $job && [ $waited -lt 1200 ]; do sleep 0.1; waited=$((waited + 1)); done
    if is_alive $job; then complain 'it does not end'; kill -9 $job; fi
    status=0; wait $job 2>/dev/null || status=$?
    waited=0
    for p in $family; do
        while is_alive "$p" && [ $waited -lt 600 ]; do sleep 0.1; waited=$((waited + 1)); done
        if is_alive "$p"; then complain "process $p is left"; kill -9 "$p"; fi
    done
    look
}

test_one_copy_under_mpiexec() {
    train_under 4 --dp 4 --steps 3 --dtype fp64 --check ref --json out.json
    expect_status 0; expect_silent; expect_file out.json
    [ "$(grep -c '^model ' "$place/out")" = 1 ] || complain 'not one line about the model'
    [ "$(grep -c '^step ' "$place/out")" = 3 ] || complain 'not three lines about three steps'
    [ "$(grep -c '^OK: ' "$place/out")" = 1 ] || complain 'not one verdict'
    train_under 2 --help;                   expect_status 0
    [ "$(grep -c '^usage: ' "$place/out")" = 1 ] || complain 'not one help'
}

test_same_with_and_without_launcher() {
    train --dp 2 --tp 2 --steps 2 --json own.json;              expect_status 0; expect_silent
    train_under 4 --dp 2 --tp 2 --steps 2 --json theirs.json;   expect_status 0
    expect_same <(results own.json) <(results theirs.json)
}

test_killed_device_is_named() {
    start --dp 2 --tp 2;                    kill -9 "${devices[2]}"; finish
    expect_status 1; expect_error 'device [0-3] \(dp=[01] tp=[01]\), process '"${devices[2]}"', died: Killed'
    start --pp 3;                           kill -ABRT "${devices[1]}"; finish
    expect_status 1; expect_error 'device [0-2] \(pp=[0-2]\), process '"${devices[1]}"', died: Aborted'
}

test_killed_device_behind_a_pipe() {
    make_text
    command='orrery train --dp 3 <&- 2>&1 | cat'
    {
        "$program" train --model tiny --data "$text" --steps 1000000 --dp 3 <&- 2>&1 &
        echo $! >"$place/launcher"
        wait $!; echo "status $?" >"$place/status"
    } | cat >"$place/out" &
    local p=''
    for _ in $(seq 3000); do grep -q '^step' "$place/out" && break; sleep 0.1; done
    for p in $(descendants "$(cat "$place/launcher")"); do is_device "$p" && break; done
    kill -9 "$p"
    for _ in $(seq 3000); do [ -e "$place/status" ] && break; sleep 0.1; done
    wait; : >"$place/err"; look
    [ "$(cat "$place/status")" = 'status 1' ] || complain "$(cat "$place/status"), expected 1"
    expect_out "^orrery: device [0-2] \(dp=[0-2]\), process $p, died: Killed"
}

test_device_that_hangs() {
    make_text
    start --dp 2 --wait-limit 2;            kill -STOP "${devices[0]}"; finish
    expect_status 1
    tail -n 1 "$place/err" | grep -qE '^orrery: nothing has moved for 2 s \(--wait-limit\): device [01] waits for device [01] to (send|receive): ' ||
        complain 'its last line does not say who waits for whom'
    ! grep -q 'died' "$place/err" || complain 'it calls the end that it made itself a death'
}

test_signals_end_everything() {
    start --dp 3;                           kill -TERM $job; finish
    expect_status 143; expect_error 'stopped: SIGTERM after step [0-9]+; nothing was saved, for there is no --save'
    start --dp 3;                           kill -INT $job; finish
    expect_status 130; expect_error 'stopped: SIGINT after step [0-9]+; nothing was saved, for there is no --save'
    start --dp 3;                           kill -STOP "${devices[1]}"; kill -INT $job; sleep 2; kill -INT $job; finish     # it has no patience
    expect_status 130; expect_error 'stopped: Interrupt; all 3 devices have ended'
    start --dp 2;                           kill -HUP $job; finish
    expect_status 129; expect_error 'stopped: Hangup; all 2 devices have ended'
    start --dp 2;                           kill -KILL $job; finish         # nobody is left to say anything
    expect_status 137
}

test_srun_without_pmi() {
    SLURM_STEP_NUM_TASKS=4 run train --model tiny --dp 2 --steps 1; expect_status 1; expect_error 'srun started 4 processes .* --mpi=pmi2'
    SLURM_STEP_NUM_TASKS=1 train --dp 2 --steps 1 --batch 2 --seq 8; expect_status 0; expect_silent
}

test_without_mpiexec() {
    make_text
    PATH=/nowhere run_without_path --dp 2
    expect_status 1; expect_error 'cannot start mpiexec[a-z.]* -n 2: is MPICH installed, and in PATH\?'
}

# Hydra that gets a signal while it starts its proxy waits for ever; so does this one, with two of three devices that say who they are.
test_mpiexec_that_hangs() {
    make_text; mkdir -p "$place/bin"
    cat >"$place/bin/$mpiexec" <<'END'
#!/bin/sh
printf 'orrery-process 1000001 0 dp=0\norrery-process 1000002 1 starting\n' >&2
sleep 100
END
    chmod +x "$place/bin/$mpiexec"
    export ORRERY_START_LIMIT=2; PATH=$place/bin:$PATH run_without_path --dp 3; unset ORRERY_START_LIMIT
    expect_status 1; expect_error "$mpiexec hangs: 1 of 3 devices have started, and none got further for 2 s \(ORRERY_START_LIMIT\); all were stopped"
}

# This one is not told that its devices have ended; what they have said is shown all the same.
test_mpiexec_that_does_not_end() {
    make_text; mkdir -p "$place/bin"
    printf '#!/bin/sh\nPATH=%s %s "$@"\nsleep 100\n' "$old_path" "$mpiexec" >"$place/bin/$mpiexec"
    chmod +x "$place/bin/$mpiexec"
    export ORRERY_START_LIMIT=4; PATH=$place/bin:$PATH run_without_path --dp 2 --steps 1; unset ORRERY_START_LIMIT
    expect_status 1; expect_out '^speed +median step'
    expect_error "$mpiexec hangs: it had not ended 4 s after all 2 devices \(ORRERY_START_LIMIT\), and was stopped"
}
mpiexec=$(sed -n "s/.*cannot start \([a-z.]*\) -n.*/\1/p" <<<"$(PATH=/nowhere "$program" train --model tiny --dp 2 --steps 1 2>&1)")
run_without_path() { command="PATH=/nowhere orrery train $*"; status=0; "$program" train --model tiny --data "$text" "$@" </dev/null >"$place/out" 2>"$place/err" || status=$?; PATH=$old_path look; }
old_path=$PATH

test_input_is_not_eaten() {
    make_text
    command='(orrery train --dp 2; cat) <lines'; seq 3 >lines
    { "$program" train --model tiny --data "$text" --steps 1 --dp 2 >/dev/null 2>"$place/err"; cat; } <lines >"$place/out"; look
    expect_same lines "$place/out"
}

# A reader that has seen enough, as head, changes no status and stops no work.
test_reader_that_leaves() {
    make_text
    local mesh words
    into_head() { command="orrery $* | head -n 1"; timeout -k 5 300 "$program" "$@" </dev/null 2>"$place/err" | head -n 1 >"$place/out"; status=${PIPESTATUS[0]}; look; }
    for mesh in '--dp 1' '--dp 2'; do
        into_head train --model tiny --data "$text" --batch 2 --seq 16 --steps 30 $mesh --save kept
        expect_status 0; expect_silent; expect_out '^model'; expect_file kept/training.json
        rm -r kept
    done
    into_head train --model tiny --data "$text" --batch 2 --seq 16 --steps 4 --dp 2 --tp 2 --check ref;  expect_status 0; expect_silent
    into_head train --model tiny --data "$text" --steps 1 --memory 1K;                expect_status 2
    into_head list;                                                                   expect_status 0; expect_silent
    into_head show schedule 1f1b --pp 64 --micro 200 --json -;                        expect_status 0; expect_silent
    into_head show schedule nothing;                                                  expect_status 2
}

# The disk is full, nobody listens.
test_output_that_ends_early() {
    make_text
    local mesh
    for mesh in '--dp 1' '--dp 2'; do
        local words="train --model tiny --data ../text --steps 2 $mesh"
        if [ -e /dev/full ]; then
            command="orrery $words >/dev/full"
            status=0; timeout -k 5 300 "$program" train --model tiny --data "$text" --steps 2 $mesh </dev/null 2>"$place/err" >/dev/full || status=$?; look
            expect_status 1; expect_error 'standard output: cannot be written'
        fi
        command="orrery $words >&-"
        status=0; timeout -k 5 300 "$program" train --model tiny --data "$text" --steps 2 $mesh </dev/null 2>"$place/err" >&- || status=$?; look
        expect_status 1; expect_error 'standard output: cannot be written'
        command="orrery $words 2>&-"
        status=0; timeout -k 5 300 "$program" train --model tiny --data "$text" --steps 2 $mesh </dev/null >"$place/out" 2>&- || status=$?; look
        expect_status 0; expect_out '^step'
    done
}

# What the machine has too little of is said in one line, before there are devices.
limited() { command="ulimit $1 $2; orrery train ${*:3}"; make_text; watched run_limited "$@"; }
within() { command="ulimit $1 $2; orrery ${*:3}"; watched within_limit "$@"; }
within_limit() { ( ulimit "$1" "$2"; shift 2; exec timeout -s KILL 60 "$program" "$@" ); }
run_limited() { ( ulimit "$1" "$2"; timeout -k 5 300 "$program" train --model tiny --data "$text" --steps 1 "${@:3}" ); }
test_machine_that_is_too_small() {
    make_text
    local words
    if [[ ${BUILD-} != *-san ]]; then       # whose shadow memory alone takes more addresses
        limited -v 200000 --dp 2;           expect_status 1; expect_error 'the address space is limited to 200000 KB'
        limited -v 200000;                  expect_status 1; expect_error 'the address space is limited to 200000 KB'
        # OpenBLAS takes 128 MB for each thread, as soon as it is loaded, and has no end without
        for words in 'list dtypes' --version 'train --model tiny --steps 1 --batch 2'; do
            within -d 20000 $words;         expect_status 1; expect_error "a process's data is limited to 20000 KB \\(ulimit -d\\); the BLAS and MPI need [0-9]+ KB"
            OMP_NUM_THREADS=1 within -d 300000 $words;  expect_status 1; expect_error "a process's data is limited to 300000 KB .* need 393216 KB"
            OMP_NUM_THREADS=1 within -d 450000 $words;  expect_status 0; expect_silent
            within -s 64 $words;            expect_status 1; expect_error 'the stack is limited to 64 KB \(ulimit -s\); orrery needs 2048 KB'
            within -s 1024 $words;          expect_status 1; expect_error 'the stack is limited to 1024 KB'
            within -s 2048 $words;          expect_status 0; expect_silent
        done
    fi
    limited -n 30 --dp 4;                   expect_status 1; expect_error '4 devices need 40 open files; a process here may have 30'
    # Were it not refused there would be no mpiexec to start them: thousands of devices would stop the machine.
    [ -r /proc/meminfo ] && [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -lt 37000000 ] || return 0
    PATH=/nowhere run_without_path --dp 4096 --batch 4096
    expect_status 1; expect_error '4096 devices need [34][0-9.]* GiB of memory, at least [0-9.]* [MG]iB of it for the model; this machine has .* left'
}

# Docker's /dev/shm has 64 MB, others none at all, or one that cannot be written.
test_small_shared_memory() {
    if ! unshare -m -i mount -t tmpfs -o size=64m tmpfs /dev/shm 2>/dev/null; then
        echo 'skipped: no name spaces of our own here'
        return
    fi
    make_text
    local size words="train --model tiny --data ../text --steps 1 --dp"
    for size in size=64m,rw:16 size=4k,rw:4 size=64m,ro:4; do
        command="orrery $words ${size#*:} with /dev/shm of ${size%:*}"
        watched unshare -m -i bash -c "mount -t tmpfs -o ${size%:*} tmpfs /dev/shm && '$program' $words ${size#*:} --batch 16 && [ -z \"\$(ls /dev/shm)\" ]"
        expect_status 0; expect_silent
    done
}

run_tests test_machine_that_is_too_small test_small_shared_memory test_one_copy_under_mpiexec test_same_with_and_without_launcher test_killed_device_is_named test_killed_device_behind_a_pipe \
          test_device_that_hangs test_signals_end_everything test_srun_without_pmi test_without_mpiexec test_mpiexec_that_hangs test_mpiexec_that_does_not_end test_input_is_not_eaten test_reader_that_leaves \
          test_output_that_ends_early
