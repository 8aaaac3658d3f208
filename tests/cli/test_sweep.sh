# A grid of runs: each combination once, interrupted and gone on with, tabulated.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/processes.sh"

write_grid() {
    make_text
    printf 'set:\n  model: tiny\n  data: "%s"\n  batch: 4\n  seq: 8\n  steps: %s\ngrid:\n  lr: [1e-3, 3e-3]\n  dp: [1, 2]\n' "$text" "${1:-2}" >grid.yaml
}

test_grid() {
    write_grid
    run sweep grid.yaml --out S;                            expect_status 0; expect_silent
    [ "$(ls S | tr '\n' ' ')" = '001 002 003 004 ' ] || complain "S has $(ls S | tr '\n' ' ')"
    expect_out '^ *run +lr +dp +loss +held-out +median (us|ms|s) +virtual (us|ms) +status$'
    expect_out '^ *003 +3e-3 +1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +done$'
    [ "$(grep -c ' done$' "$place/out")" = 4 ] || complain 'not four lines of four runs'
    run train --config S/004/run.yaml --json own.json;      expect_status 0
    expect_same <(results own.json) <(results S/004/run.json)
    cp S/002/run.json kept.json; rm S/003/run.json
    run sweep grid.yaml --out S;                            expect_status 0
    [ "$(grep -c 'done before$' "$place/out")" = 3 ] || complain 'it does not know what is done'
    expect_file S/003/run.json; expect_same kept.json S/002/run.json
    sed -i 's/steps: 2/steps: 3/' grid.yaml
    run sweep grid.yaml --out S;                            expect_status 0; expect_no_out 'done before'    # other settings
}

test_interrupted() {
    write_grid 100000
    command='orrery sweep grid.yaml; kill -INT'
    set -m; "$program" sweep grid.yaml --out S </dev/null >"$place/out" 2>"$place/err" & local job=$! waited=0; set +m
    for _ in $(seq 3000); do grep -q '^step' S/001/out.txt 2>/dev/null && break; sleep 0.02; done
    kill -INT $job
    while is_alive $job && [ $waited -lt 600 ]; do sleep 0.1; waited=$((waited + 1)); done
    status=0; wait $job || status=$?
    look
    expect_status 130; expect_out '^ *001 .* stopped$'; expect_out '^ *004 .* not run$'
    [ ! -e S/001/run.json ] && [ ! -e S/002 ] || complain 'a stopped run counts as done, or another one was begun'
}

test_what_is_refused() {
    refused() { printf "$1" >bad.yaml; run sweep bad.yaml --out S; expect_status 2; expect_error "$2"; [ ! -e S ] || complain 'it made a folder'; }
    refused 'set:\n  dp: 2\n' 'bad\.yaml: has no grid$'
    refused 'gird:\n  dp: [1]\n' 'bad\.yaml: line 1: gird: must be set or grid; did you mean grid$'
    refused 'grid:\n  dp: 2\n' 'bad\.yaml: line 2: dp: must be a list of values, such as \[1, 2\]$'
    refused 'grid:\n  dp: []\n' 'bad\.yaml: line 2: dp: has no values$'
    refused 'set:\n  dp: 1\ngrid:\n  dp: [1]\n' 'bad\.yaml: line 4: dp: is in `set`, too$'
    refused 'set: 3\ngrid:\n  dp: [1]\n' 'bad\.yaml: line 1: set: must have settings below it$'
    refused 'set:\n  dp: [1]\ngrid:\n  tp: [1]\n' 'bad\.yaml: line 2: dp: must be one value; lists are for `grid`$'
    run sweep none.yaml --out S;            expect_status 1; expect_error 'sweep none\.yaml: '
    run sweep bad.yaml;                     expect_status 2; expect_error 'sweep needs --out DIR'
    refused 'grid:\n  lrr: [1]\n' 'bad\.yaml: line 2: lrr: is no setting of train; did you mean lr\?$'
    refused 'set:\n  stepz: 20\ngrid:\n  dp: [1, 2]\n' 'bad\.yaml: line 2: stepz: is no setting of train; did you mean steps\?$'
    refused 'grid:\n  lr: [1e-3, 3e-3, high]\n' 'bad\.yaml: line 2: --lr .*high'
    refused 'set:\n  dtype: fp31\ngrid:\n  dp: [1, 2]\n' 'bad\.yaml: line 2: --dtype fp31: '
    refused 'grid:\n  config: [a, b]\n' 'bad\.yaml: line 2: config: is for the command line alone$'
    printf 'set:\n  model: tiny\n  batch: 4\n  steps: 1\ngrid:\n  dp: [5]\n' >bad.yaml         # each is a setting; not all can be combined
    run sweep bad.yaml --out S;             expect_status 1; expect_error 'run 001 ended with status 2: see S/001/out\.txt$'
    grep -q 'orrery: ' S/001/out.txt || complain 'the run does not say what is wrong'
}

run_tests test_grid test_interrupted test_what_is_refused
