# What somebody may have in a file, a name or the environment: no terminal obeys it, no pattern takes for ever.
# tier: check
. "$(dirname "$0")/lib.sh"

golden=$top/golden/gpt2-tied.safetensors

# One line, and nothing in it that a terminal would obey.
expect_plain() {
    expect_error "$1"
    ! LC_ALL=C grep -q '[[:cntrl:]]' "$place/err" || complain "control characters get through: $(od -c "$place/err" | head -n 5)"
}

test_bytes_that_a_terminal_obeys() {
    printf 'orrery schedule 1\ndevices 1\nmicros 1\nchunks 1\n\033]0;title\a 0: F0\n' >schedule.txt
    run show schedule schedule.txt;                     expect_status 1; expect_plain 'schedule\.txt:5: \?\]0;title\?: expected '
    mv schedule.txt $'sch\e[2J\n.txt'
    run show schedule $'sch\e[2J\n.txt';                expect_status 1; expect_plain 'sch\?\[2J\?\.txt:5: '
    run train --data $'no\e[31m\nsuch\xff';             expect_status 1; expect_plain 'no\?\[31m\?such\?'
    run show $'sche\edule';                             expect_status 2; expect_plain 'sche\?dule'
    run train --cluster 'straße';                       expect_error 'straße'
    printf '{ "names": { "a\\u001b[31m": 3 } }' >map.json
    run check "$golden" "$golden" --map map.json;       expect_status 1; expect_plain 'names: "a\?\[31m"'
    make_text; cp "$text" $'t\e[1m.txt'
    run train --model tiny --data $'t\e[1m.txt' --steps 1;  expect_status 0; expect_out '^text    .*t\?\[1m\.txt, '
    ! LC_ALL=C grep -q $'\e' "$place/out" || complain 'the name of the data is printed as it is'
}

test_patterns_of_many_stars() {
    printf '{ "layout": [ { "tensors": "%s", "split": "rows", "over": "dp" } ] }' "$(printf '*.%.0s' $(seq 100))x" >map.json
    run check "$golden" "$golden" --map map.json;       expect_status 0; expect_silent
    printf '{ "names": { "********h********mlp********": "x" } }' >map.json
    run check "$golden" "$golden" --map map.json;       expect_status 1; expect_plain 'names: .* has more than 8 \*'
    printf '{ "names": { "*": "a*b*" } }' >map.json
    run check "$golden" "$golden" --map map.json;       expect_status 1; expect_plain 'names: "\*" has fewer \* than "a\*b\*"'
}

test_another_folder_for_temporary_files() {
    make_text
    export TMPDIR=$place/nowhere
    run verify collectives --devices 2 --json out.json; expect_status 1; expect_plain 'a file in .*/nowhere: cannot be made'
    export TMPDIR=$place/here; mkdir -p "$TMPDIR"
    run verify collectives --devices 2 --json out.json; expect_status 0; expect_file out.json; expect_nothing "$TMPDIR"
    unset TMPDIR
}

test_an_index_of_nothing() {
    make_text
    run train --model tiny --data "$text" --steps 1 --save model;   expect_status 0
    rm model/model.safetensors model/checkpoint.sha256
    echo '{ "weight_map": {} }' >model/model.safetensors.index.json
    run train --model model --data "$text" --steps 1;   expect_status 1; expect_plain 'index\.json: weight_map: names no tensor and no file'
}

run_tests test_bytes_that_a_terminal_obeys test_patterns_of_many_stars test_another_folder_for_temporary_files test_an_index_of_nothing
