# `orrery bench temporal`: a table of both kinds of nodes, the numbers of one device, and wrong uses.
. "$(dirname "$0")/lib.sh"

test_table() {
    run bench temporal --events 256 --devices 3 --json out.json;        expect_status 0; expect_silent
    expect_out '^  slow nodes +1 +0\.0 +0\.0000 +0\.0000$'; expect_out '^  fast nodes +64 '
    expect_out '^slow nodes: with prediction, batches four times as large have no larger error in [0-3] of 3 sizes'
    expect_out '^OK: batches of one event are exact, and all devices have the numbers of one$'
    [ "$(grep -c '"with prediction"' out.json)" = 10 ] || complain 'the document has not 10 rows'
}

# Without prediction nothing is better: the direction of the claim is gone.
test_without_weight() {
    run bench temporal --events 256 --devices 1 --weight 0;             expect_status 3; expect_error 'no smaller'
}

test_refused() {
    run bench temporal --events 1;      expect_status 2; expect_error 'events'
    run bench temporal --weight 2;      expect_status 2; expect_error 'weight'
}

run_tests test_table test_without_weight test_refused
