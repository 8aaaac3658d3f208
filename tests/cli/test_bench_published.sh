# What papers printed, beside what is computed here: `orrery bench published`.
. "$(dirname "$0")/lib.sh"

rows_of() { awk -v title="$1" '$0 ~ title { on = 1 } on && / rows: error / { print $1; exit }' "$place/out"; }
has_rows() { [ "$(rows_of "$1")" = "$2" ] || complain "$1: $(rows_of "$1") rows, expected $2"; }

# How far ours may be off is said in each file.
test_sections() {
    run bench published --json all.json;                expect_status 0; expect_silent; expect_columns 150
    has_rows '^Bubbles' 72;                             has_rows '^Memory of weights' 54
    has_rows '^Memory of a layer' 20;                   expect_out '^  [0-6] of 6 pairs are ordered as published$'
    has_rows '^Llama 3 405B' 2;                         expect_out '^  8192: tp 8 pp 16 dp 64 +43\.0 +[0-9]+\.[0-9] '
    has_rows '^orrery plan: GPT models on one node' 20; has_rows '^orrery plan: GPT models on up' 14
    has_rows '^orrery plan: Megatron-LM' 6;             has_rows '^orrery plan: less recomputation' 4
    has_rows '^Megatron-Core on 48' 5;                       has_rows '^Recipes of NeMo' 8
    has_rows '^torchtitan.*speed' 8;                    has_rows '^torchtitan.*memory' 10
    has_rows '^nanotron.*speed' 21;                     has_rows '^nanotron.*memory' 20
    expect_out '^  not counted, 18 rows: products in fp8: no plan has them$'
    expect_out '^  assumed, first of 7\.1B on 96: microbatches of 1; no overlap along tp'
    expect_out '^  vtrain-cluster +14 +[5-9]\.[0-9]+ +[0-9.]+ +1[0-9]/17$'; expect_out '^  vtrain-node +20 +1[0-5]\.[0-9]+ '
    has_rows '^Megatron-LM on 8 A100' 4;                has_rows '^Megatron-Core on 8 H100' 5
    expect_out '^  planned speed, tests: 55 rows, error '; expect_out '^  planned memory, tests: 30 rows, error [0-9]\.'
    expect_out '^  pairs: 1[23][0-9] of 139 ordered as published, [0-9.]+ %$'
    [ "$(grep -c '"published":' all.json)" = 367 ] || complain "$(grep -c '"published":' all.json) rows, expected 367"
    [ "$(grep -c '"calibrated_on":' all.json)" = 29 ] || complain "not twenty-nine sections"
    expect_out '^  22\.1B on 8: tp 8 pp 1 dp 1 v 1, 4 of 4, selective +1\.10 +[01]\.[0-9]+ '
    expect_out '^  figure 12: interleaved over not +1\.00 +1\.[0-9]+ '
}

# One table, whose rows say what they are, and a picture of its planned rows.
test_only() {
    run bench published --only torchtitan --json one.json --draw one.svg;    expect_status 0; expect_silent
    expect_out '^  planned speed, tests: 8 rows';       expect_no_out '^ZeRO|^GPT models'
    grep -q '"assumed":[[:space:]]*"every second layer recomputed' one.json || complain 'no row says what is assumed'
    grep -q '"fitted":[[:space:]]*false' one.json || complain 'no row says that it is a test'
    [ "$(grep -c '<rect' one.svg)" = 10 ] || complain "$(grep -c '<rect' one.svg) boxes: a ground, 8 rows and a source are 10"
    run bench published --only megatron-cores;          expect_status 1; expect_error 'there are no published numbers megatron-cores'
    run bench published --only llama3 --draw /nowhere/x.svg;    expect_status 1; expect_error '--draw /nowhere/x.svg: cannot be written'
}

# A planned row is what `orrery plan` says of the same words.
test_planned_as_plan() {
    run plan --model llama3-70b --seq 8192 --batch 512 --dp 32 --tp 8 --micro 1 --tensor 1d-sp --recompute full --cluster h100-500w \
        --dtype bf16 --zero 3 --comm-streams 4 --kernels-of torch-compile --memory 0 --json plan.json;      expect_status 0
    rate=$(awk '/"tokens_per_second_per_device"/ { gsub(/[^0-9.e+]/, "", $2); printf "%.0f", $2; exit }' plan.json)
    run bench published --only torchtitan;              expect_out "^  2025-06: 70B on 256, tp 8 +597 +$rate "
}

