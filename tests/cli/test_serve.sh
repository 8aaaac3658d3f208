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
    wrong "$ok" 2 '--check: the backend count only counts' --backend count --check ref
    wrong "$ok" 2 '--answers: the backend count only counts' --backend count --answers x
    wrong "$ok" 2 '--draft: the backend count only counts' --backend count --draft ngram
    wrong '{"prompt":"a","stop_token_ids":[1]}' 2 'request 0: the backend count only counts, so stop tokens are not seen' --backend count
    run serve --model mixtral-tiny --draw lmsys --scale 0.02 --backend count;  expect_status 2
    expect_error '--model: the backend count only counts'
    wrong "$ok" 2 '--draw: --trace has the requests already' --draw lmsys
    wrong "$ok" 2 '--requests: is for --draw' --requests 3
    run serve;                          expect_status 2; expect_error 'needs --trace FILE, --draw NAME or --port N'
    run serve --draw lmsy;              expect_status 2; expect_error 'did you mean lmsys'
    run serve --trace none;             expect_status 1; expect_error '--trace none: cannot be opened'
    run serve --model parscale-tiny --draw lmsys --scale 0.01;      expect_status 2; expect_error '--model: is not served'
    run serve --draw lmsys --answers none/x;                        expect_status 1; expect_error '--answers none/x: '
}

# Proposals change times; with rule same no token, with rule ratio no greedy one.
test_proposals() {
    local words='serve --model llama-tiny --trace trace --tp 2' draft
    run serve --model llama-tiny --draw lmsys --scale 0.1 --rate 20000 --requests 8 --temperature 0.5 --write-trace trace --answers plain
    for draft in ngram tiny; do
        run $words $tight --draft $draft --answers other $exactly;  expect_status 0; expect_silent
        expect_out '^drafts  [1-9][0-9]* proposed, up to 4 at a time, by '; expect_columns 80
        expect_same <(ids plain) <(ids other)
    done
    run $words --draft tiny --take ratio --proposals 2 $exactly --json -;  expect_status 0
    expect_out '"take":.*"ratio"';      expect_out '"at_a_time":.*2'
    run $words --draft tiny --take ratio --check ref;               expect_status 3
    expect_error 'NOT ENOUGH: [0-9]+ of [0-9]+ tokens cannot be judged'
    sed -i 's/"temperature":0.5/"temperature":0/' trace
    run $words --answers plain
    run $words --draft tiny --take ratio --answers other $exactly;  expect_same <(ids plain) <(ids other)
}

# Planned ahead, answers stay; each that a stop token has ended early computes one token more.
test_plan_ahead() {
    local words='serve --model llama-tiny --trace trace' early i
    for i in 1 2 3 4 5 6 7 8; do
        echo '{"prompt":"abc","max_tokens":9,"temperature":0.8,"stop_token_ids":['$(seq -s, 0 60)'],"arrival":'$i'e-5}'
    done >trace
    run $words --answers plain;                                     expect_status 0
    run $words --plan-ahead --tp 2 --answers other $exactly;        expect_status 0; expect_silent
    expect_same <(ids plain) <(ids other)
    early=$(grep '"finish":"stop"' plain | grep -vc '"tokens":9,')
    [ "$early" -gt 2 ] || complain "$early answers end early"
    expect_out "planned ahead: $early tokens behind stop tokens thrown away"
    run $words --plan-ahead --draft tiny --answers other $exactly;  expect_status 0; expect_same <(ids plain) <(ids other)
    run $words --plan-ahead $tight --answers other $exactly;        expect_status 0; expect_same <(ids plain) <(ids other)
}

# The time of a token depends on how many tokens are before it, and not on the iterations before.
test_time_of_lengths() {
    gap() { awk -F'"time":' -v i="$2" '/"time"/ { split($2, t, ","); at[n++] = t[1] } END { printf "%.12f\n", at[i] - at[i - 1] }' "$1"; }
    echo '{"prompt_ids":['$(seq -s, 1 20)'],"max_tokens":3,"ignore_eos":true}' >short
    echo '{"prompt_ids":['$(seq -s, 1 21)'],"max_tokens":2,"ignore_eos":true}' >long
    run serve --model llama-tiny --trace short --stream;    expect_status 0; cp "$place/out" first
    run serve --model llama-tiny --trace long --stream;     expect_status 0; cp "$place/out" second
    expect_same <(gap first 2) <(gap second 1)
    [ "$(gap first 2)" != "$(gap first 1)" ] || complain 'one more key takes no time'
}

