# Where people start it: each environment of a table is right, or ends in one line, soon.
#
# A row is `right WHAT COMMAND...` or `line WHAT PATTERN COMMAND...`.  The command starts a run of two devices somewhere.
. "$(dirname "$0")/lib.sh"
seconds=60                                          # what hangs has no end; what waits here on purpose waits for a second
mpiexec=${MPIEXEC:-mpiexec}
words=(train --model tiny --dp 2 --steps 1 --batch 2 --seq 8)

right() { command="$1: ${*:2}"; watched "${@:2}"; expect_status 0; expect_silent; expect_out '^traffic counted '; }
line() { command="$1: ${*:3}"; watched "${@:3}"; expect_status 1; expect_error "$2"; [ -z "$out" ] || complain 'it has begun'; }
with() { right "${*:1:$#}" env "$@" "$program" "${words[@]}"; }

is_hydra() { "$mpiexec" --version 2>/dev/null | grep -q HYDRA || { echo 'skipped: not the mpiexec of MPICH'; return 1; }; }
here=$(hostname)

test_locales_and_threads() {
    local settings
    for settings in LC_ALL=C 'LC_ALL=de_DE.UTF-8 OMP_NUM_THREADS=4,2 OMP_WAIT_POLICY=active' \
                    'LC_ALL=tr_TR.UTF-8 LANG=tr_TR.UTF-8 OMP_PROC_BIND=true OMP_PLACES=cores' \
                    'LANG= OPENBLAS_NUM_THREADS=64 GOTO_NUM_THREADS=3 MKL_NUM_THREADS=3'; do
        with $settings
    done
    right 'nothing is set' env -i PATH="$PATH" "$program" "${words[@]}"
}

test_folders() {
    with TMPDIR=                                                    # as if it were not set
    mkdir 'two  words' 'wörter und "Zeichen"'
    with TMPDIR="$PWD/two  words"
    ln -s "$program" 'two  words/a program'
    right 'a program with blanks' "$PWD/two  words/a program" "${words[@]}" --save "$PWD/wörter und \"Zeichen\"/kept" --log 'two  words/l.jsonl'
    expect_file 'wörter und "Zeichen"/kept/training.json'; expect_file 'two  words/l.jsonl'
    command='TMPDIR that is not there'
    watched env TMPDIR="$PWD/nowhere" "$program" "${words[@]}"
    if [ "$status" = 0 ]; then expect_silent; else expect_error "nowhere"; fi
    right 'who started us ignores SIGCHLD' env --ignore-signal=CHLD "$program" "${words[@]}"
}

# Hosts that have no name, no network, or little shared memory: in name spaces of our own, where they are allowed.
test_hosts() {
    unshare -r -u -n -m true 2>/dev/null || unshare -u -n -m true 2>/dev/null || { echo 'skipped: no name spaces of our own here'; return; }
    local root=-r; [ "$(id -u)" != 0 ] || root=
    right 'a name that nobody knows' unshare $root -u sh -c 'hostname nobody.knows.this && exec "$@"' sh "$program" "${words[@]}"
    right 'no network' unshare $root -n "$program" "${words[@]}"
    right 'shared memory of 1 MB' unshare $root -m -i sh -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"' sh "$program" "${words[@]}"
    right 'shared memory that cannot be written' unshare $root -m -i sh -c 'mount -t tmpfs -o size=1m,ro tmpfs /dev/shm && exec "$@"' sh "$program" "${words[@]}"
}

within() { line "ulimit $1 $2" "$3" bash -c "ulimit $1 $2; exec \"\$@\"" bash "$program" "${words[@]}"; }
test_limits() {
    if [[ ${BUILD-} != *-san ]]; then               # whose shadow memory alone takes more
        within -s 64 'the stack is limited to 64 KB \(ulimit -s\)'
        within -s 256 'the stack is limited to 256 KB \(ulimit -s\)'
        within -d 20000 "a process's data is limited to 20000 KB \\(ulimit -d\\)"
        within -v 200000 'the address space is limited to 200000 KB'
    fi
    within -n 30 'a process here may have 30'
    [ "$(id -u)" = 0 ] || within -u 5 '2 devices need [0-9]+ processes and threads|there is no room for another process'
    line 'ulimit -f 1' 'File too large' bash -c 'ulimit -f 1; exec "$@"' bash "$program" "${words[@]}" --quiet --save kept
}

