# `orrery train --optimizer mezo`: the same weights whoever makes which pass, no gradients anywhere, and what it does not go with.
. "$(dirname "$0")/lib.sh"

# All numbers of this name in the JSON, or in one object of each device, each once.
numbers() { tr -d ' \t\n' <all.json | grep -oE "$1" | grep -oE '[0-9]+$' | sort -nu | tr '\n' ' '; }
expect_number() { [ "$(numbers "$1")" = "$2 " ] || complain "$1 is $(numbers "$1"), expected $2"; }

# Of 28 tokens: so few that OpenBLAS takes one thread for a product however many there are, and no bit can depend on that.
mezo() { train --optimizer mezo --batch 4 --seq 7 --json all.json "$@"; expect_status 0; expect_silent; }
saved() { mezo --save "$@"; expect_file "$1/model.safetensors"; }
same_weights() { expect_same "$1/model.safetensors" "$2/model.safetensors"; }

# One device, and two that make a pass each: the sums of losses are the same numbers, so every bit is.
test_sides_are_one_device() {
    saved one --steps 50
    saved two --steps 50 --dp 2 --perturb 2;                        same_weights one two
    saved shards --steps 50 --dp 2 --perturb 2 --zero 3;            same_weights one shards
    expect_out '^slope   .* at most 16 bytes a step; no gradients are kept or sent'
}

# The same parts of the batch, added in the same order, by four devices and by eight; weights whole and in shards.
test_grids() {
    saved four --steps 6 --dp 4
    saved zero3 --steps 6 --dp 4 --zero 3;                         same_weights four zero3
    saved eight --steps 6 --dp 8 --perturb 2;                      same_weights four eight
    saved eight3 --steps 6 --dp 8 --perturb 2 --zero 3;            same_weights four eight3
    ! cmp -s four/model.safetensors <(cat zero3/config.json) || complain 'the files are not compared'
}
test_grids_of_parts() {
    saved tp --steps 3 --tp 2
    saved tps --steps 3 --tp 2 --dp 2 --perturb 2;                  same_weights tp tps
    saved pp --steps 3 --pp 2 --micro 4
    saved pps --steps 3 --pp 2 --micro 4 --dp 2 --perturb 2;        same_weights pp pps
}

# Losses are all that is shared: 16 bytes from each of two devices, whatever the model.
test_no_gradients() {
    mezo --steps 2 --dp 2 --perturb 2
    expect_number '"gradients":[0-9]+' 0; expect_number '"optimizer":[0-9]+' 0
    expect_number '"result":\{"messages":[0-9]+,"bytes":[0-9]+' 32
    expect_number '"data":\{"axis":"dp","messages":[0-9]+,"bytes":[0-9]+' 0
    run train --model small --data "$text" --optimizer mezo --batch 2 --seq 8 --steps 2 --dp 2 --perturb 2 --json all.json;  expect_status 0
    expect_number '"gradients":[0-9]+' 0
    expect_number '"result":\{"messages":[0-9]+,"bytes":[0-9]+' 32
    expect_number '"data":\{"axis":"dp","messages":[0-9]+,"bytes":[0-9]+' 0
}

test_it_learns() {
    train --optimizer mezo --batch 8 --seq 16 --steps 100 --json all.json;  expect_status 0
    tr -d ' \t\n' <all.json | grep -oE '"loss":[0-9.]+' | cut -d: -f2 | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first - 0.2) }' ||
        complain 'the loss has not fallen by 0.2'
}

test_resumed() {
    saved whole --steps 4
    mezo --steps 2 --lr-steps 4 --save half
    mezo --steps 2 --resume half --save whole2 --dp 2 --perturb 2;  same_weights whole whole2
}

test_checked_in_16_bits() {
    mezo --steps 2 --dtype bf16 --dp 2 --perturb 2 --tp 2 --check ref --paranoid --dropout 0.1
    expect_out '^OK: both losses, the slope and every weight of every device'
    expect_out '^  norm .* slope$'
    mezo --steps 1 --pp 2 --micro 2 --trace x.trace;    expect_file x.trace
}

test_refusals() {
    local m='--optimizer mezo'
    train --perturb 2 --dp 2;                           refuses '--perturb 2: is for --optimizer mezo; --optimizer adamw has gradients'
    train --mezo-eps 1e-3;                              refuses '--mezo-eps 0.001: is for --optimizer mezo; adamw has gradients'
    train $m --mezo-eps 0;                              refuses '--mezo-eps 0: losses are taken so far from the weights'
    train $m --perturb 2;                               refuses '--perturb 2: half of the copies make each pass; --dp 1 must be even'
    train $m --perturb 2 --dp 3;                        refuses '--perturb 2: half of the copies make each pass; --dp 3 must be even'
    train $m --perturb 3;                               refuses '--perturb 3: must be a whole number from 1 to 2'
    train $m --perturb 2 --dp 4 --batch 1;              refuses '--batch 1: --dp 4 / 2 times --micro 1 needs at least 2 sequences'
    train $m --recompute full;                          refuses '--recompute full: --optimizer mezo has no backward pass'
    train $m --clip 1;                                  refuses '--clip 1: --optimizer mezo has no gradients to clip'
    train $m --grad-dtype fp32;                         refuses '--grad-dtype: --optimizer mezo has no gradients'
    train $m --dtype fp16 --loss-scale 1024;            refuses '--loss-scale 1024: --optimizer mezo has no gradients that could underflow'
    train $m --dp 2 --zero 1;                           refuses '--data-parallel zero1: shards gradients or optimizer state, but --optimizer mezo has neither'
    train $m --dp 2 --zero 3 --reduce-scatter ring;     refuses '--reduce-scatter ring: --optimizer mezo has no gradients to reduce'
    train $m --dp 2 --zero 3 --reshard-after-forward no;            refuses '--reshard-after-forward no: --optimizer mezo has no backward pass'
    train $m --pp 2 --micro 4 --schedule pipedream-2bw; refuses '--schedule pipedream-2bw: steps the weights inside the schedule, by gradients'
    train $m --dp 16 --batch 16 --perturb 2 --allreduce two_level --cluster h100-infiniband;       refuses '--allreduce two_level: needs a group on several nodes .*; the devices that add up losses have P=8'
    run train $m --check "$top/golden/gpt2-tied.safetensors";       refuses 'gpt2-tied.safetensors: golden files have no steps of mezo'
    train $m --check ref --isolate;                     refuses '--isolate: with --optimizer mezo only losses and weights are compared'
    train $m --pp 2 --timeline x.svg;                   refuses '--timeline x.svg: draws forward and backward passes; .*--trace FILE'
}
refuses() { expect_status 2; expect_error "$1"; [ -z "$out" ] || complain 'it says something before it refuses'; }

test_help_and_list() {
    run train --help;           expect_status 0; expect_out '--mezo-eps EPS'; expect_out '--perturb SIDES'
    run list optimizers;        expect_status 0; expect_out '^  mezo '; expect_out 'two forward passes a step; keeps and sends no gradients'; expect_columns 100
}

run_tests test_sides_are_one_device test_grids test_grids_of_parts test_no_gradients test_it_learns test_resumed test_checked_in_16_bits test_refusals \
          test_help_and_list
