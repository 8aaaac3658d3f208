# What is wrong is said in one line that names the argument, its value and what would be right; nothing is left behind.
. "$(dirname "$0")/lib.sh"

refuses() { expect_status "$1"; expect_error "$2"; expect_nothing; }

test_unknown_words() {
    run trian;                              refuses 2 'trian: there is no such command; did you mean train\?'
    run frobnicate;                         refuses 2 'frobnicate: .*orrery --help'
    train --stpes 3;                        refuses 2 '--stpes is not a flag of train; did you mean --steps\?'
    train --zzz;                            refuses 2 '--zzz is not a flag of train; see orrery train --help'
    train foo;                              refuses 2 'foo: train takes no such argument'
    train --steps;                          refuses 2 '--steps needs a value: --steps N'
    train --steps 1 --steps 2;              refuses 2 '--steps is given twice'
    train --steps many;                     refuses 2 '--steps many: must be a whole number from 0'
    train --lr -1;                          refuses 2 '--lr -1: must be a number from 0'
    train --lr nan;                         refuses 2 '--lr nan: must be a number'
    train --memory lots;                    refuses 2 '--memory lots: must be a size such as'
    train --optimizer adam;                 refuses 2 '--optimizer adam: .*did you mean adamw\?'
    train --optimizer galore --rank 0;      refuses 2 '--rank 0: must be a whole number from 1 '
    train --optimizer galore --rank 33;     refuses 2 '--rank 33: must be 1 to 32, '
    train --optimizer galore --refresh 0;   refuses 2 '--refresh 0: must be a whole number from 1 '
    train --optimizer galore --history 3;   refuses 2 '--history: is for --optimizer natural-galore, not galore'
    train --rank 4;                         refuses 2 '--rank: is for --optimizer galore and natural-galore, not adamw'
    train --optimizer galore --tp 2;        refuses 2 '--tp 2: cuts matrices, and --optimizer galore projects whole matrices; use --dp and --pp'
    train --optimizer galore --dp 2 --zero 2;   refuses 2 '--data-parallel zero2: cuts a layer between any two elements, .*; use --data-parallel ddp'
    train --tensor 1e;                      refuses 2 '--tensor 1e: .*did you mean 1d\?'
    train --data-parallel everything;     refuses 2 '--data-parallel everything: must be one of .*ddp'
    train --schedule 1f2b;                  refuses 2 '--schedule.*1f2b.*did you mean .?1f1b'
    train --zero 4;                         refuses 2 '--zero 4: must be a whole number from 0 to 3'
    train --zero 2 --data-parallel zero3;   refuses 2 '--zero 2: is zero2; --data-parallel says zero3'
    train --data-parallel zero4;            refuses 2 '--data-parallel zero4: .*did you mean zero1\?'
    train --data-parallel hsdp --dp 4;      refuses 2 '--data-parallel hsdp: give --shard-group N'
    train --zero 3 --dp 4 --shard-group 3;  refuses 2 '--shard-group 3: must divide --dp 4'
    train --dp 4 --shards 2,3,4;            refuses 2 '--shards: weights shared by 2 devices: that must divide 3'
    train --dp 4 --shards 1,2;              refuses 2 '--shards 1,2: must be three numbers of devices'
    train --dp 4 --zero 1 --shards 1,2,4;   refuses 2 '--shards 1,2,4: is for --data-parallel chain, buff and copies that train apart, not zero1'
    train --zero 3 --dp 2 --allgather rnig; refuses 2 '--allgather rnig: .*did you mean ring\?'
    train --zero 3 --dp 3 --allgather neighbour_exchange;       refuses 2 '--allgather neighbour_exchange: needs P even; --data-parallel zero3 has groups of P=3'
    train --allreduce rnig;                 refuses 2 '--allreduce rnig: .*did you mean ring\?'
    train --dtype bf16 --grad-dtype fp16;   refuses 2 '--grad-dtype fp16: gradients of a model in bf16 are kept in fp32 or in its own format'
    train --grad-dtype bf16;                refuses 2 '--grad-dtype bf16: gradients of a model in fp32 are kept in fp32 too'
    train --dtype fp16 --loss-scale 1000;   refuses 2 '--loss-scale 1000: must be a power of two'
    train --dtype bf16 --loss-scale 1024;   refuses 2 '--loss-scale 1024: is for --dtype fp16'
    train --dtype fp33;                     refuses 2 '--dtype fp33: .*did you mean fp32\?'
    train --check reff;                     refuses 2 '--check reff: .*did you mean ref\?'
    run train --model tony;                 refuses 2 '--model tony: .*did you mean tiny\?'
    run train --model zzz;                  refuses 2 '--model zzz: must be one of .*tiny'
    run train --model no/where;             refuses 2 '--model no/where: there is no such folder'
    run list modles;                        refuses 2 'WHAT modles: .*did you mean models\?'
}

