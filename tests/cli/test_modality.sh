# `orrery train --modalities`: a run that is checked, what it prints, and what is refused.
# tier: verify
. "$(dirname "$0")/lib.sh"

test_run() {
    make_text
    run train --model llama-tiny --data "$text" --batch 4 --seq 24 --steps 2 --dp 2 --pp 2 --modalities 3 --encoders apart --bridge-chunks 3 --check ref
    expect_status 0; expect_out '^OK: '; expect_out '^  devices  where .* encoders$'
    run train --model llama-tiny --data "$text" --batch 4 --seq 24 --steps 2 --dp 2 --modalities 1 --encoder-slack 50 --check ref
    expect_status 0; expect_out '^OK: '
}

test_refusals() {
    run train --modalities 4;                           expect_status 2; expect_error '--modalities 4: must be a whole number from 0 to 3'
    run train --modalities 1 --encoders nowhere;        expect_status 2; expect_error '--encoders nowhere'
    run train --encoders apart;                         expect_status 2; expect_error '--encoders: needs --modalities'
    run train --bridge-chunks 2;                        expect_status 2; expect_error '--bridge-chunks: needs --modalities'
    run train --encoder-slack 2;                        expect_status 2; expect_error '--encoder-slack: needs --modalities'
    run train --modalities 1 --save out;                expect_status 2; expect_error 'encoders are neither saved nor read: not with --save'
    run train --modalities 1 --dtype bf16;              expect_status 2; expect_error '--modalities: encoders compute in fp32 or fp64'
    run train --modalities 1 --tp 4 --tensor 2d;        expect_status 2; expect_error 'cuts rows of the stream; encoders need whole rows'
    expect_nothing
}

run_tests test_run test_refusals
