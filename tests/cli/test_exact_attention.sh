# `--arithmetic exact` with sequences that are cut over devices: every scheme of --attention ends with the bits of one device.
. "$(dirname "$0")/lib.sh"

exact='--arithmetic exact --seq 20 --batch 2 --steps 2 --seed 7'

# The fingerprint of the weights after a run; nothing if it failed.
print_of() {
    # shellcheck disable=SC2086
    run train $exact "$@"
    expect_status 0
    print=$(sed -nE 's/^bits .* ([0-9a-f]{16}), on every layout$/\1/p' <<<"$out")
}

# same ONE OPTIONS.. -- a layout has the fingerprint ONE.
same() {
    local one=$1; shift
    print_of "$@"
    [ -n "$print" ] && [ "$print" = "$one" ] || complain "orrery train $exact $*: '$print' is not one device's '$one'"
}

test_rings() {
    print_of --model llama-tiny:L=4; local one=$print
    same "$one" --model llama-tiny:L=4 --cp 3 --attention ring
    same "$one" --model llama-tiny:L=4 --cp 2 --attention ring-zigzag --tp 2
    same "$one" --model llama-tiny:L=4 --cp 3 --attention ring-striped
    same "$one" --model llama-tiny:L=4 --cp 2 --attention ring-ptrr
    same "$one" --model llama-tiny:L=4 --cp 3 --attention allgather-kv
    same "$one" --model llama-tiny:L=4 --cp 4 --attention tokenring
    same "$one" --model llama-tiny:L=4 --cp 3 --attention tokenring-narrow
    same "$one" --model llama-tiny:L=4 --cp 3 --attention rsa
}

test_two_dimensions() {
    print_of --model llama-tiny:L=4; local one=$print
    same "$one" --model llama-tiny:L=4 --cp 4 --attention usp --head-parallel 2
    same "$one" --model llama-tiny:L=4 --cp 4 --attention loongtrain --head-parallel 1 --ring-window 2
}

# Samples of several lengths; plans move blocks of queries and of keys.
test_plans() {
    printf '%s\n' 3 11 7 5 20 2 >lengths
    print_of --model llama-tiny:L=4 --pack lengths; local one=$print
    same "$one" --model llama-tiny:L=4 --pack lengths --cp 2 --attention ring-zigzag
    same "$one" --model llama-tiny:L=4 --pack lengths --cp 3 --attention hdp
    same "$one" --model llama-tiny:L=4 --pack lengths --cp 3 --attention dcp
    same "$one" --model llama-tiny:L=4 --pack lengths --cp 8 --attention zeppelin --cluster a100-ethernet
    same "$one" --model llama-tiny:L=4 --pack lengths --cp 2 --attention flexsp
}

# Dropout, 16 bits, sinks and windows, latents, capped scores, another number of microbatches.
test_models() {
    local model
    print_of --model llama-tiny:L=4 --dtype bf16; same "$print" --model llama-tiny:L=4 --dtype bf16 --cp 5 --attention tokenring-narrow
    for model in 'tiny:L=4 --dropout 0.2' gpt-oss-tiny:L=4 deepseek-v3-tiny:L=4 gemma2-tiny:L=4 'llama-tiny:L=4 --dtype bf16'; do
        # shellcheck disable=SC2086
        { print_of --model $model; local one=$print
          same "$one" --model $model --cp 3 --attention ring-zigzag
          same "$one" --model $model --cp 2 --attention tokenring --micro 2; }
    done
}

# Sums of every layer before they round; messages and bytes, with the extra pass of keys, are those of the formulas.
test_check_has_no_bounds() {
    # shellcheck disable=SC2086
    run train $exact --model llama-tiny:L=4 --cp 3 --attention ring --check ref
    expect_status 0
    expect_out '^OK: every activation, gradient, weight and loss'
    expect_out '^  gradients +[0-9]+ +[0-9]+ +0.0e\+00  0.0e\+00'
    expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas'
    # shellcheck disable=SC2086
    run train $exact --model gemma2-tiny --dtype bf16 --cp 3 --attention rsa --check ref --recompute selective
    expect_status 0
    expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas'
}

run_tests test_rings test_two_dimensions test_plans test_models test_check_has_no_bounds
