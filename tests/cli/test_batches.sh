# Batches from a file: trained, counted, resumed, and refused where they do not fit.
# tier: check
. "$(dirname "$0")/lib.sh"

plan() { printf 'orrery batches 1\n2 1 | 3\n- | 0 1 2\n' >plan; }
checked='--seq 7 --dtype fp64 --optimizer sgd --steps 3 --check ref --paranoid'

test_trains() {
    plan
    train $checked --dp 2 --pp 2 --batches plan;                    expect_status 0; expect_silent
    expect_out '^batch   up to 6 sequences of 7 tokens, up to 3 microbatches a copy$'
    expect_out '^OK: every activation'
    expect_out '^traffic .* equal the formulas on every device$'
    expect_out '^memory  .* equal the formulas on every device$'
    train $checked --dp 2 --tp 2 --zero 3 --batches plan;           expect_status 0; expect_out '^OK: every activation'
}

# What the plan needs before the start is that of its largest step, to which this run does not come.
test_before_the_largest_step() {
    printf 'orrery batches 1\n1 | 1\n3 | 2\n' >growing
    train --dp 2 --steps 1 --batches growing;                       expect_status 0; expect_silent
    train --dp 2 --steps 2 --batches growing;                       expect_status 0; expect_silent
}

# The example of docs/parallelism/batches.md.
test_the_page() {
    sed -n '/^orrery batches 1/,/^```/p' "$top/docs/parallelism/batches.md" | sed '/^```/,$d' >uneven.batches
    train --dp 2 --steps 4 --batches uneven.batches --check ref;    expect_status 0; expect_out '^OK: every activation'
}

# The third step of a resumed run is the plan's third.
test_resumes() {
    plan
    train --seq 8 --dp 2 --batches plan --steps 3 --lr-steps 3 --save whole;            expect_status 0
    train --seq 8 --dp 2 --batches plan --steps 1 --lr-steps 3 --save half;             expect_status 0
    run train --resume half --dp 2 --batches plan --save again;                         expect_status 0
    for f in model.safetensors optimizer.safetensors training.json; do expect_same whole/$f again/$f; done
    printf 'orrery batches 1\n2 1 | 3\n1 | 0 1 2\n' >other
    run train --resume half --dp 2 --batches other
    expect_status 2; expect_error '--resume half: .*batch plan of --batches: saved SHA-256 [0-9a-f]+, now SHA-256 [0-9a-f]+; --override'
    run train --resume half --dp 2
    expect_status 2; expect_error '--resume half: .*batch plan of --batches: saved SHA-256 [0-9a-f]+, now not given'
}

test_refusals() {
    plan
    train --dp 3 --batches plan;                                    expect_status 2; expect_error '--batches: its steps have 2 copies; --dp 3 needs 3$'
    train --dp 2 --batches plan --batch 8;                          expect_status 2; expect_error '--batch: --batches plan says how many sequences'
    train --dp 2 --batches plan --micro 2;                          expect_status 2; expect_error '--micro: --batches plan says how many sequences'
    train --dp 2 --batches nowhere;                                 expect_status 2; expect_error '--batches nowhere: No such file'
    train --dp 2 --batches .;                                       expect_status 2; expect_error '--batches \.: is not a regular file'
    printf 'orrery batches 1\n2 | x\n' >bad
    train --dp 2 --batches bad;                                     expect_status 2; expect_error '--batches bad:2: x: expected a number of sequences, 0\.\.1000000, or -$'
    train_under 2 --dp 2 --batches bad;                             expect_status 2; expect_error '--batches bad:2: x: expected'
    train --dp 2 --batches plan --data-parallel diloco;             expect_status 2; expect_error '--batches: --data-parallel diloco takes the mean'
    train --dp 2 --pp 2 --batches plan --schedule pipedream-2bw --clip 0
    expect_status 2; expect_error '--batches: --schedule pipedream-2bw steps the weights'
}

run_tests test_trains test_before_the_largest_step test_the_page test_resumes test_refusals
