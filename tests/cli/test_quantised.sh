# Weights and gradients as codes: the flags of `orrery train`, resuming, and `orrery bench quantized`.
. "$(dirname "$0")/lib.sh"

quantised=(--batch 5 --seq 7 --dp 2 --quantize-weights int8 --quantize-gradients int4 --quantize-block 64)

test_checked() {
    train "${quantised[@]}" --zero 1 --steps 2 --check ref
    expect_status 0; expect_silent; expect_out '^traffic counted messages, bytes and additions .* equal the formulas'
    expect_out '^OK: .* with weights quantised alike; what quantising has done'
    awk '/^  as quantised /{ error = $(NF - 2); bound = $(NF - 1); found = 1 } END { exit !(found && error <= bound) }' "$place/out" ||
        complain 'what quantising has done is not within its bound'
}

test_with_tp() {
    train --batch 5 --seq 7 --dp 2 --tp 3 --zero 3 --quantize-weights int8 --quantize-gradients int4 --steps 2 --paranoid --check ref
    expect_status 0; expect_silent; expect_out '^OK: '; expect_out '^copies .* all bits are equal'
}

# Weights are what the masters quantise to, also when they come from a file.
test_resumed() {
    local flags=("${quantised[@]}" --zero 1 --lr-steps 4 --warmup 0)
    train "${flags[@]}" --steps 4 --save whole;             expect_status 0
    train "${flags[@]}" --steps 2 --save half;              expect_status 0
    train "${flags[@]}" --steps 2 --resume half --save two; expect_status 0
    cmp -s whole/model.safetensors two/model.safetensors || complain 'resumed, the weights have other bits'
    cmp -s whole/optimizer.safetensors two/optimizer.safetensors || complain 'resumed, the optimizer has other bits'
}

test_refusals() {
    train --dp 2 --quantize-weights int8;                   expect_status 2; expect_error '--quantize-weights int8: --data-parallel ddp with --dp 2 gathers no weights'
    train --zero 3 --quantize-gradients int4;               expect_status 2; expect_error 'zero3 with --dp 1 reduce-scatters no gradients'
    run train --model llama-tiny --dp 2 --tp 8 --zero 3 --quantize-weights int8; expect_status 2; expect_error 'copied keys and values .*a smaller --tp'
    train --dp 2 --zero 3 --quantize-weights int7;          expect_status 2; expect_error 'did you mean int8\?'
    train --dp 2 --zero 3 --quantize-block 64;              expect_status 2; expect_error '--quantize-block 64: is for --quantize-weights'
    train --dp 2 --zero 3 --quantize-weights int8 --quantize-block 0;   expect_status 2; expect_error '--quantize-block 0'
    run train --check "$top/golden/gpt2-tied.safetensors" --dp 2 --zero 3 --quantize-weights int8
    expect_status 2; expect_error 'golden files are not quantised'
}

# Two nodes of 4: two steps send as much as one, a quarter of it between nodes; the ring loses more than either.
test_bench() {
    run bench quantized --elements 512;                     expect_status 0; expect_silent; expect_columns 100
    [ "$(grep -cE '^  (all to all, once|two all-to-alls|ring, at every hop) ' "$place/out")" = 12 ] || complain 'not 3 ways of 2 codes and 2 kinds of numbers'
    expect_out '^  all to all, once +7 +3640 +2080 .* 1\.00$'           # 7 (512 + 2 scales of 4 bytes); 4 of the 7 on the other node
    expect_out '^  two all-to-alls +4 +3640 +520 '
    expect_out '^  ring, at every hop +7 +1848 .* [2-9]\.[0-9]+$'
    run bench quantized --devices 3 --code int4 --elements 64
    expect_status 0; expect_no_out 'two all-to-alls'; expect_no_out 'int8, '
    run bench quantized --devices 1;                        expect_status 2; expect_error '--devices 1'
}

test_listed() {
    run list data;                                          expect_out '^  --quantize-weights +int8 or int4'; expect_columns 100
    run bench quantized --help;                             expect_status 0; expect_out '^usage: orrery bench quantized'; expect_columns 100
}

run_tests test_checked test_with_tp test_resumed test_refusals test_bench test_listed
