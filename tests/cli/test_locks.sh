# Two runs do not write into one place: the second is refused, a killed one blocks nobody, and logs say whose a line is.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/processes.sh"

small='--batch 2 --seq 8'

# A run that lasts for ever, after its first step.  Leaves its process in `job`.
start() {
    make_text
    command="orrery train --steps 1000000 $*"
    out='' err=''
    : >"$place/first"
    set -m
    "$program" train --model tiny --data "$text" $small --steps 1000000 "$@" </dev/null >"$place/first" 2>&1 &
    job=$!
    set +m
    for _ in $(seq 3000); do grep -q '^step' "$place/first" && return; is_alive $job || break; sleep 0.02; done
    complain "it has not begun: $(cat "$place/first")"
}
stop() { kill "-$1" $job; wait $job 2>/dev/null; }

held="run [0-9a-f]{8}, process [0-9]+ on [^ ]+, begun .* ago, writes here: wait for its end, or give another place"
by_first() { grep -q "process $job on " "$place/err" || complain "it does not name process $job"; }

test_a_second_run_is_refused() {
    local mesh words
    for mesh in '--dp 1' '--dp 2'; do
        start $mesh --save both --save-every 1000000 --log l.jsonl --tensorboard events --trace t.json
        for words in '--save both' '--save both/' "--save $PWD/both --dp 2" '--save ./both/../both --resume auto' '--log l.jsonl --dp 2' '--tensorboard events' '--trace t.json'; do
            train $small --steps 1 $words;      expect_status 1
            expect_error "--(save|log|tensorboard|trace) [^ ]+: $held"; by_first
        done
        train_under 2 $small --dp 2 --steps 1 --save both
        expect_status 1; grep -qE "^orrery: --save both: $held" "$place/err" || complain 'a device does not say who writes'
        train $small --steps 1 --save other --log m.jsonl --trace u.json;      expect_status 0; expect_silent
        run report l.jsonl --out page.html;     expect_status 0                 # readers need no lock
        stop TERM
        [ "$(grep -c '"type":"start"' l.jsonl)" = 1 ] || complain 'the log is of more than one run'
        [ "$(sed 's/.*"run":"\([0-9a-f]*\)"}$/\1/' l.jsonl | sort -u | wc -l)" = 1 ] || complain 'lines of the log are of more than one run'
        command="after orrery train $mesh"; out=$(ls -A . both events); err=
        case $out in *lock*) complain 'a lock is left' ;; esac
        train $small --steps 1 --save both --log l.jsonl;       expect_status 0; expect_silent; expect_no_out '^lock'
        rm -r both events other ./*l t.json u.json
    done
}

# Whatever the signal, the same words go on at once.
test_a_killed_run_blocks_nobody() {
    local mesh at
    for mesh in '--dp 1' '--dp 2'; do
        start $mesh --save kept --save-every 1 --keep 2 --log l.jsonl
        for at in $(seq 500); do [ -e kept/step-00000002/checkpoint.sha256 ] && break; sleep 0.02; done
        [ -e kept/.orrery.lock ] || complain 'there is no lock'
        stop KILL                                   # a device may live a moment longer
        [ -e kept/.orrery.lock ] || complain 'who is killed can remove nothing'
        at=$(ls kept | sed -n '$s/step-0*//p')
        train $small $mesh --steps $((at + 3)) --lr-steps 1000000 --override --save kept --save-every 1 --keep 2 --log l.jsonl --resume auto
        expect_status 0; expect_silent
        expect_out "^lock +--save kept: taken over from run [0-9a-f]{8}, process $job on [^ ]+, begun .* ago, which has$|^lock .*which has ended"
        [ "$(ls -A . kept | grep -c lock)" = 0 ] || complain "a lock is left: $(ls -A . kept)"
        [ "$(sed -n 's/^{"type":"step","step":\([0-9]*\),.*/\1/p' l.jsonl | uniq -d)" = '' ] || complain 'a step is in the log twice'
        [ "$(sed 's/.*"run":"\([0-9a-f]*\)"}$/\1/' l.jsonl | sort -u | wc -l)" = 2 ] || complain 'the log does not tell the two runs apart'
        rm -r kept l.jsonl
    done
}

