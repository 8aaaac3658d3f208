# Lessons in Python: skeletons have no points, solutions all, and wrong solutions lose the right ones; what is wrong is said in Python's
# terms, with lines of the student's file; and an attack has no effect beyond its own points.  Without python3 and numpy each test is skipped.
. "$(dirname "$0")/lib.sh"
[ "$TIER" != verify ] || seconds=6000
lessons=1-10,12,13

# The first python3 of PATH that has numpy, as emulated_devices/course/python.c finds it.
with_numpy() {
    local folder
    while read -rd: folder; do [ ! -x "$folder/python3" ] || ! "$folder/python3" -I -c 'import numpy' 2>/dev/null || { echo "$folder/python3"; return; }; done <<<"$PATH:"
    return 1
}
python=$(with_numpy) || python=
needs_python() { [ -n "$python" ] || { echo 'skipped: there is no python3 with numpy'; return 1; }; }

# In `make test` one wrong solution of a lesson; `make verify` has all, of three variants.
test_wrong_solutions_lose_points() {
    local v
    needs_python || return 0
    if [ "$TIER" != verify ]; then run course --prove --language python --lessons 4,14 --mutants 1; expect_status 0; expect_no_out WRONG; expect_out 'has no file in Python'; return; fi
    for v in 0 1 2; do run course --prove --language python --lessons "$lessons" --variant $v; expect_status 0; expect_silent; expect_no_out WRONG; done
}

