# `orrery check`: a golden file beside other files; `orrery train --check` beside the reference, with the right inputs and without.
. "$(dirname "$0")/lib.sh"

golden=$top/golden/gpt2-tied.safetensors

# Where a tensor's numbers begin in a file: behind 8 bytes of length and the header.
offset_of() {
    local header at
    header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    at=$(head -c $((8 + header)) "$1" | tail -c +9 | grep -oE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+" | grep -oE '[0-9]+$')
    echo $((8 + header + at))
}

test_golden_is_golden() {
    run check "$golden" "$golden";                      expect_status 0; expect_silent; expect_out '^ +250  holds'; expect_out '^OK'
    run check "$golden" "$golden" --all --json all.json;    expect_status 0; expect_columns 110
    grep -q '"holds":[[:space:]]*true' all.json || complain 'the JSON does not say that it holds'
    [ "$(grep -c '"tensor":' all.json)" = 250 ] || complain 'the JSON does not have all tensors'
    run check "$golden" "$golden" --json - ;            expect_status 0
    [ "$(head -c 1 "$place/out")" = '{' ] || complain 'more than JSON is on standard output'
    run check "$golden" "$golden" --as orrery;          expect_status 0; expect_silent
    run check "$golden" "$golden" --as torch;           expect_status 2; expect_error "--as torch: the golden file's steps are those of orrery"
    run check "$golden" "$golden" --as torhc;           expect_status 2; expect_error '--as'
}

# On a terminal a line says how far it is, and is gone at the end; elsewhere there is none.
test_progress() {
    command -v script >/dev/null || return 0
    script -qec "'$program' check '$golden' '$golden' >report" seen >/dev/null 2>&1 </dev/null
    grep -qE '^OK: 250 of 250' report || complain 'the report is not there'
    tr '\r' '\n' <seen >lines
    grep -qE '^\[-{30}\] +0 %  comparing +start/' lines || complain 'it does not begin with nothing'
    grep -qE '^\[#{30}\] 100 %  recomputing ' lines || complain 'it does not end with everything'
    sed 's/\x1b\[K//g' lines | grep -qE '^\[.{80,}' && complain 'a line has more than 80 columns'
    run check "$golden" "$golden";                      expect_status 0; expect_silent
}

# NaN into one number: that tensor is named, although later ones of the file are as they were.
test_nan() {
    cp "$golden" bad.safetensors; chmod u+w bad.safetensors
    printf '\377\377\377\377\377\377\377\377' | dd of=bad.safetensors bs=1 conv=notrunc seek="$(offset_of bad.safetensors act/h.1.mlp.act)" 2>/dev/null
    run check "$golden" bad.safetensors --json bad.json;    expect_status 3; expect_error 'act/h.1.mlp.act has NaN'
    expect_out '^first to differ, in order of execution: act/h.1.mlp.act'; expect_out '^  before    act/h.1.mlp.up holds'; expect_out '^FAILED'
    grep -q '"first":.*act/h.1.mlp.act' bad.json || complain 'the JSON does not name it'
}

test_other_names() {
    LC_ALL=C sed 's|"act/h.0.mid"|"act/h.0.mud"|' "$golden" >bad.safetensors
    run check "$golden" bad.safetensors;                expect_status 3; expect_error 'act/h.0.mid is missing'; expect_out 'not golden: act/h.0.mud'
    echo '{ "names": { "act/h.0.mid": "act/h.0.mud" } }' >map.json
    run check "$golden" bad.safetensors --map map.json; expect_status 0
    LC_ALL=C sed 's|"act/h.0.attn.qkv":{"dtype":"F64","shape":\[21,63\]|"act/h.0.attn.qkv":{"dtype":"F64","shape":[63,21]|' "$golden" >bad.safetensors
    run check "$golden" bad.safetensors;                expect_status 3; expect_error 'act/h.0.attn.qkv does not fit: .* 63 x 21'
}

# A file with the first number of `loss` alone, without anything that many errors change.
only_loss() {
    local header='{"loss":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}'
    printf '\\%03o\\0\\0\\0\\0\\0\\0\\0' ${#header} | xargs -0 printf; printf '%s' "$header"
    tail -c +$(($(offset_of "$golden" loss) + 1)) "$golden" | head -c 8
}

test_what_must_be_compared() {
    only_loss >loss.safetensors
    run check "$golden" loss.safetensors --json j;      expect_status 3; expect_error 'only losses and norms were judged'
    expect_out '^NOT ENOUGH: 1 of 250 tensors is right; not compared: 7 loss, 23 act, 23 act-grad, 28 grad, 168 step'
    grep -q '"holds":[[:space:]]*false' j || complain 'the JSON says that it holds'
    run check "$golden" loss.safetensors --require loss;    expect_status 0; expect_silent; expect_out '^OK: 1 of 250 tensors'
    run check "$golden" loss.safetensors --require loss,act-grad;   expect_status 3; expect_error '--require act-grad: none of the 23 gradients of activations'
    run check "$golden" "$golden" --require loss,act,act-grad,grad,step;    expect_status 0; expect_silent; expect_out '^OK: 250 of 250 tensors compared$'
    run check "$golden" "$golden" --require act,gard;   expect_status 2; expect_error "--require 'gard'"
    run check "$golden" "$golden" --require ,;          expect_status 2; expect_error '--require'
}

# What could not be judged is not OK: of a mixture in 16 bits rounding explains anything after the first step; tensors of a golden kind
# under other names; first weights that are not the golden ones, within the bounds of 16 bits.
test_what_cannot_be_judged() {
    local mixture=$top/golden/mixtral-top2.safetensors
    run check "$mixture" "$mixture";                    expect_status 0; expect_silent
    run check "$mixture" "$mixture" --dtype bf16 --json j;  expect_status 3; expect_error '204 tensors cannot be judged, first adamw/loss: in bf16 rounding explains anything there'
    expect_out '^NOT ENOUGH: 99 of 303 tensors are right; 204 cannot be judged \(rounding explains anything there\): 1 adamw/loss, 1 adamw/norm, 33 adamw/exp_avg,'
    grep -q '"verdict":[[:space:]]*"NOT ENOUGH"' j || complain 'the JSON has another verdict'
    [ "$(grep -c '"judged":[[:space:]]*"cannot be judged"' j)" = 204 ] || complain 'the JSON does not say what cannot be judged'
    run check "$mixture" "$mixture" --dtype bf16 --require act; expect_status 3; expect_error 'cannot be judged'
    run check "$golden" "$golden" --dtype bf16;         expect_status 0; expect_out '^OK: 250 of 250 tensors compared, [0-9]+ only within bounds above 0.1$'; expect_out '^warning   [0-9]+ tensors are only within a bound above 0.1'
    LC_ALL=C sed 's|"grad/[a-z]|"grad/X|g' "$golden" >other.safetensors
    run check "$golden" other.safetensors;              expect_status 3; expect_error '51 tensors of ACTUAL could not be judged, such as grad/'
    expect_out '^NOT ENOUGH: '
    cp "$golden" start.safetensors; chmod u+w start.safetensors
    head -c 8 /dev/zero | dd of=start.safetensors bs=1 conv=notrunc seek="$(offset_of start.safetensors start/h.0.ln_1.weight)" 2>/dev/null
    run check "$golden" start.safetensors --dtype bf16; expect_status 3; expect_error 'start/h.0.ln_1.weight differs'
}

# One number that is plausible end to end, in bf16, but not what the operation's own inputs give.
test_operations_by_themselves() {
    run check "$golden" "$golden";                      expect_status 0; expect_out "^operations by themselves, each recomputed from ACTUAL's own inputs:"; expect_out '^ +76  right$'
    cp "$golden" bad.safetensors; chmod u+w bad.safetensors
    head -c 8 /dev/zero | dd of=bad.safetensors bs=1 conv=notrunc seek="$(offset_of bad.safetensors act/h.1.mlp.act)" 2>/dev/null
    run check "$golden" bad.safetensors --dtype bf16 --json j;  expect_status 3; expect_error 'act/h.1.mlp.act is not what its own inputs give: only the element in row 0, column 0'
    expect_out '^ +250  holds'; expect_out '^FAILED: 2 of 250 tensors differ, first act/h.1.mlp.act$'; expect_out '^  wrong     act/h.1.mlp.act, gelu'
    grep -q '"verdict":[[:space:]]*"wrong"' j || complain 'the JSON does not say that an operation is wrong'
    grep -q '"holds":[[:space:]]*false' j || complain 'the JSON says that it holds'
    LC_ALL=C sed 's|"act/h.0.ln_2"|"act/h.0.ln_X"|' "$golden" >bad.safetensors
    run check "$golden" bad.safetensors;                expect_status 3; expect_out '^ +2  cannot be recomputed: an input is missing'
    expect_out '^  missing   act/h.0.ln_2, for act/h.0.mlp.up, the first; '
    run check "$golden" "$golden" --parts 0;            expect_status 2; expect_error '--parts'
    run check "$golden" "$golden" --sums int8;          expect_status 2; expect_error '--sums'
    run check "$top/golden/parscale-tied.safetensors" "$top/golden/parscale-tied.safetensors";  expect_status 0; expect_out '^ +52  right$'
}

test_refusals() {
    run check;                                          expect_status 2; expect_error 'GOLDEN'
    run check "$golden";                                expect_status 2; expect_error 'ACTUAL'
    run check "$golden" "$golden" --dtype int8;         expect_status 2; expect_error '--dtype'
    run check "$golden" nowhere;                        expect_status 1; expect_error 'nowhere'
    run check nowhere "$golden";                        expect_status 1; expect_error 'nowhere'
    mkdir empty;                                        run check "$golden" empty;      expect_status 1; expect_error 'no .safetensors file'
    head -c 1000 "$golden" >cut.safetensors;            run check "$golden" cut.safetensors;    expect_status 1; expect_error 'cut.safetensors'
    echo '{' >map.json;                                 run check "$golden" "$golden" --map map.json;   expect_status 1; expect_error 'map.json'
    run check "$golden" "$top/golden/gpt2-minimal.safetensors"; expect_status 3
    run check --help;                                   expect_status 0; expect_out '^usage: orrery check'
    run train --isolate;                                expect_status 2; expect_error '--isolate'
}

test_isolated_training() {
    train --steps 2 --tp 2 --check ref --isolate --dtype fp64;  expect_status 0; expect_silent; expect_out '^OK: every activation'
    expect_out '^  activations '; expect_out '^  their gradients '; expect_out '^  states '
}

test_copies_are_equal() {
    train --steps 1 --dp 2 --tp 3 --zero 3 --optimizer sgd --paranoid; expect_status 0; expect_out '^copies  15744 elements'   # 2624 uncut, on 3, thrice
    train --steps 1 --paranoid;                                     expect_status 0; expect_out '^copies  none were compared'
    train --steps 2 --dp 3 --tp 3 --paranoid;                       expect_status 0; expect_silent
    train --steps 2 --dp 3 --tp 3 --zero 1 --bucket 1000 --paranoid;    expect_status 0; expect_silent
    train --steps 1 --dp 3 --tp 3 --allreduce ring;                 expect_status 2; expect_error '--allreduce ring: adds in an order .* --tp 3 cuts unevenly'
    train --steps 1 --dp 3 --tp 3 --zero 2 --reduce-scatter ring;   expect_status 2; expect_error '--reduce-scatter ring: adds in an order'
    train --steps 1 --dp 3 --tp 2 --allreduce ring --paranoid;      expect_status 0; expect_silent       # two alike halves
    train --steps 3 --dp 2 --tp 2 --paranoid --optimizer momentum;  expect_status 0; expect_silent
    train --steps 2 --pp 2 --tp 2 --paranoid --dtype fp64;          expect_status 0; expect_silent       # tied at both ends
    run train --model llama-tiny --data "$top/README.md" --batch 5 --seq 7 --steps 1 --tp 5 --paranoid; expect_status 0; expect_silent      # keys and values copied
}

# What the file says, on meshes that cut everything; another loss in it is noticed.
test_train_beside_a_golden_file() {
    run train --check "$golden" --dp 3 --tp 2 --dtype fp64;                         expect_status 0; expect_silent; expect_out '^OK: every activation'
    run train --check "$golden" --pp 2 --tp 3 --optimizer momentum --json run.json; expect_status 0; expect_silent; expect_file run.json
    cp "$golden" bad.safetensors; chmod u+w bad.safetensors
    printf '\0\0\0\0\0\0\0\0' | dd of=bad.safetensors bs=1 conv=notrunc seek="$(offset_of bad.safetensors grad/h.0.ln_2)" 2>/dev/null
    run train --check bad.safetensors --tp 2;               expect_status 3; expect_error 'bad.safetensors: grad/h.0.ln_2 is not what our model computes'
    cp "${golden%.safetensors}.bounds.json" bad.bounds.json
    run train --check bad.safetensors --tp 2 --dtype fp64;  expect_status 3; expect_error 'activation gradient h.0.ln_2 on device'; expect_out '^  before    the last right tensor is activation gradient h.0.mlp.up'
    LC_ALL=C sed 's|"sgd/loss"|"Q"|; s|"adamw/loss"|"sgd/loss"|; s|"Q"|"adamw/loss"|' "$golden" >bad.safetensors     # equal in step 1
    run train --check bad.safetensors --optimizer sgd;      expect_status 3; expect_error 'step 2: loss differs'
    run train --check "$golden" --model tiny;               expect_status 2; expect_error 'the golden file says what is trained'
    run train --check "$golden" --pp 2 --micro 2 --schedule pipedream-2bw --optimizer sgd;  expect_status 2; expect_error '--schedule pipedream-2bw: does not compute plain training'
    run train --check "$golden" --tp 4;                     expect_status 2; expect_error '--tp 4'
    run train --check ./nowhere;                              expect_status 1; expect_error 'nowhere'
}

# Each bf16 number of a tensor times two: its exponent is the bits from the eighth on.
double_bf16() {
    local at; at=$(offset_of "$1" "$2")
    printf "$(od -An -v -t u2 -j "$at" -N $((2 * $3)) "$1" | awk '{ for (i = 1; i <= NF; i++) { v = $i % 32768 ? $i + 128 : $i; printf "\\%03o\\%03o", v % 256, v / 256 } }')" |
        dd of="$1" bs=1 conv=notrunc seek="$at" 2>/dev/null
}

# In 16 bits bounds are those stored beside the file: what devices make holds, on a mesh for which they are measured anew as well,
# and one tensor times two is named.
test_16_bits() {
    run train --check "$golden" --dtype bf16 --dp 3 --tp 2 --dump devices.safetensors;  expect_status 0; expect_silent
    expect_out '^OK: every activation'; expect_out '^dumped  162 tensors to devices.safetensors'
    run check "$golden" devices.safetensors --dtype bf16 --parts 2; expect_status 0; expect_silent; expect_out '^ +162  holds'; expect_out '^ +76  right$'
    run check "$golden" devices.safetensors --dtype bf16;   expect_status 3; expect_error 'is not what its own inputs give'; expect_out 'with --parts 2 the first of them is right'
    run check "$golden" devices.safetensors;                expect_status 3                     # no fp32 program is that far off
    double_bf16 devices.safetensors grad/h.1.mlp.act 777
    run check "$golden" devices.safetensors --dtype bf16 --parts 2; expect_status 3; expect_error 'grad/h\.1\.mlp\.act differs'
    expect_out '^first to differ, in order of execution: grad/h\.1\.mlp\.act'; expect_out '^  it is +expected times (1\.99|2\.00)'
    expect_out '^ +161  holds'; expect_out '^ +1  differs'; expect_out '^FAILED: [0-9]+ of 162 tensors differ, first grad/h\.1\.mlp\.act; not compared: 4 loss, 84 step$'
    run train --check "$golden" --dtype fp16 --pp 2 --tp 3 --optimizer momentum --paranoid; expect_status 0; expect_silent; expect_out '^OK: every activation'
    run train --check "$top/golden/llama-scaled.safetensors" --dtype bf16 --dp 3 --zero 3 --grad-dtype bf16;  expect_status 0; expect_silent
    run train --check "$top/golden/mixtral-top2.safetensors" --dtype bf16 --tp 2 --optimizer sgd;  expect_status 0; expect_silent    # a token goes elsewhere
    expect_out '^OK: every activation'; expect_out '^truth   the file, and the one-device run for [0-9]+ of its tensors'
    run train --dump there --check ref;                     expect_status 2; expect_error '--dump there: is of a golden file'
}

# A right run of which rounding explains anything is not OK: which tensor, where and why. Wide bounds that hold are named.
test_training_that_cannot_be_judged() {
    run train --model parscale-tiny --batch 4 --seq 16 --seed 5 --steps 1 --tp 2 --check ref --dtype bf16 --json j
    expect_status 3; expect_error '[0-9]+ of [0-9]+ comparisons cannot be judged, first activation gradient streams.logits, step 1, device [01] .tp=[01].: it differs by 0.[0-9]+, and rounding alone may change it by 2'
    expect_out '^NOT ENOUGH: [0-9]+ of [0-9]+ comparisons cannot be judged, first activation gradient streams.logits'
    grep -qE '"cannot_be_judged":[[:space:]]*[1-9]' j && grep -q '"first_unjudged"' j || complain 'the JSON does not say what cannot be judged'
    grep -q '"holds":[[:space:]]*false' j || complain 'the JSON says that it holds'
    grep -q '"wrong":[[:space:]]*0,' j || complain 'the JSON calls something wrong'
    run train --check "$top/golden/gemma2-plain.safetensors" --dtype bf16 --dp 2;   expect_status 0; expect_out '^warning: [0-9]+ of [0-9]+ comparisons hold by a bound above 0.1, the widest 0'
}

# A softmax over one key is 1: the gradient of its score is 0, and no rounding is compared with rounding.
test_one_key() {
    local model t words='fp32 deepseek-v2-tiny
fp64 deepseek-v3-tiny
bf16 deepseek-v2-tiny'
    make_text
    [ "$TIER" != verify ] || words=$(for t in fp32 fp64 bf16; do echo $t deepseek-v2-tiny; echo $t deepseek-v3-tiny; done)
    while read -r t model; do
        run train --data "$text" --model $model --seq 1 --batch 4 --steps 2 --check ref --dtype $t --seed 3;  expect_status 0; expect_out '^OK'
    done <<<"$words"
    for model in deepseek-v2-tiny deepseek-v3-tiny; do
        [ "$TIER-$model" = test-deepseek-v3-tiny ] && continue
        run train --data "$text" --model $model --seq 1 --batch 4 --steps 2 --check ref --dp 2 --tp 2;   expect_status 0; expect_out '^OK'
    done
    printf '1\n2\n1\n2\n2\n1\n' >lines
    run train --data "$text" --model deepseek-v3-tiny --pack lines --dp 2 --seq 4 --batch 2 --steps 2 --check ref;   expect_status 0; expect_out '^OK'
    run train --data "$text" --model deepseek-v3-tiny --cp 5 --seq 9 --batch 4 --attention hdp --pack lognormal --steps 2 --dtype bf16 --check ref;   expect_status 0; expect_out '^OK'
    run train --data "$text" --model parscale-tiny --seq 1 --batch 4 --steps 1 --check ref --tp 2;   expect_status 0; expect_out '^OK'    # a prefix is a second key
}

run_tests test_golden_is_golden test_progress test_nan test_other_names test_what_must_be_compared test_what_cannot_be_judged test_operations_by_themselves test_refusals test_isolated_training test_copies_are_equal test_train_beside_a_golden_file test_16_bits \
          test_training_that_cannot_be_judged test_one_key
