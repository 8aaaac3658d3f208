# What students get to build: a tree and a program without solutions of any variant, and without the command that makes them.
. "$(dirname "$0")/lib.sh"
whole=$program                                  # not a student's
[ "$TIER" != verify ] || seconds=3600               # it is built from nothing
ground=$(mktemp -d)                                 # of all tests: the course is made once
variants='0 1 2'; [ "$TIER" != verify ] || variants='0 1 2 3 4 5 6 7 8 9'

in_tree() { (cd "$top" && env -u MAKEFLAGS -u MAKELEVEL make -s --no-print-directory ${san:+SAN=1} "$@"); }
san=; [[ ${BUILD:-build} != *-san ]] || san=yes

# A line that is no answer of its own: it stands in what students get, or is nearly empty.
lines_of() { sed -E 's/^[#|[:space:]]+//; s/[[:space:]]+$//' "$@"; }

# Lines of solutions that nobody else writes, of texts and of code: `PATTERNS` for grep -F.  Code is known by two lines that follow each other,
# since one alone, such as a loop over devices, is in many files.
make_patterns() {
    local v l file
    for v in $variants; do
        run course --teacher "$ground/teacher.$v" --variant "$v"; expect_status 0
        for l in "$top"/tutorials/[0-9][0-9]_*; do
            l=${l##*/}; file=$(ls "$ground/kit/student/$l" | grep -E '\.(c|cu|txt)$')
            case $file in
                *.txt) lines_of "$ground/teacher.$v/solutions/$l/$file" | awk 'length >= 14' | grep -vxFf <(lines_of "$ground/kit/student/$l/"*) >>"$ground/lines" ;;
                *) cp "$ground/teacher.$v/solutions/$l/$file" "$ground/code/$v.$file" ;;
            esac
            file=${file%.c}.py; [ ! -e "$ground/teacher.$v/solutions/python/$l/$file" ] || cp "$ground/teacher.$v/solutions/python/$l/$file" "$ground/code/$v.$file"
        done
    done
    sort -u -o "$ground/lines" "$ground/lines"
}

# pairs FILE...: places of two lines that follow each other in a solution, too, and not in what students complete.
pairs() {
    awk '
        FNR == 1 { last = "" }
        { gsub(/^[ \t]+|[ \t]+$/, "") }
        $0 == "" { last = ""; next }
        { two = last "\n" $0; long = last != "" && length(two) > 40 }
        long && what == "solution" { pair[two] }
        long && what == "given" { delete pair[two] }
        long && what == "" && (two in pair) { print FILENAME ":" FNR ": " $0 }
        { last = $0 }' what=solution "$ground"/code/* what=given "$ground"/kit/student/[0-9]*/*.{c,cu,h} "$ground"/python/[0-9]*/*.py what= "$@"
}

test_the_course_is_made() {
    command='make course'
    watched in_tree course OUT="$ground/kit" SEED=2026; expect_status 0; mkdir "$ground/code"
    run course --student "$ground/python" --language python --variant 2026; expect_status 0
    local f
    for f in Makefile LICENSE README.md AGENTS.md course.json 01_sums/sums.c tutorials/01_sums/check.c tutorials/19_scan/calls.cu docs/requirements.sh golden/bugs/main.c .gitignore; do expect_file "$ground/kit/student/$f"; done
    for f in secret solutions/01_sums/sums.c mutants/01_sums.txt autograder/orrery.tar.gz; do expect_file "$ground/kit/teacher/$f"; done
    make_patterns
    [ "$(wc -l <"$ground/lines")" -ge 30 ] && [ "$(ls "$ground/code" | wc -l)" -ge 48 ] || complain 'too little is looked for'
}

# In the tree, in what Gradescope's machine is built from, and in what is installed.
look_for_solutions() {                              # look_for_solutions FOLDER
    command="solutions in ${1##*/}"
    find "$1" -type f ! -path '*/[0-9][0-9]_*/README.md' ! -name '*.svg' ! -name '*.safetensors' >files
    xargs -d '\n' grep -nFxf "$ground/lines" <files >found
    mapfile -t files <files; pairs "${files[@]}" >>found
    [ ! -s found ] || complain "a solution: $(head -n 3 found)"
    find "$1" \( -name 'mutants*.txt' -o -path '*/cli/teacher' -o -path '*/course/teacher' -o -path '*/tutorials/teacher' \) >found
    [ ! -s found ] || complain "the teacher's: $(head -n 3 found)"
    ! grep -rqE 'SOLUTION\*/|#SOLUTION' "$1"/tutorials/[0-9]* || complain 'marks of solutions are left'
    ! grep -rqlE 'write_teacher_tree|prove_lessons' "$1" || complain 'what makes solutions is there'
}

