# On a terminal of 80 columns nothing is wider; what is folded loses no word, and a pipe gets it unfolded.
. "$(dirname "$0")/lib.sh"

# Run orrery on a terminal of so many columns; its lines are in $place/out, each as it stands at the end, without colours.
on_terminal() {                                     # on_terminal COLUMNS WORDS...
    local columns=$1 words; shift
    printf -v words '%q ' "$program" "$@"
    shell_on_terminal "$columns" "$words"
}
shell_on_terminal() {
    local columns=$1 words=$2
    command="$words, on $columns columns" status=0
    TERM=xterm timeout 300 script -qec "stty cols $columns; $words" /dev/null </dev/null >"$place/raw" 2>&1 || status=$?
    sed -e 's/\r*$//' -e 's/.*\r//' -e 's/\x1b\[[0-9;]*[mK]//g' "$place/raw" >"$place/out"
    out=$(cat "$place/out")
}
words_of() { tr -s ' \n' '\n' <"$1" | grep -v '^$'; }

# Of all commands, and of what they show and bench, in one terminal.
test_every_help_fits() {
    local c
    { echo; "$program" help | sed -n 's/^  \([a-z]*\)  .*/\1/p'; echo 'golden make'; } >"$place/pages"
    for c in show bench; do topics_of $c | sed "s/^/$c /"; done >>"$place/pages"
    [ "$(wc -l <"$place/pages")" -ge 50 ] || complain "$(wc -l <"$place/pages") pages of help"
    shell_on_terminal 80 "while read -r c; do '$program' \$c --help </dev/null || echo \"\$c: FAILED\"; done <'$place/pages'"
    expect_status 0; expect_columns 80; expect_no_out FAILED
    [ "$(grep -c '^usage: orrery' "$place/out")" -ge "$(wc -l <"$place/pages")" ] || complain 'not a usage for each'
    for c in '' train 'show schedule' golden; do run $c --help; expect_columns 100; done
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

# Every topic of show and bench: a new one is tried by its default words, unless it is too slow for `make test`.
slow=" step check published plan quantized offload lengths sums collectives dispatch tensor attention streams cluster "
test_every_command_fits() {
    local topic words
    for topic in $(topics_of show); do
        words=; case $topic in schedule) words="zb-h1 --pp 8 --micro 20" ;; esac
        on_terminal 80 show $topic $words;          expect_status 0; expect_columns 80
        [ "$TIER" = verify ] || case $topic in schedule) ;; *) [[ $topic < d ]] || break ;; esac
    done
    on_terminal 80 show allreduce ring --devices 12; expect_status 0; expect_columns 80; expect_out '^  size  a number has 8 bytes$'
    grep -q $'\e\[1;32m' "$place/raw" || complain 'what has changed has no colour'
    NO_COLOR=1 on_terminal 80 show allreduce ring;   expect_status 0; expect_out '^  size  a number has 8 bytes$'
    ! grep -q $'\e\[' "$place/raw" || complain 'NO_COLOR is set, and there are colours'
    on_terminal 80 show schedule zb-v --pp 4 --micro 8; expect_status 0; expect_columns 80; expect_out '^ *lower case: odd chunks'
    cd "$top"                           # its texts to train on, and what was published
    for topic in $(topics_of bench); do
        [[ $slow == *" $topic "* && $TIER != verify ]] && continue
        words=
        case $topic in
            step) words="--model tiny --runs 1 --rounds 1" ;; check) words="--model tiny --tokens 8" ;; collectives) words="--bytes 4K --runs 1" ;;
            plan) words="--model tiny --devices 64" ;; attention) words="--seq 64 --heads 8 --head-width 2 --devices 1,4 --claims no --wall 0" ;;
            partial) words="--steps 8 --skip 1" ;;
            tensor) words="--width 32 --heads 8 --seq 8 --batch 8 --devices 1,4 --run 4 --runs 1" ;;
        esac
        on_terminal 80 bench $topic $words;         expect_status 0; expect_columns 80
    done
    on_terminal 80 list;                            expect_status 0; expect_columns 80
    on_terminal 80 list collectives;                expect_status 0; expect_columns 80
    on_terminal 80 list ring;                       expect_status 0; expect_columns 80
    on_terminal 80 check "$top/golden/biased-mlp.safetensors" "$top/golden/biased-attention.safetensors"; expect_status 3; expect_columns 80
    grep -q $'\e\[1;31mFAILED\e\[0m: ' "$place/raw" || complain 'the verdict is not red'
    [ "$TIER" != verify ] || { on_terminal 80 verify collectives --devices 3; expect_status 0; expect_columns 80; }
}
topics_of() { "$program" "$1" --help | sed -n 's/^  \([a-z-]*\) .*/\1/p'; }

