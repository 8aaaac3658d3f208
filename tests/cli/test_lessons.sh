# Every lesson of tutorials/: its skeleton has no points, its solution all, wrong solutions lose the right ones; what its page says holds.
. "$(dirname "$0")/lib.sh"
lessons=$(cd "$top/tutorials" && ls -d [0-9][0-9]_*)

prove() {                                       # prove WORDS...: `orrery course --prove`
    run course --prove "$@"
    expect_status 0; expect_silent; expect_no_out 'WRONG'
}

# In `make test` one wrong solution of each lesson; `make verify` has all, of other variants of the course too.
test_wrong_solutions_lose_points() {
    local l
    if [ "$TIER" != verify ]; then prove --mutants 1; else prove; prove --variant 1; prove --variant 2026 --mutants 4; fi
    for l in $lessons; do expect_out "^$l\$"; done
    [ "$(grep -c 'ok     solution' "$place/out")" = "$(wc -w <<<"$lessons")" ] || complain 'a lesson is missing'
}

# gcc, clang and sanitizers agree.
test_other_compilers() {
    local cc
    for cc in gcc clang; do
        type "$cc" >/dev/null 2>&1 && CC=$cc prove --mutants 2
    done
    prove --mutants 3 --sanitize
}

# ---- pages: their links lead somewhere, their commands run, what is quoted of an output is there ---------------------------------
commands_of() { grep -E '^(    |\$ )orrery ' "$1" | sed -E 's/^(    |\$ )//; s/ +#.*//' | grep -v -- --watch; }

orrery() { run "$@"; }                          # as the pages call it

page_commands() {                               # page_commands PAGE
    local line
    while read -r line; do
        eval "$line"
        case $line in
            'orrery learn '*) [ "$status" = 0 ] || [ "$status" = 3 ] || complain "$1: exit status $status" ;;
            *) [ "$status" = 0 ] || complain "$1: exit status $status" ;;
        esac
    done < <(commands_of "$1")
}

# After a line "$ COMMAND" in a block of code all lines are of its output, in this order; lines may be left out.
page_quotes() {
    local line quoting=
    while IFS= read -r line; do
        case $line in
            '$ orrery '*) eval "${line#'$ '}"; sed 's/ *$//' "$place/out" >quoted; quoting=yes ;;
            '```'*) quoting= ;;
            *) [ -n "$quoting" ] && [ -n "$line" ] || continue
               grep -nxF -- "$line" quoted >found || { complain "$1 quotes a line that is not there: $line"; continue; }
               sed -i "1,$(head -n 1 found | cut -d: -f1)d" quoted ;;
        esac
    done <"$1"
}

page_links() {
    local to
    while read -r to; do
        case $to in http*) ;; *) [ -e "$(dirname "$1")/${to%%#*}" ] || complain "$1: a link to $to" ;; esac
    done < <(sed '/^```/,/^```/d' "$1" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//')
}

test_pages() {
    local l
    run learn --start course; expect_status 0
    cd course || return
    page_commands README.md
    page_links "$top/docs/teaching.md"
    for l in $lessons; do
        page_links "$l/README.md"; page_links "$top/tutorials/$l/README.md"
        [ "$TIER" = verify ] || [ "$l" = 01_sums ] || continue
        page_quotes "$l/README.md"
        page_commands "$l/README.md"
    done
}

# No line of a solution is in what students get.
test_no_solution_is_given_away() {
    local l c
    run learn --start course; expect_status 0
    for l in $lessons; do
        for c in "$top/tutorials/$l/"*; do
            case ${c##*/} in check.c|calls.c|mutants.txt) [ ! -e "course/$l/${c##*/}" ] || complain "students get ${c##*/} of $l" ;; esac
            awk '/^#SOLUTION|\/\*SOLUTION\*\//{s=1;next} /SKELETON/{s=0} s' "$c" | sed 's/^ *//' | grep -E '.{24}' |
                while IFS= read -r line; do ! grep -rqF -- "$line" "course/$l" || echo "$line"; done >given
            [ ! -s given ] || complain "students get a line of the solution of $l: $(head -n 1 given)"
        done
        ! grep -rqE 'SOLUTION|SKELETON|<!--' "course/$l" || complain "students get markers of $l"
    done
}

every=(test_other_compilers)
[ "$TIER" = verify ] || every=()
run_tests test_wrong_solutions_lose_points test_pages test_no_solution_is_given_away "${every[@]}"
