# A device is lost in the middle of a step: the others finish the step without it, from snapshots, with the bits of the run that
# loses nobody.
. "$(dirname "$0")/lib.sh"

small='--batch 8 --seq 8 --arithmetic exact --dropout 0.1'

losses_of() { grep -oE '^step +[0-9]+/.*norm +[0-9.]+' "$place/out" | sed -E 's/ +/ /g; s/ [#.]+ / /'; }

# loses MESH LIST: with and without the loss the steps and the weights are the same, to the last bit.
loses() {
    local words="train --model ${model:-tiny} --data $text $small --steps 4 $1"
    if [ ! -e "whole.$1" ]; then
        ORRERY_ONE_PROCESS=1 run $words;                expect_status 0
        losses_of >"whole.$1"; grep '^bits' "$place/out" >>"whole.$1"
    fi
    ORRERY_ONE_PROCESS=1 run $words --lose "$2" ${more:-};         expect_status 0; expect_silent
    { losses_of; grep '^bits' "$place/out"; } >lost
    expect_same "whole.$1" lost
    expect_out '^lost    devices? [0-9, ]+ in step [0-9]+, '
    expect_out '^snapshots of [0-9]+ steps?: .* of them to its keeper, as foreseen on every device; held '
}
test_every_moment() {
    make_text
    local model=tiny:L=2 moment moments='backward update'
    [ "$TIER" != verify ] || moments='forward backward reduction update gather'
    for moment in $moments; do loses '--dp 3 --zero 2' "2:1:$moment"; done
    more='--save saved --sharded --save-every 2 --save-async' loses '--dp 3 --zero 2' '2:2:save'
    [ -e saved/step-00000002/checkpoint.sha256 ] && [ -e saved/step-00000004/checkpoint.sha256 ] || complain "saved has $(ls saved/*)"
    run train --resume saved --steps 0;                 expect_status 0; expect_silent
}
test_other_meshes() {
    make_text
    local model=tiny:L=4
    loses '--dp 2 --tp 2 --zero 1' '3:3:update'
    expect_out '--dp 2 --tp 2 becomes --tp 2, and step 3 is done again'
    loses '--pp 3 --micro 2' '2:2:gather'
    expect_out '--pp 3 becomes --pp 2'
    loses '--dp 4' '2:3:forward,3:1:reduction'
    loses '--dp 2 --zero 1' '2:1:update'                # one device is left, which has no keeper
    loses '--dp 6 --zero 1' '2:1:update'                # ranks 1 to 3 become devices of two nodes
    [ "$TIER" = verify ] || return 0
    loses '--dp 2 --tp 2 --zero 3' '1:1'
    loses '--tp 3' '2:1:gather'
    loses '--dp 5 --zero 3' '4:4:update'
    loses '--dp 2 --cp 2 --zero 2' '2:2:reduction'
    loses '--dp 4 --zero 1' '2:1,2:3'
    model=mixtral-tiny loses '--dp 2 --ep 2 --balance-over batch' '2:1:update'
}

# A stage that has lost a device has fewer copies than the others, and layers move to these.
test_uneven_stages() {
    make_text
    more='--json lost.json' loses '--dp 2 --pp 2 --zero 1' '2:0:update'
    expect_out '--pp 2 --dp 2 becomes --plan "sections: \[\{layers: 0-1, devices: 0-0\}, \{layers: 2-7, devices: 1-2, dp: 2\}\]", and step 2 is done again'
    grep -qF '"--plan \"sections: [{layers: 0-1, devices: 0-0}, {layers: 2-7, devices: 1-2, dp: 2}]\""' lost.json || complain 'the JSON does not say the sections'
    more='--raise 30' loses '--dp 3 --pp 2 --zero 2' '2:1:update,3:0'
    expect_out '^raised  the clock rates of 3 devices, by up to 30 %'
    expect_out 'becomes --plan "sections: \[\{layers: 0-1, devices: 0-0\}, \{layers: 2-7, devices: 1-3, dp: 3\}\]"'
    # Devices of the second stage have a third of the rate of the first, and a device is lost there: one layer stays.
    loses '--dp 2 --pp 2 --cluster two-generations' '2:3:gather'
    expect_out 'becomes --plan "sections: \[\{layers: 0-6, devices: 0-1, dp: 2\}, \{layers: 7-7, devices: 2-2\}\]"'
    [ "$TIER" = verify ] || return 0
    # The rest of a copy is spare, and takes the place of the next device that is lost.
    loses '--dp 2 --pp 2 --tp 2 --zero 1' '2:5:gather,3:0:update'
    loses '--dp 2 --pp 2 --zero 3' '2:2:gather,3:3:forward'     # a stage without a device goes
    loses '--dp 3 --pp 3 --zero 3' '1:4:backward,2:0:reduction,3:8:update'
    loses '--dp 2 --pp 2 --cp 2 --zero 2' '2:6:reduction'
    model=mixtral-tiny loses '--dp 3 --pp 2 --zero 1 --balance-over sequence' '2:4:update'
    model=llama-tiny loses '--dp 2 --pp 4 --zero 2' '2:6:update'
}

