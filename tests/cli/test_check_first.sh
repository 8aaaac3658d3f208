# `orrery check --first`: the first wrong tensor alone, nothing behind it is computed; the same that the whole check names.
. "$(dirname "$0")/lib.sh"

golden=$top/golden/gpt2-tied.safetensors

# A number of an fp32 tensor of a file becomes another: set_number FILE KEY INDEX BYTES, of four bytes in octal.
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

# What the whole check names is what --first names: same_name GOLDEN ACTUAL TENSOR.  The whole check may add an operation behind it that
# is wrong by itself, and that has words.
same_name() {
    run check "$1" "$2";                    expect_status 3; expect_error "$3 "; sed 's/; by itself .*//; s/: only the .*//' "$place/err" >whole
    run check "$1" "$2" --first --json j;   expect_status 3; expect_error "$3 "; sed 's/; by itself .*//; s/: only the .*//' "$place/err" >first
    expect_same whole first
    expect_out "^FAILED: first $3; "
    grep -q "\"stopped_at\":.*\"$3\"" j || complain 'the JSON does not say where it has stopped'
}

test_right() {
    run train --check "$golden" --dtype fp32 --dp 3 --dump d/;  expect_status 0
    run check "$golden" d;                  expect_status 0; cp "$place/out" whole
    run check "$golden" d --first --json j; expect_status 0; expect_silent; expect_same whole "$place/out"
    grep -q '"not_looked_at":[[:space:]]*0' j || complain 'the JSON has something that was not looked at'
    run check "$golden" "$golden" --first;  expect_status 0; expect_silent; expect_out '^OK: 250 of 250 tensors compared$'
}

# A file of three steps with all passes.  What comes behind the first wrong tensor is neither in the report nor in the JSON.
test_stops() {
    small_golden own
    run train --check ./own.safetensors --dtype fp32 --dp 3 --dump right/ --dump-passes;   expect_status 0
    cp -r right bad; set_number bad/rank1.safetensors act/h.1.mlp.act#0 5 '\0\0\0\100'
    same_name own.safetensors bad act/h.1.mlp.act
    expect_out '^first to differ, in order of execution: act/h.1.mlp.act differs$'; expect_out '^  wrong on  dp=1: 1 of the 3 ranks'
    expect_out '^            largest error/bound .*, column 5: 2, its inputs give '; expect_out '^            only on dp=1$'
    expect_out '^FAILED: first act/h.1.mlp.act; stopped there: [0-9]+ of [0-9]+ tensors were not looked at$'; expect_no_out 'operations by themselves|holds$'
    [ "$(grep -c '"result":' j)" = 19 ] || complain "the JSON has $(grep -c '"result":' j) operations, not 19: embedding, a block of ten, eight of the second"
    [ "$(grep -c '"tensor":' j)" = 1 ] || complain 'the JSON has more than the tensor that is wrong'
    # Two mistakes: in the backward pass the last layer comes first.  A later pass, a step.
    cp -r right two; set_number two/rank0.safetensors grad/h.0.out#0 0 '\0\0\0\100'; set_number two/rank0.safetensors grad/h.1.mid#0 0 '\0\0\0\100'
    same_name own.safetensors two grad/h.1.mid
    cp -r right late; set_number late/rank0.safetensors adamw/2/act/h.0.mid#0 0 '\0\0\0\100'; set_number late/rank0.safetensors adamw/3/act/h.0.mid#0 0 '\0\0\0\100'
    same_name own.safetensors late adamw/2/act/h.0.mid
    ! grep -q 'adamw/3/' j || complain 'it has computed the third pass'
    cp -r right step; set_number step/rank0.safetensors adamw/1/weight/ln_f.bias#0 0 '\0\0\0\100'
    run check own.safetensors step --first; expect_status 3; expect_error 'adamw/1/weight/ln_f.bias '
}

# Copies: a rank that is not the first is wrong; and one whose copy differs, but is what it has read itself.
test_copies() {
    run train --check "$golden" --dtype fp32 --tp 2 --dump d/;  expect_status 0
    set_number d/rank1.safetensors act/h.0.mid#0 0 '\0\0\0\100'; set_number d/rank0.safetensors grad/h.0.mid#0 0 '\0\0\0\100'
    same_name "$golden" d act/h.0.mid
}

# What is not recomputed comes in its place: a missing tensor, one that is not finite, weights that are not the golden ones, a step without inputs.
test_not_recomputed() {
    LC_ALL=C sed 's|"act/h.0.mid"|"act/h.0.mud"|' "$golden" >bad.safetensors;     same_name "$golden" bad.safetensors act/h.0.mid
    expect_out '^first to differ, in order of execution: act/h.0.mid is missing'
    set_number bad.safetensors act/h.1.mlp.act 3 '\0\0\0\100';                      same_name "$golden" bad.safetensors act/h.0.mid
    # A wrong number says less than the tensor that follows.
    cp "$golden" loss.safetensors; set_number loss.safetensors loss 1 '\0\0\0\100';  same_name "$golden" loss.safetensors loss
    set_number loss.safetensors grad/logits 1 '\0\0\0\100';                          same_name "$golden" loss.safetensors grad/logits
    run train --check "$golden" --dtype fp32 --dump d/;  expect_status 0
    cp -r d nan; set_number nan/rank0.safetensors act/h.1.mlp.up#0 3 '\0\0\300\177';   same_name "$golden" nan act/h.1.mlp.up; expect_out 'act/h.1.mlp.up has NaN or infinity$'
    cp -r d step; set_number step/rank0.safetensors adamw/weight/wte.weight#0 0 '\0\0\200\102'; same_name "$golden" step adamw/weight/wte.weight
    expect_out '; all [0-9]+ tensors were looked at$'
    small_golden one; cp -r one two; set_number two/model.safetensors h.0.mlp.c_fc.bias 0 '\0\0\0\100'; small_golden two
    run check one.safetensors two.safetensors --first --json j; expect_status 3; expect_error 'start/h.0.mlp.c_fc.bias differs'
    [ "$(grep -c '"result":' j)" = 0 ] || complain 'it has recomputed what follows from other weights'
}

run_tests test_right test_stops test_copies test_not_recomputed
