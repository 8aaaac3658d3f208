# Warm-ups: asked one by one or in a loop, from a terminal, a file or a pipe; what is typed is never an error.
. "$(dirname "$0")/lib.sh"

start() { "$program" learn --start "${1:-mine}" "${@:2}" >"$place/started" 2>&1 || complain "$(cat "$place/started")"; cd "${1:-mine}" || exit 1; }

# type LINES WORDS...: what a student types, and what he calls.
type_in() { printf '%b' "$1" >"$place/typed"; command="orrery ${*:2} <<< $1"; status=0; timeout 300 "$program" "${@:2}" <"$place/typed" >"$place/out" 2>"$place/err" || status=$?; look; }

# Words without the ends of lines.
said() { tr -s ' \n' ' ' <"$place/out" | grep -qE -- "$1" || complain "it does not say: $1"; }

# ---- one warm-up ----------------------------------------------------------------------------------------------------------------
test_a_number() {
    start
    run learn 03.1; expect_status 3; expect_silent; said 'devices add up a vector on a ring.*How many messages'; expect_columns 80
    W=$(sed -nE 's/^  ([0-9]) devices add up a vector.*/\1/p' "$place/out")
    type_in "$((W - 1))\n" learn 03.1; expect_status 3; said "That is the reduce-scatter alone"; said 'h shows a hint'; expect_no_out 'Right'
    type_in "$((W - 1)) messages\n$((2 * (W - 1))) messages\nnot read\n" learn 3.1; expect_status 0; said 'reduce-scatter alone.* Right\. '; expect_no_out 'not read'
    run learn 03.steps; expect_status 0                     # it was done
    type_in '77\n' learn ring.1 --in 03_ring; expect_status 3
    run learn --list; expect_status 0; expect_out '^   ok    03.1  Messages on the ring'       # and it stays done
    run learn 03.1 --hint; said 'hint 1 of 2'; expect_no_out 'hint 2'
    run learn 03.1 --hint; said 'hint 1 of 2.*hint 2 of 2'
    run learn 03.1 --hint; said 'hint 2 of 2'
    type_in 'h\n777\n777\n' learn 03.2; expect_no_out 'a shows the answer'; type_in '777\n' learn 03.2; said 'too large.* \(a shows the answer\)'
    type_in 'a\n' learn 03.2; expect_status 3; said 'The answer is [0-9]+ bytes'
    run learn --list; expect_out '^   seen  03.2'
}

# What is asked for stands in a drawing of this program, and nowhere else.
test_a_drawing() {
    start
    run learn 03.3; said 'One block is hidden'; [ "$(grep -o '?' <<<"$out" | wc -l)" = 2 ] || complain 'not one word is hidden'
    device=$(sed -nE '/step 2/,$ s/^ +device ([0-9]).*\?.*/\1/p' "$place/out") W=$(sed -nE 's/^  A ring of ([0-9]) devices.*/\1/p' "$place/out")
    right=; for k in 0 1 2; do right+=$(((device - k + W) % W)); done
    type_in "$device\n" learn 03.3; expect_status 3; said 'Those were its own numbers before'
    type_in "$right\n" learn 03.3; expect_status 0; said 'Right\. Device'
    run learn 03.4; wrong=$(sed -nE '/step 1/,$ s/^ +device ([0-9]) (.*)/\1 \2/p' "$place/out" | awk '{ two = 0; for (i = 2; i <= NF; i++) two += length($i) == 2; if (!two) print $1 }')
    type_in "$wrong\n" learn 03.4; expect_status 0; said "Device $wrong has copied what arrived"
}

# An expression is typed, or a file is completed; it is compiled and run as a lesson's is.
test_a_line_of_c() {
    start
    run learn 03.5; expect_status 3; said 'int neighbour\(int rank, int size\)'; expect_file 03_ring/warmup_neighbour.c; expect_out '^03.5> $'
    type_in 'rank + 1\n' learn 03.5; expect_status 3; said 'neighbour\(rank = 0, size = 1\) is 1, and should be 0. Where the row ends'; expect_file 03_ring/warmup_neighbour.c
    grep -q '    return rank + 1;' 03_ring/warmup_neighbour.c || complain 'the line is not in the file'
    type_in 'rank +\n' learn 03.5; expect_status 3; said 'warmup_neighbour.c:6:.*error: expected expression'
    type_in 'return mod(rank + 1, size);\n' learn 03.5; expect_status 0; said 'Right'
    type_in 'int next = rank + 1; return next == size ? 0 : next;\n' learn 03.5; expect_status 0
    run learn 03.5; expect_status 0
    sed -i 's/return.*/return 5;/' 03_ring/warmup_neighbour.c; run learn 03.5; expect_status 3; said 'is 5, and should be 0'     # saved in an editor
    sed -i 's/return.*/say("rank %d", rank); return mod(rank + 1, size);/' 03_ring/warmup_neighbour.c; type_in '\n' learn 03.5; expect_status 0
    type_in 'system("touch x")\n' learn 03.5; expect_status 3; [ ! -e x ] || complain 'it has started a program'
    type_in '1 \0303\0244\n' learn 03.5; said 'characters that are no text of C'
    [ "$TIER" = verify ] || return 0
    type_in 'rank / 0\n' learn 03.5; expect_status 3
    type_in 'for (;;) ; return 0;\n' learn 03.5; expect_status 3; said 'took too long|computed for more|more than'
    type_in 'printf("x")\n' learn 03.5; expect_status 3; said 'say\(\)'
    rm 03_ring/warmup_neighbour.c; ln -s /etc/passwd 03_ring/warmup_neighbour.c; type_in '\n' learn 03.5; expect_status 3; expect_no_out 'root:'
}

