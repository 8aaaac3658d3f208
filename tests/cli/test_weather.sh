# `orrery train` and `plan --model fourcastnet-tiny`, `orrery bench weather`: verdicts, refusals, one line each.
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
    for words in '--members 1' '--polar 8' '--azimuth 8' '--dp 5' '--ensemble 3' '--tp 2' '--zero 2' '--zero 3' '--save-every 2' \
                 '--check x' '--dtype fp32' '--optimizer mezo' '--recompute all' '--log x'; do
        # shellcheck disable=SC2086
        weather $words; expect_status 2; expect_error "${words%% *}"; expect_no_out .
    done
    run train --polar 2;                expect_status 2; expect_error '--polar: is for models with fields'
    run infer --model fourcastnet-tiny; expect_status 2; expect_error 'which only orrery train and plan take'
    run show plan --model fourcastnet-tiny;                 expect_status 2; expect_error 'which only orrery train'
    run plan --polar 2;                 expect_status 2; expect_error '--polar: is for models with fields'
    run plan --model fourcastnet-tiny --polar 8;            expect_status 2; expect_error '--polar 8'
    run plan --model fourcastnet-tiny --memory-of megatron; expect_status 2; expect_error '--memory-of'
    run plan --model fourcastnet-tiny --steps 0;            expect_status 2; expect_error '--steps 0'
    weather --json /nowhere/x;          expect_status 1; expect_error '--json /nowhere/x'
}

# What each device sends, holds and waits for, in a document.
devices_of() { sed -n '/"device":/,/^\t\]/p; /"virtual_ps"/p; /"memory_bytes"/p' "$1"; }

# A plan has the messages, bytes, memory and virtual time of a run, on every device.
test_plan_is_a_run() {
    local words
    for words in '--polar 2 --azimuth 2' '--dp 2 --ensemble 2 --polar 3 --convolution halo --batch 3 --zero 1'; do
        # shellcheck disable=SC2086
        weather $words --steps 2 --json run.json;                         expect_status 0
        # shellcheck disable=SC2086
        run plan --model fourcastnet-tiny $words --steps 2 --json plan.json; expect_status 0; expect_silent
        devices_of run.json >run; devices_of plan.json >plan
        [ "$(wc -l <run)" -gt 40 ] || complain "$words: a run has only $(wc -l <run) lines of devices"
        cmp -s run plan || complain "$words: a plan differs from the run: $(diff run plan | head -2 | tr '\n' ' ')"
    done
    weather --dry-run --polar 2; expect_status 0; expect_out 'a plan: there are no numbers'; expect_out '^fits    yes'
}

# The published model has 710,867,670 parameters; whole it does not fit into 80 GB, as its configurations say.
test_published_sizes() {
    run plan --model fourcastnet-3 --batch 1 --members 2 --ensemble 2 --cluster h100-infiniband --json plan.json
    expect_status 3; expect_error 'needs .* more'; expect_out '^fits    NO'; expect_out '710.9M parameters'
    grep -q '"parameters":[^0-9]*710867670' plan.json || complain "parameters: $(grep '"parameters"' plan.json)"
    run plan --model fourcastnet-3 --batch 1 --members 2 --ensemble 2 --polar 4 --azimuth 4 --cluster h100-infiniband
    expect_status 0; expect_out '^fits    yes'
}

same_files() { bash "$top/tests/same_tensors.sh" "$1/$3.safetensors" "$2/$3.safetensors" || complain "$1 and $2"; }

# Two steps and two more are four, to the bit; on other meshes, those of one device.
test_checkpoints() {
    local words
    export ORRERY_ONE_PROCESS=1
    weather --lr-steps 4 --steps 4 --save whole --json -;               expect_status 0
    words=$(losses | cut -d ' ' -f 3-4)
    weather --lr-steps 4 --steps 2 --save half; expect_status 0; expect_out '^saved   half, after step 2'
    weather --lr-steps 4 --steps 2 --resume half --save both --json -;  expect_status 0
    [ "$(losses)" = "$words " ] || [ "$(losses)" = "$words" ] || complain "losses are $(losses), not $words"
    same_files whole both model; same_files whole both optimizer
    for words in '--dp 2' '--ensemble 2' '--dp 3 --zero 1' '--polar 2 --azimuth 2' '--polar 3 --ensemble 2' \
                 '--dp 2 --polar 4 --zero 1'; do
        # shellcheck disable=SC2086
        weather --lr-steps 4 --steps 1 --resume half --check ref $words; expect_status 0; expect_out '^OK: '
    done
    weather --steps 0 --lr-steps 4 --resume half --polar 3 --dp 2 --zero 1 --save same; expect_status 0
    same_files half same model; same_files half same optimizer
    unset ORRERY_ONE_PROCESS
}

optimizer_bytes() { sed -nE 's/.*"optimizer_bytes":[^0-9]*([0-9]+).*/\1/p' "$1" | sort -n | tail -1; }

# With ZeRO each of the devices with the same tile keeps and steps its part of the optimizer's states.
test_zero() {
    local whole part
    export ORRERY_ONE_PROCESS=1
    weather --steps 2 --dp 2 --ensemble 2 --json whole.json;                     expect_status 0
    weather --steps 2 --dp 2 --ensemble 2 --zero 1 --check ref --json part.json; expect_status 0; expect_out '^OK: '
    unset ORRERY_ONE_PROCESS
    whole=$(optimizer_bytes whole.json); part=$(optimizer_bytes part.json)
    [ "$((part * 4))" -ge "$whole" ] && [ "$((part * 4))" -lt "$((whole + 4096))" ] ||
        complain "a device keeps $part bytes of states, of $whole"
}

# Settings that make another run, and folders that are none, are refused in one line.
test_checkpoints_refused() {
    weather --steps 0 --save half;                 expect_status 0
    weather --resume half --steps 1 --lr 0.5;      expect_status 2; expect_error '--lr: saved 0.001[0-9]*, now 0.5'
    weather --resume half --steps 1 --batch 3;     expect_status 2; expect_error '--batch: saved 4, now 3'
    weather --resume half --steps 1 --optimizer sgd;                    expect_status 2; expect_error '--optimizer'
    weather --resume none --steps 1;               expect_status 1; expect_error '--resume none'
    weather --backend count --save x;              expect_status 2; expect_error '--save'
    weather --save /nowhere/x;                     expect_status 1; expect_error '--save /nowhere/x'
    run train --model tiny --steps 0 --save words; expect_status 0
    weather --resume words --steps 1;              expect_status 1; expect_error 'not a checkpoint of a weather model'
    cp -r half bad; printf x >>bad/optimizer.safetensors
    weather --resume bad --steps 1;                expect_status 1; expect_error 'optimizer.safetensors: is damaged'
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

run_tests test_meshes_hold test_numbers_do_not_depend_on_the_mesh test_refusals test_plan_is_a_run \
    test_published_sizes test_checkpoints test_checkpoints_refused test_zero \
    test_one_member test_nothing_is_claimed \
    test_thousand_devices test_another_mesh test_bench
