# `orrery train --modalities`: runs that are checked, what a plan says, checkpoints, packed samples, and what is refused.
# tier: verify
. "$(dirname "$0")/lib.sh"

model='--model llama-tiny:L=2 --batch 4 --seq 24'
samples() { printf '%s\n' '12 image:5 audio:2' 7 '20 image:4' '9 audio:3' 14 >samples; }

# planned_as_run STEPS WORDS...: bytes, messages, memory and virtual time of a plan are those of a run, device by device.
planned_as_run() {
    run plan $model --cluster h100-infiniband --steps $1 "${@:2}" --json plan.json --quiet; expect_status 0
    run train $model --cluster h100-infiniband --steps $1 "${@:2}" --json run.json --quiet; expect_status 0
    cmp -s <(planned plan.json) <(planned run.json) || complain "$*: $(diff <(planned plan.json) <(planned run.json) | head -n 6)"
}

test_run() {
    make_text
    run train --model llama-tiny --data "$text" --batch 4 --seq 24 --steps 2 --dp 2 --pp 2 --modalities 3 --encoders apart --bridge-chunks 3 --check ref
    expect_status 0; expect_out '^OK: '; expect_out '^  devices  where .* encoders$'
    run train --model llama-tiny --data "$text" --batch 4 --seq 24 --steps 2 --dp 2 --modalities 1 --encoder-slack 50 --check ref
    expect_status 0; expect_out '^OK: '
}

# A step whose gradients overflow is skipped for encoders, too.
test_overflow() {
    make_text
    run train $model --data "$text" --modalities 2 --dp 2 --zero 1 --dtype fp16 --loss-scale 16777216 --steps 12 --check ref; expect_status 0; expect_out '^OK: '
    expect_out 'skipped'
}

# Images and text together in a sequence; clips as the file says, or drawn for each sample.
test_packed() {
    samples; make_text
    run train $model --data "$text" --modalities 2 --pack samples --zero 3 --dp 2 --steps 3 --check ref; expect_status 0; expect_out '^OK: '
    run train $model --data "$text" --modalities 3 --pack lognormal:12,1 --dp 2 --dtype bf16 --recompute full --steps 2 --check ref; expect_status 0; expect_out '^OK: '
    run train $model --data "$text" --pack samples;                  expect_status 2; expect_error '--pack: a sample has a clip of image, which no encoder reads; --modalities 1 has one'
    run train $model --data "$text" --pack samples --modalities 1;   expect_status 2; expect_error '--pack: a sample has a clip of audio, which no encoder reads; --modalities 2 has one'
    run train $model --data "$text" --pack samples --modalities 3;   expect_status 2; expect_error '--modalities 3: the video encoder would never have a token: no sample has such a clip'
    printf '6 image:5\n' >cut
    run train $model --data "$text" --pack cut --modalities 1;       expect_status 2; expect_error 'cut:1: a sample of 6 tokens would cut its image of 5 patches; with text before, between and behind its clips it needs 7'
    run plan $model --pack cut --modalities 1;                       expect_status 2; expect_error 'would cut its image of 5 patches'
    printf '4\n' >short
    run train $model --data "$text" --pack short --modalities 1;     expect_status 2; expect_error 'the image encoder would never have a token: no sample has room for such a clip'
}

test_plan() {
    samples
    planned_as_run 2 --modalities 3 --dp 2 --pp 2 --zero 3
    planned_as_run 2 --modalities 3 --dp 2 --tp 2 --encoders apart --bridge-chunks 3 --dtype bf16 --recompute full
    planned_as_run 2 --modalities 2 --pack samples --dp 2 --cp 2 --zero 1
    run plan $model --modalities 3 --dp 2; expect_status 0; expect_out 'on one device of it'
}

# A checkpoint has the encoders whole, so another mesh goes on with it: as the run that was not interrupted.
test_checkpoint() {
    local whole again
    make_text
    run train $model --data "$text" --modalities 2 --dp 2 --zero 3 --steps 4 --lr-steps 4 --dtype bf16 --save one --quiet; expect_status 0
    run train $model --data "$text" --modalities 2 --dp 2 --zero 3 --steps 2 --lr-steps 4 --dtype bf16 --save half --quiet; expect_status 0
    run train --resume half --data "$text" --dp 2 --zero 3 --steps 2 --save two --quiet; expect_status 0
    for whole in one two; do sed -n 's/.*"fingerprint":[[:space:]]*\("[0-9a-f]*"\).*/\1/p' $whole/training.json >$whole.print; expect_file $whole.print; done
    expect_same one.print two.print
    run train --resume half --data "$text" --tp 2 --pp 2 --encoders apart --steps 2 --check ref; expect_status 0; expect_out '^OK: '
    run train --resume half --data "$text" --modalities 1 --dp 2 --steps 1; expect_status 2; expect_error '--modalities: saved 2, now 1'
}

# With exact sums neither the mesh nor who encodes a clip changes a bit, and --check ref compares with ==.
test_exact() {
    local bits more
    make_text
    run train $model --data "$text" --modalities 2 --steps 2 --arithmetic exact --check ref; expect_status 0
    bits=$(grep -oE 'fingerprint [0-9a-f]{16}' <<<"$out")
    for more in '--dp 2 --zero 3 --encoders apart' '--tp 2 --tensor 1d-sp --bridge-chunks 2' '--pp 2 --micro 2 --recompute full'; do
        run train $model --data "$text" --modalities 2 --steps 2 --arithmetic exact --check ref $more; expect_status 0
        expect_out "$bits, on every layout"; expect_out '^OK: .* compared with ==, sums before they round'
    done
}

# The papers' claims, as rows of a table.
test_claims() {
    run bench published --only modalities; expect_status 0; expect_out 'at least 0.9  yes'; expect_out '^  1 of 1 hold$'
    run bench published --only modalities-packed; expect_status 0; expect_out 'at least 3  yes'; expect_out '^  1 of 1 hold$'
}

test_refusals() {
    run train --modalities 4;                           expect_status 2; expect_error '--modalities 4: must be a whole number from 0 to 3'
    run train --modalities 1 --encoders nowhere;        expect_status 2; expect_error '--encoders nowhere'
    run train --encoders apart;                         expect_status 2; expect_error '--encoders: needs --modalities'
    run train --bridge-chunks 2;                        expect_status 2; expect_error '--bridge-chunks: needs --modalities'
    run train --encoder-slack 2;                        expect_status 2; expect_error '--encoder-slack: needs --modalities'
    run train --modalities 1 --tp 4 --tensor 2d;        expect_status 2; expect_error 'cuts rows of the stream; encoders need whole rows'
    run train --modalities 1 --seq 4;                   expect_status 2; expect_error '--modalities 1: the image encoder would never have a token: a clip has 3 patches or more'
    run train --modalities 1 --dp 4 --data-parallel diloco; expect_status 2; expect_error '--data-parallel diloco trains its replicas apart; an encoder is of all of them'
    run plan --modalities 1 --seq 24 --cp 2 --attention usp --head-parallel 4; expect_status 2; expect_error '--head-parallel 4: must be a divisor of --cp 2'
    run plan --modalities 1 --dtype bf16 --memory-of megatron; expect_status 2; expect_error 'trains a model of text: plan without --modalities'
    expect_nothing
}

run_tests test_run test_overflow test_packed test_plan test_checkpoint test_exact test_claims test_refusals
