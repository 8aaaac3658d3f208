# `orrery show OP ALGO`, `orrery bench collectives` and the name auto: what they say, and what is refused.
. "$(dirname "$0")/lib.sh"

# What `orrery list collectives` has for an operation, auto included; but not what needs GPUs.
algorithms_of() { "$program" list collectives | awk -v op="$1" '/^[a-z]/ { now = $1 } now == op && /^  [a-z]/ && $1 != "nccl" { print $1 }'; }

# The drawing in the header of allreduce/ring.c, from messages that really happened.
test_ring_as_drawn() {
    run show allreduce ring --devices 3 --cluster textbook
    expect_status 0; expect_silent; expect_columns 100
    sed -n '/^start/,/^step 3/p' "$place/out" | grep device >../cells
    cat >../want <<'END'
    device 0  0      0      0
    device 1  1      1      1
    device 2  2      2      2
    device 0  0      0      02
    device 1  01     1      1
    device 2  2      12     2
    device 0  0      *      02
    device 1  01     1      *
    device 2  *      12     2
END
    cmp -s ../cells ../want || complain 'it is not the ring of the header'
    expect_out '^  0 -> 1  b0\(0\)   1 -> 2  b1\(1\)   2 -> 0  b2\(2\)$'
    expect_out '^  0 -> 1  b2\(02\)   1 -> 2  b0\(01\)   2 -> 0  b1\(12\)$'
    expect_out '^4 steps, '
    expect_out "^every device sent and added what the algorithm's cost function says$"
    expect_out '^every device has the expected result$'
}

# A cluster whose switches add.
adding_cluster() { sed 's/"level": "node",/"level": "node", "reduces": true,/; s/"name": "h100-node"/"name": "adds"/' "$top/emulated_devices/device/clusters/h100-node.json"; }

test_in_network() {
    adding_cluster > adds.json
    seq 1 2000 >text
    run verify collectives --only in_network --cluster adds.json --devices 5; expect_status 0
    expect_no_out ' 0 cases'
    run train --model tiny --data text --steps 2 --dp 4 --batch 8 --seq 8 --allreduce in_network --cluster adds.json --dtype fp64 --check ref
    expect_status 0; expect_out '^traffic counted messages, bytes and additions .* equal the formulas'; expect_out '^OK'
    run train --model tiny --data text --dp 4 --allreduce in_network --cluster h100-node; expect_status 2
    expect_error '--allreduce in_network: needs links that reduce directly between all members'
    run show cluster adds.json;     expect_status 0; expect_out '^ +8  in_network '
    run plan --model small --dp 4 --tp 2 --batch 8 --allreduce in_network --cluster adds.json --memory 0; expect_status 0
}

# Every algorithm; at its end every cell that must be is finished.
test_every_algorithm() {
    adding_cluster > adds.json
    local op name cluster devices n=0 few=4 many=4          # below `make verify` every fourth
    [ "${TIER:-test}" != verify ] || few=6 many=8
    for op in allreduce reduce reduce-scatter broadcast scatter gather allgather alltoall scan barrier sparse-allgather sparse-reduce-scatter; do
        for name in $(algorithms_of $op); do
            n=$((n + 1))
            [ "${TIER:-test}" = verify ] || [ $((n % 4)) = 0 ] || continue
            devices=$few
            [ "$name" = pairwise_xor ] || [ "$name" = scatter_doubling ] && devices=$many
            [ "$name" = two_level ] && devices=8    # two nodes of 4
            case $name in
            two_level) cluster=a100-ethernet;;
            in_network) cluster=adds.json;;
            *) cluster=h100-infiniband;;
            esac
            run show $op "$name" --devices $devices --plain --cluster $cluster
            expect_status 0; expect_silent; expect_columns 100; expect_out "^every device sent and added"
            [ $op = barrier ] || expect_out '^every device has the expected result'
            case $op in
            allreduce|allgather|broadcast)
                [ "$(tail -n $((devices + 5)) "$place/out" | grep -cE '^    device [0-9]+( +\*)+$')" = $devices ] ||
                    complain 'something is not finished at the end';;
            esac
        done
    done
}

test_show_other_lengths() {
    run show allreduce bidirectional_ring --devices 4 --count 8;    expect_status 0; expect_out 'b0\[1/2\]\(0\)'; expect_columns 100
    run show broadcast chain --devices 3 --count 20000;             expect_status 0; expect_columns 100
    run show allreduce ring --devices 4 --count 0;                  expect_status 0; expect_out '^0 steps'
    run show allreduce ring --devices 1;                            expect_status 0
    run show allreduce --devices 16;                                expect_status 0; expect_out '^allreduce, two_shot: '
    run show allgather auto --devices 6;                            expect_status 0; expect_out '^allgather, direct: '
}

test_show_refusals() {
    run show allreduce rign;                        expect_status 2; expect_error 'allreduce rign: .*did you mean ring\?'
    "$program" list backends | grep -q cuda ||      # a program with cuda has it
        { run show allreduce nccl;                  expect_status 2; expect_error 'allreduce nccl: this program was built without it: make CUDA=1'; }
    run show alreduce;                              expect_status 2; expect_error 'did you mean allreduce\?'
    run show allgather neighbour_exchange --devices 5;  expect_status 2; expect_error 'allgather neighbour_exchange needs P even; --devices is 5'
    run show allreduce ring --devices 17;           expect_status 2; expect_error '--devices 17'
    run show broadcast flat --root 4;               expect_status 2; expect_error '--root 4 must be one of the 4 devices'
    run show allreduce two_level --devices 8 --cluster h100-infiniband; expect_status 2
    expect_error 'allreduce two_level needs a group on several nodes of the cluster; --devices is 8, --cluster h100-infiniband'
    run show allreduce torus_2d --devices 6 --cluster a100-ethernet;    expect_status 2
    expect_error 'allreduce torus_2d needs as many members on every node of the cluster; --devices is 6, --cluster a100-ethernet'
    run show allreduce ring --cluster none;         expect_status 2; expect_error '--cluster none'
}

