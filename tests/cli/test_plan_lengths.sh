# Lengths of samples are an input of a plan: its batches, and all that follows from them, are those of a run with the same lengths.
. "$(dirname "$0")/lib.sh"

lengths() { seq 3 7 250 >lengths; printf '256\n200\n9\n' >>lengths; }
model='--model llama-tiny:L=3 --seq 256 --dtype bf16'

# planned_as_run STEPS CLUSTER WORDS...: bytes, messages, memory and virtual time of a plan are those of a run, device by device.
planned_as_run() {
    run plan $model --cluster $2 --steps $1 "${@:3}" --json plan.json --quiet; expect_status 0
    run train $model --cluster $2 --steps $1 "${@:3}" --json run.json --quiet; expect_status 0
    cmp -s <(planned plan.json) <(planned run.json) || complain "$*: $(diff <(planned plan.json) <(planned run.json) | head -n 6)"
}

test_as_a_run() {
    lengths
    planned_as_run 1 h100-infiniband --pack lengths --cp 4 --attention ring-zigzag
    planned_as_run 1 h100-infiniband --pack lengths --cp 4 --attention ulysses --dp 2 --batch 4
    planned_as_run 2 h100-infiniband --pack lengths --cp 8 --attention hdp --batch 4 --micro 2
    planned_as_run 1 h100-infiniband --pack lengths --cp 4 --attention hdp --dp 2 --batch 4 --offload activations
    planned_as_run 1 h100-infiniband --pack lognormal --cp 8 --attention flexsp --batch 4
    planned_as_run 2 h100-infiniband --pack lognormal:20,1.5 --cp 4 --attention flexsp --dp 2 --batch 4 --micro-tokens 80 --zero 3
    planned_as_run 1 a100-ethernet --pack lognormal:20,1.5 --cp 8 --attention zeppelin --batch 2 --seed 7
    planned_as_run 2 a100-ethernet --pack lognormal:20,1.5 --cp 8 --attention dcp --batch 2
}

# A plan of a run with a text of its own has its samples.
test_text() {
    lengths; make_text
    planned_as_run 1 h100-infiniband --pack lengths --data "$text" --dp 2 --attention whole
    run plan --model tiny --data "$text"; expect_status 2; expect_error '--data: a plan reads no text; with --pack the text says how many samples there are'
}

# `train --dry-run` says what `plan` says.
test_dry_run() {
    lengths
    run plan $model --pack lengths --cp 4 --attention hdp --json plan.json --quiet; expect_status 0
    run train $model --pack lengths --cp 4 --attention hdp --dry-run --json dry.json; expect_status 0
    expect_out '^packed  [0-9]+ samples in [0-9]+ sequences'
    cmp -s <(planned plan.json) <(planned dry.json) || complain "$(diff <(planned plan.json) <(planned dry.json) | head -n 6)"
}

# flexsp chooses how many microbatches have samples; the empty ones take no time.
test_microbatches() {
    local used chosen
    lengths
    run plan $model --cluster h100-infiniband --pack lengths --cp 4 --batch 8 --attention flexsp --micro-tokens 150 --json chosen.json; expect_status 0
    expect_out '^batch   8 sequences of 256 tokens, up to 8 microbatches a copy, with 150 tokens of each on a device$'
    expect_out '^micro   [4-8] of up to 8 microbatches have samples$'
    used=$(sed -n 's/^micro   \([0-9]*\) of .*/\1/p' "$place/out")
    grep -q "\"most_microbatches\":$(printf '\t')$used,*\$" chosen.json || complain "the JSON has not $used microbatches"
    chosen=$(grep '"virtual_step_ps"' chosen.json)
    run plan $model --cluster h100-infiniband --pack lengths --cp 4 --batch 8 --attention flexsp --micro-tokens 150 --micro "$used" --json given.json; expect_status 0
    [ "$chosen" = "$(grep '"virtual_step_ps"' given.json)" ] || complain "$used of 8 microbatches take $chosen, $used of $used $(grep '"virtual_step_ps"' given.json)"
    make_text
    run train --model llama-tiny:L=2 --seq 128 --data "$text" --pack lognormal:20,1.5 --cp 4 --batch 2 --attention flexsp --micro-tokens 100 --steps 2 --check ref; expect_status 0
    expect_out 'OK: every activation, gradient, weight and loss'

    run plan $model --pack lengths --cp 4 --attention hdp --micro-tokens 100;    expect_status 2; expect_error '--micro-tokens 100: --attention flexsp with --cp 2 or more chooses microbatches'
    run plan $model --pack lengths --dp 4 --micro-tokens 100;                    expect_status 2; expect_error '--micro-tokens 100: --attention flexsp with --cp 2 or more chooses microbatches'
    run plan $model --pack lengths --cp 4 --attention flexsp --micro-tokens 0;   expect_status 2; expect_error '--micro-tokens 0: must be a count'
    run plan $model --pack lengths --cp 4 --attention flexsp --micro-tokens 20;  expect_status 2; expect_error '--micro-tokens 20: a sample of [0-9]+ tokens is on at most 4 devices, by the heads and --cp; it needs [0-9]+'
    run plan $model --pack lengths --cp 4 --attention flexsp --micro-tokens 80 --micro 2; expect_status 2; expect_error '--micro-tokens 80: [0-9]+ samples of [0-9]+ tokens do not fit into 2 microbatches on 4 devices; --micro allows more'
}

test_refusals() {
    : >empty; printf '3\n300\n' >long
    run plan $model --pack empty;               expect_status 1; expect_error '--pack empty: has no lengths'
    run plan $model --pack long;                expect_status 2; expect_error '--pack long:2: a sample of 300 tokens; a sequence has room for 1 to 256 \(--seq\)'
    run plan $model --pack nowhere;             expect_status 1; expect_error '--pack nowhere: cannot be opened'
    run plan $model --pack lognormal:;          expect_status 2; expect_error '--pack lognormal:: must be lognormal:MEDIAN,DEVIATION'
    run plan $model --pack lognormal:20,11;     expect_status 2; expect_error '--pack lognormal:20,11: must be lognormal:MEDIAN,DEVIATION'
    run plan $model --pack lognormal:300,1;     expect_status 2; expect_error '--pack lognormal:300,1: the median sample has more tokens than a sequence, 256'
}

run_tests test_as_a_run test_text test_dry_run test_microbatches test_refusals
