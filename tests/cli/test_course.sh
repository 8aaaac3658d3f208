# learn, grade and course: what a student sees, and that a submission cannot get more points than it has earned.
. "$(dirname "$0")/lib.sh"

# A course and the solution of a lesson, as files to be changed.
solutions() { run course --teacher teacher; expect_status 0; cp teacher/solutions/01_sums/sums.c sums.c; }

points() { run grade "$1" --lessons "${2:-1}" --quiet; sum=$(head -n 1 "$place/out"); }
expect_points() { [ "$sum" = "$1 points" ] || complain "$sum, expected $1"; }

# ---- a student ------------------------------------------------------------------------------------------------------------------
test_a_way_through_a_lesson() {
    run learn --start mine; expect_status 0; expect_silent; expect_file mine/01_sums/sums.c; expect_file mine/concepts/data.md; expect_file mine/concepts/data.svg
    run learn --in mine; expect_status 0; expect_out '-> 01 .*not tried'; expect_out 'orrery learn 01'; ! grep -qE '^.{81}' "$place/out" || complain "a line of more than 80 columns: $(grep -m 1 -E '^.{81}' "$place/out")"
    run learn 01 --in mine; expect_status 3; expect_out 'FAILS +1.forward'; expect_out 'one after another|from the first to the last'; expect_no_out 'hint 1'
    run learn sums --in mine/01_sums --hint; expect_out 'hint 1 of 2'; expect_no_out 'hint 2'
    run learn 1 --in mine --hint; expect_out 'hint 2 of 2'
    run learn 1 --in mine; expect_out 'hint 2 of 2'
    run learn --in mine; expect_out '-> 01 .*begun'
    solutions; sed 's/return sum + lost/return sum/' sums.c >mine/01_sums/sums.c      # another check fails: its hints were not asked for
    run learn 1 --in mine; expect_status 3; expect_out 'shows a hint'; expect_no_out 'hint 1'
    cp sums.c mine/01_sums/
    run learn --in mine; expect_out '-> 01 .*changed'
    run learn 1 --in mine; expect_status 0; expect_out '14 of 14 points'; expect_out 'Done'
    run learn --in mine; expect_out '   01 .*done'; expect_out '-> 02'
    sed -i 's/float sum = 0, lost/say("%d numbers", n); float sum = 0, lost/' mine/01_sums/sums.c
    run learn --in mine; expect_out '   01 .*14 of 14 changed'; expect_out '-> 02'; expect_out 'changed: the file is another one since'
    mv mine/01_sums/sums.c kept; run learn 1 --in mine; expect_status 3; expect_out 'is not there'; expect_out 'orrery learn --start NEW'
    mv kept mine/01_sums/sums.c; run learn --in mine; expect_out '   01 .*14 of 14 changed'
    sed -i 's/return sum + lost/return sum/' mine/01_sums/sums.c
    run learn 1 --in mine; expect_status 3; expect_out 'device 1 says: 1 numbers'
}

test_a_deadlock_is_drawn() {
    solutions
    sed 's/else exchange_both.*/else { message_wait(message_send(g, to, in, bytes)); message_wait(message_receive(g, from, out, bytes)); }/' \
        teacher/solutions/02_messages/messages.c >m.c
    run learn --start mine; cp m.c mine/02_messages/messages.c
    run learn 2 --in mine; expect_status 3; expect_out 'device 0 waits until device 1 receives'; expect_out '-> 1 +4 B'; expect_out 'deadlock +-> 1 +4 B \? +-> 0 +4 B \?'
}

