# Dumps that begin at a resume: after step K, with the weights and states of a checkpoint; and routers' corrections after each step.
. "$(dirname "$0")/lib.sh"

# Make a golden file of three steps.
make_golden() { golden_make "$1" --model "$2" --text "$top/README.md" --sequences "${4:-3}" --tokens 4 --steps 3 --optimizer "$3" --eps 1e-4 --lr-schedule cosine --warmup 2; }

# Train a golden file's run, save it after every step, go on after step K on another mesh, and dump that.
resume() {                              # resume NAME K "FLAGS OF BOTH" FLAGS...
    rm -rf saved d
    run train --check "./$1.safetensors" $3 --save saved --save-every 1;    expect_status 0; expect_silent
    run train --check "./$1.safetensors" $3 "${@:4}" --resume "saved/step-0000000$2" --dump d/;   expect_status 0; expect_silent
    expect_out "^step $(($2 + 1))/3 "; expect_no_out "^step $2/3 "
}

# The bytes of a tensor of a file begin here, and are so many.
bytes_of() {
    local at; at=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    head -c $((8 + at)) "$1" | grep -aoE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+,[0-9]+" | grep -oE '[0-9]+,[0-9]+$' | {
        IFS=, read -r from to; echo "$((8 + at + from)) $((to - from))"; }
}

# Write bytes over a tensor of a file.
put_bytes() { dd of="$1" bs=1 conv=notrunc seek="${2% *}" 2>/dev/null; }

test_meshes() {
    make_golden own llama-tiny:L=2 "$(rarely echo momentum,)adamw,sgd"
    resume own 1 '' --dp 2 --tp 3 --dump-passes
    run check own.safetensors d;        expect_status 0; expect_silent; expect_out '^begins  after step 1, with its own weights and states$'
    expect_out '^OK: [0-9]{3,} of'; expect_no_out '^ +[0-9]+  (begun with|cannot)'
    resume own 1 '--optimizer sgd --dtype bf16' --dp 2 --tp 3 --dump-passes;    run check own.safetensors d;    expect_status 0; expect_silent
    if [ "$TIER" = verify ]; then
        resume own 2 '--optimizer momentum' --dp 3 --pp 2;      run check own.safetensors d;    expect_status 0; expect_silent
        resume own 2 '--dtype fp16' --dp 2 --tp 2;              run check own.safetensors d;    expect_status 0; expect_silent
    fi
    rarely make_golden moe qwen3-moe-tiny adamw 6
    rarely resume moe 1 '' --ep 2 --dp 3 --dump-passes;                rarely run check moe.safetensors d;    expect_status 0; expect_silent
}

