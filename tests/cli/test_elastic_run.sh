# A run whose mesh changes: with exact sums its bits are those of the run that never changed, and impossible changes are refused by name.
. "$(dirname "$0")/lib.sh"

small='--batch 8 --seq 8'

# Losses of all steps, as text.
losses() { sed -nE 's/.*loss +([0-9.]+)  (norm|slope).*/\1/p' <<<"$out"; }

# The chain in the file against one mesh: every loss, the fingerprint, and all that a checkpoint has.
same_as_unchanged() {                               # same_as_unchanged FIRST-MESH STEPS FLAGS.., and the changes in ./changes
    local mesh=$1 steps=$2; shift 2
    make_text
    local one=(train --model ${model:-tiny} --data "$text" --arithmetic exact --threads 1 $small --steps $steps)
    run "${one[@]}" "$@" --save still;                  expect_status 0
    losses >losses_still
    local print; print=$(sed -nE 's/^bits .*fingerprint ([0-9a-f]{16}).*/\1/p' <<<"$out")
    run "${one[@]}" "$@" $mesh --elastic changes --save moved;  expect_status 0; expect_silent
    losses >losses_moved
    expect_same losses_still losses_moved
    [ "$(wc -l <losses_moved)" = $steps ] || complain "it has $(wc -l <losses_moved) losses of $steps steps"
    [ ${#print} = 16 ] || complain 'it has no fingerprint'
    expect_out "^bits .*fingerprint $print"
    for f in model.safetensors optimizer.safetensors training.json; do expect_same still/$f moved/$f; done
    rm -rf still moved
}

test_chain_has_the_bits_of_one_mesh() {
    printf '# a chain\n2 --dp 4\n3  --pp 2 --dp 2\n\n5 --dp 1\n6 --tp 3\n' >changes
    same_as_unchanged '--dp 2 --tp 2' 7 --dropout 0.1
    expect_out '^elastic after step 2: --dp 2 --tp 2 becomes --dp 4; .* moved in [0-9]+ boxes'
    expect_out '^elastic after step 5: --pp 2 --dp 2 becomes one device; '
    expect_out '^elastic after step 6: one device becomes --tp 3; '
}
test_masters_and_shards() {
    printf '1 --dp 3 --zero 3\n2 --tp 2 --zero 0\n' >changes
    model=llama-tiny same_as_unchanged '--dp 2 --zero 1' 3 --dtype bf16
}
test_experts_and_biases() {
    printf '1 --dp 4 --ep 4\n2 --tp 2\n' >changes
    model=deepseek-v3-tiny same_as_unchanged '--dp 2 --ep 2' 3
}

# A changed run goes on from a checkpoint, saves, and is compared with one device on every mesh.
# Encoders are in the state: over all devices, or on those of their modality.
test_encoders() {
    printf '1 --dp 3 --zero 3 --encoders apart\n2 --tp 2 --zero 0\n' >changes
    model=llama-tiny:L=2 same_as_unchanged '--dp 2 --zero 1' 3 --dtype bf16 --modalities 2
}
test_beside_one_device() {
    printf '3 --dp 3\n4 --dp 2 --tp 2\n' >changes
    train $small --steps 2 --lr-steps 5 --save begun;          expect_status 0
    run train --resume begun --dp 2 --steps 3 --elastic changes --check ref --save-every 1 --save series --sharded --json all.json
    expect_status 0; expect_silent
    [ "$(ls series | tr '\n' ' ')" = 'step-00000003 step-00000004 step-00000005 ' ] || complain "the series has $(ls series)"
    grep -q '"elastic"' all.json || complain 'the JSON says nothing of changes'
    run train --resume series/step-00000004 --steps 1;  expect_status 0
}

test_impossible_changes_are_refused() {
    local lines
    make_text
    refused() {                                     # refused STATUS ERROR, of the text in $lines
        printf "$lines" >changes
        run train --data "$text" $small --steps 4 --dp 2 --elastic changes --save never;      expect_status $1; expect_error "$2"
        [ ! -e never ] || complain 'it saved'
    }
    lines='4 --dp 4\n'               refused 2 '--elastic changes, line 1: step 4 is impossible: the run goes from step 1 to 4'
    lines='0 --dp 4\n'               refused 2 'line 1: step 0 is impossible'
    lines='2 --dp 4\n2 --dp 1\n'     refused 2 'line 2: step 2 does not come after step 2 of an earlier line'
    lines='# nothing\n\n'            refused 2 '--elastic changes: has no line with a step and a mesh'
    lines='two --dp 4\n'             refused 2 'line 1: must be a step and a mesh, such as 4 --dp 4'
    lines='2 dp 4\n'                 refused 2 'line 1: dp: a mesh is said as flags'
    lines='2 --dp 4 --lr 3\n'        refused 2 'line 1: --lr says nothing of a mesh'
    lines='1 --dp 1\n2 --tp 99\n'    refused 2 'line 2: '

    printf '2 --dp 4\n' >changes
    local flags
    for flags in '--dp 2 --data-parallel diloco' '--dp 2 --zero 1 --quantize-weights int8' '--dp 2 --optimizer galore' '--log x.jsonl' \
                 '--page x.html' '--trace x.json' '--pp 2 --schedule pipedream-2bw --micro 2'; do
        run train --data "$text" $small --steps 4 $flags --elastic changes;                   expect_status 2; expect_error '--elastic: not with '
    done
    run train --data "$text" $small --steps 4 --elastic nowhere;              expect_status 1; expect_error '--elastic nowhere: '
}

run_tests test_chain_has_the_bits_of_one_mesh test_masters_and_shards test_experts_and_biases test_encoders test_beside_one_device test_impossible_changes_are_refused