# Who asks for what, in words of course.h: devices that call different collective operations, or in different ways, or with arrays too short.
test_wrong_collectives_are_explained() {
    solutions; run learn --start mine
    change() { sed "$3" "teacher/solutions/$1" >"mine/$1"; cmp -s "teacher/solutions/$1" "mine/$1" && complain "nothing was changed: $3"; run learn "$2" --in mine; }
    line=' *all_reduce(g, m->gradient + from, count);'
    change 05_data/data.c 5 "s/$line/all_reduce(g, m->gradient + from, count - (g->rank == 1));/"
    expect_status 3; tr -s ' \n' ' ' <"$place/out" >words
    grep -qE ': all_reduce of [0-9]+ numbers on device 0, all_reduce of [0-9]+ numbers on device 1; all members give the same count' words || complain "counts: $(cat words)"
    change 05_data/data.c 5 "s/$line/if (g->rank == 2) broadcast(g, 0, m->gradient + from, count); else &/"
    tr -s ' \n' ' ' <"$place/out" >words
    grep -qE ': all_reduce of ([0-9]+) numbers on devices 0 and 1, broadcast of \1 numbers from member 0 on device 2; all members of a group call the same operations, in the same order' words ||
        complain "operations: $(cat words)"
    change 05_data/data.c 5 's/broadcast(g, 0,/broadcast(g, g->rank,/'; tr -s ' \n' ' ' <"$place/out" >words
    grep -qE 'numbers from member 0 on device 0, broadcast of .* from member 1 on device 1; all members give the same root' words || complain "roots: $(cat words)"
    change 05_data/data.c 5 "s/$line/if (g->rank != 1) &/"; tr -s ' \n' ' ' <"$place/out" >words
    grep -qE 'device 0 waits for the others in all_reduce of [0-9]+ numbers; device 1 has returned .*deadlock +all_reduce \?' words || complain "a deadlock: $(cat words)"
    change 13_experts/experts.c 13 's/n.take\[d\] += t->come/n.take[d] += (g->rank == 1 \&\& d == 0) + t->come/'; tr -s ' \n' ' ' <"$place/out" >words
    grep -qE 'give\[1\] is [0-9]+ on device 0, but take\[0\] is [0-9]+ on device 1; what a member gives' words || complain "an all-to-all: $(cat words)"
    change 07_zero/zero.c 7 's/reduce_scatter(g, gradient, sum, n)/reduce_scatter(g, gradient, sum, own.count)/'; expect_out 'numbers of `in`|of$'
    for line in 's/broadcast(g, 0, m->weights, n)/broadcast(g, 0, m->weights, n + 1)/' "s/$line/all_reduce(g, m->gradient + from, count + m->count[last]);/"; do
        change 05_data/data.c 5 "$line"; tr -s ' \n' ' ' <"$place/out" >words
        grep -qE '(broadcast|all_reduce): ([0-9]+) numbers of `x` are asked for, and its memory ends after [0-9]+' words || complain "a short array: $(cat words)"
    done
    ! grep -qE 'ORRERY_CHECK|allreduce|over all devices' words || complain "words of a library: $(cat words)"
}

# The line, in an array of the student's and in one of the lesson's; a sanitizer's report has it among sixty lines of addresses.
test_sanitizers_name_the_line() {
    solutions; run learn --start mine
    local to=mine/06_accumulation/accumulation.c from=teacher/solutions/06_accumulation/accumulation.c line='    release(mean);'
    change() { sed "$1" "$from" >"$to"; cmp -s "$from" "$to" && complain "nothing was changed: $1"; run learn 6 --in mine --sanitize; expect_status 3; tr -s ' \n' ' ' <"$place/out" >words; }
    at=$(grep -n "^$line" "$from"); at=${at%%:*}
    change "s/^$line/    mean[n] = 0; release(mean);/"
    grep -q "device 0: accumulation.c:$at: it writes outside of all arrays and allocated memory" words || complain "behind the end: $(cat words)"
    change "s/^$line/    release(mean); gradient[n] += 0 * mean[0];/"
    grep -q "device 0: accumulation.c:$at: it reads outside of all arrays and allocated memory, or in memory that was released" words || complain "released: $(cat words)"
    change "s/^$line/    release(mean); int five[5] = { 0 }; for (int i = 0; i < b->micros + 6; i++) five[i] = i; gradient[n] += 0 * five[1];/"
    grep -q "device 0: accumulation.c:$at: index 5 out of bounds for type 'int" words || complain "an index: $(cat words)"
}

# What a plan that is too slow or too large holds, sends and waits for: nothing of it is 0 that is not.
test_a_plan_is_explained() {
    solutions
    sed 's/--zero 1.*zb-h1/--zero 1/' teacher/solutions/17_plan/plan.txt >plan.txt; ! cmp -s plan.txt teacher/solutions/17_plan/plan.txt || complain 'nothing was changed'
    run learn --start mine; cp plan.txt mine/17_plan/
    run learn 17 --in mine; expect_status 3; expect_out 'holds +weights [1-9].*gradients [1-9].*optimizer [1-9]'; expect_out '^ +activations [1-9].*buffers [1-9]'
    expect_out 'computes +[1-9]'; expect_out '^ +pipeline [1-9][0-9.]* %'; expect_columns 80
}

