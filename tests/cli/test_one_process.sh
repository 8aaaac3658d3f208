# `ORRERY_ONE_PROCESS=1 orrery train`: all devices in one process say, compute and save what devices with a process each do.
# tier: check
. "$(dirname "$0")/lib.sh"

one() { export ORRERY_ONE_PROCESS=1; train "$@"; unset ORRERY_ONE_PROCESS; command="ORRERY_ONE_PROCESS=1 $command"; }

# What depends on the machine alone is left out.
said() { sed '/^speed/d; s/ *[0-9.]*[KM]\{0,1\} tokens\/s$//' "$place/out"; }

# The same status, the same words, the same weights; the numbers of a device's traffic and memory are in the words.
same() {                                # same STATUS FLAGS...
    local want=$1; shift
    rm -rf saved; train "$@" --save saved; expect_status "$want"; said >many; cp "$place/err" many.err
    rm -rf apart; [ ! -d saved ] || mv saved apart
    one "$@" --save saved; expect_status "$want"; said >single
    cmp -s many single || complain "it says: $(diff many single | head -n 3)"
    cmp -s many.err "$place/err" || complain "its error is another one than $(cat many.err)"
    for f in model.safetensors optimizer.safetensors config.json; do [ ! -d apart ] || expect_same apart/$f saved/$f; done
}

test_it_is_the_same_run() {
    same 0 --steps 2 --dp 2 --tp 2 --check ref --paranoid
    same 0 --steps 2 --pp 2 --dp 2 --schedule 1f1b --micro 2 --zero 1 --batch 4 --check ref
    [ "$TIER" != check ] || return 0
    same 0 --steps 2 --pp 2 --schedule zb-v --micro 8 --batch 8
    same 0 --steps 2 --cp 4 --attention ring-zigzag --dtype bf16 --check ref
    same 0 --steps 2 --dp 3 --zero 3 --batch 6 --dtype fp16 --check ref
    same 0 --steps 3 --dp 2 --data-parallel diloco --local-steps 2 --check ref --paranoid
}

# Errors are rank 0's, in one line; a run that diverges ends on all devices.
test_errors_are_the_same() {
    same 2 --dp 2 --memory 1K
    same 1 --dp 2 --optimizer sgd --lr 1000 --clip 0 --steps 20
}

# There is no other process, and no MPI.
test_nothing_is_started() {
    mkdir bin; printf '#!/bin/sh\ntouch started\nexit 1\n' >bin/mpiexec; chmod 755 bin/mpiexec; cp bin/mpiexec bin/mpiexec.mpich
    PATH=$PWD/bin:$PATH one --dp 3 --steps 1 --batch 3; expect_status 0; [ ! -e started ] || complain 'it has called mpiexec'
}

run_tests test_it_is_the_same_run test_errors_are_the_same test_nothing_is_started
