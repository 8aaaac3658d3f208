# `orrery search`: what it prints can be run, in the time and memory that it says; what does not fit; words that are wrong.
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")/../.." && pwd)

few='--devices 4 --model tiny --micro 2 --tensor 1d,1d-sp --attention ring-zigzag --data-parallel ddp,zero3 --schedule 1f1b,zb-h1 --recompute none,full'

# Number, time and peak of the first rows of a report.
rows_of() { grep -E '^ +[0-9]+ +[0-9.]+ +[0-9.]+ ' <<<"$1" | awk -v most="$2" '$1 <= most { print $1, $2, $3 }'; }

# Each printed plan, as `orrery train` and as `orrery plan`: the same virtual time and peak.
test_plans_run() {
    local words step peak n=0
    run search $few --planner exhaustive --top 3 --json search.json; expect_status 0; expect_silent; expect_columns 120
    expect_out 'so no legal plan is faster and fits'; expect_out '^why     plan [0-9]+ takes [0-9.]+ [um]s more than plan 1'
    expect_out '^less memory for more time'; expect_out 'each behind: orrery train --model tiny$'
    make_text
    while IFS='|' read -r words step peak; do
        n=$((n + 1))
        run train --model tiny --data "$text" --steps 1 $words --json run.json; expect_status 0
        grep -q "\"virtual_step_ps\":$(printf '\t')$step,*\$" run.json || complain "the search says $step ps, the run $(grep virtual_step_ps run.json)"
        [ "$(sed -n 's/.*"total":\t\([0-9]*\),*$/\1/p' run.json | sort -n | tail -n 1)" = "$peak" ] || complain "the search says $peak bytes"
    done < <(sed -n '/"plans":/,/"frontier":/p' search.json |
        awk -F'\t' '/"words"/ { gsub(/[",]/, "", $NF); w = $NF } /"virtual_step_ps"/ { sub(/,/, "", $NF); s = $NF } /"peak_bytes"/ { sub(/,/, "", $NF); print w "|" s "|" $NF }')
    [ "$n" -ge 3 ] || complain "$n plans are printed, not 3 or more"
}

# No two rows of the example of README.md are one plan; what was merged is said, and the JSON has it with its row.
test_rows_differ() {
    local example rows n
    example=$(sed -n 's|^    ./orrery \(search .*[0-9A-Z]\) *#.*|\1|p' "$here/README.md")
    run $example --top 8 --json search.json; expect_status 0; expect_silent
    rows=$(rows_of "$out" 8)
    [ "$(wc -l <<<"$rows")" = 8 ] || complain "not 8 rows: $rows"
    [ "$(sort -u -k 2 <<<"$rows" | wc -l)" = 8 ] || complain "two rows have the same time and memory: $rows"
    expect_out '^ +1  --pp 2 --dp 4 --data-parallel fsdp-once '
    expect_out '^      the same time, memory and bytes: --data-parallel fsdp$'; expect_no_out 'buff'
    expect_out '^      less than 1 % slower, saves less than 1 % of memory: --data-parallel ddp$'
    expect_out '^why     plan 2 takes '
    n=$(sed -n '/"plans":/,/"frontier":/p' search.json | grep -c '"words"')
    [ "$(sed -n '/"plans":/,/"frontier":/p' search.json | sed -n 's/.*"group":\t\([0-9]*\),$/\1/p' | sort -nu | tr '\n' ' ')" = '1 2 3 4 5 6 7 8 ' ] || complain 'not the groups 1 to 8'
    [ "$n" -gt 8 ] || complain "the JSON has $n plans, so none that was merged"
    run $example --top 1; expect_status 0; expect_out '^why     plan 2 \(--pp 2 --dp 4 .*\) takes '
    run $example --top 2 --like all; expect_status 0; expect_out '^   1  .*--data-parallel fsdp-once --schedule zb-v '; expect_out '^      the same time, memory and bytes: --data-parallel buff$'
}