test_watch() {
    run learn --start mine
    (trap 'kill "$watching" 2>/dev/null' EXIT
     "$program" learn 1 --in mine --watch >seen 2>&1 & watching=$!
     for _ in {1..100}; do grep -q 'Waiting for' seen && break; sleep 0.1; done
     echo '// saved' >>mine/01_sums/sums.c
     for _ in {1..100}; do [ "$(grep -c 'Waiting for' seen)" -ge 2 ] && break; sleep 0.1; done)
    [ "$(grep -c 'FAILS' seen)" -ge 2 ] || complain "--watch has not tried it again: $(tail -n 3 seen)"
}

test_what_is_refused() {
    run learn;                          expect_status 2; expect_error "is not a course's folder, which has a file course.json; go into yours"
    run learn 99;                       expect_status 2; expect_error 'there is no lesson 99; there are 01 to [0-9]+'
    run learn rings;                    expect_status 2; expect_error 'LESSON.*ring'
    run learn --hint;                   expect_status 2; expect_error '--hint, --watch and --solution need LESSON'
    mkdir there; run learn --start there; expect_status 1; expect_error 'File exists'
    run course;                         expect_status 2; expect_error 'give --student'
    run grade nowhere;                  expect_status 1; expect_error 'nowhere: No such file'
    touch one.c; run grade one.c;       expect_status 2; expect_error 'a single file needs --lessons'
    run grade there --lessons 77;       expect_status 2; expect_error '77'
    run grade there --secret nothing;   expect_status 1; expect_error '--secret'
    run grade there --user no-such-user-there; expect_status 2; expect_error 'there is no such user'
    run grade there --user root;        expect_status 2; expect_error '--user root: it has the rights of root'
    run grade there --lessons 11 --user "$(id -un)"; expect_status 2; expect_error '--user .*(rights of root|own user)'
    [ "$(id -u)" = 0 ] || { run grade there --user daemon; expect_status 2; expect_error 'only root can run code as another user'; }
    run grade there --lessons 1 --json no/such/folder; expect_status 1; expect_error 'no/such/folder'
    printf 'orrery schedule 1\0\n' >nul.txt
    run grade nul.txt --lessons 11;     expect_status 3; expect_out 'it has a NUL character'; expect_out '^0 of 27 points'
    run learn --start mine; echo '{' >mine/.progress.json
    run learn --in mine;                expect_status 1; expect_error 'progress.json'
}

# ---- a submission ---------------------------------------------------------------------------------------------------------------
test_reports_are_the_same_each_time() {
    solutions
    sed 's/return sum + lost/return sum - lost/' sums.c >wrong.c
    echo 'a secret' >secret
    for i in 1 2; do
        run grade wrong.c --lessons 1 --secret secret --json "$i.json" --junit "$i.xml"; expect_status 3; expect_out '^10 of 14 points'
    done
    cmp 1.json 2.json && cmp 1.xml 2.xml || complain 'two reports of one file differ'
    echo 'int main' >broken.c
    for i in 1 2; do run grade broken.c --lessons 1 --json "b$i.json"; expect_status 3; expect_out '^  broken\.c:1|^  sums\.c:1'; done
    cmp b1.json b2.json || complain 'two reports of one file that does not compile differ'
    grep -q '"score":[[:space:]]*10,\?$' 1.json && grep -q '"after_published"' 1.json || complain "results.json: $(head -n 20 1.json)"
    grep -q '<failure message="0 of 2.8 points">' 1.xml || complain "JUnit: $(grep failure 1.xml | head -n 2)"
    run grade sums.c --lessons 1 --secret secret --quiet; expect_status 0; expect_out '^14 of 14 points'
    mkdir empty; run grade empty --json all.json --quiet; expect_status 3; expect_out '^0 of '
}

# A grader that is killed leaves a report with what was reached until then.
test_a_report_is_always_there() {
    solutions
    sed -i 's/float sum = 0, lost = 0;/float sum = 0, lost = 0; for (volatile int i = 0; i < 2;) continue;/' sums.c
    "$program" grade sums.c --lessons 1 --json r.json >/dev/null 2>&1 & local job=$!
    for _ in {1..100}; do grep -q '"score":[[:space:]]*10,\?$' r.json 2>/dev/null && break; sleep 0.1; done
    kill -9 "$job"; wait "$job" 2>/dev/null
    grep -q '"score":[[:space:]]*10,\?$' r.json || complain "after a kill: $(tail -n 5 r.json)"
}

