# `--arithmetic exact2`: operands of 28 bits in two slices.  Every layout ends with the bits of one device, as with exact; dumps, checkpoints
# and refusals say which rule, and the virtual clock has twice the products.
. "$(dirname "$0")/lib.sh"

exact2='--arithmetic exact2 --seq 20 --batch 5 --steps 2 --seed 7'

# The fingerprint of the weights after a run; nothing if it failed.
print_of() {
    # shellcheck disable=SC2086
    run train $exact2 "$@"
    expect_status 0
    print=$(sed -nE 's/^bits .* ([0-9a-f]{16}), on every layout$/\1/p' <<<"$out")
}

same() {
    local one=$1; shift
    print_of "$@"
    [ "$print" = "$one" ] || complain "orrery train $exact2 $*: $print is not one device's $one"
}

test_layouts() {
    print_of --model tiny:L=4; local one=$print
    same "$one" --model tiny:L=4 --dp 2 --tp 2 --pp 2 --micro 2
    same "$one" --model tiny:L=4 --cp 3 --attention tokenring
    same "$one" --model tiny:L=4 --tp 4 --tensor 2d
    run train ${exact2/exact2/exact} --model tiny:L=4; expect_status 0
    ! grep -q "$one" <<<"$out" || complain 'both rules end with the same bits'
}

test_experts_in_16_bits() {
    local model='--model mixtral-tiny:L=4 --balance-over batch --dtype bf16'
    # shellcheck disable=SC2086
    { print_of $model; local one=$print
      same "$one" $model --dp 4 --ep 2 --etp 2 --check ref; }
    expect_out '^OK: every activation, gradient and weight of every device'
}

# A dump says its rule, to which the check then holds the dump.
test_a_dump_says_its_rule() {
    run train --arithmetic exact2 --check "$top/golden/gpt2-tied.safetensors" --dump d/ --tp 3
    expect_status 0
    grep -a -q '"arithmetic":"exact2"' d/rank0.safetensors || complain 'the dump does not say exact2'
    run check --exact "$top/golden/gpt2-tied.safetensors" d
    expect_status 0; expect_out '^OK: [0-9]+ tensors have the bits that the exact rule gives'
    for rank in d/*; do sed -i 's|"arithmetic":"exact2"|"arithmetic":"exact" |' "$rank"; done
    run check --exact "$top/golden/gpt2-tied.safetensors" d
    expect_status 3; expect_out 'has other bits than the rule'; expect_out 'where +element .* on rank 0 \(tp=0\)$'
}

# The rules are different runs.
test_resumed_with_another_rule() {
    run train --model tiny:L=4 --seq 20 --batch 4 --steps 1 --lr-steps 2 --arithmetic exact2 --save s
    expect_status 0
    run train --resume s --steps 1 --arithmetic exact
    expect_status 2; expect_error '--arithmetic: saved exact2, now exact'
}

test_said() {
    run train --model tiny:L=4 --seq 20 --batch 4 --steps 1 --arithmetic exact2 --json j
    expect_status 0; expect_out 'fp32, exact sums of two slices$'
    grep -q '"sums":	"exact2"' j || complain 'j does not say which sums'
    run train --model tiny:L=4 --arithmetic exact2 --dtype fp64; expect_status 2; expect_error 'arithmetic exact2: .*fp64'
    run verify data --arithmetic exact2 --from 2 --devices 2 --part 3/120; expect_status 0; expect_out 'fp16 exact2'
}

run_tests test_layouts test_experts_in_16_bits test_a_dump_says_its_rule test_resumed_with_another_rule test_said