test_plans_that_do_not_fit() {
    train --tp 16;                          refuses 2 '--tp 16: the model has H=8 heads'
    train --tp 5 --tensor 2d;               refuses 2 '--tp 5: --tensor 2d needs a square: 1, 4, 9'
    train --tp 9 --tensor 3d;               refuses 2 '--tp 9: --tensor 3d needs a cube: 1, 8, 27'
    train --tp 12 --tensor 2.5d;            refuses 2 '--tp 12: --tensor 2.5d needs d x q x q'
    train --recompute fulll;                refuses 2 '--recompute fulll: .*did you mean full\?'
    train --resume aut --save S;            refuses 1 '--resume aut: there is no such folder; did you mean auto\?'
    run learn ringg;                        refuses 2 'LESSON ringg: .*did you mean ring\?'
    run learn 03_rng;                       refuses 2 'LESSON 03_rng: .*did you mean 03_ring\?'
    run show sbp gtp2;                      refuses 2 'show sbp gtp2: .*did you mean gpt2\?'
    run show sbp --as ffree;                refuses 2 'strategy ffree: .*did you mean free\?'
    train --tp 2 --tensor sbp:none.sbp;     refuses 1 'none.sbp: cannot be opened'
    train --tp 2 --tensor sbp:;             refuses 2 '--tensor sbp:: must be sbp:FILE'
    train --tensor 2.5;                     refuses 2 '--tensor 2.5: .*did you mean 2.5d'
    train --recompute sometimes;            refuses 2 '--recompute sometimes: must be none, selective, selective\+\+, full, or a list'
    train --recompute 0-99;                 refuses 2 '--recompute 0-99: 0-99: the layers are 0 to '
    train --pp 9;                           refuses 2 '--pp 9: 9 stages .* model tiny has L=8'
    train --pp 4 --schedule interleaved --chunks 4;  refuses 2 '--pp 4: 16 stages .* model tiny has L=8'
    train --pp 3 --schedule chimera;        refuses 2 '--schedule.*chimera: P=3.*must be even.*P=2 or P=4 would fit'
    train --pp 4 --skip 1;                  refuses 2 '1f1b: leaves no stages out; --skip 1 is for skippipe'
    train --pp 4 --schedule skippipe --skip 3;       refuses 2 'skippipe: P=4.*skip=1\.\.2 would fit'
    train --pp 4 --update-every 4;          refuses 2 '1f1b: steps the weights once.*--update-every 4 is for pipedream-2bw'
    train --pp 4 --micro 8 --schedule pipedream-2bw --update-every 2;  refuses 2 'at least P microbatches.*; 4 or more would fit'
    train --pp 4 --micro 8 --schedule pipedream-2bw; refuses 2 '--clip 1: --schedule pipedream-2bw with more than --micro 4 steps .*; use --clip 0'
    train --pp 4 --placement fast;          refuses 2 '--placement fast: must be one of even, speed'
    train --pp 4 --timeline /nowhere/x;     refuses 1 '--timeline /nowhere/x: cannot be written'
    train --dp 2 --batch 1;                 refuses 2 '--batch 1: --dp 2 times --micro 1 needs at least 2 sequences'
    train --micro 9;                        refuses 2 '--batch 8: --dp 1 times --micro 9 needs at least 9 sequences'
    train --seq 0;                          refuses 2 '--seq 0: must be a whole number from 1'
    train --cp 2 --attention whole;         refuses 2 '--cp 2: --attention whole needs '
    train --cp 4 --attention usp --head-parallel 3; refuses 2 '--head-parallel 3: must be a divisor of --cp 4'
    train --cp 4 --attention usp --head-parallel 0; refuses 2 '--head-parallel 0: must be a whole number from 1'
    train --cp 8 --attention loongtrain --head-parallel 2 --ring-window 3; refuses 2 "--ring-window 3: must be a divisor of the ring's 4 devices"
    train --cp 4 --attention usp --ring-window 2;   refuses 2 '--ring-window 2: --attention usp has no inner rings; use --attention loongtrain'
    train --cp 4 --attention ring --context-first;  refuses 2 '--context-first: --attention ring does not .*; use --attention usp or loongtrain'
    train --ep 2;                           refuses 2 '--ep 2: --model tiny has no experts'
    train --ep 2 --dispatch here;           refuses 2 '--ep 2: --dispatch here needs '
    train --ep 0;                           refuses 2 '--ep 0: must be a whole number from 1'
    train --dp 2000000;                     refuses 2 '--dp 2000000: must be a whole number from 1 to 1048576'
    train --pp 20000;                       refuses 2 '--pp 20000: must be a whole number from 1 to 16384'
    train --dp 20000 --tp 100;              refuses 2 '--tp 100: makes the mesh larger than 1048576 devices'
    train --cp 200 --tp 100;                refuses 2 '--tp 100: makes more than 16384 devices along cp and tp'
    train_under 3 --dp 4;                   refuses 2 'the launcher started 3 processes, but --dp 4 .* mesh of 4'
    train_under 2;                          refuses 2 'the launcher started 2 processes, but --dp 1 .* mesh of 1'
    train_under 2 --tp 16;                  refuses 2 '--tp 16: '
    train_under 2 --dp 2 --optimizer adam;  refuses 2 '--optimizer adam: '
}

