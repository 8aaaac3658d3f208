# On a terminal of 80 columns nothing is wider; what is folded loses no word, and a pipe gets it unfolded.
. "$(dirname "$0")/lib.sh"

# Run orrery on a terminal of so many columns; its lines are in $place/out, each as it stands at the end, without colours.
on_terminal() {                                     # on_terminal COLUMNS WORDS...
    local columns=$1; shift
    printf -v words '%q ' "$program" "$@"
    command="orrery $*, on $columns columns" status=0
    TERM=xterm timeout 300 script -qec "stty cols $columns; $words" /dev/null </dev/null >"$place/raw" 2>&1 || status=$?
    sed -e 's/\r*$//' -e 's/.*\r//' -e 's/\x1b\[[0-9;]*m//g' "$place/raw" >"$place/out"
    out=$(cat "$place/out")
}
words_of() { tr -s ' \n' '\n' <"$1" | grep -v '^$'; }

test_every_help_fits() {
    local c
    for c in '' train infer plan check golden 'golden make' dump verify list show 'show schedule' bench 'bench step' affinity; do
        on_terminal 80 $c --help;                   expect_status 0; expect_columns 80
        run $c --help;                              expect_columns 100
    done
    on_terminal 60 train --help;                    expect_columns 60
    on_terminal 300 train --help;                   expect_columns 100
}

test_a_checked_run_fits() {
    local run="train --model tiny --dp 2 --tp 2 --steps 2 --batch 4 --seq 8 --check ref --offload optimizer --paranoid"
    make_text; run="$run --data $text"
    on_terminal 80 $run;                            expect_status 0; expect_columns 80
    grep -q $'\e\[32mOK\e\[0m: every activation' "$place/raw" || complain 'the verdict is not green'
    expect_out '^ +devices  where  weights  gradients'      # the same keys before each part of a table
    expect_out '^check   against one device'
    NO_COLOR=1 on_terminal 80 $run
    ! grep -q $'\e\[' "$place/raw" || complain 'NO_COLOR is set, and there are colours'
    on_terminal 200 $run;                           expect_out '^  kind +device +step +error +bound +tensor$'
    run $run;                                       expect_status 0
    ! grep -q $'\e' "$place/out" || complain 'colours in a file'
    expect_out '^check   .*second one-device run$'; expect_out '^memory  .* on every device$'
}

test_folding_loses_nothing() {
    local columns missing
    run plan --model tiny --dp 2 --tp 2 --batch 4;  grep -v planned "$place/out" >"$place/wide"
    for columns in 80 50; do                        # of 50 the table of memory needs two parts
        on_terminal $columns plan --model tiny --dp 2 --tp 2 --batch 4
        expect_columns $columns; expect_status 0
        grep -v planned "$place/out" >"$place/narrow"
        missing=$(comm -23 <(words_of "$place/wide" | sort -u) <(words_of "$place/narrow" | sort -u))
        [ -z "$missing" ] || complain "words are lost: $missing"
    done
    [ "$(grep -c '^ *devices  where' "$place/out")" = 3 ] || complain 'not two parts of one table and one of the other'
}

test_version_and_help() {
    run --version;                                  expect_status 0; expect_out '^orrery [0-9]+\.[0-9]+$'; expect_out 'OpenBLAS'
    run help show schedule;                         expect_status 0; expect_out '^usage: orrery show schedule'
    run help train;                                 expect_status 0; expect_out '^usage: orrery train'
    run help trian;                                 expect_status 2; expect_error 'did you mean train'
    run help;                                       expect_status 0; expect_out '^Check:$'; expect_out '^  verify '
}


run_tests test_version_and_help test_every_help_fits test_a_checked_run_fits test_folding_loses_nothing
