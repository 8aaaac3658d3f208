# What is in flight, early or late (ORRERY_STREAMS): correct programs end with the same bits, and the variable is checked.
. "$(dirname "$0")/lib.sh"

everything='--offload optimizer,gradients,weights'
schemes=(
    "--dp 3 --zero 3"
    "--dp 2 --zero 3 $everything --offload-slice 1000"
    "--dp 2 --dtype bf16 --zero 3 --offload optimizer,gradients --offload-stride 2"
    "--dp 2 --zero 3 --tiles 3 $everything --offload-to ."
    "--pp 2 --dp 2 --zero 1 --micro 4"
    "--tp 4 --tensor 1d-sp-overlap"
)
more=(
    "--dp 4 --data-parallel fsdp" "--dp 4 --data-parallel hsdp --shard-group 2" "--dp 4 --zero 2" "--dp 4 --bucket 1000" "--dp 3 --data-parallel diloco --local-steps 2"
    "--dp 2 --zero 3 --quantize-weights int8 --quantize-gradients int8" "--pp 4 --schedule zb-h1 --micro 8" "--dp 2 --optimizer mezo --zero 3"
    "--tp 2 --tensor 1d-sp --pp 2 --dp 2" "--tp 4 --tensor 2d" "--dp 2 --optimizer galore --rank 4"
)
modes=(latest random:1)
if [ "${TIER:-test}" = verify ]; then schemes+=("${more[@]}"); modes=(earliest latest random:{1..6}); fi

save_with() {                           # save_with MODE FLAGS: $bits is a hash of all that is saved
    rm -rf saved
    ORRERY_STREAMS=$1 train $2 --steps 2 --save saved
    expect_status 0
    expect_file saved/model.safetensors
    bits=$(cat saved/*.safetensors | cksum)
}

# Memory that a message is being received into must not be read for the checks: backend discrete stops that.
test_host_views() {
    local m
    for m in earliest random:1; do
        ORRERY_STREAMS=$m train --tp 4 --tensor 1d-sp-overlap --steps 1 --backend discrete
        expect_status 0; expect_silent
    done
}

test_bits() {
    local s m want bits
    for s in "${schemes[@]}"; do
        save_with off "$s"
        want=$bits
        for m in "${modes[@]}"; do
            save_with "$m" "$s"
            [ "$bits" = "$want" ] || complain "ORRERY_STREAMS=$m orrery train $s: other bits than with off"
        done
    done
}

test_refusals() {
    local m
    for m in late random random: random:x -1; do
        ORRERY_STREAMS=$m train --dp 2 --steps 1
        expect_status 2
        expect_error 'ORRERY_STREAMS is neither off, earliest, latest nor random:SEED'
    done
}

# Virtual times do not change, and neither does a trace.
test_times() {
    ORRERY_STREAMS=off train --dp 2 --zero 3 $everything --steps 2 --trace off.json; expect_status 0
    ORRERY_STREAMS=latest train --dp 2 --zero 3 $everything --steps 2 --trace late.json; expect_status 0
    expect_same off.json late.json
}

run_tests test_host_views test_bits test_refusals test_times
