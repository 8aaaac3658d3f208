# `orrery bench check`: files that are removed, memory that does not follow the dump, and what is refused.  Never how long anything takes here.
. "$(dirname "$0")/lib.sh"

# The golden file and the dump together are more than twice what `orrery check` needs at most.
test_files() {
    mkdir temporary; export TMPDIR=$PWD/temporary
    run bench check --model small --tokens 64 --sequences 4 --ranks 3 --json j;    expect_status 0; expect_silent; expect_columns 100
    expect_out '^  dump read +[0-9]+ MB/s$'; expect_out '^  memory +[0-9]+ MB at most$'
    [[ ${BUILD:-build} == *-san ]] ||                   # sanitizers keep what is freed for a while
        awk -F '[:,]' '/dump_mb|golden_mb/ { files += $2 } /memory_mb/ { memory = $2 } END { exit !(memory > 0 && 2 * memory < files) }' j ||
        complain 'it keeps what it reads'
    expect_nothing temporary
    "$program" bench check --model small --tokens 64 >killed 2>&1 & local bench=$! waited=0
    until [ -n "$(ls temporary)" ] || [ $((waited += 1)) -gt 100 ]; do sleep 0.1; done
    [ -n "$(ls temporary)" ] || complain 'it has made no folder'
    kill -KILL $bench; wait $bench 2>/dev/null
    for waited in $(seq 100); do [ -n "$(ls temporary)" ] || break; sleep 0.1; done
    expect_nothing temporary; unset TMPDIR              # also if it is killed
}

# A batch that repeats: the golden file is right, and memory does not follow it.  A wrong number is found.
test_batches_that_repeat() {
    local memory=() k
    for k in 1 8; do
        run bench check --model tiny --tokens 32 --sequences 5 --repeat $k --json j;       expect_status 0; expect_silent
        memory+=("$(awk -F '[:,]' '/memory_mb/ { print int($2) } /dump_mb/ { print int($2) }' j | tr '\n' ' ')")
    done
    [[ ${BUILD:-build} == *-san ]] || set -- ${memory[*]}
    [[ ${BUILD:-build} == *-san ]] || [ $(($4 - $2)) -lt $((($3 - $1) / 2)) ] ||            # by dump and memory, in MB
        complain "a dump that is larger by $(($3 - $1)) MB takes $(($4 - $2)) MB more"
    run bench check --model tiny --tokens 16 --sequences 2 --repeat 3 --ranks 3 --wrong act/h.3.mlp.up;    expect_status 0; expect_out '^  wrong +act/h.3.mlp.up$'
}

# A wrong gradient of a weight is explained by passes of our model: they run sequence by sequence.
test_wrong_gradients() {
    local right wrong
    run bench check --model tiny --tokens 32 --sequences 4 --repeat 12 --wrong grad/h.1.mlp.c_proj.weight --json j;     expect_status 0
    expect_out '^  right dump +[0-9.]+ s, [0-9.]+ s of processors; [0-9]+ MB at most$'
    wrong=$(awk -F '[:,]' '/"memory_mb/ { print int($2) }' j) right=$(awk -F '[:,]' '/right_memory_mb/ { print int($2) }' j)
    [[ ${BUILD:-build} == *-san ]] || [ $((wrong - right)) -lt 24 ] ||
        complain "a right dump of 48 sequences takes $right MB, one with a wrong gradient $wrong MB"
}

test_refusals() {
    run bench check --model tiny --tokens 64;           expect_status 2; expect_error '--tokens 64: tiny has 32 positions'
    run bench check --model tiny --tokens 16 --wrong act/h.9.ln_1;      expect_status 2; expect_error '--wrong act/h.9.ln_1: the dump has no such tensor'
    run bench check --model mixtral-tiny --tokens 16 --repeat 2;        expect_status 2; expect_error "--repeat 2: this model's act/h.0.experts.out has rows that are not the batch's tokens"
    run bench check --model nothing;                    expect_status 2; expect_error '--model nothing'
}

run_tests test_files test_batches_that_repeat test_wrong_gradients test_refusals
