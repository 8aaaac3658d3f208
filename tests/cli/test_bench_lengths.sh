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

run_tests test_table test_as_a_plan test_refusals
