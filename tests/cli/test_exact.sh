# `--arithmetic exact`: every layout ends with the bits of one device; what cannot take part is refused by name.
. "$(dirname "$0")/lib.sh"

exact='--arithmetic exact --seq 20 --batch 5 --steps 2 --seed 7'

# The fingerprint of the weights after a run; nothing if it failed.
print_of() {
    # shellcheck disable=SC2086
    run train $exact "$@"
    expect_status 0
    expect_out 'bits    weights have the fingerprint [0-9a-f]{16}, on every layout$'
    print=$(sed -nE 's/^bits .* ([0-9a-f]{16}), on every layout$/\1/p' <<<"$out")
}

# same_as ONE MODEL.. -- LAYOUT: a layout has the fingerprint of one device.
same() {
    local one=$1; shift
    print_of "$@"
    [ "$print" = "$one" ] || complain "orrery train $exact $*: $print is not one device's $one"
}

test_layouts_of_gpt() {
    print_of --model tiny:L=4; local one=$print
    same "$one" --model tiny:L=4 --dp 2 --micro 2
    rarely same "$one" --model tiny:L=4 --dp 5 --zero 3
    rarely same "$one" --model tiny:L=4 --tp 3
    same "$one" --model tiny:L=4 --tp 3 --tensor 1d-sp
    rarely same "$one" --model tiny:L=4 --tp 2 --dp 2 --tensor 1d-sp-keep --micro 2
    same "$one" --model tiny:L=4 --pp 2 --micro 5 --schedule zb-h1
    same "$one" --model tiny:L=4 --dp 2 --tp 2 --pp 2 --micro 2 --allreduce tree
    same "$one" --model tiny:L=4 --threads 2
}

test_layouts_of_llama() {
    print_of --model llama-tiny:L=4 --dtype bf16 --dropout 0.1; local one=$print
    same "$one" --model llama-tiny:L=4 --dtype bf16 --dropout 0.1 --tp 2 --dp 3 --zero 2
    rarely same "$one" --model llama-tiny:L=4 --dtype bf16 --dropout 0.1 --pp 3 --micro 3
}

test_layouts_of_experts() {
    local model='--model mixtral-tiny:L=4 --balance-over batch'
    # shellcheck disable=SC2086
    { print_of $model; local one=$print
      rarely same "$one" $model --dp 2 --ep 2
      same "$one" $model --dp 2 --tp 2 --ep 2
      rarely same "$one" $model --dp 5 --zero 3; }
}

# Columns of the experts' feed-forward lie on several devices, with all experts or with some.
test_experts_in_slices() {
    local model='--model qwen3-moe-tiny:L=4 --balance-over batch --dtype bf16'
    # shellcheck disable=SC2086
    { print_of $model; local one=$print
      rarely same "$one" $model --tp 3 --dp 2
      same "$one" $model --dp 4 --ep 2 --etp 2
      same "$one" $model --dp 3 --etp 3 --dispatch allgather; }
}

# Results of a token come home one by one, or added up by device, or from copies of experts.
test_dispatch_of_experts() {
    local model='--model scmoe-tiny:L=4 --balance-over batch' one dispatch
    # shellcheck disable=SC2086
    { print_of $model; one=$print
      for dispatch in two-step 'tutel --degree 1 --row-parts 2' $(rarely echo allgather alltoall-2dh fssdp); do
          same "$one" $model --dp 2 --tp 2 --ep 4 --dispatch $dispatch
      done
      for dispatch in '--degree 2 --row-parts 2'; do
          same "$one" $model --dp 4 --ep 2 --etp 2 --dispatch tutel $dispatch
      done
      same "$one" $model --dp 4 --etp 4 --dispatch tutel --degree 2 --check ref; }
    expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas'
    expect_out '^OK: every activation, gradient and weight of every device'
}

# Parallel streams on one device or several, their prefixes beside copied keys; the loss on each side of a step without gradients.
test_streams() {
    print_of --model parscale-tiny:L=4; local one=$print
    rarely same "$one" --model parscale-tiny:L=4 --dp 2 --tp 3
    same "$one" --model parscale-tiny:L=4 --cp 3 --attention streams
    same "$one" --model parscale-tiny:L=4 --tp 6 --check ref
    expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas'
    expect_out '^OK: every activation, gradient, weight and loss'
}

test_two_losses() {
    local model='--model tiny:L=4 --optimizer mezo --dtype bf16'
    # shellcheck disable=SC2086
    { print_of $model; local one=$print
      same "$one" $model --dp 2 --perturb 2 --check ref
      expect_out '^OK: both losses, the slope and every weight'
      same "$one" $model --tp 3 --zero 3 --dp 2
      rarely same "$one" $model --pp 2 --micro 5; }
}