# ---- the loop -------------------------------------------------------------------------------------------------------------------
test_the_loop() {
    start
    type_in 'l\nq\n' learn --warmups; expect_status 0; expect_silent; expect_out '^01.1 '; expect_out '^->       01.1 '; expect_columns 80
    type_in 'g 07.2\nl\ng 5\ng 7.9\nG nothing\n' learn --warmups; said '07.2 Bytes of a stage.* 03 Ring all-reduce: 0 of 6 warm-ups, 0 of 28 points.*-> 07.2 .*05 Data parallelism: 0 of 16 points The lesson.*no warm-up 7.9; lesson 07 has 07.1 to 07.5.*LESSON nothing'
    expect_no_out '^   +03.1'; expect_columns 80
    type_in 's\nn\np\np\np\nq\n' learn --warmups; said '01.2 .*01.3 .*01.2 .*01.1 .*This is the first'
    type_in 'a\n\nh\n' learn --warmups; expect_out '^01.2 '; expect_no_out '^01.1 '        # it was skipped: the second is next; the answer is shown, and Enter goes on
    said '01.2 .*The answer is.*01.3 .*hint 1 of'
    type_in 'N\nN\nN\n\n?\nwhat\nh\na\n' learn --warmups; expect_out '^01    Sums and rounding: 0 of 14 points'; said 'FAILS 1.forward'; said 'Enter tries the lesson'; said 'hint 1 of 2'; said 'shown no answer'
    run learn --list; expect_out '^   skip  01.1'; expect_out '^   seen  01.2'; expect_out '^   tried 01    Sums and rounding: 0 of 5 warm-ups, 0 of 14 points'; [ "$(grep -cE '^(->)? +[a-z]* +[0-9]{2}\.' "$place/out")" -ge 60 ] || complain 'fewer than 60 warm-ups'
    run learn; expect_out '-> 01 .*begun'; expect_out 'orrery learn 01$'; expect_no_out '01.1'        # as it was
    run learn --warmups; expect_status 0; expect_out '^01.3> $'
}

# Enter at a lesson that is done goes on; if its file was changed the lesson is tried again.
test_a_lesson_that_is_done() {
    start; "$program" course --teacher ../teacher >/dev/null; cp ../teacher/solutions/01_sums/sums.c 01_sums
    type_in 'g 1\n\n\n' learn --warmups; said '14 of 14 points.*Done'; expect_out '^02.1 '
    echo '/* */' >>01_sums/sums.c; type_in 'g 1\n\n' learn --warmups; said 'forward.*Done'; expect_no_out '^02.1 '
}

test_an_answer_that_is_a_key() {
    start; type_in '=a\n= h\nHH\n' learn 01.1; [ "$(grep -c 'A number is expected' "$place/out")" = 3 ] || complain 'a letter behind = is no answer'
}

# ---- bad input ------------------------------------------------------------------------------------------------------------------
test_bad_answers() {
    local name
    start
    for name in 01.1 02.5 03.5; do
        : >"$place/typed"; head -c 300000 /dev/zero | tr '\0' 7 >>"$place/typed"; printf '\n\0\0\n\033[2Jx\n\n\377\376\n' >>"$place/typed"
        head -c 3000 "$program" >>"$place/typed"
        status=0; timeout 300 "$program" learn $name <"$place/typed" >"$place/out" 2>"$place/err" || status=$?; look
        command="orrery learn $name <rubbish"; expect_status 3; expect_silent; said 'The answer is too long, or no text'; expect_no_out 'Right'
        [ "$(wc -c <"$place/out")" -lt 60000 ] || complain 'it repeats what was typed'
        ! tr -d '\n -~\302\265\200-\277\342' <"$place/out" | grep -q $'\033' || complain 'characters of control are printed'
    done
    printf 12 >"$place/typed"; timeout 60 "$program" learn 01.1 <"$place/typed" >"$place/out" 2>"$place/err"; look; said '01.1> 12'          # no end of the line
}

test_progress_that_is_spoilt() {
    start
    type_in 's\nq\n' learn --warmups
    grep -q 'places' .progress.json || complain 'nothing is remembered'
    sed -i 's/"skipped"/"nonsense"/' .progress.json; run learn --list; expect_status 0; expect_no_out 'skip'
    printf '{ "warm-ups": [1, 2] }' >.progress.json; run learn --list; expect_status 0; type_in 's\nq\n' learn --warmups; run learn --list; expect_out '^   skip  01.1'
    printf 'x' >.progress.json; run learn --list; expect_status 1; expect_error 'progress.json'
}