# The usual planner; a memory that leaves the fastest out; JSON alone on the standard output.
test_memory() {
    run search $few --json -; expect_status 0; expect_out '^	"planner":	"exhaustive",$'; expect_out '"above_memory":	0,$'
    run search $few --planner beam --json -; expect_status 0; expect_out '^	"planner":	"beam",$'; expect_out '"above_memory":	0,$'
    run search $few --memory 700K --planner exhaustive --json search.json; expect_status 0
    expect_out 'a lower bound says of [1-9][0-9]* that they need more memory'; expect_out '^ +plan +[um]s a step +peak KiB '; expect_out '^ +1 +[0-9.]+ +[0-6][0-9][0-9]\.[0-9] '
    run search $few --memory 400K --planner exhaustive --json none.json; expect_status 3
    grep -q '"fit":	0,' none.json && grep -A 2 '"smallest":' none.json | grep -q '"needs_bytes":	[0-9]' || complain 'the JSON has no smallest plan'
    expect_error '--memory 400KiB: none of [0-9]+ plans fits: the smallest, --.*, needs at least [0-9.]+ KiB, [0-9.]+ K?i?B more$'
}

# Where a device that computes answers no message, the clocks take two schedules for equal; the replay, which plan has too, does not.
test_replayed() {
    local rows words step clocks
    run search --devices 4 --pp 4 --model small --batch 16 --micro 8,16 --recompute none --schedule 1f1b,zb-h2,zb-2p \
        --cluster ethernet-1g --top 3 --json search.json; expect_status 0; expect_columns 120
    expect_out '[0-9]+ of them were replayed with sharing and contention: the others are slower even without it'
    rows=$(sed -n '/"plans":/,/"frontier":/p' search.json | awk -F'\t' '{ sub(/,$/, "", $NF) } /"words"/ { gsub(/"/, "", $NF); w = $NF }
        /"virtual_step_ps"/ { s = $NF } /"virtual_step_by_clocks_ps"/ { print s "|" $NF "|" w }')
    [ "$(wc -l <<<"$rows")" = 3 ] || complain 'not each of the three plans was replayed'
    sort -n -t '|' -k 1,1 -c <<<"$rows" || complain 'not in the order of the replayed times'
    while IFS='|' read -r step clocks words; do
        run plan --model small --batch 16 --cluster ethernet-1g $words --json plan.json; expect_status 0
        grep -q "\"virtual_step_replayed_ps\":$(printf '\t')$step,*\$" plan.json || complain "the search says $step ps: $(grep replayed_ps plan.json)"
        grep -q "\"virtual_step_ps\":$(printf '\t')$clocks,*\$" plan.json || complain "the search says $clocks ps by the clocks"
    done <<<"$rows"
    step=$(sed -n 's/^\t"replayed":\t\([0-9]*\),*$/\1/p' search.json)
    [ "$step" -ge 3 ] || complain "$step plans were replayed"
    run search $few --json -; expect_out '^	"replayed":	0,$'
    run search --devices 4 --pp 1 --model small --batch 16 --micro 1,2 --recompute none --cluster ethernet-1g --top 12; expect_status 0
    rows=$(rows_of "$out" 4)
    run search --devices 4 --pp 1 --model small --batch 16 --micro 1,2 --recompute none --cluster ethernet-1g --top 4; expect_status 0
    [ "$(wc -l <<<"$rows")" = 4 ] || complain "not 4 rows: $rows"
    [ "$rows" = "$(rows_of "$out" 4)" ] || complain "--top 4 has other rows than the first of --top 12: $rows"
}

# The first plan of a mixture, run with the load that the search names: in the same time.
test_mixture() {
    local words step
    run search --devices 4 --model mixtral-tiny --batch 4 --micro 1 --recompute none --data-parallel zero1,zero3 --tp 1 --cp 1 --pp 1 \
        --dispatch alltoall,allgather --json search.json; expect_status 0
    words=$(sed -n 's/^\t\t\t"words":\t"\(.*\)",$/\1/p' search.json | head -n 1) step=$(sed -n 's/^\t\t\t"virtual_step_ps":\t\([0-9]*\),$/\1/p' search.json | head -n 1)
    make_text; run train --model mixtral-tiny --batch 4 --load even --data "$text" --steps 1 $words --json run.json; expect_status 0
    grep -q "\"virtual_step_ps\":$(printf '\t')$step,*\$" run.json || complain "$words: the search says $step ps, the run $(grep virtual_step_ps run.json)"
}

# Mixtures with a balance loss on pipelines that begin backward passes early: every row is the plan of its words, with the same scope of the
# loss; a loss of the whole batch leaves gpipe and those that forward all first.
test_balance() {
    local scope words step rows
    for scope in microbatch sequence; do
        run search --devices 4 --model mixtral-tiny --batch 8 --pp 2,4 --recompute none --balance-over $scope --schedule gpipe,1f1b,interleaved,zb-h1,zb-v,dualpipev --top 30 --json search.json
        expect_status 0; expect_out "each behind: orrery train --model mixtral-tiny --batch 8 --balance-over $scope --load even\$"
        rows=$(sed -n '/"plans":/,/"frontier":/p' search.json | awk -F'\t' '{ sub(/,$/, "", $NF) } /"words"/ { gsub(/"/, "", $NF); w = $NF } /"virtual_step_ps"/ { print $NF "|" w }')
        for words in interleaved zb-h1 zb-v dualpipev; do grep -q -e "--schedule $words" <<<"$rows" || complain "no plan has $words"; done
        while IFS='|' read -r step words; do
            run plan --model mixtral-tiny --batch 8 --balance-over $scope $words --json plan.json; expect_status 0
            grep -q "\"virtual_step_ps\":$(printf '\t')$step,*\$" plan.json || complain "$words: the search says $step ps, the plan $(grep virtual_step_ps plan.json)"
        done < <(head -n 12 <<<"$rows")
    done
    run search --devices 4 --model mixtral-tiny --batch 8 --pp 4 --micro 4 --recompute none --balance-over batch --schedule gpipe,1f1b,zb-h1 --top 30
    expect_status 0; expect_out '--schedule gpipe'; expect_no_out '--schedule (1f1b|zb-h1)'
    run search --devices 4 --model mixtral-tiny --batch 8 --pp 4 --micro 4 --balance-over batch --schedule 1f1b,zb-h1;   expect_status 2
    run search --devices 4 --model tiny --balance-over sequence;    expect_status 2; expect_error '--balance-over sequence: is for mixtures with a balance loss'
    run search --devices 4 --model mixtral-tiny --dispatch speculative; expect_status 2; expect_error '--dispatch speculative: needs a table of tokens'
}

# What trains another function takes part only when a list names it; its plans are those that train.
test_named_ones_take_part() {
    run search --devices 2 --model mixtral-tiny --batch 4 --pp 2 --micro 2 --recompute none --schedule 1f1b,skippipe --json -
    expect_status 0; expect_out '"words":	".*--schedule skippipe '; expect_out '"words":	".*--schedule 1f1b '
    run search --devices 2 --model mixtral-tiny --batch 4 --pp 2 --micro 2 --recompute none; expect_status 0; expect_no_out 'skippipe|pipedream'
    run search --devices 2 --model mixtral-tiny --batch 4 --pp 2 --micro 4 --recompute none --schedule pipedream-2bw --clip 0
    expect_status 0; expect_out '^ +1  --pp 2 --schedule pipedream-2bw --micro 4$'
}

# Where no plan is legal, the reason of most of them is said; where a planner has missed the legal ones, that.
test_why_none() {
    run search --devices 2 --model mixtral-tiny --batch 4 --pp 2 --micro 4 --recompute none --schedule pipedream-2bw
    expect_status 2; expect_error '--devices 2: no plan is possible; [0-9]+ of [0-9]+ are refused so: --clip 1: --schedule pipedream-2bw .* use --clip 0'
}

# What a framework has is all that takes part, unless a list names more; all takes part if asked for.
test_likes() {
    local words
    run search --devices 4 --model tiny --batch 8 --micro 2,4 --recompute none --like deepspeed --top 1000 --json search.json; expect_status 0
    expect_out '^        of schemes as in deepspeed$'; grep -q '"like":	"deepspeed",' search.json || complain 'the JSON has another framework'
    words=$(sed -n '/"plans":/,/"frontier":/p' search.json | grep '"words"')
    grep -q -e '--tensor 1d ' <<<"$words" && grep -q -e '--attention ulysses ' <<<"$words" && grep -q -e '--data-parallel zero3 ' <<<"$words" || complain 'a scheme of deepspeed takes no part'
    ! grep -qE -e '--tensor [^ ]*(sp|2d)|--attention ring|--data-parallel (fsdp|buff)|--schedule [^1]' <<<"$words" || complain 'more takes part than deepspeed has'
    run search --devices 4 --model tiny --batch 8 --micro 2 --recompute none --like deepspeed --tp 4 --tensor 2d; expect_status 0; expect_out '^ +1  --tp 4 --tensor 2d '
    run search --devices 4 --model tiny --batch 8 --micro 2 --recompute none --like megatron,torchtitan --tp 4; expect_status 0; expect_out '^        of schemes as in megatron,torchtitan$'; expect_out 'overlap'
    run search --devices 4 --model tiny --batch 8 --micro 2 --recompute none --tp 4 --like all --top 1000; expect_status 0; expect_out '--tensor 2d'; expect_no_out 'as in'
    run search --devices 4 --model tiny --like megatron,nemo; expect_status 2; expect_error '--like nemo.*megatron'
    run search --devices 4 --model tiny --like megatron,all; expect_status 2; expect_error '--like megatron,all: all stands alone: it takes every scheme'
    run list likes; expect_status 0; expect_out '^  megatron '; expect_out '^  torchtitan '; expect_out '^  deepspeed '
}

# A search that ends early has the best plan so far, which a plan has too: by time, and by a signal that the program listens to.
test_early_answers() {
    local big='--model llama3-70b --dtype bf16 --cluster h100-infiniband --batch 128' words step pid caught ended=0 waited=0
    run search --devices 64 $big --seconds 1e-6; expect_status 3; expect_error '--seconds: none of the 0 plans that were looked at until then fits'
    command='kill -TERM'
    "$program" search --devices 64 $big --json early.json >early.out 2>early.err & pid=$!
    # Signal 15 is bit 14 of those that the program catches, as soon as it listens.
    until caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status") && [ $((0x$caught & 0x4000)) != 0 ]; do
        sleep 0.1; waited=$((waited + 1)); [ $waited -lt 1200 ] || break
    done
    sleep 2; kill -TERM $pid; wait $pid || ended=$?
    case $ended in
        0)  grep -q 'ended early, SIGTERM: the first is the best so far' early.out && grep -q '"ended":	"SIGTERM"' early.json || complain "it does not say what ended it: $(cat early.out)"
            words=$(sed -n 's/^\t\t\t"words":\t"\(.*\)",$/\1/p' early.json | head -n 1) step=$(sed -n 's/^\t\t\t"virtual_step_ps":\t\([0-9]*\),$/\1/p' early.json | head -n 1)
            run plan $big $words --json plan.json; expect_status 0
            grep -q "\"virtual_step_ps\":$(printf '\t')$step,*\$" plan.json || complain "$words: the search says $step ps: $(grep virtual_step_ps plan.json)" ;;
        3)  grep -q 'SIGTERM: none of the' early.err || complain "status 3 without its reason: $(cat early.err)" ;;     # a slow machine
        *)  complain "status $ended: $(cat early.err)" ;;
    esac
}

