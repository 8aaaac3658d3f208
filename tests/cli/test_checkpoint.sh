# What is saved can be gone on from, on any mesh; what cannot be saved leaves the last checkpoint as it was.
. "$(dirname "$0")/lib.sh"

losses() { sed -n 's/.*"loss":[^0-9-]*\([-0-9.e]*\),.*/\1/p' "$1"; }
steps() { sed -n 's/.*"step":[^0-9]*\([0-9]*\),.*/\1/p' "$1" | tr '\n' ' '; }
held_out() { sed -n 's/^ *"validation_loss":[^0-9]*\([0-9.e]*\),*$/\1/p;s/^.*"validation_loss":[[:space:]]*\([0-9.e]*\).*/\1/p' "$1" | head -n 1; }

# As many losses as steps, and none further apart than rounding makes them.
expect_close() {                                    # expect_close FILE FILE STEPS BOUND
    paste <(losses "$1" | tail -n "$3") <(losses "$2" | tail -n "$3") |
        awk -v n="$3" -v bound="$4" '{ d = $1 - $2; if (d < 0) d = -d; if (NF == 2 && d <= bound * $1) good++ } END { exit !(NR == n && good == n) }' ||
        complain "losses of $1 and $2 differ: $(losses "$1" | tail -n "$3" | tr '\n' ' ') and $(losses "$2" | tail -n "$3" | tr '\n' ' ')"
}

# N + M steps equal N steps, a checkpoint and M more: every bit of the weights and of the optimizer's state.
round_trip() {
    train --steps 4 --save whole --json whole.json "$@";                    expect_status 0; expect_silent
    train --steps 2 --lr-steps 4 --save half "$@";                          expect_status 0
    train --steps 2 --resume half --save whole2 --json half.json "$@";      expect_status 0; expect_silent
    for f in config.json model.safetensors optimizer.safetensors training.json; do expect_same whole/$f whole2/$f; done
    [ "$(steps half.json)" = '3 4 ' ] || complain "its steps are $(steps half.json)"
    [ "$(losses whole.json | tail -n 2)" = "$(losses half.json)" ] || complain 'its losses are not those of the run without a break'
}
test_same_mesh_adamw()          { round_trip; }
test_same_mesh_momentum()       { round_trip --optimizer momentum --dp 2 --pp 2 --dtype fp64; }
test_same_mesh_untied_dropout() { round_trip --tp 2 --untied --dropout 0.1; }
test_same_mesh_no_state()       { round_trip --optimizer sgd --pp 4 --schedule zb-v --batch 12; }
test_masters_in_16_bits()       { round_trip --dtype bf16 --grad-dtype bf16 --dp 2 --zero 3; }
test_loss_scale() {
    round_trip --dtype fp16 --dp 2 --zero 2 --loss-scale 16777216
    grep -q '"skipped":[[:space:]]*true' whole.json || complain 'no step was skipped'
}
test_same_rates_by_default() {
    train --steps 4 --warmup 0 --min-lr 1e-3 --lr 1e-3 --save whole;        expect_status 0
    train --steps 3 --warmup 0 --min-lr 1e-3 --lr 1e-3 --save half;         expect_status 0
    train --steps 1 --warmup 0 --min-lr 1e-3 --lr 1e-3 --resume half --save half;       expect_status 0     # over itself
    expect_same whole/model.safetensors half/model.safetensors
}

test_another_mesh() {
    local fp64='--dtype fp64 --optimizer sgd'
    train $fp64 --steps 4 --json whole.json;                                expect_status 0
    train $fp64 --steps 2 --lr-steps 4 --dp 2 --tp 2 --save half;           expect_status 0
    train $fp64 --steps 2 --resume half --pp 2 --tp 3 --json half.json --check ref;     expect_status 0; expect_out '^OK: '
    expect_close whole.json half.json 2 1e-13
    train $fp64 --steps 2 --resume half --json half.json;                   expect_status 0
    expect_close whole.json half.json 2 1e-13
    train $fp64 --steps 0 --resume half --pp 4 --save moved;                expect_status 0     # files do not depend on the mesh
    for f in config.json model.safetensors optimizer.safetensors; do expect_same half/$f moved/$f; done
}

