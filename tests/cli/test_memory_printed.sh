# `orrery plan --memory-of` beside peaks that programs have printed.  No constant of a profile is fitted on them.
. "$(dirname "$0")/lib.sh"

# A number of the object "memory_of": the first with this name.
of() { sed -n '/"memory_of"/,$p' plan.json | grep -m1 "\"$1\":" | tr -dc 0-9; }

# near PERCENT PRINTED-IN-MIB: of the reserved bytes.
near() {
    local mib=$(($(of reserved) >> 20))
    [ $((mib * 100)) -ge $(($2 * (100 - $1))) ] && [ $((mib * 100)) -le $(($2 * (100 + $1))) ] || complain "reserved $mib MiB, printed $2"
}

printed='plan --dtype bf16 --cluster h100-infiniband --quiet --json plan.json --memory 0'

# pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 to 6: "Memory(GiB)", here in MiB.
test_torchtitan() {
    local words mib
    while read -r mib words; do
        run $printed --data-parallel fsdp $words --memory-of torch; expect_status 0; near 15 "$mib"
    done <<'END'
78848 --model llama3-8b --dp 8 --batch 16 --seq 8192 --recompute selective
63488 --model llama3-8b --dp 128 --batch 256 --seq 8192 --recompute selective
85914 --model llama3-8b --dp 8 --batch 8 --seq 32768 --recompute full
73626 --model llama3-70b --dp 32 --tp 8 --tensor 1d-sp --batch 512 --seq 8192 --recompute full
84480 --model llama3-405b --dp 8 --tp 8 --pp 8 --tensor 1d-sp --batch 256 --micro 8 --seq 8192 --recompute full
74445 --model llama3-405b --dp 8 --tp 8 --pp 8 --tensor 1d-sp --batch 256 --micro 8 --schedule interleaved --chunks 2 --seq 8192 --recompute full
77107 --model llama3-405b --dp 8 --tp 8 --pp 8 --tensor 1d-sp --batch 64 --micro 8 --seq 32768 --recompute full
END
}

# nanotron/old_bench on Hugging Face, llama-1B, log_metrics.csv of 2024-07: "peak_reserved_MiB" of rank 0.  The model and the settings are those of
# huggingface/bench_cluster (create_configs.py, template/base_config.py): 4096 tokens, 1024 sequences a step, gathered rows saved, zero 1; the vocabulary
# of GPT-2, which nanotron pads to a multiple of tp.  nanotron cuts a pipeline by costs: of 24 layers its first stage has 7 with pp 4, 14 with pp 2, and 2
# with pp 16; here every stage has as many.
test_nanotron() {
    local words mib vocabulary layers
    while read -r mib vocabulary layers words; do
        case $words in *'--pp 16'*) [ "$TIER" = verify ] || continue ;; esac
        mkdir -p model
        printf '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":2048,"intermediate_size":4096,"num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":4096,"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":true,"hidden_act":"silu","initializer_range":0.02,"bos_token_id":1,"eos_token_id":2,"vocab_size":%d,"num_hidden_layers":%d}' "$vocabulary" "$layers" >model/config.json
        run $printed --model model --data-parallel zero1 --seq 4096 --batch 1024 $words --memory-of nanotron; expect_status 0; near 5 "$mib"
    done <<'END'
27568 50257 24 --dp 16 --micro 32
44042 50257 24 --dp 16 --micro 16
60780 50264 24 --tp 8 --tensor 1d-sp-keep --micro 32
47498 50260 28 --tp 4 --pp 4 --tensor 1d-sp-keep --micro 64
31874 50264 28 --tp 8 --pp 2 --tensor 1d-sp-keep --micro 64
43028 50257 32 --pp 16 --micro 256
23444 50257 32 --pp 16 --micro 512
END
}

run_tests test_torchtitan test_nanotron
