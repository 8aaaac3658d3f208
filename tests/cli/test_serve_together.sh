# `orrery serve`: proposals, iterations planned ahead, nano-batches and weights that come, beside swapped blocks, shared rows and experts; streams.
. "$(dirname "$0")/lib.sh"

ids() { grep -o '"ids":\[[0-9,]*\]\|"id":"[^"]*"' "$1" | paste - - | sort; }
# What a stream says of each request: its tokens in order, and why it ended.
said() { sed -nE 's/^\{"id":"([^"]*)","index":([0-9]+),"token":([0-9]+),.*"finish":(.*)\}$/\1 \2 \3 \4/p' "$1" | sort -n -k1,1 -k2,2; }
exactly='--arithmetic exact --check ref'
tight='--block 4 --cache-blocks 20 --step-tokens 24 --chunk 7'

# All of them change times, and no token.
test_no_token_changes() {
    local mesh draft
    run serve --model mixtral-tiny --draw azure-conv --scale 0.03 --requests 10 --rate 3000 --temperature 0.5 --write-trace trace
    sed -i -E 's/"arrival":[0-9.e-]+/"arrival":0/' trace
    run serve --model mixtral-tiny --trace trace --answers plain;   expect_status 0
    for mesh in '--cp 3' '--cp 2 --tp 2 --plan-ahead' '--ep 2 --dp 2' '--cp 2 --dp 2 --ep 4 --plan-ahead' '--pp 2 --cp 2'; do
        run serve --model mixtral-tiny --trace trace $tight $mesh --draft ngram --answers other $exactly
        expect_status 0; expect_silent; expect_out '^drafts  [1-9][0-9]* proposed'
        expect_same <(ids plain) <(ids other)
    done
    for draft in '--draft ngram' '--draft tiny' '--plan-ahead' '--draft tiny --plan-ahead'; do
        run serve --model mixtral-tiny --trace trace $tight --host-blocks 9 $draft --answers other $exactly
        expect_status 0; expect_silent; expect_same <(ids plain) <(ids other)
        expect_out '^host    9 blocks a replica; [1-9][0-9]* went there, [1-9][0-9]* came back'
    done
}

# A stream has every token that came with an iteration, and its end where the stop token is.
test_streams() {
    local words='serve --model llama-tiny --trace trace --stream' i more
    for i in 1 2 3 4 5 6; do
        echo '{"id":"'$i'","prompt":"abcabcab","max_tokens":9,"temperature":0.3,"stop_token_ids":['$(seq -s, 0 40)'],"arrival":'$i'e-5}'
    done >trace
    run $words;                         expect_status 0; said "$place/out" >plain
    [ "$(grep -c '"stop"' plain)" -gt 1 ] || complain 'no answer ends early'
    for more in '--draft tiny' '--draft ngram --tp 2' '--plan-ahead' '--plan-ahead --draft tiny --cp 2' '--plan-ahead --host-blocks 4 --block 4 --cache-blocks 7'; do
        run $words $more $exactly;      expect_status 0; expect_silent
        expect_same plain <(said "$place/out")
    done
}

# Nano-batches change no token, beside all else; without numbers they take the same time; the report is the JSON's.
test_nano_batches() {
    local words="serve --model llama-tiny --trace trace $tight" more
    run serve --model llama-tiny --draw azure-conv --scale 0.03 --requests 6 --rate 90000 --write-trace trace --answers plain
    expect_status 0
    for more in '--nano 4,2 --draft tiny' '--nano search --tp 2 --plan-ahead' '--nano 1,4 --dp 2 --host-blocks 9'; do
        run $words $more --answers other $exactly;  expect_status 0; expect_silent
        expect_out '^nano    [124] and [124] parts of iterations of'; expect_out 'together: [1-9][0-9.]* times as fast$'
        expect_same <(ids plain) <(ids other)
    done
    run $words --nano search --tp 2 --backend count;    expect_status 0; expect_silent
    grep -v 'times alone' "$place/out" >counted
    run $words --nano search --tp 2;                    expect_status 0; expect_same counted "$place/out"
    run $words --nano 2,2 --tp 2 --json out.json;       expect_status 0
    grep -q '"cuts":.*"up_to_attention":2,' <(tr -d '\n\t ' <out.json) || complain 'the cuts are not in the JSON'
    for more in 3,1 2 2,2,2 x; do
        run $words --nano $more;                        expect_status 2; expect_error "--nano $more: is neither search nor two numbers of parts"
    done
    run $words --nano 2,2 --pp 2;                       expect_status 2; expect_error '--nano: is not served with --pp'
    run $words --nano 2,2 --cp 2;                       expect_status 2; expect_error '--nano: is not served with --cp'
    run $words --nano 2,2 --dp 2 --prompt-replicas 1;   expect_status 2; expect_error '--nano: is not served with --prompt-replicas'
}

