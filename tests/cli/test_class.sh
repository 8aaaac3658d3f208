# `grade --class`: a folder of submissions as schools export them, hostile names and files, a table for spreadsheets, results that are kept.
. "$(dirname "$0")/lib.sh"

# A right solution of lesson 1, and an almost right one, which loses all points of `careful`.
sources() {
    run course --teacher teacher; expect_status 0; cp teacher/solutions/01_sums/sums.c right.c
    sed 's/return sum + lost/return sum/' right.c >almost.c; ! cmp -s right.c almost.c || complain 'nothing was changed'
}
grade() { run grade "$@" --class --lessons 1; }
expect_row() { grep -qxF -- "$1"$'\r' points.csv || complain "no row: $1: $(cat points.csv)"; }
expect_judged() { expect_out "^$1 students?: $2 files? judged, $3 kept from before, ${4:-0} that could not be judged"; }

# Gradescope's, Moodle's and Canvas's names, deep folders, files of the system that packed them; the order is that of names.
test_exports_of_schools() {
    sources; mkdir -p class/submission_101 class/submission_102/01_sums 'class/Ann Lee_123_assignsubmission_file' class/dan/a/b class/dan/__MACOSX class/submission_9
    cp right.c class/submission_101/sums.c; cp almost.c class/submission_102/01_sums/sums.c; echo 'int x(' >class/submission_102/sums.c
    cp right.c 'class/Ann Lee_123_assignsubmission_file/sums.c'; cp right.c class/dan/a/b/sums.c; echo 'int x(' >class/dan/__MACOSX/sums.c
    cp almost.c class/leeann_LATE_123_456_sums-1.c; echo junk >class/note.txt; echo junk >class/submission_9/sums.zip
    printf -- '---\nsubmission_102:\n  :submitters:\n  - :name: "Quo, Vadis"\n    :sid: 7\nsubmission_101:\n  :submitters:\n  - :name: Zoe\n  :results: {}\n' >class/submission_metadata.yml
    grade class --csv points.csv --json class.json --jobs 2; expect_status 0; expect_silent; expect_judged 6 2 3
    printf '%s\r\n' 'name,variant,01_sums,points,of,note' 'Ann Lee,0,14,14,14,' '"Quo, Vadis",0,10,10,14,' 'Zoe,0,14,14,14,' 'dan,0,14,14,14,' 'leeann,0,10,10,14,' \
        'submission_9,0,0,0,14,"has sums.zip, which is not unpacked"' >expected.csv
    expect_same points.csv expected.csv
    expect_out '^ +2 of 5 +01_sums +careful'; grep -q '"failed":	2,' class.json || complain 'no statistics'
}

# Names that a spreadsheet computes, a page runs or a table breaks at; files that are links, pipes and folders.  Nobody stops the others.
test_hostile_submissions() {
    sources; mkdir -p 'class/=SUM(A1),"x"' class/-1 class/@me 'class/<script>alert(1)<' class/link class/pipe/01_sums class/loop class/huge class/end $'class/a\nb'
    cp right.c 'class/=SUM(A1),"x"/sums.c'; cp right.c class/-1/sums.c; cp right.c class/@me/sums.c; { echo '/* </pre><script>alert(2)</script> */'; cat right.c; } >'class/<script>alert(1)<'/sums.c
    echo root:secret >passwd; ln -s "$PWD/passwd" class/link/sums.c; ln -s "$PWD" class/link/01_sums; mkfifo class/pipe/01_sums/sums.c; ln -s .. class/loop/loop; ln -s "$PWD/class/-1" class/linked
    head -c 3000000 /dev/zero >class/huge/sums.c; printf '#error x\n' >class/end/sums.c; cp right.c $'class/a\nb/sums.c'
    grade class --csv points.csv --json class.json --similar similar --jobs 2; expect_status 0; expect_silent
    expect_row "\"'=SUM(A1),\"\"x\"\"\",0,14,14,14,"; expect_row "\"'-1\",0,14,14,14,"; expect_row "\"'@me\",0,14,14,14,"; expect_row 'a?b,0,14,14,14,'
    for name in link pipe loop huge end; do grep -q "^$name,0,0,0,14," points.csv || complain "$name: $(grep "^$name" points.csv)"; done
    ! grep -q linked points.csv || complain 'a link is a student'
    [ "$(wc -l <points.csv)" = 11 ] || complain "rows: $(cat points.csv)"
    ! grep -rqs secret points.csv class.json similar "$place/out" || complain 'a file elsewhere was read'
    ! grep -qi '<script' similar/similar.html || complain 'a name or a text runs in the page'
    grep -q '&lt;script&gt;alert(2)' similar/similar.html && grep -q '&lt;script&gt;alert(1)&lt;' similar/similar.html || complain 'the page lacks a text'
}

