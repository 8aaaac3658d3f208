# Golden files through the program: they hold, a changed one is named, a folder of weights is dumped and saved.
. "$(dirname "$0")/lib.sh"

test_golden_files_hold() {
    mkdir golden && cp "$top"/golden/llama-minimal.* "$top"/golden/mixtral-minimal.* golden
    run golden --runs 20;               expect_status 0; expect_silent; expect_columns 150
    expect_out 'llama-minimal +fp64 +92 tensors';   expect_out 'mixtral-minimal +fp32 +107 tensors'
    expect_out 'mixtral-minimal +bf16 +107 tensors'; expect_out 'llama-minimal +fp16 +92 tensors'
    [ "$(grep -cE 'clean +0 alarms in 20 runs' "$place/out")" = 6 ] || complain 'not a count for fp32, bf16 and fp16 of both files'
    run golden golden --measure;        expect_status 0; expect_silent
    (cd "$top/golden" && sha256sum -c --quiet MANIFEST) || complain 'a file of golden/ is not what MANIFEST says'
}

test_a_changed_golden_is_named() {
    mkdir g && cp "$top"/golden/llama-minimal.* g
    sed -i '0,/"grad\/h.0.mlp.up":/s/"grad\/h.0.mlp.up":[^,]*,/"grad\/h.0.mlp.up":1e-30,/' g/llama-minimal.bounds.json
    run golden g;                       expect_status 3; expect_error 'g/llama-minimal\.safetensors: in fp32 the first wrong tensor is grad/h\.0\.mlp\.up: relative error'
    cp "$top"/golden/llama-minimal.bounds.json g
    LC_ALL=C sed -i 's/"rope_theta\\": 10000.0/"rope_theta\\": 20000.0/; s/"tie_word_embeddings\\": true/"tie_word_embeddings\\":false/' g/llama-minimal.safetensors
    run golden g;                       expect_status 1; expect_error 'there is no tensor start/lm_head\.weight'
    rm g/llama-minimal.bounds.json; cp "$top"/golden/llama-minimal.safetensors g
    run golden g;                       expect_status 1; expect_error 'llama-minimal\.bounds\.json: cannot be opened'
    run golden nowhere;                 expect_status 1; expect_error 'nowhere: there are no golden models'
    cp "$top"/golden/README.md g/no-model.safetensors
    run golden g;                       expect_status 1
}

# The golden inputs are [steps,batch,tokens]; those of a dump one batch: made here byte by byte.
make_batch() {
    local header='{"ids":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]},"labels":{"dtype":"I8","shape":[2,3],"data_offsets":[6,12]}}'
    printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0%s" "$header" >batch
    printf '\1\2\3\4\5\6\2\3\377\5\6\7' >>batch
}

test_dump_and_save() {
    make_batch
    for model in tiny llama-tiny mixtral-tiny; do
        run dump one --batch batch --model $model --dtype fp32 --save saved;    expect_status 0; expect_silent; expect_file one
        expect_file saved/config.json;  expect_file saved/model.safetensors
        run dump two --batch batch --model saved --dtype fp32;                  expect_status 0
        cmp -s <(tail -c 100000 one) <(tail -c 100000 two) || complain 'what was saved computes something else'
        rm -r saved one two
    done
}

test_dump_errors() {
    make_batch
    run dump out;                                           expect_status 2; expect_error '--batch'
    run dump --batch batch;                                 expect_status 2
    run dump out --batch none;                              expect_status 1; expect_error '--batch none: '
    run dump out --batch batch --model no-such;             expect_status 2; expect_error 'no-such'
    run dump out --batch "$top"/golden/float16.safetensors;   expect_status 1; expect_error 'a batch needs tensors ids and labels \[sequences, tokens\]'
    run dump no/out --batch batch;                          expect_status 1; expect_error 'no/out'
    [ ! -e no ] || complain 'it made a folder'
}

# The steps of a golden file's run are logged as those of any other.
test_logs() {
    local run="train --check $top/golden/gpt2-tied.safetensors"
    run $run --dp 3 --log run.jsonl --tensorboard events --json run.json;   expect_status 0; expect_silent; expect_out '^step 3/3  loss [0-9.]+ '
    [ "$(grep -c '^{"type":"step"' run.jsonl)" = 3 ] || complain 'not a line for each of three steps'
    tail -n 1 run.jsonl | grep -q '^{"type":"end","step":3,"status":"done","equal":true,"report":' || complain 'the log has no end'
    ls events/events.out.tfevents.* >"$place/out" || complain 'there are no events'
    local loss; loss=$(sed -n 's/.*"step":2,"loss":\([^,]*\),.*/\1/p' run.jsonl)
    grep -q "\"loss\":	$(cut -c 1-10 <<<"$loss")" run.json || complain 'its JSON has other losses'
    run $run --log run.csv;                                                 expect_status 0; [ "$(wc -l <run.csv)" = 4 ] || complain 'not a head and three steps'
    run $run --eval-every 1;                                                expect_status 2; expect_error '--eval-every 1: a golden file has no held-out text; --eval-data'
    local i; for i in $(seq 300); do printf "\\x$(printf %02x $((i * 7 % 16)))\\x00"; done >held.bin
    run $run --eval-data held.bin;                                          expect_status 2; expect_error '--eval-data held.bin: beside a golden file needs --eval-every N'
    run $run --dp 3 --eval-every 2 --eval-data held.bin --log held.jsonl;   expect_status 0; expect_silent
    expect_out '^held-out text, after step 2  loss  [0-9]\.[0-9]+$';         grep -q '"step":2,.*"validation_loss":[0-9]' held.jsonl || complain 'the log has no validation loss'
    [ "$(grep -c validation_loss held.jsonl)" = 1 ] || complain 'not one evaluation in three steps'
    grep -q "\"step\":3,\"loss\":$(sed -n 's/.*"step":3,"loss":\([^,]*\),.*/\1/p' run.jsonl)," held.jsonl || complain 'an evaluation changes the run'
    run $run --eval-every 1 --eval-data "$top/golden/gpt2-tied.safetensors"; expect_status 1; expect_error '--eval-data .*: token'
    run $run --log nowhere/run.csv;                                         expect_status 1; expect_error '--log nowhere/run.csv: cannot be written'
}

run_tests test_logs test_golden_files_hold test_a_changed_golden_is_named test_dump_and_save test_dump_errors
