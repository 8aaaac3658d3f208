# What trains, from the command line: Uni-MoE's stages one behind the other, checkpoints, refusals in one line.
. "$(dirname "$0")/lib.sh"

steps() { run train --data "$text" --batch 4 --seq 24 --steps 2 --quiet "$@"; }

# Each stage goes on from the files of the one before; a model without adapters gets new ones.
test_stages() {
    make_text
    steps --model mixtral-tiny --modalities 2 --train-only encoders --save one;             expect_status 0; expect_silent
    steps --model one --modalities 2 --train-only experts,routers --ep 2 --dp 2 --save two; expect_status 0; expect_silent
    run train --data "$text" --batch 4 --seq 24 --steps 2 --model two --modalities 2 --lora 3 --train-only adapters,encoders \
        --dp 2 --zero 3 --check ref --save three
    expect_status 0; expect_out '^OK: '
    grep -q 'experts\.0\.w13\.lora_B\.weight' three/model.safetensors || complain 'the checkpoint has no adapters'
    run train --resume three --data "$text" --steps 1 --check ref --override;   expect_status 0; expect_out '^OK: '
    run train --resume three --data "$text" --steps 1 --lora 4;                 expect_status 2; expect_error '--lora: saved 3, now 4'
}

# A plan has the bytes of a run; a tensor that does not train is the same in both files.
test_plan_and_files() {
    make_text
    steps --model tiny --lora 2 --tp 2 --dp 2 --check ref --json run.json;      expect_status 0
    run plan --model tiny --lora 2 --tp 2 --dp 2 --batch 4 --seq 24;            expect_status 0
    run infer --model tiny --lora 2 --data "$text" --steps 1 --check ref;       expect_status 0; expect_out '^OK: '
}

test_refusals() {
    run train --model tiny --train-only norm;           expect_status 2; expect_error '--train-only norm: there are embeddings,norms,attention'
    run train --model tiny --train-only adapters;       expect_status 2; expect_error '--train-only adapters: there are none; --lora RANK adds them'
    run train --model tiny --lora 4 --train-only norms; expect_status 2; expect_error '--train-only norms: without adapters, which --lora adds'
    run train --model tiny --lora 4 --train-only adapters,feed; expect_status 2; expect_error 'matrices of feed have adapters, and do not train beside these'
    run train --model tiny --lora 99;                   expect_status 2; expect_error '--lora 99: the rank must be from 1 to D=32'
    run train --model tiny --lora 4 --lora-of experts;  expect_status 2; expect_error '--lora-of: model tiny has no experts'
    run train --model tiny --lora 4 --lora-of heads;    expect_status 2; expect_error '--lora-of heads: there are attention, feed and experts'
    run train --model tiny --lora-alpha 4;              expect_status 2; expect_error '--lora-alpha: needs --lora RANK'
    run train --model tiny --lora 4 --dtype bf16;       expect_status 2; expect_error '--lora 4: --dtype bf16 rounds masters'
    run train --model tiny --lora 4 --offload weights;  expect_status 2; expect_error '--lora 4: --offload'
}

run_tests test_stages test_plan_and_files test_refusals
