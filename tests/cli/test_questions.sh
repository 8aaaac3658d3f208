# `orrery plan --devices`, --fewest, --zero-table and --against: what they print is what separate plans print, to the byte and the picosecond.
. "$(dirname "$0")/lib.sh"

few='--tensor 1d,1d-sp --data-parallel ddp,zero3 --schedule 1f1b,gpipe --recompute none,full'

# A number of the JSON by its key, the first one.
first_of() { sed -n "s/^[[:space:]]*\"$1\":	\\([0-9.]*\\),*\$/\\1/p" "$2" | head -n 1; }
fullest() { sed -n 's/.*"total":	\([0-9]*\),*$/\1/p' "$1" | sort -n | tail -n 1; }
sent() { awk -F'\t' '/"stands_for":/ { share = $NF + 0 } /"sent":/ { on = 1 } /"slow_tier":/ { on = 0 } on && /"bytes":/ && ++n { depth = gsub(/\t/, "\t"); if (depth == 6) { sub(/,/, "", $NF); sum += share * $NF } } END { printf "%.0f", sum }' "$1"; }

# The chosen plan is the first of the search, and the words plan it again: the same time and memory.
test_chosen() {
    local words step peak
    run search --devices 4 --model tiny --batch 8 --micro 2,4 $few --json search.json; expect_status 0
    step=$(first_of virtual_step_ps search.json)
    run plan --devices 4 --model tiny --batch 8 --micro 2,4 $few --top 3 --json chosen.json; expect_status 0; expect_silent
    expect_out '^chosen  --'; expect_out '^critical path of the step'; expect_out '^the next best of those that were planned; plan 1 is the one above$'
    expect_out '^ +2 +[0-9.]+ '; expect_out '^ +3 +[0-9.]+ '; expect_no_out '^ +4 +[0-9.]+ '
    expect_out '^      each behind: orrery plan --model tiny --batch 8$'
    [ "$(first_of virtual_step_ps chosen.json)" = "$step" ] || complain "the search says $step ps, the choice $(first_of virtual_step_ps chosen.json)"
    words=$(sed -n 's/^again   orrery plan //p' "$place/out"); peak=$(fullest chosen.json)
    [ -n "$words" ] || complain 'no words that plan it again'
    run plan $words --json again.json; expect_status 0
    [ "$(first_of virtual_step_ps again.json)" = "$step" ] || complain "$words: takes $(first_of virtual_step_ps again.json) ps, not $step"
    [ "$(fullest again.json)" = "$peak" ] || complain "$words: needs $(fullest again.json) bytes, not $peak"
    run plan --devices 4 --model tiny --batch 8 --tp 4 --micro 2 --zero 1 --memory 20M --tokens 1M $few; expect_status 2; expect_error '--zero 1: --data-parallel says it already'
    run plan --devices 4 --model tiny --batch 8 --tp 2 --pp 1 --cp 1 --micro 2 --zero 1 --memory 20M --tokens 1M --recompute none; expect_status 0
    expect_out '^again   orrery plan --dp 2 --tp 2 --tensor [^ ]+ --data-parallel zero1 --micro 2 --model tiny --batch 8 --memory 20M --tokens 1M$'
}

# The fewest: each smaller number was tried or cannot hold the state, and lacks what is said of it.
test_fewest() {
    local n needs
    run plan --fewest --model tiny --batch 8 --memory 600K --like megatron --schedule 1f1b --json fewest.json; expect_status 0
    expect_out '^fewest  1 to 2 devices have less memory together than weights and optimizer state take, 1\.27 MiB$'
    expect_out '^        3 devices: the smallest, --.*, needs at least [0-9.]+ KiB and lacks [0-9.]+ KiB$'; expect_out '^        4 devices: fits, --'
    n=$(sed -n '/"fewest":	{/,$p' fewest.json > part.json; first_of devices part.json); [ "$n" = 4 ] || complain "$n devices, not 4"
    needs=$(sed -n '/"devices":	3,/,$p' part.json | sed -n 's/.*"needs_bytes":	\([0-9]*\).*/\1/p' | head -n 1)
    [ "$(sed -n 's/.*"lacks_bytes":	\([0-9]*\).*/\1/p' part.json | head -n 1)" = $((needs - 600 * 1024)) ] || complain "3 devices need $needs: $(cat part.json)"
    # What is said of three devices holds: an exhaustive search finds nothing that fits, nor anything smaller.
    run search --devices 3 --model tiny --batch 8 --memory 600K --like megatron --schedule 1f1b --planner exhaustive --json none.json; expect_status 3
    sed -n '/"smallest":/,$p' none.json > part.json
    [ "$(first_of needs_bytes part.json)" = "$needs" ] || complain "the smallest plan of 3 devices needs $(first_of needs_bytes part.json), not $needs"
    run plan --fewest --devices 3 --model tiny --batch 8 --memory 600K --like megatron; expect_status 3; expect_error '--fewest: none of 1 to 3 devices fits; with 3 the smallest, --.*, lacks 77\.4 KiB; --devices N tries up to N$'
    run plan --fewest --devices 4 --model tiny --memory 1K; expect_status 3; expect_error '--fewest: weights and optimizer state are 1\.27 MiB; 4 devices of 1 KiB have less together$'
}

