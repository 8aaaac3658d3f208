# `orrery train --data-parallel local-sgd|diloco|slowmo`: copies that train apart, on the command line, in checkpoints and in what is reported.
. "$(dirname "$0")/lib.sh"

small='--batch 6 --seq 4'

# Between two outer steps copies are not equal, and nothing that is compared by hash says so; one of a replica's own would.
test_beside_the_reference() {
    train $small --dp 2 --pp 2 --data-parallel diloco --local-steps 2 --steps 3 --check ref --paranoid;     expect_status 0; expect_out '^OK: '
    train $small --dp 3 --data-parallel slowmo --local-steps 2 --outer-lr 0.8 --steps 5 --lr-steps 7 --check ref --paranoid;   expect_status 0; expect_out '^OK: '
    train $small --dp 4 --shard-group 2 --data-parallel local-sgd --local-steps 2 --steps 3 --dtype bf16 --check ref --paranoid
    expect_status 0; expect_out '^OK: '; expect_out '^traffic .*equal'; expect_out '^memory .*equal'
}

# A break after three of N steps changes nothing, to the last bit.
round_trip() {                          # round_trip N FLAGS ..
    local steps=$1; shift
    train "$@" --steps $steps --save whole;                         expect_status 0
    train "$@" --steps 3 --lr-steps $steps --save half;             expect_status 0
    train "$@" --steps $((steps - 3)) --resume half --save again;   expect_status 0
    for f in config.json model.safetensors optimizer.safetensors; do expect_same whole/$f again/$f; done
}

# In the middle of a round.
test_round_trip() {
    round_trip 6 $small --dp 2 --data-parallel diloco --local-steps 4
    train $small --dp 2 --tp 2 --data-parallel diloco --steps 0 --resume half --save moved;     expect_status 0     # any mesh of as many
    for f in model.safetensors optimizer.safetensors; do expect_same half/$f moved/$f; done
}

# With the rate of the step that is made, and not of the first one after the break.
test_round_trip_of_a_slow_momentum() {
    round_trip 5 $small --dp 2 --data-parallel slowmo --local-steps 2
}

# The model of a checkpoint is what the last outer step made: of a first round that is not over, where it began.
test_the_model_is_the_last_outer_steps() {
    train $small --dp 2 --steps 0 --save start;                                                 expect_status 0
    train $small --dp 2 --data-parallel local-sgd --local-steps 3 --steps 2 --save early;       expect_status 0
    expect_out '^rounds  2 replicas, 0 outer steps, one every 3 steps; the saved model is that of step 0; '
    cmp -s <(tail -c 4000 start/model.safetensors) <(tail -c 4000 early/model.safetensors) || complain 'the model is not where the round began'
    train $small --dp 2 --data-parallel local-sgd --local-steps 3 --steps 3 --save later;       expect_status 0
    expect_out '^rounds  2 replicas, 1 outer step, one every 3 steps; the last one after the last step$'
    ! cmp -s <(tail -c 4000 start/model.safetensors) <(tail -c 4000 later/model.safetensors) || complain 'the outer step has made nothing of it'
}

# Copies that were together can part; those that are apart go on as they are, or not at all.
test_parting_and_not_meeting() {
    train $small --dp 2 --steps 2 --lr-steps 4 --save together;                                 expect_status 0
    train $small --dp 3 --data-parallel diloco --local-steps 2 --steps 2 --resume together --override --check ref --save apart;     expect_status 0; expect_out '^OK: '
    train $small --dp 3 --zero 0 --steps 1 --resume apart;                                      expect_status 2
    expect_error '--resume apart: cannot be resumed: --data-parallel: saved diloco, now not given; .*; --model DIR starts a new run from its weights'
    train $small --dp 2 --steps 1 --resume apart --override;                                    expect_status 2
    expect_error '--resume apart: cannot be resumed: replicas: saved 3, now 2'
    run train --data "$text" $small --dp 2 --steps 1 --model apart;                             expect_status 0
}

refuses() { expect_status 2; expect_error "$1"; }
test_refusals() {
    train --dp 2 --local-steps 4;                                                   refuses '--local-steps 4: --data-parallel ddp reduces gradients in every step, and has no outer step; use --data-parallel local-sgd'
    train --dp 2 --data-parallel local-sgd --outer-momentum 0.5;                    refuses '--outer-momentum 0.5: --data-parallel local-sgd takes the mean of its copies, without momentum; use --data-parallel diloco'
    train --dp 2 --zero 2 --outer-lr 1;                                             refuses '--outer-lr 1: --data-parallel zero2 reduces'
    train --dp 2 --data-parallel diloco --outer-momentum 0;                         refuses '--outer-momentum 0: without momentum diloco is --data-parallel local-sgd'
    train --dp 2 --data-parallel slowmo --outer-momentum 0;                         refuses '--outer-momentum 0: without momentum slowmo is --data-parallel local-sgd'
    train --dp 2 --data-parallel slowmo --min-lr 0;                                 refuses '--data-parallel slowmo: divides by the learning rate, so --lr and --min-lr must be above 0'
    train --dp 2 --data-parallel slowmo --lr 0;                                     refuses '--data-parallel slowmo: divides by the learning rate'
    train --dp 2 --data-parallel diloco --local-steps 0;                            refuses '--local-steps 0: '
    train --dp 4 --data-parallel diloco --shards 1,2,2 --shard-group 2;             refuses 'takes --shards W,G,O or --shard-group, not both'
    train --dp 2 --data-parallel diloco --dtype fp16;                               refuses '--dtype fp16: needs a loss scale, .*--dtype bf16 needs no loss scale'
    run train --data-parallel diloco --check "$top/golden/gpt2-tied.safetensors";   refuses '--data-parallel diloco: a golden file.s run adds up'
}

run_tests test_beside_the_reference test_round_trip test_round_trip_of_a_slow_momentum test_the_model_is_the_last_outer_steps test_parting_and_not_meeting test_refusals
