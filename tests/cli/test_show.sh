# `orrery show`: what a newcomer sees, and what is refused.
# tier: check
. "$(dirname "$0")/lib.sh"

test_topics() {
    run show;                   expect_status 2; expect_out '^  schedule '
    run show --help;            expect_status 0; expect_out '^usage: orrery show WHAT'
    run show schedul;           expect_status 2; expect_error 'show schedul: there is no such command; did you mean schedule\?'
    run shwo;                   expect_status 2; expect_error 'did you mean show\?'
    run show schedule --help;   expect_status 0; expect_out '^usage: orrery show schedule \[NAME\|FILE\]'; expect_columns 100
}

# Every registered schedule, in pictures that fit a terminal.
test_every_schedule() {
    local name
    run show schedule;          expect_status 0; expect_columns 100
    for name in $(sed -n 's/^  \([a-z0-9-]*\)  *[^ ].*/\1/p' "$place/out"); do
        run show schedule "$name" --pp 4 --micro 8
        expect_status 0; expect_silent; expect_columns 100; expect_out "^$name: 4 devices, 8 microbatches"; expect_out '^  bubble '
    done
    [ "$name" = skippipe ] || complain 'the list of schedules does not end with skippipe'
    run show schedule 1f1b --pp 16 --micro 100; expect_status 0; expect_columns 100
}

test_numbers() {
    run show schedule 1f1b --pp 4 --micro 8 --F 2 --I 3 --W 1 --plain
    expect_out '^  time      66, with stage times F 2, I 3, W 1, and 0 for a message$'      # (M + P - 1)(F + I + W)
    expect_out '^  bubble    27.27 %: 48 of work, in 66 '
    expect_out '^  memory    4 3 2 1 microbatches'
    expect_out '^  messages  48$'                                                             # 2 M (P - 1)
    run show schedule zb-v --pp 4 --micro 8 --plain --svg zb-v.svg --json zb-v.json
    expect_out '^  bubble    0.00 %: 48 of work, in 48 '                                        # no device waits between its actions
    expect_out '^            5.88 % with fill and drain, in 51$'                                # 3 of 51
    grep -q 'bubble 0.00 %, with fill and drain 5.88 %' zb-v.svg || complain 'the picture has one of them'
    grep -q '"idle":	0.0588' zb-v.json || complain 'JSON has one of them'
}

