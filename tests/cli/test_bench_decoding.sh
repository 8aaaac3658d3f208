# `orrery bench decoding`: products of both formats have the bits of copied matrices, and all meshes have a row.  No speed is checked.
. "$(dirname "$0")/lib.sh"

test_decoding() {
    local format
    run bench decoding --products --rounds 1;       expect_status 0; expect_silent
    for format in bf16 fp16; do expect_out "^  $format +1 .*the same$"; expect_out "^  $format +8 .*the same$"; done
    expect_no_out OTHERS; expect_no_out '^  mesh'
    run bench decoding --model tiny --requests 8 --devices 2 --rounds 1;    expect_status 0
    expect_out '^an iteration of tiny, fp32'
    expect_out '^  dp 2 x tp 1 x pp 1 +8 each '; expect_out '^  dp 1 x tp 2 x pp 1 +8 '; expect_out '^  dp 1 x tp 1 x pp 2 +8 '
    run bench decoding --model none --rounds 1;     expect_status 1; expect_error 'serve: --model none: must be one of'
    run bench decoding --devices 1;                 expect_status 2; expect_error '--devices'
}

run_tests test_decoding
