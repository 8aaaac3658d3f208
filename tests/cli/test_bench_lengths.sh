# `orrery bench lengths`: six schemes on the same samples, and what their papers claim.
. "$(dirname "$0")/lib.sh"

small='--model llama-tiny:L=2 --seq 256 --pack lognormal:20,1.5'

test_table() {
    run bench lengths $small --devices 8,16 --micro 2; expect_status 0; expect_silent; expect_columns 100
    local system mesh
    for system in Ulysses 'ring \(zigzag\)' FlexSP ByteScale Zeppelin DCP; do
        expect_out "^ +8 +$system +8 x 1 +[0-9.]+ +[0-9]+ +[0-9.]+$"
        expect_out "^ +16 +$system +8 x 2 +"
    done
    for system in FlexSP ByteScale Zeppelin DCP; do expect_out "^ +16 +$system +16 x 1 +"; expect_out "^ +16 +$system .* (yes|NO)$"; done
}

# Each paper's ablation is a row, and a part for nodes changes nothing inside one.
test_ablations() {
    run bench lengths $small --devices 8,16 --micro 2; expect_status 0
    local part
    for part in 'FlexSP +groups of 8 only: Ulysses' 'ByteScale +data-aware sharding: a ring' 'ByteScale +balance over a step' \
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

# A row of the table says what `orrery plan` says of that mesh.
test_as_a_plan() {
    run bench lengths $small --devices 8 --micro 2 --json bench.json; expect_status 0
    run plan --model llama-tiny:L=2 --vocabulary 1024 --seq 256 --pack lognormal:20,1.5 --batch 2 --micro 2 --cp 8 --attention hdp \
        --dtype bf16 --cluster h100-infiniband
    expect_status 0
    local rate=$(grep -oE '[0-9.]+[KMG]? tokens/s/device' "$place/out" | head -n 1 | sed 's/ .*//')
    run bench lengths $small --devices 8 --micro 2
    awk -v rate="$rate" '/ByteScale +8 x 1/ { k = rate ~ /K/ ? 1e3 : rate ~ /M/ ? 1e6 : 1; r = $(NF - 1) / (rate * k); exit !(r > 0.99 && r < 1.01) }' "$place/out" ||
        complain "a plan has $rate tokens/s/device"
}

test_refusals() {
    run bench lengths --devices 12;              expect_status 2; expect_error '--devices 12: must be a multiple of 8'
    run bench lengths $small --seq 20000000;     expect_status 2; expect_error '--seq'
    : >empty
    run bench lengths --pack empty;              expect_status 1; expect_error '--pack empty: has no lengths'
}

run_tests test_table test_ablations test_without test_as_a_plan test_refusals