test_hostile_code() {
    solutions
    change() { sed "$1" sums.c >h.c; cmp -s sums.c h.c && complain "nothing was changed: $1"; points h.c; }
    change 's/return sum + lost;/*(volatile int *)0 = 1; return sum;/';         expect_points '10 of 14'     # crashes
    change 's/return sum + lost;/return n ? 1 \/ (n - n) : 0;/';                expect_points '10 of 14'
    change 's/#include "sums.h"/#include "sums.h"\n#include <stdio.h>/; s/return sum + lost/puts(""); return sum + lost/'; expect_points '0 of 14'
    change 's/#include "sums.h"/#include "sums.h"\n#include "\/etc\/passwd"/';  expect_points '0 of 14'
    change 's/#include "sums.h"/#include "sums.h"\nlong write(int f, const void *p, unsigned long n) { return n; }/'; expect_points '0 of 14'
    change 's/#include "sums.h"/#include "sums.h"\nint main(void) { return 0; }/'; expect_points '0 of 14'
    change 's/#include "sums.h"/#include "sums.h"\nstatic volatile float big[100000];/;s/return sum + lost/big[n] = sum; return sum + lost/'; expect_points '0 of 14'
    change 's/#include "sums.h"/#include "sums.h"\nextern int fork(void);/;s/return sum + lost/fork(); return sum + lost/'; expect_points '0 of 14'
    change 's/#include "sums.h"/#include "sums.h"\nextern int MPI_Init(void *, void *);/;s/return sum + lost/MPI_Init(0, 0); return sum + lost/'; expect_points '0 of 14'
    change 's/#include "sums.h"/#include "sums.h"\n__a\\\nsm__(".globl main\\nmain:");/'; expect_points '0 of 14'
}

# The cage itself: even code that was linked past all that is ended as soon as it asks the system for something.
test_the_cage() {
    local call
    solutions; cp -r "$top/tutorials" t
    for call in 'fork()' 'open("results.json", 577, 384)' 'kill(getppid(), 9)' 'socket(1, 1, 0)' 'malloc(100000000)'; do
        sed 's/c->real = sum_careful/'"$call"'; c->real = sum_careful/;1i #include <unistd.h>\n#include <fcntl.h>\n#include <signal.h>\n#include <stdlib.h>\n#include <sys/socket.h>' \
            "$top/tutorials/01_sums/calls.c" >t/01_sums/calls.c
        ORRERY_TUTORIALS=$PWD/t run grade sums.c --lessons 1
        [ "$call" = 'malloc(100000000)' ] || expect_out 'asked the operating system'
        expect_out '^10 of 14 points|^14 of 14 points'; [ ! -e results.json ] || complain 'results.json was written'
    done
    # the other devices' sockets are closed: nothing can be written to them, by a device between others
    sed 's/c->real = sum_careful/for (int f = 4; f < 64; f++) if (write(f, "x", 1) >= 0) fork(); c->real = sum_careful/;1i #include <unistd.h>' "$top/tutorials/01_sums/calls.c" >t/01_sums/calls.c
    ORRERY_TUTORIALS=$PWD/t run grade sums.c --lessons 1; expect_out '^14 of 14 points'
    # forged results: whatever a worker sends, it is a result or a request, and is compared or counted
    sed 's/c->real = sum_careful.*/char forged[64]; memset(forged, 14, sizeof forged); write(3, forged, sizeof forged); }/;1i #include <unistd.h>' \
        "$top/tutorials/01_sums/calls.c" >t/01_sums/calls.c
    ORRERY_TUTORIALS=$PWD/t run grade sums.c --lessons 1; expect_out '^10 of 14 points'; expect_out 'cannot have made'
}