test_heads_exchanged() {
    print_of --model llama-tiny:L=4; local one=$print
    same "$one" --model llama-tiny:L=4 --cp 2 --attention ulysses --tp 2
}

# Devices have columns of the residual stream, and of rows that norms see whole on one device.
test_columns_of_the_stream() {
    print_of --model tiny:L=4 --dropout 0.1; local one=$print
    rarely same "$one" --model tiny:L=4 --dropout 0.1 --tp 4 --tensor 2d
    rarely same "$one" --model tiny:L=4 --dropout 0.1 --tp 3 --tensor sbp:columns
    same "$one" --model tiny:L=4 --dropout 0.1 --tp 5 --tensor 1d-sp-overlap
    print_of --model gemma-tiny:L=4 --dtype bf16; one=$print
    same "$one" --model gemma-tiny:L=4 --dtype bf16 --tp 4 --tensor 2.5d --micro 5
    rarely same "$one" --model gemma-tiny:L=4 --dtype bf16 --tp 8 --tensor 3d
    print_of --model olmo2-tiny:L=4; one=$print
    same "$one" --model olmo2-tiny:L=4 --tp 6
}

# Several devices have copies of a key/value head, and each has some of the query heads that use it.
test_copied_keys() {
    print_of --model qwen3-tiny:L=4; local one=$print
    same "$one" --model qwen3-tiny:L=4 --tp 8
    rarely same "$one" --model qwen3-tiny:L=4 --tp 5 --tensor 1d-sp --micro 5
    same "$one" --model qwen3-tiny:L=4 --tp 4 --cp 2
    rarely same "$one" --model qwen3-tiny:L=4 --cp 4 --attention ulysses
    rarely print_of --model qwen2-tiny --dtype bf16; one=$print
    rarely same "$one" --model qwen2-tiny --dtype bf16 --tp 6 --tensor 1d-sp-keep
}

# Heads on several devices share a key, which has one gradient.
test_latent_attention() {
    print_of --model deepseek-v3-tiny:L=4; local one=$print
    same "$one" --model deepseek-v3-tiny:L=4 --tp 3 --pp 2 --micro 5
    rarely same "$one" --model deepseek-v3-tiny:L=4 --dp 2 --tp 2 --ep 2 --etp 2
}

# Kernels of a BLAS add in orders of their own, which integers do not show.
test_kernels_of_a_blas() {
    local kernel one
    print_of --model llama-tiny:L=4; one=$print
    for kernel in Prescott $(rarely echo Haswell); do
        export OPENBLAS_CORETYPE=$kernel
        same "$one" --model llama-tiny:L=4 --dp 2
    done
    unset OPENBLAS_CORETYPE
}

# The one-device run has the same bits, sums before they round included.
test_check_has_no_bounds() {
    # shellcheck disable=SC2086
    run train $exact --model qwen3-tiny:L=4 --tp 2 --dp 2 --check ref
    expect_status 0
    expect_out '^OK: every activation, gradient, weight and loss'
    expect_out '^  gradients +[0-9]+ +[0-9]+ +0.0e\+00  0.0e\+00'
}

# Ordinary sums say what their bits hang on, and a plan of exact sums has larger gradients.
test_said() {
    run train --model tiny:L=4 --seq 20 --batch 5 --steps 1 --json j
    expect_status 0; expect_out 'fingerprint [0-9a-f]{16}: this layout, kernel and thread count only$'
    grep -q '"sums":	"ordinary"' j || complain 'j does not say which sums'
    grep -Eq '"fingerprint":	"[0-9a-f]{16}"' j || complain 'j has no fingerprint'
    # shellcheck disable=SC2086
    run plan --arithmetic exact --seq 20 --batch 6 --model tiny:L=4 --dp 2 --tp 3
    expect_status 0
}

test_refused() {
    refuse() { run train --arithmetic exact "$@"; expect_status 2; }
    refuse --model tiny:L=4 --dtype fp64;                   expect_error 'fp64'
    refuse --model mixtral-tiny:L=4;                        expect_error '--balance-over batch or sequence'
    refuse --model tiny:L=4 --optimizer galore;             expect_error 'galore'
    refuse --model tiny:L=4 --dp 2 --data-parallel diloco;  expect_error 'diloco'
    refuse --model tiny:L=4 --dtype bf16 --grad-dtype bf16; expect_error '--grad-dtype bf16'
    run train --arithmetic exactly;                     expect_status 2; expect_error 'exact'
}

run_tests test_layouts_of_gpt test_layouts_of_llama test_layouts_of_experts test_experts_in_slices test_dispatch_of_experts test_streams test_two_losses test_heads_exchanged test_columns_of_the_stream test_copied_keys test_latent_attention test_kernels_of_a_blas test_check_has_no_bounds test_said test_refused
