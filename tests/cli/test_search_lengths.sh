# `orrery search --pack`: plans are chosen for lengths of samples; the best one has its time, memory and bytes in `orrery plan`.
. "$(dirname "$0")/lib.sh"

lengths() { seq 3 7 250 >lengths; printf '256\n200\n9\n' >>lengths; }
model='--model llama-tiny:L=2 --seq 256 --dtype bf16 --batch 4 --cluster h100-infiniband'

# words|time|peak|bytes of each plan in search.json, the best one first.
found() {
    sed -n '/"plans":/,/"frontier":/p' search.json | awk -F'\t' '{ sub(/,$/, "", $NF) } /"words"/ { gsub(/"/, "", $NF); w = $NF }
        /"virtual_step_ps"/ { s = $NF } /"peak_bytes"/ { p = $NF } /"sent_bytes"/ { print w "|" s "|" p "|" $NF }'
}

# The same numbers of plan.json: all devices run, so their bytes add up.
planned_numbers() {
    awk -F'\t' -v OFS='\t' '{ sub(/,$/, "", $NF) } /"virtual_step_ps"/ { s = $NF } /"total"/ && $NF + 0 > p { p = $NF + 0 }
        /"(sent)":/ { inside = 1 } /"slow_tier":/ { inside = 0 } inside && /^\t\t\t\t\t"bytes"/ { b += $NF } END { printf "%.0f|%.0f|%.0f\n", s, p, b }' plan.json
}

# as_planned WORDS...: each plan that a search with these words keeps is the plan of `orrery plan` with them, to the picosecond and the byte.
as_planned() {
    local words numbers n=0
    run search --devices 4 $model "$@" --top 3 --json search.json; expect_status 0; expect_silent
    while IFS='|' read -r words numbers; do
        [ "$((n++))" -lt 3 ] || break
        run plan $model $(sed -n 's/^.*\(--pack [^ ]*\).*$/\1/p' <<<"$*") $words --json plan.json --quiet; expect_status 0
        [ "$numbers" = "$(planned_numbers)" ] || complain "$words: the search says $numbers, the plan $(planned_numbers)"
    done < <(found)
    [ "$n" -ge 1 ] || complain "no plan is found: $*"
}

test_best_is_planned() {
    lengths
    as_planned --pack lengths --cp 4 --attention flexsp,hdp,zeppelin,dcp,ring-zigzag,ulysses --micro 1,2 --recompute none
    as_planned --pack lognormal:40,1.2 --tp 1 --pp 1,2 --recompute none,full --planner exhaustive --zero 0,3 --micro 2
}

# What is found is run in the time that the search says, with the text whose samples it had.
test_best_is_run() {
    local words step
    lengths; make_text
    run search --devices 4 $model --pack lengths --data "$text" --seed 3 --cp 2,4 --attention flexsp,hdp --micro 1 --top 1 --json search.json; expect_status 0
    IFS='|' read -r words step _ < <(found)
    run train $model --pack lengths --data "$text" --seed 3 $words --steps 1 --json run.json --quiet; expect_status 0
    grep -q "\"virtual_step_ps\":$(printf '\t')$step,*\$" run.json || complain "the search says $step ps, the run $(grep virtual_step_ps run.json)"
}

# Lengths decide: a scheme that frameworks do not have is looked at, and other lengths have another best plan.
test_lengths_decide() {
    local long short
    printf '256\n256\n256\n1\n' >long; printf '2\n3\n4\n' >short
    run search --devices 4 $model --pack long --dp 1 --tp 1 --pp 1 --micro 1 --recompute none --top 9 --json search.json; expect_status 0
    expect_out '^packed  [0-9]+ samples in [0-9]+ sequences'
    expect_out 'of schemes as in megatron,torchtitan,deepspeed, and those that plan by lengths; --like all takes every scheme'
    found | grep -q 'attention hdp' || complain 'hdp, which plans by lengths, is not among the plans'
    long=$(found | head -n 1)
    run search --devices 4 $model --pack short --dp 1 --tp 1 --pp 1 --micro 1 --recompute none --top 9 --json search.json; expect_status 0
    short=$(found | head -n 1)
    [ "${long#*|}" != "${short#*|}" ] || complain "long and short samples have the same best plan: $long"
    grep -qE 'attention (hdp|flexsp|zeppelin|dcp)' <<<"$short" || complain "short samples are not best whole on a device: $short"
    run search --devices 4 --model tiny --dp 1 --tp 1 --pp 1 --micro 1 --json search.json; expect_status 0
    found | grep -q 'attention hdp' && complain 'without lengths hdp is among the plans'
    expect_no_out '^packed'; expect_no_out 'plan by lengths'
}

test_refusals() {
    : >empty; printf '3\n300\n' >long; printf '3\nfour\n' >word
    local asked
    for asked in search plan; do
        run $asked --devices 4 $model --pack empty;           expect_status 1; expect_error '--pack empty: has no lengths'
        run $asked --devices 4 $model --pack long;            expect_status 2; expect_error '--pack long:2: a sample of 300 tokens; a sequence has room for 1 to 256 \(--seq\)'
        run $asked --devices 4 $model --pack word;            expect_status 1; expect_error '--pack word:2: '
        run $asked --devices 4 $model --pack nowhere;         expect_status 1; expect_error '--pack nowhere: cannot be opened'
        run $asked --devices 4 $model --pack lognormal:300,1; expect_status 2; expect_error '--pack lognormal:300,1: the median sample has more tokens than a sequence, 256'
        run $asked --devices 4 $model --data empty;           expect_status 2; expect_error '--data: a plan reads no text; with --pack the text says how many samples there are'
    done
}

run_tests test_best_is_planned test_best_is_run test_lengths_decide test_refusals