# A run of other weights is judged by itself: what it begins with is as given.
test_another_start() {
    make_golden own tiny:L=2 adamw,sgd 2
    run golden make --out other.safetensors --model tiny:L=2 --seed 7 --batch own.safetensors --eps 1e-4 --lr-schedule cosine --warmup 2;  expect_status 0
    resume other 1 '' --dp 2 --tp 3 --dump-passes
    run check own.safetensors d;    expect_status 0; expect_silent
    expect_out '^ +84  begun with, taken as given: not held to the golden file$'; expect_out '^ +[0-9]+  of later passes, judged by what'
    # Without the word nobody knows that it is a resume; the report says how to say it.
    cp -r d e; LC_ALL=C sed -i 's/"begins":"1"/"format":"1"/' e/*
    run check own.safetensors e;    expect_status 3; expect_out '^  why +if the program was resumed after step 1 .*metadata "begins": "1"$'
    # One with a weight that was not dumped cannot be judged.
    cp -r d f; LC_ALL=C sed -i 's#adamw/1/exp_avg/wte#adamw/1/exp_avg/wtf#g' f/*
    run check own.safetensors f;    expect_status 3; expect_error 'adamw/1/exp_avg/wte.weight is missing'
}

test_refusals() {
    make_golden own tiny:L=2 adamw,sgd 2
    resume own 2 '' --dp 2
    cp -r d e; LC_ALL=C sed -i 's/"begins":"2"/"begins":"3"/' e/*;                  run check own.safetensors e;    expect_status 1; expect_error 'ACTUAL begins after step 3; the golden file has 3 steps: make one with --steps 4 or more'
    rm -rf e; cp -r d e; LC_ALL=C sed -i 's/"begins":"2"/"begins":"0"/' e/*;        run check own.safetensors e;    expect_status 1; expect_error 'metadata "begins" is not the number of a step'
    rm -rf e; cp -r d e; LC_ALL=C sed -i 's/"begins":"2"/"begins":"1"/' e/rank1*;   run check own.safetensors e;    expect_status 1; expect_error 'rank1.safetensors: metadata "begins" is not that of the files before it'
    rm -rf e; cp -r d e; LC_ALL=C sed -i 's#"adamw/2/weight/wte#"adamw/1/weight/wte#g; s#"adamw/2/weight/wte#"adamw/1/weight/wte#g' e/*
    run check own.safetensors e;    expect_status 1; expect_error '"adamw/1/weight/wte.weight#0" is of a step that is done: ACTUAL begins after step 2'
    run train --check ./own.safetensors --resume saved/step-00000003;              expect_status 2; expect_error "--resume saved/step-00000003: all of the golden file's 3 steps are done"
    run train --check ./own.safetensors --resume saved/step-00000002 --dump f.safetensors;     expect_status 2; expect_error '--dump f.safetensors: of a resumed run is a folder, whose name ends with /'
    run train --check ./own.safetensors --optimizer sgd --resume saved/step-00000002;   expect_status 2; expect_error '--optimizer: saved adamw, now sgd'
    run golden make --out last.safetensors --model tiny:L=2 --batch own.safetensors --keep last;    expect_status 0
    run check last.safetensors d;   expect_status 1; expect_error 'has not what is there after each step: .* --keep all'
}

# A router's correction moves by the choices of the whole batch; each of its mistakes is said.
test_corrections() {
    local name=adamw/1/weight/model.layers.2.mlp.gate.e_score_correction_bias next file at from
    next=${name/1/2}
    make_golden own deepseek-v3-tiny:L=3 adamw 2
    run train --check ./own.safetensors --dp 2 --dump d/ --dump-passes; expect_status 0
    run check own.safetensors d --all;  expect_status 0; expect_silent; expect_out "^ *$name +error 0"
    # They begin at 0 and move by 0.001, so that the other sign is the other way.
    cp -r d e; for file in e/*; do at=$(bytes_of $file $name); tail -c +$((${at% *} + 1)) $file | head -c ${at#* } | LC_ALL=C tr '\077\277' '\277\077' >bytes; put_bytes $file "$at" <bytes; done
    run check own.safetensors e;        expect_status 3; expect_error "$name differs: it moves the wrong way"
    rm -rf e; cp -r d e; for file in e/*; do at=$(bytes_of $file $next) from=$(bytes_of $file $name); tail -c +$((${from% *} + 1)) $file | head -c ${from#* } >bytes; put_bytes $file "$at" <bytes; done
    run check own.safetensors e;        expect_status 3; expect_error "$next differs: stale: it is not moved"
    resume own 1 '' --dp 2 --tp 2 --dump-passes
    run check own.safetensors d;        expect_status 0; expect_silent; expect_no_out 'cannot be judged'
    # Without corrections at its start a resumed run's choices are not known.
    LC_ALL=C sed -i 's#"adamw/1/weight/\(model.layers.[0-9]*.mlp.gate.e_score\)_#"adamw/1/weight/\1-#g' d/*
    run check own.safetensors d;        expect_status 3; expect_out '^NOT ENOUGH: '; expect_out 'missing +adamw/1/weight/model.layers.1.mlp.gate.e_score_correction_bias, for adamw/2/act/h.1.router.weights'
}

run_tests test_meshes test_another_start test_refusals test_corrections
