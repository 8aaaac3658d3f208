# With exact sums `--check ref` compares activations before they are rounded, too, and says how many.
. "$(dirname "$0")/lib.sh"

words='train --arithmetic exact --seq 20 --batch 4 --steps 1 --check ref'

# Products and attention are sums: of each layer ten tensors, forward and back, and logits with their gradients.
test_how_many() {
    # shellcheck disable=SC2086
    run $words --model tiny --tp 2 --json j
    expect_status 0
    expect_out '^sums +164 of 332 activations and their gradients were compared before they were rounded'
    grep -q '"before_rounding":	164' j || complain 'j has another number'
    # shellcheck disable=SC2086
    run $words --model tiny:L=2 --cp 2 --attention tokenring --dtype bf16
    expect_status 0
    expect_out '^sums +44 of 92 '
}

# Results of a token's experts are sums, too, also where they are rounded to fp32 first.
test_of_experts() {
    local more
    for more in '--dispatch two-step' '--dispatch allgather --dtype bf16'; do
        # shellcheck disable=SC2086
        run $words --model mixtral-tiny:L=2 --balance-over batch --ep 2 $more
        expect_status 0
        expect_out '^sums +36 of '
    done
}

run_tests test_how_many test_of_experts
