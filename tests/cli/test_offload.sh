# The slow tier: what fits only with it, what it changes (nothing but where numbers lie), and what is refused.
. "$(dirname "$0")/lib.sh"

everything='--offload optimizer,gradients,weights'

# 0.8M parameters in 8M of each device are too many for ddp, 11M in 32M for zero3.
test_what_fits() {
    make_text
    local small="--model small --data ../text --dp 4 --batch 4 --seq 16 --steps 1 --memory 8M"
    local large="--model 11m --data ../text --dp 4 --batch 4 --seq 16 --steps 1 --memory 32M"
    run train $small --zero 0;                  expect_status 2; expect_error '--memory 8MiB: device 0 \(dp=0\) needs at least [0-9.]+ MiB'
    run train $small --zero 3;                  expect_status 0; expect_silent
    run train $large --zero 3;                  expect_status 2; expect_error '--memory 32MiB: device 0 \(dp=0\) needs at least [0-9.]+ MiB'
    run train $large --zero 3 $everything;      expect_status 0; expect_silent
    expect_out '^slow tier of each device: stored, read and written, in MiB and operations$'
    expect_out '^ +0-3 +all +10\.3[0-9] +10\.3[0-9] +20\.6[0-9] +0 +6[12]\.[0-9]+ in [0-9]+ +41\.37 in [0-9]+$'
    expect_out '^traffic .*, and those of the slow tier, equal the formulas on every device$'
    expect_out '^memory .* equal the formulas on every device$'
}

# On the way from one place to the other and back the bits stay, and so they do through a checkpoint.
test_checkpoints() {
    local mesh='--dp 2 --pp 2 --zero 3 --lr-steps 3'
    train $mesh --steps 3 --save whole;                                                 expect_status 0
    train $mesh --steps 1 $everything --offload-stride 3 --offload-slice 500 --save a;  expect_status 0
    mkdir disk
    train $mesh --steps 1 $everything --offload-to disk --resume a --save b;            expect_status 0
    train $mesh --steps 1 --offload gradients --resume b --save c;                      expect_status 0
    for f in model.safetensors optimizer.safetensors; do expect_same whole/$f c/$f; done
    expect_nothing disk
}

test_check_beside_the_reference() {
    make_text
    run train --model llama-tiny --data $text --dp 2 --tp 2 --zero 3 $everything --steps 2 --dtype bf16 --offload-slice 300 --offload-stride 2 --check ref --paranoid
    expect_status 0
    expect_out '^OK: every'
}

# An outer step moves to the device only what is on the slow tier: here experts, not the rest.
test_an_outer_step_of_experts() {
    run train --model mixtral-tiny --dp 2 --data-parallel diloco --local-steps 2 --offload experts,weights,optimizer --steps 2 --batch 4 --seq 8 --check ref
    expect_status 0; expect_out '^traffic .*, and those of the slow tier, equal the formulas on every device$'
}

refuses() { expect_status "$1"; expect_error "$2"; expect_nothing; }

test_what_is_refused() {
    train --zero 3 --offload weigths;                           refuses 2 '--offload weigths: .*did you mean weights\?'
    train --zero 3 --offload optimizer,;                        refuses 2 '--offload optimizer,: must be a list such as optimizer,gradients,weights'
    train --zero 3 --offload '';                                refuses 2 '--offload: must not be empty'
    train --zero 3 --offload optimizer --optimizer sgd;         refuses 2 '--offload optimizer: --optimizer sgd with --dtype fp32 keeps no state'
    train --dp 2 --offload gradients --optimizer mezo;          refuses 2 '--offload gradients: --optimizer mezo has no gradients'
    train --zero 3 --offload-stride 2;                          refuses 2 '--offload-stride: there is nothing offloaded'
    train --zero 3 --offload-to host;                           refuses 2 '--offload-to: there is nothing offloaded'
    train --zero 3 --host-cache 1K;                             refuses 2 '--host-cache: there is nothing offloaded'
    train --zero 3 $everything --host-cache 1K;                 refuses 2 '--host-cache: is for a drive; --offload-to DIR'
    train --offload experts;                                    refuses 2 '--offload experts: --model .* has no experts'
    train --zero 3 --offload-slice 10;                          refuses 2 '--offload-slice: there is nothing offloaded'
    train --zero 3 $everything --offload-slice 0;               refuses 2 '--offload-slice 0: must be a whole number from 1'
    train --dp 2 --zero 0 --offload gradients;                  refuses 2 '--offload gradients: --data-parallel ddp all-reduces whole gradients'
    train --dp 2 --zero 2 --offload weights;                    refuses 2 '--offload weights: with --data-parallel zero2 a device keeps weights that other devices step'
    train --zero 3 --offload optimizer --offload-stride 2;      refuses 2 '--offload-stride 2: .*--offload optimizer,gradients,weights'
    train --zero 3 --dtype bf16 --offload optimizer --offload-stride 2;         refuses 2 '--offload-stride 2: .*--offload optimizer,gradients$'
    train --zero 3 $everything --offload-to . --offload-stride 2;               refuses 2 '--offload-stride 2: the host steps only what is in its memory'
    train --zero 3 --offload weights --pp 2 --schedule pipedream-2bw --clip 0;  refuses 2 '--offload weights: --schedule pipedream-2bw keeps two versions'
}

limited() { (ulimit -f 9000; exec "$program" "$@"); }

test_folders_that_do_not_do() {
    train --zero 3 --dp 2 $everything --offload-to nowhere;     refuses 1 '--offload-to nowhere: no file can be made in it: No such file or directory'
    train --zero 3 $everything --offload-to /dev/null;          refuses 1 '--offload-to /dev/null: no file can be made in it: Not a directory'
    make_text
    command='ulimit -f 9000; orrery train --zero 3 --offload ... --offload-to .'
    watched limited train --model small --data "$text" --steps 1 --zero 3 --dp 2 --dtype fp64 $everything --offload-to .
    refuses 1 "--offload-to \.: the slow tier's file cannot be written at byte [0-9]+: File too large"
}

run_tests test_what_fits test_checkpoints test_check_beside_the_reference test_an_outer_step_of_experts test_what_is_refused test_folders_that_do_not_do
