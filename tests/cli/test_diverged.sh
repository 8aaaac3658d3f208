# A run that comes to infinities or NaNs ends with 1 and says where; the plan is blamed only for what the one-device run does not do.
. "$(dirname "$0")/lib.sh"

wild='--lr 1e6 --clip 0 --steps 8 --batch 4 --seq 8'
line='step [0-9]+: the (loss|norm of the gradients) is (nan|inf): training diverged'

test_without_a_check() {
    train $wild --save kept --json j;       expect_status 1; expect_error "$line; try a smaller --lr than 1e\+06, or --clip 1; nothing was saved\$"
    expect_out '^DIVERGED at step [0-9]+: the '
    [ ! -e kept ] || complain 'something was saved'
    grep -q '"diverged":' j || complain 'JSON says nothing of it'
    train $wild --dp 2 --tp 2;              expect_status 1; expect_error "$line; try"
}

# It keeps what was saved before.
test_the_last_checkpoint_stays() {
    train --steps 1 --batch 4 --seq 8 --save kept;                          expect_status 0
    cp -r kept before
    train --resume kept --steps 8 --lr 1e6 --min-lr 1e6 --clip 0 --override --save kept; expect_status 1; expect_error "$line"
    for f in $(ls before); do expect_same before/$f kept/$f; done
}

test_beside_one_device() {
    local flags n=0
    for flags in '--dp 2 --tp 2' '--pp 2 --optimizer sgd' '--tp 3 --tensor 1d-sp --optimizer sgd' '--dp 2 --zero 3 --dtype bf16' \
                 '--dp 2 --data-parallel diloco --local-steps 2' '--dp 2 --zero 3 --dtype fp64' '--dp 2 --dtype fp16' \
                 '--dp 2 --zero 3 --quantize-weights int8 --quantize-gradients int8'; do
        [ "$TIER" = verify ] || [ $((n++ % 3)) -ne 2 ] || continue
        train $wild $flags --check ref --json j
        expect_status 1; expect_error "$line, and so did the one-device run, first in [a-z_. 0-9]+ at step [0-9]+: that is not the plan's fault; try"
        expect_out '^DIVERGED: no error was found in the plan'; expect_no_out '^FAILED'; expect_no_out '^OK:'
        grep -q '"reference_diverged":' j || complain 'JSON says nothing of it'
        grep -q '"holds":[[:space:]]*false' j || complain 'JSON says that it holds'
    done
}

# Loss scaling skips steps: that is no divergence.
test_skipped_steps_are_normal() {
    train --dtype fp16 --loss-scale 16777216 --steps 6 --batch 4 --seq 8 --check ref --json j;      expect_status 0; expect_out '^OK:'
    grep -q '"skipped":[[:space:]]*true' j || complain 'no step was skipped'
}

# A number in a file that is none: the last one of the token embedding, which is the output matrix too.
test_a_model_that_is_not_finite() {
    train --steps 0 --save good;                                            expect_status 0
    rm good/checkpoint.sha256
    printf '\377\377\377\377' | dd of=good/model.safetensors bs=1 seek=$(($(wc -c <good/model.safetensors) - 4)) conv=notrunc 2>/dev/null
    run train --model good --data "$text" --steps 0 --save bad;             expect_status 1; expect_error 'step 0: the loss on held-out text is nan'
    [ ! -e bad ] || complain 'it was saved'
}

# zero_model DIR V: a GPT-2 of V tokens whose numbers are all zero.
zero_model() {
    local V=$2 D=4 F=16 S=8 at=0 n name shape header=''
    mkdir "$1"
    printf '{"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": %d, "n_positions": %d, "vocab_size": %d}\n' $D $S $V >"$1/config.json"
    for name in wte.weight:$V,$D wpe.weight:$S,$D h.0.ln_1.weight:$D h.0.ln_1.bias:$D h.0.attn.c_attn.weight:$D,$((3 * D)) h.0.attn.c_attn.bias:$((3 * D)) \
                h.0.attn.c_proj.weight:$D,$D h.0.attn.c_proj.bias:$D h.0.ln_2.weight:$D h.0.ln_2.bias:$D h.0.mlp.c_fc.weight:$D,$F h.0.mlp.c_fc.bias:$F \
                h.0.mlp.c_proj.weight:$F,$D h.0.mlp.c_proj.bias:$D ln_f.weight:$D ln_f.bias:$D; do
        shape=${name#*:} n=$((4 * ${shape/,/*}))
        header+=${header:+,}"\"transformer.${name%:*}\":{\"dtype\":\"F32\",\"shape\":[$shape],\"data_offsets\":[$at,$((at + n))]}"
        at=$((at + n))
    done
    header="{$header}"
    printf "\\x$(printf %02x $((${#header} % 256)))\\x$(printf %02x $((${#header} / 256)))\\0\\0\\0\\0\\0\\0%s" "$header" >"$1/model.safetensors"
    head -c $at /dev/zero >>"$1/model.safetensors"
}

# Text is bytes, whatever the vocabulary: that is said. A sample shows tokens beyond bytes by number.
test_more_tokens_than_bytes() {
    train --steps 0 --sample 40;                                            expect_status 0; expect_no_out '^warning'
    zero_model big 50257
    run train --data "$text" --model big --steps 1 --batch 2 --sample 40;   expect_status 0; expect_silent
    expect_out '^warning model V=50257, but the text is bytes, 0 to 255: --tokenizer'
    expect_out '<[0-9]{4,5}>'
}

run_tests test_without_a_check test_the_last_checkpoint_stays test_beside_one_device test_skipped_steps_are_normal test_a_model_that_is_not_finite \
          test_more_tokens_than_bytes