# Nodes of 4 and 2: the first device of each talks to the other node, and nobody else does.
test_nodes() {
    run show allreduce two_level --devices 6 --cluster a100-ethernet
    expect_status 0; expect_silent; expect_columns 100; expect_out "^every device sent and added"
    expect_out '0 -> 4'; expect_out '4 -> 0'; expect_no_out '[123] -> [45]'; expect_no_out '[45] -> [123]'
    run verify collectives --devices 3 --cluster laptop-flat --json -
    expect_status 0; expect_out '"why"|"refused":	"a group on several nodes of the cluster"'; expect_no_out '^[0-9]+ device'
    run verify collectives --devices 2 --cluster none;                          expect_status 2; expect_error '--cluster none'
    run list collectives;           expect_out 'needs a group on several nodes of the cluster'
    seq 1 2000 >text
    run train --model tiny --data text --steps 1 --batch 6 --seq 8 --dp 6 --allreduce two_level --cluster a100-ethernet --dtype fp64 --check ref
    expect_status 0; expect_out '^traffic counted messages, bytes and additions .* equal the formulas'; expect_out '^OK'
    run train --model tiny --data text --dp 4 --allreduce two_level --cluster laptop-flat;     expect_status 2
    expect_error '--allreduce two_level: needs a group on several nodes of the cluster; --data-parallel ddp has groups of P=4'
}

# One number of a JSON row: field NAME of the N-th row.
rows() { grep -c '"algorithm":' "$1"; }

test_bench() {
    run bench collectives allreduce --algo ring,doubling --devices 2,3 --bytes 64,1K --runs 2 --json all.json
    expect_status 0; expect_silent; expect_file all.json
    expect_out '^allreduce, 2 devices on [0-9]+ cores'; expect_out '^allreduce, 3 devices on '
    expect_out '^ +64 B +16  ring +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +4 +'    # 2(P-1) messages with P = 3
    expect_out 'best: (ring|doubling), .*;  auto: '
    [ "$(rows all.json)" = 16 ] || complain "$(rows all.json) rows in the file, expected 16: 2 groups, 2 sizes, 2 algorithms and 2 of MPI"
    [ "$(grep -c '"errors":.*[^0-9]0,$' all.json)" = 16 ] || complain 'a row without "errors": 0'
    run bench collectives --algo ring --devices 2 --bytes 64 --runs 1 --json -
    expect_status 0; expect_out '^	"operation":	"allreduce",$'; expect_no_out 'best:'
    run bench collectives --algo two_shot --devices 2 --bytes 64K --runs 1
    expect_status 0; expect_out ' copies alone .* 1\.00 +1\.00$'
    expect_out ' times as long as copies alone \([0-9.]+ by the least times, [0-9.]+ by time of processors\), [0-9.]+ times as long as copies in step \('
}

# Every operation beside MPI's own, with exact results from both; below `make verify` one with equal parts, with a root, without
# numbers, and one that MPI has not.
test_bench_every_operation() {
    local op all='reduce-scatter scatter barrier sparse-allgather'
    [ "${TIER:-test}" != verify ] || all='reduce-scatter allgather alltoall broadcast reduce gather scatter scan barrier sparse-allgather sparse-reduce-scatter'
    for op in $all; do
        run bench collectives $op --devices 3 --bytes 4,1000 --runs 1
        expect_status 0; expect_silent; expect_out "^$op, 3 devices"; expect_out ' MPI, yielding '
    done
}

test_bench_refusals() {
    run bench collectives alreduce;                 expect_status 2; expect_error 'did you mean'
    run bench collectives --algo rign;              expect_status 2; expect_error '--algo rign: .*did you mean ring\?'
    run bench collectives --devices 0;              expect_status 2; expect_error '--devices 0: must be numbers from 1 to 64'
    run bench collectives --devices 2,x;            expect_status 2; expect_error '--devices 2,x'
    run bench collectives --bytes 2;                expect_status 2; expect_error '--bytes 2: must be sizes from 4 to 1G'
    run bench collectives --bytes 4M:8;             expect_status 2; expect_error '--bytes 4M:8'
    run bench collectives --bytes 8:x;              expect_status 2; expect_error '--bytes 8:x'
    run bench collectives --devices 2 --bytes 64 --runs 1 --algo ring --json /nowhere/x.json
    expect_status 1; expect_error '/nowhere/x.json'
}

# Counted traffic equals the formulas of whatever auto takes for each call.
test_train_with_auto() {
    seq 1 2000 >text
    run train --model tiny --data text --steps 1 --batch 4 --seq 8 --dp 2 --tp 2 --dtype fp64 --allreduce auto --check ref
    expect_status 0; expect_out '^traffic counted messages, bytes and additions .* equal the formulas'; expect_out '^OK'
    run train --data text --dp 2 --allreduce auot;  expect_status 2; expect_error 'did you mean auto\?'
    run list collectives;                           expect_out '^  auto .*the least time'; expect_columns 100
    expect_out 'Up to 64'
}

run_tests test_ring_as_drawn test_in_network test_every_algorithm test_show_other_lengths test_show_refusals test_nodes test_bench test_bench_every_operation \
          test_bench_refusals test_train_with_auto
