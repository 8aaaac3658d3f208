# What a run writes while it runs: logs, checkpoints from time to time; and that a signal loses nothing of it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/processes.sh"

small='--batch 4 --seq 8'
steps_of() { sed -n 's/^{"type":"step","step":\([0-9]*\),.*/\1/p' "$1" | tr '\n' ' '; }
# Steps without what the clock of the wall says, and which run it was.
course() { sed -n 's/^\({"type":"step".*\),"seconds":[^,]*,"tokens_per_second":[^,}]*/\1/; s/,"run":"[0-9a-f]*"}$/}/p' "$1" | grep '^{"type":"step"'; }

test_lines() {
    train $small --steps 7 --log a.jsonl --eval-every 3;            expect_status 0; expect_silent
    [ "$(steps_of a.jsonl)" = '1 2 3 4 5 6 7 ' ] || complain "a.jsonl has the steps $(steps_of a.jsonl)"
    [ "$(grep -c '"validation_loss"' a.jsonl)" = 3 ] || complain 'not three losses on held-out text: after 3, after 6, at the end'
    head -n 1 a.jsonl | grep -q '^{"type":"start","step":0,"schema":2,"last_step":7,"devices":1,"written_by":{"run":"[0-9a-f]\{8\}","version":.*"settings":{.*"steps":"7"' || complain 'its head does not say what it is'
    tail -n 1 a.jsonl | grep -q '^{"type":"end","step":7,"status":"done","validation_loss":' || complain 'it has no end'
    train $small --steps 7 --log a.csv --log-every 4;               expect_status 0
    [ "$(cut -d, -f1 a.csv | tr '\n' ' ')" = 'step 4 7 ' ] || complain "a.csv has $(cut -d, -f1 a.csv | tr '\n' ' ')"
    [ "$(awk -F, 'NF != 9' a.csv)" = '' ] || complain 'a line of a.csv has not nine fields'
    [ "$(sed -n 2p a.csv | cut -d, -f2)" = "$(sed -n 's/.*"step":4,"loss":\([^,]*\),.*/\1/p' a.jsonl)" ] || complain 'a.csv has another loss than a.jsonl'
}

# Evaluating and logging change nothing of what is computed, counted and predicted.
test_looking_changes_nothing() {
    make_text
    local plans=('--dp 2 --zero 3' '--offload optimizer,weights --offload-to host')
    [ "${TIER:-test}" != verify ] || plans+=('--pp 2' '--tp 3 --dp 2' '--cp 2' '--optimizer mezo --dp 2')
    for words in "${plans[@]}"; do
        run train --model tiny --data "$text" $small --steps 4 $words --json plain.json;        expect_status 0
        run train --model tiny --data "$text" $small --steps 4 $words --json seen.json --eval-every 1 --log log.jsonl --save kept --save-every 2
        expect_status 0; expect_silent
        expect_same <(results plain.json) <(results seen.json)
        rm -r kept
    done
}

# Ten steps, or ten in three runs of the same words, of which two were cut short: the same checkpoints, the same lines.
test_the_same_words_again() {
    train $small --steps 10 --save whole --save-every 3 --log whole.jsonl;      expect_status 0
    local words="$small --steps 10 --save S --save-every 3 --keep 2 --resume auto --log log.jsonl"
    train $words --lr-steps 10;                                     expect_status 0
    expect_same whole/step-00000010/model.safetensors S/step-00000010/model.safetensors
    [ "$(ls S | tr '\n' ' ')" = 'step-00000009 step-00000010 ' ] || complain "S has $(ls S | tr '\n' ' ')"
    train $words;           expect_status 0; expect_silent; expect_out '^resumed S/step-00000010, at step 10$'      # nothing is left to do
    rm -r S/step-00000010
    printf '{"type":"step","step":11,"loss":1}\n{"type":"st' >>log.jsonl        # of a run that was killed
    mkdir S/step-00000012; cp S/step-00000009/config.json S/step-00000012/      # killed while it saved: no list, no checkpoint
    train $words;           expect_status 0; expect_out '^resumed S/step-00000009, at step 9$'
    for f in model.safetensors optimizer.safetensors training.json; do expect_same whole/step-00000010/$f S/step-00000010/$f; done
    expect_same <(course whole.jsonl) <(course log.jsonl)
    [ "$(grep -c '"type":"end"' log.jsonl)" = 1 ] || complain 'the log has not one end'
    run train --resume S --steps 1;                                 expect_status 0; expect_out '^resumed S/step-00000010, at step 10$'
    run train --model S/step-00000009 --data "$text" --steps 0;     expect_status 0
    touch S/step-00000009/mine; train ${words/--steps 10/--steps 13};       expect_status 0     # what is not ours is not removed
    [ "$(ls S/step-00000009)" = mine ] || complain "step 9 has $(ls S/step-00000009)"
}

