# Processes of a run are killed with kill -9, at many moments: the run goes on from snapshots in shared memory, nothing is lost but
# the step, and the steps and weights are those of the run that nobody kills, to the last bit.
#
# KILLS=n moments; the third tier has 100.  SEED=n repeats a run's choices.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/processes.sh"

words_of() { case ${mesh:-} in *--model*) ;; *) echo --model tiny ;; esac | echo "train $(cat) --data $text --batch 8 --seq 8 --arithmetic exact --dropout 0.1 --steps ${steps:-12} ${mesh:---dp 3 --zero 1}"; }

# Losses of all steps, of all processes that the run had; and the fingerprint of the weights.
numbers_of() {                                          # numbers_of JSON OUT
    awk '/"earlier_losses":/ { print; exit }' "$1" | grep -oE '[0-9]+\.[0-9]+'
    awk '/^\t"steps":/, /^\t\]/' "$1" | grep -oE '"loss":[[:space:]]*[0-9.]+' | grep -oE '[0-9]+\.[0-9]+'
    # A kill in the middle of the report lets it be written again.
    grep -o 'fingerprint [0-9a-f]*' "$2" | tail -n 1
}

# Processes of a job: devices, mpiexec, or MPICH's proxy between them.
find_targets() {                                        # find_targets JOB device|mpiexec|proxy
    all_processes | awk -v root="$1" -v target="$2" '
        { parent[$1] = $2; state[$1] = $3; name[$1] = $4 }
        END {
            for (p in parent) {
                if (state[p] == "Z") continue
                q = p; for (n = 0; n < 20 && q in parent && q != root; n++) q = parent[q]
                if (q != root) continue
                if (target == "device" && name[parent[p]] ~ /^hydra_pmi_pro/ || target == "mpiexec" && name[p] ~ /^mpiexec/ ||
                    target == "proxy" && name[p] ~ /^hydra_pmi_pro/) print p
            }
        }' | sort -n
}

start_job() {                                           # start_job WORDS...
    command="orrery $*"
    rm -f "$place/out" "$place/err"
    "$program" "$@" </dev/null >"$place/out" 2>"$place/err" &
    job=$!
}
end_job() { status=0; wait $job 2>/dev/null || status=$?; look; }

milliseconds() { echo $((${EPOCHREALTIME/./} / 1000)); }
rest() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }
wait_for_line() {                                       # wait_for_line LINE: of the job's output
    until grep -qE -- "$1" "$place/out" 2>/dev/null || ! is_alive $job; do sleep 0.02; done
}

