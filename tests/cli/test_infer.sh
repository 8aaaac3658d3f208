# orrery infer: forward passes alone, with weights on the device, in shards, or in a ring of parts.
. "$(dirname "$0")/lib.sh"

infer() { make_text; run infer --data "$text" --steps 2 --batch 4 --seq 8 "$@"; }

test_as_one_device() {
    infer --model tiny --check ref;                         expect_status 0; expect_silent
    expect_out '^step +2/2 .* loss +[0-9.]+ +[0-9.]+K? tokens/s$'
    expect_out '^OK: every activation and loss of every device is what one device computes\.$'
    infer --model tiny --check ref --dp 2 --tp 2 --offload weights --zero 3 --ring 5; expect_status 0
    expect_out 'and those of the slow tier, equal the formulas on every device$'
}

test_chosen_experts() {
    local m='--model mixtral-tiny --offload experts --chosen-experts'
    infer $m --check ref --ep 2 --dp 2;                     expect_status 0; expect_silent; expect_out '^OK: '
    expect_out '^traffic .*, and those of the slow tier, equal the formulas on every device$'
    infer $m --offload-to . --host-cache 64M;               expect_status 0
    expect_out '^cache   hosts had [1-9][0-9]* of [0-9]+ requested blocks in memory'
}

losses() { grep -oE '"loss":[^,]*' "$1"; }

# Losses of one text are equal to the last digit, wherever the weights are; training has changed them.
test_a_ring_changes_no_bit() {
    train --steps 3 --batch 4 --seq 8 --save saved;         expect_status 0
    infer --model ./saved --json a.json;                    expect_status 0
    infer --model ./saved --json b.json --offload weights --ring 4; expect_status 0
    infer --model tiny --json c.json;                       expect_status 0
    [ -n "$(losses a.json)" ] && [ "$(losses a.json)" = "$(losses b.json)" ] || complain "with a ring $(losses b.json), else $(losses a.json)"
    [ "$(losses a.json)" != "$(losses c.json)" ] || complain 'trained weights have the losses of those drawn'
}

test_refusals() {
    infer --model tiny --lr 3;                              expect_status 2; expect_error '--lr is not a flag of infer'
    infer --model tiny --ring 4;                            expect_status 2; expect_error '--ring 4: is for weights on the slow tier; --offload weights or experts$'
    infer --model tiny --offload weights --ring 10;         expect_status 2; expect_error '--ring 10: must be from 2, .* to 9: '
    infer --model tiny --offload weights --ring 4 --prefetch no --zero 3 --dp 2; expect_status 2; expect_error '--prefetch no forbids that$'
    infer --model mixtral-tiny --offload weights --chosen-experts; expect_status 2; expect_error '--chosen-experts: is for their weights on the slow tier'
    infer --model mixtral-tiny --offload experts --chosen-experts --dp 2 --zero 3; expect_status 2; expect_error '--chosen-experts: .*--data-parallel zero3 devices gather'
    infer --model mixtral-tiny --offload experts --chosen-experts --dp 2 --ep 2 --dispatch tutel; expect_status 2; expect_error '--chosen-experts: --dispatch tutel sends weights'
    run train --model mixtral-tiny --offload experts --chosen-experts; expect_status 2; expect_error '--chosen-experts: --optimizer adamw steps all experts'
    infer --model tiny --offload optimizer;                 expect_status 2; expect_error 'orrery infer keeps no state'
    infer --model tiny --offload gradients;                 expect_status 2; expect_error 'orrery infer has no gradients'
    infer --model tiny --zero 1 --dp 2;                     expect_status 2; expect_error 'orrery infer has neither; use --data-parallel'
    run infer --check "$top/golden/gpt2-tied.safetensors";  expect_status 2; expect_error 'golden files are of training'
}

# Every option that it leaves out is one of train's or plan's.
test_help() {
    local all name
    all=$(for name in train plan; do run $name --help; expect_status 0; grep -oE '^ +--[a-z-]+' "$place/out"; done)
    run infer --help;                                       expect_status 0; expect_columns 100
    expect_out '^usage: orrery infer \[options\]'; expect_out '^ +--ring K'
    for name in $(sed -n '/^#define OF_TRAINING/,/^$/p' "$top/emulated_devices/cli/train/kinds.c" | grep -oE '"--[a-z-]+"' | tr -d '"'); do
        grep -qxE -- " +$name" <<<"$all" || complain "neither train nor plan has $name"
        ! grep -qE -- "^  $name( |\$)" "$place/out" || complain "infer has $name"
    done
    [ -n "${name:-}" ] || complain 'the list of what it leaves out is empty'
}

run_tests test_as_one_device test_chosen_experts test_a_ring_changes_no_bit test_refusals test_help