test_texts() {
    make_text
    local t=$place/bad; mkdir -p "$t/folder"; : >"$t/empty"; echo hello >"$t/short"
    run train --data "$t/none";             refuses 1 '--data .*/none: cannot be opened: No such file'
    run train --data "$t/empty";            refuses 1 '--data .*/empty: is empty'
    run train --data "$t/folder";           refuses 1 '--data .*/folder: has no .* to read as text'
    run train --data /dev/null;             refuses 1 '--data /dev/null: is a device, a file was expected'
    run train --data "$t/short";            refuses 2 '--data .*/short: has 6 tokens .*sequences of 64 need at least 66'
    run train --data "$t/short" --dp 2;     refuses 2 '--data .*/short: has 6 tokens'
    run_under 2 train --data "$t/short" --dp 2;  refuses 2 '--data .*/short: has 6 tokens'
}

test_outputs_that_cannot_be_written() {
    local f=$place/file; echo content >"$f"
    train --save "$f";                      refuses 1 '--save .*/file: this folder cannot be made: Not a directory'
    train --save "$f/below";                refuses 1 '--save .*/below: this folder cannot be made'
    train --dp 2 --save no/where;           refuses 1 '--save no/where: this folder cannot be made: No such file'
    train_under 2 --dp 2 --save no/where;   refuses 1 '--save no/where: '
    train --json "$f/below";                refuses 1 '--json .*/below: cannot be written'
    train --json /proc/orrery;              refuses 1 '--json /proc/orrery: cannot be written'
    train --dp 2 --json "$place";           refuses 1 '--json .*: cannot be written: it is a folder'
    train --trace "$f/below";               refuses 1 '--trace .*/below: cannot be written'
    mkdir -p "$place/save/model.safetensors"
    train --save "$place/save";             refuses 1 '--save .*/model\.safetensors: cannot be written: it is a folder'
    [ "$(ls "$place/save")" = model.safetensors ] || complain "it left something in $place/save"
    [ "$(cat "$f")" = content ] || complain "it wrote into $f"
    ! grep -q '^step' "$place/out" || complain 'it trained first'
}

# A budget that cannot hold the plan is refused before there are devices: without mpiexec none could start.
size='[0-9.]+ [KM]?i?B' enough='--memory [0-9]+[KM]iB'
too_little="needs at least $size: weights $size, gradients $size, optimizer $size, activations $size at their peaks; "
test_memory_that_cannot_do() {
    local without="env PATH=/nowhere" memory; make_text
    train --steps 3 --memory 100K;          refuses 2 "--memory 100KiB: device 0 \(the only device\) ${too_little}give it $enough or more"
    command='PATH=/nowhere orrery train --pp 2 --tp 2 --memory 100K'
    watched $without "$program" train --model tiny --data "$text" --pp 2 --tp 2 --steps 3 --memory 100K
    refuses 2 "--memory 100KiB: device [01] \(pp=0 tp=[01]\) ${too_little}give it"; expect_no_out '.'
    train_under 2 --dp 2 --memory 100K;     refuses 2 "--memory 100KiB: device [01] \(dp=[01]\) ${too_little}give it"; expect_no_out '.'
    train --steps 0 --memory 1K;            refuses 2 '--memory 1KiB: device 0 .*needs at least 1\.69 MiB: weights 433\.2 KiB, gradients 433\.2 KiB, optimizer 866\.5 KiB, activations 0 B '
    # What it says would do, does.
    memory='--dp 4 --steps 1 --batch 4 --seq 4 --memory 1400K'
    train $memory;                          refuses 2 "${too_little}--zero 3 would take $size, or give it $enough or more"
    train $memory --zero 3;                 expect_status 0; expect_silent
}

