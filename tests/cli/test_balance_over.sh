# `--balance-over`: of which tokens a mixture's balance loss is, on pipelines; a plan says what a run with it counts; what is refused.
. "$(dirname "$0")/lib.sh"

small='--model mixtral-tiny --batch 8 --seq 8 --dtype fp64'

# Five axes, folded: experts over all devices of a stage, on schedules whose backward passes begin early; dropless, and with choices dropped.
test_folded() {
    local scope=(microbatch sequence) n=0 words
    for words in '--schedule interleaved --chunks 2 --micro 4' '--schedule dualpipev --pairs --micro 4' '--schedule zb-h1 --micro 4' '--schedule 1f1b --micro 4'; do
        [ $n -lt 2 ] || [ "$TIER" = verify ] || continue        # the others in test_mixture.c, without the program
        run train $small --tp 2 --dp 2 --pp 2 --ep 4 --tensor 1d-sp $words --balance-over ${scope[n++ % 2]} --steps 1 --check ref
        expect_status 0; expect_out '^OK: '
    done
    run train $small --dp 2 --pp 2 --schedule gpipe --micro 2 --balance-over batch --steps 1 --check ref;   expect_status 0; expect_out '^OK: '
}

# Routers judge what the microbatches of one optimizer step pass through, in one replica: of packed sequences with padding, uneven batches, every scope.
test_parts_of_a_batch() {
    local scope words n=-1
    seq 2000 >text; printf '%s\n' 17 5 30 2 >lengths
    for words in '--pp 4 --micro 3 --schedule skippipe --batch 7' '--dp 2 --pp 2 --micro 5 --schedule pipedream-2bw --update-every 2 --clip 0 --batch 11 --ep 2' \
                 '--dp 4 --data-parallel diloco --local-steps 2 --shard-group 2 --ep 2 --micro 2 --batch 9' '--dp 2 --tp 2 --ep 2 --data-parallel local-sgd --local-steps 2 --batch 5'; do
        for scope in microbatch sequence; do
            n=$((n + 1)); [ $((n / 2 % 2)) -eq $((n % 2)) ] || [ "$TIER" = verify ] || continue          # in `make test` each run in one of the two scopes
            ((n % 2)) && words+=' --as megatron'
            run train --model mixtral-tiny --data text --pack lengths --seq 32 --dtype fp64 --z-loss 0.1 $words --balance-over $scope --steps 2 --check ref
            expect_status 0; expect_out '^OK: '
            words=${words% --as megatron}
        done
    done
}

# In bf16 rounding decides between logits that are nearly equal: the one-device run takes the devices' choices, in each optimizer step and each replica.
test_near_choices() {
    local words
    for words in '--pp 4 --micro 4 --schedule skippipe --dp 2' '--pp 2 --micro 4 --schedule pipedream-2bw --clip 0' '--dp 4 --data-parallel local-sgd --local-steps 2'; do
        run train --model mixtral-tiny --batch 16 --seq 16 --dtype bf16 $words --steps 2 --check ref;    expect_status 0; expect_out '^OK: '
        [ "$TIER" = verify ] || break
    done
}

# To the byte and the picosecond.
test_planned() {
    local words n=0
    for words in '--schedule interleaved --chunks 2 --dispatch alltoall' '--schedule zb-v --chunks 2 --dispatch allgather' '--schedule dualpipev --pairs --dispatch two-step' \
                 '--schedule 1f1b --dispatch fssdp' '--schedule zb-h1 --dispatch alltoall-2dh' '--schedule gpipe --dispatch tutel --balance-over batch'; do
        case $words in *--balance-over*) ;; *) ((n++ % 2)) && words+=' --balance-over sequence' ;; esac
        [ "$TIER" = verify ] || [[ $words =~ zb-v|1f1b|gpipe ]] || continue
        run plan $small --dp 2 --pp 2 --ep 2 --micro 4 $words --json plan.json --quiet;         expect_status 0
        run train $small --dp 2 --pp 2 --ep 2 --micro 4 $words --load even --steps 1 --clip 0 --json run.json --quiet;   expect_status 0
        cmp -s <(planned plan.json) <(planned run.json) || complain "$words: $(diff <(planned plan.json) <(planned run.json) | head -n 6)"
    done
    for words in '--dp 2 --pp 4 --ep 2 --micro 4 --schedule skippipe' '--dp 2 --pp 2 --ep 2 --micro 4 --schedule pipedream-2bw --update-every 2 --dispatch two-step' \
                 '--dp 4 --ep 2 --data-parallel diloco --shard-group 2 --local-steps 1'; do
        run train $small $words --steps 1 --clip 0 --dry-run --json plan.json --quiet;           expect_status 0
        run train $small $words --load even --steps 1 --clip 0 --json run.json --quiet;          expect_status 0
        cmp -s <(planned plan.json) <(planned run.json) || complain "$words: $(diff <(planned plan.json) <(planned run.json) | head -n 6)"
    done
}

