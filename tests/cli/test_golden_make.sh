# `orrery golden make`: goldens of one's own hold here and under other kernels, hold what devices make, and name what is broken.
. "$(dirname "$0")/lib.sh"

# A text, and a batch of two sequences of five tokens.
small() {
    make_text
    make_tokens 2 5 >tokens.safetensors
}

# A safetensors file of N x S int64 tokens, of whose labels every third is -100: make_tokens N S [FIRST [V]]
make_tokens() {
    local n=$(($1 * $2)) i header
    header='{"ids":{"dtype":"I64","shape":['$1,$2'],"data_offsets":[0,'$((8 * n))']},"labels":{"dtype":"I64","shape":['$1,$2'],"data_offsets":['$((8 * n)),$((16 * n))']}}'
    printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0%s" "$header"
    for ((i = 0; i < n; i++)); do number64 $((i ? i * 7 % ${4:-200} : ${3:-0})); done
    for ((i = 0; i < n; i++)); do number64 $((i % 3 == 2 ? -100 : i * 11 % ${4:-200})); done
}
number64() { local i; for i in 0 8 16 24 32 40 48 56; do printf "\\x$(printf %x $(($1 >> i & 255)))"; done; }

# A folder with weights, as transformers has them.
weights() { small; run dump one --batch tokens.safetensors --model llama-tiny:L=2 --save model; rm -f one; }

