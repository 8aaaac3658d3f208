# `--arithmetic exact --check GOLDEN`: devices have the bits of one device, and one device is within the bounds of the
# file, also where a step of Adam makes the rounding of small gradients large.
. "$(dirname "$0")/lib.sh"

# golden SEED -- a golden file with dropout and AdamW, in whose first step small gradients decide.
golden() {
    run golden make --text "$top/ref/text/plays.txt" --sequences 2 --tokens 20 --steps 1 --quiet \
        --model tiny:L=1,D=16,H=2,F=16 --dropout 0.1 --optimizer adamw --seed "$1" --out own.safetensors
    expect_status 0
}

test_own_file_is_right() {
    local words
    golden 1
    for words in '--dp 2' '--dtype fp16 --tp 2'; do
        # shellcheck disable=SC2086
        run train --arithmetic exact --check own.safetensors $words
        expect_status 0
        expect_out 'compared with ==, sums before they round\. What one device computes is within the bounds of the golden'
    done
}

# spoil TENSOR ELEMENT -- turn a bit in the exponent of an fp64 number of our copy of a file.
spoil() {
    local header at byte
    cp "$top"/golden/gpt2-minimal.{safetensors,bounds.json} .
    header=$(od -An -t u8 -N 8 gpt2-minimal.safetensors)
    at=$(head -c $((8 + header)) gpt2-minimal.safetensors | grep -ao "\"$1\":{[^}]*\"data_offsets\":\[[0-9]*" | sed 's/.*\[//')
    at=$((8 + header + at + 8 * $2 + 6))
    byte=$(od -An -t u1 -j "$at" -N 1 gpt2-minimal.safetensors)
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((byte ^ 32)))" | dd of=gpt2-minimal.safetensors bs=1 seek="$at" conv=notrunc status=none
}

# What the file has otherwise is no device's error, and is named as such.
test_a_wrong_file_is_named() {
    spoil adamw/weight/h.0.mlp.c_fc.weight 0
    run train --arithmetic exact --check gpt2-minimal.safetensors --json j
    expect_status 3
    expect_error 'weight h.0.mlp.c_fc.weight of the one-device run with exact sums differs from the golden file by'
    expect_out '^FAILED: one device does not compute what the golden file has'
    grep -A3 '"first"' j | grep -q '"device":	-1' || complain 'j names a device'
    spoil act/h.0.mlp.up 0
    run train --arithmetic exact --check gpt2-minimal.safetensors
    expect_status 3
    expect_error 'step 1: activation h.0.mlp.up of the one-device run with exact sums differs from the golden file by'
}

run_tests test_own_file_is_right test_a_wrong_file_is_named