# What Gradescope would do with the zip, in a folder of its own, but for building and its user.
test_the_kit() {
    local points
    run course --student student --teacher teacher --variant 5; expect_status 0; expect_silent
    (cd "$top" && bash tutorials/teacher/student_tree.sh "$OLDPWD/student" "$program" && bash tutorials/teacher/kit.sh "$OLDPWD" 5) || complain 'kit.sh fails'
    for f in setup.sh run_autograder secret variant lessons orrery.tar.gz; do expect_file "teacher/autograder/$f"; done
    expect_file teacher/autograder.zip; expect_file teacher/rubric.md; expect_file teacher/mutants/01_sums.txt
    tar tzf teacher/autograder/orrery.tar.gz >names
    grep -q '^tutorials/01_sums/check.c$' names && grep -q '^tutorials/19_scan/calls.cu$' names || complain 'the autograder lacks checks'
    mkdir -p a/orrery a/source; cp -r teacher/solutions a/submission; cp teacher/autograder/* a/source; ln -s "$program" a/orrery/orrery; echo 1-2 >a/source/lessons
    points=$(cd "$top" && AUTOGRADER=$OLDPWD/a STUDENT=nobody CC=cc ORRERY_TUTORIALS=$top/tutorials bash "$OLDPWD/a/source/run_autograder")
    [ "$points" = '33 of 33 points' ] || complain "the autograder says: $points"
    grep -q '"hidden inputs"\|hidden inputs' a/results/results.json || complain 'no hidden inputs'
}

test_another_user() {
    [ "$(id -u)" = 0 ] || return 0
    solutions; chmod 711 .; chmod 644 sums.c
    CC=cc run grade sums.c --lessons 1 --user nobody; expect_status 0; expect_out '^14 of 14 points'
}

# A compiler that does not work is nobody's mistake: one line says so, and there are no points and no report that could be taken for a student's.
test_a_compiler_that_cannot_be_used() {
    local cc
    solutions; chmod 711 . .. ../..; chmod 644 sums.c; run learn --start mine; cp sums.c mine/01_sums/
    printf '#!/bin/sh\necho "cc: error: no licence" >&2\nexit 1\n' >broken; printf '#!/bin/sh\nexit 0\n' >idle
    printf '#!/bin/sh\n[ "$(id -u)" = 0 ] || { echo "cache: error: Permission denied" >&2; exit 1; }\nexec cc "$@"\n' >roots
    cp roots private; chmod 755 broken idle roots; chmod 700 private
    refused() { expect_status 1; expect_error "$1"; [ -z "$out" ] || complain 'it gives points'; [ ! -e report.json ] || complain 'it leaves a report'; rm -f report.json; }
    for cc in broken:'cannot be used: cc: error: no licence; CC names' idle:'cannot be used: it makes no program' none:'there is no such compiler' broken.c:'cannot be used: Permission denied'; do
        touch broken.c; command="CC=${cc%%:*}"
        CC=$PWD/${cc%%:*} run grade sums.c --lessons 1 --json report.json; refused "${cc#*:}"
        CC=$PWD/${cc%%:*} run learn 1 --in mine; refused "${cc#*:}"
    done
    sed -i '1i not C' mine/01_sums/sums.c; CC=cc run learn 1 --in mine; expect_status 3; expect_out 'sums.c:1'      # this one is
    printf '#!/bin/sh\n[ -n "$HOME" ] || { echo "ccache: error: no home directory" >&2; exit 1; }\nexec cc "$@"\n' >homely; chmod 755 homely
    CC=$PWD/homely run grade teacher/solutions --lessons 1; expect_status 0; expect_out '^14 of 14 points'      # as ccache, which wants a home even where it is told to do nothing
    if type c++ >/dev/null 2>&1; then CXX=$PWD/broken run grade teacher/solutions --lessons 19 --json report.json; refused 'broken: the compiler cannot be used: cc: error: no licence; CXX names'; fi
    [ "$(id -u)" = 0 ] || return 0
    CC=$PWD/roots run grade sums.c --lessons 1; refused 'roots: the compiler cannot be used: cache: error: Permission denied; CC names'
    sed -i 's/^\[/case "$*" in *" -c "*) ;; *) exec cc "$@" ;; esac; &/' roots         # as a cache, which only looks at what is compiled alone
    CC=$PWD/roots run grade sums.c --lessons 1 --user nobody --json report.json; refused 'roots: the compiler cannot be used by user nobody: cache: error: Permission denied; CC names'
    CC=$PWD/private run grade sums.c --lessons 1 --user nobody --json report.json; refused 'private: the compiler cannot be used by user nobody: Permission denied; CC names'
}

every=(test_watch test_a_report_is_always_there test_the_cage test_the_kit test_another_user)
[ "$TIER" = verify ] || every=()
# Who calls ./orrery is told how to call it `orrery`, as all pages do.
test_a_program_that_is_not_in_path() {
    run learn --start one;                          expect_status 0; expect_out "^    export PATH=\"${program%/*}:.PATH\"$"
    mkdir bin; ln -s "$program" bin/orrery
    PATH=$PWD/bin:$PATH run learn --start two;      expect_status 0; expect_no_out 'export PATH'
}

run_tests test_a_program_that_is_not_in_path test_a_way_through_a_lesson test_a_deadlock_is_drawn test_wrong_collectives_are_explained test_sanitizers_name_the_line test_a_plan_is_explained test_a_compiler_that_cannot_be_used test_what_is_refused test_reports_are_the_same_each_time test_hostile_code "${every[@]}"
