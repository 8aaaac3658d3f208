# A model goes on with a text: greedy as transformers, by its own tokenizer, after training on any mesh; streaming on a terminal.
. "$(dirname "$0")/lib.sh"

gpt2=$top/golden/tokenizers/gpt2.json
list_of() { tr -d '\n' <"$1" | sed -n 's/.*"'"$2"'":[[:space:]]*\[\([^]]*\)\].*/\1/p' | tr -d ' ,\t' ; }

test_greedy_as_transformers() {
    local name want
    for name in gpt2 mixtral; do
        run sample --model "$top/golden/sampling/$name" --prompt 'First Citizen:' --tokens 24 --temperature 0 --json out.json
        expect_status 0; expect_silent
        want=$(tail -n 1 "$top/golden/sampling/$name/greedy.txt" | tr -d ' ')
        [ "$(list_of out.json ids)" = "$want" ] || complain "$name: other tokens than transformers"
    done
}

test_seeds_and_filters() {
    local words='sample --model tiny --prompt ab --tokens 20'
    run $words --seed 1;                    expect_status 0; expect_silent; cp "$place/out" one
    run $words --seed 1;                    expect_same one "$place/out"
    run $words --seed 2;                    ! cmp -s one "$place/out" || complain 'another seed makes no difference'
    run $words --temperature 0;             cp "$place/out" greedy
    run $words --top-k 1;          expect_same greedy "$place/out"
    run $words --top-p 1e-6;       expect_same greedy "$place/out"
    run $words --dtype fp64 --temperature 0; expect_status 0
}

# A run on a mesh is spoken to as it was trained: its tokenizer is found, of a series the newest checkpoint is taken.
test_after_training() {
    seq 300 >text
    run train --model llama-tiny --tokenizer "$gpt2" --data text --batch 4 --seq 8 --steps 4 --tp 2 --pp 2 --save saved --save-every 2
    expect_status 0
    run sample --model saved --prompt '1 2' --tokens 6 --json -;    expect_status 0; cp "$place/out" newest
    run sample --model saved/step-00000004 --prompt '1 2' --tokens 6 --json -;
    expect_same <(grep -v 'second\|words' newest) <(grep -v 'second\|words' "$place/out")
    run sample --model saved/step-00000002 --prompt '1 2' --tokens 6 --tokenizer "$gpt2";   expect_status 0; expect_out '^1 2'
    cp -r saved/step-00000004 moved; cp "$gpt2" moved/tokenizer.json
    run sample --model moved --prompt '1 2' --tokens 6 --json -
    expect_same <(grep -v 'second\|words' newest) <(grep -v 'second\|words' "$place/out")
    printf x >>saved/step-00000004/model.safetensors
    run sample --model saved --prompt a;            expect_status 1; expect_error '--model .*model.safetensors: '
}

# What ends a text is in its files.
test_stops() {
    cp -r "$top/golden/sampling/gpt2" model
    local words='sample --model model --prompt First --tokens 24 --temperature 0' second
    run $words --json all.json;                     expect_status 0
    second=$(tr -d '\n\t ' <all.json | sed -n 's/.*"ids":\[[0-9]*,\([0-9]*\).*/\1/p')
    sed -i 's/"eos_token_id": null/"eos_token_id": ['"$second"', 999]/' model/config.json
    run $words --json -;                            expect_status 0; expect_out '"ended":	true'
    [ "$(list_of "$place/out" ids | wc -c)" -lt 10 ] || complain 'it did not stop'
    run $words --endless --json -;                  expect_status 0; expect_out '"ended":	false'
}

test_on_a_terminal() {
    command='orrery sample, on a terminal' status=0
    TERM=xterm timeout 300 script -qec "stty cols 80; '$program' sample --model tiny --prompt 'a b' --tokens 25" /dev/null </dev/null >"$place/raw" 2>&1 || status=$?
    sed -e 's/\r*$//' "$place/raw" >"$place/out"; : >"$place/err"; look
    expect_status 0; expect_columns 80; expect_out '^a b'; expect_out '^25 tokens in [0-9.]+ s: [0-9.]+ a second$'
    ! LC_ALL=C grep -q $'[\001-\010\013\014\016-\037]' "$place/out" || complain 'a control character is shown'
    run sample --model tiny --prompt 'a b' --tokens 25; expect_no_out '^25 tokens'
}

refuses() { run sample --tokens 2 "${@:3}"; expect_status "$1"; expect_error "$2"; expect_nothing; }

test_what_is_wrong() {
    refuses 2 '--model' --prompt a
    refuses 2 '--prompt' --model tiny
    refuses 2 '--prompt: must not be empty' --model tiny --prompt ''
    refuses 1 '--model ./nowhere: there is no such folder' --model ./nowhere --prompt a
    refuses 2 '--model tyni: .*did you mean tiny' --model tyni --prompt a
    refuses 1 '--model .*config.json: cannot be opened' --model "$top/docs" --prompt a
    refuses 2 '--prompt: token 0 is 570; those of model tiny are 0 to 255$' --model tiny --prompt 'model of the' --tokenizer "$gpt2"
    refuses 1 '--tokenizer none: cannot be opened' --model tiny --prompt a --tokenizer none
    refuses 2 '--temperature' --model tiny --prompt a --temperature -1
    refuses 2 '--top-p' --model tiny --prompt a --top-p 0
    refuses 2 '--top-k' --model tiny --prompt a --top-k -1
}

run_tests test_greedy_as_transformers test_seeds_and_filters test_after_training test_stops test_on_a_terminal test_what_is_wrong
