# `orrery calibrate`: the file it writes is a cluster; a check runs; words that are wrong.  No time is compared.
. "$(dirname "$0")/lib.sh"
export ORRERY_LOAD=0                    # whatever the machine has to do

test_measures() {
    run calibrate --devices 2 --rounds 1 --out this.json --json all.json; expect_status 0; expect_silent
    expect_columns 160; expect_file this.json
    expect_out '^2 devices on [0-9]+ cores?, [0-9]+ threads? each, fp32; all work at once, the least of 1 rounds$'
    expect_out '^  product 256 x 96 x 384 +[0-9.]+ '; expect_out '^  dropout, '; expect_out '^  8 messages of 1 KiB '
    expect_out '^link    latency '; expect_out '^written this.json'
    grep -q '"format":	"orrery calibrate"' all.json || complain 'its JSON has no format'
    grep -q '"dropout":	[0-9]' this.json || complain 'the file has no share of dropout'
    # What is in the file is what a run is told, and nothing but it.
    run plan --model tiny --dp 2 --cluster this.json --json -; expect_status 0; expect_out '"cluster":	"this-machine-2"'
    run plan --model tiny --dp 4 --cluster this.json; expect_status 2; expect_error 'it has 2 devices; the mesh has 4'
    run plan --model tiny --dp 2 --dtype fp64 --cluster this.json; expect_status 2; expect_error 'does not say how fast'
    run calibrate --check --devices 1 --quick --steps 2 --model tiny,llama-tiny --cluster this.json --json check.json
    expect_status 0; expect_out '^  llama-tiny +one device +[0-9.]+ '; expect_no_out 'dp 2'
    grep -q '"virtual_seconds"' check.json || complain 'its JSON has no virtual time'
}

# STREAM's loops: rates above 0, and arrays that the program itself has checked.
test_stream() {
    run calibrate --stream --elements 4097 --rounds 2 --json rates.json; expect_status 0; expect_silent
    expect_out '^4097 elements of fp64 in each of three arrays, [0-9]+ threads?, [0-9]+ pieces; the best of 2 rounds$'
    expect_out '^  triad +[0-9.]+ +[0-9.]+ +[0-9.]+$'
    grep -q '"format":	"orrery calibrate --stream"' rates.json || complain 'its JSON has no format'
    [ "$(grep -c '"by_tasks":' rates.json)" = 4 ] || complain 'its JSON has not four loops'
    run calibrate --stream --check;                      expect_status 2; expect_error '--stream: .*without --check'
    run calibrate --elements 8;                          expect_status 2; expect_error '--elements: only with --stream'
}

test_refusals() {
    run calibrate --help;                                expect_status 0; expect_out '^usage: orrery calibrate'
    run calibrate --devices 0;                           expect_status 2; expect_error '--devices'
    run calibrate --rounds 0;                            expect_status 2; expect_error '--rounds'
    run calibrate --out this.json --check;               expect_status 2; expect_error '--out: a check writes no cluster'
    run calibrate --cluster toy;                         expect_status 2; expect_error '--cluster: only with --check'
    run calibrate --steps 3;                             expect_status 2; expect_error '--steps: only with --check'
    run calibrate --check --model nothing;               expect_status 2; expect_error '--model nothing'
    run calibrate --check --model '';                    expect_status 2; expect_error '--model: must not be empty'
    run calibrate --devices 1 --rounds 1 --out /nowhere/x.json; expect_status 1; expect_error '--out /nowhere/x.json'
    run calibrate --check --devices 1 --quick --steps 2 --model tiny --cluster nothing; expect_status 1; expect_error 'orrery train: --cluster nothing'
    expect_nothing
}

# With more to do than cores nothing is measured, unless it is asked for.
test_load() {
    local cores; cores=$(getconf _NPROCESSORS_ONLN)
    export ORRERY_LOAD=$((cores + 1))
    run calibrate --devices 1 --rounds 1 --out busy.json; expect_status 2; expect_error "the machine's load is $((cores + 1)).0 on $cores core"
    expect_error '--busy'; [ ! -e busy.json ] || complain 'a file of a busy machine is written'
    run calibrate --check --devices 1 --quick --steps 2 --model tiny; expect_status 2; expect_error "the machine's load"
    run calibrate --devices 1 --rounds 1 --busy --out busy.json; expect_status 0; expect_file busy.json
    export ORRERY_LOAD=$cores
    run calibrate --devices 1 --rounds 1;                 expect_status 0
    export ORRERY_LOAD=0
}

run_tests test_measures test_stream test_refusals test_load