# Weights come part by part from a slow tier: no token changes, and what is on the device and what is read are the formula's.
test_window() {
    local words="serve --model llama-tiny --trace trace $tight" ring more
    run serve --model llama-tiny --draw azure-conv --scale 0.03 --requests 8 --rate 90000 --write-trace trace --answers plain
    expect_status 0
    for ring in 2 4; do
        for more in '' '--tp 2 --pp 2 --host-blocks 9' "--dp 2 --tp 2 --offload-to $PWD"; do
            run $words $more --offload weights --ring $ring --answers other $exactly;  expect_status 0; expect_silent
            expect_out "^window  $ring parts of the model on a device, weights of .* at most, as by the formula"
            expect_same <(ids plain) <(ids other)
        done
    done
    run $words --offload weights --backend count;       expect_status 0; expect_silent
    grep -v 'times alone' "$place/out" >counted
    run $words --offload weights;                       expect_status 0; expect_same counted "$place/out"
    run $words --offload weights --json out.json;       expect_status 0
    grep -q '"window":{"parts":3,' <(tr -d '\n\t ' <out.json) || complain 'the window is not in the JSON'
    run $words --offload weights --nano 2,2;            expect_status 2; expect_error '--nano: is not served with --offload'
    run $words --offload optimizer;                     expect_status 2; expect_error '--offload'
}

# Without numbers, rows that are dealt and blocks that leave take the time that they take with numbers.
test_simulated_together() {
    local words="serve --model llama-tiny --draw azure-conv --scale 0.03 --requests 20 --rate 90000 $tight" mesh
    for mesh in '--cp 2 --tp 2' '--host-blocks 9' '--host-blocks 9 --plan-ahead --cp 2'; do
        run $words $mesh --backend count;       expect_status 0; expect_silent
        grep -v 'times alone' "$place/out" >counted
        run $words $mesh;                       expect_status 0; expect_same counted "$place/out"
    done
    grep -qE '^host .* [1-9][0-9]* went there' counted || complain 'nothing was swapped'
}

no_server='this program was built without GNU libmicrohttpd, which --port needs'     # the program says so first
test_refused_together() {
    local words='serve --model tiny' drawn='--draw lmsys --requests 3 --scale 0.05'
    run $words --port 0 --draft tiny:S=8;                   expect_status 2; expect_error "--draft tiny:S=8 has 8 positions|$no_server"
    run $words --port 0 --plan-ahead;                       expect_status 2; expect_error '--plan-ahead: is not served with --port'
    run $words $drawn --dp 2 --prompt-replicas 1 --plan-ahead;      expect_status 2; expect_error '--plan-ahead: is not served with --prompt-replicas'
    run $words $drawn --stream --backend count;             expect_status 2; expect_error '--stream: the backend count only counts, and an answer is made of numbers'
    run $words --port 0 --backend count;                    expect_status 2; expect_error "--port: the backend count only counts|$no_server"
    run $words $drawn --dp 2 --prompt-replicas 1 --backend count;   expect_status 2; expect_error '--prompt-replicas: the backend count only counts'
}

# Replicas that get prompts from others propose; those that compute prompts do not.
test_drafts_apart() {
    local words='serve --model llama-tiny --trace trace --dp 3' draft
    run serve --model llama-tiny --draw azure-conv --scale 0.03 --requests 10 --rate 9000 --temperature 0.5 --write-trace trace
    run serve --model llama-tiny --trace trace --answers plain;     expect_status 0
    for draft in '--draft ngram --prompt-replicas 1' "--draft tiny --prompt-replicas 2 $tight"; do
        run $words $draft --answers other $exactly; expect_status 0; expect_silent
        expect_out '^drafts  [1-9][0-9]* proposed'; expect_same <(ids plain) <(ids other)
    done
    run $words --prompt-replicas 1 --draft tiny --take ratio $exactly;  expect_status 0
    sed -i 's/"temperature":0.5/"temperature":0/' trace
    run $words --answers plain
    run $words --prompt-replicas 1 --draft tiny --take ratio --answers other $exactly;  expect_same <(ids plain) <(ids other)
}

run_tests test_no_token_changes test_streams test_drafts_apart test_nano_batches test_window test_simulated_together test_refused_together
