# Replicas for tasks of different size: the file that is printed trains, on fewer samples a device, what one replica of
# each task trains.
. "$(dirname "$0")/lib.sh"

test_published_sizes() {
    run show elastic;                           expect_status 0; expect_silent
    expect_out '^# task 0: 512 samples, 4 replicas$'
    expect_out '^# task 3: 128 samples, 1 replica$'
    expect_out '^128 \| 128 \| 128 \| 128 \| 128 \| 128 \| 128 \| 128$'
    run show elastic 8,4,2 --devices 4;         expect_out '^4 \| 4 \| 4 \| 2$'
}

test_refused() {
    run show elastic 512,x;                     expect_status 2; expect_error 'show elastic 512,x: sizes such as'
    run show elastic 512,-1;                    expect_status 2; expect_error 'show elastic 512,-1: sizes such as'
    run show elastic 0,0;                       expect_status 2; expect_error 'show elastic 0,0: no task has samples'
    run show elastic 5,4,3 --devices 2;         expect_status 2; expect_error '--devices: 2 are fewer than the 3 tasks'
}

# Copies of a task average by tokens with all others: the loss is that of one device with all samples.  A step takes as
# long as the device with most samples, so tasks of 8, 4, 2 and 2 take less than a third of the time on 8 devices.
picoseconds() { sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' run.json; }
test_trains() {
    local ref='--check ref --seq 7 --dtype fp64 --optimizer sgd --steps 2' few=4
    [ "$TIER" != verify ] || few=8
    run show elastic 6,3,1 --devices $few;      cp "$place/out" shared
    train --dp $few --batches shared $ref;      expect_status 0; expect_out '^OK: every activation'
    [ "$TIER" = verify ] || return 0
    run show elastic 8,4,2,2 --devices 8;       cp "$place/out" shared
    run show elastic 8,4,2,2 --devices 4;       cp "$place/out" single
    make_text
    run train --model small --data "$text" --steps 1 --cluster laptop-flat --dp 8 --batches shared --json run.json
    expect_status 0; local many=$(picoseconds)
    run train --model small --data "$text" --steps 1 --cluster laptop-flat --dp 4 --batches single --json run.json
    expect_status 0; local one=$(picoseconds)
    [ $((3 * many)) -lt "$one" ] || complain "a step takes $one ps with one replica each, $many ps with more"
}

run_tests test_published_sizes test_refused test_trains
