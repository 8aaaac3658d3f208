# `orrery serve`: the tokens of `orrery sample`, on any mesh and in any order; what is refused; what is printed and written.
. "$(dirname "$0")/lib.sh"

ids() { grep -o '"ids":\[[0-9,]*\]\|"id":"[^"]*"' "$1" | paste - - | sort; }
exactly='--arithmetic exact --check ref'
tight='--block 4 --cache-blocks 20 --step-tokens 24 --chunk 7'

# A request has the tokens that it has alone, with its own seed.
test_as_sample() {
    local model=$top/golden/sampling/llama seed
    for seed in 3 4 5; do
        run sample --model "$model" --prompt First --tokens 8 --top-k 40 --top-p 0.9 --seed $seed --json -
        printf '"id":"%s"\t"ids":[%s]\n' $seed "$(tr -d '\n\t ' <"$place/out" | sed 's/.*"prompt_ids":\[[^]]*\],"ids":\[\([^]]*\)\].*/\1/')" >>want
        echo '{"id":"'$seed'","prompt":"First","max_tokens":8,"top_k":40,"top_p":0.9,"seed":'$seed'}' >>trace
    done
    run serve --model "$model" --trace trace --tp 2 --answers answers $exactly
    expect_status 0; expect_silent; expect_out '^check   OK: 24 of 24 tokens'
    expect_same want <(ids answers)
    expect_out '^served  3 requests of trace'; expect_columns 80
}

# Meshes, orders of arrival, small caches and cut prompts change times, not tokens.
test_any_mesh_and_order() {
    local mesh words='serve --model mixtral-tiny --trace trace'
    run serve --model mixtral-tiny --draw azure-conv --scale 0.03 --requests 10 --rate 3000 --shared-prefix 6 --write-trace trace --answers one $exactly
    expect_status 0; expect_out '^check   OK: ([0-9]+) of \1 tokens'
    sed -E 's/"arrival":[0-9.e-]+/"arrival":0/' trace | tac >turned
    for mesh in '--dp 2 --tp 2' '--pp 2' '--tp 3'; do
        run $words $mesh $tight --answers other $exactly;           expect_status 0; expect_silent
        expect_same <(ids one) <(ids other)
    done
    run serve --model mixtral-tiny --trace turned $tight --answers other $exactly; expect_status 0
    expect_out '[1-9][0-9]* preemptions?$'; expect_out '[1-9][0-9]* tokens of prompts were found'
    expect_same <(ids one) <(ids other)
    run $words $tight --share-prefixes no --answers other;          expect_out '^ +0 tokens of prompts were found'
    run $words --whole-prompts --step-tokens 32 --answers other;    expect_same <(ids one) <(ids other)
}

# Meshes whose replicas wait for each other, share rows, or hand pages over; the host keeps what was preempted.
test_shared_work() {
    local mesh
    run serve --model mixtral-tiny --draw azure-conv --scale 0.03 --requests 10 --rate 3000 --shared-prefix 6 --write-trace trace
    sed -i -E 's/"arrival":[0-9.e-]+/"arrival":0/' trace
    run serve --model mixtral-tiny --trace trace --answers one
    for mesh in '--cp 2' '--ep 2' '--cp 2 --dp 2 --ep 4' '--dp 3 --prompt-replicas 1' '--host-blocks 5'; do
        run serve --model mixtral-tiny --trace trace $mesh $tight --answers other $exactly; expect_status 0; expect_silent
        expect_same <(ids one) <(ids other)
    done
    expect_out '^host    5 blocks a replica; [1-9][0-9]* went there, [0-9]+ came back'
}

# Virtual time is that of the cluster: the same on every run.
test_times() {
    local words='serve --draw lmsys --scale 0.05 --requests 8 --rate 500 --model tiny'
    run $words --first-token 1e-4 --per-token 1;    expect_status 0; cp "$place/out" one
    expect_out 'met by [0-9] of 8 requests'
    run $words --first-token 1e-4 --per-token 1;    expect_same one "$place/out"
    run $words --json -;                            expect_status 0; expect_out '"tokens_per_second":'
}

# A model's own stop tokens end an answer, unless the request ignores them.
test_stops() {
    cp -r "$top/golden/sampling/gpt2" model
    local second
    echo '{"prompt":"First","max_tokens":6,"temperature":0}' >trace
    run serve --model model --trace trace --answers all;            expect_status 0
    second=$(sed 's/.*"ids":\[[0-9]*,\([0-9]*\).*/\1/' all)
    sed -i 's/"eos_token_id": null/"eos_token_id": '"$second"'/' model/config.json
    run serve --model model --trace trace --answers stopped;        expect_status 0
    grep -q '"finish":"stop"' stopped || complain 'it did not stop'
    echo '{"prompt":"First","max_tokens":6,"temperature":0,"ignore_eos":true}' >trace
    run serve --model model --trace trace --answers endless;        expect_same <(ids all) <(ids endless)
}

