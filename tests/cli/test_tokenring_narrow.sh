# TokenRing as released: results travel in 16 bits.  What is sent less, by count; the numbers are those of one device but for rounding.
. "$(dirname "$0")/lib.sh"

# Bytes of attention that device 0 sends in a step.
bytes_of() { run plan --model tiny --batch 4 --seq 32 --cp 4 --recompute none "$@" --json plan.json; expect_status 0; sed -n '/"attention":.*{/,/}/s/.*"bytes":\t\([0-9]*\),*$/\1/p' plan.json | head -n 1; }

# Device 0 returns all 8 tokens of 4 sequences, 32 numbers each, to three others, in 8 layers: 2 bytes of each number less.
test_bytes() {
    local wide narrow
    wide=$(bytes_of --dtype bf16 --attention tokenring) narrow=$(bytes_of --dtype bf16 --attention tokenring-narrow)
    [ $((wide - narrow)) = $((3 * 4 * 8 * 32 * 8 * 2)) ] || complain "results are not half as many bytes: $wide, $narrow"
    wide=$(bytes_of --dtype fp32 --attention tokenring) narrow=$(bytes_of --dtype fp32 --attention tokenring-narrow)
    [ "$wide" = "$narrow" ] || complain "fp32: $wide, $narrow"
}

test_numbers() {
    local dtype
    for dtype in bf16 fp64; do
        train --batch 2 --seq 13 --attention tokenring-narrow --steps 1 --dtype $dtype --cp 3 --check ref; expect_status 0
    done
}

# Virtual time of a scheme's forward pass on 4 devices with nodes of so many.
forward() {
    run bench attention --scheme "$1" --devices 4 --seq 24000 --heads 16 --head-width 8 --dtype bf16 --cluster "$2" --node "$3" --claims no --wall 0 --json rows.json --quiet; expect_status 0
    sed -n 's/.*"virtual_picoseconds_forward":\t*\([0-9]*\),*$/\1/p' rows.json
}

# Where each device has a port to each other one, forward beats the ring; by the clock of one port each way it does not.
test_forward() {
    local token ring
    token=$(forward tokenring-narrow a10-mesh 4) ring=$(forward ring-zigzag a10-mesh 4)
    [ $((11 * token)) -lt $((10 * ring)) ] || complain "a10-mesh: $token ps, ring-zigzag $ring"
    token=$(forward tokenring-narrow h100-infiniband 1) ring=$(forward ring-zigzag h100-infiniband 1)
    [ "$token" -ge "$ring" ] || complain "one port: $token ps, ring-zigzag $ring"
}

run_tests test_bytes test_numbers test_forward