# A file of a folder of one's own whose numbers, or whose mean, are further off than it allows.
test_what_does_not_hold() {
    cp -r "$top/golden/published" folder
    sed -i 's/16\.18/16.48/' folder/activations.txt
    run bench published --folder folder --only activations;     expect_status 3
    expect_error '1 of 20 claims do not hold; the first: 22B: tensor, sequence, selective: published 16\.48, ours 16\.1'
    cp "$top/golden/published/activations.txt" folder
    run bench published --folder folder --only plan-2022;       expect_status 0
    sed -i 's/mean within [0-9.]* %/mean within 0.2 %/' folder/plan-2022.txt
    run bench published --folder folder --only plan-2022;       expect_status 3
    expect_error 'orrery plan: less recomputation, eight steps: the mean error is [0-9.]+ %, at most 0\.2 % expected'
}

# Steps of one's own, with commas and the public files' first column.
test_measured() {
    printf 'Parameters,# GPUs\n3.6,64,512,8,3072,32,30,2048,1,64,1,3566.5\n' >own.csv
    run bench published --measured own.csv;             expect_status 0; expect_out '^  3\.6B on 64: tp 1 pp 1 dp 64, 8 of 512 +3566\.5 '
    expect_out '^  1 rows: error '
    echo '8 16 2 1024 16 24 1024 1 8 1 100' >node.txt
    run bench published --measured node.txt;            expect_status 0; expect_out 'calibrated on measured kernels of A100$'
}

test_bad_input() {
    run bench published --folder nowhere;               expect_status 1; expect_error 'nowhere/zero-bubble.txt: .*No such file'
    cp -r "$top/golden/published" bad
    sed -i 's/^quantity: .*/quantity: bubles/' bad/zero-bubble.txt
    run bench published --folder bad;                   expect_status 1; expect_error 'bad/zero-bubble.txt: there is no quantity bubles'
    sed 's/--pp /--np /' "$top/golden/published/zero-bubble.txt" >bad/zero-bubble.txt
    run bench published --folder bad;                   expect_status 1; expect_error 'bad/zero-bubble.txt: line 1[0-9]: .*--np'
    sed 's/^source.*/sources: x/' "$top/golden/published/zero-bubble.txt" >bad/zero-bubble.txt
    run bench published --folder bad;                   expect_status 1; expect_error 'bad/zero-bubble.txt: line 4: there is no key sources'
    echo '8 16 2' >short.txt;      run bench published --measured short.txt;    expect_status 1; expect_error 'short.txt: line 1: it must have 11 numbers'
    echo '8 16 2 1024 16 24 1024 1 8.5 1 100' >half.txt;    run bench published --measured half.txt;    expect_error 'half.txt: line 1: --dp 8.5: '
    echo '8 16 2 1024 16 24 1024 1 8 1 -1' >minus.txt;      run bench published --measured minus.txt;   expect_error 'line 1: -1 was not measured'
    echo '8 16 2 1024 16 24 1024 x 8 1 100' >word.txt;      run bench published --measured word.txt;    expect_error 'word.txt: line 1: --tp x: must be a whole number'
    echo '8 16 3 1024 16 24 1024 1 8 1 100' >micro.txt;     run bench published --measured micro.txt;   expect_error 'whole microbatches'
    : >empty.txt;                  run bench published --measured empty.txt;    expect_error 'no line has a measured step'
    run bench published --help;                         expect_status 0; expect_columns 100
}

# Meshes that take long to plan: rows that were run take the place of the quick ones.
test_every_mesh() {
    run bench published --only llama3 --every;          expect_status 0; expect_silent
    has_rows '^Llama 3 405B' 3;                         expect_out '^  16384: tp 8 cp 16 pp 16 dp 8 +38\.0 +[0-9]+\.[0-9] '
    run bench published --only nemo --every;            expect_status 0
    has_rows '^NeMo' 7;                                 expect_out '^  not counted: LLAMA3_8B on 8, 25\.11 .fp8., 14451: products in fp8'
}

slow=(test_every_mesh)
[ "$TIER" = verify ] || slow=()
run_tests test_sections test_only test_planned_as_plan test_what_does_not_hold test_measured test_bad_input "${slow[@]}"
