# Conventions of losses: a program that follows the one of its golden file is right, in every format and uneven cut; without it, or with another one, its loss is named.
. "$(dirname "$0")/lib.sh"

built=$(mktemp -d)
"${CC:-cc}" -O1 "$top"/golden/bugs/*.c -lm -o "$built/buggy" || exit 1
buggy() { command="buggy $*"; watched "$built/buggy" "$@"; }

golden() {                              # golden FILE MODEL WORDS...: one step; a model of the independent program (golden/bugs)
    local file=$1 model=$2; shift 2
    [ -e "model-$model" ] || { buggy model $model "model-$model"; expect_status 0; }
    run golden make --out "$file.safetensors" --model "model-$model" --batch "model-$model/batch.safetensors" --steps 1 --eps 1e-4 "$@"
    expect_status 0
}

right() {                               # right FILE AS FORMATS RUN...: the program with this `bug` is right by the convention
    local file=$1 as=$2 format; shift 2
    for format in fp32 bf16 fp16; do
        buggy run $file.safetensors dump dtype $format "$@";        expect_status 0
        run check $file.safetensors dump --as $as;                  expect_status 0; expect_silent; expect_out '^OK: '
    done
}

wrong() {                               # wrong FILE FORMAT WORDS RUN...
    buggy run $1.safetensors dump dtype $2 ${@:4};                  expect_status 0
    run check $1.safetensors dump;                                  expect_status 3; expect_out "$3"
}

# Five sequences on two ranks, or in three or five microbatches.
test_logits() {
    golden smooth gpt2 --as orrery,torch-smoothing
    right smooth orrery,torch-smoothing bug label-smoothed dp 2
    right smooth orrery,label-smoothing=0.1 bug label-smoothed micros 3
    wrong smooth fp32 'labels are smoothed by 0.1, which the other words share: --as ...,megatron-smoothing' bug smoothed-others
    wrong smooth fp32 'labels are not smoothed: --as ...,hard-labels' dp 2
    run check smooth.safetensors dump --as megatron,megatron-smoothing;     expect_status 2
    run check smooth.safetensors dump --as orrery,megatron-smoothing;       expect_status 2
    expect_error "--as orrery,megatron-smoothing: the golden file's losses are those of orrery,torch-smoothing: smoothing-over is all, not others"
    run check smooth.safetensors dump --as orrery;                          expect_status 2
    expect_error 'label-smoothing is 0.1, not 0: make one'
}

test_others_and_z() {
    golden others gpt2 --as orrery,megatron-smoothing
    right others orrery,megatron-smoothing bug smoothed-others dp 2
    wrong others fp32 'labels are smoothed by 0.1' bug label-smoothed
    golden z llama --as orrery,palm-z-loss
    right z orrery,palm-z-loss bug z-of-logits dp 2
    wrong z fp32 'without the z loss of the logits: --as ...,no-z-loss' tp 3
}

test_means() {
    golden means llama --as orrery,sequence-mean
    right means orrery,sequence-mean bug mean-of-micros micros 5
    wrong means fp32 'the mean over all labels of the batch: --as ...,token-mean' dp 2
    golden parts gpt2 --as orrery,loss-mean=parts,loss-parts=2 --micro 3
    right parts orrery,loss-mean=parts,loss-parts=2 bug mean-of-means dp 2
    wrong parts fp32 '--as ...,sequence-mean|--as ...,loss-mean=parts,loss-parts=5' bug mean-of-micros micros 5
    golden rows llama --as orrery,row-mean
    right rows orrery,row-mean bug mean-of-rows dp 2
    golden sum llama --as orrery,loss-sum
    right sum orrery,loss-sum bug loss-summed dp 2
    wrong sum fp32 'the mean over all labels of the batch: --as ...,token-mean' dp 2
}

test_balance() {
    golden sequences moe --as orrery,sequence-aux-loss
    right sequences orrery,sequence-aux-loss bug balance-of-sequences dp 2
    wrong sequences fp32 'the balance loss is of all tokens of the batch and all layers together: --as ...,batch-aux-loss' dp 2
    golden each moe --as megatron,megatron-seq-aux-loss
    wrong each fp32 'the balance loss is of each sequence.s tokens, of all layers together: --as ...,sequence-aux-loss' bug balance-of-sequences
    run check each.safetensors dump --as megatron,megatron-aux-loss;        expect_status 2; expect_error 'balance-over is sequence, not microbatch'
}

test_refusals() {
    make_text
    local to=(golden make --out none.safetensors --text "$text" --sequences 2 --tokens 5)
    run "${to[@]}" --as orrery,mean-of-means;               expect_status 2; expect_error 'loss-mean=parts: the golden file has no microbatches; loss-parts=N says how many'
    run "${to[@]}" --as orrery,loss-mean=parts,loss-parts=3;    expect_status 2; expect_error 'loss-parts=3: a batch of 2 sequences has at most as many parts'
    run "${to[@]}" --as orrery,sequence-maen;               expect_status 2; expect_error 'a loss that `orrery list profiles` names'
    run "${to[@]}" --as orrery,label-smoothing=1;           expect_status 2; expect_error 'label-smoothing=1: must be a number from 0 to 0.999'
    [ ! -e none.safetensors ] || complain 'none.safetensors was written'
    run train --as orrery,torch-smoothing;                  expect_status 2; expect_error '--as orrery,torch-smoothing: emulated devices take the mean over labels'
    run train --model mixtral-tiny --as orrery,megatron-seq-aux-loss --balance-over batch;  expect_status 2; expect_error 'says it already'
}

# The page's table of named losses is the program's list.
test_the_page() {
    run list profiles;                                      expect_status 0
    sed -n '/^Losses, by name/,$p' "$place/out" | sed -nE 's/^  ([a-z0-9-]+) .*/\1/p' >listed
    sed -nE 's/^\| `([a-z0-9-]+)` \| `[a-z]+-[a-z]+=.*/\1/p' "$top/docs/checking/profiles.md" >page
    [ "$(wc -l <listed)" -ge 15 ] || complain "list profiles has $(wc -l <listed) losses"
    cmp -s listed page || complain "docs/checking/profiles.md: $(diff page listed | head -4)"
}

run_tests test_logits test_others_and_z test_means test_balance test_refusals test_the_page; result=$?
rm -rf "$built"
exit $result
