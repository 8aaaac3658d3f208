# The host that starts kernels: what a plan says of it, that a run has the same time, and what `orrery list` shows.
# tier: check
. "$(dirname "$0")/lib.sh"

planned_ps() { sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' "$1"; }

# A small model on H100: its kernels are shorter than the time in which a host starts them.
test_a_plan_says_what_the_host_costs() {
    local clusters=$top/emulated_devices/device/clusters with without slow
    run plan --model tiny --dp 2 --tp 2 --cluster h100-node --dtype bf16 --json with.json; expect_status 0
    expect_out '^        host-bound: [0-9.]+ [um]s of it, [0-9.]+ %, in which a device waits for its host to start kernels'
    expect_out "^    starts of kernels \(host's starts\) "; expect_out '^host    [0-9.]+ % of a step, it waits for its host'
    grep -q '"virtual_host_ps":	[1-9]' with.json || complain "JSON does not have the host's time"
    sed 's/"eager_ns": [0-9]*/"eager_ns": 0/; s/"step_ns": [0-9]*/"step_ns": 0/; s/"h100-node"/"quick"/' "$clusters/h100-node.json" >quick.json
    sed '/"issue": {/,/},/d; s/"h100-node"/"none"/' "$clusters/h100-node.json" >none.json
    run plan --model tiny --dp 2 --tp 2 --cluster ./quick.json --dtype bf16 --json quick.plan; expect_status 0
    expect_no_out 'host-bound'
    run plan --model tiny --dp 2 --tp 2 --cluster ./none.json --dtype bf16 --json none.plan; expect_status 0
    with=$(planned_ps with.json); without=$(planned_ps none.plan)
    [ "$without" = "$(planned_ps quick.plan)" ] || complain "a host without time takes $(planned_ps quick.plan) ps, no host $without"
    [ "$with" -gt "$without" ] || complain "with a host a step takes $with ps, without $without"
    sed 's/"eager_ns": [0-9]*/"eager_ns": 150000/; s/"h100-node"/"slow"/' "$clusters/h100-node.json" >slow.json
    run plan --model tiny --dp 2 --tp 2 --cluster ./slow.json --dtype bf16 --json slow.plan; expect_status 0
    slow=$(planned_ps slow.plan)
    [ "$slow" -gt "$((with * 5))" ] || complain "with a host ten times as slow a step takes $slow ps, not $with"
}

# What is planned is what a run counts, for programs that wait in other places.
test_a_run_has_the_same_time() {
    local words
    make_text
    for words in '--dp 2 --zero 3 --kernels-of torch-eager' '--pp 2 --micro 4 --kernels-of te' '--tp 2 --kernels-of nanotron'; do
        run plan --model llama-tiny --steps 2 --cluster h100-node $words --json plan.json; expect_status 0
        run train --model llama-tiny --data "$text" --steps 2 --cluster h100-node $words --json run.json; expect_status 0
        [ "$(planned_ps plan.json)" = "$(planned_ps run.json)" ] ||
            complain "$words: planned $(planned_ps plan.json) ps, counted $(planned_ps run.json)"
    done
}

# Timers of Megatron-LM wait after each pass, so its host cannot start the next microbatch while the device still works.
test_a_host_waits_after_passes() {
    local clusters=$top/emulated_devices/device/clusters words='--model gpt2:L=2,D=2048,H=16,F=8192,V=1024,S=2048 --kernels-of megatron --dtype fp16 --memory 0'
    local micro more=0
    sed 's/"eager_ns": [0-9]*/"eager_ns": 0/; s/"a100-infiniband"/"quick"/' "$clusters/a100-infiniband.json" >quick.json
    for micro in 2 8; do
        run plan $words --micro "$micro" --batch $((8 * micro)) --cluster a100-infiniband --json with.plan; expect_status 0
        run plan $words --micro "$micro" --batch $((8 * micro)) --cluster ./quick.json --json quick.plan; expect_status 0
        more=$(($(planned_ps with.plan) - $(planned_ps quick.plan) - more))
    done
    # Twelve passes more begin with a start of 49.6 us each, which the device waits for.
    [ "$more" -ge 580000000 ] || complain "a host that waits after each pass takes only $more ps more with six microbatches more"
}

# Collectives beside computing slow it: with `overlap` a step takes longer, and no replay is needed.
test_collectives_slow_computing() {
    local words='--model llama3-8b --dtype bf16 --dp 8 --zero 3 --batch 8 --seq 4096 --memory 0' with
    run plan $words --cluster h100-node --json with.json; expect_status 0; expect_no_out 'replayed'; expect_out '^folded  dp 8 -> 1'
    sed '/"overlap": {/,/},/d; s/"h100-node"/"free"/' "$top/emulated_devices/device/clusters/h100-node.json" >free.json
    run plan $words --cluster ./free.json --json free.plan; expect_status 0
    with=$(planned_ps with.json)
    [ "$with" -gt "$(planned_ps free.plan)" ] || complain "computing beside collectives takes $with ps, alone $(planned_ps free.plan)"
}

test_list() {
    run list h100-500w; expect_status 0
    expect_out 'host +starts a kernel in 15 us, a compiled one in 8 us; 2 ms a step'
    expect_out 'computing takes 119 % of its time beside allgather'; expect_out "of the table's shares, computing reaches 88 %, memory 94.6 %"
}

run_tests test_a_plan_says_what_the_host_costs test_a_run_has_the_same_time test_a_host_waits_after_passes test_collectives_slow_computing test_list
