# `orrery train --model fourcastnet-tiny` and `orrery bench weather`: verdicts, refusals, one line each.
. "$(dirname "$0")/lib.sh"

weather() { run train --model fourcastnet-tiny "$@"; }

test_meshes_hold() {
    weather --steps 2 --check ref; expect_status 0; expect_silent
    expect_out '^OK: losses, gradients and weights are those of one device'
    weather --steps 2 --check ref --dp 2 --polar 2 --convolution halo; expect_status 0
    expect_out 'samples 2 x ensemble 1 x polar 2 x azimuth 1, 4 devices'; expect_out '^OK: '
}

losses() { sed -nE 's/.*"loss":[^0-9]*([0-9]+\.[0-9]{9}).*/\1/p' "$place/out" | tr '\n' ' '; }

test_numbers_do_not_depend_on_the_mesh() {
    local alone
    weather --steps 2 --json -; expect_status 0
    alone=$(losses)
    [ "$(wc -w <<<"$alone")" = 2 ] || complain "there are not two losses: $alone"
    weather --steps 2 --ensemble 2 --azimuth 2 --json -; expect_status 0
    [ "$alone" = "$(losses)" ] || complain "the losses are $(losses), on one device $alone"
    expect_out '"format":.*"orrery train fields"'; expect_out '"activations_bytes"'
}

# Each is refused by the name of the flag, in one line, before a device starts.
test_refusals() {
    local words
    for words in '--members 1' '--polar 8' '--azimuth 8' '--dp 5' '--ensemble 3' '--tp 2' '--zero 1' '--save x' \
                 '--check x' '--dtype fp32' '--optimizer mezo' '--recompute all' '--log x' '--dry-run'; do
        # shellcheck disable=SC2086
        weather $words; expect_status 2; expect_error "${words%% *}"; expect_no_out .
    done
    run train --polar 2;                expect_status 2; expect_error '--polar: is for models with fields'
    run infer --model fourcastnet-tiny; expect_status 2; expect_error 'which only orrery train takes'
    run plan --model fourcastnet-tiny;  expect_status 2; expect_error 'which only orrery train takes'
    run plan --polar 2;                 expect_status 2; expect_error 'not a flag of plan'
    weather --json /nowhere/x;          expect_status 1; expect_error '--json /nowhere/x'
}

# One member may be scored as a distribution: then the score is the distance.
test_one_member() {
    weather --steps 1 --members 1 --fairness 0 --check ref --polar 3; expect_status 0
    expect_out 'score of the distribution'
}

# What is not computed is not shown as a number, and what is not compared is not called right.
test_nothing_is_claimed() {
    weather --steps 1 --backend count; expect_status 0
    expect_out 'the backend only counts'; expect_out '^ +1 +- +- '
    weather --steps 0 --check ref; expect_status 0; expect_no_out '^OK: '
}

# The mesh of the paper: 16 samples x 16 members x 4 tiles.
test_thousand_devices() {
    [ "${TIER:-test}" = verify ] || return 0
    ORRERY_ONE_PROCESS=1 weather --batch 16 --members 16 --dp 16 --ensemble 16 --polar 2 --azimuth 2 --steps 1 --check ref
    expect_status 0; expect_out '1024 devices'; expect_out '^OK: '
}

# A launcher that starts another number of devices is told so, by every device alike.
test_another_mesh() {
    run_under 3 train --model fourcastnet-tiny --dp 2; expect_status 2; expect_error 'started 3 processes, but --dp 2'
}

test_bench() {
    run bench weather;      expect_status 0; expect_silent
    expect_out '^OK: every direction'; expect_no_out 'ANOTHER'
    run bench weather more; expect_status 2
}

run_tests test_meshes_hold test_numbers_do_not_depend_on_the_mesh test_refusals test_one_member test_nothing_is_claimed \
    test_thousand_devices test_another_mesh test_bench
