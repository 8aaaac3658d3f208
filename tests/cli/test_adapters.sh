# `orrery check` of programs that train low-rank adapters of peft, unmerged.  The dumps are of golden/make_recorded.py.
. "$(dirname "$0")/lib.sh"

recorded=$top/golden/recorded
golden=$recorded/llama.safetensors

# Base + scaling B A gives the golden file's pass; gradients, steps and later passes follow from the program's own A and B.
test_right() {
    run check "$golden" "$recorded/lora.safetensors" --json j;  expect_status 0; expect_silent
    expect_out '^trains  6 low-rank adapters, and 1 parameter whole; all other weights are frozen$'
    expect_out '^OK: 172 of 172 tensors compared$'; expect_out '^ +[0-9]+  right$'
    grep -q '"adapters":	6' j || complain 'the adapters of --json'
    run check "$golden" "$recorded/lora-rs.safetensors";  expect_status 0; expect_out '^OK: 293 of 293 tensors compared$'
    run check "$golden" "$recorded/lora.safetensors" --first;  expect_status 0
    run check "$golden" "$recorded/lora.safetensors" --page p.html;  expect_status 0; expect_file p.html
}

# Each mistake is found, at its place, in words of the adapter.
test_wrong() {
    local dump words
    while IFS='|' read -r dump words; do
        run check "$golden" "$recorded/lora-$dump.safetensors";  expect_status 3; expect_error "$words"
    done <<<'scaling|act/h.0.attn.qkv differs: its adapters are scaled by alpha = 8, not by alpha / rank = 4
transposed|grad/model.layers.1.self_attn.q_proj.lora_A.weight .*: the gradient of the adapter is transposed
lost|grad/model.layers.1.self_attn.q_proj.lora_A.weight .*: all of it is zero
moved|adamw/weight/model.layers.1.self_attn.o_proj.weight differs: frozen, and yet moved'
    run check "$golden" "$recorded/lora-scaling.safetensors"
    expect_out '^            the adapter is scaled by alpha = 8, not by alpha / rank = 4; '
}

# The scaling that the dump says is what all is held to: other words in the metadata make a right dump wrong.
changed() { sed "s/$1/$2/g" "$recorded/lora.safetensors" >copy.safetensors; }
test_what_the_dump_says() {
    changed '\\"alpha\\": 8.0' '\\"alpha\\": 4.0'; run check "$golden" copy.safetensors;  expect_status 3
    expect_error 'start/.*differs: the golden file is of other weights than base \+ scaling B A'
    changed '\\"rslora\\": false' '\\"rslora\\":  true'; run check "$golden" copy.safetensors;  expect_status 3
    changed '\\"rank\\": 2' '\\"rank\\": 0'; run check "$golden" copy.safetensors;  expect_status 1; expect_error 'needs "rank", a whole number above 0'
    changed '\\"rank\\": 2' '\\"rank\\": 3'; run check "$golden" copy.safetensors;  expect_status 3
    changed '\\"rows\\": \[0, 8\]' '\\"rows\\": [9, 8]'; run check "$golden" copy.safetensors;  expect_status 1
    expect_error 'adapter .* has rows up to 17 of .*, which has|is a second adapter of the same rows'
    changed '\\"of\\": \\"model.layers' '\\"of\\": \\"model.layerz'; run check "$golden" copy.safetensors;  expect_status 1
    expect_error 'which is no matrix of a layer'
    changed '\[\\"lm_head.weight' '[\\"lm_head.weighd'; run check "$golden" copy.safetensors;  expect_status 1; expect_error 'metadata "trained" has what is no name'
    changed '"trained"' '"trainee"'; run check "$golden" copy.safetensors;  expect_status 1; expect_error 'metadata "trainee" is none of'
}

# A or B that one adapter lacks is missing: others have theirs.
test_a_factor_is_missing() {
    changed 'grad\/model.layers.1.self_attn.q_proj.lora_B' 'grad\/model.layers.1.self_attn.q_proj.lora_C'; run check "$golden" copy.safetensors
    expect_status 3; expect_error 'grad/model.layers.1.self_attn.q_proj.lora_B.weight is missing.*A and B of every adapter are trained'
    changed 'start\/model.layers.1.self_attn.q_proj.lora_B' 'start\/model.layers.1.self_attn.q_proj.lora_C'; run check "$golden" copy.safetensors
    expect_status 3; expect_error 'start/model.layers.1.self_attn.qkv_proj.weight .*lacks a part of its base, of A or of B'
}

run_tests test_right test_wrong test_what_the_dump_says test_a_factor_is_missing
