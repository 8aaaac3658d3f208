# `orrery rl`: a run that is held to one device, its words, and one line for each wrong one.
. "$(dirname "$0")/lib.sh"

small='rl --model tiny --batch 8 --group 4 --steps 2'

test_a_run_is_held_to_one_device() {
    run $small --dp 2 --check ref; expect_status 0; expect_silent
    expect_out '^OK: tokens, losses, gradients and weights are those of one device'
    expect_out '^ *2 .*'
    expect_out 'compared .* tokens with one device: .* 0 that rounding leaves open'
    run $small --dp 2 --check ref --arithmetic exact; expect_status 0
    expect_out 'mismatch .*: 0 at most, 0 on average'
}

# Staleness 0 on devices of their own has the bits of a synchronous run; other weights draw other answers.
test_places_do_not_matter() {
    local each
    run $small --arithmetic exact --json alone.json; expect_status 0
    run $small --arithmetic exact --apart --rollout-mesh tp=2 --json apart.json; expect_status 0
    for each in alone apart; do grep -oE '"(loss|norm|reward|mismatch)":[^,]*' $each.json >$each; done
    cmp -s alone apart || complain "$(diff alone apart)"
    run rl --model tiny --batch 8 --group 4 --steps 3 --staleness 1 --json stale.json; expect_status 0
    grep -oE '"version":[^,}]*' stale.json | tail -3 | tr -d ' \t\n' | grep -q '"version":0"version":0"version":1' ||
        complain "versions: $(grep -oE '"version":[^,}]*' stale.json | tr '\n' ' ')"
}

test_wrong_words() {
    run $small --rule nobody;            expect_status 2; expect_error '--rule nobody: there is no such rule'
    run $small --group 3 --minibatches 1; expect_status 2
    run rl --model tiny --batch 8 --group 3; expect_status 2; expect_error '--group 3: does not divide the 8 answers'
    run $small --below 11;               expect_status 2; expect_error '--below 11: numbers of --digits 1'
    run $small --rollout-mesh dp=0;      expect_status 2; expect_error '--rollout-mesh dp=0: must be sizes'
    run $small --rollout-mesh cp=2;      expect_status 2; expect_error 'must be sizes of dp, tp and pp'
    run $small --vocabulary 8;           expect_status 2; expect_error '--vocabulary 8: the task has 13 tokens'
    run $small --dtype bf16;             expect_status 2; expect_error '--dtype bf16: weights that move'
    run $small --optimizer mezo;         expect_status 2; expect_error '--optimizer mezo'
    run rl --rule carl --group 4;        expect_status 2; expect_error '--group: rule carl has a critic'
    run $small --check golden/none;      expect_status 2; expect_error '--check'
    run rl --model mixtral-tiny --batch 8; expect_status 2; expect_error '--model mixtral-tiny: a mixture'
}

test_rules_are_listed() {
    local rule
    run list policies; expect_status 0; expect_silent; expect_columns 100
    for rule in verl-grpo verl-dr-grpo verl-ppo trl-grpo trl-dapo trl-batch trl-dr-grpo trl-sums carl; do expect_out "^ *$rule"; done
}

run_tests test_a_run_is_held_to_one_device test_places_do_not_matter test_wrong_words test_rules_are_listed
