# `orrery check GOLDEN A --against B`: two dumps of one program, with a golden file and without; and docs/checking/two_dumps.md as it is written.
. "$(dirname "$0")/lib.sh"

golden=$top/golden/gpt2-tied.safetensors
page=$top/docs/checking/two_dumps.md

# A number of a tensor of a file becomes another: set_number FILE KEY INDEX BYTES, of four bytes in octal.
set_number() {
    local at; at=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    at=$((8 + at + 4 * $3 + $(head -c $((8 + at)) "$1" | grep -aoE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+" | grep -oE '[0-9]+$')))
    chmod u+w "$1"; printf "$4" | dd of="$1" bs=1 conv=notrunc seek=$at 2>/dev/null
}

# A small GPT-2 with batches of three steps, and its golden file: small_golden FOLDER.
small_golden() {
    [ -x buggy ] || cc "$top"/golden/bugs/*.c -lm -o buggy || complain 'golden/bugs does not compile'
    [ -d "$1" ] || ./buggy model gpt2 "$1" || complain 'there is no model'
    run golden make --out "$1.safetensors" --model "$1" --batch "$1/batch.safetensors" --eps 1e-4;      expect_status 0
}

dump() { run train --check "$golden" --dtype "$1" "${@:3}" --dump "$2/";    expect_status 0; expect_silent; }

# Correct runs on other meshes round otherwise, in each format and across formats; a dump has its own bits.
test_layouts() {
    local format
    for format in fp32 bf16; do
        dump $format "a-$format" --tp 3;  dump $format "b-$format" --dp 3 --tp 2 --zero 3
        run check "$golden" "a-$format" --against "b-$format" --json j;     expect_status 0; expect_silent
        expect_out '^OK: 162 tensors of both, [0-9]+ with the same bits, [0-9]+ the same within rounding$'
        expect_out '^first without the same bits: act/.*: the same within rounding$'; expect_out '^     88  in the golden file only: '
        expect_out '^            A has .*: rank [0-2] \(tp=[0-2]\), act/.*#0 in a-.*/rank[0-2].safetensors$'
        grep -q '"holds":[[:space:]]*true' j || complain 'the JSON does not say that it holds'
        run check "$golden" "b-$format" --against "b-$format";              expect_status 0; expect_out '^OK: 162 tensors of both, 162 with the same bits, 0 the'
    done
    run check "$golden" a-fp32 --against b-bf16;        expect_status 0; expect_silent; expect_out '^B .* computed in bf16'
    # Flat pieces have no shape of their own; the other dump shows it.
    run check a-fp32 --against a-fp32 --json j;         expect_status 0; expect_silent; expect_out '^OK: 162 tensors of both, 162 with the same bits'
    run check a-fp32 --against b-fp32 --json -;         expect_status 3
    grep -q '"verdict":[[:space:]]*"NOT ENOUGH"' "$place/out" || complain 'the JSON says something else'
    grep -q '"different, and cannot be judged"' "$place/out" || complain 'no tensor is left open'
    ! grep -qE '"finding":.*(shape|within)' "$place/out" || complain 'without a golden file more than bits is judged'
    run check a-fp32 --against b-fp32;                  expect_status 3; expect_error 'act/.*: different, and cannot be judged; `orrery check GOLDEN A --against B`'
}

# One number of one rank: who is wrong, in which element and piece; only the other rank's copy; the other way round.
test_one_number() {
    dump fp32 a --tp 2 --micro 3;  dump fp32 b --dp 3
    run check "$golden" a --against b;  expect_status 0; expect_silent
    cp -r b bad; set_number bad/rank1.safetensors act/h.1.mid#0 9 '\0\0\200\77'
    run check "$golden" a --against bad --json j;       expect_status 3; expect_error "act/h.1.mid: only A's is right; B's is not what its own inputs give: only the element in row 7, column 9"
    expect_out "^first to differ by more than rounding: act/h.1.mid, .*: only A's is right$"; expect_out '^  A         is what its own inputs give$'
    expect_out '^  worst     in B, row 7, column 9: 1, its inputs give .*; only on dp=1$'; expect_out '^  before    act/h.1.attn.out: the same (bits|within rounding)'
    expect_out '^FAILED: [0-9]+ of 162 tensors? differs? by more than rounding, first act/h.1.mid$'
    grep -A 1 '"first":' j | grep -q 'act/h.1.mid' || complain 'the JSON does not name it'
    run check "$golden" bad --against a;                expect_status 3; expect_error "act/h.1.mid: only B's is right; A's is not what"
    run check "$golden" bad --against bad;              expect_status 0; expect_out '^warning   [0-9]+ tensors of the same bits are not what their own inputs give, first act/h.1.mid'
    cp -r b worse; set_number worse/rank1.safetensors act/h.1.mid#0 9 '\0\0\0\100'
    run check "$golden" bad --against worse;            expect_status 3; expect_error 'act/h.1.mid: different, and neither is right'
    expect_out '^  element   row 7, column 9 is the first of 1 that are different, of 441$'; expect_out '^            A has 1: rank 1 \(dp=1\), act/h.1.mid#0 in bad/rank1.safetensors$'
    expect_out '^            B has 2: rank 1'; expect_out '^NOT ENOUGH: '
    run check bad --against worse;                      expect_status 3; expect_out '^first that cannot be judged: act/h.1.mid'; expect_out '^    161  the same bits$'
    cp -r a copy; set_number copy/rank1.safetensors act/h.0.mid#0 0 '\0\0\200\77'       # a copy: rank 0 has the right one
    run check "$golden" a --against copy;               expect_status 3; expect_error "act/h.0.mid: only A's is right"; expect_out '^  copies    in B are not the same on all ranks'
    run check a --against copy;                         expect_status 3; expect_out '^NOT ENOUGH: 1 of 162'
}

# What one dump has alone is counted and named; one tensor of many is missing; elements are on no rank.
test_only_one() {
    small_golden own
    run train --check ./own.safetensors --dtype fp32 --dp 3 --dump pa/;                 expect_status 0
    run train --check ./own.safetensors --dtype fp32 --dp 3 --dump pb/ --dump-passes;   expect_status 0
    run check own.safetensors pa --against pb;          expect_status 0; expect_out '^ +[0-9]+  in B only: adamw/2/act/embedding, \.\.\.$'
    expect_out '^OK: [0-9]+ tensors of both, [0-9]+ with the same bits, .*; not compared: 0 in A only, [0-9]+ in B only$'
    run check own.safetensors pa --against pb --all;            expect_out '^ *adamw/3/grad/logits +in B only$'
    dump fp32 a --dp 3
    cp -r a c; for rank in 0 1 2; do LC_ALL=C sed 's/act\/h.0.mid#0/act\/h.0.mud#0/g' a/rank$rank.safetensors >c/rank$rank.safetensors; done
    run check "$golden" a --against c;                  expect_status 3; expect_error 'act/h.0.mid: missing in one of them, though others of its kind are there'
    expect_out '^ +1  in B only: act/h.0.mud$'
    cp -r a d; LC_ALL=C sed 's/act\/h.0.mid#0/act\/h.0.mud#0/g' a/rank1.safetensors >d/rank1.safetensors
    run check "$golden" a --against d;                  expect_status 3; expect_error 'act/h.0.mid: not whole in one of them'; expect_out '^  why       B: elements of act/h.0.mid are on no rank, the first in row 7, column 0$'
    run check a --against d;                            expect_status 3; expect_error 'act/h.0.mid: not whole in one of them'
    run check a --against d --require act;              expect_status 3
    run check "$golden" a --against a --require act,step;   expect_status 0
    run check a --against "$top/golden/balance.safetensors";    expect_status 3; expect_error 'nothing to compare: no tensor of A has the name of one of B'
}

# Dumps that begin with other weights than the golden file's have their own: its numbers are not theirs, and are not used.
test_other_weights() {
    small_golden one; cp -r one two; set_number two/model.safetensors h.0.mlp.c_fc.bias 0 '\0\0\0\100'; small_golden two
    run check one.safetensors two.safetensors;                                          expect_status 3
    run check one.safetensors two.safetensors --against two.safetensors;                expect_status 0; expect_silent; expect_out '^OK: '
    run check one.safetensors one.safetensors --against two.safetensors;                expect_status 3; expect_error 'start/h.0.mlp.c_fc.bias: other weights to begin with'
    cp two.safetensors bad.safetensors; set_number bad.safetensors act/h.1.mlp.act 3 '\0\0\0\100'
    run check one.safetensors two.safetensors --against bad.safetensors;                expect_status 3; expect_error "act/h.1.mlp.act: only A's is right; B's is not what its own inputs give"
    run check one.safetensors bad.safetensors --against two.safetensors;                expect_status 3; expect_error "act/h.1.mlp.act: only B's is right"
    # Losses of all steps are not recomputed, and the golden file's are of other weights.
    cp two.safetensors bad.safetensors; set_number bad.safetensors adamw/loss 1 '\0\0\0\100'
    run check one.safetensors two.safetensors --against bad.safetensors;                expect_status 3; expect_error 'adamw/loss: different, and cannot be judged'
    # Without weights of its own a dump is held to the golden file's, and the report says so.
    run train --check ./one.safetensors --dtype fp32 --dump d/;                         expect_status 0
    run check one.safetensors one.safetensors --against d;                              expect_status 0; expect_out "^warning   only A has the weights that it begins with, start/NAME: B's are the golden file's$"
    run check one.safetensors two.safetensors --against d;                              expect_status 3
}

test_refusals() {
    dump fp32 a
    run check a a;                                      expect_status 0; expect_out '^OK: [0-9]+ tensors of both, '
    run check a own.safetensors;                        expect_status 1; expect_error 'GOLDEN a: is a folder, .*orrery check GOLDEN A --against B'
    run check "$golden";                                expect_status 2; expect_error 'check needs ACTUAL'
    run check --against a;                              expect_status 2; expect_error 'check needs GOLDEN'
    run check "$golden" a --against none;               expect_status 1; expect_error '--against none: cannot be read'
    run check "$golden" a --against a --first;          expect_status 2; expect_error '--first does not go with --against'
    run check "$golden" a --against a --page p.html;       expect_status 2; expect_error '--page does not go with --against'; [ ! -e p.html ] || complain 'there is a page'
    run check "$golden" a --against a --watch;              expect_status 2; expect_error '--watch does not go with --against'
    run check "$golden" a --against a --map m;          expect_status 2; expect_error '--map does not go with --against'
    run check a --against a --fused;                    expect_status 2; expect_error '--fused.*operations that are recomputed'
    run check "$golden" a --against a --require gard;   expect_status 2; expect_error "--require 'gard'"
}

# The commands of the page, and what it says of them.  Digits depend on the machine.
test_the_page() {
    ln -s "$program" orrery; ln -s "$top/golden" golden
    sed -n '/^## An example/,$p' "$page" | grep -E '^    (cc|\./buggy|orrery golden make)' >steps
    command='the steps of the page'
    [ "$(wc -l <steps)" = 6 ] || complain "the page has $(wc -l <steps) commands, not 6"
    PATH=$PWD:$PATH watched bash -e steps;              expect_status 0
    run check llama.safetensors ranks --against alone;  expect_status 0; expect_silent
    expect_out '^first without the same bits: act/'; expect_out "^  it is     no more than this operation's own rounding: "; expect_out '^OK: 234 tensors of both, '
    run check llama.safetensors ranks --against broken; expect_status 3
    while read -r line; do grep -qF -- "$line" "$place/out" || complain "not as on the page: $line"; done < <(sed -nE '/^first to differ/p; /^  B         is not/s/\.\.\.$//p' "$page")
    expect_out "$(grep -oE '^FAILED: .*' "$page" | sed -E 's/[0-9]+ of 234/[0-9]+ of 234/')\$"
    run check llama.safetensors alone --against broken; expect_status 3; expect_error "act/h.1.attn.heads: only A's is right; B's is not .*: wrong head map"
    expect_out '^  before    act/h.1.attn.rotated: the same bits$'
}

run_tests test_layouts test_one_number test_only_one test_other_weights test_refusals test_the_page
