# `orrery bench serving`: a row for each claim, and a verdict.
. "$(dirname "$0")/lib.sh"

test_claims() {
    local system
    run bench serving;          expect_status 0; expect_silent
    expect_out "^OK: every direction is the papers'"; expect_no_out 'ANOTHER'
    for system in Speculative Sem-MoE MARLIN NanoFlow TPI-LLM ParallelBench SN40L PIM-GPT APEX; do expect_out "^  $system "; done
    run bench serving --json -; expect_status 0; expect_out '"system":.*"MARLIN"'
    run bench serving more;     expect_status 2
}

run_tests test_claims