# Only what is new is judged; one student's, or everybody's, on request.  The secret and the variant are part of a result.
test_results_are_kept() {
    sources; mkdir -p class/ann class/bob; cp right.c class/ann/sums.c; cp almost.c class/bob/sums.c; echo one >secret
    grade class; expect_judged 2 2 0
    grade class --csv points.csv; expect_judged 2 0 2; expect_row 'bob,0,10,10,14,'
    cp right.c class/bob/sums.c; grade class --csv points.csv; expect_judged 2 0 2; expect_row 'bob,0,14,14,14,'
    echo '/* anew */' >>class/bob/sums.c; grade class; expect_judged 2 1 1
    grade class --regrade ann; expect_judged 2 1 1; grade class --regrade all; expect_judged 2 2 0
    grade class --secret secret; expect_judged 2 2 0
    for f in class/.orrery-results/*.json; do echo '{"tenths": 1' >"$f"; done; grade class --csv points.csv; expect_judged 2 2 0; expect_row 'ann,0,14,14,14,'
    grade class --results elsewhere; expect_judged 2 2 0; expect_file elsewhere/*.json
    grade class --regrade nobody; expect_status 2; expect_error 'nobody: no submission is this student'
}

# Each student has a variant; who has handed in nothing has a row, too.
test_a_roster() {
    sources; run course --teacher other --variant 3; expect_status 0; mkdir -p class/ann class/bob class/eve; cp right.c class/ann/sums.c
    cp other/solutions/01_sums/sums.c class/bob/; cp other/solutions/01_sums/sums.c class/eve/; ! cmp -s right.c class/bob/sums.c || complain 'the variants are alike'
    printf 'name,variant\r\nann,0\r\n"bob",3\r\n"Zoe ""Z"", Jr",3\r\n' >roster.csv
    grade class --roster roster.csv --csv points.csv; expect_status 0
    expect_row 'ann,0,14,14,14,'; expect_row 'bob,3,14,14,14,'; expect_row '"Zoe ""Z"", Jr",3,0,0,14,no submission'; grep -qE '^eve,0,[0-9]+,[0-9]+,14,not on the roster' points.csv || complain "$(cat points.csv)"
    printf 'ann,0\nbob,three\n' >roster.csv; grade class --roster roster.csv; expect_status 1; expect_error 'roster.csv: line 2: "three" is no variant'
}

# Another's file with other names, comments and blanks is found, with its lines; two hands are not.
test_similar_files() {
    sources; mkdir -p class/{ann,bob,cyd}; cp right.c class/ann/sums.c
    sed 's/\blost\b/gone/g; s/\bsum\b/total/g; s/^    /\t/; s|{$|{ /* mine */|' right.c >class/bob/sums.c
    run learn --start fresh; cp fresh/01_sums/sums.c class/cyd/sums.c
    grade class --similar similar; expect_status 0; tr -d '\n\t' <similar/similar.json >pairs
    grep -q '"a":"ann","b":"bob","share":1,' pairs || complain "the copy: $(cat pairs)"
    grep -qE '"lines_a":\[\[[0-9]+, ?[0-9]+\]' pairs || complain "no lines: $(cat pairs)"
    ! grep -q cyd pairs || complain 'the file to complete is like a solution'
    # In Python, too, and never across languages.
    rm -r class similar; mkdir -p class/{ann,bob,cyd}; cp right.c class/ann/sums.c
    cp "$top/tutorials/01_sums/sums.py" class/bob/; sed 's/\btotal\b/gone/g; s/\bx\b/numbers/g; s/$/  # mine/' class/bob/sums.py >class/cyd/sums.py
    grade class --similar similar; tr -d '\n\t' <similar/similar.json >pairs
    grep -q '"a":"bob","b":"cyd","share":1,' pairs || complain "a copy in Python: $(cat pairs)"; ! grep -q ann pairs || complain 'C is like Python'
}

