# `orrery serve --plans`: all plans of a model on so many devices, by tables, beside the engine; tables and traces of APEX.
. "$(dirname "$0")/lib.sh"

words='serve --model llama-tiny --draw azure-conv --scale 0.03 --requests 20 --rate 20000 --dp 4 --block 4 --cluster h100-node --seed 3'

test_plans() {
    run $words --plans latency;     expect_status 0; expect_silent
    expect_out '^plans   of llama-tiny, fp32, on 4 devices of h100-node; least latency first'
    expect_out '\-\-dp 4 --tp 1 --pp 1'; expect_out '\-\-dp 1 --tp 4 --pp 1'
    expect_out '([1-9][0-9]*) of \1 iterations have the same requests and tokens'
    run $words --plans energy --json - --quiet;     expect_status 0
    expect_out '"engine":'; expect_out '"differ":.*0'; expect_out '"joules":'
    run ${words/h100-node/toy} --plans energy;        expect_status 2; expect_error 'does not state the watts'
    run $words --plans time --answers x;            expect_status 2; expect_error '--answers: is not for --plans'
    run $words --profile x;                         expect_status 2; expect_error '--profile: is for --plans'
    run $words --plans time --profile x;            expect_status 2; expect_error 'profile-of must name the device'
    run $words --plans time --profile none --profile-of G;  expect_status 1; expect_error 'none: has no table of comm/G/'
    run $words --plans time --cache-blocks 1;       expect_status 2; expect_error 'no plan of 4 devices has room'
    run serve --model mixtral-tiny --draw lmsys --scale 0.02 --dp 2 --plans time;   expect_status 2
    expect_error 'a search of plans is for dense models'
}

# Tables that were written are read again: the same plans.  Slower messages of a file count.
test_profiles() {
    run $words --plans time --write-profile own;    expect_status 0; cp "$place/out" first
    run $words --plans time --profile own --profile-of h100-node;   expect_status 0; expect_same first "$place/out"
    awk -F, -v OFS=, 'NR > 1 { $NF = 1e6 } 1' own/comm/h100-node/all_reduce.csv >slow && mv slow own/comm/h100-node/all_reduce.csv
    run $words --plans latency --profile own --profile-of h100-node;    expect_status 0; expect_out '^ +1 +[124] +[124]  1 x 1'
    echo 'gpu,num_nodes,num_gpus_per_node,dtype,size(kb),time(us)' >own/comm/h100-node/all_reduce.csv
    run $words --plans latency --profile own --profile-of h100-node;    expect_status 1; expect_error 'has no row with dtype float'
}

# A line of APEX's traces has numbers of tokens alone.
test_apex_traces() {
    echo '{"ContextTokens": 5, "GeneratedTokens": 3, "SynthesizedBody": "x", "StartTimeOffset": 2000, "RequestID": "b", "TotalTokens": 8}' >trace
    echo '{"ContextTokens": 9, "GeneratedTokens": 2, "SynthesizedBody": "y", "StartTimeOffset": 1000, "RequestID": "a", "TotalTokens": 11}' >>trace
    run serve --model tiny --trace trace --answers answers --check ref --arithmetic exact;  expect_status 0
    expect_out '14 tokens of prompts, 5 of answers'
    grep -q '"id":"a".*"prompt_tokens":9,"tokens":2,"arrival":1e-06' answers || complain "$(cat answers)"
    echo '{"ContextTokens": 5, "GeneratedTokens": 3, "StartTimeOffset": 0, "TotalTokens": 9}' >trace
    run serve --model tiny --trace trace;   expect_status 1; expect_error 'trace:1: TotalTokens: 9; its prompt and its answer have 8'
    echo '{"ContextTokens": 5, "StartTimeOffset": 0}' >trace
    run serve --model tiny --trace trace;   expect_status 1; expect_error 'GeneratedTokens'
}

run_tests test_plans test_profiles test_apex_traces
