# `orrery check` of recordings of a part: tensors that are declared as not recorded, and verdicts that say so.  The dumps are of make_recorded.py.
. "$(dirname "$0")/lib.sh"

recorded=$top/golden/recorded
golden=$recorded/llama.safetensors

# A part that is right is right for what was recorded, with status 0, and both texts and JSON count what was not.
test_parts_have_a_verdict() {
    local part compared declared
    while read -r part compared declared; do
        run check "$golden" "$recorded/$part.safetensors" --json j;   expect_status 0; expect_silent
        expect_out "^OK for what was recorded: $compared of 174 tensors compared; $declared tensors were declared not recorded$"
        grep -q '"verdict":	"OK for what was recorded"' j && grep -q '"holds":	true' j || complain 'the verdict of --json'
        grep -q "\"declared_not_recorded\":	$declared," j && grep -q "\"not_judged\":	$declared," j || complain 'the counts of --json'
    done <<<'no-rotary 170 4
first-layer 68 106
gradients 17 157
weights 90 84'
}

# Put other words of the same length into the metadata of a copy: words FROM TO.
words() {
    local literal=${1//\\/}
    [ ${#literal} = ${#2} ] || complain "$1 and $2 are not as long"
    sed "s/$1/$2/" "$recorded/no-rotary.safetensors" >copy.safetensors
}

# Without a declaration a tensor is missing, and the line names what would cure that.  The option declares, too.
test_undeclared_is_missing() {
    words not_recorded left_outxxxx; run check "$golden" copy.safetensors;   expect_status 1; expect_error 'metadata "left_outxxxx" is none of'
    words 'h\.\*\.attn\.rotated' 'act.anything*abc'; run check "$golden" copy.safetensors
    expect_status 1; expect_error 'declared as not recorded: no tensor of the golden file is called "act.anything\*abc"'
    words 'h\.\*\.attn\.rotated' 'h.1.attn.rotated'; run check "$golden" copy.safetensors;  expect_status 3
    expect_error "act/h.0.attn.rotated is missing.*: record it, or say that it is not: --not-recorded 'act/h.\*.attn.rotated', or not_recorded= of the recorder"
    expect_out '^FAILED: 2 of 172 tensors are missing or do not fit, first act/h.0.attn.rotated; 2 tensors were declared not recorded$'
    run check "$golden" copy.safetensors --not-recorded 'h.0.attn.rotated';  expect_status 0
    expect_out '^OK for what was recorded: 170 of 174 tensors compared; 4 tensors were declared not recorded$'
    run check "$golden" copy.safetensors --not-recorded 'act/h.0.attn.rotated,grad/h.0.attn.rotated';  expect_status 0
    run check "$golden" copy.safetensors --not-recorded 'h.0.attn.rotatet';  expect_status 1; expect_error 'is called "h.0.attn.rotatet"'
    run check "$golden" --against copy.safetensors copy.safetensors --not-recorded x;  expect_status 2; expect_error '--not-recorded does not go with --against'
}

# What is there is judged, also if somebody declares it; a whole recording is whole.
test_what_is_there_is_judged() {
    run check "$golden" "$golden" --not-recorded 'h.*.attn.rotated';  expect_status 0; expect_out '^OK: 174 of 174 tensors compared$'
    cp "$recorded/no-rotary.safetensors" wrong.safetensors; chmod u+w wrong.safetensors
    local at; at=$(stat -c %s wrong.safetensors)
    printf '\100\100' | dd of=wrong.safetensors bs=1 conv=notrunc seek=$((at / 2)) 2>/dev/null
    run check "$golden" wrong.safetensors;  expect_status 3; expect_out '^FAILED: .*; 4 tensors were declared not recorded$'
}

# The loss alone is not enough, whatever is declared.
test_the_loss_alone() {
    run check "$golden" "$recorded/gradients.safetensors" --require act;  expect_status 3; expect_error '--require act: none of the [0-9]+ activations were judged'
    expect_out '^NOT ENOUGH: .*; 157 tensors were declared not recorded$'
}

# A file of another kind: one line says what it is, and which command takes it.
test_other_kinds() {
    printf '{"traceEvents":[]}' >trace.json; mkdir adapter; echo '{}' >adapter/adapter_config.json
    cp "$golden" own.safetensors
    run train --model tiny --batch 1 --seq 3 --steps 1 --save ck --save-every 1;  expect_status 0
    mkdir dump; cp "$recorded/weights.safetensors" dump/rank0.safetensors
    local of words right
    while IFS='|' read -r of words right; do
        run check "$of" dump;  expect_status 1; expect_error "$of: is $words, not a golden file: $right"
        run train --model "$of" --steps 1;  [ "$status" != 0 ] || complain 'it is trained'; expect_error "$of: is $words, not the folder of a model: $right"
        run train --model tiny --resume "$of" --steps 2;  [ "$status" != 0 ] || complain 'it is resumed'
        expect_error "$of: is $words, not a checkpoint of orrery train: $right"
    done <<<"trace.json|a trace of orrery train|a viewer of traces shows it
adapter|a folder of adapters, without their model|peft's merge_and_unload"
    run check ck/step-00000001 dump;  expect_status 1; expect_error 'is a checkpoint of orrery train, not a golden file: orrery train --resume DIR'
    run check own.safetensors ck/step-00000001;  expect_status 1; expect_error 'ACTUAL ck/step-00000001: is a checkpoint of orrery train, not what a program has computed'
    run check own.safetensors adapter;  expect_status 1; expect_error 'ACTUAL adapter: is a folder of adapters'
    run train --model own.safetensors --steps 1;  expect_error 'own.safetensors: is a golden file, not the folder of a model: orrery check FILE YOURS'
    run train --model dump --steps 1;  expect_error 'dump: is a dump of a program.s tensors, not the folder of a model: orrery check GOLDEN DUMP'
    run check dump dump;  expect_status 0; expect_out '^OK: [0-9]+ tensors of both, '
    run check dump own.safetensors;  expect_status 1; expect_error 'GOLDEN dump: is a folder, a file was expected; for two dumps: orrery check GOLDEN A --against B'
}

# A file of `orrery dump` looks like a golden file.
test_a_pass_is_no_golden_file() {
    printf '%s' '{"ids":{"dtype":"I32","shape":[1,2],"data_offsets":[0,8]},"labels":{"dtype":"I32","shape":[1,2],"data_offsets":[8,16]}}' >h
    { printf "\\$(printf %o "$(wc -c <h)")\0\0\0\0\0\0\0"; cat h; printf '\1\0\0\0\2\0\0\0\2\0\0\0\3\0\0\0'; } >batch.safetensors
    run dump pass.safetensors --batch batch.safetensors;  expect_status 0
    run check pass.safetensors pass.safetensors;  expect_status 1
    expect_error 'pass.safetensors: is one pass of a model, as orrery dump writes it.*, not a golden file: orrery golden make --out FILE makes a golden file'
    run train --check pass.safetensors;  expect_status 1; expect_error 'not a golden file: orrery golden make'
}

run_tests test_parts_have_a_verdict test_undeclared_is_missing test_what_is_there_is_judged test_the_loss_alone test_other_kinds test_a_pass_is_no_golden_file
