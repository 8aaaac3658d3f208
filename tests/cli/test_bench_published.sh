# What papers printed, beside what is computed here: `orrery bench published`.
. "$(dirname "$0")/lib.sh"

# The worst error of a section, in hundredths of a per cent: worst_of TITLE
worst_of() { awk -v title="$1" '$0 ~ title { on = 1 } on && / rows: error / { print int($(NF - 1) * 100 + .5); exit }' "$place/out"; }
mean_of() { awk -v title="$1" '$0 ~ title { on = 1 } on && / rows: error / { print int($4 * 100 + .5); exit }' "$place/out"; }
rows_of() { awk -v title="$1" '$0 ~ title { on = 1 } on && / rows: error / { print $1; exit }' "$place/out"; }
at_most() { [ "${1:-999999}" -le "$2" ] || complain "$3: error $1/100 %, at most $2/100 % expected"; }
has_rows() { [ "$(rows_of "$1")" = "$2" ] || complain "$1: $(rows_of "$1") rows, expected $2"; }

test_sections() {
    cd "$top" && run bench published;                   expect_status 0; expect_silent; expect_columns 110
    has_rows '^Bubbles' 72;                             at_most "$(worst_of '^Bubbles')" 0 bubbles
    has_rows '^Memory of weights' 54;                   at_most "$(worst_of '^Memory of weights')" 250 'ZeRO: 0.12 for 0.117'
    has_rows '^Memory of a layer' 20;                   at_most "$(worst_of '^Memory of a layer')" 115 activations
    has_rows '^Which setting' 20;                       at_most "$(mean_of '^Which setting')" 500 'one order of twenty'
    has_rows '^Llama 3 405B' 2;                         at_most "$(worst_of '^Llama 3 405B')" 800 'Llama 3 405B'
    expect_out '^  8192: tp 8 pp 16 dp 64, fitted +43\.0 +4[23]\.[0-9] '
    has_rows '^Megatron-LM' 10;                         at_most "$(mean_of '^Megatron-LM')" 450 'Megatron 2021'
    has_rows '^Less recomputation' 8                    # Calculon: 3.65 % and 8.87 %
    at_most "$(mean_of '^Less recomputation')" 364 'eight steps, mean'
    at_most "$(worst_of '^Less recomputation')" 886 'eight steps, worst'
    has_rows '^GPT models on one node' 720;             at_most "$(mean_of '^GPT models on one node')" 800 'one node'
    has_rows '^GPT models on up to 512' 55;             at_most "$(mean_of '^GPT models on up to 512')" 600 '512 devices'
}

test_json() {
    cd "$top" && run bench published --json -;          expect_status 0; expect_silent
    [ "$(grep -c '"published":' "$place/out")" = 961 ] || complain "$(grep -c '"published":' "$place/out") rows, expected 961"
    [ "$(grep -c '"calibrated_on":' "$place/out")" = 9 ] || complain 'not nine sections'
}

# Steps of one's own, with commas and the public files' first column.
test_measured() {
    printf 'Parameters,# GPUs\n3.6,64,512,8,3072,32,30,2048,1,64,1,3566.5\n' >own.csv
    run bench published --measured own.csv --every;     expect_status 0; expect_out '^  3\.6B on 64: tp 1 pp 1 dp 64 v 1, 8 of 512 +3566\.5 '
    expect_out '^  1 rows: error '
    echo '8 16 2 1024 16 24 1024 1 8 1 100' >node.txt
    run bench published --measured node.txt;            expect_status 0; expect_out 'calibrated on vtrain-node.txt'
}

test_bad_input() {
    run bench published;                                expect_status 1; expect_error 'golden/published/.*: No such file'
    echo '8 16 2' >short.txt;      run bench published --measured short.txt;    expect_status 1; expect_error 'short.txt: line 1: it must have 11 numbers'
    echo '8 16 2 1024 16 24 1024 1 8.5 1 100' >half.txt;    run bench published --measured half.txt;    expect_error 'number 9 is 8.5'
    echo '8 16 2 1024 16 24 1024 1 8 1 -1' >minus.txt;      run bench published --measured minus.txt;   expect_error 'line 1: -1 was not measured'
    echo '8 16 2 1024 16 24 1024 x 8 1 100' >word.txt;      run bench published --measured word.txt;    expect_error 'it must have 11 numbers'
    echo '8 16 3 1024 16 24 1024 1 8 1 100' >micro.txt;     run bench published --measured micro.txt;   expect_error 'whole microbatches'
    : >empty.txt;                  run bench published --measured empty.txt;    expect_error 'no line has a measured step'
    run bench published --help;                         expect_status 0; expect_columns 100
}

# A mesh that takes half a minute to plan.
test_every_mesh() {
    cd "$top" && run bench published --every;           expect_status 0; expect_silent
    has_rows '^Llama 3 405B' 3;                         expect_out '^  16384: tp 8 cp 16 pp 16 dp 8 +38\.0 +31\.[0-9] '
}

slow=(test_every_mesh)
[ "$TIER" = verify ] || slow=()
run_tests test_sections test_json test_measured test_bad_input "${slow[@]}"
