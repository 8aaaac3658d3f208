# `orrery check --exact`: dumps whose sums do not round have the bits of the rule, or the first wrong element is named; what cannot be judged is
# never OK.
. "$(dirname "$0")/lib.sh"

tied=$top/golden/gpt2-tied.safetensors

# Where a tensor's numbers begin in a file: behind 8 bytes of length and the header.
offset_of() {
    local header at
    header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    at=$(head -c $((8 + header)) "$1" | tail -c +9 | grep -oE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+" | grep -oE '[0-9]+$')
    echo $((8 + header + at))
}

# flip FILE TENSOR N: the last bit of byte N of its numbers.
flip() {
    local at byte
    at=$(($(offset_of "$1" "$2") + $3))
    byte=$(od -An -t u1 -j $at -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 conv=notrunc seek=$at 2>/dev/null
}

# dump GOLDEN PLACE WORDS..: a run with exact sums.
dump() {
    run train --arithmetic exact --check "$top/golden/$1.safetensors" --dump "$2" "${@:3}"
    expect_status 0
}

holds() {
    rm -rf dump
    dump "$1" dump/ "${@:2}"
    run check --exact "$top/golden/$1.safetensors" dump
    expect_status 0; expect_out '^OK: [0-9]+ tensors have the bits that the exact rule gives'
}

test_layouts_hold() {
    holds gpt2-tied --dp 3 --tp 3
    holds llama-grouped --dtype fp16 --pp 3 --micro 3
    holds qwen3moe-step --dp 2 --ep 2
    holds gpt2-untied --dtype bf16 --pp 3
}

# A file of whole tensors says its arithmetic, its format and its loss scale.
test_one_file_holds() {
    dump llama-grouped d.safetensors --dtype fp16 --loss-scale 4096
    run check --exact "$top/golden/llama-grouped.safetensors" d.safetensors
    expect_status 0; expect_out '^OK: 160 tensors'; expect_out 'computed in fp16 with exact sums'
    run check "$top/golden/llama-grouped.safetensors" d.safetensors
    expect_status 1; expect_error 'bounds say nothing.*check --exact'
}

# What follows a wrong tensor is computed from the dump's own numbers.
test_one_bit() {
    dump gpt2-tied dump/ --dp 3
    run check "$tied" dump
    expect_status 1; expect_error 'bounds say nothing.*check --exact'
    flip dump/rank1.safetensors 'act/h.0.attn.out#0' 84
    run check --exact "$tied" dump --json j
    expect_status 3
    expect_out 'first to differ, in order of execution: act/h.0.attn.out has other bits'
    expect_out 'where +element \[8, 0\] on rank 1 \(dp=1\)'
    expect_out 'apart +1 unit of the grid, 2\^-[0-9]+; 1 of 441 elements differ'
    # The sum behind it was made of the right number, so that it differs, too.
    expect_out '^ +2  has other bits'
    expect_out '^FAILED: 2 of [0-9]+ tensors have other bits'
    expect_error 'act/h.0.attn.out has other bits than the rule at element \[8, 0\] on rank 1'
    grep -q '"wrong_on":	"rank 1 (dp=1)"' j || complain 'the JSON does not name the rank'
}

# A gradient and a weight after a step; a copy that only one rank has wrong.
test_copies() {
    dump gpt2-tied dump/ --dp 3
    flip dump/rank2.safetensors 'grad/h.1.mlp.c_fc.weight#0' 80
    run check --exact "$tied" dump
    expect_status 3; expect_out 'grad/h.1.mlp.c_fc.weight has copies with other bits'; expect_out 'on rank 2'
    expect_out '^ +1  has copies with other bits'
}

# What was not compared is named.
test_unknown() {
    dump gpt2-tied d.safetensors
    sed 's|act/h.0.ln_1|act/h.0.ln_9|' d.safetensors >e.safetensors
    run check --exact "$tied" e.safetensors
    expect_status 3; expect_out '^NOT ENOUGH: 1 of the dump.s tensors, first act/h.0.ln_9, are not of this rule'
    sed 's|act/h.0.ln_1|xxx/h.0.ln_1|' d.safetensors >e.safetensors
    run check --exact "$tied" e.safetensors
    expect_status 3; expect_out '^NOT ENOUGH: act/h.0.ln_1 is not there'
    run check --exact "$tied" e.safetensors --not-recorded 'act/h.0.ln_1'
    expect_status 0; expect_out '^OK for what was recorded'
}

test_refused() {
    dump gpt2-tied d.safetensors
    run check --exact "$tied" d.safetensors --not-recorded 'act/h.0.ln_3'; expect_status 1; expect_error 'no golden tensor is called act/h.0.ln_3'
    run check --exact "$tied";                                          expect_status 2
    run check --exact "$tied" "$tied" --fused;                          expect_status 2; expect_error '--exact does not go with --fused'
    run check --exact "$tied" "$tied" --dtype fp64;                     expect_status 1; expect_error 'no exact sums in fp64'
    run check --exact "$top/golden/deepseekv2-yarn.safetensors" "$tied" --dtype fp32;  expect_status 1; expect_error 'have no exact sums'
    run check --exact "$top/golden/gptoss-plain.safetensors" "$tied" --dtype fp32;     expect_status 1; expect_error 'sinks'
    sed 's|"arithmetic":"exact"|"arithmetic":"exakt"|' d.safetensors >e.safetensors
    run check --exact "$tied" e.safetensors;                            expect_status 1; expect_error 'none of ordinary, exact'
}

run_tests test_layouts_hold test_one_file_holds test_one_bit test_copies test_unknown test_refused
