# Samples of different lengths, packed into sequences: trained, compared, resumed, refused.
. "$(dirname "$0")/lib.sh"

lengths() { printf '3\n30\n9\n1\n17\n' >lengths; }
checked='--seq 32 --dtype fp64 --optimizer sgd --steps 2 --check ref --paranoid'

test_trains() {
    lengths
    train $checked --pack lengths;                                      expect_status 0; expect_silent
    expect_out '^packed  [0-9]+ samples in [0-9]+ sequences: [0-9.]+ % padding, 62\.5 % with a sample each; attention'
    expect_out '^OK: every activation'
    train $checked --pack lengths --cp 2 --tp 2 --attention ring-zigzag; expect_status 0; expect_out '^OK: every activation'
    expect_out '^traffic .* equal the formulas on every device$'
    printf '18\n14\n' >two                            # devices have 2, 3, 3 and 2 microbatches: tests/devices/test_hdp.c
    train $checked --pack two --cp 4 --batch 3 --micro 3 --attention hdp --dropout 0.1
    expect_status 0; expect_silent; expect_out '^OK: every activation'; expect_out '^traffic .* equal the formulas on every device$'
    train $checked --pack two --cp 2 --pp 2 --batch 4 --micro 4 --attention hdp --schedule pipedream-2bw --clip 0
    expect_status 0; expect_out '^OK: every activation'                 # steps inside the schedule: not planned together
    train $checked --pack two --cp 2 --pp 4 --batch 4 --micro 4 --attention hdp --schedule skippipe
    expect_status 0; expect_out '^OK: every activation'
    run train --model llama-tiny --data "$text" $checked --pack lognormal --dp 2 --pp 2 --zero 1
    expect_status 0; expect_out '^OK: every activation'
}

# Padding is in no loss of a mixture's routers, wherever its rows are: half of each sequence, where its end is.
test_padding_of_mixtures() {
    printf '17\n' >half
    make_text
    local how
    for how in '--dp 2' '--cp 2 --attention ring-zigzag' '--cp 2 --ep 2 --attention allgather-kv' '--cp 2 --attention hdp' \
               '--pp 2 --schedule gpipe --micro 2 --z-loss 0.1' '--tp 2 --tensor 1d-sp --ep 2 --dp 2 --z-loss 0.1' '--tp 2 --recompute selective' \
               '--dp 2 --router noaux-tc --router-speed 0.3'; do
        run train --model mixtral-tiny --data "$text" $checked --pack half --batch 4 $how;    expect_status 0; expect_silent; expect_out '^OK: every activation'
    done
}

# The same loss on every mesh: it is the mean over the labels of the whole batch.
test_loss_of_the_global_batch() {
    lengths
    train --seq 32 --dtype fp64 --steps 2 --pack lengths --json one.json;             expect_status 0
    train --seq 32 --dtype fp64 --steps 2 --pack lengths --dp 4 --json four.json;     expect_status 0
    for f in one four; do grep -o '"loss": *[0-9.]*' $f.json | cut -c1-20 >$f.loss; done
    expect_same one.loss four.loss
}

test_resumes() {
    lengths
    train --seq 32 --pack lengths --steps 2 --lr-steps 2 --save whole;  expect_status 0
    train --seq 32 --pack lengths --steps 1 --lr-steps 2 --save half;   expect_status 0
    run train --resume half --save again;                               expect_status 0
    for f in model.safetensors optimizer.safetensors; do expect_same whole/$f again/$f; done
    printf '5\n6\n' >other
    run train --resume half --pack other
    expect_status 2; expect_error '--resume half: .*lengths of samples: saved SHA-256 [0-9a-f]+, now SHA-256 [0-9a-f]+'
}

test_refusals() {
    printf '3\n40\n' >long
    train --seq 32 --pack long;         expect_status 2; expect_error '--pack long:2: a sample of 40 tokens; a sequence has room for 1 to 32'
    printf '3\nfour\n' >word
    train --seq 32 --dp 2 --pack word;  expect_status 1; expect_error '--pack word:2: must be the length of a sample'
    train --pack nowhere;               expect_status 1; expect_error '--pack nowhere: cannot be opened'
}

run_tests test_trains test_padding_of_mixtures test_loss_of_the_global_batch test_resumes test_refusals