# kill_one TARGET [PLACE]: of the job; one by chance without a place.
kill_one() {
    local found; found=$(find_targets $job "$1")
    set -- "$1" "${2:-}" $found
    [ $# -gt 2 ] || return 1
    local n=$(($# - 2)) at=${2:-}
    victim=${@:$((${at:-$((RANDOM % n))} + 3)):1}
    kill -9 "$victim" 2>/dev/null
}

make_whole() {
    make_text
    local key=whole${mesh:-}
    whole=${key// /}
    [ ! -e "$whole" ] || return 0
    run $(words_of) --json whole.json;                  expect_status 0
    numbers_of whole.json "$place/out" >"$whole"
    [ "$(wc -l <"$whole")" = 13 ] || complain "the whole run has $(wc -l <"$whole") numbers"
}
expect_whole() {
    numbers_of run.json "$place/out" >now
    expect_same "$whole" now
}

test_a_device_is_killed() {
    make_whole
    start_job $(words_of) --survive 1 --json run.json
    wait_for_line '^step +5/'; kill_one device
    end_job; expect_status 0; expect_silent; expect_whole
    expect_out '^survive up to 1 kill: snapshots take .* of shared memory, twice .* of a device at most'
    expect_out '^survived device [0-2] \(dp=[0-2]\), process [0-9]+, died: Killed; all were started again from the snapshots of step '
    expect_out 'was done .* after the kill, with .* of processors'
    [ "$(grep -n '^survive up' "$place/out" | cut -d: -f1)" = 1 ] || complain 'the size is not said before the start'
    # It stands between the beginning of the run and the steps: a line is not lost, and no step is done that is not said.
    [ "$(grep -cE '^step +[0-9]+/12' "$place/out")" -ge 12 ] || complain 'a step is not in the report'
}

# Whoever of the job is killed, but the launcher.
test_mpiexec_and_its_proxy_are_killed() {
    find_targets $$ proxy >/dev/null
    make_whole
    start_job $(words_of) --survive 2 --json run.json
    wait_for_line '^step +3/'; kill_one mpiexec
    wait_for_line '^step +7/'; kill_one proxy || kill_one mpiexec
    end_job; expect_status 0; expect_silent; expect_whole
    [ "$(grep -c '^survived ' "$place/out")" -ge 1 ] || complain 'it does not say what it has survived'
}

# Killed again before it has got as far as a step; and once more than it was asked for.
test_killed_in_recovery() {
    make_whole
    start_job $(words_of) --survive 2 --json run.json
    wait_for_line '^step +5/'; kill_one device
    local old=$victim
    until [ -n "$(find_targets $job device | awk -v old="$old" '$1 > old')" ] || ! is_alive $job; do :; done
    kill_one device
    end_job; expect_status 0; expect_silent; expect_whole
    start_job $(words_of) --survive 1 --json run.json
    wait_for_line '^step +3/'; kill_one device
    wait_for_line '^survived '; kill_one device
    end_job; expect_status 1
    expect_error 'device [0-2] .* died: Killed; the others were stopped; 1 kill had been survived \(--survive\)$'
}

# When all is said, nothing is done again.  Device 1 is held at its end, so that it is there to be killed; its witness is not,
# which leads a process group of its own.
test_killed_after_the_end() {
    type cc >/dev/null 2>&1 || { echo 'skipped: there is no cc'; return; }
    cat >hold.c <<'END'
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static pid_t began;
__attribute__((constructor)) static void begin(void) { began = getpid(); }
static void hold(void)
{
    const char *const rank = getenv("PMI_RANK");
    if (rank && strcmp(rank, "1") == 0 && getpid() == began) sleep(60);
}
__attribute__((destructor)) static void hold_at_exit(void) { hold(); }
void _exit(int status)
{
    hold();
    for (;;) syscall(SYS_exit_group, status);
}
END
    cc -shared -fPIC -o hold.so hold.c || { echo 'skipped: cc makes no library'; return; }
    make_whole
    LD_PRELOAD=$PWD/hold.so start_job $(words_of) --survive 1 --json run.json
    wait_for_line '^bits'; rest 200; kill_one device || complain 'device 1 was not held'
    end_job; expect_status 0; expect_silent; expect_whole
    expect_out '^survived a death after the run had ended: .* died: Killed'
    [ "$(grep -c '^bits' "$place/out")" = 1 ] || complain 'the run has reported twice'
}

# At any moment from the start to the end, of a run that also saves and logs.
test_killed_at_many_moments() {
    local kills=${KILLS:-2} n=0 span begun more='--save saved --save-every 4 --log log.jsonl' folder f
    [ "$TIER" != verify ] || kills=${KILLS:-100}
    RANDOM=${SEED:-$$}
    make_whole
    begun=$(milliseconds)
    run $(words_of) --survive 3 --json run.json $more;  expect_status 0; expect_whole
    span=$(($(milliseconds) - begun))
    mv saved expected
    while [ $n -lt "$kills" ]; do
        local moment=$((RANDOM % span)) seen=$broken
        rm -rf saved log.jsonl run.json
        start_job $(words_of) --survive 3 --json run.json $more
        rest $moment; kill_one device
        [ $((n % 2)) = 0 ] || { rest $((RANDOM % span)); kill_one device; }
        end_job; expect_status 0; expect_silent; expect_whole
        for folder in expected/*; do
            for f in model.safetensors optimizer.safetensors training.json; do expect_same "$folder/$f" "saved/${folder#*/}/$f"; done
        done
        [ "$(grep -oE '"step":[0-9]+,"loss"' log.jsonl | sort -u | wc -l)" = 12 ] || complain "the log has $(cat log.jsonl)"
        [ "$(grep -cE '"type":"step"' log.jsonl)" = 12 ] || complain "the log has $(grep -c '"type":"step"' log.jsonl) steps"
        [ "$broken" = "$seen" ] || { echo "after $moment ms of $span ms (SEED=${SEED:-$$})"; break; }
        n=$((n + 1))
    done
}

# With sums that are not exact, too: a mesh and a machine that stay have the same bits.
test_other_meshes() {
    local mesh
    for mesh in '--dp 2 --tp 2 --dtype bf16 --zero 2' '--dp 2 --cp 2 --zero 3 --sharded --save saved --save-every 3 --save-async' \
                '--pp 2 --chunks 2 --schedule interleaved --micro 2' '--dp 1' '--tp 2 --dtype fp16' '--dp 3 --optimizer radam' '--model mixtral-tiny --dp 2 --ep 2 --balance-over batch'; do
        make_whole
        rm -rf saved
        start_job $(words_of) --survive 1 --json run.json
        wait_for_line '^step +6/'; kill_one device
        end_job; expect_status 0; expect_silent; expect_whole
        [ "$TIER" = verify ] || break
    done
}

# From the kill to the end of the next step: less than 2 seconds on a machine that does nothing else, which only the third tier
# may ask for; in any tier it takes less than 2 seconds of processors.
test_how_long_it_takes() {
    local took processors
    make_text
    start_job train --model tiny --data "$text" --batch 8 --seq 8 --dp 8 --steps 30 --survive 1 --json run.json
    wait_for_line '^step +6/'; kill_one device
    end_job; expect_status 0
    took=$(grep -oE '"stepped_seconds":[[:space:]]*[0-9.]+' run.json | grep -oE '[0-9.]+$')
    processors=$(grep -oE '"processor_seconds":[[:space:]]*[0-9.]+' run.json | grep -oE '[0-9.]+$')
    echo "8 devices: $took s from the kill to the end of the next step, $processors s of processors"
    awk -v s="$processors" 'BEGIN { exit !(s > 0 && s < 2) }' || complain "it took $processors s of processors"
    [ "$TIER" != verify ] || awk -v s="$took" 'BEGIN { exit !(s > 0 && s < 2) }' || complain "it took $took s"
}

# The memory has no name: it goes with the last process, and a small /dev/shm is no matter.
test_a_killed_launcher() {
    make_text
    start_job $(steps=400 words_of) --survive 1 --save saved --save-every 1 --keep 2
    wait_for_line '^step +21/'
    local devices; devices=$(find_targets $job device)
    kill -9 $job; end_job 2>/dev/null
    [ $status = 137 ] || complain "exit status $status"
    local p n
    for p in $devices; do for ((n = 0; n < 200; n++)); do is_alive "$p" || break; sleep 0.05; done; ! is_alive "$p" || complain "$p is left"; done
    run $(steps=2 words_of) --save saved --save-every 1 --resume auto;        expect_status 0
    expect_out '^resumed '
}
test_a_small_shared_memory() {
    make_whole
    (ulimit -f 100; run $(words_of) --survive 1; expect_status 1
     expect_error '--survive: the snapshots need .* of shared memory: File too large'; [ $broken = 0 ]) || broken=1
    unshare -m -r true 2>/dev/null || { echo 'skipped: no name spaces of our own here'; return 0; }
    cat >small.sh <<'END'
mount -t tmpfs -o size=16k tmpfs /dev/shm && exec "$@"
END
    start_job_in() { command="orrery $*"; unshare -m -r bash small.sh "$program" "$@" </dev/null >"$place/out" 2>"$place/err" & job=$!; }
    start_job_in $(words_of) --survive 1 --json run.json
    wait_for_line '^step +5/'; kill_one device
    end_job; expect_status 0; expect_silent; expect_whole
}

test_what_is_refused() {
    make_text
    run_under 3 $(words_of) --survive 1;                expect_status 2
    expect_error '--survive: another launcher has started this process, as mpiexec or srun do'
    SLURM_STEP_NUM_TASKS=3 run $(words_of) --survive 1; expect_status 1; [ ! -s "$place/out" ] || complain 'it says something before it refuses'; expect_error 'srun started 3 processes that do not know of each other'
    ORRERY_ONE_PROCESS=1 run $(words_of) --survive 1;   expect_status 2; expect_error '--survive: ORRERY_ONE_PROCESS=1 has all devices'
    run $(words_of) --survive 1 --lose 2:1;             expect_status 2; expect_error '--survive: not with --lose'
    run $(words_of) --survive 1 --trace t.json;         expect_status 2; expect_error '--survive: not with --trace: a trace is lost'
    run train --model tiny --data "$text" --steps 3 --dp 3 --survive 1 --optimizer galore --rank 2; expect_status 2; expect_error '--survive: not with --optimizer'
    run $(words_of) --survive 0;                        expect_status 2; expect_error '--survive 0'
    expect_nothing
}

all=(test_a_device_is_killed test_mpiexec_and_its_proxy_are_killed test_killed_in_recovery test_killed_after_the_end test_killed_at_many_moments \
    test_other_meshes test_how_long_it_takes test_a_killed_launcher test_a_small_shared_memory test_what_is_refused)
[ -z "${ONLY:-}" ] || all=("test_$ONLY")                     # faults: one test alone
run_tests "${all[@]}"