# What a run has said of its mesh is a word that another one takes.
test_uneven_stages_go_on() {
    make_text
    local words="train --model tiny --data $text $small --steps 5 --dp 2 --pp 2 --zero 1"
    run $words;                                         expect_status 0
    losses_of >whole; grep '^bits' "$place/out" >>whole
    echo '4 --dp 2 --pp 2' >back
    run $words --lose 2:0:backward --elastic back --save saved --sharded --save-every 1 --save-async --json back.json
    expect_status 0; expect_silent
    { losses_of; grep '^bits' "$place/out"; } >lost
    expect_same whole lost
    expect_out '^elastic after step 4: --plan "sections: .*" becomes --pp 2 --dp 2; '
    run train --resume saved/step-00000003 --data "$text" --steps 2 --plan 'sections: [{layers: 0-1, devices: 0-0}, {layers: 2-7, devices: 1-2, dp: 2}]'
    expect_status 0; expect_silent
    grep '^bits' "$place/out" >bits; grep '^bits' whole >whole.bits; expect_same whole.bits bits
    run reshard saved/step-00000003 --to '--tp 2';      expect_status 0; expect_silent
    # The sections of a text are read as those of a file.
    run train --model tiny --plan 'sections: [{layers: 0-7, devices: 0-1, dpp: 2}]'
    expect_status 2; expect_error '--plan its text, line 1: dpp: a section has no such key; did you mean dp'
    run train --model tiny --plan 'sections: [{layers: 0-7, devices: 0-1';       expect_status 2; expect_error '--plan its text: line'
    run train --model tiny --plan 'sections: [{layers: 0-7, devices: 0-1}]' --lose 1:0;     expect_status 2; expect_error '--lose: not with --plan: its sections are of one mesh'
}

# With processes, as in one process; the device comes back by --elastic.
test_processes_and_coming_back() {
    make_text
    local words="train --model tiny --data $text $small --steps 5 --dp 3 --zero 2"
    run $words;                                         expect_status 0
    losses_of >whole; grep '^bits' "$place/out" >>whole
    echo '4 --dp 3' >back
    run $words --lose 2:1:update --elastic back --json lost.json;     expect_status 0; expect_silent
    { losses_of; grep '^bits' "$place/out"; } >lost
    expect_same whole lost
    expect_out '^elastic after step 4: --dp 2 becomes --dp 3'
    grep -q '"moment":[[:space:]]*"update"' lost.json || complain 'the JSON does not say the moment'
}

# Device 0 reports what happens; after its loss another one does.
test_device_0() {
    make_text
    more='--json lost.json' loses '--dp 3 --zero 2' '2:0:update'
    expect_out '^lost    device 0 in step 2'
    [ "$(awk '/"earlier_losses":/ { print; exit }' lost.json | grep -oE '[0-9]+\.[0-9]+' | wc -l)" = 1 ] || complain 'the JSON does not have the first loss'
    grep -q '"restored_bytes":' lost.json && grep -qE '"done_ps":[[:space:]]*[1-9]' lost.json || complain 'the JSON does not have what was lost'
    loses '--dp 4' '2:0:forward,3:1:reduction'
    local words="train --model tiny --data $text $small --steps 5 --dp 3 --zero 2"
    run $words;                                         expect_status 0
    losses_of >whole; grep '^bits' "$place/out" >>whole
    echo '4 --dp 3' >back
    run $words --lose 2:0:backward --elastic back --save saved --json back.json;      expect_status 0; expect_silent
    { losses_of; grep '^bits' "$place/out"; } >lost
    expect_same whole lost
    [ "$(awk '/"earlier_losses":/ { print; exit }' back.json | grep -oE '[0-9]+\.[0-9]+' | wc -l)" = 4 ] ||
        complain 'the JSON does not have the losses that another device reported'
    run train --resume saved --steps 0;                 expect_status 0; expect_silent
    [ "$TIER" = verify ] || return 0
    loses '--pp 3 --micro 2' '2:0:gather'
    loses '--dp 2 --tp 2 --zero 1' '2:0,3:3:update'
    run $words --lose 2:0:update;                       expect_status 0; expect_silent
}