test_no_solution_is_in_the_tree() {
    look_for_solutions "$ground/kit/student"
    mkdir grader; tar xzf "$ground/kit/teacher/autograder/orrery.tar.gz" -C grader
    diff -rq grader "$ground/kit/student" | grep -v '^Only in .*kit/student: ' >found; [ ! -s found ] || complain "the grader's sources are others: $(head -n 3 found)"
    # A solution that were there would be found: two lines of code, an answer in a text.
    mkdir -p bad/tutorials/01_sums; sed -n '/sum_careful/,$p' "$ground/teacher.1/solutions/01_sums/sums.c" >bad/tutorials/01_sums/x.c
    [ -n "$(pairs bad/tutorials/01_sums/x.c)" ] || complain 'a solution in C is not found'
    grep -qFxf "$ground/lines" <(lines_of "$ground/teacher.1/solutions/17_plan/plan.txt") || complain 'a plan is not found'
    [ "$(cat "$ground/kit/student/"*/*.c | grep -c '// your code')" -ge 15 ] || complain 'there is nothing to complete'
}

# The one that is installed, which is linked of the same objects.
test_the_program_has_none() {
    local program=$top/$BUILD/student/orrery
    command='make student/orrery'; watched in_tree "$BUILD/student/orrery"; expect_status 0
    LC_ALL=C grep -aoE '[[:print:]]{14,}' "$program" | lines_of >words
    grep -xFf "$ground/lines" words >found; cat "$ground"/code/* | lines_of | awk 'length >= 32' | sort -u >code; grep -xFf code words >>found
    [ ! -s found ] || complain "it has: $(head -n 3 found)"
    run course --teacher stolen; expect_status 2; expect_error 'course: there is no such command'; [ ! -e stolen ] || complain 'it has made solutions'
    run --help; expect_no_out ' course '
    [ -z "$(nm "$program" 2>/dev/null | grep -E 'write_teacher_tree|prove_lessons')" ] || complain 'its code can make solutions'
    export ORRERY_TUTORIALS=$ground/kit/student/tutorials
    run learn 1 --in "$ground/kit/student"; expect_status 3; expect_out 'FAILS +1.forward'
    run learn --start mine --variant 3; expect_status 0; cmp -s mine/03_ring/ring.c <("$whole" learn --start other --variant 3 >/dev/null; cat other/03_ring/ring.c) || complain 'a fresh file is another one'
    run grade "$ground/kit/teacher/solutions" --lessons 1,11,16,17 --variant 2026; expect_status 0; expect_out '^([0-9]+) of \1 points'
    unset ORRERY_TUTORIALS
}

# Built from nothing, by its own `make`, without what the tree was made of.
test_the_tree_builds() {
    local program=$ground/kit/student/orrery to=1-20
    type "${CXX:-c++}" >/dev/null 2>&1 || to=1-18
    build() { (cd "$ground/kit/student" && env -u MAKEFLAGS -u MAKELEVEL make OPT=-O1); }
    command='make'; watched build; expect_status 0
    run course --teacher stolen; expect_status 2; expect_error 'course: there is no such command'
    run learn --in "$ground/kit/student"; expect_status 0; expect_out '-> 01'
    run grade "$ground/kit/student" --lessons 1-5; expect_status 3; expect_out '^0 of '
    run grade "$ground/kit/teacher/solutions" --variant 2026 --secret "$ground/kit/teacher/secret" --lessons $to; expect_status 0; expect_out '^([0-9]+) of \1 points'
}

every=(test_the_tree_builds)
[ "$TIER" = verify ] || every=()
run_tests test_the_course_is_made test_no_solution_is_in_the_tree test_the_program_has_none "${every[@]}"; ended=$?
rm -rf "$ground"
exit $ended
