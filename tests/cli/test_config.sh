# A run's settings in a file: what is written repeats the run, bit for bit; what is wrong is refused with its line.
# tier: check
. "$(dirname "$0")/lib.sh"

# The default text is what lies in the current folder: an empty one has none, so each run here is given one.
test_a_file_is_the_flags() {
    make_text
    printf 'model: tiny\ndata: "%s"\nbatch: 4 # sequences\nseq: 8\nsteps: 2\nprefetch: false\nuntied: true\n"lr": 3e-3\n' "$text" >run.yaml
    run train --config run.yaml --json from_file.json;      expect_status 0; expect_silent
    train --batch 4 --seq 8 --steps 2 --prefetch no --untied --lr 3e-3 --json from_flags.json
    expect_status 0
    same_run from_file.json from_flags.json
    run train --config=run.yaml --steps 1 --json less.json; expect_status 0     # flags override
    [ "$(grep -c '"loss":' less.json)" = 1 ] || complain 'two steps, though --steps 1'
    grep -q '"untied":	"true"' less.json || complain 'its settings do not say that it is untied'
    grep -q '"steps":	"1"' less.json || complain 'its settings do not have the flag'
    run plan --config run.yaml --dp 2;                      expect_status 0     # of train's settings those that it has
}
same_run() { expect_same <(results "$1") <(results "$2"); }

# From the command line to a file, from a file to itself, from a checkpoint: always the same bits.
test_what_is_written_repeats_the_run() {
    make_text
    local flags=(--model tiny --data "$text" --batch 4 --seq 8 --steps 3 --dp 2 --zero 1 --lr 0.0123456789012345678
                 --seed 18446744073709551557 --bucket 1.5K --schedule 1f1b --isolate --check ref --reshard-after-forward no --backend cpu)
    run train "${flags[@]}" --save a;                       expect_status 0
    run train "${flags[@]}" --save b --print-config;        expect_status 0; expect_silent; expect_columns 100
    cp "$place/out" b.yaml
    [ ! -e b ] || complain 'it trains though it only prints'
    run train --config b.yaml --print-config;               expect_status 0
    expect_same b.yaml "$place/out"
    run train --config b.yaml;                              expect_status 0
    run train --config a/run.yaml --save c;                 expect_status 0
    for f in model.safetensors optimizer.safetensors training.json; do expect_same a/$f b/$f; expect_same a/$f c/$f; done
    grep -q '^  command: \[orrery, train, --config, a/run.yaml, "--save", c\]$\|^  command: \[orrery, train, "--config", a/run.yaml, "--save", c\]$' c/run.yaml ||
        complain "run.yaml does not have the command: $(grep command c/run.yaml)"
    for key in version model seed host system processor cores; do grep -q "^  $key: ." c/run.yaml || complain "run.yaml has no $key"; done
}

# What a run has written besides: its JSON, its log, a page about it.  A page about several has no settings of one.
test_what_a_run_tells_repeats_it() {
    local f
    train --batch 2 --seq 8 --steps 2 --dp 2 --lr 3e-3 --json a.json --log a.jsonl; expect_status 0
    run report a.json --out a.html;                         expect_status 0
    for f in a.json a.jsonl a.html; do
        cp $f told; run train --config told --json b.json --log b.jsonl; expect_status 0; expect_silent
        same_run a.json b.json
        run train --config told --steps 1 --json b.json --log b.jsonl;  expect_status 0
        [ "$(grep -c '"loss":' b.json)" = 1 ] || complain "$f: flags do not override it"
    done
    run report a.json b.jsonl --out two.html;               expect_status 0
    run train --config two.html;                            expect_status 2; expect_error '--config two.html: is a page about several runs'
    echo '<html>' >no.html
    run train --config no.html;                             expect_status 2; expect_error '--config no.html: is a page without the settings of a run'
    echo '{"settings": {"dp": 2}}' >no.json
    run train --config no.json;                             expect_status 2; expect_error '--config no.json: its settings cannot be read'
    echo '{"settings": {"dpp": "2"}}' >no.json
    run train --config no.json;                             expect_status 2; expect_error '--config no.json: line 1: dpp: is no setting of train; did you mean dp\?'
}

# Every option, with its default behind a # that is taken away: accepted, or refused by its own rules, never unknown.
test_defaults_are_settings() {
    run train --print-config;                               expect_status 0
    sed -n 's/^#\([a-z-]*: .\)/\1/p' "$place/out" >defaults
    [ "$(wc -l <defaults)" -gt 35 ] || complain "only $(wc -l <defaults) defaults"
    local line
    while read -r line; do
        echo "$line" >one.yaml
        run train --config one.yaml --print-config </dev/null
        grep -q 'line 1' "$place/err" && complain "its own default is refused: $line: $err"
    done < <(grep -E '^(dp|lr|zero|bucket|steps|seed|tensor|dtype|prefetch|untied|cluster|quantize-block|wait-limit): ' defaults)
}

