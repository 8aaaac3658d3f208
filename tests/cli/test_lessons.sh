# Every lesson of tutorials/: its skeleton has no points, its solution all, wrong solutions lose the right ones; what its page says holds.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pages.sh"
[ "$TIER" != verify ] || seconds=6000     # all wrong solutions of all lessons, one after another
lessons=$(cd "$top/tutorials" && ls -d [0-9][0-9]_*)

prove() {                                       # prove WORDS...: `orrery course --prove`
    run course --prove "$@"
    expect_status 0; expect_silent; expect_no_out 'WRONG'
}

# In `make test` one wrong solution of a lesson in C and of a text; `make verify` has all, of other variants of the course too.
test_wrong_solutions_lose_points() {
    local l
    if [ "$TIER" != verify ]; then prove --mutants 1 --lessons 3,11; return; fi
    prove --variant 1; prove
    for l in $lessons; do expect_out "^$l\$"; done
    [ "$(grep -c 'ok     solution\|^  skip ' "$place/out")" = "$(wc -w <<<"$lessons")" ] || complain 'a lesson is missing'
}

# Every text that a lesson has in some variant of 40, with some of its wrong solutions; those of variants 0 and 1 are above.
test_every_choice_of_a_lesson() {
    local l v text seen
    for v in {0..40}; do run course --student s --teacher "t$v" --variant "$v"; expect_status 0; rm -r s; done
    for l in $lessons; do
        seen=
        [ "${l%%_*}" -le "${gradable#*-}" ] || continue
        for v in {0..40}; do
            text=$(cat "t$v/solutions/$l"/* "t$v/mutants/$l.txt" | cksum)
            [[ $seen != *"<$text>"* ]] || continue
            seen+="<$text>"
            [ "$v" -le 1 ] || prove --variant "$v" --lessons "${l%%_*}" --mutants 4
        done
        echo "$l has $(grep -o '<' <<<"$seen" | wc -l) texts"
    done
}

# Lessons of kernels need a C++ compiler.
last=${lessons##*$'\n'} last=${last%%_*}
gradable=1-$last
type "${CXX:-c++}" >/dev/null 2>&1 || gradable=1-18

# Points of every lesson, on open inputs; those of skeletons, of which few compute anything, of some in `make test`.  There lessons 3 and 11
# are judged by the test above.
test_skeletons_and_solutions() {
    local l some=2,7,16 all=1-2,4-10,12-$last
    [ "$gradable" = "1-$last" ] || all=1-2,4-10,12-18
    [ "$TIER" != verify ] || some=$gradable all=$gradable
    run course --student student --teacher teacher; expect_status 0
    run grade student --lessons $some --json nothing.json; expect_status 3; expect_out '^0 of [0-9]+ points$'
    run grade teacher/solutions --lessons $all --json all.json; expect_status 0; expect_out '^([0-9]+) of \1 points$'; expect_no_out 'warning:'
    for l in $lessons; do [[ $TIER-${l%%_*} =~ ^test-(03|11)$ ]] || [ "${l%%_*}" -gt "${gradable#*-}" ] || grep -q "\"$l\"" all.json || complain "$l is not graded"; done
}

# The same file, the same report, byte for byte: skeletons, solutions, and solutions of another variant, of which some checks fail.  Two graders at
# once, of other names of folders and numbers of threads.
test_reports_of_all_lessons_are_the_same_each_time() {
    local what how
    run course --student student --teacher teacher; expect_status 0
    mkdir elsewhere; echo 'a secret' >secret
    for what in 'student 0' 'teacher/solutions 0' 'teacher/solutions 1'; do
        how="${what% *} --variant ${what#* } --lessons $gradable --secret secret --quiet" command="orrery grade $what"
        rm -f [12].*
        # shellcheck disable=SC2086  # its words have no blanks
        TMPDIR=$PWD/elsewhere OMP_NUM_THREADS=1 timeout -k 5 "$seconds" "$program" grade $how --json 1.json --junit 1.xml >1.out 2>1.err </dev/null &
        # shellcheck disable=SC2086
        run grade $how --json 2.json --junit 2.xml; wait $!
        cmp 1.json 2.json && cmp 1.xml 2.xml && cmp 1.out "$place/out" && cmp 1.err "$place/err" || complain "two reports of $what differ"
        [ "$what" = 'teacher/solutions 0' ] || grep -q '"failed"' 1.json || complain "$what: nothing fails"
    done
    expect_nothing elsewhere
}

# What surrounds a lesson's kernels was compiled with Orrery: an answer compiles the student's file alone, the first one, too.
# A compiler that is not the one that built them compiles everything, to the same end.
counts_files() {                                # counts_files SCRIPT SHELL_COMMANDS [COMPILER]: one that writes each file that it compiles into `compiled`
    printf '#!/bin/bash\n%s\nfor word; do if [[ $word =~ \\.(cu|cpp|c)$ ]]; then echo "${word##*/}" >>"%s"; fi; done\nexec %s "$@"\n' "$2" "$PWD/compiled" "${3:-c++}" >"$1"
    chmod 755 "$1"
}

