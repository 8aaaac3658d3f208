# `orrery doctor`: what it says of this machine, and what of one that lacks something.
. "$(dirname "$0")/lib.sh"

# A line for each check, and a verdict that the status agrees with.
test_this_machine() {
    local check
    run doctor;                                     expect_columns 100; expect_silent
    for check in program cores load memory shared temporary messages matrices products compiler cage python 'a run'; do
        expect_out "^  (ok|lack|BAD) +$check +[A-Za-z0-9/]"
    done
    expect_status 0; expect_out '^OK: runs work'; expect_out '^  ok +a run +a step on 2 devices equals one device; it took [0-9.]+ s'
    run doctor --quick;                             expect_status 0; expect_no_out 'a run'
    run doctor --quick --json d.json;               expect_status 0; grep -q '"check":	"products"' d.json || complain 'no rows for programs'
}

# What is missing is named with its cure; what only a part needs is no failure.
test_what_is_missing() {
    mkdir empty
    PATH=$PWD/empty:/usr/sbin run_here doctor;      expect_status 1
    expect_out '^  BAD +messages +.* is not in PATH'; expect_out 'ORRERY_ONE_PROCESS=1'; expect_out '^  BAD +a run +'
    expect_out '^FAILED: 2 things keep runs from working'
    CC=no-such-cc run doctor --quick;               expect_status 0; expect_out '^  lack +compiler +no-such-cc does not work'; expect_out '^OK: runs work; [0-9]+ things? could be better'
    TMPDIR=$PWD/nowhere run doctor --quick;         expect_status 1; expect_out '^  BAD +temporary .*nowhere cannot be written: No such'; expect_out 'set TMPDIR'
    ORRERY_LOAD=50 run doctor --quick;              expect_status 0; expect_out '^  lack +load +50.0 processes'
    (ulimit -n 40; "$program" doctor --quick >"$place/out" 2>&1); expect_out 'lack|BAD|ok'
}
run_here() { command="orrery $*"; status=0; "$program" "$@" </dev/null >"$place/out" 2>"$place/err" || status=$?; }

test_failing_runs_point_here() {
    mkdir none
    PATH=$PWD/none run_here train --model tiny --dp 2 --steps 1;    expect_status 1; expect_error 'is MPICH installed, and in PATH\?  .orrery doctor. looks at this machine'
}

test_wrong_use() {
    run doctor now;                                 expect_status 2; expect_error 'now: doctor takes no such argument'
}

run_tests test_this_machine test_what_is_missing test_failing_runs_point_here test_wrong_use
