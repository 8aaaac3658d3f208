# `orrery list`: a screen of parts, a part, an operation, an axis, a name; what a wrong name is told; names that a shell completes.
. "$(dirname "$0")/lib.sh"

test_one_screen() {
    local part
    run list;                                       expect_status 0; expect_silent; expect_columns 100
    [ "$(wc -l <"$place/out")" -le 24 ] || complain "$(wc -l <"$place/out") lines are no screen"
    for part in models tensor attention dispatch data schedules collectives optimizers clusters kernels backends; do expect_out "^  $part  "; done
    expect_out '^  tensor +--tensor +[0-9]+  1d, 1d-sp, '; expect_out '^  collectives .*  [0-9]+  broadcast, reduce, allreduce'
}

# The number of a part is that of its names.
test_numbers_are_right() {
    local said
    run list;                                       said=$(sed -nE 's/^  schedules +--schedule +([0-9]+) .*/\1/p' "$place/out")
    run list schedules;                             [ "$(grep -cE '^  [a-z0-9]' "$place/out")" = "$said" ] || complain "the screen says $said schedules"
    run list;                                       said=$(sed -nE 's/^  dtypes +--dtype +([0-9]+) .*/\1/p' "$place/out")
    run list dtypes;                                [ "$(grep -cE '^  [a-z0-9]' "$place/out")" = "$said" ] || complain "the screen says $said formats"
}

test_all() {
    run list all;                                   expect_status 0; expect_silent; expect_columns 100
    expect_out '^  ring-zigzag '; expect_out '^allreduce$'; expect_out '^  two_shot '; expect_out 'orrery list clashes'
    expect_no_out '^  --attention hdp$'
    [ "$(wc -l <"$place/out")" -lt 520 ] || complain 'not a line for each entry'
}

# An axis is its part, an operation its algorithms; both say what they are of.
test_axes_and_operations() {
    run list tp;                                    expect_status 0; cp "$place/out" tp; run list tensor; cmp -s tp "$place/out" || complain 'tp is not tensor'
    run list allgather;                             expect_status 0; expect_out '^allgather$'; expect_out '^  bruck_k '; expect_no_out '^  two_shot '
    run list collectives;                           expect_status 0; [ "$(grep -cE '^(allreduce|alltoall|barrier)$' "$place/out")" = 3 ] || complain 'operations have no headings'
    expect_out '^  auto +the least time; .orrery list auto. tries'     # for seconds
    [ "$TIER" != verify ] || { run list auto;       expect_status 0; expect_out 'on 8 devices of cluster [a-z-]*: [a-z_0-9]+ from 64'; }
}

# Sources of a cluster's numbers are for who asks for the cluster.
test_names() {
    run list ring-zigzag;                           expect_status 0; expect_out '^  ring-zigzag '; expect_out '^ +sends '; expect_no_out '^  ulysses'
    run list clusters;                              expect_status 0; expect_out '^ +node +3.4 us, 350 GB/s'; expect_no_out 'ConnectX'
    run list h100-infiniband;                       expect_status 0; expect_out '^ +node +3.4 us, 350 GB/s'; expect_out 'ConnectX'; expect_no_out '^  h100-node '
}

test_wrong_names() {
    run list zigzag-ring;                           expect_status 2; expect_error 'WHAT zigzag-ring: must be one of models'
    run list rign-zigzag;                           expect_status 2; expect_error 'did you mean ring-zigzag\?'
    run list h100;                                  expect_status 2; expect_error 'did you mean one of h100-500w, .*h100-node, h100-rails'
    run list allr;                                  expect_status 2; expect_error 'did you mean allreduce\?'
    run list zzzzz;                                 expect_status 2; expect_error 'WHAT zzzzz: must be one of models'
    run plan --cluster h100;                        expect_status 2; expect_error '--cluster h100: .*did you mean one of .*h100-infiniband'
    run plan --schedule zb --pp 2;                  expect_status 2; expect_error 'did you mean one of zb-h1, zb-h2, zb-1p, zb-2p, zb-v\?'
}

# The document has every entry, whatever is printed.
test_document() {
    run list --json l.json;                         expect_status 0
    [ "$(grep -c '"part":' l.json)" -gt 300 ] || complain 'entries are missing'
    grep -A3 '"part":	"collectives"' l.json | grep -q '"operation":	"alltoall"' || complain 'an algorithm has no operation'
}

offers() { (COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); . ./completion; _orrery; printf '%s\n' "${COMPREPLY[@]}") >"$place/out"; command="completion of: $*"; }

test_names_are_completed() {
    "$program" manual bash >completion
    offers orrery train --model llama3-;            expect_out '^llama3-70b$'; expect_no_out '^small$'
    offers orrery plan --cluster h100-n;            expect_out '^h100-node$'
    offers orrery train --schedule zb-;             expect_out '^zb-v$'
    offers orrery train --allreduce two;            expect_out '^two_shot$'; expect_out '^two_level$'
    offers orrery train --allgather two;            expect_no_out '^two_shot$'
    offers orrery show schedule dual;               expect_out '^dualpipev$'
    offers orrery show alltoall pair;               expect_out '^pairwise_xor$'
    offers orrery show attention ring-z;            expect_out '^ring-zigzag$'
    offers orrery list sched;                       expect_out '^schedules$'
    offers orrery plan --kernels-of t;              expect_out '^te$'; expect_no_out 'sxm'
    "$program" manual zsh | grep -q "'1:name:(1f1b gpipe" || complain 'zsh completes no schedule'
}

run_tests test_one_screen test_numbers_are_right test_all test_axes_and_operations test_names test_wrong_names test_document test_names_are_completed
