# `orrery lint`: seeded mismatches are named with their line; what is shipped has none.
. "$(dirname "$0")/lib.sh"

# Each file of the corpus says what is to be found: "finds: KIND LINE", or nothing.
test_seeded() {
    local file wanted kind line
    for file in "$top"/tests/fuzz/corpus/lint/*; do
        wanted=$(sed -n 's/.*finds: \([a-z]*\) *\([0-9]*\).*/\1 \2/p' "$file"); kind=${wanted% *} line=${wanted#* }
        run lint "$file"; expect_silent
        case $kind in
            nothing) expect_status 0; expect_no_out 'lint/[a-z0-9_]*:[0-9]*: [a-z]*: ' ;;
            *) expect_status 3; expect_out "lint/${file##*/}:$line: $kind: device|lint/${file##*/}:$line: $kind: [A-Za-z_]+ has "
               expect_out ' 1 finding$' ;;
        esac
    done
}

# A mismatch says both lines, both devices, and what each of them does.
test_sentences() {
    local corpus=$top/tests/fuzz/corpus/lint
    run lint "$corpus/other_order";     expect_out ':7: order: device 1 calls broadcast where device 0 calls all_reduce, in line 6'
    run lint "$corpus/only_on_rank_0";  expect_out 'device 0 calls all_reduce, and device 1 of its group never does: it has ended'
    run lint "$corpus/mpi_types";       expect_out 'device 0 receives MPI_FLOAT from device 1, which sends MPI_DOUBLE in line 15'
    run lint "$corpus/half_the_bytes";  expect_out 'device 1 receives 10 bytes from device 0, which sends 40 in line 7'
    run lint "$corpus/deadlock";        expect_out 'deadlock: device 0 waits until device 1 receives, and device 1 waits in message_wait of line 6'
}

# No false alarm: all right solutions, plug-ins, and every algorithm of this program.  Most functions are judged to their end.
test_what_is_shipped() {
    local file all=0 judged=0 n k algorithms=("$top"/emulated_devices/collectives/all*/*.c)
    [ "${TIER:-test}" != verify ] || algorithms=("$top"/emulated_devices/{collectives,schemes}/{*/,}*.c)
    for file in "$top"/tutorials/*/*.c "$top"/tests/plugins/*.c "${algorithms[@]}"; do
        case $file in */check.c|*/calls.c|*/worker.c) continue ;; esac
        run lint "$file" --devices 5;   expect_status 0; expect_silent
        case $file in */tutorials/*) ;; *) continue ;; esac
        n=$(sed -n 's/^\([0-9]*\) functions\? on.*/\1/p' <<<"$out") k=$(sed -n 's/.* \([0-9]*\) judged to the end.*/\1/p' <<<"$out")
        all=$((all + ${n:-0})) judged=$((judged + ${k:-0}))
    done
    [ "$all" -ge 25 ] && [ "$judged" -ge $((all - 3)) ] || complain "of $all functions that send, only $judged are judged"
}

# What hangs on numbers of a run is said, and nothing is claimed of it.
test_not_judged() {
    printf '#include "course.h"\nvoid f(const struct group *g, float *x, int64_t n)\n{\n    if (x[0] > 1)\n        all_reduce(g, x, n);\n}\n' >data.c
    run lint data.c;                    expect_status 0; expect_out '^data\.c:4: not judged from here on: the condition hangs on'
    expect_out '^1 function on 2 to 5 devices, 0 judged to the end; 0 findings$'
    printf 'int f(int x) { return x; }\n' >none.c
    run lint none.c;                    expect_status 0; expect_out '^no function here sends or receives$'
    printf 'void f(MPI_Comm c)\n{\n    int r = %s;\n    MPI_Barrier(c);\n}\n' "$(printf '1+%.0s' {1..2000})1" >long.c
    run lint long.c;                    expect_status 0; expect_out ':3: not judged from here on: this line is not understood'
}

test_json() {
    run lint "$top/tests/fuzz/corpus/lint/other_root" --json out.json;  expect_status 3
    grep -q '"kind":[[:space:]]*"root"' out.json && grep -q '"line":[[:space:]]*5' out.json || complain 'the document has no finding'
}

# `orrery verify plugin` says the same before it runs anything.
test_plugin() {
    sed 's/step < P - 1 && code == OK/step < P - 1 - (r == 0) \&\& code == OK/' "$top/tutorials/plugins/mirrored_ring.c" >short.c
    run lint short.c;                   expect_status 3; expect_out '^short\.c:[0-9]+: message: device '
    run verify plugin short.c --only nothing;   expect_status 2; expect_out '^short\.c:[0-9]+: message: device '
    run verify plugin "$top/tutorials/plugins/mirrored_ring.c" --only nothing;  expect_status 2; expect_no_out ' devices\)$'
}

test_refused() {
    run lint;                           expect_status 2; expect_error 'FILE'
    run lint missing.c;                 expect_status 1; expect_error 'missing\.c: '
    printf 'int x;\0' >nul.c
    run lint nul.c;                     expect_status 1; expect_error 'nul\.c: it has a NUL, and so is no text$'
    run lint nul.c --devices 9;         expect_status 2; expect_error 'devices'
    run lint nul.c --devices 2 --from 4; expect_status 2; expect_error "lint --from 4: --devices is 2"
    yes 'int a; ' | head -80000 >many.c
    run lint many.c;                    expect_status 1; expect_error "more than 200000 words"
}

run_tests test_seeded test_sentences test_what_is_shipped test_not_judged test_json test_plugin test_refused
