# Routers of mixtures on the command line: listed, chosen, saved and gone on from with their biases, refused.
# tier: verify
. "$(dirname "$0")/lib.sh"

routed() { make_text; run train --model mixtral-tiny --data "$text" --batch 6 --seq 8 --dtype fp64 --optimizer sgd "$@"; }

test_choices() {
    run list routers;                               expect_status 0; expect_out '^  noaux-tc +sigmoids and a correction bias'
    routed --router group-limited --steps 2 --dp 2 --check ref;     expect_status 0; expect_out '^OK: '
    routed --router longcat --steps 3 --dp 2 --ep 2 --check ref --router-speed 0.3;   expect_status 0; expect_out '^OK: '
}

# Four steps at once, and two and two on another mesh, end with the same weights and biases.
test_resumed() {
    local how=(--router noaux-tc --router-speed 0.05 --allreduce ring)
    routed "${how[@]}" --steps 4 --dp 2 --save whole;               expect_status 0
    routed "${how[@]}" --steps 2 --lr-steps 4 --dp 2 --save half;   expect_status 0
    grep -q '"router_bias"' half/training.json || complain 'half/training.json has no biases'
    run train --resume half --data "$text" --dp 2 --save rest --check ref;      expect_status 0; expect_out '^OK: '
    cmp whole/model.safetensors rest/model.safetensors || complain 'the resumed run has other weights'
    [ "$(sed -n '/router_bias/,/]/p' whole/training.json)" = "$(sed -n '/router_bias/,/]/p' rest/training.json)" ] ||
        complain 'the resumed run has other biases'
    run train --model half --data "$text" --steps 1 --dtype fp64 --check ref;   expect_status 0; expect_out '^OK: '
}

# What training samples at its end is what `orrery sample` draws from the checkpoint, with the biases that its steps have moved.
test_sample() {
    seq -s ' ' 3000 | tr -d '\n' >line
    run train --model mixtral-tiny --router noaux-tc --router-speed 1 --data line --steps 6 --batch 4 --seq 16 --seed 7 --sample 40 --save kept
    expect_status 0
    sed -n '/^sample /,/^$/p' "$place/out" | sed -n '2,$s/^    //p' | tr -d '\n' >of_training
    grep -qE '^\[[0-9 ]+\]' of_training || complain "no sample: $(cat of_training)"
    run sample --model kept --prompt "$(sed -E 's/^\[([^]]*)\].*/\1/' of_training)" --tokens 40 --temperature 0.8 --top-p 1 --seed 7
    expect_status 0
    [ "$(sed 's/^\[//; s/\]//' of_training)" = "$(tr -d '\n' <"$place/out")" ] || complain "the sample of training is not that of the checkpoint: $(cat of_training)"
}

# A golden file has where biases begin; they move with its steps, as those of devices do.
test_golden() {
    make_text
    run golden make --out moved.safetensors --model deepseek-v3-tiny --text "$text" --sequences 2 --tokens 5 --steps 3 --optimizer sgd --keep last
    expect_status 0
    grep -aq 'start/model.layers.1.mlp.gate.e_score_correction_bias' moved.safetensors || complain 'moved.safetensors has no biases'
    run train --check moved.safetensors --optimizer sgd --dtype fp64 --dp 2;       expect_status 0; expect_out '^OK: '
    run golden moved.safetensors;                                   expect_status 0
}

test_refusals() {
    run train --model tiny --router sigmoid;        expect_status 2; expect_error '--router sigmoid: is for mixtures of experts'
    run train --model mixtral-tiny --router sigmo;  expect_status 2; expect_error 'did you mean sigmoid'
    run train --model mixtral-tiny --router-speed 1;    expect_status 2; expect_error '--router-speed 1: is for routers with a bias'
}

test_logits_that_are_not_finite() {
    make_text
    run train --model mixtral-tiny --data "$text" --batch 4 --seq 8 --optimizer sgd --steps 4 --lr 1e6 --clip 0;   expect_status 1
    expect_error 'step [234]: the loss is nan, first in the router of layer 0, in row 0 of the batch: training diverged'
}

run_tests test_choices test_resumed test_sample test_golden test_refusals test_logits_that_are_not_finite
