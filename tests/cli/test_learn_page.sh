# `orrery learn LESSON --page FILE` and `--draw`: the student's run, the right one beside it once all is right, and never the solution's text.
. "$(dirname "$0")/lib.sh"

# A student's folder with the solution of lesson 3, and the solutions apart from it.
begin() {
    [ -d "$place/teacher" ] || run course --teacher "$place/teacher"
    run learn --start mine; solution=$place/teacher/solutions/03_ring/ring.c
}
films() { grep -o '"title":"[a-z]* | [^"]*"' "$1"; }
no_solution_inside() { ! grep -q 'OWN\|DIR \*\|exchange_both(g' "$1" || complain "$1 has text of the solution"; }

test_a_right_ring() {
    begin; cp "$solution" mine/03_ring/
    run learn 3 --in mine --page p.html --draw;         expect_status 0; expect_silent; expect_columns 100
    [ "$(films p.html)" = '"title":"yours | ring_all_reduce with 4 devices, n = 4"
"title":"right | ring_all_reduce with 4 devices, n = 4"' ] || complain "the films are: $(films p.html)"
    no_solution_inside p.html
    expect_out '^  p.html shows ring_all_reduce with 4 devices, n = 4, and the right run beside it\.$'
    expect_out '^  Yours: ring_all_reduce with 4'; expect_out '^  Right: ring_all_reduce with 4'
    # By hand: 2 (W-1) messages of each of 4 devices, in both films; each takes 10 us and its bytes at 50 GB/s.
    grep -o '"messages":\[\[[0-9,]*\]\(,\[[0-9,]*\]\)*\]' p.html | sed 's/.*:\[\[//; s/\]\]//; s/\],\[/\n/g' >messages
    [ "$(awk -F, '$4 - $3 == 10000000 + 20 * $5' messages | wc -l)" = 48 ] || complain "$(wc -l <messages) messages, of which 48 should take 10 us and 20 ps a byte"
    grep -q '"words":\["right takes as long as yours' p.html || complain 'the page does not compare the two'
}

# A failing one is shown alone, with the judge's words at the device, and where it first differs.
test_a_wrong_ring() {
    begin; sed 's/DIR = 1/DIR = -1/' "$solution" >mine/03_ring/ring.c; cmp -s "$solution" mine/03_ring/ring.c && complain 'nothing was changed'
    run learn 3 --in mine --page p.html;                expect_status 3
    [ "$(films p.html)" = '"title":"yours | ring_reduce_scatter with 4 devices, n = 4"' ] || complain "the films are: $(films p.html)"
    no_solution_inside p.html
    grep -q 'The first event that a right run does not have: device 0 sends 4 B to device 3 at 0 s"' p.html || complain 'the first difference is not said'
    grep -q '"checks":\[{"tensor":"ring_reduce_scatter","device":2,"holds":false' p.html || complain 'device 2 is not marked'
    expect_out '^  p.html shows ring_reduce_scatter with 4 devices, n = 4\.$'
}

test_a_deadlock() {
    begin
    sed 's|// your code: W-1.*|float *y = allocate(4); if (g->size == 2) exchange_both(g, -1, 0, 0, 1 - g->rank, y, 4); release(y);|' mine/03_ring/ring.c >ring.c
    mv ring.c mine/03_ring/; run learn 3 --in mine --page p.html; expect_status 3; expect_out 'deadlock|waits for'
    grep -q '"title":"waits for device 1 for ever, to receive"' p.html || complain 'it is not said for what device 0 waits'
    no_solution_inside p.html
}

# A kit for students has no solutions; then the student's run stands alone.
test_without_solutions() {
    begin; cp "$solution" mine/03_ring/
    cp -r "$top/tutorials" kit
    run course --skeletons kit;                         expect_status 0
    ORRERY_TUTORIALS=$PWD/kit run learn 3 --in mine --page p.html; expect_status 0
    [ "$(films p.html | wc -l)" = 1 ] || complain "the films are: $(films p.html)"
    grep -q "The lesson's solution is not here, so only your run is shown" p.html || complain 'it is not said why'
}

test_what_is_refused() {
    begin
    run learn --page p.html --in mine;                  expect_status 2; expect_error 'learn: --page and --draw need LESSON'
    run learn 11 --page p.html --in mine;               expect_status 2; expect_error 'lesson 11 has no runs of devices'
    run learn 3 --page /nowhere/p.html --in mine;       expect_status 1; expect_error '/nowhere/p.html: cannot be written'
    echo 'no C' >mine/03_ring/ring.c
    run learn 3 --page p.html --in mine;                expect_status 3; expect_out 'No run of devices to show: the page is not written'
    [ ! -e p.html ] || complain 'a page is left'
}

run_tests test_a_right_ring test_a_wrong_ring test_a_deadlock test_without_solutions test_what_is_refused