# Latency and bytes, by hand; a platform has two ports for each device and level, the cards, and a route for each two devices.
test_cluster() {
    run show cluster textbook;  expect_status 0; expect_silent; expect_columns 120; expect_out '^  time in     us     us      us     us      us       ms$'; expect_out '^  cluster  10\.00  10\.08   11\.31  30\.97   345\.5    5\.379$'
    run show cluster frontier --devices 9 --simgrid platform.xml
    expect_status 0; expect_out '^  node  +5\.70 .* 173\.5\*'
    [ "$(grep -c '<host ' platform.xml) $(grep -c '<link id="link-' platform.xml) $(grep -c '<route ' platform.xml)" = '9 58 72' ] || complain 'the platform is not whole'
    grep -q '"0" dst="8" symmetrical="NO"><link_ctn id="wait-0-8"/><link_ctn id="link-37"/><link_ctn id="link-52"/><link_ctn id="link-55"/><link_ctn id="link-56"/>' platform.xml ||
        complain 'a message between nodes does not leave one by its card and enter the other'
    grep -q 'id="wait-0-8" bandwidth="1EBps" latency="1.4005e-05s"' platform.xml || complain 'the latency between nodes is not 14 us and a gap of 5 ns'
    grep -q 'id="link-55" bandwidth="100000000000Bps"' platform.xml || complain 'a card has not the rate of the description'
    # What limits a pair, and an all-reduce of 1 GiB: by hand 14 steps of 3.401 us and 2^27 bytes at 64 GB/s, and sums.
    run show cluster mi300x-roce;                       expect_status 0; expect_silent; expect_columns 110
    expect_out '^  0 and 1  node     3\.40 us  64 GB/s  pair link$'; expect_out '^  0 and 8  cluster    14 us  50 GB/s  their ports$'
    expect_out '^        8  ring          4\.77 ms       4\.77 ms            29\.9 ms$'
    expect_out '^  pair link: 64 GB/s for each pair of 8 devices; only messages of level node$'
    run show cluster gb200-nvl72;                       expect_out '^  0 and 72  cluster '; expect_out '^       72  ring          3\.23 ms       3\.23 ms$'
    run show cluster h100-rails;                        expect_out '^  0 and 9  cluster    15 us '; expect_out '16 paths of 50 GB/s for what leaves and enters the 32 devices of equal rank'
    run show cluster rtx4090-node;                      expect_status 0; expect_no_out '^       64 '
    run show cluster trainium2;                         expect_out 'a torus of 4 x 4 places of 1 device, 160 GB/s up and down'
    run show cluster tpu-v4 --devices 65;               expect_status 2; expect_error 'its torus cube has places for 64 devices'
    run show cluster nothing;                           expect_status 2; expect_error 'nothing'
    run show cluster --simgrid /nowhere/x.xml;          expect_status 1; expect_error '--simgrid /nowhere/x.xml: cannot be written'
}

test_refusals() {
    run show schedule zb-h9;                            expect_status 2; expect_error 'did you mean zb-h1'
    run show schedule chimera --pp 3 --micro 4;         expect_status 2; expect_error 'P must be even'
    run show schedule 1f1b --pp 0;                      expect_status 2; expect_error '--pp 0'
    run show schedule 1f1b --F 999999999999;            expect_status 2; expect_error '--F 999999999999: must be at most'
    run show schedule ./not-there;                      expect_status 1; expect_error 'not-there: No such file'
    run show schedule 1f1b --svg /nowhere/x.svg;        expect_status 1; expect_error '/nowhere/x.svg: cannot be written'
}

test_files() {
    run show schedule zb-v --pp 2 --micro 4 --save own --svg own.svg
    expect_status 0; expect_file own; expect_file own.svg
    [ "$(head -c 4 own.svg)" = '<svg' ] || complain 'own.svg is no SVG'
    [ "$(ls | wc -l)" = 2 ] || complain "files are left: $(ls)"
    cp "$place/out" ../named
    run show schedule own;                              expect_status 0
    cmp -s "$place/out" ../named || complain 'a schedule looks different when it comes from its file'
    run show schedule own --pp 3;                       expect_status 2; expect_error 'has a schedule for --pp 2 --micro 4'
    sed -i 's/W0\.0/W9.0/' own
    run show schedule own;                              expect_status 1; expect_error 'own:[0-9]*: '
}

# A schedule of one's own trains, and is held to one device as any other.
test_train_with_a_file() {
    local train="train --model tiny --data text --steps 1 --batch 4 --seq 8"
    seq 1 2000 >text
    run show schedule zb-v --pp 2 --micro 4 --save own
    run $train --pp 2 --schedule own --dtype fp64 --check ref;      expect_status 0; expect_out '^OK'
    run $train --pp 2 --schedule own --micro 2;         expect_status 2; expect_error '--schedule own: has a schedule for --pp 2 --micro 4 --chunks 2; --pp 2 --micro 2'
    run $train --schedule own;                          expect_status 2; expect_error '--pp 1'
    run $train --pp 2 --schedule ./gone;                expect_status 1; expect_error '--schedule ./gone: No such file'
    run $train --pp 2 --schedule .;                     expect_status 1; expect_error 'is not a regular file'
    run $train --pp 2 --schedule zbv;                   expect_status 2; expect_error 'did you mean "?zb-v'
}

# Actors: two registers let all work at once, and the slowest decides; each piece is what one device makes.
test_actors() {
    run show actors;                                    expect_status 0; expect_silent; expect_columns 100
    expect_out '^  load +0011'; expect_out '^  as said +248 +6 +6 +7 +240$'; expect_out '^  1 +287 +7 +7 +4 +240$'
    expect_out '^  none +248 +6 +6 +36 '
    run show actors 'load:1,image:4<load,text:9<load,step:2<image+text' --latency 1 --json all.json; expect_status 0
    grep -q '"registers":' all.json || complain 'its JSON has no registers'
    run show actors a:1,b;                              expect_status 2; expect_error 'actor b: must be NAME:TIME'
    run show actors 'a:1,b:1<c';                        expect_status 2; expect_error 'a producer stands before its consumers'
    run show actors --pieces 1;                         expect_status 2; expect_error '--pieces'
}

# A linear layer under every tensor scheme: drawn, sent as the cost function says, and whole at the end.
test_tensor_schemes() {
    local name role devices
    run list tensor;            expect_status 0
    for name in $(sed -n 's/^  \([0-9][a-z0-9.-]*\)  *[^ ].*/\1/p' "$place/out"); do
        devices=4 role=down
        [ "$name" != 3d ] || devices=8 role=qkv
        run show tensor "$name" --devices $devices --role $role
        expect_status 0; expect_silent; expect_columns 100; expect_out "^$name$"; expect_out 'has its piece of the result'
        expect_no_out 'OTHERWISE|MUST BE|nothing'
    done
    [ "$name" = 3d ] || complain 'the list of tensor schemes does not end with 3d'
    run show tensor 2d --devices 9;                     expect_status 0; expect_columns 100; expect_out '^  15 steps, 36 messages, 15552 bytes, 0 additions'
}

# SUMMA's first blocks, and how a chunk is added up while the next one is multiplied.
test_tensor_steps() {
    run show tensor 2d --devices 4
    expect_out '^ *0 -> 1  X\[0:4,0:4\] +2 -> 3  X\[4:8,0:4\]$'
    expect_out '^ *0 -> 2  W\[0:8,0:4\] +1 -> 3  W\[8:16,0:4\]$'
    expect_out '0: Y\[0:4,0:8\]\(23\) \+= X\[0:4,4:8\] W\[0:8,4:8\]'
    expect_out '1 -> 0  dX\[0:4,0:4\]\(23\)'
    run show tensor 1d-sp-overlap --devices 2 --role down
    expect_out '1 -> 0  Y\[0:2,0:4\]\(1\)'; expect_out '^ *0 adds up Y\[0:2,0:4\] +1 adds up Y\[2:4,0:4\]$'
    run show tensor --devices 1;                        expect_status 0; expect_out '^  1 step, 0 messages'
    run show tensor --help;                             expect_status 0; expect_columns 100; expect_out '^usage: orrery show tensor \[NAME\]'
    run show tensor 2d --devices 8;                     expect_status 2; expect_error '--devices 8: 2d needs a square'
    run show tensor 3-d;                                expect_status 2; expect_error 'did you mean 3d'
    run show tensor 1d --role gate;                     expect_status 2; expect_error '--role gate'
    run show tensor 1d --devices 10;                    expect_status 2; expect_error '--devices 10: must be a whole number from 1 to 9'
}

# Attention under every scheme: drawn from what is computed with, each pair once; zigzag gives all the same work.
test_attention_schemes() {
    local name devices
    run list attention;         expect_status 0
    for name in $(sed -n 's/^  \([a-z][a-z0-9-]*\)  *[^ ].*/\1/p' "$place/out"); do
        [ "$name" != streams ] || continue          # it cuts no sequences
        devices=4
        [ "$name" != whole ] || devices=1
        run show attention "$name" --devices $devices --seq 17
        expect_status 0; expect_silent; expect_columns 80; expect_out "^$name, forward$"
        expect_out 'on every device what the cost function says$'; expect_out '^checked  each pair is computed once'
    done
    [ -n "${devices:-}" ] || complain 'the list of attention schemes is empty'
    run show attention ring;                            expect_out '^  0000111122223333$'; expect_out ' 2 6 10 14 of 32; the most is 1\.75 times the mean$'
    expect_out '^3 \.{16}  3 \.{16}  3 \.{16}  3 4444333322221111$'
    run show attention ring-zigzag;                     expect_out '^  0011223333221100$'; expect_out ' 8 8 8 8 of 32; the most is 1 times the mean$'
    # Blocks of two tokens on two devices, as torch's ptrr_scheduling deals eight tasks of 1 to 8.
    run show attention ring-ptrr --devices 2;           expect_out '^  0011110000111100$'; expect_out ' 4 4 of 8; the most is 1 times the mean$'
    run show attention ring-striped;                    expect_out '^  0123012301230123$'; expect_out '^2 \.{11}  +2 \.{11}  +2 32143214321  +2 \.{11}$'
    run show attention ulysses;                         expect_out '^head 0 +head 1 +head 2 +head 3$'; expect_out '^3 1{16}  3 1{16}  3 1{16}  3 1{16}$'
    run show attention usp --head-parallel 2;           expect_out '^heads 0-1 +heads 2-3 +heads 0-1 +heads 2-3$'
    run show attention usp --head-parallel 2 --context-first; expect_out '^heads 0-1 +heads 0-1 +heads 2-3 +heads 2-3$'
    run show attention loongtrain --heads 1 --ring-window 2; expect_out '^0 1122334444332211 '
    run show attention ring-zigzag --devices 16 --seq 64; expect_status 0; expect_columns 80
    run show attention --help;                          expect_status 0; expect_columns 100; expect_out '^usage: orrery show attention \[NAME\]'
    run show attention streams;                         expect_status 2; expect_error 'streams needs a model with parallel streams'
    run show attention ring --seq 3;                    expect_status 2; expect_error 'ring needs a token of each sequence for every device'
    run show attention ulysses --heads 2;               expect_status 2; expect_error 'ulysses needs at least as many query heads'
    run show attention usp --head-parallel 3;           expect_status 2; expect_error '--head-parallel 3: must be a divisor'
    run show attention ring-zigzg;                      expect_status 2; expect_error 'did you mean ring-zigzag\?'
    run show attention --devices 17;                    expect_status 2; expect_error '--devices 17: must be a whole number from 1 to 16'
}

# Every expert scheme: where each token goes, hop by hop; each choice is computed once, on whatever devices.
test_dispatch_schemes() {
    local name
    run list dispatch;          expect_status 0
    for name in $(sed -n 's/^  \([a-z][a-z0-9-]*\)  *[^ ].*/\1/p' "$place/out"); do
        [ "$name" != here ] || continue
        run show dispatch "$name" --devices 4 --node 2
        expect_status 0; expect_silent; expect_columns 80; expect_out "^$name$"; expect_out '^checked  each choice is computed once'
    done
    [ -n "${name:-}" ] || complain 'the list of expert schemes is empty'
    run show dispatch alltoall --devices 2 --choices 1; expect_out '^  a        a0\(0\) a1\(3\) a2\(2\)$'; expect_out '^  a -> b   a2 a1$'
    expect_out '^  b        2: a2 b1   3: a1 b0$';      expect_out '^sent     10 messages, 224 bytes in all$'
    run show dispatch alltoall --devices 2 --etp 2;     expect_status 0; expect_out '^hop 2    all-gather among 2$'; expect_out 'slices of the same$'
    run show dispatch two-step --devices 6 --node 4;    expect_status 2; expect_error 'two-step on 6 devices: needs as many devices of a group on every node'
    run show dispatch here;                             expect_status 2; expect_error 'show dispatch here: moves no tokens'
    run show dispatch --etp 3;                          expect_status 2; expect_error '--etp 3: does not divide --devices 4'
    run show dispatch --choices 8 --experts 3;          expect_status 2; expect_error '--choices 8: there are only 3 experts'
    run show dispatch alltoal;                          expect_status 2; expect_error 'did you mean alltoall'
    run show dispatch --help;                           expect_status 0; expect_columns 100; expect_out '^usage: orrery show dispatch \[NAME\]'
}

# Each preset of `orrery list` is of a family that the last error lists.
every_family_is_known() {
    local families preset
    families=$(sed -n 's/.*must be mlp or one of //; s/,\| and / /gp' "$place/err")
    run list
    for preset in $(sed -n 's/^  \([a-z0-9-]*\)-tiny .*/\1/p' "$place/out"); do
        grep -qw -- "$(case $preset in parscale) echo qwen2_parscale ;; deepseek-v2*) echo deepseek_v2 ;; gemma3) echo gemma3_text ;; *) echo "${preset//-/_}" ;; esac)" <<<"$families" ||
            complain "the family of $preset-tiny is not listed"
    done
}

test_signatures() {
    run show sbp mlp --mesh 4 --as 1d
    expect_status 0; expect_silent; expect_out '-> +mlp\.out +P +49152 +all-reduce B'; expect_out '^98304 elements are sent by all 4 devices'
    run show sbp gpt2 --mesh 2x2 --as 2d;               expect_status 0; expect_out '^166272 elements .*no other signatures send less'
    run show sbp llama --kv-heads 4 --mesh 4 --as sp;   expect_status 0; expect_out '-> +dmlp\.up +S\(2\)'; expect_out '^191232 elements .*no other'
    # the branches of a parallel block are added before they are summed up, and so are the gradients of their input
    run show sbp gptj --mesh 4 --as 1d;                 expect_status 0; expect_out '^98304 elements .*no other signatures send less'
    expect_out 'branches +P +49152 +all-reduce B'; expect_out '-> +dln_1 +P +49152 +all-reduce B'
    run show sbp mlp --mesh 2 --batch 64 --width 8 --ff 8; expect_status 0; expect_out '-> +dmlp\.up\.w +P'
    run show sbp mlp --mesh 2 --run --save pins;        expect_status 0; expect_out "tensors compared with one device"
    run show sbp mlp --mesh 2 --pins pins;              expect_status 0; expect_out "^32768 elements"
    run show sbp mlp --mesh 2 --kept 10;                expect_status 2; expect_error "--kept 10: the fullest device keeps at least [0-9]+ elements"
    run show sbp gpt2 --mesh 4 --by time --run;         expect_status 0; expect_out 'no other signatures take less time'; expect_out '^[0-9.]+ (us|ms) on a100-ethernet for all'
    run show sbp gpt2 --mesh 4 --by size;               expect_status 2; expect_error '--by size: there is no such choice; did you mean time'
    run show sbp gpt2 --mesh 4 --heads 4 --layout found; expect_status 0; expect_out '^186240 elements'
    [ "$(tail -n +2 found)" = "$(tail -n +2 "$top/emulated_devices/schemes/tensor/layouts/found.sbp")" ] || complain 'another layout is shipped'
    run show sbp gpt2 --mesh 2x2 --layout found;        expect_status 2; expect_error '--layout: training has one axis for it, tp; --mesh has two'
    run show sbp mlp --layout found;                    expect_status 2; expect_error '--layout: the graph has no attn.qkv'
    run show sbp gpt2 --mesh 2x2 --panels;              expect_status 2; expect_error '--panels: is a way to --run'
    run show sbp gpt2 --mesh 2x2 --run --panels;        expect_status 0; expect_out 'bytes sent in [0-9]+ messages'
    run show sbp ./none.sbp;                            expect_status 1; expect_error "none.sbp"
    run show sbp cnn;                                   expect_status 2; expect_error 'show sbp cnn: must be mlp or one of gpt2(, [a-z0-9_]+)+ and [a-z0-9_]+$'
    every_family_is_known
    run show sbp mixtral;                               expect_status 2; expect_error 'router.logits: a mixture of experts has no signatures: .* depends on the data'
    run show sbp llama --kv-heads 2 --mesh 4 --as 1d;   expect_status 2; expect_error 'attn.qkv cannot be S\(1\)'
    run show sbp gpt2 --kv-heads 4;                     expect_status 2; expect_error '--kv-heads 4: a gpt2 has as many key/value heads as heads'
    run show sbp mlp --mesh 1;                          expect_status 2; expect_error '--mesh 1: an axis has 2 to 64 devices'
    run show sbp mlp --mesh 2xx2;                       expect_status 2; expect_error '--mesh 2xx2: must be like 4 or 2x2'
    run show sbp mlp --mesh 4 --as 2d;                  expect_status 2; expect_error 'strategy 2d needs a mesh with two axes'
    run show sbp gpt2 --mesh 2 --width 30 --heads 4;    expect_status 2; expect_error 'width D=30 is not a multiple of H=4 heads'
    run show sbp mlp --mesh 60 --batch 2 --seq 1 --width 2 --heads 1 --ff 3; expect_status 2; expect_error 'no legal signature on 60 devices'
}

# A file that leaves out the embedding cannot be trained with; one that leaves out other stages can.
test_train_partial_and_streaming_files() {
    local train="train --model tiny --data text --steps 2 --batch 8 --seq 8 --dtype fp64 --clip 0 --check ref"
    seq 1 2000 >text
    run show schedule skippipe --pp 4 --micro 5 --skip 2 --save partial
    run $train --pp 4 --schedule partial;               expect_status 0; expect_out '^OK'
    sed -E 's/^(route 0:) 0\.0/\1 -/; s/^device 0: F0 sa0>[0-9]+/device 0:/; s/ rg0<[0-9]+ B0//' partial >headless
    run $train --pp 4 --schedule headless;              expect_status 1; expect_error 'headless:[0-9]+: device'
    printf '%s\n' 'orrery schedule 1' 'devices 2' 'micros 1' 'chunks 1' 'place 0: 0' 'place 1: 1' 'routes 1' 'route 0: - 1.0' 'device 1: F0 B0' >headless
    run $train --pp 2 --schedule headless;              expect_status 2; expect_error 'microbatch 0 leaves out stage 0, which has the embedding'

    # Backwards in two parts: other actions, the same weights.
    run show schedule pipedream-2bw --pp 2 --micro 6 --save stream
    sed -E 's/ B([0-9]+)/ I\1 W\1/g' stream >split
    run $train --pp 2 --schedule stream --save a;       expect_status 0; expect_out '^OK'
    run $train --pp 2 --schedule split --save b;        expect_status 0; expect_out '^OK'
    expect_same a/model.safetensors b/model.safetensors
    sed -E 's/^update 2/update 3/; s/^versions 2/versions 1/; s/ (U[0-9]+)//g' stream >once
    run $train --pp 2 --schedule once;                  expect_status 1; expect_error 'U2 is missing'

    # Steps inside the schedule with one version drain the pipeline in between.
    printf '%s\n' 'orrery schedule 1' 'devices 2' 'micros 4' 'chunks 1' 'place 0: 0' 'place 1: 1' 'update 2' 'versions 1' \
        'device 0: F0 F1 B0 B1 U1 F2 F3 B2 B3 U3' 'device 1: F0 B0 F1 B1 U1 F2 B2 F3 B3 U3' >drained
    run $train --pp 2 --schedule drained;               expect_status 0; expect_out '^OK'
    run ${train/--clip 0/--clip 1} --pp 2 --schedule drained;  expect_status 2; expect_error '--clip 1: --schedule drained with more than --micro 2 steps the weights inside the schedule'
    run show schedule 1f1b --pp 2 --limit 3;            expect_status 2; expect_error '--limit 3 is for zb-1p and zb-2p'
}

# The pipeline of a run, drawn; faster where layers are placed by speed.
test_timeline() {
    local train="train --model tiny --data text --steps 1 --batch 16 --seq 8 --pp 4 --cluster two-generations" even placed
    seq 1 2000 >text
    run $train --schedule zb-h1 --timeline run.svg;     expect_status 0; expect_file run.svg; expect_out '^  bubble '; expect_out '^  messages  24$'
    [ "$(head -c 4 run.svg)" = '<svg' ] || complain 'run.svg is no SVG'
    run $train --json even.json;                        expect_status 0
    run $train --json placed.json --placement speed;    expect_status 0
    even=$(sed -n 's/.*"virtual_step_ps":[^0-9]*\([0-9]*\).*/\1/p' even.json) placed=$(sed -n 's/.*"virtual_step_ps":[^0-9]*\([0-9]*\).*/\1/p' placed.json)
    [ "$placed" -lt "$even" ] || complain "a step takes $placed ps with layers by speed, $even with equal parts"
}

# Every scheme, and whole runs: not in `make check`.
longer=(test_attention_schemes test_dispatch_schemes test_train_partial_and_streaming_files)
[ "${TIER:-test}" != check ] || longer=()
run_tests test_tensor_schemes test_tensor_steps test_signatures test_actors test_topics test_every_schedule test_numbers \
          test_cluster test_refusals test_files test_train_with_a_file test_timeline "${longer[@]}"
