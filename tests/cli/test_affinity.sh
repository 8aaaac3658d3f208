# `orrery affinity`: the folder that it writes holds the same model, speculative dispatch takes it, and what is refused.
# tier: verify
. "$(dirname "$0")/lib.sh"

losses() { echo $(sed -n 's/^step .* loss  *\([0-9.]*\) .*/\1/p' "$place/out"); }
some_steps() { run train --data "$text" --batch 6 --seq 8 --dtype fp64 --optimizer sgd --lr 1 --clip 0 "$@"; expect_status 0; }

# The balance loss of a Mixtral adds up the choices of an expert's number over all layers, so it changes with the numbers.
without_balance_loss() { sed -i 's/"router_aux_loss_coef":.*/"router_aux_loss_coef": 0,/' "$1/config.json"; }

test_same_model() {
    local before
    make_text
    run affinity one --ep 1 --data "$text" --batches 1 --seq 8;     expect_status 0
    run affinity out --ep 4 --data "$text" --batches 8 --seq 8;     expect_status 0; expect_silent
    expect_out '^  nothing known: 1 / 4 +25\.0 % +25\.0 %$'; expect_columns 100
    expect_file out/config.json; expect_file out/model.safetensors; expect_file out/affinity.json
    without_balance_loss one; without_balance_loss out
    ! cmp -s one/model.safetensors out/model.safetensors || complain 'no expert has another number'
    some_steps --model one --steps 6;               before=$(losses)
    some_steps --model out --steps 6;               [ "$(losses)" = "$before" ] || complain "losses $(losses), not $before"
    some_steps --model out --steps 1 --tp 4 --ep 4 --tensor 1d-sp --dispatch speculative --affinity out/affinity.json --check ref
    expect_out '^OK: '
}

# An expert's biases go where its matrices go, and so does the router's bias for it.
test_same_model_with_biases() {
    local model before
    make_text
    for model in gpt-oss-tiny glm4-moe-tiny; do
        run train --model $model --steps 2 --data "$text" --batch 6 --seq 8 --save whole-$model;    expect_status 0
        sed -i 's/"\(n_group\|topk_group\)":.*/"\1": 1,/' whole-$model/config.json     # groups are of neighbouring experts
        run affinity one-$model --ep 1 --model whole-$model --data "$text" --batches 1 --seq 8;     expect_status 0
        run affinity out-$model --ep 4 --model whole-$model --data "$text" --batches 8 --seq 8;     expect_status 0
        ! cmp -s one-$model/model.safetensors out-$model/model.safetensors || complain "$model: no expert has another number"
        without_balance_loss one-$model; without_balance_loss out-$model
        some_steps --model one-$model --steps 2;    before=$(losses)
        some_steps --model out-$model --steps 2;    [ "$(losses)" = "$before" ] || complain "$model: losses $(losses), not $before"
    done
}

# What no expert computes is nowhere; it has columns of the router, which stay.
test_experts_without_computation() {
    make_text
    run train --model mixtral-tiny --zero-experts 3 --steps 0 --data "$text" --save zero;  expect_status 0
    run affinity out --ep 2 --model zero --data "$text" --batches 4 --seq 8;    expect_status 0
    some_steps --model out --steps 1 --tp 2 --ep 2 --dispatch speculative --affinity out/affinity.json --check ref
    expect_out '^OK: '
}

# Requests about one part of the experts each: placed by the table they send less, and no token changes.
test_requests_placed() {
    local bytes=()
    run affinity out --ep 4 --model mixtral-tiny --batches 8;       expect_status 0
    tr -d ' \t\n' <out/affinity.json | sed 's/.*"part_of_token":\[//; s/\].*//' | tr , '\n' | awk '
        $1 >= 0 { of[$1] = of[$1] (of[$1] == "" ? "" : ",") NR - 1 }
        END { for (i = 0; i < 12; i++) print "{\"prompt_ids\":[" of[i * 7 % 5 % 4] "],\"max_tokens\":2,\"ignore_eos\":true}" }' >trace
    for more in '--dispatch alltoall' '--dispatch speculative --affinity out/affinity.json'; do
        run serve --model out --trace trace --dp 4 --ep 4 $more --arithmetic exact --check ref --json out.json --answers "answers${#bytes[@]}"
        expect_status 0; expect_silent
        bytes+=("$(sed -n 's/.*"dispatched_bytes":[[:space:]]*\([0-9]*\).*/\1/p' out.json)")
    done
    expect_out '^experts .* went to experts on other devices, and back; requests are on replicas with experts that they probably need'
    [ "${bytes[1]}" -lt "${bytes[0]}" ] || complain "placed requests send ${bytes[1]} bytes, and ${bytes[0]} in turn"
    expect_same <(grep -o '"ids":\[[0-9,]*\]' answers0) <(grep -o '"ids":\[[0-9,]*\]' answers1)
}

test_refusals() {
    local words=(train --model mixtral-tiny --tp 2 --ep 2)
    make_text
    run affinity out --ep 2 --model tiny;           expect_status 2; expect_error '--model tiny: has no experts'
    run affinity out --ep 0;                        expect_status 2; expect_error '--ep 0: must be a whole number from 1'
    run affinity out --ep 2 --seq 99;               expect_status 2; expect_error '--seq 99: model mixtral-tiny has S='
    run affinity out --ep 2 --data none;            expect_status 1; expect_error 'none'
    run affinity --help;                            expect_status 0; expect_out '^usage: orrery affinity OUT --ep N'
    expect_nothing
    run "${words[@]}" --dispatch speculative;       expect_status 2; expect_error 'needs --affinity FILE, which `orrery affinity` makes'
    run "${words[@]}" --dispatch speculative --affinity none;       expect_status 2; expect_error '--affinity none: cannot be opened'
    echo '{"parts": 2, "part_of_token": [0, 1, 2]}' >bad
    run "${words[@]}" --dispatch speculative --affinity bad;        expect_status 2
    expect_error '--affinity bad: part_of_token\[2\]: must be a part, 0 to 1, or -1'
    echo '{"parts": 2, "part_of_token": [0, 1], "pairs": [[1, 0, 1], [0, 1, 1]]}' >unsorted
    run "${words[@]}" --dispatch speculative --affinity unsorted;   expect_status 2
    expect_error '--affinity unsorted: pairs\[1\]: must be two tokens, 0 to 1, and a part, and stand in order'
    echo '{"parts": 2, "part_of_token": [0, 1]}' >short
    run "${words[@]}" --dispatch speculative --affinity short;      expect_status 2
    expect_error '--affinity: the file has 2 tokens, and --model mixtral-tiny has 256'
    run "${words[@]}" --affinity short;             expect_status 2; expect_error '--affinity: --dispatch alltoall predicts nothing'
}

run_tests test_same_model test_same_model_with_biases test_experts_without_computation test_requests_placed test_refusals
