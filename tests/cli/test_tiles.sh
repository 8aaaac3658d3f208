# Matrices in tiles: what fits only with them, what they share with whole layers (checkpoints), and what is refused.
. "$(dirname "$0")/lib.sh"

everything='--offload optimizer,gradients,weights'

# 11M parameters in 8M of each device.
test_what_fits() {
    make_text
    local large="--model 11m --data ../text --dp 4 --batch 4 --seq 16 --steps 1 --memory 8M --zero 3 $everything"
    run train $large;                           expect_status 2; expect_error '--memory 8MiB: device 0 \(dp=0\) needs at least [0-9.]+ MiB'
    run train $large --tiles 4;                 expect_status 0; expect_silent
    expect_out '^ +0-3 +all +1\.285 +0\.722 +0\.844 '
    expect_out '^traffic .*, and those of the slow tier, equal the formulas on every device$'
    expect_out '^memory .* equal the formulas on every device$'
}

# While a tile computes the next one is gathered: in virtual time that hides some of it.
test_prefetching() {
    local t=() i
    for i in yes no; do
        train --dp 2 --zero 3 --tiles 4 --steps 1 --prefetch $i --json run.json; expect_status 0
        t+=("$(sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' run.json)")
    done
    awk -v a="${t[0]}" -v b="${t[1]}" 'BEGIN { exit !(a > 0 && a < b) }' || complain "with prefetching a step takes ${t[0]} ps, without ${t[1]} ps"
}

# Files have whole tensors: from whole layers to tiles of any number and back.
test_checkpoints() {
    train --dp 2 --zero 3 --tiles 3 --lr-steps 4 --steps 2 --save a;                            expect_status 0
    train --dp 4 --zero 3 --tiles 5 --lr-steps 4 --steps 1 --resume a --save b --check ref;     expect_status 0; expect_out '^OK: every'
    train --dp 2 --tp 2 --lr-steps 4 --steps 1 --resume b --save c --check ref;                 expect_status 0; expect_out '^OK: every'
    train --steps 0 --resume a --dp 3 --data-parallel fsdp --tiles 7 --save again;              expect_status 0
    for f in model.safetensors optimizer.safetensors; do expect_same a/$f again/$f; done
}

test_check_beside_the_reference() {
    make_text
    run train --model llama-tiny --data "$text" --dp 2 --pp 2 --zero 3 $everything --tiles 3 --steps 2 --dtype bf16 --recompute full --check ref --paranoid
    expect_status 0
    expect_out '^OK: every'
}

refuses() { expect_status "$1"; expect_error "$2"; expect_nothing; }

test_what_is_refused() {
    train --dp 2 --zero 3 --tiles 0;                                    refuses 2 '--tiles 0: must be a whole number from 1'
    train --dp 2 --zero 3 --tiles -2;                                   refuses 2 '--tiles -2: must be a whole number from 1'
    train --dp 2 --zero 3 --tiles many;                                 refuses 2 '--tiles many: must be a whole number from 1'
    train --dp 2 --zero 3 --tiles 33;                                   refuses 2 '--tiles 33: h\.0\.attn\.c_proj\.weight has 32 outputs to be cut'
    train --dp 2 --tiles 2;                                             refuses 2 '--tiles 2: --data-parallel ddp with --dp 2 gathers no weights before use'
    train --dp 2 --zero 1 --tiles 2;                                    refuses 2 '--tiles 2: --data-parallel zero1 with --dp 2 gathers no weights'
    train --dp 2 --zero 2 --tiles 2;                                    refuses 2 '--tiles 2: --data-parallel zero2 with --dp 2 gathers no weights'
    train --zero 3 --tiles 2;                                           refuses 2 '--tiles 2: .*--dp 1 gathers no weights.*or --offload weights'
    train --dp 2 --zero 3 --tiles 2 --tp 2 --tensor 1d-sp-overlap;        refuses 2 '--tiles 2: .*1d-sp-overlap'
    train --dp 2 --zero 3 --tiles 2 --reshard-after-forward no;         refuses 2 '--tiles 2: --reshard-after-forward no keeps'
    train --dp 2 --zero 3 --tiles 2 --quantize-weights int8;            refuses 2 '--tiles 2: quantisation blocks of --quantize-weights'
    train --dp 2 --zero 3 --tiles 2 --quantize-gradients int4;          refuses 2 '--tiles 2: quantisation blocks of --quantize-gradients'
}

run_tests test_what_fits test_prefetching test_checkpoints test_check_beside_the_reference test_what_is_refused
