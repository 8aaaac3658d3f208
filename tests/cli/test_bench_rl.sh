# `orrery bench rl`: a row for each claim, and a verdict.
. "$(dirname "$0")/lib.sh"

test_claims() {
    local system
    run bench rl;          expect_status 0; expect_silent
    expect_out "^OK: every direction is the papers'"; expect_no_out 'ANOTHER'
    for system in AsyncFlow GRPO DAPO CaRL batch; do expect_out "^  $system "; done
    run bench rl --json -; expect_status 0; expect_out '"system":.*"AsyncFlow"'
    run bench rl more;     expect_status 2
}

run_tests test_claims
