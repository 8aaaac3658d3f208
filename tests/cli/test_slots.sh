# `--slots`: where devices are in the machine decides times and links, never a number; what is refused.
. "$(dirname "$0")/lib.sh"

plan='plan --model llama-tiny --batch 16 --micro 1 --dp 4 --tp 2'
times() { run $plan "$@"; expect_status 0; virtual=$(grep -oE '^virtual [0-9.]+ [a-z]+' <<<"$out"); }

# The usual order is a permutation that moves nobody; whole nodes may change places; scattered groups are slower.
test_times() {
    local usual
    times;                       usual=$virtual;    expect_out 'tensor messages, node  '
    times --slots tp,dp;         [ "$virtual" = "$usual" ] || complain "$virtual, not $usual"
    times --slots 0-7;           [ "$virtual" = "$usual" ] || complain "$virtual, not $usual"
    times --slots 4-7,0-3;       [ "$virtual" = "$usual" ] || complain "$virtual, not $usual"
    times --slots dp;            [ "$virtual" != "$usual" ] || complain "dp first takes $usual, too"
    expect_out '^slots   devices 0, 1, .. are at places 0 4 1 5 2 6 3 7 of the machine$';    expect_out 'tensor messages, cluster  '
    local scattered=$virtual
    times --slots 0,4,1,5,2,6,3,7;    [ "$virtual" = "$scattered" ] || complain "$virtual, not $scattered"
}

# Devices that do the same are run once also where they have places of their own, to the same picosecond.
test_folded() {
    local slots exact plan='plan --model llama-tiny --batch 64 --micro 1 --dp 8 --tp 2 --zero 1'
    for slots in 8-15,0-7 0-3,8-11,4-7,12-15 0,4,1,5,2,6,3,7,8,12,9,13,10,14,11,15 0-6,8,7,9-15; do
        times --slots $slots --json plan.json;               exact=$(grep -o '"virtual_step_ps":[^,]*' plan.json)
        [ $slots = 0-6,8,7,9-15 ] || expect_out '^folded  dp 8 -> [124]'
        times --slots $slots --json plan.json --unfolded;    [ "$exact" = "$(grep -o '"virtual_step_ps":[^,]*' plan.json)" ] || complain "--slots $slots folded: $exact"
    done
}

# Numbers and counters hold, also of collectives by nodes and of sections.
test_numbers() {
    make_text
    run train --model llama-tiny --data "$text" --batch 16 --dp 4 --tp 2 --steps 1 --slots dp --allreduce auto --check ref
    expect_status 0;    expect_out '^OK: every activation';    expect_out '^traffic counted messages'
    printf 'sections:\n  - { layers: 0-1, devices: 0-3, tp: 2 }\n  - { layers: 2-3, devices: 4-6 }\n' >plan.yaml
    run train --model llama-tiny:L=4 --data "$text" --batch 12 --steps 1 --plan plan.yaml --slots 6,4,2,0,1,3,5 --check ref
    expect_status 0;    expect_out '^OK: every activation';    expect_out '^traffic counted messages'
}

# The drawing says where each device is.
test_drawn() {
    run show plan --model llama-tiny --batch 16 --micro 1 --dp 4 --tp 2 --slots dp;    expect_status 0
    expect_out '^ +1  dp=0 tp=1, place 4 '
}

refused() { run $plan --slots "$1"; expect_status 2; expect_error "--slots $1: $2"; }

test_refused() {
    refused x 'must be axes such as dp,tp,pp, or places such as 4-7,0-3'
    refused tp,tp 'must be axes'
    refused tp, 'must be axes'
    refused 0-8 'a place is beyond the last device'
    refused 0-3 'there must be a place for each device'
    refused 0,0-6 'a place comes twice'
    refused 3-1 'a range goes up'
    refused 0-6,7, 'ends with a comma'
    refused 0- 'a range has a last place'
    printf 'sections:\n  - { layers: 0-7, devices: 0-3 }\n' >plan.yaml
    run plan --model llama-tiny --plan plan.yaml --slots dp;    expect_status 2;    expect_error 'sections have no common axes'
}

run_tests test_times test_folded test_drawn test_numbers test_refused