# Where only a step can tell how much is needed, one table says who holds what; what the line says would do, does.
test_memory() {
    local least
    train --steps 3 --pp 2 --tp 2 --memory 1K;  least=$(sed -n 's/.* --memory \([0-9]*\)KiB or more$/\1/p' "$place/err")
    train --steps 3 --pp 2 --tp 2 --memory "${least}K"
    refuses 1 "--memory [0-9.]+[KM]iB: device [01] \(pp=0 tp=[01]\) needs $size; $enough would be enough"
    expect_out 'weights +gradients +optimizer +activations +buffers +in all'; expect_out '^ +0-1 +pp=0 '; expect_out '^ +2-3 +pp=1 '
    expect_no_out '^step'
    local suffices; suffices=$(sed -n 's/.*--memory \([0-9]*\)KiB would.*/\1/p' "$place/err")
    train --steps 3 --pp 2 --tp 2 --memory "${suffices}K";         expect_status 0; expect_silent
    train --steps 3 --pp 2 --tp 2 --memory "$((suffices - 1))K";   expect_status 1
}

# A model that is not ours, one thing wrong at a time.  break NAME COMMAND...: the command works in a copy of the folder.
break_copy() {
    rm -rf "$place/bad"; cp -r "$place/good" "$place/bad"
    (cd "$place/bad" && "${@:2}") || complain "could not break $1"
}
edit() { LC_ALL=C sed -i "$2" "$1"; }               # as many bytes as before, or the header ends elsewhere

test_models_that_are_broken() {
    train --steps 1 --save "$place/good";   expect_status 0
    run train --data "$text" --model "$place/good" --seq 33; refuses 2 '--seq 33: .*has positions for 1 to 32 tokens'
    rm "$place/good/checkpoint.sha256"                               # a folder from somewhere else: taken as it is
    local w=model.safetensors c=config.json
    bad() { break_copy "$@"; run train --data "$text" --steps 1 --model "$place/bad"; }
    bad weights rm $w;                                              refuses 1 '--model .*/model\.safetensors: cannot be opened'
    bad weights truncate -s 100000 $w;                              refuses 1 '--model .*/model\.safetensors: tensor .*outside'
    bad weights truncate -s 1000 $w;                                refuses 1 '--model .*/model\.safetensors: '
    bad weights truncate -s 0 $w;                                   refuses 1 '--model .*/model\.safetensors: '
    bad weights cp $c $w;                                           refuses 1 '--model .*/model\.safetensors: '
    bad weights edit $w 's/transformer.ln_f.bias/transformer.ln_f.bios/';  refuses 1 'there is no tensor transformer\.ln_f\.bias'
    bad weights edit $w 's/\[256,32\]/[32,256]/';                   refuses 1 'wte\.weight is 32 x 256; the model needs 256 x 32'
    bad weights edit $w '1s/{"dtype":"F32"/{"dtype":"I32"/';        refuses 1 '--model .*/model\.safetensors: .*I32'
    bad weights edit $w '1s/{"dtype":"F32"/{"dtype":"X32"/';        refuses 1 'has dtype "X32", which the format does not know'
    bad weights sh -c "printf '\377\377\377\377\377\377\377\177' | dd of=$w conv=notrunc status=none";  refuses 1 '--model .*/model\.safetensors: '
    bad config rm $c;                                               refuses 1 '--model .*/config\.json: cannot be opened'
    bad config truncate -s 100 $c;                                  refuses 1 '--model .*/config\.json: is not JSON at line'
    bad config truncate -s 0 $c;                                    refuses 1 '--model .*/config\.json: is empty'
    bad config edit $c 's/n_layer/n_liars/';                        refuses 1 '--model .*/config\.json: .*"n_liars"'
    bad config edit $c 's/"n_layer":[^,]*,/"n_layer": 2000000000,/';  refuses 2 '--model .*L \(layers\) = 2000000000'
    bad config edit $c 's/"n_layer":[^,]*,/"n_layer": 9,/';         refuses 1 'there is no tensor transformer\.h\.8\.ln_1\.weight'
    bad config edit $c 's/"n_layer":[^,]*,/"n_layer": "8",/';       refuses 1 '"n_layer" is "8"; it must be a whole number'
    bad config edit $c 's/"n_head":[^,]*,/"n_head": 5,/';           refuses 2 'width D=32 is not a multiple of H=5 heads'
    bad config edit $c 's/"n_embd":[^,]*,/"n_embd": 2000000000,/';  refuses 2 '--model .*'
    bad config edit $c 's/"gpt2"/"bert"/';                          refuses 1 'model_type is "bert"; Orrery has only gpt2'
    break_copy weights edit $w 's/transformer.ln_f.bias/transformer.ln_f.bios/'      # found by all devices, said once
    run train --data "$text" --steps 1 --model "$place/bad" --pp 2 --tp 2;           refuses 1 'there is no tensor transformer\.ln_f\.bias'
}