# solution LESSON: its file in Python, in a folder of a course that is begun in Python.
solution() { ls teacher/solutions/python/"$1"_*/*.py | grep -v _given; }
begin() {
    run course --teacher teacher; expect_status 0
    run learn --start mine --language python; expect_status 0; expect_out 'In C only, not in Python: lesson 14, 15'
}

test_a_course_in_python() {
    needs_python || return 0
    begin; grep -q '"language": "python"' mine/course.json || complain 'course.json does not say the language'
    for f in course.py 03_ring/ring.py 07_zero/zero_given.py 14_precision/precision.c 11_schedules/schedules.txt; do expect_file mine/$f; done
    [ ! -e mine/03_ring/ring.c ] && [ ! -e mine/03_ring/calls.py ] || complain 'a file of C, or of the judge, is there'
    ! grep -rE '#SOLUTION|#SKELETON|\{[A-Z]+: ' mine/*/*.py || complain 'marks are left'
    for f in mine/*/*.py mine/course.py; do "$python" -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$f" || complain "$f is no Python"; done
    run learn --in mine; expect_out 'write 01_sums/sums.py'
    run learn 4 --in mine; expect_status 3; expect_out 'FAILS  1.trip'
    cp "$(solution 04)" mine/04_cost; run learn 4 --in mine; expect_status 0; expect_out '20 of 20 points'; expect_out 'Done'
    run learn --in mine; expect_out '04 .* 20 of 20 done'
}

# The same judge: both files of a lesson have the same report but for their language.
test_both_languages_have_the_same_points() {
    needs_python || return 0
    begin; mkdir c python
    cp -r teacher/solutions/04_cost c; cp -r teacher/solutions/python/04_cost python
    run grade c --lessons 4 --json c.json; expect_status 0
    run grade python --lessons 4 --json python.json; expect_status 0; expect_same c.json python.json
}

# Where both files are there, the language of course.json counts, or --language, and C without both; one line says so.
test_two_files_of_a_lesson() {
    needs_python || return 0
    begin; mkdir in; cp teacher/solutions/04_cost/cost.c in; printf 'x = (\n' >in/cost.py
    run grade in --lessons 4; expect_status 0; expect_out '^20 of 20 points'; expect_out 'cost.c is judged; a file in the other language is there, too'
    run grade in --lessons 4 --language python; expect_status 3; expect_out "line 1 of cost.py, .x = \(.: SyntaxError: '\(' was never closed"; expect_out '^0 of 20'
    printf '{ "orrery course": 1, "variant": 0, "language": "python" }\n' >in/course.json
    run grade in --lessons 4; expect_status 3; expect_out '^0 of 20'
    run grade in/cost.c --lessons 4; expect_status 0
    printf '{ "orrery course": 1, "variant": 0, "language": "perl" }\n' >in/course.json
    run learn 4 --in in; expect_status 1; expect_error '"language" is perl; it must be c or python'
}

test_without_python() {
    local PYTHON
    export PYTHON=$PWD/none; mkdir in; : >in/sums.py
    run learn --start mine --language python; expect_status 2; expect_error 'there is no such program, which a file in Python needs'; [ ! -e mine ] || complain 'a folder is left'
    run grade in --lessons 1 --json r.json; expect_status 2; expect_error 'none: there is no such program'; [ ! -e r.json ] || complain 'there is a report'
    printf '#!/bin/sh\nexit 1\n' >none; chmod 755 none
    run grade in --lessons 1; expect_status 2; expect_error 'it has no numpy'
    run course --prove --language python --lessons 1; expect_status 0; expect_out 'skip .*it has no numpy'
    PYTHON=; run learn --start mine; expect_status 0; : >mine/01_sums/sums.py; rm mine/01_sums/sums.c
    PYTHON=$PWD/none; run learn 1 --in mine; expect_status 2; expect_error 'it has no numpy'
    run learn 1 --in mine --start other --language perl; expect_status 2
}

# says LESSON FUNCTION LINES WORDS: with these lines as the function, the feedback has the words.
says() {
    local file; file=$(basename "$(solution "$1")")
    awk -v start="^def $2\\\\(" -v lines="$3" '$0 ~ start { print; print lines; skip = 1; next } skip && /^[^ \t]/ { skip = 0 } !skip' "$(solution "$1")" >"$(ls -d mine/"$1"_*)/$file"
    run learn "$1" --in mine; expect_status 3; tr -s ' \n' ' ' <"$place/out" >words
    grep -qE -- "$4" words || complain "it does not say: $4"
    ! grep -q Traceback words || complain 'a traceback came out'
}

test_feedback() {
    needs_python || return 0
    begin
    says 04 half_round_trip '    return [1][g.size]'                    'line [0-9]+ of cost.py, .return \[1\]\[g.size\].: IndexError: list index out of range'
    says 04 half_round_trip '    pass'                                  'half_round_trip returns None, and should return a number'
    says 04 half_round_trip '    message_send(g, 5, np.zeros(3))'       'line [0-9]+ of cost.py: message_send: there is no device 5 in a group of 2'
    says 04 half_round_trip '    message_send(g, 1 - g.rank, np.zeros(3))' 'message_send: .data. is not in this device.s memory'
    says 04 half_round_trip '    message_send(g, 1 - g.rank, [1, 2])'   'message_send: .data. is of type list, and should be a numpy array'
    says 04 half_round_trip '    all_reduce(g, allocate(3, np.float64))' 'all_reduce: .x. is an array of float64, and should be of float32'
    says 04 half_round_trip '    import torch'                          'ModuleNotFoundError: there is no module torch here'
    says 04 half_round_trip '    print("at", g.rank)'                   'device 0 says: at 0'
    says 04 half_round_trip '    print("at", g.rank)
    allocate(3)
    return 0'                                                           '1 block was not released when the function returned: 12 bytes'
    printf 'def f(:\n' >mine/04_cost/cost.py; run learn 4 --in mine; expect_status 3; expect_out 'line 1 of cost.py, .def f\(:.: SyntaxError: invalid syntax'
    printf 'x = 1\n' >mine/04_cost/cost.py; run learn 4 --in mine; expect_status 3; expect_out 'cost.py has no function half_round_trip'
}

# ---- the bridge to a framework ---------------------------------------------------------------------------------------------------
# The judge of dumps needs numpy alone: dumps that numpy makes, right and wrong.
test_dumps_of_a_framework() {
    local here=mine/03_ring
    needs_python || return 0
    begin; mkdir right bits sum sent
    "$python" - <<'PYTHON' || complain 'no dumps'
import sys, numpy as np
sys.path[:0] = ["mine", "mine/03_ring"]
import ring_on_torch as bridge
x = [bridge.numbers(r, 10) for r in range(3)]
for folder, way, owner, messages in (("right", 1, 0, 4), ("bits", 1, 0, 4), ("sum", 1, 0, 4), ("sent", -1, 1, 5)):
    for r in range(3):
        after = bridge.sum_round_the_ring(x, way, owner)
        if folder == "sum": after[3] += r
        if folder == "bits": after = x[r] + x[(r + 1) % 3] + x[(r + 2) % 3]
        np.savez("%s/rank-%d.npz" % (folder, r), before=x[r], after=after, messages=messages, bytes=0, peak=16)
PYTHON
    judges() { command="judge $1"; watched "$python" $here/ring_on_torch.py --judge "$1"; expect_status "$2"; expect_out "$3"; }
    judges right 0 'OK: 3 processes of torch.distributed have the bits of a ring that sends to the right, where device r finishes block r$'
    judges bits 3 'device [12] has other bits than device 0'
    judges sum 3 'device 1: x\[3\] is .* and should be .*; 1 of 10 numbers are wrong'
    judges sent 3 'device 0 sent 5 messages; it should be 4'
    "$python" -c 'import torch' 2>/dev/null || { echo 'skipped: there is no torch, on which the ring itself could run'; return; }
    cp "$(solution 03)" $here; command='ring_on_torch.py'; watched "$python" $here/ring_on_torch.py $here/ring.py --numbers 10; expect_status 0; expect_out '^OK: 4 processes'
}

# ---- attacks ---------------------------------------------------------------------------------------------------------------------
# attack NAME WORDS LINES: statements in sum_careful, which has 4 of 14 points, read no secret, leave nothing, and cost these points alone.
attack() {
    name=$1
    awk -v lines="$3" '{ print } /^def sum_careful/ { hit = 1 } hit && /"""$/ { print lines; hit = 0 }' "$(solution 01)" >in/sums.py
    grade_it "$2"; grep -q '10 of 14 points' "$place/out" || complain 'expected 10 of 14 points'
}
grade_it() {
    rm -rf left; mkdir left
    command="orrery grade ($name)"; watched "$program" grade in --lessons 1 --json left/results.json; tr -s ' \n' ' ' <"$place/out" >words
    grep -qE -- "$1" words || complain "it does not say: $1"
    ! grep -q a-secret words left/results.json || complain 'a secret came out'
    [ "$(ls left)" = results.json ] && [ "$(cat kept/canary)" = a-secret ] && [ "$(ls kept)" = canary ] || complain 'it changed files'
    [ -z "$(ls tmp)" ] || complain "it left in TMPDIR: $(ls tmp)"
    ! grep -qsa '^sleep.9876' /proc/[0-9]*/cmdline || complain 'a process stays'
}
module() { name=$1; { printf '%s\n' "$3"; cat "$(solution 01)"; } >in/sums.py; grade_it "$2"; grep -q '^0 of 14 points' "$place/out" || complain 'expected no points'; }
more() { [ "$TIER" != verify ] || "$@"; }

