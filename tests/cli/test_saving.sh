# A save replaces all files of a checkpoint or none; what is damaged afterwards is found.
. "$(dirname "$0")/lib.sh"

# How many calls of a save change the disk: killed before the last it does not end well, before the one after the last it does.
count_calls() {
    local low=1 high=0 middle=64
    while [ $((high - low)) != 1 ]; do
        rm -rf kept; cp -r one kept
        killed_at $middle
        if [ "$status" = 0 ]; then high=$middle; else low=$middle; fi
        [ $high = 0 ] && middle=$((2 * middle)) || middle=$(((low + high) / 2))
    done
    calls=$low
}
killed_at() { { ORRERY_DISK_FAULT=kill@$1 run train --resume one --steps 1 --save kept; } 2>/dev/null; }

# Killed before a call that changes the disk, a save leaves the old checkpoint or the new one.  (Every call, torn ones and full disks:
# tests/ref/test_bundle.c.)  The last calls give five files their names; the one before them, flushed, makes the new files count.
test_killed_while_saving() {
    local calls n which f every=3                   # of the last calls, which replace one checkpoint by another
    [ "$TIER" != verify ] || every=1
    train --batch 4 --seq 8 --lr-steps 4 --steps 1 --save one;              expect_status 0
    run train --resume one --steps 1 --save two;            expect_status 0
    count_calls
    for n in 1 3 $((calls / 3)) $((calls - 20)) $(seq $((calls - 10)) $every $calls) $calls; do
        rm -rf kept; cp -r one kept
        killed_at $n
        [ "$status" != 0 ] || complain "killed at call $n of $calls it lives on"
        run train --resume kept --steps 0 --save seen;      expect_status 0; expect_silent
        which=one
        [ $n -lt $((calls - 6)) ] || which=two
        for f in config.json model.safetensors optimizer.safetensors training.json; do expect_same $which/$f seen/$f; done
    done
    run train --resume one --steps 1 --save kept;           expect_status 0     # what the last one left behind goes
    [ "$(ls kept | wc -l)" = 6 ] || complain "it left something: $(ls kept)"
    for f in config.json model.safetensors optimizer.safetensors training.json; do expect_same two/$f kept/$f; done
}

# A bit here and there in each file, in heads and tensors: found, by its name.
test_flipped_bits() {
    local f at size
    train --batch 4 --seq 8 --steps 1 --save kept;          expect_status 0
    for f in config.json training.json model.safetensors optimizer.safetensors run.yaml checkpoint.sha256; do
        size=$(stat -c %s kept/$f)
        for at in 0 9 $((size / 3)) $((size / 2)) $((size - 1)); do
            cp kept/$f sound
            printf "\\x$(printf %02x $((0x$(od -An -tx1 -j$at -N1 sound | tr -d ' ') ^ 1 << at % 8)))" | dd of=kept/$f bs=1 seek=$at conv=notrunc 2>/dev/null
            cmp -s sound kept/$f && complain "byte $at of $f is as it was"
            run train --resume kept --steps 1;              expect_status 1; expect_error "--resume kept/${f/./\\.}: is damaged"
            cp sound kept/$f
        done
    done
    run train --resume kept --steps 1 --pp 2;               expect_status 0
    (cd kept && sha256sum --quiet -c checkpoint.sha256) || complain 'sha256sum thinks otherwise'
    printf x | dd of=kept/model.safetensors bs=1 seek=$(($(stat -c %s kept/model.safetensors) - 5)) conv=notrunc 2>/dev/null
    run train --data "$text" --model kept --steps 1;        expect_status 1; expect_error '--model kept/model\.safetensors: is damaged'
    rm kept/checkpoint.sha256
    run train --data "$text" --model kept --steps 0;        expect_status 0     # whoever wants it as it is
}

# Where nothing can be written; and temporary files do not go through TMPDIR, which may be on another file system.
test_places() {
    train --batch 4 --seq 8 --steps 1 --save kept;          expect_status 0
    TMPDIR=/dev/shm run train --resume kept --steps 1 --save kept;          expect_status 0
    TMPDIR=/no/where run train --resume kept --steps 1 --save kept;         expect_status 0
    run train --resume kept --steps 1 --save kept/none/such;                expect_status 1; expect_error '--save kept/none/such: this folder cannot be made'
    for fault in EROFS@1 EACCES@2 ENOSPC@90 EIO@300; do
        cp -r kept before
        ORRERY_DISK_FAULT=$fault run train --resume kept --steps 1 --save kept
        expect_status 1; expect_error '--save kept.*: '
        for f in $(ls before kept); do [ "${f%:}" != "$f" ] || expect_same before/$f kept/$f; done
        rm -r before
    done
}

# A disk that is full: the system lets no file grow beyond 9000K; weights of 6.4M fit, states of 12.7M do not.  (A smaller
# limit would keep MPICH from starting: its shared memory is a file too.)
within_limit() { (ulimit -f 9000; exec "$program" "$@"); }
test_disk_full() {
    make_text
    local small="--model small --dtype fp64 --batch 2 --steps 1 --data ../text"
    run train $small --save kept;           expect_status 0
    cp -r kept before
    for mesh in '--dp 1' '--dp 2'; do
        command="ulimit -f 9000; orrery train --save kept $mesh"
        watched within_limit train $small $mesh --resume kept --save kept
        expect_status 1; expect_error '--save kept/optimizer\.safetensors\.new: .*: File too large'
        for f in $(ls before); do expect_same before/$f kept/$f; done
        [ "$(ls kept | wc -l)" = 6 ] || complain "it left something: $(ls kept)"
    done
    command='ulimit -f 9000; orrery train --save new'
    watched within_limit train $small --save new
    expect_status 1; [ ! -e new ] || complain "it left a folder: $(ls new)"
    run train $small --resume kept;         expect_status 0
}

# A preset has the losses of transformers' class; a z loss is asked for, kept in the folder and by who goes on from it, and warned of.
test_z_loss_is_ours() {
    make_text
    local how=(train --model mixtral-tiny --data "$text" --batch 4 --seq 8 --steps 1)
    run "${how[@]}" --save plain;               expect_status 0; expect_no_out '^warning'
    ! grep -q z_loss plain/config.json || complain "a preset's z loss: $(grep z_loss plain/config.json)"
    run "${how[@]}" --z-loss 0.01 --save kept;  expect_status 0; expect_out '^warning the z loss \(--z-loss\) is ours: '
    grep -qE '"router_z_loss_coef":[[:space:]]*0\.01,' kept/config.json || complain "the folder's z loss: $(grep z_loss kept/config.json)"
    run train --resume kept --steps 1 --check ref;                  expect_status 0; expect_silent; expect_out '^OK: '
    run train --resume kept --steps 1 --z-loss 0;                   expect_status 2; expect_error '--z-loss: saved 0\.01, now not given'
    run train --model tiny --z-loss 0.1;                            expect_status 2; expect_error '--z-loss 0\.1: is for mixtures of experts; model tiny has none'
}

run_tests test_z_loss_is_ours test_killed_while_saving test_flipped_bits test_places test_disk_full
