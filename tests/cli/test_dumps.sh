# Dumps of our own devices, each with its file, read back by `orrery check`; and what becomes of them on the way.
. "$(dirname "$0")/lib.sh"

golden=$top/golden/gpt2-tied.safetensors

# Train a golden file's run on a mesh, each device writing what it has, and check that: N tensors hold, M operations are right.
dump_and_check() {                                      # dump_and_check NAME N M FLAGS...
    rm -rf d
    run train --check "$top/golden/$1.safetensors" "${@:4}" --dump d/;  expect_status 0; expect_silent; expect_out '^dumped  [0-9]+ files? to d/'
    run check "$top/golden/$1.safetensors" d;                           expect_status 0; expect_silent
    expect_out "^ +$2  holds$"; expect_out "^ +$3  right$"; expect_out '^program orrery train$'
}

test_meshes() {
    dump_and_check gpt2-tied 162 76 --dtype fp64 --dp 3 --tp 2 --zero 3
    dump_and_check gpt2-tied 162 76 --dtype fp64 --pp 2 --tp 2 --micro 3
    dump_and_check mixtral-top2 198 97 --dtype fp64 --dp 3 --ep 3
    [ "$TIER" = verify ] || return 0
    dump_and_check gpt2-tied 162 76 --dtype fp64
    dump_and_check gpt2-tied 162 76 --dtype fp64 --dp 2
    dump_and_check gpt2-tied 162 76 --dtype fp64 --tp 3
    dump_and_check gpt2-tied 162 76 --dtype fp64 --dp 3 --zero 2
    dump_and_check gpt2-tied 162 76 --dtype fp64 --dp 3 --pp 2 --zero 1
    dump_and_check gpt2-tied 162 76 --dtype fp64 --dp 2 --tp 2 --zero 3 --tiles 3
    dump_and_check gpt2-tied 162 76 --dtype fp64 --dp 2 --tp 3 --tensor 1d-sp
    dump_and_check gpt2-tied 162 76 --dtype fp64 --dp 2 --tp 2 --cp 2
    dump_and_check llama-grouped 160 95 --dtype fp64 --tp 4 --tensor 2d
    dump_and_check parscale-grouped 154 83 --dtype fp64 --cp 2 --attention streams
    dump_and_check gpt2-tied 162 76 --dtype fp16 --dp 2 --tp 3
    dump_and_check llama-grouped 157 95 --dtype bf16 --dp 2 --tp 2
}

# Rows of experts are where devices have computed them: of all 16-bit tensors each is what its own inputs give.  Results of devices that cut F
# are parts of a sum.  What is there after the last step cannot be judged without the steps between, and is left out.
test_mixtures() {
    run train --check "$top/golden/mixtral-sparse.safetensors" --dtype bf16 --dp 2 --tp 2 --ep 2 --etp 2 --dump d/;     expect_status 0
    expect_out '^ +the first pass alone: the golden file has no steps between'
    run check "$top/golden/mixtral-sparse.safetensors" d;               expect_status 0; expect_silent; expect_out '^ +175  right$'
    expect_out '^OK: 175 of 681 tensors compared; not compared: 8 loss, 498 step$'
    rm -rf d
    run train --check "$top/golden/mixtral-sparse.safetensors" --dtype fp32 --tp 2 --dump d/;       expect_status 0
    expect_out '^ +the first pass and the last step: the golden file has no steps between'
    run check "$top/golden/mixtral-sparse.safetensors" d;               expect_status 0; expect_silent; expect_out '^OK: 426 of 681 tensors'
    run train --check "$top/golden/mixtral-top2.safetensors" --dump one.safetensors;    expect_status 0
    run check "$top/golden/mixtral-top2.safetensors" one.safetensors;   expect_status 0; expect_silent      # a file of all has no rows of experts
    expect_out '^OK: 186 of 303 tensors compared; not compared: 6 loss, 6 act, 6 act-grad, 99 step'
    [ "$TIER" = verify ] || return 0
    dump_and_check deepseekv3-groups 194 192 --dtype fp16 --cp 2 --ep 2 --dispatch allgather
    for mesh in '--dp 2 --tp 2 --dispatch tutel --degree 1' '--dp 2 --tp 2 --dispatch tutel --degree 0' '--dp 4 --dispatch two-step' \
                '--dp 4 --dispatch alltoall-2dh' '--dp 4 --ep 4 --etp 1 --dispatch fssdp' '--tp 4 --tensor 1d-sp'; do
        rm -rf d
        # shellcheck disable=SC2086
        run train --check "$top/golden/mixtral-sparse.safetensors" --dtype bf16 --ep 2 --etp 2 $mesh --dump d/;      expect_status 0
        run check "$top/golden/mixtral-sparse.safetensors" d;           expect_status 0; expect_out '^OK: 175 of 681 tensors'
    done
}

