# `orrery plan`: the planned of a run without running it: to the byte and the picosecond those of `orrery train`; plans of thousands of devices; what does not fit.
. "$(dirname "$0")/lib.sh"

same() {
    run plan --model "$1" --steps 2 "${@:2}" --json plan.json
    expect_status 0; expect_silent
    make_text; run train --model "$1" --data "$text" --steps 2 "${@:2}" --json run.json
    expect_status 0
    cmp -s <(planned plan.json | grep -v '^\t"steps"') <(planned run.json | grep -v '^\t"steps"') ||
        { command="orrery plan --model $*"; complain "$(diff <(planned plan.json) <(planned run.json) | head -n 6)"; }
}

test_as_a_run() {
    sed 's/"name": "toy"/"name": "waits"/; s/"eager_bytes": 65536/"eager_bytes": 0/' "$top/emulated_devices/device/clusters/toy.json" > waits.json
    same tiny --dp 2 --tp 2
    same llama-tiny --dp 3 --zero 3 --cluster a100-ethernet
    same tiny --pp 2 --cp 2 --schedule zb-h1 --micro 4
    same tiny --pp 2 --micro 4 --schedule interleaved --chunks 2 --stage-layers ends --dp 2 --data-parallel zero1-overlap --bucket 20K
    same llama-tiny --tp 2 --pp 2 --tensor 1d-sp --recompute full --dtype bf16
    same tiny --tp 2 --pp 2 --schedule dualpipe --micro 6 --pairs --receives-ahead 2 --cluster ./waits.json
    same llama-tiny --dp 2 --zero 3 --comm-streams 3
    same tiny --dp 2 --tp 2 --zero 3 --tensor 1d-sp-overlap --comm-streams 4
    same tiny --dp 2 --tp 2 --bucket 20K --comm-streams 1
}

test_as_many_runs() {
    local axes
    for axes in '--dp 4' '--tp 4' '--pp 4' '--cp 4' '--dp 2 --pp 3' '--tp 3 --model-is-gpt2' '--dp 2 --tp 2 --pp 2' '--cp 2 --tp 2 --dp 2'; do
        axes=${axes% --model-is-gpt2}
        same llama-tiny $axes
        same tiny $axes --cluster a100-ethernet --dtype bf16
        same qwen3-tiny $axes --optimizer momentum --cluster h100-infiniband
    done
    for axes in ddp zero1 zero1-overlap zero2 zero3 fsdp-once; do same tiny --dp 4 --data-parallel $axes --micro 2; done
    same tiny --pp 4 --micro 4 --stage-layers 1,..,3
    for axes in gpipe interleaved bfs zb-h1 zb-h2 zb-v dualpipev; do same tiny --pp 2 --schedule $axes --micro 4; done
    for axes in ring ulysses ring-striped allgather-kv; do same tiny --cp 4 --attention $axes; done
    for axes in 1d-sp 1d-sp-keep 2d 2.5d 3d; do same tiny --tp 4 --tensor $axes; done
    for axes in 1 3 4; do
        same tiny --dp 2 --tp 2 --bucket 20K --tensor 1d-sp-overlap --comm-streams $axes
        same llama-tiny --dp 4 --zero 3 --micro 2 --cluster a100-ethernet --comm-streams $axes
        same tiny --pp 2 --dp 2 --schedule dualpipe --micro 4 --pairs --comm-streams $axes
    done
    for axes in full selective; do same llama-tiny --dp 2 --recompute $axes; done
    same tiny --dp 2 --zero 3 --offload optimizer,gradients,weights
    same tiny --dp 4 --zero 3 --quantize-weights int8 --quantize-gradients int4
}

