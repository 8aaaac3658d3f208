# Whoever of a job is killed, with whatever signal and at whatever moment: all of it is over soon, says so, and leaves nothing.
#
# KILLS=n of each target; the third tier has 200.  SEED=n repeats a run's choices.  A line for each target says how many, and the
# longest time from the signal to the end of the last process.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/processes.sh"

# Shared memory can only be counted where nobody else has any: in name spaces of our own, where that is allowed.
if [ -z "${KILLS_ALONE:-}" ] && unshare -m -i true 2>/dev/null; then
    KILLS_ALONE=yes exec unshare -m -i bash "$0"
fi
[ -z "${KILLS_ALONE:-}" ] || mount -t tmpfs -o size=1g tmpfs /dev/shm 2>/dev/null || KILLS_ALONE=
[ -n "${KILLS_ALONE:-}" ] || echo 'shared memory is not looked at: no name spaces of our own here'

# The limit of 5 seconds is for a machine that does nothing else, which only the third tier may ask for.
case ${TIER:-test} in
    verify) kills=${KILLS:-200} limit=${KILL_LIMIT:-5} ;;       # seconds
    *)      kills=${KILLS:-2}   limit=${KILL_LIMIT:-60} ;;
esac
seed=${SEED:-$(($$ % 32768))}
RANDOM=$seed

milliseconds() { echo $((${EPOCHREALTIME/./} / 1000)); }

# Processes of the job, wherever they hang now, by a mark in their environment; those that have ended have none any more.
left_over() { grep -lzsx "ORRERY_KILLED_JOB=$mark" /proc/[0-9]*/environ | sed 's|/proc/\([0-9]*\)/.*|\1|'; }

# find TARGET: its process, once there is one.
find_target() {
    local job=$1 target=$2 mode=$3 names
    names=$(all_processes | awk -v root="$job" -v target="$target" -v mode="$mode" '
        { parent[$1] = $2; state[$1] = $3; name[$1] = $4 }
        END {
            for (p in parent) {
                if (state[p] == "Z") continue
                q = p; for (n = 0; n < 20 && q in parent && q != root; n++) q = parent[q]
                if (q != root) continue
                is_proxy = name[p] ~ /^hydra_pmi_pro/; is_mpiexec = name[p] ~ /^mpiexec/
                if (target == "launcher" && p == root || target == "mpiexec" && is_mpiexec || target == "proxy" && is_proxy ||
                    target == "device" && name[parent[p]] ~ /^hydra_pmi_pro/) print p
            }
        }')
    set -- $names
    [ $# -eq 0 ] || echo "${@:RANDOM % $# + 1:1}"
}

# start MODE: a run that takes a second or so and saves what it has learnt.
start_job() {
    local words="train --model tiny --data ../text --steps 30 --dp 3 --save saved"
    rm -rf saved
    if [ "$1" = own ]; then ORRERY_KILLED_JOB=$mark "$program" $words </dev/null >/dev/null 2>"$place/err" &
    else ORRERY_KILLED_JOB=$mark "${MPIEXEC:-mpiexec}" -n 3 "$program" $words </dev/null >/dev/null 2>"$place/err" & fi
    job=$!
}

# Whether nothing of the job is left: no process, and no shared memory, which the kernel takes back a moment after the process is gone.
is_over() {
    [ -z "$(left_over)" ] || return 1
    [ -z "${KILLS_ALONE:-}" ] || { [ -z "$(ls /dev/shm)" ] && [ "$(wc -l </proc/sysvipc/shm)" = 1 ]; }
}

# One kill.  @return 1 if the run was over before it.
kill_once() {
    local target=$1 mode=$2 signal=$3 delay=$4 victim='' begun rank='' started=yes took mark=$$-$RANDOM$RANDOM
    command="kill -$signal $target of a job started by $mode, after $delay ms (SEED=$seed)"
    set -m; start_job "$mode"; set +m
    sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
    while [ -z "$victim" ] && is_alive $job; do victim=$(find_target $job "$target" "$mode"); done
    [ -z "$victim" ] || rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$victim/environ" | sed -n 's/^PMI_RANK=//p')
    [ -n "$(find_target $job mpiexec "$mode")" ] || started=
    begun=$(milliseconds)
    [ -z "$victim" ] || kill -"$signal" "$victim" 2>/dev/null || victim=''
    while ! is_over && [ $(($(milliseconds) - begun)) -lt $((limit * 2000)) ]; do sleep 0.05; done
    took=$(($(milliseconds) - begun))
    local left; left=$(left_over)
    [ -z "$left" ] || kill -9 $left $job 2>/dev/null
    status=0; wait $job 2>/dev/null || status=$?
    look
    [ -n "$victim" ] && [ $status -ne 0 ] || return 1
    [ -z "$left" ] || complain "left running: $left"
    [ $took -le $((limit * 1000)) ] || complain "it took $took ms to end"
    [ $took -le "$longest" ] || longest=$took
    if [ -n "${KILLS_ALONE:-}" ]; then
        [ -z "$(ls /dev/shm)" ] || complain "left in /dev/shm: $(ls /dev/shm)"
        [ "$(wc -l </proc/sysvipc/shm)" = 1 ] || complain "left of System V's shared memory: $(cat /proc/sysvipc/shm)"
        rm -f /dev/shm/*; ipcrm --all=shm 2>/dev/null
    fi
    [ "$mode" = own ] || return 0
    case $target-$signal in
        launcher-KILL) [ $status = 137 ] || complain "exit status $status, expected 137" ;;
        launcher-*) [ -z "$started$err" ] || expect_error 'stopped: (SIG(INT|TERM) after step [0-9]+; saved in saved$|.*; all 3 devices have ended)' ;;
        device-*) expect_error "$(device_line "$victim" "$rank")" ;;
        *) expect_error '(died|ended|failed)' ;;
    esac
}

# A device that died in its first milliseconds may not have said who it is; then it is one of a few.
device_line() { echo "(device ${2:-[0-2]}( \\([a-z0-9= ]*\\), process $1,)? died|it is one of ([0-9], )*${2:-[0-9]}[,;])"; }

test_kill() {
    local target=$1 n=0 late=0 mode signal signals=(KILL TERM) modes=(own user)
    for signal in INT HUP; do [ -n "$(trap -p $signal)" ] || signals+=($signal); done    # ignored by who started us: by all of us
    make_text; : >"$place/out"
    local mark=none t0; t0=$(milliseconds); start_job own; wait $job
    local span=$(($(milliseconds) - t0))
    longest=0
    [ "$target" != launcher ] || modes=(own)
    while [ $n -lt "$kills" ] && [ $late -lt $((kills * 4 + 20)) ]; do
        mode=${modes[n % ${#modes[@]}]} signal=${signals[RANDOM % ${#signals[@]}]}
        if kill_once "$target" "$mode" "$signal" $((RANDOM % (span + 1))); then n=$((n + 1)); else late=$((late + 1)); fi
    done
    command="kills of the $target"
    [ $n -eq "$kills" ] || complain "only $n of $kills kills came in time"
    echo "$target: $n kills, $late too late; the longest end took $longest ms"
}
test_kills_of_the_launcher() { test_kill launcher; }
test_kills_of_mpiexec() { test_kill mpiexec; }
test_kills_of_the_proxy() { test_kill proxy; }
test_kills_of_a_device() { test_kill device; }

run_tests test_kills_of_the_launcher test_kills_of_mpiexec test_kills_of_the_proxy test_kills_of_a_device