# A mixture's experts, and a scheme of a plug-in, take part.
test_what_takes_part() {
    run search --devices 2 --model mixtral-tiny --batch 4 --micro 1,2 --recompute none --data-parallel zero1,zero3 --dispatch alltoall,allgather --json -
    expect_status 0; expect_out '"words":	".*--ep 2 '
    expect_out '^	"words":	"--model mixtral-tiny --batch 4 --load even",$'
    run search --devices 2 --model tiny --micro 2 --recompute none --dp 2 --data-parallel half-states --plugin "$here/tutorials/plugins/half_states.c"
    expect_status 0; expect_out '^ +1  --dp 2 --data-parallel half-states --micro 2$'
}

# Layers of the stages are a dimension if a list says so; of a large vocabulary the loss is worth a layer or more.
test_stage_layers() {
    local words='--model tiny:L=6,V=512 --batch 16 --recompute none' least=0 at cut
    for cut in even embedding loss ends; do
        run plan --pp 2 $words --micro 8 --schedule 1f1b --stage-layers $cut --json plan.json; expect_status 0
        at=$(grep -o '"virtual_step_ps":[^,]*' plan.json | head -n 1 | tr -dc 0-9)
        [ "$least" != 0 ] && [ "$at" -ge "$least" ] || { least=$at; best=$cut; }
    done
    [ "$best" = loss ] || complain "the fastest is $best, expected loss"
    run search --devices 2 --pp 2 $words --micro 8 --schedule 1f1b --stage-layers even,embedding,loss,ends --json found.json; expect_status 0; expect_silent
    expect_out '^   1  --pp 2 --schedule 1f1b --stage-layers loss --micro 8$'
    grep -q "\"virtual_step_ps\":$(printf '\t')$least,*\$" found.json || complain "the search has no plan of $least ps"
    run search --devices 2 --pp 2 $words --micro 8 --schedule 1f1b; expect_status 0; expect_out '^   1  --pp 2 --schedule 1f1b --micro 8$'
    # Layers of each stage are those of every plan with a pipeline; others that the words allow are left out.
    run search --devices 2 --pp 1,2 --dp 1,2 $words --stage-layers 4,2; expect_status 0; expect_out '--pp 2 .*--stage-layers 4,2'
    expect_no_out '^ +[0-9]+  .*--dp 2 .*--stage-layers'
    run plan --devices 2 --pp 2 $words --micro 8 --schedule 1f1b --stage-layers loss,even; expect_status 0; expect_out '^chosen +--pp 2 --schedule 1f1b --stage-layers loss --micro 8$'
    run search --devices 2 --pp 2 $words --stage-layers los;      expect_status 2; expect_error '--stage-layers los: there is no such choice; did you mean loss'
    run search --devices 2 --pp 2 $words --stage-layers 4,2,1;    expect_status 2; expect_error '--stage-layers 4,2,1: has 3 numbers, but stages number 2'
    run search --planner alpa --devices 2 $words --stage-layers loss; expect_status 2; expect_error '--stage-layers: plans by layers'
}

