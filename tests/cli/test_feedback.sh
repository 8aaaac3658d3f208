# What `learn` says of usual mistakes: the smallest example first, printed whole; which mistake explains it; a hint that fits; the best result kept.
. "$(dirname "$0")/lib.sh"

begin() { run learn --start mine; expect_status 0; run course --teacher teacher; expect_status 0; }

# try LESSON FILE SED [FLAGS...]: a solution with a change; its output without line breaks is in `words`.
try() {
    local from=teacher/solutions/$2
    sed -E "$3" "$from" >"mine/$2"
    ! cmp -s "$from" "mine/$2" || complain "nothing was changed: $3"
    run learn "$1" --in mine "${@:4}"; expect_status 3
    tr -s ' \n' ' ' <"$place/out" >words
}
expect_words() { grep -qE -- "$1" words || complain "it does not say: $1"; }

test_the_mean_and_the_step() {
    begin
    try 7 07_zero/zero.c 's| / \(float\)g->size||' --hint           # the sum in place of the mean
    expect_words 'with 2 devices, n = 5, 1 step: .*; 5 of 5 elements are wrong: the gradient is W times too large'
    expect_out '^     weights, device 0  +before +is +should be$'; expect_out '^     weights\[4\] .*<-$'; expect_columns 100
    expect_words 'hint 1 of 5: A sum over W devices is W times their mean'
    try 7 07_zero/zero.c 's|all_gather\(g, sum, weights, n\);|memcpy(weights + own.start, sum, sizeof *sum * (size_t)own.count);|'
    expect_words 'with 2 devices, n = 5, 1 step: device 0: weights\[3\] .* 2 of 5 elements are wrong: these numbers are as they were before the call'
    run learn 7 --in mine --hint; expect_out 'hint 1 of 4: all_gather takes a block from a place of its own'       # the fourth of the check fits best
    try 5 05_data/data.c 's| /= \(float\)g->size| /= 1|'
    expect_words 'with 2 devices, 1 parameters of 5 numbers .* W times too large'
}

test_the_ring() {
    begin
    try 3 03_ring/ring.c 's/sizeof \*x \* \(size_t\)(out|in)\.count/(size_t)\1.count/' --hint   # numbers for bytes
    expect_words 'with 2 devices, n = 2: .* a message has 1 B, a quarter of 4 B'; expect_words 'hint 1 of 5: Messages and allocate\(\) count bytes'
    try 3 03_ring/ring.c 's/rank \+ DIR, /rank + 1 - 2 * (DIR > 0), /; s/rank - DIR, g->size\), place/rank + DIR, g->size), place/' --hint
    expect_words 'with 3 devices, n = 3: .* device 0 sends to device 2; in this ring it sends only to device 1'; expect_words 'hint 1 of 4: ring.h says to which side'
    try 3 03_ring/ring.c 's/ add_into\(x \+ mine.start, arrived/ memcpy(x + mine.start, arrived, 4 * (size_t)mine.count); if (0) &/' --hint
    expect_words 'with the numbers of device 1 alone'
    try 3 03_ring/ring.c 's/^    release\(arrived\);//' --sanitize --hint
    expect_words 'not released when the function returned: 4 bytes; the first is allocated in line [0-9]+'; expect_words 'hint 1 of 5: Each allocate\(\) needs a release\(\)'
    grep -n 'arrived = allocate' mine/03_ring/ring.c | cut -d: -f1 >line
    expect_words "allocated in line $(cat line)[^0-9]"
}

# 28 points are not forgotten; a right solution is measured, and the instructor's is shown to whoever has all points.
test_the_best_is_kept() {
    begin
    run learn 3 --in mine --solution; expect_status 3; expect_out 'The solution is shown when yours has all points'; expect_no_out 'arrived = allocate'
    cp teacher/solutions/03_ring/ring.c mine/03_ring
    run learn 3 --in mine --solution; expect_status 0; expect_out '28 of 28'
    expect_out '^  All runs of the checks   yours +the instructor.s$'; expect_out '^  bytes sent +([1-9][0-9]*) +\1$'; expect_out '^  virtual time +([0-9.]+ ms) +\1$'
    sed 's/^    | //' "$place/out" | grep -qF 'add_into(x + mine.start, arrived, mine.count);' || complain 'no solution'
    sed -i 's/if (g->size == 1) return;/float *more = allocate(8000); release(more); message_wait(message_send(g, 0, x, 0));/' mine/03_ring/ring.c
    run learn 3 --in mine; expect_status 3; expect_out 'Your best is 28 of 28 points'
    run learn --in mine; expect_out '-> 01 '; expect_out ' 03 .* 0 of 28 best 28$'; expect_out '^[0-9]+ of [0-9]+ points, at best 28\.$'
    ! grep -qE '^.{81}' "$place/out" || complain 'a line of more than 80 columns'
    run learn --in mine --solution; expect_status 2; expect_error 'need LESSON'
    # A course without solutions shows none, and compares with none.
    cp teacher/solutions/03_ring/ring.c mine/03_ring; cp -r "$top/tutorials" tutorials
    run course --skeletons tutorials; expect_status 0
    ORRERY_TUTORIALS=$PWD/tutorials run learn 3 --in mine --solution; expect_status 0; expect_out 'comes without solutions'; expect_no_out "instructor's"; expect_out '^  bytes sent +[1-9][0-9]*$'
}

run_tests test_the_mean_and_the_step test_the_ring test_the_best_is_kept