test_words_of_the_command() {
    start
    run learn 03.99; expect_status 2; expect_error 'there is no warm-up 03.99; lesson 03 has 03.1 to 03.6'
    run learn 03.nonsense; expect_status 2; expect_error 'there is no warm-up'
    run learn 99.1; expect_status 2; expect_error 'there is no lesson 99'
    run learn rinng.1; expect_status 2; expect_error 'did you mean ring'
    run learn 03.1 --watch; expect_status 2; expect_error 'needs a lesson'
    run learn 03 --list; expect_status 2; expect_error 'take no LESSON'
    cd ..; run learn 03.1; expect_status 2; expect_error 'not a course'
}

# Two students of other variants are asked for other numbers.
test_variants() {
    local v
    for v in 0 1 2; do (start "v$v" --variant $v; "$program" learn 03.2 </dev/null; "$program" learn 07.1 </dev/null) >"asked.$v"; done
    [ "$(for v in 0 1 2; do cksum <asked.$v; done | sort -u | wc -l)" = 3 ] || complain 'variants ask the same'
}

# ---- a terminal -----------------------------------------------------------------------------------------------------------------
test_a_terminal() {
    start
    for columns in 20 80; do
        command="orrery learn on $columns columns"
        printf 'h\nl\nq\n' | TERM=dumb timeout 60 script -qec "stty cols $columns -echo; $program learn" /dev/null 2>&1 | tr -d '\r' >"$place/out"; : >"$place/err"; look
        expect_out '^01.1 '; expect_out 'hint 1 of'; ! grep -q $'\033' "$place/out" || complain 'it has colours'
        sed '/^->/,/^01.1>/d' "$place/out" >words; [ "$(wc -L <words)" -le $columns ] || complain "wider than $columns: $(awk -v c=$columns 'length > c' words | head -n 2)"
    done
}

# ---- the proof ------------------------------------------------------------------------------------------------------------------
test_the_proof() {
    local lessons=(--lessons 3,11 --mutants 1)
    [ "$TIER" != verify ] || lessons=()
    for v in $([ "$TIER" = verify ] && echo 0 1 2 3 4 5 6 7 || echo 2); do
        run course --prove --warmups --variant "$v" "${lessons[@]}"; expect_status 0; expect_no_out WRONG; expect_out '^  ok +warm-up neighbour'; expect_no_out solution
    done
}

# A warm-up that cannot be right is found: the tree of lessons with one that is spoilt.
test_the_proof_finds_spoilt_warmups() {
    local -x ORRERY_TUTORIALS=$PWD/tutorials
    cp -r "$top/tutorials" .
    spoil() { cp "$top/tutorials/03_ring/warmups.txt" tutorials/03_ring/warmups.txt; sed -i "$1" tutorials/03_ring/warmups.txt; cmp -s "$top/tutorials/03_ring/warmups.txt" tutorials/03_ring/warmups.txt && complain "nothing is spoilt: $1"; run course --prove --warmups --lessons 3 --mutants 1; }
    spoil 's/^answer mod(rank .*/answer mod(rank, size)/';              expect_status 3; expect_out 'WRONG +warm-up first'
    spoil 's/^wrong  W - 1 |/wrong  2 * W - 2 |/';                      expect_status 1; expect_error 'warm-up steps of 03_ring: no sizes tell wrong answers'
    spoil 's/^cell   step 2/cell   step 9/';                            expect_status 1; expect_error 'warm-up picture of 03_ring: its picture has no'
    spoil 's/^run    show allreduce/run    show nothing/';              expect_status 1; expect_error 'picture cannot be drawn: orrery show nothing'
    spoil 's/^draw   k 1..2/draw   k 2..q/';                            expect_status 1; expect_error 'no such name'
    [ "$TIER" = verify ] || return 0
    spoil 's/^hint   Take two.*/hint   {W + }/';                        expect_status 1; expect_error 'something is missing'
    spoil 's/^title  Messages.*//';                                     expect_status 1; expect_error '03_ring/warmups.txt:[0-9]+: the warm-up before has no line `title`'
    spoil 's/^unit   bytes/unti   bytes/';                              expect_status 1; expect_error 'warmups.txt:[0-9]+: it begins with no word'
    spoil 's/^warmup bytes/warmup Bytes/';                              expect_status 1; expect_error 'a name has a to z'
    spoil 's/^each   size 1..4/each   sizes 1..4/';                     expect_status 1; expect_error 'names no parameter'
    spoil 's/ | That is the reduce-scatter alone. The/ That is/';       expect_status 1; expect_error 'is expected'
}

run_tests test_a_number test_a_drawing test_a_line_of_c test_the_loop test_a_lesson_that_is_done test_an_answer_that_is_a_key test_bad_answers test_progress_that_is_spoilt test_words_of_the_command test_variants test_a_terminal test_the_proof test_the_proof_finds_spoilt_warmups