# A table loses no word and no number when it is folded or cut into parts.
test_tables_lose_nothing() {
    local missing
    run bench streams;                              cp "$place/out" "$place/wide"
    on_terminal 50 bench streams;                   expect_columns 50; cp "$place/out" "$place/narrow"
    missing=$(comm -23 <(words_of "$place/wide" | sort -u) <(words_of "$place/narrow" | sort -u))
    [ -z "$missing" ] || complain "words are lost: $missing"
}

# No pass is sampled away: what does not fit a line goes on below; what would be too many lines is said.
test_schedules_are_whole() {
    local drawn
    run show schedule 1f1b --pp 8 --micro 64;       expect_status 0; expect_columns 100; expect_out '^from time 95 on$'
    drawn=$(grep -E '^ +[0-9]+  ' "$place/out" | grep -o F | wc -l)
    [ "$drawn" = 512 ] || complain "$drawn forwards are drawn, not 8 x 64"
    run show schedule 1f1b --pp 4 --micro 1000;     expect_status 0; expect_out 'of several in a column one is drawn; --svg FILE has all'
}

# How far it is, on a terminal alone, in a line that is gone at the end.
test_progress() {
    local asked=(search --devices 2 --model tiny --micro 2 --recompute none --schedule 1f1b --tensor 1d --attention ring)
    on_terminal 80 "${asked[@]}";                   expect_status 0; expect_columns 80; expect_no_out '\[[#-]*\]'
    grep -q '\[#*-*\] *[0-9]* %  planning' "$place/raw" || complain 'it does not say how far it is'
    on_terminal 80 "${asked[@]}" --quiet;           ! grep -q 'planning' "$place/raw" || complain 'it is not quiet'
    cp "$top"/golden/llama-minimal.* "$place"
    on_terminal 80 golden "$place/llama-minimal.safetensors" --measure --runs 0
    expect_status 0; expect_columns 80; expect_no_out '\[[#-]*\]'
    grep -q '\[#*-*\] *[0-9]* %  measuring bounds .*twin [0-9]* of 64' "$place/raw" || complain 'it does not say how far it is'
    run "${asked[@]}";                              expect_silent
    make_text
    on_terminal 80 train --model tiny --data "$text" --steps 40 --batch 2 --seq 8; expect_status 0; expect_columns 80
    on_terminal 80 train --model tiny --data "$text" --steps 101 --batch 2 --seq 8 --dp 2 --data-parallel diloco --local-steps 20 --optimizer adamw
    expect_status 0; expect_columns 80
    printf 'set:\n  model: tiny\n  data: "%s"\n  steps: 1\n  batch: 2\ngrid:\n  lr: [1e-3, 2e-3]\n' "$text" >grid.yaml
    on_terminal 80 sweep grid.yaml --out S;         expect_status 0; expect_columns 80; expect_out '^run 002 of 2(, [0-9]+ (s|min|h) left)?$'
    run sweep grid.yaml --out S;                    expect_status 0; expect_no_out 'left'
}

# Every other command does something; what it writes to a terminal fits. Tokens and texts are as long as they are.
test_what_commands_say_fits() {
    make_text; cp "$text" text
    run train --model tiny --data text --batch 2 --seq 8 --steps 2 --log a.jsonl;   expect_status 0
    fits 0 golden "$top/golden/gpt2-tied.safetensors"
    fits 0 infer --model tiny --dp 2 --batch 4
    fits 0 plan --model tiny --dp 2 --tp 2
    fits 0 sample --model tiny --prompt ab --tokens 40
    fits 0 report a.jsonl --out r.html
    fits 0 course --student S
    fits 0 learn --start F
    fits 0 learn --in F
    if [ "$TIER" = verify ]; then
        fits 3 learn 01 --in F
        fits 3 grade F
        fits 0 calibrate --busy --devices 2 --rounds 1 --out m.json
    fi
    fits 2 trian
    fits 1 report nothing.jsonl --out r.html
}
fits() { local want=$1; shift; on_terminal 80 "$@"; expect_status "$want"; expect_columns 80; }

test_quiet() {
    make_text
    run train --model tiny --data "$text" --steps 1 --batch 2 --dp 2 --check ref --quiet; expect_status 0; expect_silent
    [ "$(cat "$place/out")" = 'OK: every activation, gradient, weight and loss of every device is what one device computes.' ] || complain 'not the verdict alone'
    run list --quiet;                               expect_status 0; [ ! -s "$place/out" ] || complain 'something is printed'
    run show schedule 1f1b --json "$place/j";       expect_status 0; expect_out '^  bubble '; expect_file "$place/j"
    run show schedule 1f1b --json /nowhere/j;       expect_status 1; expect_error '--json /nowhere/j: cannot be written'
}

run_tests test_version_and_help test_every_help_fits test_a_checked_run_fits test_folding_loses_nothing test_every_command_fits test_tables_lose_nothing \
    test_schedules_are_whole test_progress test_what_commands_say_fits test_quiet
