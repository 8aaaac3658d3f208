# Checkpoints that are written while training goes on: the bytes of a synchronous save, at the price that the formulas say, and
# whoever is killed at whatever moment, the last one that counts resumes.
. "$(dirname "$0")/lib.sh"

small='--batch 8 --seq 8'
every='--sharded --save-every 1'

# save_both FLAGS: the same run, saved while all wait and saved meanwhile.
save_both() {
    make_text
    local words="train --model ${model:-tiny} --data $text $small --steps 3 --lr-steps 8 $1"
    rm -rf waits beside
    run $words --save waits $every;                     expect_status 0
    bits=$(grep '^bits' <<<"$out")
    run $words --save beside $every --save-async;       expect_status 0; expect_silent
    [ "$(grep '^bits' <<<"$out")" = "$bits" ] || complain 'the run has other weights'
    expect_out '^saving  step 1 meanwhile: .* of a device; copied in '
    expect_out 'counted times of all saves equal max\(0, copy - passes\) and the wait for the buffer, on every device'
    local folder f
    for folder in waits/*; do
        for f in "$folder"/*; do
            case $f in *run.yaml | *checkpoint.sha256) ;; *) expect_same "$f" "beside/${f#waits/}" ;; esac
        done
        (cd "beside/${folder#waits/}" && sha256sum --quiet -c checkpoint.sha256) || complain "$folder: a sum is wrong"
    done
    [ "$(ls waits)" = "$(ls beside)" ] || complain "there are $(ls beside)"
}
test_bytes_are_those_of_a_save_that_waits() {
    save_both '--dp 2 --tp 2 --zero 1'
    flags='' save_both '--dp 3 --zero 3 --dtype bf16'
    [ "$TIER" = verify ] || return 0
    model=mixtral-tiny save_both '--dp 2 --ep 2'
    save_both '--pp 2 --dp 2 --zero 2'
    save_both '--data-parallel diloco --local-steps 2 --dp 2'
    save_both '--dp 4 --zero 3 --cluster laptop-flat'
    ORRERY_BACKEND=discrete save_both '--dp 2 --zero 2'         # the host cannot read it meanwhile: it copies at once
    ORRERY_ONE_PROCESS=1 save_both '--dp 5 --zero 3'            # two nodes
    save_both '--dp 2 --arithmetic exact'
}

# The bytes are those of the plan; with long intervals nothing waits; the wait before an update is what passes do not hide.
test_what_it_costs() {
    run train --model tiny --data "$(make_text; echo "$text")" $small --dp 2 --zero 1 --steps 40 --save run --sharded --save-every 20 \
        --save-async --json run.json
    expect_status 0
    local copy held waited bytes
    copy=$(grep -o '"copy_ps":[^,}]*' run.json | head -n 1 | tr -dc 0-9)
    held=$(grep -o '"held_ps":[^,}]*' run.json | head -n 1 | tr -dc 0-9)
    waited=$(grep -o '"waited_ps":[^,}]*' run.json | tail -n 1 | tr -dc 0-9)
    bytes=$(grep -o '"bytes":[^,}]*' run.json | head -n 1 | tr -dc 0-9)
    [ "$bytes" -gt 0 ] && [ "$copy" -gt "$held" ] || complain "$bytes bytes are copied in $copy ps, of which $held hold a device"
    [ "$waited" = 0 ] || complain "a save waited $waited ps for a buffer that is free"
}

# What is newest in a series of which somebody was killed: it resumes, with the bits of the run that was not.
resumes_from() {                                        # resumes_from FOLDER
    local newest f
    newest=$(cd "$1" 2>/dev/null && ls -d */checkpoint.sha256 2>/dev/null | tail -n 1)
    run train --resume "$1" --dp 2 --zero 1 --steps 0 --save seen --sharded
    if [ -z "$newest" ]; then [ "$status" != 0 ] || complain 'it resumes from nothing'; return; fi
    expect_status 0; expect_silent
    newest=${newest%/*}
    for f in "whole/$newest"/device-*.safetensors "whole/$newest"/training.json; do
        [ -e "$f" ] || { complain "$newest counts, which the whole run does not have"; continue; }
        case $f in *training.json) expect_same "$f" seen/training.json ;;
                   *) expect_same "$f" seen/"$(basename "$f")" ;; esac
    done
    rm -rf seen
    counted=$((counted + 1))
}

# All devices in one process, killed before each flush and renaming in turn; the third tier also before every write.
test_killed_together() {
    local words n=1 step=21 died=0 counted=0 kind=settle
    make_text
    words="train --model tiny --data $text $small --dp 2 --zero 1 --lr-steps 9 --steps 3"
    run $words --save whole $every;                     expect_status 0
    [ "$TIER" != verify ] || step=1
    while :; do
        rm -rf kept
        { ORRERY_ONE_PROCESS=1 ORRERY_DISK_FAULT=$kind@$n run $words --save kept $every --save-async; } 2>/dev/null
        if [ "$status" = 0 ]; then
            [ "$TIER" = verify ] && [ $kind = settle ] || break
            kind=torn n=1 step=37; continue
        fi
        died=$((died + 1))
        resumes_from kept
        n=$((n + step))
    done
    [ $died -ge 3 ] && [ $counted -ge 2 ] || complain "it was killed only $died times, of which $counted left a checkpoint"
}

# One of the processes of a job is killed; a slow disk of another one does not make a checkpoint count.
test_killed_alone() {
    local words n rank died=0 counted=0 points=5 first second delays
    make_text
    words="train --model tiny --data $text $small --dp 2 --zero 1 --lr-steps 9 --steps 3"
    run $words --save whole $every;                     expect_status 0
    [ "$TIER" != verify ] || points=$(seq 1 40)
    for rank in 0 1; do
        for n in $points; do
            rm -rf kept
            first="env ORRERY_DISK_FAULT=settle@$n" second='env ORRERY_DISK_DELAY=2'
            [ $rank = 0 ] || { local other=$first; first=$second second=$other; }
            command="settle@$n of device $rank"
            { "${MPIEXEC:-mpiexec}" -n 1 $first "$program" $words --save kept $every --save-async : \
                -n 1 $second "$program" $words --save kept $every --save-async </dev/null >/dev/null 2>err; } 2>/dev/null && continue
            died=$((died + 1))
            resumes_from kept
        done
    done
    [ $died -ge 2 ] || complain "only $died processes were killed"
}

# A device whose disk is slow: nobody counts the checkpoint before its file is there.
test_slow_disk() {
    local words folder
    make_text
    words="train --model tiny --data $text $small --dp 2 --zero 1 --steps 70 --save slow --sharded --save-every 30 --save-async"
    "${MPIEXEC:-mpiexec}" -n 1 "$program" $words : -n 1 env ORRERY_DISK_DELAY=1 "$program" $words </dev/null >out 2>err ||
        complain "it failed: $(cat err)"
    for folder in slow/*; do
        run train --resume "$folder" --dp 2 --zero 1 --steps 0;     expect_status 0
    done
    [ "$(ls slow | wc -l)" = 3 ] || complain "there are $(ls slow | tr '\n' ' ')"
}

# A full disk on any device ends the run with one line; the checkpoints before stay, and nothing else.
test_full_disk() {
    local words
    make_text
    words="train --model tiny --data $text $small --dp 2 --zero 1 --lr-steps 9 --steps 3"
    ORRERY_ONE_PROCESS=1 ORRERY_DISK_FAULT=ENOSPC@700 run $words --save kept $every --save-async
    expect_status 1; expect_error '--save kept/step-[0-9]+/device-0000[01]\.0\.safetensors: writing failed: No space left on device'
    local f
    for f in kept/*; do
        [ -e "$f/checkpoint.sha256" ] || [ -z "$(ls "$f")" ] || complain "$f has $(ls "$f" | tr '\n' ' ')"
    done
}

test_what_is_refused() {
    make_text
    local words="train --model tiny --data $text $small --steps 2 --save x --save-async"
    run $words;                                          expect_status 2; expect_error '--save-async: needs --sharded'
    run $words --sharded;                                expect_status 2; expect_error '--save-async: needs --save-every N'
    run $words $every --optimizer galore --rank 2;       expect_status 2; expect_error '--save-async: not with --optimizer: its directions change'
    run $words $every --optimizer mezo;                  expect_status 2; expect_error '--save-async: not with --optimizer: its passes move the weights'
    run $words $every --offload optimizer --dp 2;        expect_status 2; expect_error '--save-async: not with --offload'
    run $words $every --schedule pipedream-2bw --pp 2;   expect_status 2; expect_error '--save-async: not with --schedule'
    [ ! -e x ] || complain "it wrote $(ls x)"
}

run_tests test_bytes_are_those_of_a_save_that_waits test_what_it_costs test_killed_together test_killed_alone test_slow_disk test_full_disk test_what_is_refused