# Whoever keeps what, a checkpoint has the same bits, and can be gone on from by another.
test_another_data_scheme() {
    train --steps 2 --lr-steps 4 --dp 3 --zero 3 --save half;               expect_status 0
    train --steps 0 --resume half --dp 2 --tp 2 --data-parallel fsdp --save moved;                      expect_status 0
    train --steps 0 --resume moved --dp 4 --data-parallel hsdp --shard-group 2 --save again;            expect_status 0
    train --steps 0 --resume again --dp 4 --shards 1,2,4 --pp 2 --save back;                            expect_status 0
    for f in model.safetensors optimizer.safetensors; do expect_same half/$f back/$f; done
    train --steps 2 --resume back --dp 4 --zero 1 --check ref;              expect_status 0; expect_out '^OK: '; expect_out 'step  *4/4 '
}
test_same_mesh_zero3()          { round_trip --zero 3 --dp 3; }
test_projections()              { round_trip --optimizer natural-galore --rank 4 --refresh 3 --history 3 --dp 2 --pp 2; }
test_codes()                    { round_trip --optimizer galore --rank 32 --as galore-torch,states=8-bit --dp 2 --batch 4 --seq 8; }
test_another_rank_is_refused() {
    train --steps 1 --optimizer galore --rank 4 --save four;                expect_status 0
    train --steps 1 --optimizer galore --rank 5 --resume four;              expect_status 2; expect_error '--resume four: cannot be resumed: --rank: saved 4, now 5'
}
test_same_mesh_fsdp()           { round_trip --data-parallel fsdp --dp 2 --pp 2 --optimizer momentum; }

test_model_folder() {
    train --steps 3 --tp 2 --untied --save saved --json saved.json;         expect_status 0
    run train --data "$text" --model saved --steps 0 --dp 2 --json read.json;           expect_status 0
    [ -n "$(held_out saved.json)" ] || complain 'no loss on held-out text'
    [ "$(held_out saved.json)" = "$(held_out read.json)" ] || complain 'the weights that were read do not have the loss of those saved'
    run train --data "$text" --model saved --steps 1 --pp 2 --check ref;    expect_status 0; expect_out '^OK: '
    run train --data "$text" --model saved --steps 0 --dtype fp64 --save wide;          expect_status 0
    run train --data "$text" --model wide --steps 0 --save again;           expect_status 0     # fp32, fp64, fp32: nothing is lost
    run train --data "$text" --model saved --steps 0 --save once;           expect_status 0
    expect_same once/model.safetensors again/model.safetensors
}

# Other ranks must not wait for a rank 0 that has failed to write.
test_failure_while_saving_on_a_mesh() {
    train --steps 1 --pp 2 --tp 2 --save kept;  expect_status 0
    rm kept/model.safetensors
    make_text
    command='orrery train --save kept, where model.safetensors becomes a folder during the run'
    ORRERY_DELAY=2000 timeout -k 5 300 "$program" train --model tiny --data "$text" --steps 12 --pp 2 --tp 2 --save kept </dev/null >"$place/out" 2>"$place/err" &
    for _ in $(seq 3000); do grep -q '^step' "$place/out" 2>/dev/null && break; sleep 0.1; done
    mkdir kept/model.safetensors
    status=0; wait $! || status=$?; look
    expect_status 1; expect_error '--save kept/model.safetensors: cannot be written: it is a folder'
    [ "$(ls kept | wc -l)" = 6 ] || complain "it left something: $(ls kept)"
}

run_tests test_same_mesh_adamw test_same_mesh_momentum test_same_mesh_untied_dropout test_same_mesh_no_state test_same_rates_by_default \
          test_masters_in_16_bits test_loss_scale test_another_mesh test_another_data_scheme test_same_mesh_zero3 test_same_mesh_fsdp \
          test_projections test_another_rank_is_refused test_model_folder \
          test_failure_while_saving_on_a_mesh
