# `orrery mixture`: Uni-MoE's second stage: each expert is trained alone on clips of its modality, and the mixture of them trains on.
. "$(dirname "$0")/lib.sh"

steps() { run train --data "$text" --batch 4 --seq 24 --steps 2 --quiet "$@"; }

test_stages() {
    make_text
    steps --model llama-tiny:L=2 --modalities 2 --train-only encoders --save one;       expect_status 0
    local m
    for m in image audio; do
        steps --model one --modalities 2 --clips-of $m --train-only feed --dp 2 --zero 1 --check ref --save $m;      expect_status 0
    done
    cmp -s image/model.safetensors audio/model.safetensors && complain 'both modalities train the same feed-forward'
    run mixture two --of image,audio;       expect_status 0; expect_silent
    expect_out '^experts  2, 33792 numbers, with the bits of the models. feed-forwards$'
    expect_out '^shared   .* the same in all models, with their encoders$'
    run train --model two --data "$text" --batch 4 --seq 24 --steps 2 --modalities 2 --lora 3 --train-only adapters,encoders --tp 2 --ep 2 --check ref
    expect_status 0; expect_out '^OK: '
    run train --resume image --data "$text" --steps 1 --clips-of audio;     expect_status 2; expect_error '--clips-of: saved image, now audio'
    steps --model one --modalities 2 --train-only attention --save other;   expect_status 0
    run mixture bad --of image,other;       expect_status 2; expect_error 'train each expert alone with --train-only feed'
}

test_refusals() {
    run train --clips-of audio;                     expect_status 2; expect_error '--clips-of: needs --modalities'
    run train --modalities 1 --clips-of audio;      expect_status 2; expect_error 'audio is no modality with an encoder; --modalities says how many there are'
    run train --modalities 1 --clips-of image,x;    expect_status 2; expect_error 'x is no modality with an encoder; there are image, audio and video'
    run mixture out --of nothere;                   expect_status 1; expect_error '--of nothere/config.json: cannot be opened'
    run mixture out --of a,;                        expect_status 2; expect_error '--of: a folder has no name'
}

run_tests test_stages test_refusals