test_checkpoints_that_are_broken() {
    train --steps 1 --save "$place/good";   expect_status 0
    local s=optimizer.safetensors w=model.safetensors t=training.json
    broken() { break_copy "$@"; run train --data "$text" --steps 1 --resume "$place/bad"; }       # as a disk breaks it
    bad() { break_copy "$@"; reseal "$place/bad"; run train --data "$text" --steps 1 --resume "$place/bad"; }       # whole, and wrong
    run train --data "$text" --resume "$place/none";                refuses 1 '--resume .*/none: there is no such folder'
    broken list rm checkpoint.sha256;                               refuses 1 '--resume .*/bad: not a checkpoint of orrery train --save'
    broken states rm $s;                                            refuses 1 '--resume .*/optimizer\.safetensors: cannot be opened'
    broken states truncate -s 100000 $s;                            refuses 1 '--resume .*/optimizer\.safetensors: is damaged'
    broken weights edit $w 's/\[256,32\]/[32,256]/';                refuses 1 '--resume .*/model\.safetensors: is damaged'
    broken training edit $t 's/42/43/';                             refuses 1 '--resume .*/training\.json: is damaged'
    broken config edit config.json 's/0.02/0.03/';                  refuses 1 '--resume .*/config\.json: is damaged'
    broken list edit checkpoint.sha256 's/model/nodel/';         refuses 1 '--resume .*/checkpoint\.sha256: is damaged'
    bad states edit $s 's/ln_f.bias.exp_avg"/ln_f.bias.exp_arg"/';  refuses 1 'there is no tensor transformer\.ln_f\.bias\.exp_avg'
    bad weights edit $w 's/\[256,32\]/[32,256]/';                   refuses 1 'wte\.weight is 32 x 256; the model needs 256 x 32'
    bad training edit $t 's/"step":/"stop":/';                      refuses 1 '/training\.json: "step" is missing'
    bad training edit $t 's/"step":[^,]*,/"step": -1,/';            refuses 1 '/training\.json: "step" is -1'
    bad training edit $t 's/"loss_scale":[^,]*,/"loss_scale": "1x",/';         expect_status 0         # of fp32 it says nothing
    bad training edit $t 's/"run":/"ran":/';                        refuses 1 '/training\.json: "run" is missing'
    bad training edit $t 's/"--lr":[^,]*,/"--lr": "fast",/';        refuses 2 '--resume --lr fast: must be a number'
    bad training edit $t 's/"--lr":[^,]*,/"--lr": 0.001,/';         refuses 1 'training\.json: --lr must be a text'
    bad training edit $t 's/"--seed":[^,]*,/"--sead": "42",/';      refuses 2 '--sead is not a flag'
    local good="run train --data $text --steps 1 --resume $place/good"
    $good --optimizer sgd;                  refuses 2 '--resume .*good: cannot be resumed: --optimizer: saved adamw, now sgd.*--model DIR starts a new run'
    $good --seed 7;                         refuses 2 '--resume .*good: this would be a different run: --seed: saved 42, now 7; --override'
    $good --seed 7 --dp 2;                  refuses 2 '--resume .*good: this would be a different run: --seed: saved 42, now 7; --override'
    $good --model small;                    refuses 2 '--resume .*good: cannot be resumed: model D: saved 32, now 96'
}

run_tests test_unknown_words test_plans_that_do_not_fit test_texts test_outputs_that_cannot_be_written test_memory_that_cannot_do test_memory \
          test_models_that_are_broken test_checkpoints_that_are_broken