# What a batch system's mpiexec would start devices with is often not in a container, which keeps the system's variables.
in_job() { local name=$1; shift; right "$name" env -u SLURM_JOB_ID PATH="$place/bin:$PATH" "$@" "$program" "${words[@]}"; }
test_jobs_of_one_host() {
    is_hydra || return 0
    mkdir "$place/bin"; echo "$here" >hosts; echo "$here 4 all.q UNDEFINED" >queue; printf '%s\n%s\n' "$here" "$here" >nodes
    in_job Slurm SLURM_JOB_ID=1 SLURM_NODELIST="$here" SLURM_NNODES=1 SLURM_TASKS_PER_NODE=4
    in_job 'Slurm, in a container with a name of its own' SLURM_NODELIST=elsewhere SLURM_NNODES=1 SLURM_TASKS_PER_NODE=4
    in_job LSF LSF_BINDIR=/nowhere LSB_MCPU_HOSTS="$here 4"
    in_job 'Grid Engine' SGE_ROOT=/nowhere ARC=x PE_HOSTFILE="$PWD/queue"
    in_job LoadLeveler LOADL_HOSTFILE="$PWD/hosts" MP_CHILD=0
    in_job PBS PBS_NODEFILE="$PWD/nodes"
    in_job Cobalt COBALT_NODEFILE="$PWD/hosts"
    # a host that srun would reach is left to srun
    printf '#!/bin/sh\necho reached >"%s/srun"\nexit 3\n' "$PWD" >"$place/bin/srun"; chmod +x "$place/bin/srun"
    watched env PATH="$place/bin:$PATH" SLURM_NODELIST=elsewhere SLURM_NNODES=1 SLURM_TASKS_PER_NODE=4 ORRERY_START_LIMIT=2 "$program" "${words[@]}"
    expect_status 1; expect_file srun; rm -f srun
    # and this machine never needs it; nor does the user's own choice change
    in_job 'Slurm, with an srun' SLURM_NODELIST="$here" SLURM_NNODES=1 SLURM_TASKS_PER_NODE=4
    [ ! -e srun ] || complain 'srun has started devices of this machine'
    watched env PATH="$place/bin:$PATH" HYDRA_LAUNCHER=slurm SLURM_NODELIST="$here" SLURM_NNODES=1 SLURM_TASKS_PER_NODE=4 ORRERY_START_LIMIT=2 "$program" "${words[@]}"
    expect_file srun
}

test_jobs_of_several_hosts() {
    is_hydra || return 0
    if command -v srun >/dev/null; then echo 'skipped: there is an srun'; return; fi
    export ORRERY_START_LIMIT=20                    # whoever has complained gets a twentieth of it
    local advice='it took the hosts from %s: HYDRA_RMK=user HYDRA_LAUNCHER=fork starts all devices on this machine'
    line Slurm "0 of 2 devices have started.*it has said: .*srun.*$(printf "$advice" Slurm)" \
        env SLURM_NODELIST='n[1-2]' SLURM_NNODES=2 SLURM_TASKS_PER_NODE='4(x2)' "$program" "${words[@]}"
    line LSF "it has said: .*blaunch.*$(printf "$advice" LSF)" env LSF_BINDIR=/nowhere LSB_MCPU_HOSTS='a 4 b 4' "$program" "${words[@]}"
    with HYDRA_RMK=user HYDRA_LAUNCHER=fork SLURM_NODELIST='n[1-2]' SLURM_NNODES=2 SLURM_TASKS_PER_NODE='4(x2)'
    line 'a list of hosts that is not there' 'unable to open host file: /nowhere' env PBS_NODEFILE=/nowhere "$program" "${words[@]}"
    unset ORRERY_START_LIMIT
}

# A launcher that says nothing is waited for, and that is said once.
test_silent_launcher() {
    mkdir "$place/bin"
    local name; name=$(sed -n "s/.*cannot start \([a-z.]*\) -n.*/\1/p" <<<"$(PATH=/nowhere "$program" "${words[@]}" 2>&1)")
    printf '#!/bin/sh\necho "[mpiexec@x] WARNING: something" >&2\nsleep 3\nexec "%s" "$@"\n' "$(command -v "$name")" >"$place/bin/$name"; chmod +x "$place/bin/$name"
    command='a slow launcher'
    watched env PATH="$place/bin:$PATH" ORRERY_START_LIMIT=20 "$program" "${words[@]}"
    expect_status 0; expect_out '^traffic counted '
    expect_error 'no device has reported for [0-9.]+ s; .* has said \[mpiexec@x\] WARNING: something$'
}

