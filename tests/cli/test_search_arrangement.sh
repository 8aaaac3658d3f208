# `orrery search` arranges devices inside an axis: h, w and placement of LoongTrain's rings, W, G, O of Buff's shards.  What it chooses is the best of all by plan, and runs.
. "$(dirname "$0")/lib.sh"

# Words and virtual time of the first plan of search.json.
first() { sed -n '/"plans":/,$p' search.json | awk -F'\t' '{ sub(/,$/, "", $NF) } /"words"/ && !w { gsub(/"/, "", $NF); w = $NF } /"virtual_step_ps"/ { print $NF "|" w; exit }'; }

# Virtual time of a plan of these words.
time_of() { run plan "$@" --json plan.json; expect_status 0; sed -n 's/.*"virtual_step_ps":\t\([0-9]*\),*$/\1/p' plan.json | head -n 1; }

# The chosen plan is run on 8 devices: it equals one device, what the plan says, and the time of the search.
expect_runs() {
    local step=$1; shift
    make_text
    run train "$@" --data "$text" --steps 1 --check ref --json run.json; expect_status 0
    grep -q "\"virtual_step_ps\":$(printf '\t')$step,*\$" run.json || complain "the search says $step ps, the run $(grep virtual_step_ps run.json)"
}

# h from 8 to 1, windows of 2 and 4 devices and none, both placements where there are rings: 1 + 2 + 4 + 3.
test_split() {
    local model='--model tiny --batch 8 --seq 64 --cluster toy' best words least=0 time n=0 split
    run search --devices 8 --cp 8 --attention loongtrain --micro 1 --recompute none --data-parallel ddp $model --top 9 --json search.json; expect_status 0; expect_silent
    expect_out 'looked  at 10 legal plans'; expect_out '--attention loongtrain --head-parallel [1248]'
    IFS='|' read -r best words < <(first)
    while read -r split; do
        time=$(time_of $model --cp 8 --attention loongtrain --data-parallel ddp --micro 1 $split)
        n=$((n + 1))
        [ "$least" != 0 ] && [ "$least" -le "$time" ] || least=$time
    done <<'SPLITS'
--head-parallel 8
--head-parallel 4
--head-parallel 4 --context-first
--head-parallel 2
--head-parallel 2 --context-first
--head-parallel 2 --ring-window 2
--head-parallel 2 --ring-window 2 --context-first
--head-parallel 1
--head-parallel 1 --ring-window 4
--head-parallel 1 --ring-window 2
SPLITS
    [ "$n" = 10 ] && [ "$best" = "$least" ] || complain "the search takes $best ps, the best of $n splits $least: $words"
    expect_runs "$best" $model $words
    run search --devices 8 --cp 8 --attention loongtrain --head-parallel 1,2 --ring-window 2 --micro 1 --recompute none --data-parallel ddp $model --top 9; expect_status 0
    expect_out 'looked  at 3 legal plans'
    run search --devices 8 --cp 8 --attention loongtrain --head-parallel 2 --context-first --micro 1 --recompute none --data-parallel ddp $model --top 9; expect_status 0
    expect_out 'looked  at 2 legal plans'; expect_out '--head-parallel 2 .*--context-first'
    run search --devices 8 --cp 8 --like all --micro 1 --recompute none --data-parallel ddp $model; expect_status 0; expect_no_out '--head-parallel'
}

# W | G | O | 8: 20 of them.
test_shards() {
    local model='--model tiny --batch 8 --seq 64 --cluster toy' best words least=0 time n=0 w g o
    run search --devices 8 --cp 4 --dp 2 --attention ulysses --micro 1 --recompute none --data-parallel buff $model --top 99 --json search.json; expect_status 0; expect_silent
    [ "$(sed -n '/"plans":/,/"frontier":/p' search.json | grep -o -e '--shards [0-9,]*' | sort -u | wc -l)" = 20 ] || complain 'the plans have not 20 different shards'
    expect_out 'looked  at 20 legal plans'; expect_out '--data-parallel buff --shards [1248],[1248],[1248]'
    IFS='|' read -r best words < <(first)
    for w in 1 2 4 8; do for g in 1 2 4 8; do for o in 1 2 4 8; do
        [ "$w" -le "$g" ] && [ "$g" -le "$o" ] || continue
        time=$(time_of $model --cp 4 --dp 2 --attention ulysses --micro 1 --data-parallel buff --shards "$w,$g,$o")
        n=$((n + 1))
        [ "$least" != 0 ] && [ "$least" -le "$time" ] || least=$time
    done; done; done
    [ "$n" = 20 ] && [ "$best" = "$least" ] || complain "the search takes $best ps, the best of $n shards $least: $words"
    expect_runs "$best" $model $words
    run search --devices 8 --cp 4 --dp 2 --attention ulysses --micro 1 --recompute none --data-parallel buff --memory 1700K $model --json search.json
    expect_status 0; expect_out '^ +1 +--.* --shards [248],[248],8'
}

# Bytes of all kinds that device 0 of a plan sends.
sent() { run plan "$@" --json plan.json; expect_status 0; awk -F'\t' '/"sent":/ && !done { in_sent = 1 } in_sent && /"bytes":/ { sub(/,$/, "", $NF); n += $NF } in_sent && /"slow_tier"|"traffic_equals/ { print n; exit }' plan.json; }

# Buff's crossover: weights that travel (isp) are fewer bytes than tokens that do if B S (1-1/P) > 4.5 D, here B > 10.3; embedding and loss shift that by a tenth.
test_crossover() {
    local model='--model gpt2:L=8,H=8,D=64,F=256,V=8 --dtype fp32 --seq 32' batch weights tokens
    for batch in 4 8 12 24; do
        weights=$(sent $model --batch $batch --cp 8 --attention ulysses --data-parallel buff) tokens=$(sent $model --batch $batch --tp 8 --tensor 1d-sp-keep)
        [ "$((weights < tokens))" = "$((batch * 32 * 7 * 2 > 8 * 9 * 64))" ] || complain "batch $batch: weights that travel are $weights bytes, tokens $tokens"
    done
}

test_refusals() {
    run search --devices 8 --attention loongtrain --head-parallel two; expect_status 2; expect_error '--head-parallel two: must be numbers above 0'
    run search --devices 8 --attention loongtrain --ring-window 0;     expect_status 2; expect_error '--ring-window 0: must be numbers above 0'
    run search --devices 8 --cp 8 --attention loongtrain --head-parallel 3; expect_status 2; expect_error 'no plan is possible|no mesh, scheme'
}

run_tests test_split test_shards test_crossover test_refusals
