# How many threads a device has, where that is said and kept, and what it does to bits.
# tier: check
. "$(dirname "$0")/lib.sh"

small='--batch 8 --steps 2'
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS

# A core that this process may use.
core=$(taskset -cp $$ | sed -E 's/.*: *([0-9]+).*/\1/')

bound() { command="taskset -c $core orrery $*"; watched taskset -c "$core" "$program" "$@"; }
told() { local n=$1; shift; command="OMP_NUM_THREADS=$n orrery $*"; watched env OMP_NUM_THREADS="$n" "$program" "$@"; }

# --threads before OMP_NUM_THREADS, before the cores that each device has for itself.
test_who_says_how_many() {
    make_text
    bound train --model tiny --data "$text" $small;                 expect_status 0; expect_out '^mesh    one device, 1 device, 1 thread each$'
    bound train --model tiny --data "$text" $small --dp 2;          expect_status 0; expect_out '^mesh    dp=2, 2 devices, 1 thread each$'
    bound train --model tiny --data "$text" $small --threads 2;     expect_status 0; expect_out '^mesh    one device, 1 device, 2 threads each$'
    told 3,1 train --model tiny --data "$text" $small;              expect_status 0; expect_out '^mesh    one device, 1 device, 3 threads each$'
    told 3 train --model tiny --data "$text" $small --dp 2;         expect_status 0; expect_out '^mesh    dp=2, 2 devices, 3 threads each$'
    told 3 train --model tiny --data "$text" $small --dp 2 --threads 2
    expect_status 0; expect_out '^mesh    dp=2, 2 devices, 2 threads each$'
    printf 'threads: 3\n' >settings
    train $small --config settings;                                 expect_status 0; expect_out ', 3 threads each$'
    train $small --config settings --threads 2 --json j --save kept;        expect_status 0; expect_out ', 2 threads each$'
    for f in j kept/training.json; do
        grep -q '"threads":	2' $f && grep -q '"kernel":	"[A-Za-z]' $f && grep -q '"blas":	"[A-Z][A-Za-z]* ' $f || complain "$f does not say what computed"
    done
    run train --threads 0;      expect_status 2; expect_error '--threads'
    run plan --threads 2;       expect_status 2; expect_error '--threads'
}

# All devices of a job have the same number, also where some are bound to a core of their own and others to all.
test_bound_by_the_launcher() {
    make_text
    command="mpiexec -n 1 taskset orrery : -n 1 orrery"
    local words=(train --model tiny --data "$text" $small --dp 2)
    watched "${MPIEXEC:-mpiexec}" -n 1 taskset -c "$core" "$program" "${words[@]}" : -n 1 "$program" "${words[@]}"
    expect_status 0; expect_out '^mesh    dp=2, 2 devices, 1 thread each$'
}

# A run is repeated bit for bit on fewer cores, if it has as many threads.  Newer OpenBLAS has no more threads than it was
# loaded with, so the variable says how many, not the flag.
test_cores_change_no_bits() {
    make_text
    export OMP_NUM_THREADS=2
    run train --model llama-tiny --data "$text" $small --save a;        expect_status 0
    bound train --model llama-tiny --data "$text" $small --save b;      expect_status 0
    unset OMP_NUM_THREADS
    for f in model.safetensors optimizer.safetensors training.json; do expect_same a/$f b/$f; done
}

# With one thread each a pipeline adds in the order of one device, which computes as many microbatches.
test_a_pipeline_has_the_bits_of_one_device() {
    local pp
    make_text
    run train --model llama-tiny --data "$text" $small --micro 1 --threads 1 --save one;                expect_status 0
    for pp in 2 4; do
        run train --model llama-tiny --data "$text" $small --micro 1 --threads 1 --pp $pp --save pp$pp; expect_status 0
        for f in model.safetensors optimizer.safetensors; do expect_same one/$f pp$pp/$f; done
    done
}

# With other threads or another kernel a resumed run may have other bits than one that was not stopped.
test_resuming_with_others_warns() {
    train $small --threads 1 --save kept;                           expect_status 0
    run train --resume kept --steps 1 --threads 1;                  expect_status 0; expect_silent; expect_no_out '^warning'
    run train --resume kept --steps 1 --threads 2
    expect_status 0; expect_silent; expect_out "^warning bits may differ from the saved run's: threads 2, not 1$"
    sed -i 's/"kernel":.*/"kernel": "Abacus",/; s/"threads":.*/"threads": 5,/' kept/training.json
    reseal kept
    run train --resume kept --steps 1 --threads 2
    expect_status 0; expect_out "^warning bits may differ from the saved run's: threads 2, not 5; kernel [A-Za-z0-9]+, not Abacus$"
}

# Every command that computes takes it.
test_one_option_for_all() {
    local what
    for what in train infer verify check golden 'golden make' dump sample calibrate affinity 'bench step' 'bench attention' 'bench dispatch' \
                'bench tensor' 'bench collectives' 'bench offload' 'bench quantized' 'bench check' 'show attention' 'show tensor' 'show dispatch' \
                'show allreduce'; do
        run $what --help;       expect_status 0; expect_out '^ +--threads N '
    done
    run calibrate --busy --devices 2 --quick --threads 3;      expect_status 0; expect_out '^2 devices on [0-9]+ cores?, 3 threads each, '
}

# Devices that another command starts with words of its own have as many.
test_passed_on() {
    local mpiexec; mpiexec=$(command -v "${MPIEXEC:-mpiexec}")
    mkdir bin
    printf '#!/bin/sh\necho "$OMP_NUM_THREADS" >%s\nexec %s "$@"\n' "$PWD/passed" "$mpiexec" >"bin/${mpiexec##*/}"
    chmod +x bin/*
    command='orrery verify, with an mpiexec that notes how many'
    PATH=$PWD/bin:$PATH watched "$program" verify tensor --devices 2 --from 2 --part 1/40 --threads 3;        expect_status 0
    [ "$(cat passed)" = 3 ] || complain "its devices have $(cat passed) threads, not 3"
}

run_tests test_who_says_how_many test_bound_by_the_launcher test_cores_change_no_bits test_a_pipeline_has_the_bits_of_one_device \
    test_resuming_with_others_warns test_one_option_for_all test_passed_on
