# What a run with exact sums is charged, on the virtual clock, and what becomes of sums beyond the bits there are.
. "$(dirname "$0")/lib.sh"

step_of() { sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' "$1"; }

# A plan and a run of the same words agree to the picosecond, and products are charged at the rate of fp64.
test_clock() {
    local words='--arithmetic exact --model tiny --seq 20 --batch 4 --dp 2 --tp 2' more
    for more in '--cluster a10-mesh' '--cluster h100-node --dtype bf16 --tensor 1d-sp'; do
        # shellcheck disable=SC2086
        { run plan $words $more --json plan.json; expect_status 0; expect_out 'matrix products with exact sums at the rate of fp64, '
          run train $words $more --steps 1 --json train.json; expect_status 0; expect_out 'matrix products with exact sums at the rate of fp64, '; }
        [ -n "$(step_of plan.json)" ] && [ "$(step_of plan.json)" = "$(step_of train.json)" ] || complain "$more: planned $(step_of plan.json) ps, counted $(step_of train.json)"
        grep -q '"products_at_rate_of":	"fp64"' plan.json || complain "$more: plan.json does not say whose rate counts"
    done
    # An A10 has a 64th of the rate in fp64: a step in which products decide takes longer by that.
    local large='--model 11m --batch 4 --cluster a10-mesh' exact ordinary
    # shellcheck disable=SC2086
    { run plan $large --json plan.json; expect_status 0; ordinary=$(step_of plan.json)
      run plan $large --arithmetic exact --json plan.json; expect_status 0; exact=$(step_of plan.json); }
    [ $((exact / ordinary)) -ge 20 ] || complain "exact $exact ps, ordinary $ordinary"
}

test_cluster_without_fp64() {
    sed 's/"fp64": [0-9]*, //' "$top/emulated_devices/device/clusters/a10-mesh.json" >c.json
    run plan --arithmetic exact --model tiny --cluster ./c.json
    expect_status 2; expect_error 'it does not say how fast it computes in fp64'
    run plan --model tiny --cluster ./c.json
    expect_status 0
}

# Operations charged stand beside both conventions of a causal mask.
test_charged() {
    run plan --model tiny --mask lambda:2,3 --cluster h100-node --json plan.json
    expect_status 0
    grep -A3 '"charged"' plan.json | grep -q '"share_of_rate"' || complain 'plan.json has no operations charged'
}

# Finite numbers whose sum is too large are no divergence: the tensor is named, on whatever device its sum was.
test_beyond() {
    local words='--arithmetic exact --model tiny --seq 20 --batch 4 --steps 3 --warmup 0 --lr 1e6' more
    for more in '' '--dp 2' '--pp 2' '--tp 2'; do
        # shellcheck disable=SC2086
        run train $words $more --json j
        expect_status 3
        expect_error 'step 2: h.0.attn.qkv: an exact sum is beyond the bits there are .*, so the loss is nan'
        grep -A4 '"diverged"' j | grep -q '"exact_sum":	"h.0.attn.qkv"' || complain "$more: j does not name the sum"
        grep -A4 '"diverged"' j | grep -q '"beyond":	true' || complain "$more: j does not say why"
    done
    run train --arithmetic exact --model tiny --seq 20 --batch 4 --steps 2 --optimizer mezo --mezo-eps 1e6 --dp 2 --perturb 2
    expect_status 3; expect_error 'step 1: h.0.attn.qkv: an exact sum is beyond the bits there are'
}

# What no number can be is divergence, as in ordinary arithmetic; the first sum is named, too.
test_not_finite() {
    run train --arithmetic exact --model tiny --seq 20 --batch 4 --steps 3 --warmup 0 --lr 1e6 --dp 2 --dtype fp16 --loss-scale 1
    expect_status 1
    expect_error 'the loss is nan, first in an exact sum of h.0.ln_1 with a term that is not finite: training diverged'
}

# Gradients of fp16 overflow until the loss scale fits: steps are skipped, nothing is said to be wrong.
test_loss_scale() {
    run train --arithmetic exact --model tiny --seq 20 --batch 4 --steps 12 --dtype fp16 --loss-scale 1073741824 --dp 2
    expect_status 0
}

test_before_a_run() {
    run plan --arithmetic exact --model tiny --seq 20 --batch 1000000 --dp 8
    expect_status 2; expect_error '--arithmetic exact: losses of a step of 20000000 tokens add up to 2\^25'
    run train --arithmetic exact --model tiny --vocabulary 600000 --steps 1
    expect_status 2; expect_error 'a vocabulary of 600000'
}

run_tests test_clock test_cluster_without_fp64 test_charged test_beyond test_not_finite test_loss_scale test_before_a_run
