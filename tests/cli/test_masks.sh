# `--mask`: DCP's masks on every attention scheme and number of devices, beside one device; what dcp leaves out; what a checkpoint says; what is refused.
. "$(dirname "$0")/lib.sh"

masks='lambda:2,5 shared-question:3,0.2 blockwise:4,1'
small='--model llama-tiny:L=2 --seq 37 --dtype fp64 --steps 1 --optimizer sgd --check ref'

# Lengths that no number of devices divides, of one sample, of long ones and of short ones.
lengths() { printf '37\n1\n19\n5\n11\n' >lengths; }

holds() { expect_status 0; expect_out '^OK: every activation'; expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas on every device$'; }

# dcp, with whole sequences and with packed samples, on 1 to 8 devices; here a fifth of them, in the tier verify all.
test_dcp() {
    local P mask n=0 scheme
    lengths; make_text
    for P in 1 2 3 4 5 6 8; do
        for mask in causal $masks; do
            n=$((n + 1)); [ $((n % 5)) = 0 ] || [ "$TIER" = verify ] || continue
            scheme="--cp $P --attention dcp"; [ $P -gt 1 ] || scheme=
            run train $small --data "$text" $scheme --batch 2 --mask $mask;                  holds
            run train $small --data "$text" $scheme --batch 3 --mask $mask --pack lengths;   holds
            [ "$mask" = causal ] || expect_out "^mask    $mask: tokens see [0-9.]+ % of the pairs of causal samples"
        done
    done
}

# Every other scheme, with one mask each; in the tier verify with all.
test_schemes() {
    local scheme mask n=0
    local -a of=($masks)
    lengths; make_text
    for scheme in ulysses ring-zigzag allgather-kv ring ring-striped ring-ptrr tokenring rsa usp loongtrain hdp zeppelin flexsp; do
        for mask in $masks; do
            n=$((n + 1)); [ "$mask" = "${of[$((n / 3 % 3))]}" ] || [ "$TIER" = verify ] || continue
            run train $small --data "$text" --cp $((2 + n % 3)) --attention $scheme --batch 3 --mask $mask --pack lengths;   holds
        done
    done
    run train $small --data "$text" --tp 2 --cp 2 --attention ring-zigzag --pp 2 --micro 2 --batch 4 --mask lambda:2,5;     holds
    run train --model deepseek-v2-tiny --data "$text" --seq 17 --dtype fp64 --steps 1 --cp 3 --attention dcp --batch 2 --mask blockwise:3,1 --check ref;   holds
    run train $small --data "$text" --dp 2 --cp 2 --attention dcp --recompute selective --dropout 0.1 --batch 4 --mask shared-question;                   holds
}

# The bytes that all devices send for attention, and the longest virtual time.
sent() { unfolded "$1" | awk '/^\t\t\t\t"attention":/ { on = 1 } on && /^\t\t\t\t\t"bytes":/ { gsub(/[^0-9]/, ""); all += $0; on = 0 } END { print all + 0 }'; }
virtual() { sed -n 's/^.*"virtual_ps":\t\([0-9]*\).*/\1/p' "$1" | sort -n | tail -n 1; }

# Empty blocks are neither sent nor computed: bytes and virtual time fall.  A ring sends all keys whatever the mask; a plan says what the run counts.
test_empty_blocks() {
    local scheme mask shape='--model llama-tiny --batch 1 --seq 1024 --dtype fp32 --optimizer sgd --cp 4'
    for scheme in dcp ring-zigzag; do
        for mask in causal lambda:8,64 shared-question blockwise:64,1; do
            run plan $shape --attention $scheme --mask $mask --json $scheme-$mask.json;       expect_status 0
            [ $mask = lambda:8,64 ] || [ "$TIER" = verify ] || continue
            run train $shape --attention $scheme --mask $mask --steps 1 --json run.json;                    expect_status 0
            planned run.json >of-the-run; planned $scheme-$mask.json >of-the-plan;            expect_same of-the-run of-the-plan
        done
    done
    # Conventions of utilization are of causal masks: here what was charged counts, and a rate cannot be exceeded.
    run plan $shape --attention dcp --mask lambda:8,64;     expect_status 0; expect_out ' [0-9]{1,2}\.[0-9] % of its rate \(operations charged'
    [[ $out != *MFU* ]] || complain 'it has the utilization of a causal mask'
    command='bytes of dcp'
    for mask in lambda:8,64 shared-question blockwise:64,1; do
        [ "$(sent dcp-$mask.json)" -lt "$(sent dcp-causal.json)" ] || complain "dcp sends $(sent dcp-$mask.json) bytes under $mask, causal $(sent dcp-causal.json)"
        [ "$(sent ring-zigzag-$mask.json)" = "$(sent ring-zigzag-causal.json)" ] || complain "the ring sends $(sent ring-zigzag-$mask.json) bytes under $mask"
        [ "$(virtual dcp-$mask.json)" -lt "$(virtual dcp-causal.json)" ] || complain "dcp takes as long under $mask"
    done
}

# The mask is part of a run: saved, resumed, compared, taken by infer, and refused where text is made.
test_of_a_run() {
    local shape='--seq 32 --mask lambda:2,6'
    train $shape --steps 2 --lr-steps 2 --json whole.json --save whole;     expect_status 0
    grep -q '"mask":	"lambda:2,6"' whole.json || complain 'the report does not say the mask'
    train $shape --steps 1 --lr-steps 2 --save half;                        expect_status 0
    run train --resume half --save again;                                   expect_status 0; expect_out '^mask    lambda:2,6: tokens see [0-9.]+ % of the pairs of causal sequences'
    for f in model.safetensors optimizer.safetensors; do expect_same whole/$f again/$f; done
    run train --resume half --mask causal;              expect_status 2; expect_error '--resume half: .*--mask: saved lambda:2,6, now not given'
    run train --resume half --mask lambda:2,7;          expect_status 2; expect_error '--mask: saved lambda:2,6, now lambda:2,7'
    run infer --model whole --data "$text" --dp 2 --steps 1 --check ref;    expect_status 0; expect_out '^mask    lambda:2,6'; expect_out '^OK: '
    run infer --model whole --data "$text" --mask causal --steps 1;         expect_status 0; expect_no_out '^mask '
    run sample --model whole --prompt 1;                expect_status 2; expect_error '--model whole: was trained with --mask lambda:2,6; text is made with causal attention alone'
    train $shape --steps 1 --sample 5;                  expect_status 2; expect_error '--sample 5: text is made with causal attention, but the model has --mask lambda:2,6'
    run train --mask lambda:2,6 --check "$top/golden/llama-grouped.safetensors"
    expect_status 2; expect_error 'the golden file says what is trained'
    train --seq 32 --mask causal --steps 1 --json plain.json; expect_status 0; ! results plain.json | grep -q '"mask"' || complain 'the report says a causal mask'
}

test_refusals() {
    local mask
    for mask in lambda:0,0 'would see no key' lamda 'did you mean lambda' causal:2 'causal has no numbers' lambda:1,x 'must be lambda:SINKS,WINDOW' \
                shared-question:0 'ANSWERS a whole number from 1' blockwise:0,1 'TOKENS a whole number from 1'; do
        if [[ $mask == *:* || $mask == lamda ]]; then run train --mask "$mask" --steps 1; expect_status 2; else expect_error "--mask .*$mask"; fi
    done
    run train --model mistral-tiny --mask lambda:2,3;               expect_status 2; expect_error '--mask lambda:2,3: says what tokens see, and so do the windows of --model mistral-tiny'
    run train --model parscale-tiny --mask blockwise:4,1;           expect_status 2; expect_error '--mask blockwise:4,1: tokens see parts of a sequence'
    expect_nothing
}

run_tests test_dcp test_schemes test_empty_blocks test_of_a_run test_refusals
