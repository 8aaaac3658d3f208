# A resumed run is the run that was saved: what is not given is as it was, what would make it another run is refused, file by file and bit by bit.
. "$(dirname "$0")/lib.sh"

# As little as has everything in it.
small='--batch 4 --seq 8'

# Three steps, and then two that are told nothing but how many, make the bits of five.
goes_on() {                                         # goes_on FLAGS..., of $model
    local mesh=()
    make_text
    [ "${1:-}" != --mesh ] || { mesh=($2); shift 2; }
    local first=(train --model "${model:-tiny}" --data "$text" $small --lr-steps 5 "$@" "${mesh[@]}")
    run "${first[@]}" --steps 5 --save whole;                               expect_status 0
    run "${first[@]}" --steps 3 --save half;                                expect_status 0
    run train --resume half --save again "${mesh[@]}";                      expect_status 0; expect_silent; expect_out '^resumed half, at step 3$'
    for f in config.json model.safetensors optimizer.safetensors training.json; do expect_same whole/$f again/$f; done
    rm -rf whole half again
}
test_goes_on_as_it_was() {
    goes_on --lr 0.0123456789012345678 --min-lr 1e-7 --warmup 2 --seed 18446744073709551557 --dropout 0.15 --clip 0.3 --weight-decay 0.017
    goes_on --optimizer momentum --lr 3.3e-2 --clip 0 --dtype fp64
    model=llama-tiny goes_on --dropout 0.125
    goes_on --optimizer natural-galore --rank 3 --refresh 2 --galore-scale 0.3 --history 2 --damping 0.007
    goes_on --optimizer mezo --mezo-eps 0.0025 --lr 1e-5
    goes_on --dtype fp16 --grad-dtype fp16 --loss-scale 16777216
    goes_on --mesh '--dp 2' --data-parallel diloco --local-steps 2 --outer-lr 0.6 --outer-momentum 0.8
    goes_on --mesh '--dp 2' --data-parallel slowmo --local-steps 2 --outer-lr 0.9 --outer-momentum 0.6
    goes_on --mesh '--dp 2 --zero 1' --quantize-weights int8 --quantize-block 64
}

# Each thing that makes a run: changed it is refused, and says what was saved and what is now; with --override it goes on.
test_another_run_is_refused() {
    train $small --steps 1 --lr-steps 4 --save kept;                        expect_status 0
    seq 5000 >other; seq 1001 4000 | head -c "$(wc -c <"$text")" >as_long
    cp -r kept before
    local change flag
    for change in '--seed 7' '--batch 5' '--seq 9' '--lr 2e-3' '--min-lr 2e-4' '--warmup 3' '--lr-steps 9' '--clip 0.5' '--weight-decay 0.2' \
                  '--dtype bf16' '--dropout 0.2:dropout of embeddings' '--data other:text' "--data as_long:text"; do
        flag=${change#*:}
        [ "$flag" != "$change" ] || flag=${change% *}
        change=${change%%:*}
        run train --resume kept --steps 1 $change
        expect_status 2; expect_error "--resume kept: this would be a different run: .*$flag: saved .*, now .*; --override continues anyway\$"
        run train --resume kept --steps 1 $change --override;               expect_status 0
        expect_out "^differs from the saved run: .*$flag: saved .*, now "
    done
    run train --resume kept --steps 1 --lr 2e-3 --seed 7 --dp 2
    expect_status 2; expect_error '--seed: saved 42, now 7; --lr: saved 0\.001, now 0\.002; --override'
    run train --resume kept --steps 1 --dtype bf16 --grad-dtype bf16;       expect_status 2; expect_error '--dtype: saved fp32, now bf16; --grad-dtype: saved fp32, now bf16'
    run train --resume kept --steps 1 --dp 2 --data-parallel diloco;        expect_status 2; expect_error '--data-parallel: saved not given, now diloco'
    run train --resume kept --steps 1 --dp 2 --data-parallel diloco --override;         expect_status 0
    run train --resume kept --steps 1 --pp 2 --schedule pipedream-2bw --micro 2 --clip 1;       expect_status 2
    run train --resume kept --steps 1 --dp 2 --zero 1 --quantize-weights int8;          expect_status 2; expect_error '--quantize-weights: saved not given, now int8'
    for f in $(ls before); do expect_same before/$f kept/$f; done
}

# What has no state there is for good.
test_what_cannot_be_gone_on_with() {
    train $small --steps 1 --optimizer galore --rank 4 --save kept;         expect_status 0
    local change
    for change in '--optimizer adamw' '--rank 5' '--model llama-tiny' '--untied'; do
        run train --resume kept --steps 1 $change;                          expect_status 2
        expect_error '--resume kept: cannot be resumed: .*saved .*, now .*; --model DIR starts a new run from its weights$'
        run train --resume kept --steps 1 $change --override;               expect_status 2; expect_error 'cannot be resumed'
    done
    run train --model kept --data "$text" --steps 1 --optimizer adamw;      expect_status 0
    run train --override --steps 1;                                         expect_status 2; expect_error '--override: is only for --resume DIR'
}

# Given again as they were, or changed where that changes no function: free.
test_what_is_free() {
    train $small --steps 1 --lr-steps 4 --save kept;                        expect_status 0
    train $small --resume kept --steps 1 --lr 1e-3 --seed 42 --optimizer adamw --lr-steps 4;   expect_status 0
    run train --resume kept --steps 1 --dp 2 --zero 3 --tp 2 --micro 1 --recompute full --bucket 1000 --memory 64M;     expect_status 0
    run train --resume kept --steps 1 --pp 2 --schedule gpipe --micro 2 --check ref;    expect_status 0; expect_out '^OK: '
    run train --resume kept;                                                expect_status 0; expect_out '^step +4/4 '       # what was left
    run train --resume kept --save kept;                                    expect_status 0
    run train --resume kept;                                                expect_status 2; expect_error '--resume kept: all of its 4 steps are done; --steps N continues'
    mkdir elsewhere; mv "$text" elsewhere/moved
    run train --resume kept --steps 1;                                      expect_status 1; expect_error '--data .*/text: cannot be opened'
    run train --resume kept --steps 1 --data elsewhere/moved;               expect_status 0
    mv elsewhere/moved "$text"
    (cd elsewhere && command='in another folder' && run train --resume ../kept --steps 1 && expect_status 0)
}

run_tests test_goes_on_as_it_was test_another_run_is_refused test_what_cannot_be_gone_on_with test_what_is_free