# Rows of experts: dealt evenly or by Zipf's law, or as a run's routers have sent them.
test_loads() {
    local axes
    same mixtral-tiny --dp 2 --ep 2 --load even
    same mixtral-tiny --dp 2 --tp 2 --ep 4 --tensor 1d-sp --dispatch two-step --load zipf:1.2
    make_text
    for axes in '--dp 4 --ep 4 --dispatch fssdp --copies 2' '--dp 2 --ep 2 --dispatch tutel' '--dp 2 --ep 2' '--dp 4'; do
        run train --model mixtral-tiny --data "$text" --steps 2 $axes --save-load load --json run.json; expect_status 0
        run plan --model mixtral-tiny --steps 2 $axes --load load --json plan.json; expect_status 0; expect_out '^load    load: '
        cmp -s <(planned plan.json | grep -v '^\t"steps"') <(planned run.json | grep -v '^\t"steps"') ||
            complain "$axes: $(diff <(planned plan.json) <(planned run.json) | head -n 6)"
    done
    run train --model mixtral-tiny --dp 2 --ep 2 --load load --steps 2 --check ref; expect_status 0
    run plan --model mixtral-tiny --dp 2;                       expect_status 0; expect_out '^load    even: '; expect_out '^folded  dp 2 -> 1'
    run plan --model mixtral-tiny --dp 2 --load zipf:1;         expect_status 0; expect_out 'the experts have different loads'
    run plan --model mixtral-tiny --batch 4 --load load;        expect_status 1
    expect_error '--load load: is of 8 layers, 256 rows of a batch and 2 experts a token, and this run of 8, 128 and 2'
    run plan --model tiny --load even;                          expect_status 2; expect_error '--load even: --model tiny has no experts'
    run plan --model mixtral-tiny --load zipf:x;                expect_status 2; expect_error '--load zipf:x: S must be a number from 0, uniform, to 10'
    run plan --model mixtral-tiny --load nowhere;               expect_status 1; expect_error '--load nowhere: cannot be opened'
    run train --model tiny --save-load load;                    expect_status 2; expect_error '--save-load load: --model tiny has no experts'
    run train --model mixtral-tiny --save-load /nowhere/x;      expect_status 1; expect_error '--save-load /nowhere/x'
}

test_many_devices() {
    run plan --dp 16 --tp 8 --pp 4 --batch 64 --micro 4
    expect_status 0; expect_silent; expect_out '^mesh    pp=4 x dp=16 x tp=8, 512 devices$'; expect_out '^fits    yes: '
    run plan --model llama3-8b --dtype bf16 --tp 8 --dp 4 --zero 3 --batch 8 --seq 4096 --cluster h100-infiniband
    expect_status 0; expect_out '^model   llama3-8b: .* 8\.03B parameters'; expect_out '^        [0-9.]+ TFLOP/s/device, MFU [0-9.]+ % .attention by half.$'
    expect_columns 120
}

# Utilization of GPT-2's shape, by formulas of docs/words.md: three times the forward pass, over what 4 devices of 100 GFLOP/s could do.
test_utilization() {
    run plan --model tiny --dp 2 --tp 2 --batch 8 --seq 32 --cluster toy --json plan.json; expect_status 0
    expect_out '^        [0-9.]+K tokens/s/device$'; expect_out '^        [0-9.]+ GFLOP/s/device, MFU [0-9.]+ % .attention whole.$'
    local numbers; numbers=$(tr -d '\t\n' <plan.json | grep -oE '"(L|D|F|V|virtual_step_ps|tokens_per_second_per_device|attention_(by_half|whole))":[0-9.e+-]+' | cut -d: -f2 | tr '\n' ' ')
    awk -v numbers="$numbers" 'function far(x, y) { return x < y * (1 - 1e-9) || x > y * (1 + 1e-9) }
        BEGIN {
            if (split(numbers, n, " ") != 10) exit 1
            L = n[1]; D = n[2]; F = n[3]; V = n[4]; seconds = n[5] * 1e-12; N = 8 * 32; S = 32
            products = N * (2 * D * V + L * (2 * D * 3 * D + 2 * D * D + 4 * D * F))
            half = 3 * (products + L * 4 * D * N * (S + 1) / 2); whole = 3 * (products + L * 4 * D * N * S)
            exit far(n[6], N / seconds / 4) || far(n[7], half / seconds / 4) || far(n[8], whole / seconds / 4) || far(n[9], half / seconds / 4e11) || far(n[10], whole / seconds / 4e11)
        }' || complain "not the utilization of the formulas: $numbers"
}

