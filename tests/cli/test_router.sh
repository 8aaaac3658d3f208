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

test_refusals() {
    run train --model tiny --router sigmoid;        expect_status 2; expect_error '--router sigmoid: is for mixtures of experts'
    run train --model mixtral-tiny --router sigmo;  expect_status 2; expect_error 'did you mean sigmoid'
    run train --model mixtral-tiny --router-speed 1;    expect_status 2; expect_error '--router-speed 1: is for routers with a bias'
}

test_logits_that_are_not_finite() {
    make_text
    run train --model mixtral-tiny --data "$text" --batch 4 --seq 8 --optimizer sgd --steps 4 --lr 1e5 --clip 0;   expect_status 1
    expect_error 'step [234]: the loss is nan, first in the router of layer 0, in row 0 of the batch: training diverged'
}

run_tests test_choices test_resumed test_refusals test_logits_that_are_not_finite