# Rows that skip a layer have choices in the file, too, which no device uses.
test_saved_load() {
    local words='--pp 4 --dp 2 --ep 2 --micro 4 --schedule skippipe'
    run train $small $words --steps 1 --clip 0 --save-load load.safetensors --json run.json --quiet;     expect_status 0
    run plan $small $words --load load.safetensors --json plan.json --quiet;                             expect_status 0
    cmp -s <(planned plan.json) <(planned run.json) || complain "$(diff <(planned plan.json) <(planned run.json) | head -n 6)"
}

# A run that goes on has the same loss: of the same tokens, and of as many microbatches.
test_resumed() {
    local other
    run train $small --pp 2 --micro 2 --steps 1 --balance-over sequence --save by-sequence;     expect_status 0
    run train --resume by-sequence --steps 1 --balance-over sequence;           expect_status 0
    run train --resume by-sequence --steps 1 --dp 2 --pp 1 --micro 4;           expect_status 0
    run train --resume by-sequence --steps 1 --balance-over microbatch;         expect_status 2
    expect_error 'a different run: --as: saved orrery,balance-over=sequence, now orrery,balance-over=microbatch; microbatches of balance losses: saved not given, now 1; --override'
    run train --resume by-sequence --steps 1 --balance-over microbatch --override;  expect_status 0
    run train $small --pp 2 --micro 2 --steps 1 --save usual;                   expect_status 0
    run train --resume usual --steps 1 --balance-over microbatch;               expect_status 0
    run train --resume usual --steps 1;                                         expect_status 0; expect_out '2 microbatches a copy'
    run train --resume usual --steps 1 --dp 2 --pp 1 --micro 1;                 expect_status 0
    for other in '--micro 4' '--dp 2 --micro 2'; do
        run train --resume usual --steps 1 $other;                              expect_status 2
        expect_error 'a different run: microbatches of balance losses: saved 2, now 4; --override continues anyway'
    done
}

test_refusals() {
    local schedule
    for schedule in 1f1b interleaved zb-h1 zb-v dualpipev; do
        run plan $small --pp 2 --micro 4 --schedule $schedule --balance-over batch;     expect_status 2
        expect_error "--schedule $schedule.* use --balance-over microbatch, or --schedule gpipe\$"
    done
    run train $small --balance-over x;                              expect_status 2; expect_error '--balance-over x: must be one of microbatch, sequence, batch'
    run train --model tiny --balance-over sequence;                 expect_status 2; expect_error '--balance-over sequence: is for mixtures with a balance loss; model tiny has none'
    run plan --model deepseek-v3-tiny --balance-over sequence;      expect_status 2; expect_error 'model deepseek-v3-tiny has none'
    run train $small --as megatron,balance-over=batch --balance-over sequence;  expect_status 2
    expect_error '--balance-over sequence: --as megatron,balance-over=batch says it already; give one of them'
    run train --check "$here/golden/mixtral-top2.safetensors" --balance-over batch;     expect_status 2
    expect_error 'the golden file says what is trained'
    run plan $small --dp 4 --ep 2 --data-parallel local-sgd;        expect_status 2
    expect_error '--ep 2: .* a replica of --data-parallel local-sgd has 1 in a stage; --shard-group 2 would do'
    run plan --model deepseek-v3-tiny --dp 2 --data-parallel diloco; expect_status 2; expect_error 'its copies train apart, .* which no outer step averages'
    run plan --model deepseek-v3-tiny --pp 2 --micro 4 --schedule pipedream-2bw;   expect_status 2; expect_error 'moves its biases after each optimizer step'
    run train --model mixtral-tiny --attention hdp --cp 2 --micro 2 --balance-over sequence;  expect_status 2; expect_error 'use --balance-over microbatch'
}

here=$(cd "$(dirname "$0")/../.." && pwd)
run_tests test_folded test_parts_of_a_batch test_near_choices test_planned test_saved_load test_resumed test_refusals
