# What a batch cannot show is said, of new golden files and of old ones; a batch of --cover shows it: a bug that hid is found.
. "$(dirname "$0")/lib.sh"

# A small GPT-2 of the seeded program: 61 words, 6 heads.  Its own batch has no label at the borders of three ranks.
seeded() {
    "${CC:-cc}" -O1 "$top"/golden/bugs/*.c -lm -o buggy && ./buggy model gpt2 model || complain 'golden/bugs does not build'
}

check_seeded() {                        # check_seeded GOLDEN: what three ranks along tp make of it, with the bug
    watched ./buggy run "$1" dump dtype fp32 bug border-twice tp 3;     expect_status 0
    run check "$1" dump
}

test_a_bug_that_hid() {
    seeded
    run golden make --out own.safetensors --model model --batch model/batch.safetensors --steps 1
    expect_status 0; expect_silent
    expect_out '^not everything would show in this batch'
    expect_out 'no label is one of these tokens at borders of the vocabulary: .*20, 21, 40, 41 \(tp=3\).*; needed: --sequences 7, or more tokens$'
    expect_out '^--cover draws a batch that shows as many as fit$'
    check_seeded own.safetensors;       expect_status 0; expect_out '^OK: '
    run golden own.safetensors;         expect_status 0; expect_out 'no label is one of .* 41 \(tp=3\)'; expect_no_out 'no label is ignored'

    run golden make --out cover.safetensors --model model --cover --sequences 8 --tokens 7 --steps 1
    expect_status 0; expect_silent; expect_no_out 'borders of the vocabulary|--cover'
    expect_out '; hidden: a number of labels that is kept in bf16; needed: --sequences 37, or more tokens$'
    check_seeded cover.safetensors;     expect_status 3; expect_error 'grad/logits differs'; expect_out 'only the element|elements outside'
    run golden cover.safetensors;       expect_status 0; expect_no_out 'borders of the vocabulary'

    # the seed decides what is drawn
    cp cover.safetensors first.safetensors
    run golden make --out cover.safetensors --model model --cover --sequences 8 --tokens 7 --steps 1;     expect_status 0; expect_same cover.safetensors first.safetensors
    run golden make --out cover.safetensors --model model --cover --sequences 8 --tokens 7 --steps 1 --seed 3;     expect_status 0
    ! cmp -s cover.safetensors first.safetensors || complain 'another seed draws the same batch'
}

# A folder is a table of files; a batch is described for one that is named.
test_old_files() {
    mkdir g; cp "$top"/golden/gpt2-minimal.* g
    run golden g;                               expect_status 0; expect_no_out hidden
    run golden g/gpt2-minimal.safetensors;      expect_status 0; expect_silent; expect_out '^  - a sequence is one token; hidden: attention: '
    expect_out 'there is one sequence only'
}

test_refusals() {
    make_text
    run golden make --out own.safetensors --cover --text "$text";       expect_status 2; expect_error 'one of --batch FILE, --text FILE and --cover, not two'
    run golden make --out own.safetensors --cover --tokens 600;         expect_status 2; expect_error '--cover: .*sequences of 600 tokens; the model has 32 positions'
    run golden make --out own.safetensors --cover --sequences 2 --micro 3;  expect_status 2; expect_error '--micro 3: a batch has 2 sequences'
}

run_tests test_a_bug_that_hid test_old_files test_refusals
