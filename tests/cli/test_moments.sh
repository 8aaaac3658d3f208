# --beta1, --beta2 and --eps: all devices take them, checkpoints keep them, packages have defaults of their own, and the page has these.
. "$(dirname "$0")/lib.sh"

small='--model tiny --batch 4 --seq 8'
loss_of() { sed -n 's/^\t*"loss":\t*\([^,]*\),*$/\1/p' "$1" | sed -n "$2p"; }

# The first loss is before any step, so no number changes it; the third is after two.
test_steps_take_them() {
    local flags
    run train $small --steps 3 --dtype fp64 --json usual.json;                      expect_status 0; expect_no_out '^steps '
    for flags in '--beta1 0.5' '--beta2 0.6' '--eps 0.01'; do
        run train $small --steps 3 --dtype fp64 --json other.json $flags;           expect_status 0
        expect_out "^steps   adamw: .*${flags#--}.*, weight decay 0.1, clip 1, learning rate 0.001$"
        [ "$(loss_of usual.json 1)" = "$(loss_of other.json 1)" ] || complain "$flags: the first loss is another one"
        [ "$(loss_of usual.json 3)" != "$(loss_of other.json 3)" ] || complain "$flags: the third loss is the same"
    done
    run train $small --steps 3 --dtype fp64 --dp 2 --tp 2 --zero 1 --check ref --beta1 0.5 --beta2 0.6 --eps 0.01
    expect_status 0; expect_out '^OK: every'
}

test_packages_have_their_own() {
    run train $small --steps 1 --as torch --json torch.json;                        expect_status 0
    expect_out '^steps   adamw as torch: beta1 0.9, beta2 0.999, eps 1e-08, weight decay 0.01, clip 1, learning rate 0.001$'
    grep -q '"beta2":	0.999,$' torch.json || complain "$(grep beta torch.json)"
    run train $small --steps 1 --as deepspeed --beta2 0.98 --weight-decay 0.2;      expect_status 0
    expect_out '^steps   adamw as deepspeed: beta1 0.9, beta2 0.98, eps 1e-08, weight decay 0.2,'
    run train $small --steps 1 --optimizer sgd --as torch;                          expect_status 0
    expect_out '^steps   sgd as torch: weight decay 0, clip 0, learning rate 0.1$'
}

# The table of the page is what runs use.
test_the_page_has_the_defaults() {
    local package flag
    for package in orrery torch megatron deepspeed galore-torch; do
        run train $small --steps 1 --as $package --save $package;                   expect_status 0
        awk -F' *[|] *' -v name=$package '$2 == name && NF == 7 { print $3 + 0, $4 + 0, $5 + 0, $6 + 0 }' "$top/docs/checking/profiles.md" >page
        for flag in beta1 beta2 eps weight-decay; do sed -n "s/.*\"--$flag\":\t\"\([^\"]*\)\".*/\1/p" $package/training.json; done |
            awk '{ all = all (NR == 1 ? "" : " ") ($1 + 0) } END { print all }' >run
        cmp -s page run || complain "$package takes $(cat run), the page has $(cat page)"
    done
}

test_a_run_keeps_them() {
    run train $small --steps 4 --lr-steps 4 --beta1 0.8 --beta2 0.7 --eps 1e-5 --save whole;        expect_status 0
    run train $small --steps 2 --lr-steps 4 --beta1 0.8 --beta2 0.7 --eps 1e-5 --save half;         expect_status 0
    run train --resume half --save again;                                           expect_status 0
    expect_same whole/model.safetensors again/model.safetensors
    run train --resume half --steps 1 --beta2 0.9;                                  expect_status 2
    expect_error 'different run: --beta2: saved 0.7, now 0.9; --override'
    run train --resume half --steps 1 --eps 1e-6;                                   expect_status 2
    expect_error '--eps: saved 1e-05, now 1e-06; --override'
}

# A golden file has its own numbers, which training and checks take from it and say.
test_golden_files_have_them() {
    local stored=$top/golden/gpt2-minimal.safetensors
    make_text
    run train --check "$stored" --dump d/;                                           expect_status 0
    run check "$stored" d
    expect_out '^steps   adamw, by the golden file: beta1 0.8, beta2 0.9, eps 0.0001, weight decay 0.1, clip 0.25$'
    run train --check "$stored" --beta1 0.5;                                        expect_status 2
    expect_error 'the golden file says what is trained'
    run golden make --out h.safetensors --model tiny --text "$text" --optimizer sgd --beta1 0.6;    expect_status 2
    expect_error '--beta1: is for adamw, radam'
    [ "${TIER:-test}" = verify ] || return 0                # its bounds take some seconds
    run golden make --out g.safetensors --model tiny --text "$text" --sequences 2 --tokens 5 --steps 2 --beta1 0.6 --beta2 0.7 --eps 1e-3
    expect_status 0
    run train --check g.safetensors --dp 2 --dump e/ --dump-passes --dump-steps;    expect_status 0
    run check g.safetensors e;                                                      expect_status 0
    expect_out '^steps   adamw, by the golden file: beta1 0.6, beta2 0.7, eps 0.001, weight decay 0.1, clip 1$'
}

run_tests test_steps_take_them test_packages_have_their_own test_the_page_has_the_defaults test_a_run_keeps_them test_golden_files_have_them