# Devices that are alike share a line, though their numbers are no neighbours: on 1024 devices there are as many lines as stages.
# A training of T tokens: whole steps, and time, energy and dollars by hand from the virtual time of a step.
test_a_whole_training() {
    local step
    sed 's/"watts": 1275/"watts": 1000, "cents_per_hour": 250/' "$top/emulated_devices/device/clusters/h100-node.json" >mine.json
    run plan --model tiny --dp 4 --batch 8 --seq 32 --cluster "$PWD/mine.json" --tokens 1.5M --json plan.json; expect_status 0
    expect_out '^tokens  1.50M .--tokens. are 5.86K steps of 256, each as long as this one'
    expect_out ' 4 kW, 1000 W a device'; expect_out ' US dollars, 2.50 for a device hour'; expect_no_out 'does not say'
    step=$(sed -n 's/.*"virtual_step_ps":[[:space:]]*\([0-9]*\).*/\1/p' plan.json)
    tr -d '\n\t' <plan.json | grep -o '"training":{[^}]*}' | tr ',{}' '\n\n\n' | tr -d '"' >numbers
    awk -F : -v step="$step" '
        function near(x, y) { if (!(y > 0) || (x - y) ^ 2 > (1e-5 * y) ^ 2) { print name, x, "not", y; bad = 1 } }
        { of[$1] = $2 }
        END { seconds = 5860 * step * 1e-12
            name = "steps"; near(of["steps"], 5860); name = "tokens"; near(of["tokens"], 1500000)
            name = "seconds"; near(of["seconds"], seconds); name = "hours"; near(of["device_hours"], 4 * seconds / 3600)
            name = "joules"; near(of["joules"], 4000 * seconds); name = "dollars"; near(of["us_dollars"], 2.5 * 4 * seconds / 3600)
            exit bad }' numbers >wrong || complain "a budget: $(cat wrong)"
    # what a cluster does not say is not guessed
    run plan --model tiny --cluster h100-node --tokens 1.5M; expect_status 0; expect_out 'does not say what a device costs'; expect_no_out 'dollars'
    run plan --model tiny --cluster toy --tokens 300b; expect_status 0; expect_out 'does not say what a device draws and costs'; expect_no_out 'kWh'
    run plan --model tiny --cluster toy --json plan.json; expect_status 0; expect_no_out '^tokens'; ! grep -q '"training"' plan.json || complain 'a budget that nobody asked for'
    run plan --tokens 15X; expect_status 2; expect_error 'must be a count such as 4096, 300B or 15T'
    run train --tokens 4; expect_status 2; expect_error '--tokens is not a flag of train'
}

test_classes() {
    run plan --dp 16 --tp 8 --pp 8 --batch 64 --micro 4 --cluster toy; expect_status 0
    expect_out '^ +0-127  pp=0 '; [ "$(wc -l <"$place/out")" -lt 70 ] || complain "a plan of 1024 devices has $(wc -l <"$place/out") lines"
    expect_out '^ +128-895  pp=1-6 +192\.0 in 8  106\.1 in 30  672\.0 in 224$'
    run plan --dp 2 --tp 3 --model tiny --batch 4; expect_status 0
    expect_out '^ +1, 4  tp=1, all 2 dp +0\.154 +0\.154 '; expect_out '^ +1, 4  tp=1, all 2 dp +157\.3 in 2 +363\.7 in 144$'
    run plan --dp 3 --tp 2 --batch 8 --seq 8 --model tiny --zero 3; expect_status 0
    expect_out '^      0-3  dp=0-1 +[0-9.]+ +[0-9.]+ '; expect_out '^      4-5  dp=2 +[0-9.]+ +[0-9.]+ '
}

