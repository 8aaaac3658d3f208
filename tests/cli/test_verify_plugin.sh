# `orrery verify plugin`: right plug-ins hold every law, and each wrong one of tests/plugins breaks the law that its file names.
. "$(dirname "$0")/lib.sh"
wrong=$top/tests/plugins plugins=$top/tutorials/plugins
all=; [ "${TIER:-test}" != verify ] || all=yes

# The numbers and laws of a file, from its head: "3 formats".
mistakes() { sed -nE '1,/\*\//s/^ \* +([0-9]+) ([a-z]+) .*/\1 \2/p' "$1"; }

# Judge a file with mistake N.
judge() { CC="${CC:-cc} -DWRONG=$2" run verify plugin "$1" --short --limit 20 "${@:3}"; command="orrery verify plugin ${1##*/}, mistake $2"; }

# One line of errors names the first broken law; the law of this mistake is among the broken ones.
expect_broken() { expect_status 3; expect_out "^  $1 +BROKEN"; expect_error 'laws are broken; first .*: law "[a-z]+": '; }

test_templates_hold() {
    local f
    for f in "$plugins"/*.c; do
        [ "$all" ] || [[ $f == *@(lion|mirrored_ring).c ]] || continue
        run verify plugin "$f" --short;             expect_status 0; expect_silent; expect_out '^1 variant, [0-9]+ laws, 0 broken$'
    done
    [ ! "$all" ] || { run verify plugin "$plugins/lion.c"; expect_status 0; run verify plugin "$plugins/mirrored_ring.c"; expect_status 0; }
}

# What every mistake is made in is right itself, and a mistake of each file is found; in `make verify` all of them.
test_mistakes() {
    local f n law found=0
    # ONLY="allreduce/4 optimizer/1": these mistakes alone.
    for f in "$wrong"/*.c; do
        [ ! "$all" ] || [ "${ONLY:-}" ] || { judge "$f" 0;             expect_status 0; expect_silent; }
        while read -r n law; do
            [ "$all" ] || [[ " ${ONLY:-allreduce/1 allreduce/15 allreduce/19 optimizer/1 attention/3} " == *" $(basename "$f" .c)/$n "* ]] || continue
            judge "$f" "$n"; expect_broken "$law"; found=$((found + 1))
        done < <(mistakes "$f")
    done
    local least=5; [ ! "$all" ] || least=100; [ -z "${ONLY:-}" ] || least=$(wc -w <<<"$ONLY")
    [ "$found" -ge "$least" ] || complain "only $found mistakes were made"
}

# Files name 60 mistakes of 20 laws at least.
test_many_mistakes() {
    local f; for f in "$wrong"/*.c; do mistakes "$f"; done >list
    command='mistakes of tests/plugins'
    [ "$(wc -l <list)" -ge 60 ] || complain "only $(wc -l <list)"
    [ "$(cut -d ' ' -f 2 list | sort -u | wc -l)" -ge 20 ] || complain "of only $(cut -d ' ' -f 2 list | sort -u | wc -l) laws"
}

# Built-in variants hold the laws of plug-ins.
test_built_in() {
    local only
    for only in 'allreduce two_shot' 'optimizer adamw' 'data zero3'; do
        [ ! "$all" ] || break
        run verify plugin --built-in --short --only "$only"; expect_status 0; expect_silent; expect_out ', 0 broken$'
    done
    [ ! "$all" ] || { run verify plugin --built-in --short; expect_status 0; expect_silent; expect_out '^[0-9]{3} variants, [0-9]+ laws, 0 broken$'; }
}

# Nothing is printed of what a plug-in prints, nothing is left, and what crashes is one line.
test_nothing_else_is_harmed() {
    mkdir temporary
    TMPDIR=$PWD/temporary judge "$wrong/allreduce.c" 28 --json all.json; expect_broken ends; expect_nothing temporary
    expect_file all.json; grep -q '"why":.*ends the program with status 0, in: allreduce chain of' all.json || complain 'the JSON does not say why'
    judge "$wrong/allreduce.c" 20 --quiet;          expect_status 3; [ -z "$out" ] || complain 'it prints'; expect_error 'law "quiet": prints "so far [0-9]"'
}

test_refusals() {
    run verify plugin;                              expect_status 2; expect_error 'needs a FILE, or --built-in'
    run verify plugin nowhere.c;                    expect_status 1; expect_error 'nowhere.c: No such file'
    echo text >text.txt
    run verify plugin text.txt;                     expect_status 2; expect_error 'text.txt: is neither a .c file nor a .so'
    echo text >text.so
    run verify plugin text.so;                      expect_status 1; expect_error 'text.so: cannot be loaded'
    echo 'int x;' >none.c
    run verify plugin none.c;                       expect_status 1; expect_error 'none.c: it has no PLUGIN'
    run verify plugin --built-in --only nobody;     expect_status 2; expect_error '--only nobody: there is no such variant'
    run verify plugin x.so --json /nowhere/x;       expect_status 1; expect_error '--json /nowhere/x'
    run verify plugin --help;                       expect_status 0; expect_out '^usage: orrery verify plugin'; expect_columns 100
    echo 'void __attribute__((constructor)) f(void) { *(volatile int *)0 = 1; }' >loads.c
    run verify plugin loads.c;                      expect_status 3; expect_error 'law "ends": crashes with signal 11 .*, in: loading'
}

[ -z "${ONLY:-}" ] || { run_tests test_mistakes; exit; }
run_tests test_templates_hold test_mistakes test_many_mistakes test_built_in test_nothing_else_is_harmed test_refusals
