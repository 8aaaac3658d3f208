# `orrery bench lengths`: six schemes on the same samples, and what their papers claim.
. "$(dirname "$0")/lib.sh"

small='--model llama-tiny:L=2 --seq 256 --pack lognormal:20,1.5'

test_table() {
    run bench lengths $small --devices 8,16 --micro 2; expect_status 0; expect_silent; expect_columns 100
    local system mesh
    for system in Ulysses 'ring \(zigzag\)' FlexSP ByteScale Zeppelin DCP; do
        expect_out "^ +8 +$system +8 x 1 +[0-9.]+ +[0-9]+ +[0-9.]+( +[0-9]+\.[0-9]{3})?$"
        expect_out "^ +16 +$system +8 x 2 +"
    done
    # A planner's seconds stand with each scheme that plans.
    expect_out '^ +16 +DCP +16 x 1 .* [0-9]+\.[0-9]{3}$'; expect_no_out '^ +16 +Ulysses .* [0-9]+\.[0-9]{3}$'
    for system in FlexSP ByteScale Zeppelin DCP; do expect_out "^ +16 +$system +16 x 1 +"; expect_out "^ +16 +$system .* (yes|same|NO)$"; done
}

# Each paper's ablation is a row, and a part for nodes changes nothing inside one.
test_ablations() {
    run bench lengths $small --devices 8,16 --micro 2; expect_status 0
    local part
    for part in 'FlexSP +groups of 8 only: Ulysses' 'FlexSP +choice of microbatches' 'ByteScale +data-aware sharding: a ring' 'ByteScale +balance over a step' \
        'Zeppelin +remapping' 'Zeppelin +routing between nodes' 'Zeppelin +placing on nodes first' \
        'DCP +rounds of messages' 'DCP +dividing by nodes first'; do
        expect_out "^ +8 +$part +[0-9.]+ +(yes|same|NO)$"; expect_out "^ +16 +$part +[0-9.]+ +(yes|same|NO)$"
    done
    expect_out '^ +8 +Zeppelin +routing between nodes +1.00 +same$'
    expect_out '^ +8 +DCP +dividing by nodes first +1.00 +same$'
    run bench lengths --devices 16 --model llama3-8b:L=2 --seq 32768 --pack lognormal:1500,1.4; expect_status 0
    expect_out '^ +16 +Zeppelin +remapping +1\.[1-9][0-9] +yes$'
    [ "$TIER" = verify ] || return 0
    run bench lengths --devices 64 --micro 4; expect_status 0
    expect_out '^ +64 +Zeppelin +routing between nodes +1\.[1-9][0-9] +yes$'
    expect_out '^ +64 +Zeppelin +placing on nodes first +[23]\.[0-9]+ +yes$'
    expect_out '^ +64 +ByteScale +balance over a step +1\.[2-9][0-9] +yes$'
}

# A run without a part has the results of one device; of what a scheme does not have, nothing is left out.
test_without() {
    local small='--model tiny --cp 4 --micro 3 --batch 3 --seq 48 --pack lognormal:12,1 --steps 1 --dtype fp64 --optimizer sgd --check ref'
    local case
    for case in 'hdp balance' 'zeppelin remap' 'zeppelin remap,routing,nodes' 'dcp divisions,nodes'; do
        run train $small --attention ${case% *} --attention-without ${case#* }; expect_status 0; expect_out '^OK: '
    done
    run plan --model tiny --cp 4 --attention zeppelin --attention-without card; expect_status 2
    expect_error '--attention-without card: --attention zeppelin has remap, routing, nodes'
    run plan --model tiny --cp 4 --attention zeppelin --attention-without remap,; expect_status 2
    run plan --model tiny --cp 4 --attention ulysses --attention-without remap; expect_status 2
    expect_error '--attention ulysses has nothing to leave out'
}

as_in_the_table='--model llama-tiny:L=2 --vocabulary 1024 --seq 256 --pack lognormal:20,1.5 --batch 2 --cp 8 --dtype bf16 --cluster h100-infiniband'

# The rate of the plan that was just made.
rate() { grep -oE '[0-9.]+[KMG]? tokens/s/device' "$place/out" | head -n 1 | awk '{ k = $1 ~ /K/ ? 1e3 : $1 ~ /M/ ? 1e6 : 1; print $1 * k }'; }

# row_has SYSTEM RATE: the system's row of 8 devices has this rate.
row_has() {
    awk -v row=" 8 +$1 +8 x 1" -v rate="$2" '$0 ~ row { for (i = 5; i <= NF; i++) if ($i > 0.99 * rate && $i < 1.01 * rate) found = 1 } END { exit !found }' "$place/out" ||
        complain "a plan of $1 has $2 tokens/s/device"
}

# A row of the table says what `orrery plan` says of that mesh.
test_as_a_plan() {
    run plan $as_in_the_table --micro 2 --attention hdp; expect_status 0
    local hdp=$(rate)
    run bench lengths $small --devices 8 --micro 2; expect_status 0
    row_has ByteScale "$hdp"
}

# FlexSP's row is a plan that chooses microbatches, of devices that hold a step at once; without the choice there are as many as others have.
test_choice() {
    local chosen given
    run plan $as_in_the_table --micro-tokens 64 --attention flexsp; expect_status 0; chosen=$(rate)
    run plan $as_in_the_table --micro 2 --attention flexsp;         expect_status 0; given=$(rate)
    run bench lengths $small --devices 8 --micro 2; expect_status 0
    row_has FlexSP "$chosen"
    awk -v r="$chosen" -v g="$given" '/FlexSP +choice of microbatches/ { x = $(NF - 1) * g / r; found = x > 0.98 && x < 1.02 } END { exit !found }' "$place/out" ||
        complain "with the choice $chosen tokens/s/device, without $given"
}

test_refusals() {
    run bench lengths --devices 12;              expect_status 2; expect_error '--devices 12: must be a multiple of 8'
    run bench lengths $small --seq 20000000;     expect_status 2; expect_error '--seq'
    : >empty
    run bench lengths --pack empty;              expect_status 1; expect_error '--pack empty: has no lengths'
}

run_tests test_table test_ablations test_without test_as_a_plan test_choice test_refusals