# Each row of the table is a plan of its own, to the byte and the picosecond.
test_zero_table() {
    local scheme group n=0
    run plan --model tiny --dp 4 --tp 2 --batch 16 --zero-table --json table.json; expect_status 0; expect_silent
    for scheme in ddp zero1 zero2 zero3 fsdp hsdp mics; do expect_out "^  $scheme +[0-9.]+ .* yes\$"; done
    for scheme in ddp zero1 zero2 zero3 fsdp hsdp mics; do
        sed -n "/\"data_parallel\":	\"$scheme\",/,/}/p" table.json > row.json
        group=$(first_of shard_group row.json)
        run plan --model tiny --dp 4 --tp 2 --batch 16 --data-parallel $scheme ${group:+--shard-group $group} --json plan.json; expect_status 0
        [ "$(first_of virtual_step_ps row.json)" = "$(first_of virtual_step_ps plan.json)" ] || complain "$scheme: another time"
        [ "$(first_of peak_bytes row.json)" = "$(fullest plan.json)" ] || complain "$scheme: another peak"
        [ "$(first_of sent_bytes row.json)" = "$(sent plan.json)" ] || complain "$scheme: sends $(first_of sent_bytes row.json), the plan $(sent plan.json)"
        [ "$(first_of exposed_communication row.json)" = "$(first_of exposed_communication plan.json)" ] || complain "$scheme: another exposed share"
        n=$((n + $(sed -n '/"held_bytes"/,/}/s/.*":	\([0-9]*\),*$/\1/p' row.json | awk -v peak="$(first_of peak_bytes row.json)" '{ sum += $1 } END { print sum == peak }')))
    done
    [ "$n" = 7 ] || complain "the classes add up to the peak in $n of 7 rows"
    expect_status 0
    run plan --model tiny --dp 4 --batch 16 --zero-table --memory 900K; expect_status 3; expect_error '--memory 900KiB: the plan fits with none of the data schemes$'
    run plan --model tiny --zero-table; expect_status 2; expect_error '--zero-table: the plan has one copy of the model'
    run plan --model tiny --dp 2 --zero-table --steps 2; expect_status 2; expect_error '--zero-table: is of one step'
}

# Differences of all tensors add up to that of the peaks, which are those of the two plans.
test_against() {
    local a b
    run plan --model tiny --dp 4 --tp 2 --batch 16 --against "--tp 1 --dp 8 --recompute full --zero 3" --json against.json; expect_status 0; expect_silent
    run plan --model tiny --dp 4 --tp 2 --batch 16 --json a.json; expect_status 0
    run plan --model tiny --tp 1 --dp 8 --recompute full --zero 3 --batch 16 --json b.json; expect_status 0
    a=$(fullest a.json) b=$(fullest b.json)
    [ "$(sed -n 's/.*"peak_bytes":	\([0-9]*\).*/\1/p' against.json | tr '\n' ' ')" = "$a $b " ] || complain "not the peaks $a and $b"
    [ "$(sed -n '/"tensors"/,$s/.*"difference_bytes":	\(-*[0-9]*\).*/\1/p' against.json | awk '{ sum += $1 } END { print sum }')" = $((b - a)) ] || complain "the differences are not $b - $a"
    [ "$(sed -n '/"this":/,/}/s/.*"bytes":	\([0-9]*\).*/\1/p' against.json | awk '{ sum += $1 } END { print sum }')" = "$a" ] || complain 'what this plan holds is not its peak'
    run plan --model tiny --dp 4 --tp 2 --batch 16 --against "--recompute full"; expect_status 0
    expect_out '^  activations: mlp.up +0\.250 +0\.031 +-0\.219  1, not 8: of 1 layer, not 8, --recompute full$'; expect_out '^  the same in both +[0-9.]+'; expect_out '^  together +[0-9.]+ +[0-9.]+ +-[0-9.]+$'
    run plan --model tiny --dp 4 --tp 2 --batch 16 --recompute full --against "--recompute none"; expect_status 0; expect_out '^  together +[0-9.]+ +[0-9.]+ +[+][0-9.]+$'
    run plan --model tiny --dp 4 --batch 16 --against "--zero 1"; expect_status 0; expect_out '^  optimizer: kept between steps .* each 1/4 times: devices that share them 4, not 1$'
    run plan --model small --pp 4 --batch 16 --micro 8 --against "--schedule gpipe"; expect_status 0; expect_out ' of 8 microbatches, not 4$'
    run plan --model small --dp 2 --batch 16 --against "--micro 2"; expect_status 0; expect_out 'each 1/2 times: sequences of a microbatch 4, not 8$'
    run plan --model tiny --against=foo; expect_status 2; expect_error '--against "foo": must be options of the other plan, in quotes'
    run plan --model tiny --against "--schedule none"; expect_status 2; expect_error '--against: --schedule none'
    run plan --model tiny --against "--foo 3"; expect_status 2; expect_error '--against: --foo'
}

test_refusals() {
    run plan --devices 8 --model tiny --tp 3; expect_status 2; expect_error '--devices 8: cannot be divided by the 3 of --tp 3$'
    run plan --devices 8 --model tiny --tp 4 --dp 4; expect_status 2; expect_error '--devices 8: cannot be divided by the 16 of --dp 4 --tp 4$'
    run plan --devices 16 --model tiny --pp 16; expect_status 2; expect_error '--pp 16: tiny has 8 layers$'
    run plan --devices 6 --model tiny --dp 3 --batch 8; expect_status 2; expect_error '--dp 3: does not divide the batch of 8 sequences$'
    run plan --devices 8 --against "--tp 2"; expect_status 2; expect_error '--against: is for a plan that is given'
    run plan --like all; expect_status 2; expect_error '--like: is for --devices N and --fewest'
    run plan --dp 2 --against "--tp 2" --zero-table; expect_status 2; expect_error 'ask one of them'
    run plan --help; expect_status 0; expect_out '--fewest'; expect_out '--zero-table'; expect_out '--against WORDS'
}

run_tests test_chosen test_fewest test_zero_table test_against test_refusals