# In 16 bits rounding may send a token of a later pass to another expert: the routers' logits say so.
test_mixture_steps() {
    run golden make --out mix.safetensors --model mixtral-tiny:L=2 --cover --sequences 2 --tokens 9 --eps 1e-4 --steps 2;   expect_status 0
    for dtype in bf16 fp16; do
        rm -rf d
        run train --check mix.safetensors --dtype $dtype --tp 2 --dump d/;      expect_status 0
        run check mix.safetensors d;    expect_status 0; expect_out '^OK: '
        run tensors d/rank0.safetensors;    expect_out 'adamw/2/act/h.1.router.logits'; expect_no_out 'adamw/2/act/h.1.mlp'
    done
}

# More devices along tp than heads of keys and values: each dumps its part of their gradients.  A file of all has the sums.
test_copies_of_keys() {
    dump_and_check llama-single 50 39 --dtype fp64 --tp 3
    run train --check "$top/golden/llama-single.safetensors" --dtype fp64 --tp 4 --dump one.safetensors;    expect_status 0; expect_silent
    run check "$top/golden/llama-single.safetensors" one.safetensors;   expect_status 0; expect_silent; expect_out '^ +50  holds$'
    # Without optimization a compiler may store what it keeps in registers elsewhere: both are right.
    (( $(sed -nE 's/^ +([0-9]+)  right( if .*)?$/\1/p' <<<"$out" | paste -sd+) == 39 )) || complain 'not all 39 operations are right'
    [ "$TIER" = verify ] || return 0
    dump_and_check llama-single 50 39 --dtype fp16 --tp 4 --dp 2
    dump_and_check llama-single 50 39 --dtype bf16 --tp 4
    dump_and_check qwen3-even 52 43 --dtype bf16 --tp 2
    dump_and_check llama-grouped 160 95 --dtype fp64 --tp 7
}

# Masks of dropout are bytes of the golden file; with several sequences in a tile some rows of them are read.
test_dropout() {
    run golden make --out drop.safetensors --model tiny:L=2 --text "$top/README.md" --sequences 3 --tokens 4 --steps 1 --dropout 0.25;   expect_status 0
    run train --check drop.safetensors --dtype fp64 --dump d/;          expect_status 0
    run check drop.safetensors d;       expect_status 0; expect_silent; expect_out '^ +[0-9]+  right$'
}