# Without numbers every iteration has the same tokens of the same requests, so all counts and times are equal.
test_simulated() {
    local words mesh
    words='serve --model llama-tiny --draw azure-conv --scale 0.03 --requests 40 --rate 20000 --shared-prefix 8'
    words="$words --block 4 --cache-blocks 20 --step-tokens 24 --chunk 7"
    for mesh in '--dp 2 --tp 2' '--pp 2 --plan-ahead' '--cluster h100-infiniband --kernels-of torch-eager'; do
        run $words $mesh --backend count;   expect_status 0; expect_silent
        expect_out '^        times alone: no number was computed'
        grep -v 'times alone' "$place/out" >counted
        run $words $mesh;                   expect_same counted "$place/out"
    done
}

test_wrong_drafts() {
    local words='serve --model tiny --draw lmsys --requests 3 --scale 0.05'
    run $words --take ratio;                expect_status 2; expect_error '--take: is for --draft'
    run $words --draft tiny --ngram 2;      expect_status 2; expect_error '--ngram: is for --draft ngram'
    run $words --draft ./none;              expect_status 1; expect_error '--draft ./none: there is no such folder'
    run $words --draft none;                expect_status 2; expect_error '--draft none: is neither ngram, nor mtp, nor a folder'
    run $words --draft mixtral-tiny;        expect_status 2; expect_error '--draft mixtral-tiny is a mixture'
    run $words --draft gpt2;                expect_status 2; expect_error '--draft gpt2 has 50257 tokens; the model'
    run $words --draft tiny:S=8;            expect_status 2; expect_error '--draft tiny:S=8 has 8 positions'
    run $words --draft mtp;                 expect_status 2; expect_error '--draft mtp: not with --model: its family has no layer'
    words="${words/--model tiny/--model deepseek-v3-tiny} --draft mtp"
    run $words --cp 2;                      expect_status 2; expect_error '--draft mtp: not with --cp: a device has the stream'
    run $words --host-blocks 9;             expect_status 2; expect_error '--draft mtp: not with --host-blocks: blocks go'
    run $words --dp 2 --prompt-replicas 1 --host-blocks 9;   expect_status 2; expect_error '--draft mtp: not with --prompt-replicas'
}

# The layer behind the last of a released model's file proposes, on every mesh, and answers stay.
test_a_layer_that_predicts() {
    local words='--draw lmsys --scale 0.1 --rate 20000 --requests 5 --temperature 0 --shared-prefix 5 --block 2' mesh
    mkdir -p v3
    cp "$top/golden/predictor.safetensors" v3/model.safetensors
    cat >v3/config.json <<'END'
{ "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 23, "hidden_size": 16, "intermediate_size": 20,
  "moe_intermediate_size": 6, "num_hidden_layers": 2, "num_nextn_predict_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
  "n_shared_experts": 1, "n_routed_experts": 6, "routed_scaling_factor": 1.5, "kv_lora_rank": 6, "q_lora_rank": 8, "qk_rope_head_dim": 4,
  "v_head_dim": 5, "qk_nope_head_dim": 6, "n_group": 3, "topk_group": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
  "norm_topk_prob": true, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu" }
END
    run serve --model v3 $words --answers plain;    expect_status 0
    for mesh in '' '--tp 2 --dp 2' '--pp 2 --chunk 3'; do
        run serve --model v3 $words $mesh --draft mtp --answers other $exactly
        expect_status 0; expect_silent; expect_out 'by its own layer'; expect_same <(ids plain) <(ids other)
    done
    run serve --model "$top/golden/packed/numbers" $words --draft mtp;   expect_status 2
}

# Models whose weights are packed integers answer as their numbers do.
test_packed_weights() {
    local words='--draw lmsys --scale 0.1 --rate 20000 --requests 5 --tp 2' model
    run serve --model "$top/golden/packed/numbers" $words --answers plain
    for model in gptq awq; do
        run serve --model "$top/golden/packed/$model" $words --answers other --draft ngram $exactly
        expect_status 0; expect_silent; expect_same <(ids plain) <(ids other)
    done
    run serve --model "$top/golden/packed/numbers" $words --draft "$top/golden/packed/awq" --answers other
    expect_status 0; expect_out '([1-9][0-9]*) tested, \1 taken';     expect_same <(ids plain) <(ids other)
}

# What rounding could decide is not called right.
test_not_enough() {
    echo '{"prompt":"First","max_tokens":12}' >trace
    run serve --model tiny --trace trace --dtype bf16 --check ref;  expect_status 3
    expect_out '^check   NOT ENOUGH'; expect_error 'NOT ENOUGH: [0-9]+ of 12 tokens cannot be judged; --arithmetic exact judges all'
    run serve --model tiny --trace trace --dtype bf16 $exactly;     expect_status 0
}

run_tests test_as_sample test_any_mesh_and_order test_shared_work test_times test_stops test_stream test_wrong_traces \
          test_refused test_proposals test_plan_ahead test_time_of_lengths test_simulated test_wrong_drafts test_packed_weights \
          test_a_layer_that_predicts test_not_enough
