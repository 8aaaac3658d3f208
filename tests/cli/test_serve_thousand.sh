# A thousand requests on meshes and models, with a small cache, cut prompts, shared prefixes and preemptions: each of their
# tokens has the bits of the request alone on one device, and a block is never lost.
# tier: verify
. "$(dirname "$0")/lib.sh"

thousand() {
    run serve "$@" --draw lmsys --scale 0.04 --shared-prefix 5 --rate 100000 --requests 1000 --block 4 --cache-blocks 30 \
        --step-tokens 48 --chunk 11 --arithmetic exact --check ref
    expect_status 0; expect_silent
    expect_out '^check   OK: 7481 of 7481 tokens'; expect_out '[1-9][0-9]* preemptions$'
}

test_llama() { thousand --model llama-tiny --tp 2 --pp 2; thousand --model llama-tiny --tp 2 --dp 2; }
test_mixtures() { thousand --model mixtral-tiny; thousand --model mixtral-tiny --tp 2 --dp 2; thousand --model deepseek-v3-tiny --dp 3; }
test_windows() { thousand --model gemma2-tiny --pp 2 --dp 2; thousand --model gemma2-tiny --tp 4; }

test_shared_work() {
    thousand --model llama-tiny --cp 2 --tp 2; thousand --model mixtral-tiny --dp 4 --ep 4 --host-blocks 20
    thousand --model gemma2-tiny --dp 3 --prompt-replicas 1; thousand --model deepseek-v3-tiny --cp 2 --host-blocks 9
}

run_tests test_shared_work test_llama test_mixtures test_windows