# Reports, tables and JSON are of classes, so that they are as long for 131072 devices as for 16; what a device has is
# found by its coordinates, modulo "every".
test_as_many_as_there_are() {
    run plan --model llama3-8b --dp 2048 --tp 8 --pp 8 --batch 2048 --seq 64 --dtype bf16 --memory 0 --cluster textbook --json plan.json; expect_status 0
    expect_out '^mesh    pp=8 x dp=2048 x tp=8, 131072 devices$'; expect_out '^folded  dp 2048 -> 1, tp 8 -> 1: 8 of 131072 devices ran$'
    expect_out '^ +0, 1, \.\.  pp=0, all 2048 dp|^ +0-16383  pp=0 '; [ "$(wc -c <plan.json)" -lt 80000 ] || complain "plan.json has $(wc -c <plan.json) bytes"
    [ "$(lines '^\t\t\t"stands_for":\t16384,$')" = 8 ] || complain 'not 8 classes of 16384 devices'
    run plan --model tiny --dp 16381 --batch 16381 --cluster textbook; expect_status 2       # blocks of a sum differ in size
    expect_error '--dp 16381: at least 16381 of 16381 devices would have to run, which is too many .data allreduce over dp.* --zero 1 pads what copies share to equal blocks, so any number of them folds$'
    run plan --model tiny --dp 16381 --batch 16381 --cluster textbook --zero 1; expect_status 0; expect_out '^folded  dp 16381 -> 1: 1 of 16381 devices ran$'
    run plan --model tiny --dp 16381 --batch 16384 --micro 1 --cluster textbook --zero 1; expect_status 2
    expect_error 'dp: copies have different numbers of sequences.; of --batch 16384 all copies have as many with --dp 8192 or 16384$'
    run plan --model tiny --dp 4 --pp 2 --tp 3 --batch 4 --cluster textbook --json plan.json; expect_status 0; expect_out '^ +0, 3, \.\.  pp=0 tp=0, all 4 dp '
    run plan --model tiny --dp 4 --pp 2 --tp 3 --batch 4 --cluster textbook --unfolded --json all.json; expect_status 0; expect_out '^ +0, 3, \.\.  pp=0 tp=0, all 4 dp '
    [ "$(lines '^\t\t\t"rank"') $(lines '^\t\t\t"rank"' all.json)" = '6 24' ] || complain 'not 6 classes of 24 devices'
    cmp -s <(planned plan.json) <(planned all.json) || complain "$(diff <(planned plan.json) <(planned all.json) | head -n 6)"
}

# A vocabulary that divides is folded over tp.
test_padded_vocabulary() {
    run plan --model tiny --vocabulary 50257 --tp 8 --cluster textbook; expect_status 0; expect_out 'V=50257,'; expect_out 'tp: the vocabulary is no multiple'
    run plan --model tiny --vocabulary 50257 --tp 8 --cluster textbook --pad-vocabulary 128; expect_status 0; expect_out 'V=51200,'; expect_out '^folded  tp 8 -> 1: 1 of 8 devices ran$'
    run plan --model tiny --vocabulary 50257 --pad-vocabulary 128; expect_status 0; expect_out 'V=50304,'
    run plan --model tiny --vocabulary 16777216 --tp 3 --pad-vocabulary 128; expect_status 2; expect_error '--pad-vocabulary 128: with --tp 3 makes 16777344 tokens, more than 16777216'
    run plan --model tiny --pad-vocabulary 0; expect_status 2; expect_error '--pad-vocabulary 0: must be'
}

# Trained as rows: with the padded rows all is equal to one device, and the plan is the run.
test_padded_runs() {
    local axes
    for axes in '--tp 1' '--tp 2' '--tp 3 --batch 6' '--tp 4' '--pp 5 --tp 1' '--dp 3 --tp 2 --batch 6' '--dp 2 --tp 4'; do
        make_text; run train --model llama-tiny --data "$text" --steps 2 $axes --vocabulary 259 --pad-vocabulary 4 --check ref; expect_status 0
        expect_out '^OK: every activation'; expect_out ' V=26[0-9],| V=27[0-9],'
    done
    same llama-tiny --tp 3 --batch 6 --vocabulary 259 --pad-vocabulary 4
    same tiny --tp 2 --dp 2 --vocabulary 259 --pad-vocabulary 4
}

# A device without bounds is none: there is no speed-up over it.
test_speed_up_over_a_device_that_is() {
    run plan --model llama3-70b --dtype bf16 --tp 8 --pp 8 --batch 8 --micro 8 --seq 64 --memory 0 --cluster h100-infiniband; expect_status 0
    expect_out ' a step on cluster h100-infiniband$'; expect_no_out 'speed-up'
}