# The key beside worker.o begins with the compiler's words; one that is called otherwise compiles worker.c, too.
test_an_answer_in_c_compiles_one_file() {
    local words; words=$(head -n 1 "$top/build/course/worker.o.key"); words=${words%% -std=*}
    run learn --start course; expect_status 0
    counts_files other '' cc; mkdir bin; counts_files "bin/${words##* }" '' "$(command -v "${words##* }")"
    CC=$words PATH=$PWD/bin:$PATH uncaged "$program" learn 1 --in course; expect_status 3; mv "$place/out" first
    [ "$(sort -u compiled | tr '\n' ' ')" = 'calls.c sums.c ' ] || complain "an answer has compiled $(tr '\n' ' ' <compiled)"
    CC=$PWD/other uncaged "$program" learn 1 --in course; expect_status 3; expect_same "$place/out" first
    [ "$(sort -u compiled | tr '\n' ' ')" = 'calls.c sums.c worker.c ' ] || complain "another compiler has compiled $(tr '\n' ' ' <compiled)"
    mkdir tutorials; cp -r "$top/tutorials/course.h" "$top/tutorials/worker" "$top/tutorials/01_sums" tutorials; mkdir -p build/course; cp "$top/build/course/"worker.o* build/course
    echo '/* another text */' >>tutorials/worker/cage.h
    ORRERY_TUTORIALS=$PWD/tutorials CC=$words PATH=$PWD/bin:$PATH uncaged "$program" learn 1 --in course; expect_same "$place/out" first
    grep -q worker.c compiled || complain 'an object of another text is used'
}

test_an_answer_compiles_one_file() {
    type c++ >/dev/null 2>&1 || { echo 'skipped: there is no C++ compiler'; return; }
    counts_files same ''; counts_files other 'for word; do [ "$word" != -dumpmachine ] || { echo another; exit; }; done'
    run learn --start course; expect_status 0
    CXX=$PWD/same uncaged "$program" learn 19 --in course; expect_status 3; mv "$place/out" first
    [ "$(cat compiled)" = scan.cu ] || complain "an answer has compiled $(tr '\n' ' ' <compiled)"
    if [ "$TIER" = verify ]; then
        CXX=$PWD/same uncaged "$program" learn 20 --in course; expect_status 3
        [ "$(cat compiled)" = warps.cu ] || complain "lesson 20 has compiled $(tr '\n' ' ' <compiled)"
    fi
    CXX=$PWD/other uncaged "$program" learn 19 --in course; expect_status 3; expect_same "$place/out" first
    [ "$(sort compiled | tr '\n' ' ')" = 'calls.cu judge.cpp scan.cu ' ] || complain "another compiler has compiled $(tr '\n' ' ' <compiled)"
}

# gcc, clang and sanitizers agree.  From 19 on lessons have kernels, which CXX compiles.
test_other_compilers() {
    local cc
    for cc in gcc clang; do
        type "$cc" >/dev/null 2>&1 && CC=$cc prove --lessons 1-18 --mutants 2
    done
    prove --lessons 1-18 --mutants 3 --sanitize
}

# ---- pages -----------------------------------------------------------------------------------------------------------------------
test_pages() {
    local l
    run learn --start course; expect_status 0
    cd course || return
    page_commands README.md
    for l in $lessons; do
        [ "$TIER" = verify ] || [ "$l" = 01_sums ] || continue
        page_quotes "$l/README.md"
        page_commands "$l/README.md"
    done
}

# What students read fits a terminal, in every variant; tables and what is quoted of commands are as wide as they are.
test_pages_fit_a_terminal() {
    local variant
    for variant in 0 1; do
        run learn --start "course.$variant" --variant "$variant"; expect_status 0
        awk 'FNR == 1 {code = 0} /^```/ {code = !code} length > 80 && !code && !/^\|/ && !/^    orrery / {print FILENAME ":" FNR ": " length " columns"}' \
            "course.$variant"/{*.md,course.h} "course.$variant"/[0-9]*/{README.md,*.h,*.txt} >wide
        [ ! -s wide ] || complain "variant $variant: $(head -n 3 wide)"
    done
}

# No line of a solution is in what students get.
# Lines of a solution that its file does not have outside it: a skeleton may begin as the solution does.
of_solution() {
    awk '/^#SOLUTION|\/\*SOLUTION\*\//{s=1;next} /SKELETON/{s=0} {sub(/^(#\|)? */,"")} s{of[++n]=$0;next} {given[$0]}
        END{for(i=1;i<=n;i++) if(length(of[i])>=24 && !(of[i] in given)) print of[i]}' "$1"
}

test_no_solution_is_given_away() {
    local l c
    run learn --start course; expect_status 0
    for l in $lessons; do
        for c in "$top/tutorials/$l/"*; do
            case ${c##*/} in check.c|calls.c|mutants.txt) [ ! -e "course/$l/${c##*/}" ] || complain "students get ${c##*/} of $l" ;; esac
            of_solution "$c" >lines
            if [ -s lines ]; then grep -rhFf lines "course/$l" >given; else : >given; fi
            [ ! -s given ] || complain "students get a line of the solution of $l: $(head -n 1 given)"
        done
        ! grep -rqE 'SOLUTION|SKELETON|<!--' "course/$l" || complain "students get markers of $l"
    done
}

every=(test_every_choice_of_a_lesson test_other_compilers test_reports_of_all_lessons_are_the_same_each_time)
[ "$TIER" = verify ] || every=()
run_tests test_wrong_solutions_lose_points test_skeletons_and_solutions test_an_answer_in_c_compiles_one_file test_an_answer_compiles_one_file test_pages test_pages_fit_a_terminal test_no_solution_is_given_away "${every[@]}"
