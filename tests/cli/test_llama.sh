# A Llama on the command line: beside the one-device run, beside PyTorch's golden files, saved and gone on from, refused.
. "$(dirname "$0")/lib.sh"

llama() { make_text; run train --model llama-tiny --data "$text" "$@"; }

test_check() {
    llama --tp 2 --pp 2 --steps 2 --check ref;                              expect_status 0; expect_silent; expect_out '^OK: '
    expect_out '^traffic counted .* equal the formulas';                    expect_out '^memory +counted .* equal the formulas'
    llama --tp 2 --pp 2 --tensor 1d-sp --recompute full --schedule zb-h1 --micro 4 --steps 1 --check ref;   expect_status 0; expect_out '^OK: '
}

# 8 query heads and 4 key/value heads on 5 devices: two of them have copies of one.
test_copies_of_keys() {
    llama --tp 5 --dtype fp64 --batch 5 --seq 7 --steps 2 --check ref --paranoid;       expect_status 0; expect_out '^OK: '
    llama --tp 5 --dtype fp64 --batch 5 --seq 7 --steps 1 --check ref --isolate;        expect_status 0; expect_out '^OK: '
}

test_golden() {
    run train --check "$top/golden/llama-grouped.safetensors" --tp 3;                   expect_status 0; expect_out '^OK: '
    run train --check "$top/golden/llama-scaled.safetensors" --tp 2 --pp 2;             expect_status 0; expect_out '^OK: '
}

# Files do not depend on the mesh, and are a Llama's of transformers.
test_round_trip() {
    llama --tp 5 --steps 2 --save saved;                                    expect_status 0
    grep -q '"model_type":[[:space:]]*"llama"' saved/config.json || complain 'its config.json is not that of a llama'
    for name in model.layers.0.self_attn.k_proj.weight model.layers.7.mlp.gate_proj.weight; do
        grep -aq "\"$name\"" saved/model.safetensors || complain "$name is not in its file"
    done
    run train --data "$text" --resume saved --steps 0 --tp 2 --pp 2 --save moved;       expect_status 0
    for f in config.json model.safetensors optimizer.safetensors; do expect_same saved/$f moved/$f; done
    run train --data "$text" --model saved --steps 1 --dp 2 --tp 2 --zero 3 --check ref;    expect_status 0; expect_out '^OK: '
}

# A key that nobody knows may change the model; so may padding that is a token of the text.
test_config_keys() {
    llama --tp 2 --seq 8 --batch 2 --steps 1 --save saved;                  expect_status 0
    local byte; byte=$(head -c 1 "$text" | od -An -tu1 | tr -d ' ')
    rm saved/checkpoint.sha256                                              # the file is changed on purpose
    sed -i "s/\"model_type\"/\"pad_token_id\": $byte, &/" saved/config.json
    run train --data "$text" --model saved --steps 1;                       expect_status 2; expect_error "token $byte is the model's pad_token_id"
    sed -i "s/\"pad_token_id\": $byte/\"rope_parameter\": {}/" saved/config.json
    run train --data "$text" --model saved --steps 1;                       expect_status 1
    expect_error 'does not know the key "rope_parameter"|did you mean "rope_parameters"'
}

test_mixture() {
    make_text
    run train --data "$text" --model mixtral-tiny --batch 6 --seq 8 --steps 2 --dtype fp64 --dp 2 --pp 2 --schedule gpipe --check ref --save saved
    expect_status 0;  expect_out '^OK: '
    run train --data "$text" --model saved --batch 6 --seq 8 --steps 1 --dp 3 --zero 3 --micro 1 --check ref;       expect_status 0;  expect_out '^OK: '
    run train --model mixtral-tiny --pp 2 --micro 2;    expect_status 0
    run train --model mixtral-tiny --pp 2 --balance-over batch; expect_status 2; expect_error "use --balance-over microbatch, or --schedule gpipe"
}

# Rounding decides between nearly equal logits, on devices otherwise than on one: tokens go to other experts.
test_mixture_in_16_bits() {
    make_text
    local same=(train --data "$text" --model mixtral-tiny --batch 4 --seq 16 --steps 2 --tp 3 --check ref)
    run "${same[@]}" --dtype bf16 --json run.json;   expect_status 0;  expect_out '^OK: '
    expect_out '^routing: [1-9][0-9]* of 1024 choices differ from the one-device run, each within the rounding of its logits'
    grep -q '"differ":' run.json || complain 'run.json does not count the choices that differ'
    run "${same[@]}" --dtype fp64;                   expect_status 0;  expect_no_out '^routing'
}

test_refusals() {
    llama --tp 9;                           expect_status 2; expect_error '--tp 9: the model has H=8 heads; tp can be at most that'
    llama --tp 125 --tensor 3d;             expect_status 2; expect_error '--tp 125'
    run train --model mixtral-tiny --tp 2 --tensor 1d-sp;  expect_status 2; expect_error '--tensor 1d-sp: devices along tp have different rows'
}

run_tests test_check test_copies_of_keys test_golden test_round_trip test_config_keys test_mixture test_mixture_in_16_bits test_refusals
