# `orrery plan --mtbf`: what failures cost a training, by hand, as text and as JSON; words that contradict each other.
# tier: check
. "$(dirname "$0")/lib.sh"

number() { sed -n "s/^[[:space:]]*\"$1\":	\\([-0-9.e+]*\\),*\$/\\1/p" "$2" | head -n 1; }
is() {                                          # is FILE 'FORMULA of keys'...: each formula is true to one part in 10^9
    local file=$1 keys key formula; shift
    keys=$(sed -n '/"failures":/,/}/s/^[[:space:]]*"\([a-z_]*\)":	\([-0-9.e+]*\),*$/-v \1=\2/p' "$file")
    for formula; do
        # shellcheck disable=SC2086  # the words of awk
        awk $keys "function near(x, y) { return (x - y)^2 <= 1e-18 * y^2 + 1e-24 } BEGIN { exit !($formula) }" || complain "$file: not so: $formula, of $keys"
    done
}

# 925.6K parameters with two states in fp32 are 12 bytes each.
test_synchronous() {
    local step
    run plan --model small --dp 4 --batch 16 --mtbf 1 --restart 60 --storage 1MB --json 1.json; expect_status 0; expect_silent
    expect_out '^failing every 60 min 0 s on average, each device every 4 h 0 min$'
    expect_out '^        a checkpoint is 10\.6 MiB: 925\.6K parameters with 2 states, 2\.65 MiB of each device$'
    expect_out '^        sync: a save holds the devices '; expect_out '^goodput [0-9.]+ % with a checkpoint every .* which is best$'
    expect_out '^        simulated, 5 seeds with '; expect_no_out 'assumed'
    step=$(number virtual_step_ps 1.json)
    is 1.json "checkpoint_bytes == 925632 * 12" 'seconds_between == 3600' 'near(write_seconds, checkpoint_bytes / 1e6)' \
        'near(held_seconds, copy_seconds + write_seconds)' 'committed_seconds == 0' 'near(restart_seconds, 60 + copy_seconds + write_seconds)' \
        "near(goodput, every * $step * 1e-12 / (3600 * exp(restart_seconds / 3600) * (exp((every * $step * 1e-12 + held_seconds) / 3600) - 1)))" \
        'near(goodput + saving + again + restarting, 1)' 'every == best_every' 'simulated_least <= goodput + 0.02 && simulated_most >= goodput - 0.02'
}

# Copies are hidden behind a step; what is not hidden, or not written in time, is waited for.
test_asynchronous() {
    run plan --model small --dp 4 --batch 16 --mtbf 1 --storage 1MB --checkpoint async --json 1.json; expect_status 0
    expect_out '^        async: a save holds the devices .* later it is committed$'; expect_out 'assumed: --restart'
    is 1.json 'near(held_seconds + committed_seconds, copy_seconds + write_seconds)' 'held_seconds < copy_seconds || copy_seconds == 0' 'near(restart_seconds, 300 + copy_seconds + write_seconds)'
    run plan --model small --dp 4 --batch 16 --mtbf 1 --storage 1MB --checkpoint async --checkpoint-every 1 --json 2.json; expect_status 0
    expect_out '^goodput .* with a checkpoint every 1 step, [0-9.]+ ms$'; expect_out '^        best is every '
    is 2.json 'every == 1' 'best_every > 1' "saving > 0.9 * (1 - restarting)"           # the next save waits 11 s for the one before
}

# The interval that is said to be best is: one step more or fewer is no better.  A device fails as often as the job does, over the devices.
test_best() {
    local best less more
    run plan --model small --dp 4 --batch 16 --device-mtbf 0.1 --restart 1 --json best.json; expect_status 0
    is best.json 'seconds_between == 90'
    best=$(number best_every best.json)
    for every in $((best - 1)) $((best + 1)) $((best * 2)); do
        run plan --model small --dp 4 --batch 16 --device-mtbf 0.1 --restart 1 --checkpoint-every "$every" --json other.json; expect_status 0
        is other.json "goodput <= $(number goodput best.json)" "every == $every" "best_every == $best"
    done
}

# A plan that is chosen, and a training on tokens.
test_whole_training() {
    run plan --devices 4 --model tiny --batch 8 --micro 2 --tokens 1M --mtbf 0.01 --seconds 1; expect_status 0
    expect_out '^failing every 36(\.0)? s'; expect_out ' with failures, .* without$'; expect_out '^again .*--mtbf 0\.01'
}

test_refused() {
    run plan --model tiny --mtbf 1 --device-mtbf 1;     expect_status 2; expect_error '--mtbf and --device-mtbf: give one'
    run plan --model tiny --mtbf 0;                     expect_status 2; expect_error '--mtbf 0: must be'
    run plan --model tiny --storage 1GB;                expect_status 2; expect_error '--storage: says something only of a job that fails'
    run plan --model tiny --checkpoint async;           expect_status 2; expect_error '--checkpoint: says something only of a job that fails'
    run plan --model tiny --mtbf 1 --checkpoint late;   expect_status 2; expect_error '--checkpoint late: must be'
    run plan --model tiny --mtbf 1 --optimizer galore;  expect_status 2; expect_error 'the bytes of a checkpoint of galore'
    run train --model tiny --mtbf 1;                    expect_status 2; expect_error '--mtbf is not a flag of train'
    run infer --model tiny --mtbf 1;                    expect_status 2; expect_error '--mtbf is not a flag of infer'
}

run_tests test_synchronous test_asynchronous test_best test_whole_training test_refused