# Both begin at once: one writes, and what is there is its own.  On a busy machine one may have ended when the other begins.
test_two_at_once() {
    make_text
    local i a b first second
    for i in $(seq 20); do
        "$program" train --model tiny --data "$text" $small --steps 300 --seed 42 --save both --save-every 100 --keep 2 --log l.jsonl </dev/null >a 2>&1 & a=$!
        "$program" train --model tiny --data "$text" $small --steps 300 --seed 7 --save both --save-every 100 --keep 2 --log l.jsonl </dev/null >b 2>&1 & b=$!
        command='two runs at once'
        first=0 second=0
        wait $a || first=$?
        wait $b || second=$?
        out=$(cat a b | grep -v '^step') err=
        [ "$(grep -c '"type":"step"' l.jsonl)" = 300 ] || complain "the log has $(grep -c '"type":"step"' l.jsonl) steps of 300"
        [ "$(sed 's/.*"run":"\([0-9a-f]*\)"}$/\1/' l.jsonl | sort -u | wc -l)" = 1 ] || complain 'lines of the log are of both'
        [ "$(ls -A both | tr '\n' ' ')" = 'step-00000200 step-00000300 ' ] || complain "the folder has $(ls -A both)"
        rm -r both l.jsonl
        [ $((first + second)) = 0 ] || break
    done
    [ $((first + second)) = 1 ] || complain "they end with $first and $second: one has to be refused"
    [ "$(grep -c '^orrery: --\(save\|log\) .*writes here' a b | grep -c ':1$')" = 1 ] || complain 'not one of them says who writes'
}

test_dumps_and_sweeps() {
    make_text
    cp "$top/golden/gpt2-tied.safetensors" g.safetensors
    mkdir dump; printf 'orrery-lock 1\nrun other\nhost elsewhere\nboot -\nspace -\nprocess 7\nshown 7\nstarted 1\nsince 1\n' >dump/.orrery.lock
    run train --check g.safetensors --dp 2 --dump dump/;    expect_status 1
    expect_error '--dump dump/: run other, process 7 on elsewhere, begun .* ago, last seen .* ago, writes here: .* if it has ended, remove .*/dump/\.orrery\.lock, or wait until it has not been seen for 300 s'
    cp dump/.orrery.lock .d.safetensors.lock
    run train --check g.safetensors --dump d.safetensors;   expect_status 1; expect_error '--dump d.safetensors: run other, process 7'
    touch -d '-10 minutes' dump/.orrery.lock .d.safetensors.lock
    run train --check g.safetensors --dp 2 --dump dump/;    expect_status 0; expect_out '^lock +--dump dump/: taken over from run other'
    printf 'set:\n  model: tiny\n  steps: 1\ngrid:\n  seed: [1, 2]\n' >grid.yaml
    mkdir sweep; cp .d.safetensors.lock sweep/.orrery.lock; touch sweep/.orrery.lock
    run sweep grid.yaml --out sweep;                        expect_status 1; expect_error '--out sweep: run other, process 7 on elsewhere'
    rm sweep/.orrery.lock
    run sweep grid.yaml --out sweep;                        expect_status 0; [ ! -e sweep/.orrery.lock ] || complain 'its lock is left'
}

# A run that is refused for another reason leaves neither a lock nor a folder.
test_nothing_is_left() {
    make_text
    train $small --steps 1 --save new --trace no/such/t.json;       expect_status 1; expect_nothing
    train $small --steps 1 --dp 2 --save new --memory 1K;           expect_status 2; expect_nothing
    train $small --steps 1 --save new --log l.jsonl --resume nowhere;   [ "$status" != 0 ] || complain 'it resumes from nowhere'; expect_nothing
}

# One name in everything that a run leaves; another run has another name, and a plan has none.
test_names_of_runs() {
    train $small --steps 2 --save kept --log l.jsonl --json out.json;       expect_status 0
    local name; name=$(sed -n '1s/.*"run":"\([0-9a-f]\{8\}\)"}$/\1/p' l.jsonl)
    [ -n "$name" ] || complain 'the first line of the log has no run'
    [ "$(grep -c "\"run\":\"$name\"}\$" l.jsonl)" = "$(wc -l <l.jsonl)" ] || complain 'a line of the log does not say of which run it is'
    grep -q "^  run: \"\?$name\"\?\$" kept/run.yaml || complain 'the checkpoint does not say of which run it is'
    grep -q "\"run\":.\"$name\"" out.json || complain 'the report does not say of which run it is'
    train $small --steps 1 --config kept/run.yaml --log m.jsonl --save again;     expect_status 0
    grep -q "\"run\":\"$name\"" m.jsonl && complain 'another run has its name'
    run plan --model tiny --json plan.json;                 expect_status 0
    ! grep -q '"run":' plan.json || complain 'a plan is no run'
}

run_tests test_a_second_run_is_refused test_a_killed_run_blocks_nobody test_two_at_once test_dumps_and_sweeps test_nothing_is_left test_names_of_runs
