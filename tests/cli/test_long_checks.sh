# Correct runs of a hundred steps: every tensor of every step is within its bound, in each format, also where the errors of a whole tensor have
# one cause and a single twin's may by chance be small.
# tier: verify
. "$(dirname "$0")/lib.sh"

in_format() {
    local model
    for model in tiny llama-tiny qwen2-tiny qwen3-tiny gemma-tiny gemma2-tiny gemma3-tiny phi3-tiny olmo2-tiny; do
        run train --model $model --tp 2 --batch 4 --micro 4 --seq 12 --optimizer sgd --clip 0 --steps 100 --dtype "$1" --check ref
        expect_status 0
        expect_out '^OK: every activation, gradient, weight and loss'
    done
}

test_fp32() { in_format fp32; }
test_bf16() { in_format bf16; }
test_fp16() { in_format fp16; }

run_tests test_fp32 test_bf16 test_fp16
