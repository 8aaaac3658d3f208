# `orrery train --owners`: experts that change their owners between runs, and what is refused.
# tier: verify
. "$(dirname "$0")/lib.sh"

losses() { echo $(sed -n 's/^step .* loss  *\([0-9.]*\) .*/\1/p' "$place/out"); }
some_steps() {
    run train --data "$text" --model mixtral-tiny --batch 6 --seq 8 --dtype fp64 --optimizer sgd --lr 1 --clip 0 --dp 2 --ep 2 \
        --dispatch fssdp "$@"
    expect_status 0
}

# A checkpoint goes on with other owners and has the losses of the run that went on with the same.
test_other_owners() {
    local before
    make_text
    some_steps --steps 2 --save first --owners-out owners.json
    expect_file owners.json
    run train --resume first --data "$text" --dp 2 --ep 2 --dispatch fssdp --steps 5;                           expect_status 0
    before=$(losses)
    run train --resume first --data "$text" --dp 2 --ep 2 --dispatch fssdp --steps 5 --owners owners.json --check ref --save second
    expect_status 0; expect_out '^OK: '
    [ "$(losses)" = "$before" ] || complain "losses $(losses), not $before"
    run train --resume second --data "$text" --dp 2 --tp 2 --ep 4 --dispatch alltoall --steps 6 --check ref;    expect_status 0
    expect_out '^OK: '
}

test_refusals() {
    local words=(train --model mixtral-tiny --dp 2 --ep 2)
    make_text
    run "${words[@]}" --dispatch fssdp --owners none;       expect_status 2; expect_error '--owners none: cannot be opened'
    echo '{"parts": 2, "experts": 2, "owners": [0, 1, 2]}' >odd
    run "${words[@]}" --dispatch fssdp --owners odd;        expect_status 2
    expect_error '--owners odd: owners: 3 numbers are not 2 for each layer'
    echo '{"parts": 2, "experts": 2, "owners": [0, 1, 2, 0]}' >high
    run "${words[@]}" --dispatch fssdp --owners high;       expect_status 2
    expect_error '--owners high: owners\[2\]: must be a part, 0 to 1'
    echo '{"parts": 2, "experts": 2, "owners": [0, 1, 1, 0]}' >short
    run "${words[@]}" --dispatch fssdp --owners short;      expect_status 2
    expect_error '--owners: the file is of 2 layers of 2 experts in 2 parts, not of 8 of 8 in 2'
    run "${words[@]}" --owners short;                       expect_status 2
    expect_error '--owners: --dispatch alltoall copies no experts; fssdp does'
    run "${words[@]}" --owners-out out.json;                expect_status 2
    expect_error '--owners-out: --dispatch alltoall copies no experts; fssdp does'
    rm odd high short; run "${words[@]}" --owners none;      expect_status 2; expect_nothing
    run "${words[@]}" --data "$text" --dispatch fssdp --steps 1 --owners-out no/where;      expect_status 1
    expect_error '--owners-out no/where: cannot be written'
}

# A device without an expert sends copies again at the same moment as devices whose experts are on the slow tier.
test_devices_without_experts() {
    run train --model glm4-moe-tiny:E=3,L=3 --router sigmoid --dp 4 --ep 4 --dispatch fssdp --copies 1 --copy-again --offload weights,experts \
        --steps 2 --batch 19 --seq 7 --optimizer sgd --wait-limit 5 --check ref
    expect_status 0; expect_silent; expect_out '^OK: '
}

run_tests test_other_owners test_refusals test_devices_without_experts