test_refusals() {
    run search --help;                                      expect_status 0; expect_out '^usage: orrery search'; expect_no_out '--check '
    run search;                                             expect_status 2; expect_error '--devices'
    run search --devices 4 --model nothing;                 expect_status 2; expect_error '--model nothing'
    run search --devices 4 --tensor 1e;                     expect_status 2; expect_error '--tensor 1e'
    run search --devices 4 --micro 2,x;                     expect_status 2; expect_error '--micro 2,x'
    run search --devices 4 --planner best;                  expect_status 2; expect_error '--planner best'
    run search --devices 7 --tp 2;                          expect_status 2; expect_error '--devices 7: cannot be divided by the 2 of --tp 2'
    run search --devices 4 --zero 1,4;                      expect_status 2; expect_error '--zero 1,4: must be stages from 0 to 3'
    run search --devices 3 --batch 8 --tp 1 --pp 1 --cp 1;  expect_status 2; expect_error 'no mesh of 3 devices'
    run search --devices 4 --check ref;                     expect_status 2; expect_error 'check'
    run search $few --json /nowhere/x;                      expect_status 1; expect_error '/nowhere/x'
    run list planners;                                      expect_status 0; expect_out '^  beam '; expect_out '^  exhaustive '
}

# The first plan as settings is the same plan; a file that cannot be written is said before the search.
test_out() {
    local words time
    run search --devices 4 --model mixtral-tiny:L=2 --batch 8 --dropout=0 --plans 4 --out best.yaml;    expect_status 0
    words=$(sed -n 's/^   1  --/--/p' <<<"$out" | head -n 1)
    time=$(awk '$1 == 1 && $2 + 0 > 0 { print $2; exit }' <<<"$out")
    grep -qx 'load: even' best.yaml && grep -qx 'dropout: "\{0,1\}0"\{0,1\}' best.yaml || complain "best.yaml: $(cat best.yaml)"
    run plan --config best.yaml;    expect_status 0;    expect_out "^virtual $time"
    run plan --model mixtral-tiny:L=2 --batch 8 --dropout 0 --load even $words;    expect_status 0;    expect_out "^virtual $time"
    run search --devices 4 --model tiny --batch 8 --out none/best.yaml;    expect_status 1;    expect_error '--out none/best.yaml: '
}

run_tests test_plans_run test_rows_differ test_memory test_replayed test_mixture test_balance test_named_ones_take_part test_why_none test_likes test_early_answers test_what_takes_part test_stage_layers test_refusals test_out