offset_of() {
    local header at
    header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    at=$(head -c $((8 + header)) "$1" | tail -c +9 | grep -oE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+" | grep -oE '[0-9]+$')
    echo $((8 + header + at))
}

test_of_a_folder_of_weights() {
    weights
    run golden make --out own.safetensors --model model --batch tokens.safetensors --steps 2 --micro 2 --optimizer adamw,momentum
    expect_status 0; expect_silent; expect_file own.safetensors; expect_file own.bounds.json
    expect_out '^own\.safetensors: [0-9]+ tensors of model llama-L2-D32, 2 steps of 2 x 5 tokens; bounds in own\.bounds\.json$'
    run golden own.safetensors;             expect_status 0; expect_silent; expect_out '^own +fp64 +([0-9]+) tensors .*; \1 of \1 have'
    # other kernels add in another order, as another machine does: other bits, within the stored bounds
    OPENBLAS_CORETYPE=Prescott OPENBLAS_NUM_THREADS=1 run golden own.safetensors;   expect_status 0; expect_silent
    expect_no_out '^own +fp64 +([0-9]+) tensors .*; \1 of \1 have'
    run check own.safetensors own.safetensors --require loss,act,act-grad,grad,step;    expect_status 0; expect_silent
    [ "$(ls | grep -c own)" = 2 ] || complain "it left behind: $(ls)"
}

# What devices make of it, on meshes of 1, 2 and 4: all kinds of tensors, every step.
test_devices_beside_it() {
    local mesh tensor meshes=('--dp 2 --tp 2')
    [ "$TIER" != verify ] || meshes+=('--dp 1' '--tp 2 --pp 2' '--dp 2' '--tp 2' '--pp 2')
    small
    run golden make --out own.safetensors --model tiny:L=2 --batch tokens.safetensors --steps 2 --seed 5;     expect_status 0
    for mesh in "${meshes[@]}"; do
        run train --check ./own.safetensors $mesh --dump devices.safetensors;     expect_status 0; expect_silent
        run check own.safetensors devices.safetensors --require loss,act,act-grad,grad,step;    expect_status 0; expect_silent
        expect_out '^OK: ([0-9]+) of \1 tensors compared$'
    done
    run train --check ./own.safetensors --tp 2 --dtype bf16 --dump devices.safetensors;     expect_status 0; expect_silent
    run check own.safetensors devices.safetensors --dtype bf16 --parts 2;     expect_status 0; expect_silent

    # one number of one tensor is wrong: that tensor is named, and what was right before it
    run train --check ./own.safetensors --tp 2 --dtype fp64 --dump devices.safetensors;         expect_status 0
    for tensor in act/h.1.mlp.act grad/h.1.attn.heads adamw/2/grad/h.0.mlp.c_fc.weight adamw/1/exp_avg/h.1.ln_2.weight; do
        cp devices.safetensors bad.safetensors
        printf '\0\0\0\0\0\0\360\77' | dd of=bad.safetensors bs=1 conv=notrunc seek="$(offset_of bad.safetensors "$tensor")" 2>/dev/null
        run check own.safetensors bad.safetensors;      expect_status 3; expect_error "$tensor differs"
        expect_out "^first to differ, in order of execution: $tensor"; expect_out '^ +1  differs'
    done
}

test_dropout_and_its_masks() {
    make_text
    run golden make --out own.safetensors --model tiny:L=2 --text "$text" --sequences 2 --tokens 3 --steps 2 --dropout 0.2;   expect_status 0; expect_silent
    grep -q '"mask/2/h.1.probabilities":{"dtype":"U8","shape":\[48,3\]' own.safetensors || complain 'no mask of the probabilities of the last step'
    grep -q '"dropout":"kept where uniform' own.safetensors || complain 'the rule is not in the metadata'
    run golden own.safetensors;                         expect_status 0; expect_silent
    run train --check ./own.safetensors --dp 2 --dtype fp64;      expect_status 0; expect_silent
    [ "$TIER" = verify ] || return 0
    run golden make --out own.safetensors --model llama-tiny:L=2 --text "$text" --sequences 2 --tokens 3 --steps 1 --dropout 0.2;   expect_status 0
    grep -q '"mask/1/h.0.probabilities"' own.safetensors || complain 'no mask of a Llama'
    ! grep -q '"mask/1/embedding"' own.safetensors || complain 'a Llama has no dropout of embeddings'
}

# The recorder for PyTorch finds modules by these names; llama-tiny has queries, keys and values as three tensors in files.
test_names_of_parameters_and_nodes() {
    make_text
    run golden make --out own.safetensors --model llama-tiny:L=2 --text "$text" --sequences 2 --tokens 3 --steps 1;   expect_status 0
    tr -d '\\' <own.safetensors >plain
    grep -aq '"name":"model.layers.0.self_attn.k_proj.weight","rows":[0-9]*,"apart":1,"first":0' plain || complain 'no part of a parameter'
    grep -aq '"out":"h.1.ln_1","by":"norm","layer":1,"kept":true,"parameter":"model.layers.1.input_layernorm.weight","in":\["h.0.out"\]' plain ||
        complain 'no norm that reads the layer before'
    ! grep -aq '"out":"h.0.attn.normed"' plain || complain 'a Llama norms no heads'
}

# A GPT-2 and a Llama of the seeded program, whose two layers take a second: seeded gpt2|llama
seeded() { "${CC:-cc}" -O1 "$top"/golden/bugs/*.c -lm -o buggy && ./buggy model $1 model || complain 'golden/bugs does not build'; }

# Rates by a schedule, as `orrery train` has them, or by a list: the checker holds each step to its own.
rates_of() { od -An -t f8 -j "$(offset_of "$1" "$2/lr")" -N 32 "$1" | tr -s ' \n' ' '; }
test_rates_of_steps() {
    small; seeded gpt2; make_tokens 2 5 0 61 >tokens.safetensors
    local make=(golden make --model model --batch tokens.safetensors --eps 1e-4)
    run "${make[@]}" --out own.safetensors --steps 4 --lr 0.1 --lr-schedule linear --warmup 1 --min-lr 0.01;  expect_status 0; expect_silent
    [[ "$(rates_of own.safetensors adamw)" =~ ^\ 0\.1\ 0\.07\ 0\.040*1?\ 0\.01\ $ ]] || complain "rates are $(rates_of own.safetensors adamw)"
    # the same as a run of its own logs: cosine, a tenth of 20 steps of warm-up
    run "${make[@]}" --out own.safetensors --steps 4 --lr 0.1 --lr-schedule cosine --lr-steps 20;             expect_status 0
    train --steps 4 --lr 0.1 --lr-steps 20 --log run.jsonl;                                                    expect_status 0
    local want; want=$(grep -oE '"train/lr": ?[0-9.e-]+|"lr": ?[0-9.e-]+' run.jsonl | grep -oE '[0-9.e-]+$' | awk '{ printf " %.6f", $1 }')
    [ "$(rates_of own.safetensors adamw | awk '{ for (i = 1; i <= NF; i++) printf " %.6f", $i }')" = "$want" ] || complain "rates are $(rates_of own.safetensors adamw), of a run $want"
    # without a schedule the rate stays after the warm-up
    run "${make[@]}" --out own.safetensors --steps 4 --lr 0.1 --warmup 2;                                     expect_status 0
    [ "$(rates_of own.safetensors adamw)" = ' 0.05 0.1 0.1 0.1 ' ] || complain "rates are $(rates_of own.safetensors adamw)"

    printf '0.1\n0.2\n0.3\n' >rates; printf '0.1\n0.1\n0.2\n' >late
    run "${make[@]}" --out own.safetensors --lr-file rates;     expect_status 0; expect_out '3 steps of 2 x 5 tokens'
    run "${make[@]}" --out late.safetensors --lr-file late;     expect_status 0
    run train --check ./own.safetensors --tp 2 --optimizer adamw --dump good/;      expect_status 0
    run check own.safetensors good;                             expect_status 0; expect_silent
    run train --check ./late.safetensors --tp 2 --optimizer adamw --dump bad/;      expect_status 0
    run check own.safetensors bad;                              expect_status 3; expect_error 'adamw/2/weight/.* differs'; expect_out 'the learning rate is that of the step before'
    refused 2 '--lr: --lr-file has the rate of each step' --out out/own.safetensors --batch tokens.safetensors --lr-file rates --lr 1
    refused 2 '--lr-file: has rates of 3 steps; --steps asks for 2' --out out/own.safetensors --batch tokens.safetensors --lr-file rates --steps 2
    refused 2 '--min-lr: needs --lr-schedule' --out out/own.safetensors --batch tokens.safetensors --min-lr 1
    refused 2 '--lr-decay 1: is for --lr-schedule wsd, not linear' --out out/own.safetensors --batch tokens.safetensors --lr-schedule linear --lr-decay 1
    echo -1 >>rates;   refused 1 '--lr-file rates:4: must be the rate of a step, a number from 0 on' --out out/own.safetensors --batch tokens.safetensors --lr-file rates
    refused 1 '--lr-file nowhere: cannot be opened' --out out/own.safetensors --batch tokens.safetensors --lr-file nowhere
}

# A batch of 2 sequences of 8 tokens, in documents of 3, 4, 1 and 5, 3 tokens: packed FILE POSITIONS..., none: each sequence is one.
packed() {
    local more='' header i
    [ $# = 1 ] || more=',"positions":{"dtype":"I64","shape":[2,8],"data_offsets":[256,384]}'
    header='{"ids":{"dtype":"I64","shape":[2,8],"data_offsets":[0,128]},"labels":{"dtype":"I64","shape":[2,8],"data_offsets":[128,256]}'$more'}'
    {   printf "\\x$(printf %x $((${#header} & 255)))\\x$(printf %x $((${#header} >> 8)))\\0\\0\\0\\0\\0\\0%s" "$header"
        for ((i = 0; i < 16; i++)); do number64 $((i * 7 % 61)); done
        for ((i = 0; i < 16; i++)); do number64 $((i % 5 == 2 ? -100 : i * 11 % 61)); done
        for i in "${@:2}"; do number64 "$i"; done
    } >"$1"
}

# Documents that are packed into sequences: devices compute what the file has, and a program that does not mask them is told so.
test_packed_documents() {
    local model make=(--steps 2 --eps 1e-4)
    make_text; printf '3\n5\n2\n7\n4\n' >lengths
    run golden make --out own.safetensors --model llama-tiny:L=2 --text "$text" --pack lengths --sequences 2 --tokens 9 --micro 2 "${make[@]}";     expect_status 0; expect_silent
    expect_no_out 'no sequence has two documents|the last token of no sequence'
    run train --check ./own.safetensors --dp 2 --tp 2 --dump devices/;      expect_status 0; expect_silent; expect_out '^OK: '
    run check own.safetensors devices;                                      expect_status 0; expect_silent; expect_no_out 'cannot be recomputed'
    run check own.safetensors own.safetensors;                              expect_status 0; expect_silent

    packed documents.safetensors 0 1 2 0 1 2 3 0  0 1 2 3 4 0 1 2; packed whole.safetensors
    for model in llama gpt2; do
        [ $model = gpt2 ] || [ "$TIER" = verify ] || continue          # llama-tiny is above
        rm -rf model good bad; seeded $model
        run golden make --out own.safetensors --model model --batch documents.safetensors "${make[@]}";    expect_status 0; expect_silent
        run golden make --out one.safetensors --model model --batch whole.safetensors "${make[@]}";        expect_status 0
        run train --check ./own.safetensors --tp 2 --dump good/;    expect_status 0; expect_out '^OK: '
        run check own.safetensors good;                             expect_status 0; expect_silent
        run train --check ./one.safetensors --tp 2 --dump bad/;     expect_status 0
        run check own.safetensors bad;                              expect_status 3
        expect_out 'positions go on from document to document of a sequence'
        expect_out 'packed documents see each other: a token sees all before it in its sequence'
    done
    mkdir -p out; rm -rf model
    packed hole.safetensors 0 1 2 0 1 2 4 0  0 1 2 3 4 0 1 2
    refused 2 '--batch hole\.safetensors packed samples: token 6 of sequence 0 has position 4 after 2: a hole' --out out/own.safetensors --batch hole.safetensors
    packed padded.safetensors 0 1 2 0 1 2 3 -1  0 1 2 3 4 0 1 2
    refused 2 "routers' losses leave out padding" --out out/own.safetensors --batch padded.safetensors --model mixtral-tiny
    refused 2 'parallel streams, which run none' --out out/own.safetensors --batch documents.safetensors --model parscale-tiny
    refused 2 '--pack: needs --text' --out out/own.safetensors --batch documents.safetensors --pack lengths
    echo 10 >>lengths
    refused 2 '--text --pack lengths:6: a sample of 10 tokens' --out out/own.safetensors --text "$text" --pack lengths --tokens 9
}

refused() {                             # refused STATUS MESSAGE OPTIONS...: and nothing is written
    run golden make "${@:3}";           expect_status "$1"; expect_error "$2"
    [ -z "$(ls -A out 2>/dev/null)" ] || complain "it left behind: $(ls -A out)"
}

test_refusals() {
    small; mkdir out
    local to=(--out out/own.safetensors --batch tokens.safetensors)
    LC_ALL=C sed 's/"labels":{"dtype":"I64","shape":\[2,5\]/"labels":{"dtype":"I64","shape":[5,2]/' tokens.safetensors >turned.safetensors     # as many labels
    refused 1 'turned\.safetensors: a batch needs tensors ids and labels of one shape' --out out/own.safetensors --batch turned.safetensors
    refused 2 '--out' --batch tokens.safetensors
    refused 2 '--out out/own: must end with \.safetensors' --out out/own --batch tokens.safetensors
    refused 1 '--out none/own\.safetensors: cannot be written' --out none/own.safetensors --batch tokens.safetensors
    refused 2 'needs one of --batch FILE, --text FILE and --cover$' --out out/own.safetensors
    refused 2 ', not two$' "${to[@]}" --text "$text"
    refused 2 "no-such" "${to[@]}" --model no-such
    refused 1 '--batch nowhere: cannot be opened' --out out/own.safetensors --batch nowhere
    make_tokens 2 5 256 >bad.safetensors
    refused 2 '--batch bad\.safetensors: step 1, sequence 0, token 0: token 256; the vocabulary is 0 to 255' --out out/own.safetensors --batch bad.safetensors
    make_tokens 2 5 4294967296 >bad.safetensors
    refused 2 'element 0 of ids is 4294967296, which is no token' --out out/own.safetensors --batch bad.safetensors
    make_tokens 0 5 >bad.safetensors
    refused 1 'a batch needs tensors ids and labels .* not empty' --out out/own.safetensors --batch bad.safetensors
    make_tokens 1 3 >bad.safetensors; LC_ALL=C sed -i 's/\x0b\x00\x00\x00\x00\x00\x00\x00/\x9c\xff\xff\xff\xff\xff\xff\xff/' bad.safetensors
    refused 2 '--micro 2: a batch has 1 sequence$' --out out/own.safetensors --batch bad.safetensors --micro 2
    refused 2 'sequences of 600 tokens; the model has [0-9]+ positions' --out out/own.safetensors --text "$text" --tokens 600
    refused 2 '--tokens: --batch tokens\.safetensors says' "${to[@]}" --tokens 3
    refused 2 '--optimizer adam: .* did you mean adamw' "${to[@]}" --optimizer adam
    refused 2 '--optimizer galore: golden files have steps of' "${to[@]}" --optimizer galore
    refused 2 '--optimizer sgd: is there twice' "${to[@]}" --optimizer sgd,sgd
    refused 2 'a balance loss of the whole batch is not a sum over microbatches' "${to[@]}" --model mixtral-tiny --micro 2
    refused 2 '--as: balance-over=microbatch: the golden file has no microbatches' "${to[@]}" --model mixtral-tiny --as torch,balance-over=microbatch
    refused 1 'is not finite: element' "${to[@]}" --optimizer sgd --lr 1e300 --clip 0 --steps 3
    refused 2 '--steps' "${to[@]}" --steps 65
    run golden make --help;             expect_status 0; expect_out '^usage: orrery golden make'; expect_columns 100
}

# Balance losses of microbatches: the parts add up to the whole, and devices train with as many microbatches or not at all.
test_a_mixture_in_microbatches() {
    local layers=2; [ "$TIER" != verify ] || layers=4
    local own=(--model mixtral-tiny:L=$layers --text "$text" --sequences 4 --tokens 4 --steps 2 --optimizer sgd)
    make_text
    run golden make --out own.safetensors "${own[@]}" --micro 4 --as megatron,balance-over=microbatch;     expect_status 0
    run check own.safetensors own.safetensors;                                      expect_status 0; expect_out '^OK: '
    run train --check own.safetensors --dp 2 --micro 2 --pp 2;                      expect_status 0; expect_out '^OK: '
    run train --check own.safetensors --dp 2
    expect_status 2; expect_error 'balance losses are of 4 microbatches; with dp 2 and --micro 1 there are 2'
    [ "$TIER" = verify ] || return 0
    run golden make --out own.safetensors "${own[@]}" --micro 2 --as torch,balance-over=sequence;     expect_status 0
    run check own.safetensors own.safetensors;                                      expect_status 0; expect_out '^OK: '
    run train --check own.safetensors --pp 2 --dp 2 --schedule zb-v;                expect_status 0; expect_out '^OK: '
}

# What cannot be finished leaves what was there.
test_an_older_file_stays() {
    small
    echo old >own.safetensors
    run golden make --out own.safetensors --batch tokens.safetensors --optimizer sgd --lr 1e300 --clip 0 --steps 3; expect_status 1
    [ "$(cat own.safetensors)" = old ] || complain 'the older file is gone'
    mkdir own.bounds.json
    run golden make --out own.safetensors --batch tokens.safetensors --steps 1;     [ "$status" != 0 ] || complain 'it wrote over a folder'
    [ "$(cat own.safetensors)" = old ] || complain 'the older file is gone'
    [ "$(ls | wc -l)" = 3 ] || complain "it left behind: $(ls)"
}

run_tests test_of_a_folder_of_weights test_devices_beside_it test_dropout_and_its_masks test_rates_of_steps test_packed_documents test_a_mixture_in_microbatches \
    test_refusals test_an_older_file_stays