# The first number of a tensor of a file becomes 1.
set_first() {
    local at; at=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    at=$((8 + at + $(head -c $((8 + at)) "$1" | grep -aoE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+" | grep -oE '[0-9]+$')))
    printf '\0\0\0\0\0\0\360\77' | dd of="$1" bs=1 conv=notrunc seek=$at 2>/dev/null
}

# One number of one device is another: it is named with its device and microbatch, and so is the copy that differs.
test_one_number() {
    run train --check "$golden" --dtype fp64 --tp 2 --micro 3 --dump d/;    expect_status 0
    set_first d/rank1.safetensors act/h.1.mid#2
    run check "$golden" d --json j;     expect_status 3; expect_error 'act/h.1.mid is not what its own inputs give on tp=1: only the element in row 14, column 0'
    expect_out '^  wrong on  tp=1: 1 of the 2 ranks'; expect_out '^  in time   wrong in microbatch 2; right in 0, 1$'
    expect_out '^  copies    rank 1 \(tp=1\) has 1 in row 14, column 0, but rank 0 \(tp=0\) has .*; 1 copies are not the same'
    grep -q '"microbatches":.*wrong in microbatch 2' j || complain 'the JSON does not have the microbatch'
    set_first d/rank1.safetensors act/h.1.mlp.act#1                         # cut over tp: nobody has a copy
    run check "$golden" d --json j;     expect_status 3
    expect_out '^  wrong     act/h.1.mlp.act, '; expect_out '^            only on tp=1; microbatch 1$'
    grep -q '"only_on":.*tp=1; microbatch 1' j || complain 'the JSON does not have its place'
}

test_refusals() {
    run train --check "$golden" --dtype fp64 --dp 3 --dump d/;          expect_status 0
    run train --check "$golden" --dtype fp64 --dp 3 --dump d/;          expect_status 1; expect_error '--dump d/: has files of a dump'
    run train --check "$golden" --dtype fp64 --dp 3 --dump "$golden/";  expect_status 1; expect_error '--dump .*: cannot be created'
    mv d/rank1.safetensors .;                                           run check "$golden" d;  expect_status 1; expect_error 'no file of the rank with dp=1, but "mesh" in d/rank0.safetensors has 3 ranks'
    head -c 60000 rank1.safetensors >d/rank1.safetensors;               run check "$golden" d;  expect_status 1; expect_error 'd/rank1.safetensors: .* outside the .* bytes of data'
    head -c 90 rank1.safetensors >d/rank1.safetensors;                  run check "$golden" d;  expect_status 1; expect_error 'd/rank1.safetensors: says its header has .* was it cut short'
    cp rank1.safetensors d; cp d/rank0.safetensors d/twice.safetensors; run check "$golden" d;  expect_status 1; expect_error 'd/twice.safetensors: "act/embedding#0" of rank 0 is in d/rank0.safetensors, too'
    rm d/twice.safetensors
    LC_ALL=C sed 's/\\"dp\\":3/\\"tp\\":3/' rank1.safetensors >d/rank1.safetensors;     run check "$golden" d;  expect_status 1; expect_error 'd/rank1.safetensors: metadata "mesh" is not that of d/rank0.safetensors'
    LC_ALL=C sed 's/act\/h.0.mid#0/act\/h.0.mud#0/g' rank1.safetensors >d/rank1.safetensors;    run check "$golden" d;  expect_status 3; expect_error 'act/h.0.mid is not complete on all ranks together: 147 of its 441 elements are on no rank; the first is row 7, column 0'
    expect_out 'not golden: act/h.0.mud'
    cp rank1.safetensors d; run check "$golden" d;                      expect_status 0; expect_silent
    run check "$top/golden/gpt2-untied.safetensors" d;                  expect_status 3
    echo '{}' >map.json;    run check "$golden" d --map map.json;       expect_status 1; expect_error 'd/rank0.safetensors: is a dump that says itself'
    head -c -1 rank1.safetensors >d/rank1.safetensors;                  run check "$golden" d;  expect_status 1; expect_error 'd/rank1.safetensors: .* outside the .* bytes of data: was it cut short'
    LC_ALL=C sed 's/"rank":"1"/"ramk":"1"/' rank1.safetensors >d/rank1.safetensors; run check "$golden" d;  expect_status 1; expect_error 'd/rank1.safetensors: metadata "ramk" is none of orrery_dump, rank, mesh'
    LC_ALL=C sed 's/"rank":"1"/"rank":"0"/' rank1.safetensors >d/rank1.safetensors; run check "$golden" d;  expect_status 1; expect_error 'no file of the rank with dp=1, but two of rank 0: d/rank0.safetensors and d/rank1.safetensors'
    LC_ALL=C sed 's/adamw\/weight\/wte/adamw\/7\/weig\/wte/g' rank1.safetensors >d/rank1.safetensors;    run check "$golden" d;  expect_status 1; expect_error 'd/rank1.safetensors: "adamw/7/weig/wte.weight" is of step 7; the golden file has steps 1 to 3'
    LC_ALL=C sed 's/\\"cols\\"/\\"step\\"/' rank1.safetensors >d/rank1.safetensors;  run check "$golden" d;  expect_status 1; expect_error 'd/rank1.safetensors: "step" is no field: names say of which step'
}

# The mean of squares of a tensor's numbers in 16 bits is no longer what it was: its first row becomes 0.
zero_row() {
    local at count; at=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    count=$(head -c $((8 + at)) "$1" | grep -aoE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+,[0-9]+" | grep -oE '[0-9]+,[0-9]+$')
    head -c $((${count#*,} - ${count%,*})) /dev/zero | dd of="$1" bs=1 conv=notrunc seek=$((8 + at + ${count%,*})) 2>/dev/null
}

# The first number of a tensor in fp32 becomes 0.
zero_first() {
    local at; at=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    at=$((8 + at + $(head -c $((8 + at)) "$1" | grep -aoE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+" | grep -oE '[0-9]+$')))
    printf '\0\0\0\0' | dd of="$1" bs=1 conv=notrunc seek=$at 2>/dev/null
}

# Every pass is judged by itself, from the program's own weights before it: in 16 bits, too, and operation by operation where it is dumped.
test_later_passes() {
    run golden make --out own.safetensors --model llama-tiny --text "$top/README.md" --sequences 2 --tokens 5 --steps 3 --optimizer adamw;     expect_status 0
    run train --check own.safetensors --dp 2 --dtype bf16 --dump d/;                    expect_status 0
    run check own.safetensors d;                    expect_status 0; expect_silent; expect_out '^OK: 7[0-9]{2} of 7[0-9]{2} tensors compared'
    cp -r d e; for f in e/*; do zero_row $f adamw/2/grad/model.layers.1.self_attn.o_proj.weight#0; done
    run check own.safetensors e;                    expect_status 3; expect_error 'adamw/2/grad/model.layers.1.self_attn.o_proj.weight differs'
    expect_out '^  it is     zero$'
    # One number of a gradient is a few hundredths of it: the bound of the pass itself says that this is not rounding.
    run train --check own.safetensors --dump g.safetensors;         expect_status 0
    zero_first g.safetensors adamw/2/grad/model.layers.1.self_attn.o_proj.weight
    run check own.safetensors g.safetensors;        expect_status 3; expect_error 'adamw/2/grad/model.layers.1.self_attn.o_proj.weight differs'
    rm -rf d; run train --check own.safetensors --dp 2 --dtype bf16 --dump d/ --dump-passes;    expect_status 0
    run check own.safetensors d;                    expect_status 0; expect_silent
    expect_out '^ +[0-9]+  of later passes, judged by what their own inputs give$'; expect_out '^OK: 1[0-9]{3} of 1[0-9]{3} tensors compared$'
    cp -r d good; zero_row d/rank1.safetensors adamw/3/act/h.1.mlp.act#0
    run check own.safetensors d;                    expect_status 3; expect_error 'adamw/3/act/h.1.mlp.act is not what its own inputs give on dp=1: what is wrong is zero'
    # A piece that is gone, another shape, and no weights that the pass could begin with: each says so.
    rm -rf d; cp -r good d; LC_ALL=C sed -i 's#adamw/2/act/h.0.mid\##adamw/2/act/h.0.mud\##g' d/rank1.safetensors
    run check own.safetensors d;                    expect_status 3; expect_error 'adamw/2/act/h.0.mid is not complete on all ranks together'
    rm -rf d; cp -r good d; LC_ALL=C sed -i 's#\(adamw/2/act/h.0.mid\#0\\":{\\"of\\":\[\)10#\199#' d/*
    run check own.safetensors d;                    expect_status 3; expect_error 'adamw/2/act/h.0.mid does not fit: .* it is of 99 x 32'
    rm -rf d; cp -r good d; LC_ALL=C sed -i 's#adamw/1/weight/#adamw/1/weighd/#g' d/*
    run check own.safetensors d;                    expect_status 3; expect_error 'first adamw/2/act/embedding: the golden file has no numbers of later passes; dump adamw/1/weight/'
    expect_out '^NOT ENOUGH: .* cannot be judged \(the golden file has no numbers of later passes\)'
    rm -rf d; run train --check own.safetensors --dump f.safetensors --dump-passes;             expect_status 0
    run check own.safetensors f.safetensors;        expect_status 0; expect_silent; expect_out 'of later passes, judged by'
    run train --check own.safetensors --dump-passes;                                    expect_status 2; expect_error '--dump-passes: says what --dump'
    # Without the steps between there are no such passes.
    run golden make --out last.safetensors --model llama-tiny:L=2 --text "$top/README.md" --sequences 2 --tokens 5 --steps 2 --optimizer adamw --keep last;     expect_status 0
    rm -rf d; run train --check last.safetensors --dump d/ --dump-passes;               expect_status 2; expect_error '--dump-passes: passes after the first need a golden file'
    [ ! -e d ] || complain 'a dump was begun'
}

# The losses of all steps are one tensor.  Each number is judged, also the first of a mixture whose first pass is run again.
test_losses_of_steps() {
    run golden make --out own.safetensors --model deepseek-v3-tiny:L=3 --text "$top/README.md" --sequences 1 --tokens 4 --steps 2 --optimizer sgd; expect_status 0
    run train --check own.safetensors --dtype bf16 --dump d/;   expect_status 0
    run check own.safetensors d;                                expect_status 0; expect_silent
    cp -r d e; set_first e/rank0.safetensors sgd/loss
    run check own.safetensors e;                                expect_status 3; expect_error 'sgd/loss differs'
}

run_tests test_meshes test_copies_of_keys test_dropout test_one_number test_refusals test_later_passes test_losses_of_steps test_mixtures test_mixture_steps
