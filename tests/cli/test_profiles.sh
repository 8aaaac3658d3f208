# Profiles: what --as says is in every output and every file, is kept, and is refused where it would be another run; and the page has the table.
. "$(dirname "$0")/lib.sh"

small='--batch 4 --seq 8'

# Every row of the page is what the program lists, and every row that it lists is on the page.
test_the_page_has_the_table() {
    run list profiles;                                                      expect_status 0
    awk '/^  [a-z]/ && !/this program|PyTorch 2|Megatron Core|DeepSpeed 0|galore-torch 1/ { name = $1; text = "" }
         { text = text " " $0 }
         /^ *from (torch|megatron|transformers)/ && name { sub(/ from (torch|megatron|transformers).*/, "", text); gsub(/ +/, " ", text)
             n = match(text, / orrery [^ ]+, torch /); split(substr(text, n + 1), v, /, /)
             printf "| `%s`", name
             for (i = 1; i <= 5; i++) { sub(/^[a-z-]+ /, "", v[i]); sub(/ *$/, "", v[i]); printf " | %s", v[i] }
             print " |"; name = "" }' "$place/out" >listed
    grep -E '^\| `[a-z-]+`( \| [^|]+){5} \|$' "$top/docs/checking/profiles.md" >page
    [ "$(wc -l <listed)" -ge 18 ] || complain "list profiles has $(wc -l <listed) rows"
    cmp -s listed page || complain "docs/checking/profiles.md: $(diff page listed | head -4)"
}

# What is told of a run is in its summary and its checkpoint; who resumes it need not say it, and may not say another.
test_a_run_keeps_its_profile() {
    train $small --steps 2 --lr-steps 4 --as megatron,clip-added=1e-3 --save kept --json one.json
    expect_status 0
    grep -q '"as":.*"megatron,clip-added=1e-3"' one.json || complain "$(grep '"as"' one.json)"
    run train --resume kept --steps 1 --json two.json;                      expect_status 0
    grep -q '"as":.*"megatron,clip-added=1e-3"' two.json || complain "$(grep '"as"' two.json)"
    run train --resume kept --steps 1 --as megatron;                        expect_status 2
    expect_error 'different run: --as: saved megatron,clip-added=1e-3, now megatron; --override continues anyway$'
    run train --resume kept --steps 1 --as orrery;                          expect_status 2
    expect_error '--as: saved megatron,clip-added=1e-3, now not given;'
    train $small --steps 1 --lr-steps 4 --save plain --json three.json;     expect_status 0
    grep -q '"as":.*"orrery"' three.json || complain "$(grep '"as"' three.json)"
    run train --resume plain --steps 1 --as torch;                          expect_status 2
    expect_error '--as: saved not given, now torch;'
}

# Overflows that are still allowed are part of a checkpoint: here every step overflows, and every second one counts.
test_overflows_left_are_kept() {
    local scaled='--dtype fp16 --as megatron,scale-start=1099511627776,scale-hysteresis=4'
    train $small --steps 4 --lr-steps 4 $scaled --save whole;               expect_status 0
    train $small --steps 2 --lr-steps 4 $scaled --save half;                expect_status 0
    run train --resume half --save again;                                   expect_status 0
    expect_same whole/training.json again/training.json
    grep -q '"loss_scale":.*"549755813888"' whole/training.json || complain "$(cat whole/training.json)"
}

test_an_overflow_at_the_least_scale_ends_a_run() {
    train $small --steps 4 --dtype fp16 --dp 2 --as deepspeed,scale-start=1099511627776,scale-least=1099511627776
    expect_status 1
    expect_error 'step 2: gradients overflow at loss scale 1.09951e\+12, the least that --as deepspeed,.* allows$'
}

# Devices under a profile, clipping and decay in force, are one device under it.
test_devices_follow() {
    local p
    local all='megatron'
    [ "${TIER:-test}" != verify ] || all='torch megatron deepspeed galore-torch'
    for p in $all; do
        train $small --steps 2 --dtype fp64 --dp 2 --zero 3 --check ref --as $p;    expect_status 0
    done
    train $small --steps 2 --dtype fp64 --dp 2 --optimizer momentum --weight-decay 0.1 --clip 0.5 --check ref --as torch
    expect_status 0
}

# Moments of 4096 numbers and more, here of embedding and MLPs, become codes, alike on all devices; other weights come of them.
test_moments_become_codes() {
    local galore="$small --optimizer galore --rank 32 --refresh 2 --steps 3"
    train $galore --dp 2 --check ref --as galore-torch,states=8-bit --json codes.json;  expect_status 0
    train $galore --as galore-torch --json numbers.json;                                expect_status 0
    grep '"loss"' codes.json >a; grep '"loss"' numbers.json >b
    ! cmp -s a b || complain "the losses are those without codes: $(head -3 a)"
    run train --as galore-torch,states=4-bit;                                           expect_status 2
    expect_error '--as: states 4-bit: .*8-bit'
}

# A golden file made with a profile means its steps, without being told again.
test_golden_files_have_their_profile() {
    [ "${TIER:-test}" = verify ] || return 0                # its bounds take some seconds
    make_text
    run golden make --out own.safetensors --model tiny --text "$text" --sequences 2 --tokens 5 --steps 2 --as galore-torch --eps 1e-3 --keep last
    expect_status 0
    run train --check own.safetensors --dtype fp64 --dp 2 --dump dump.safetensors
    expect_status 0
    run check own.safetensors dump.safetensors --dtype fp64;                expect_status 0
    run train --check own.safetensors --dtype fp64 --as torch;              expect_status 2
    expect_error 'the golden file says what is trained'
    sed 's/"as":"galore-torch"/"as":"galore-tonch"/' own.safetensors >odd.safetensors
    run train --check odd.safetensors --dtype fp64;                         expect_status 1
    expect_error 'odd.safetensors: its metadata has steps as galore-tonch; .orrery list profiles. has what there is$'
    run golden make --out other.safetensors --text "$text" --as torhc;      expect_status 2
    expect_error '--as torhc: .*did you mean torch'
    [ ! -e other.safetensors ] || complain "other.safetensors was written"
}

run_tests test_the_page_has_the_table test_a_run_keeps_its_profile test_overflows_left_are_kept test_an_overflow_at_the_least_scale_ends_a_run \
    test_devices_follow test_moments_become_codes test_golden_files_have_their_profile