# A signal while a submission computes for ever: the table has who was done.
test_an_interrupt_leaves_a_table() {
    sources; mkdir -p class/{ann,bob} build; cp right.c class/ann/sums.c; sed 's/return sum + lost/for (volatile int go = 1; go;) continue; &/' right.c >class/bob/sums.c
    local own=; without_cage && own=--own-code
    # shellcheck disable=SC2086  # empty, or one word
    TMPDIR=$PWD/build setsid "$program" grade class --class --lessons 1 --csv points.csv $own >"$place/out" 2>"$place/err" </dev/null &
    local pid=$! i; command='grade --class, interrupted'
    for i in {1..400}; do ! grep -q '^ann,0,14' points.csv 2>/dev/null || break; sleep 0.05; done
    kill -TERM "$pid"; status=0; wait "$pid" || status=$?; look
    expect_status 143; expect_out 'stopped early'; expect_row 'ann,0,14,14,14,'; expect_row 'bob,0,,,14,'
    [ "$(wc -l <points.csv)" = 3 ] || complain "$(cat points.csv)"
    expect_nothing build
}

test_what_a_class_refuses() {
    run learn --start one;                          run grade one --class; expect_status 2; expect_error "one student's folder, with a course.json"
    refused() { expect_status "$1"; expect_error "$2"; }
    mkdir empty; : >one.c; : >roster.zip
    grade none; refused 1 'none: No such file'; grade one.c; refused 2 'it is no folder'; grade roster.zip; refused 2 'unpack it first'; grade empty; refused 2 "no student's folder"
    run grade empty --csv x.csv; refused 2 '--csv needs --class'; run grade empty --jobs 2; refused 2 '--jobs needs --class'; grade empty --junit x.xml; refused 2 '--junit is for one submission'
    mkdir -p class/ann; : >class/ann/sums.c; run grade class --lessons 1; expect_status 3; expect_out 'graded with --class'; grade class --jobs 0; expect_status 2; grade class --roster none; refused 1 'none'; grade class --csv none/x.csv; refused 1 'none/x.csv'
    expect_nothing empty
}

# The points that GitHub Classroom gets, by the commands of its workflow; and an nbgrader notebook's, by its own cells.
test_other_programs() {
    sources; mkdir one; cp almost.c one/sums.c; run grade one --lessons 1-2 --json results.json; expect_status 3
    if type jq >/dev/null 2>&1; then
        awk '/# begin/ { on = 1; next } /# end/ { on = 0 } on' teacher/classroom.yml >steps; echo 'echo "$result" | base64 -d' >>steps
        bash -eu steps >result; [ "$(jq -c '[.max_score, ([.tests[].score] | add), .status]' result)" = '[33,10,"fail"]' ] || complain "Classroom: $(head -c 300 result)"
    else echo 'skipped: there is no jq'; fi
    type python3 >/dev/null 2>&1 || { echo 'skipped: there is no python3'; return; }
    ln -s "$program" orrery
    cat >cells.py <<'PY'
import json, sys
most = got = 0
for cell in json.load(open(sys.argv[1]))['cells']:
    grader = cell['metadata'].get('nbgrader', {})
    if cell['cell_type'] != 'code': continue
    if cell['source'].startswith('%%writefile'): open('sums.c', 'w').write(open('almost.c').read())
    elif grader.get('grade'): got += eval(cell['source']); most += grader['points']
    else: exec(cell['source'].replace("'--quiet'", "'--quiet'" + sys.argv[2]))
print('sum', got, 'of', most)
PY
    local own=; without_cage && own=", '--own-code'"
    PATH=$PWD:$PATH watched python3 cells.py teacher/notebooks/01_sums.ipynb "$own"; command=notebook; expect_status 0; expect_out '^sum 10 of 14$'
}

run_tests test_exports_of_schools test_hostile_submissions test_results_are_kept test_a_roster test_similar_files test_an_interrupt_leaves_a_table test_what_a_class_refuses test_other_programs