refused() {                             # refused 'CONTENT' 'WHAT IS SAID'
    printf "$1" >bad.yaml
    run train --config bad.yaml --steps 0
    expect_status 2; expect_error "--config bad\.yaml: $2"
}
test_what_is_refused() {
    refused 'dp: 2\ndpp: 2\n' 'line 2: dpp: is no setting of train; did you mean dp\?$'
    refused '\n\nhumour: red\n' 'line 3: humour: is no setting of train; see orrery train --print-config$'
    refused 'dp: 0\n' 'line 1: --dp 0: must be a whole number from 1 to'
    refused 'dtype: fp33\n' 'line 1: --dtype fp33: there is no such choice; did you mean fp32\?$'
    refused 'untied: yes\n' 'line 1: untied: must be true or false, not yes$'
    refused 'prefetch: no\n' 'line 1: prefetch: must be true or false, not no$'
    refused 'dp: 2\nlr: 1\ndp: 2\n' 'line 3: dp stands in line 1 already$'
    refused 'dp: &x 2\n' 'line 1: there can be no anchors \(&\) and no tags \(!\)$'
    refused 'dp: !!int 2\n' 'line 1: there can be no anchors'
    refused 'dp: 2\ntp: *x\n' 'line 2: there can be no aliases \(\*\)$'
    refused 'dp: [2]\n' 'line 1: dp: must be one value$'
    refused 'dp:\n' 'line 1: dp has no value$'
    refused 'just words\n' 'line 1: there must be lines of the form KEY: VALUE$'
    refused 'dp: 2\n---\ntp: 2\n' 'line 2: there can be only one document$'
    refused 'config: other.yaml\n' 'line 1: config: is for the command line alone$'
    refused 'name: \000\n' 'byte 6: control characters are not allowed$'
    run train --config none.yaml;                           expect_status 2; expect_error '--config none\.yaml: '
    run train --config . ;                                  expect_status 2; expect_error '--config \.: '
    run train --config;                                     expect_status 2; expect_error '--config needs a value: --config FILE$'
    printf 'steps: 3\n' >good.yaml
    run train --config good.yaml --config good.yaml;        expect_status 2; expect_error '--config is given twice$'
}

# A pipe has no size, and a file of the system says 0 bytes: both are read to the end.
test_pipes() {
    make_text
    local words=(--model tiny --data "$text" --batch 4 --seq 8 --json seen.json) dp
    for dp in 1 2; do
        printf 'steps: 3\nlr: 1e-3\n' >run.yaml
        run train --dp $dp "${words[@]}" --config run.yaml;         expect_status 0; cp seen.json filed.json
        from_pipe() { "$program" train --dp $dp "${words[@]}" --config <(cat run.yaml) </dev/null; }
        command="orrery train --dp $dp --config <(cat run.yaml)"
        watched from_pipe;                                          expect_status 0; expect_silent; same_run filed.json seen.json
        mkfifo fifo; cat run.yaml >fifo &
        run train --dp $dp "${words[@]}" --config=fifo;             expect_status 0; expect_silent; same_run filed.json seen.json
        rm fifo
    done
    run train --config /proc/self/environ;                          expect_status 2; expect_error '--config /proc/self/environ: '
    : >empty.yaml; printf ' \n\n' >blank.yaml
    run train --config empty.yaml;                                  expect_status 2; expect_error '--config empty\.yaml: is empty$'
    run train --config blank.yaml;                                  expect_status 2; expect_error '--config blank\.yaml: is empty$'
    run train --config /dev/null;                                   expect_status 2; expect_error '--config /dev/null: is a device, a file was expected$'
    endless() { "$program" train --config <(yes) </dev/null; }
    watched endless;                                                expect_status 2; expect_error '--config /dev/fd/[0-9]+: has more bytes than the [0-9]+ that are read$'
    from_pipe() { "$program" train --model tiny --steps 1 --batch 2 --dp $dp --data <(cat "$text") </dev/null; }
    dp=1; watched from_pipe;                                        expect_status 0; expect_out '^text .*, 8893 bytes'
    dp=2; watched from_pipe;                                        expect_status 2; expect_error '/dev/fd/[0-9]+: is a pipe, which 2 devices cannot read as well; give a file$'
}

run_tests test_pipes test_a_file_is_the_flags test_what_is_written_repeats_the_run test_what_a_run_tells_repeats_it test_defaults_are_settings test_what_is_refused
