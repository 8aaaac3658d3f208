# `--comm-streams`: what is hidden behind what, what a trace says of it, and that nothing changes but times.
. "$(dirname "$0")/lib.sh"

step_of() { run plan "$@" --json plan.json; expect_status 0; sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' plan.json; }
less() { [ "$2" -lt "$3" ] || complain "$1: $2 ps, without it $3"; }
but_times() { results "$1" | sed '/^\t"plan":/,/^\t}/d; /^\t"virtual_speed":/,/^\t}/d' | grep -v virtual; }

# More communication streams hide more, and change nothing but times; the default has two.
test_comm_streams() {
    local n zero='--dp 8 --zero 3 --model small --seq 64' overlap='--dp 4 --tp 2 --zero 3 --tensor 1d-sp-overlap --model small --seq 64' rows='--model scmoe-tiny --dp 4 --ep 4 --zero 3'
    less '3 streams' "$(step_of $zero --comm-streams 3)" "$(step_of $zero)"
    less '4 streams' "$(step_of $overlap --comm-streams 4)" "$(step_of $overlap --comm-streams 3)"
    less '2 streams' "$(step_of $rows)" "$(step_of $rows --comm-streams 1)"
    [ "$(step_of $rows)" = "$(step_of $rows --comm-streams 2)" ] || complain 'the default is not 2 streams'
    step_of $overlap > step; but_times plan.json > two; grep -q '"bytes"' two || complain 'nothing is compared'
    for n in 1 3 4; do
        step_of $overlap --comm-streams $n > step
        cmp -s two <(but_times plan.json) || complain "$n streams change $(diff two <(but_times plan.json) | head -n 4)"
    done
    run plan $overlap --comm-streams 4; expect_status 0
    expect_out '^    copy \(communication\) +[0-9.]+ '; expect_out '^    data messages, cluster \(reduction\) +[0-9.]+ '; expect_out '^    port shared with other messages \(communication\) +[0-9.]+ '
    for n in 0 5 two; do
        run plan --comm-streams $n; expect_status 2; expect_error "--comm-streams $n: must be a whole number from 1 to 4$"
    done
    run bench plan --devices 64 --micro 2 --comm-streams 1; expect_status 0; expect_silent
    run bench plan --comm-streams 0;                        expect_status 2; expect_error '--comm-streams 0: must be'
}

# What is on which stream, in a trace.
test_traced_streams() {
    local n
    for n in 1 2 3 4; do
        train --dp 2 --tp 2 --zero 2 --bucket 20K --tensor 1d-sp-overlap --steps 1 --comm-streams $n --trace $n.json; expect_status 0
    done
    streams() { grep -oE '"args":\{"name":"(communication|reduction|tensor sums)"' $1.json | sort -u | cut -d'"' -f6 | tr '\n' ' '; }
    [ "$(streams 1)$(streams 2)" = 'communication communication ' ] || complain "1 and 2 streams: $(streams 1) $(streams 2)"
    [ "$(streams 3)" = 'communication reduction ' ] || complain "3 streams: $(streams 3)"
    [ "$(streams 4)" = 'reduction tensor sums ' ] || complain "4 streams: $(streams 4)"
}

# What is in flight on each stream is waited for before it is used.
test_numbers() {
    local n
    for n in 1 4; do
        train --dp 2 --tp 2 --zero 3 --tensor 1d-sp-overlap --steps 2 --check ref --comm-streams $n; expect_status 0
        run train --data "$text" --model scmoe-tiny --dp 2 --ep 2 --bucket 10K --steps 2 --check ref --comm-streams $n; expect_status 0
    done
}

run_tests test_comm_streams test_traced_streams test_numbers