test_attacks() {
    local system='asked the operating system'
    needs_python || return 0
    ! without_cage || { echo 'skipped: no cage here'; return; }
    begin; mkdir in kept tmp; echo a-secret >kept/canary; chmod 644 kept/canary; export TMPDIR=$PWD/tmp GRADERS_TOKEN=a-secret
    attack 'a file is read'            PermissionError "    raise RuntimeError(open('$PWD/kept/canary').read())"
    attack 'a loop without an end'     'computed for more than' '    while True: pass'
    module 'a file is read at first'   PermissionError "open('$PWD/kept/canary').read()"
    more attack 'a file is written'    PermissionError "    open('$PWD/left/x', 'w').write('x')"
    more attack 'a process'            "$system" '    import os; os.fork()'
    more attack 'a thread'             "$system" '    import threading; threading.Thread(target=print).start()'
    more attack 'a program'            "$system" '    import os; os.execv("/bin/sleep", ["sleep", "9876"])'
    more attack 'the network'          "$system" '    import socket; socket.socket()'
    more attack 'a signal'             "$system" '    import os; os.kill(os.getppid(), 9)'
    more attack 'a library of C'       "$system" '    import ctypes; ctypes.CDLL(None).getppid()'
    more attack 'code of its own'      'it crashed|asked the operating' '    import ctypes; ctypes.string_at(0)'
    more attack 'sleep'                "$system" '    import time; time.sleep(9999)'
    more attack 'an end that is quiet' 'its process ended with status 0' '    import os; os._exit(0)'
    more attack 'an exception of the end' 'SystemExit' '    raise SystemExit(0)'
    more attack 'all memory'           'MemoryError' '    np.zeros(1 << 32, np.uint8)'
    more attack 'memory, counted'      'there is no memory' '    while True: allocate(1 << 20, np.uint8)'
    more attack 'calls without an end' 'RecursionError|SystemError|it crashed' '    import sys; sys.setrecursionlimit(10**9); f = lambda: f(); f()'
    more attack 'objects of the judge' 'RuntimeError: none' '    import gc, sys; raise RuntimeError([o for o in gc.get_objects() if "secret" in repr(type(o))] or "none")'
    more attack 'frames of the judge'  'RuntimeError' '    import sys; raise RuntimeError(sorted(sys._getframe(2).f_locals))'
    more attack 'a forged request'     'it sent a request that course.h cannot have made' '    import device; device.ask(99)'
    more attack 'forged results'       'sum_careful' '    import device; device.ask(device.DONE, real=(1e9, 0.)); import os; os._exit(0)'
    more attack 'environment'          'KeyError' '    import os; os.environ["GRADERS_TOKEN"]'
    more attack 'lines without an end' 'computed for more|14 points' '    [say("x" * 190) for i in range(3000)]; return 0'
    more module 'another module'       'no module _secret' 'import _secret'
    more module 'a loop at first'      'computed for more than' 'while True: pass'
    ln -sf ../kept/canary in/sums.py; name='a link'; grade_it 'must be a file'
}

run_tests test_without_python test_a_course_in_python test_both_languages_have_the_same_points test_two_files_of_a_lesson test_feedback test_dumps_of_a_framework \
    test_wrong_solutions_lose_points test_attacks