# Started by a rank of another job, with its variables and without its line.
test_variables_of_another_launcher() {
    local settings
    with PMI_RANK=3 PMI_SIZE=4
    with PMI_RANK=0 PMI_SIZE=1 PMI_FD=9 HYDI_CONTROL_FD=10
    with PMI_RANK=0 PMI_SIZE=1 PMI_FD=
    with PMI_RANK=0 PMI_SIZE=1 PMI_FD=seven
    with PMI_RANK=2 PMI_SIZE=4 PMI_FD=9 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2               # a child of one of srun's tasks
    with SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4
    is_hydra || return 0
    with PMIX_RANK=1 PMIX_NAMESPACE=of.another OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_ess=pmi
    inside() { right "$1" "$mpiexec" -n 1 bash -c "$2; exec \"\$@\"" bash "$program" "${words[@]}"; }
    inside 'its line is closed' 'eval "exec $PMI_FD>&-"'
    inside 'its line is a file' 'eval "exec $PMI_FD<\"$0\"" 2>/dev/null || eval "exec $PMI_FD</dev/null"'
    inside 'its line is a pipe' 'eval "exec $PMI_FD< <(sleep 1)"'
    # a wrapper of ranks is none of this
    right 'a wrapper' "$mpiexec" -n 2 bash -c '"$@"; exit $?' bash "$program" "${words[@]}"
    command='a rank of one'; watched "$mpiexec" -n 1 bash -c '"$@"; exit $?' bash "$program" "${words[@]}"
    expect_status 2
    tail -n 5 "$place/err" | grep -q 'the launcher started 1 process, but --dp 2' || complain 'it does not say how many were started'
}

# Python's subprocess closes all descriptors.
test_python_under_a_launcher() {
    is_hydra || return 0
    local python='' one
    for one in "${PYTHON:-}" python3; do
        if [ -n "$one" ] && "$one" -c '' 2>/dev/null; then python=$one; break; fi
    done
    [ -n "$python" ] || { echo 'skipped: there is no Python'; return; }
    under_python() { command="mpiexec -n 1 python: orrery $*"; watched "$mpiexec" -n 1 "$python" -c 'import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode & 255)' "$program" "$@"; }
    under_python --version;                                 expect_status 0; expect_out '^orrery '
    under_python list dtypes;                               expect_status 0; expect_out '^  bf16 '
    under_python "${words[@]}";                             expect_status 0; expect_silent; expect_out '^traffic counted '
    under_python verify collectives --devices 2 --only ring;    expect_status 0; expect_out ' 0 failed|passed'
    "$python" -c 'import numpy' 2>/dev/null || { echo 'skipped: this Python has no numpy for the package'; return; }
    command='mpiexec -n 1 python: import orrery'
    watched env ORRERY="$program" PYTHONPATH="$top/tutorials/python" PYTHONDONTWRITEBYTECODE=1 "$mpiexec" -n 1 "$python" -c \
        'import orrery; print(orrery.train(model="tiny", dp=2, steps=1, batch=4).status)'
    expect_status 0; expect_out '^0$'
}

# Files of the system say that they have no bytes, and pipes have no size.
test_files_without_a_size() {
    command='--config of a pipe'; watched bash -c '"$1" train --config <(printf "dp: 2\nmodel: tiny\nsteps: 1\nbatch: 2\n") --seq 8' bash "$program"
    expect_status 0; expect_out '^mesh .*2 devices'
    : >empty; run train --config empty;                     expect_status 2; expect_error 'empty'
    [ -r /proc/self/environ ] || return 0
    run train --config /proc/self/environ;                  [ "$status" != 0 ] || complain 'the environment is taken for settings'
    expect_error '/proc/self/environ'
}

run_tests test_locales_and_threads test_folders test_hosts test_limits test_jobs_of_one_host test_jobs_of_several_hosts test_silent_launcher \
          test_variables_of_another_launcher test_python_under_a_launcher test_files_without_a_size