lines() { sed -n "/$1/p" "${2:-plan.json}" | wc -l; }

sum() { awk '{ sum += $1 } END { printf "%.0f", sum }'; }

# The critical path is as long as the step; the parts of an average device's time, too; and the peak has its moment.
test_where_time_goes() {
    run plan --dp 2 --tp 2 --pp 2 --micro 4 --schedule zb-h1 --json plan.json; expect_status 0
    expect_out '^critical path of the step'; expect_out '^    tensor messages, node +[0-9.]+ '; expect_out '^    together +[0-9.]+  100.0$'
    expect_out '^bubble  [0-9.]+ % of a step'; expect_out '^exposed [0-9.]+ % of a step.*: tensor [0-9.]+'
    expect_out '^peak    of device [0-7], [0-9.]+ MiB: in (back|for)ward.* of microbatch [0-3], layer [0-7], '
    expect_out '^        held at the peak, in [KM]iB:$'; expect_out '^ +[0-9.]+  parameters \([0-9]+ tensors\)$'; expect_out '^ +[0-9.]+  activations \([0-9]+ tensors\)$'
    local step path waits
    step=$(sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' plan.json)
    path=$(sed -n '/"critical_path"/,/\]/s/.*"ps":\t\([0-9]*\),*$/\1/p' plan.json | sum)
    [ "$path" = "$step" ] || complain "the path takes $path ps, the step $step"
    waits=$(sed -n '/"mean_device_ps"/,/"bubble"/s/.*":\t\([0-9]*\),*$/\1/p' plan.json | sum)
    [ $((step - waits)) -ge 0 ] && [ $((step - waits)) -lt 20 ] || complain "a device works and waits $waits ps, the step takes $step"
    [ "$(lines '^\t\t\t"classes":\t2,$') $(lines '^\t\t\t"devices_of_a_class":\t4,$')" = '1 1' ] || complain "not two classes of 4 devices"
    run plan --dp 4 --tp 2 --zero 3 --cluster frontier --json plan.json; expect_status 0
    step=$(sed -n 's/^\t"virtual_step_replayed_ps":\t\([0-9]*\),*$/\1/p' plan.json)
    path=$(sed -n '/"critical_path"/,/\]/s/.*"ps":\t\([0-9]*\),*$/\1/p' plan.json | sum)
    [ "$path" = "$step" ] || complain "with shared links: the path takes $path ps, the step $step"
}

# Operations of the path, one a line.
operations() { sed -n '/"critical_path"/,/\]/s/.*"what":\t"\([^"]*\)",*$/\1/p' plan.json; }

# What no framework runs takes no time: a dropout that drops nothing, and copies of a gradient that two read.
test_nothing_runs_that_does_nothing() {
    local model operation
    for model in llama-tiny 'tiny --dropout 0' gptj-tiny gemma2-tiny 'parscale-tiny' 'llama-tiny --recompute full'; do
        run plan --model $model --json plan.json; expect_status 0
        for operation in dropout copy; do
            operations | grep -qx "$operation" && complain "--model $model: there is an operation \"$operation\""
        done
    done
    run plan --model tiny --dropout 0.1 --json plan.json; expect_status 0
    operations | grep -qx dropout || complain "with --dropout 0.1 there is no dropout"
    run plan --model llama-tiny --tp 2 --tensor 1d-sp --json plan.json; expect_status 0      # a row of others is gathered beside
    operations | grep -qx dropout && complain "sequence parallelism drops"
    operations | grep -qx copy || complain "the rows that are gathered with others' are not copied"
}

test_what_does_not_fit() {
    run plan --model llama3-70b --dtype bf16 --dp 8 --batch 8 --seq 512 --cluster h100-infiniband
    expect_status 3; expect_out '^fits    NO: device 0 .dp=0. needs [0-9.]+ TiB of 74\.5 GiB \(80 GB\), [0-9.]+ TiB too much$'; expect_error '--memory 80GB: device 0 .dp=0. needs [0-9.]+ TiB, [0-9.]+ TiB more$'
    run plan --model small --dp 8 --batch 16 --memory 14M; expect_status 3; expect_error '--memory 14MiB: device 0 .dp=0. needs [0-9.]+ MiB, [0-9.]+ MiB more$'
    [ "$(sed -n '/^        what would fit:$/,$p' "$place/out" | grep -cE '^ +[0-9.]+ MiB +[0-9.]+ ms a step  --')" = 3 ] || complain 'not three changes, a line each'
    run plan --model llama3-8b --dtype bf16 --dp 8 --memory 20G --cluster h100-infiniband; expect_status 3      # four changes at once
    expect_out '^ +1[0-9.]+ GiB +[0-9.]+ (ms|s ) a step  --data-parallel [a-z0-9]+ --recompute [a-z+]+ --offload optimizer --micro [0-9]+$'
    run plan --model llama3-8b --memory 0 --cluster toy --batch 1 --seq 64; expect_status 0; expect_silent; expect_no_out '^fits'      # no limit
    run plan --model llama3-8b --cluster toy --batch 1 --seq 64; expect_status 3; expect_out '^fits    NO'       # the cluster's
    run plan --dp 2 --memory 1M; expect_status 3; expect_error '--memory 1MiB: device [01] .dp=[01]. needs [0-9.]+ MiB, [0-9.]+ MiB more$'; expect_out '^        none of the changes that were tried would fit$'
}

# More than a process has addresses for; and longer than virtual time counts.
test_beyond_all_bounds() {
    run plan --model llama3-8b --batch 1024 --memory 1000T --cluster h100-infiniband
    expect_status 0; expect_out '^ +72\.[0-9]+  activations'; expect_out 'held at the peak, in TiB:'
    run plan --model llama3-405b --dp 2 --offload optimizer
    expect_status 2; expect_error '--cluster toy: a step of 512 sequences computes for 617 days; virtual time counts up to 50: take a faster cluster, more devices'
}

# What is offloaded takes no memory of this machine, nor of its disk: 0.8 TB here.  And a mixture of 45000 parameters on 64 devices.
test_offloaded() {
    local large='plan --model llama3-70b --dtype bf16 --dp 2 --seq 512 --memory 10T --offload-slice 1000000000'
    run $large --offload optimizer;                    expect_status 0; expect_out '^folded  dp 2 -> 1'
    run $large --offload optimizer --offload-to .;     expect_status 0; expect_out '^folded  dp 2 -> 1'
    run plan --model deepseek-v3 --dtype bf16 --pp 8 --dp 8 --ep 8 --batch 8 --seq 16 --memory 1T; expect_status 0; expect_out ': 64 of 64 devices ran'
}

# Links that devices share: a second line and its number; a run of a card that nobody notices.
test_shared_links() {
    run plan --dp 8 --tp 1 --zero 3 --cluster tpu-v4 --json -;      expect_status 0
    expect_out '"virtual_step_replayed_ps":'
    run plan --dp 4 --tp 2 --cluster frontier;                      expect_status 0
    expect_out '^ +[0-9.]+ (us|ms) a step with the links that devices share, replayed in order of time$'
    run plan --dp 4 --tp 2;                                         expect_no_out 'links that devices share'
    run plan --dp 128 --batch 128 --cluster tpu-v4;                 expect_status 2
    expect_error 'its torus cube has places for 64 devices; the mesh has 128'
}

# Messages that slow computing, and nobody who looks after them: the step with and without, and the path of the former.
test_hindered() {
    local with without path
    run plan --dp 4 --zero 3 --model small --cluster ethernet-1g --json plan.json; expect_status 0
    expect_out '^ +[0-9.]+ ms a step with no progress while a device computes, replayed in order of time; [0-9.]+ ms without this$'
    with=$(sed -n 's/^\t"virtual_step_replayed_ps":\t\([0-9]*\),*$/\1/p' plan.json)
    without=$(sed -n 's/^\t"virtual_step_unhindered_ps":\t\([0-9]*\),*$/\1/p' plan.json)
    path=$(sed -n '/"critical_path"/,/\]/s/.*"ps":\t\([0-9]*\),*$/\1/p' plan.json | sum)
    [ "$with" -gt "$without" ] || complain "without progress a step takes $with ps, with it $without"
    [ "$path" = "$with" ] || complain "without progress: the path takes $path ps, the step $with"
    sed 's/"compute_percent": 119/"compute_percent": 300/; s/"contention"/"progress": "none", "contention"/' \
        "$top/emulated_devices/device/clusters/h100-contended.json" > slow.json
    run plan --dp 4 --tp 2 --zero 3 --model small --cluster ./slow.json --json plan.json; expect_status 0
    expect_out '[um]s a step with computing slowed by messages and no progress while a device computes, .* [um]s without these two$'
    with=$(sed -n 's/^\t"virtual_step_replayed_ps":\t\([0-9]*\),*$/\1/p' plan.json)
    path=$(sed -n '/"critical_path"/,/\]/s/.*"ps":\t\([0-9]*\),*$/\1/p' plan.json | sum)
    [ "$path" = "$with" ] || complain "slowed: the path takes $path ps, the step $with"
    train --dp 2 --steps 1 --cluster ./slow.json; expect_status 0
    expect_out '^ +[(]without contention: .orrery plan. replays the step with what devices of this cluster share, slow or leave'
    sed -i 's/300/-3/' slow.json
    run plan --dp 4 --cluster ./slow.json; expect_status 1; expect_error '--cluster ./slow.json: contention: "compute_percent" is -3; it must be a whole number from 100 to 1000'
}

step_of() { run plan "$@" --json plan.json; expect_status 0; sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' plan.json; }
less() { [ "$2" -lt "$3" ] || complain "$1: $2 ps, without it $3"; }

# What hides messages: a pass beside another, receives that are posted early.
test_overlap() {
    local dual='--pp 4 --tp 2 --micro 12 --schedule dualpipe --model small --seq 64'
    less --pairs "$(step_of $dual --pairs)" "$(step_of $dual)"
    dual='--pp 4 --micro 12 --model small --seq 64'
    sed 's/"eager_bytes": 65536/"eager_bytes": 0/' "$top/emulated_devices/device/clusters/toy.json" > waits.json
    less --receives-ahead "$(step_of $dual --cluster ./waits.json --receives-ahead 2)" "$(step_of $dual --cluster ./waits.json)"
    [ "$(step_of $dual --receives-ahead 2)" = "$(step_of $dual)" ] || complain 'eager messages wait for receives'
    dual='--pp 4 --micro 12 --schedule dualpipe --model small'
    local step path
    step=$(step_of $dual --tp 2 --pairs)
    path=$(sed -n '/"critical_path"/,/\]/s/.*"ps":\t\([0-9]*\),*$/\1/p' plan.json | sum)
    [ "$path" = "$step" ] || complain "with a pass beside another the path takes $path ps, the step $step"
    [ "$(step_of $dual --pairs)" = "$(step_of $dual)" ] || complain 'a pass beside another takes time where no message is inside'
    run plan --pp 4 --schedule zb-h1 --pairs; expect_status 2; expect_error 'schedule zb-h1: has no passes side by side; --pairs is for dualpipe and dualpipev'
    run plan --pp 2 --receives-ahead -1;     expect_status 2; expect_error '--receives-ahead'
}

test_refusals() {
    run plan --help;                    expect_status 0; expect_out '^usage: orrery plan'; expect_no_out '--check '
    run plan --check ref;               expect_status 2; expect_error 'check'
    run plan --steps 0;                 expect_status 2; expect_error '--steps 0: a plan is of at least one step'
    run plan --dp 2000000;              expect_status 2; expect_error '--dp 2000000'
    run plan --tp 3 --model llama-tiny; expect_status 0
    run plan --model nothing;           expect_status 2; expect_error '--model nothing'
    run plan --dp 2 --json /nowhere/x;  expect_status 1; expect_error '/nowhere/x'
}

every=(test_as_many_runs test_padded_runs)
[ "$TIER" = verify ] || every=()
run_tests test_as_a_run test_loads test_utilization test_a_whole_training test_classes test_where_time_goes test_nothing_runs_that_does_nothing test_many_devices test_what_does_not_fit test_as_many_as_there_are test_padded_vocabulary test_speed_up_over_a_device_that_is test_beyond_all_bounds test_offloaded test_shared_links test_hindered test_overlap test_refusals "${every[@]}"