# stopped SIGNAL STATUS NAME WORDS..: a long run is asked in the middle; what it saved goes on as if it had not been.
stopped() {
    local number=$1 want=$2 name=$3 job waited=0; shift 3
    make_text
    command="orrery train --steps 100000 $*; kill -$number"
    : >"$place/out"; rm -rf S log.jsonl
    set -m
    "$program" train --model tiny --data "$text" $small --steps 100000 --lr-steps 30 --save S --log log.jsonl --json run.json "$@" </dev/null >"$place/out" 2>"$place/err" &
    job=$!
    set +m
    for _ in $(seq 3000); do [ -e log.jsonl ] && [ "$(wc -l <log.jsonl)" -gt 4 ] && break; sleep 0.02; done
    kill -"$number" $job
    [ "$number" != INT ] || kill -INT $job              # as a shell and `timeout` do: one wish
    while is_alive $job && [ $waited -lt 1200 ]; do sleep 0.1; waited=$((waited + 1)); done
    is_alive $job && { complain 'it does not end'; kill -9 $job; }
    status=0; wait $job 2>/dev/null || status=$?
    look
    expect_status "$want"
    expect_error "stopped: $name after step [0-9]+; saved in S\$"
    expect_out '^loss    [0-9.]* on 4 sequences of held-out text$'
    grep -q "\"stopped\":	\"$name\"" run.json || complain 'its JSON does not say that it was stopped'
    tail -n 1 log.jsonl | grep -q "\"status\":\"stopped\",\"signal\":\"$name\"" || complain "the last line of its log is $(tail -n 1 log.jsonl)"
    at=$(sed -n 's/.*"type":"end","step":\([0-9]*\),.*/\1/p' log.jsonl)
    [ "$(steps_of log.jsonl)" = "$(seq -s ' ' 1 "$at") " ] || complain "after step $at its log has $(steps_of log.jsonl)"
    grep -q "\"step\":	$at," S/training.json || complain "its checkpoint is not of step $at"
}
test_signals_lose_nothing() {
    local at
    stopped INT 130 SIGINT
    stopped TERM 143 SIGTERM --dp 2
    run train --resume S --steps 2 --dp 2 --save more;                     expect_status 0
    train $small --steps $((at + 2)) --lr-steps 30 --dp 2 --save whole;     expect_status 0
    expect_same whole/model.safetensors more/model.safetensors
    [ "${TIER:-test}" = verify ] || return
    stopped TERM 143 SIGTERM --check ref
    stopped INT 130 SIGINT --pp 2
    stopped INT 130 SIGINT --dp 2 --zero 3 --offload optimizer
}

test_what_is_refused() {
    train --steps 1 --log a.txt;            expect_status 2; expect_error '--log a\.txt: must end with \.jsonl or \.csv$'
    train --steps 1 --log no/where.csv;     expect_status 1; expect_error '--log no/where\.csv: '
    train --steps 1 --tensorboard no/where; expect_status 1; expect_error '--tensorboard no/where: this folder cannot be made'
    train --steps 1 --log-every 2;          expect_status 2; expect_error '--log-every 2: needs --log FILE or --tensorboard DIR$'
    train --steps 1 --save-every 2;         expect_status 2; expect_error '--save-every 2: needs --save DIR$'
    train --steps 1 --save S --keep 2;      expect_status 2; expect_error '--keep 2: needs --save-every N$'
    train --steps 1 --resume auto;          expect_status 2; expect_error '--resume auto: needs --save DIR$'
    train --steps 1 --lr-decay 2;           expect_status 2; expect_error '--lr-decay 2: is for --lr-schedule wsd, not cosine$'
    train --steps 1 --save no/where/S --save-every 1;               expect_status 1; expect_error '--save no/where/S: '
    expect_nothing
    if [ -e /dev/full ]; then
        ln -s /dev/full full.jsonl
        train --steps 1 --log full.jsonl;   expect_status 1; expect_error '--log full\.jsonl: writing failed: No space left on device$'
    fi
}

# A run that begins before the checkpoints of a folder would remove its own, and --resume auto would go on from the others.
test_later_checkpoints_are_not_passed_by() {
    train $small --steps 6 --save S --save-every 2 --keep 2;    expect_status 0
    train $small --steps 6 --save S --save-every 2 --keep 2
    expect_status 1; expect_error '--save S: has a checkpoint of step 6, and this run begins with step 0: go on from there .--resume auto., or give another folder$'
    train $small --steps 8 --lr-steps 6 --override --save S --save-every 2 --keep 2 --resume S/step-00000004
    expect_status 1; expect_error 'has a checkpoint of step 6, and this run begins with step 4'
    [ "$(ls S)" = $'step-00000004\nstep-00000006' ] || complain "S has $(ls S)"
    train $small --steps 8 --lr-steps 6 --override --save S --save-every 2 --keep 2 --resume auto
    expect_status 0; [ "$(ls S)" = $'step-00000006\nstep-00000008' ] || complain "S has $(ls S)"
}

run_tests test_lines test_looking_changes_nothing test_the_same_words_again test_signals_lose_nothing test_later_checkpoints_are_not_passed_by test_what_is_refused
