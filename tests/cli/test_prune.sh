# `orrery prune`: groups become zero, the smaller model has the whole one's bits, and trains on every mesh.
. "$(dirname "$0")/lib.sh"

short() { run prune --steps 120 --warmup 20 --pull 100 --epsilon 0.9 --batch 2 --save small "$@"; }

test_feed_forward() {
    short --json out.json;              expect_status 0; expect_silent; expect_file small/model.safetensors
    expect_out '^all [0-9]+ logits have the bits of the whole model.s with exact sums$'
    grep -q '"differ_exact":[[:space:]]*0,\?$' out.json || complain 'bits differ'
    grep -q '"intermediate_size":[[:space:]]*44' small/config.json || complain 'the feed-forward is not half as wide'
    run train --model small --tp 3 --dp 2 --steps 1 --check ref;        expect_status 0; expect_out '^OK: '
    run train --model small --pp 2 --cp 2 --steps 1 --check ref;        expect_status 0; expect_out '^OK: '
}

# Plain units with biases, and heads: of queries that share keys, and with norms of heads.
test_groups() {
    short --model tiny;                             expect_status 0; expect_out '^all [0-9]+ logits have the bits'
    short --model qwen2-tiny --groups heads;        expect_status 0; expect_out '^all [0-9]+ logits have the bits'
    short --model qwen3-tiny --groups heads;        expect_status 0; expect_out '^all [0-9]+ logits have the bits'
    run train --model small --tp 2 --steps 1 --check ref;               expect_status 0; expect_out '^OK: '
}

test_refused() {
    run prune;                                      expect_status 2; expect_error '--save'
    short --model mixtral-tiny;                     expect_status 2; expect_error 'no zero-invariant groups of its feed-forward'
    short --model gpt-oss-tiny --groups heads;      expect_status 2; expect_error 'no zero-invariant groups of its heads'
    short --model tiny --groups heads;              expect_status 2; expect_error 'D=32 is not a multiple of H=4 heads'
    short --keep 1;                                 expect_status 2; expect_error 'one is left out'
    run prune --steps 20 --warmup 20 --save small;  expect_status 2; expect_error '--warmup 20: --steps is 20'
    run prune --steps 4 --save small;               expect_status 3; expect_error 'groups that shall be zero are not: more --steps'
    expect_nothing
}

run_tests test_feed_forward test_groups test_refused