# Groups of the devices that are left follow the nodes: of 8 devices on 2 nodes of 4, node by node, each step sends the
# gradients twice between nodes, however many devices a node still has.
test_nodes_of_the_devices_that_are_left() {
    make_text
    local words="train --model tiny --data $text --batch 8 --seq 8 --steps 3 --dp 8 --data-parallel ddp" bytes=443648 far
    between() { awk '/"data":/ { data = 1 } /"pipeline":/ { data = 0 } data && /"cluster":/ { far = 1 } far && /"bytes":/ { sum += $2; far = 0 } END { print sum + 0 }' "$1"; }
    ORRERY_ONE_PROCESS=1 run $words --allreduce two_level --lose 2:1:update --json three.json;    expect_status 0; expect_silent
    far=$(between three.json)
    [ "$far" = $((2 * 2 * bytes)) ] || complain "nodes of 3 and 4 devices: $far bytes between nodes in 2 steps"
    # A torus needs as many devices on each node: it is found on 3 and 3, though ranks would be 4 and 2.
    ORRERY_ONE_PROCESS=1 run $words --allreduce torus_2d --lose 2:1:update,2:5:update --json even.json
    expect_status 0; expect_silent
    far=$(between even.json)
    [ "$far" = $((2 * 2 * bytes)) ] || complain "nodes of 3 and 3 devices: $far bytes between nodes in 2 steps"
    ORRERY_ONE_PROCESS=1 run $words --allreduce torus_2d --lose 2:1:update
    expect_status 2; expect_error '--lose 2:1:update: no smaller mesh of step 2 can do its work'
}

# Copies of three and two sequences: those of three compute faster, up to what they may, and the bits stay.
test_clock_rates_rise() {
    make_text
    local usual raised
    more='--json usual.json' loses '--dp 4' '2:3:update'
    more='--raise 20 --json raised.json' loses '--dp 4' '2:3:update'
    expect_out '^raised  the clock rates of 2 devices, by up to 20 %'
    usual=$(grep -oE '"virtual_computing_ps":[[:space:]]*[0-9]+' usual.json | grep -oE '[0-9]+$' | tr '\n' ' ')
    raised=$(grep -oE '"virtual_computing_ps":[[:space:]]*[0-9]+' raised.json | grep -oE '[0-9]+$' | tr '\n' ' ')
    # The least that computing can take is that of the rate; what moves bytes takes as long as before.
    awk -v a="$usual" -v b="$raised" 'BEGIN { split(a, x, " "); split(b, y, " ")
        exit !(y[1] < x[1] && y[1] * 1.2 >= x[1] && y[2] == y[1] && y[3] == x[3] && y[1] >= y[3]) }' ||
        complain "the devices compute for $raised ps, and $usual ps without"
    more='--raise 80' loses '--dp 4' '2:3:update'
    expect_out '^raised  the clock rates of 2 devices, by up to 50 %'
    run train --model tiny --data "$text" $small --dp 4 --raise 20;   expect_status 2; expect_error '--raise 20: is for the devices that are left'
}

# Two neighbours at once: what only one of them had, nobody has.
test_two_at_once() {
    make_text
    local words="train --model tiny --data $text --batch 8 --seq 8 --steps 3"
    ORRERY_ONE_PROCESS=1 run $words --dp 4 --zero 2 --lose 2:1,2:2 --save kept --sharded --save-every 1
    expect_status 1; expect_error '--lose: 2 devices are lost together, and with them the only copies of a part of the state; --resume continues'
    run train --resume kept --dp 4 --zero 2 --steps 0;  expect_status 0; expect_silent
}

test_what_is_refused() {
    make_text
    local words="train --model tiny --data $text --batch 8 --seq 8 --steps 3 --dp 3"
    run $words --lose 2;                                expect_status 2; expect_error '--lose 2: must be STEP:DEVICE\[:MOMENT\]'
    run $words --lose 2:1:never;                        expect_status 2; expect_error '--lose 2:1:never: must be'
    run $words --lose 9:1;                              expect_status 2; expect_error '--lose 9:1: the run has no such step'
    run $words --lose 2:7;                              expect_status 2; expect_error '--lose 2:7: device 7 has no part in step 2'
    run $words --lose 2:1:save;                         expect_status 2; expect_error '--lose 2:1:save: nothing is saved without --save DIR'
    run $words --lose 2:1,1:2;                          expect_status 2; expect_error '--lose 2:1,1:2: steps must ascend'
    words="train --model tiny --data $text --batch 8 --seq 8 --steps 3 --dp 3"
    run $words --lose 2:1 --optimizer galore --rank 2;  expect_status 2; expect_error '--lose: not with --optimizer'
}

run_tests test_device_0 test_clock_rates_rise test_every_moment test_other_meshes test_uneven_stages test_uneven_stages_go_on test_processes_and_coming_back test_two_at_once test_what_is_refused