# Tokens are printed as they come, those of all replicas: together they are the answers.
test_stream() {
    local model=$top/golden/sampling/llama
    printf '{"id":"%s","prompt":"First","max_tokens":5,"seed":3}\n' a b c >trace
    run serve --model "$model" --trace trace --dp 2 --tp 2 --stream --answers answers
    expect_status 0; expect_silent
    expect_out '^\{"id":"b","index":0,"token":[0-9]+,"text":".*","time":[0-9.e-]+,"finish":null\}$'
    expect_out '^\{"id":"c","index":4,.*"finish":"length"\}$'
    for id in a b c; do
        [ "$(sed -n 's/^{"id":"'$id'","index":[0-9]*,"token":\([0-9]*\),.*/\1/p' "$place/out" | paste -sd,)" = "$(sed -n 's/.*"id":"'$id'".*"ids":\[\([^]]*\)\].*/\1/p' answers)" ] || complain "the tokens of $id are not its answer"
    done
    run serve --model "$model" --trace trace --stream --json -;     expect_status 2; expect_error '--stream: --json keeps'
}

wrong() {                                                           # wrong TRACE STATUS MESSAGE WORDS...
    printf '%s\n' "$1" >wrong.jsonl
    local model=tiny; [[ " $* " != *' --model '* ]] || model=
    run serve ${model:+--model $model} --trace wrong.jsonl "${@:4}";            expect_status "$2"; expect_error "$3"
}

test_wrong_traces() {
    wrong '' 1 'wrong.jsonl: has no requests'
    wrong '{' 1 'wrong.jsonl:1: is not JSON'
    wrong $'{"prompt":"a"}\n\n{"prompt":"a","temprature":1}' 1 'wrong.jsonl:3: there is no key temprature; did you mean temperature'
    wrong '{"prompt":"a","max_tokens":40}' 2 'wrong.jsonl:1: request 0: a prompt of 1 tokens and an answer of up to 40; the model has 32 positions'
    wrong '{"prompt":""}' 1 'wrong.jsonl:1: prompt: has no tokens'
    wrong '{"prompt_ids":[1,256]}' 1 'prompt_ids: entry 1 must be a token of the model, 0 to 255'
    wrong '{"prompt":"a","prompt_ids":[1]}' 1 'must have only one of prompt and prompt_ids'
    wrong '{"max_tokens":3}' 1 'must have one of prompt and prompt_ids'
    wrong '[1]' 1 'wrong.jsonl:1: must be an object'
    wrong '{"prompt":"a","arrival":-1}' 1 'arrival: -1; must be 0 to'
    wrong '{"prompt":"a","stop":["x"]}' 1 'stop: refused: stop texts are not served'
    wrong '{"prompt":"a","n":2}' 1 'n: refused: an answer a request'
    wrong '{"prompt":"a","top_p":0}' 1 'top_p: 0; must be'
    wrong '{"prompt":"abcdef","max_tokens":20}' 2 'cache-blocks 1: have room for 16 tokens; request 0 needs 25' --cache-blocks 1
    wrong '{"prompt":"abcd","max_tokens":9}' 2 'whole-prompts: request 0 may have 12 tokens' --whole-prompts --step-tokens 8
}

test_refused() {
    local ok='{"prompt":"a"}'
    wrong "$ok" 2 '--tensor: is not served: 1d alone' --tensor 2d --tp 4
    wrong "$ok" 2 '--prompt-replicas 2: of --dp 2 replicas at least one must write answers' --dp 2 --prompt-replicas 2
    wrong "$ok" 2 '--prompt-replicas: is not served with --ep' --model mixtral-tiny --dp 2 --ep 2 --prompt-replicas 1
    wrong '{"prompt":"abcdefgh"}' 2 '--host-blocks 1: have room for 4 tokens; the prompt of request 0 has 8' --dp 2 --prompt-replicas 1 --host-blocks 1 --block 4
    wrong "$ok" 2 '--data-parallel: is not served' --data-parallel zero3 --dp 2
    wrong "$ok" 2 '--backend count: only counts' --backend count
    wrong "$ok" 2 '--draw: --trace has the requests already' --draw lmsys
    wrong "$ok" 2 '--requests: is for --draw' --requests 3
    run serve;                          expect_status 2; expect_error 'needs --trace FILE, --draw NAME or --port N'
    run serve --draw lmsy;              expect_status 2; expect_error 'did you mean lmsys'
    run serve --trace none;             expect_status 1; expect_error '--trace none: cannot be opened'
    run serve --model parscale-tiny --draw lmsys --scale 0.01;      expect_status 2; expect_error '--model: is not served'
    run serve --draw lmsys --answers none/x;                        expect_status 1; expect_error '--answers none/x: '
}

# What rounding could decide is not called right.
test_not_enough() {
    echo '{"prompt":"First","max_tokens":12}' >trace
    run serve --model tiny --trace trace --dtype bf16 --check ref;  expect_status 3
    expect_out '^check   NOT ENOUGH'; expect_error 'NOT ENOUGH: [0-9]+ of 12 tokens cannot be judged; --arithmetic exact judges all'
    run serve --model tiny --trace trace --dtype bf16 $exactly;     expect_status 0
}

run_tests test_as_sample test_any_mesh_and_order test_shared_work test_times test_stops test_stream test_wrong_traces test_refused test_not_enough
