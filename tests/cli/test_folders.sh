# Model folders as people download them: a plan of a released config.json alone, and one line where weights are another program's files.
. "$(dirname "$0")/lib.sh"

# A folder with nothing but the config.json of a release.
released() { mkdir -p "$1"; cp "$top/golden/configs/$2.json" "$1/config.json"; }

# Plans end with status 3: none of these models fits into a device of the toy cluster.
test_plans_need_shapes_alone() {
    local name says
    while IFS='|' read -r name says; do
        case ${TIER:-test}-$name in test-deepseek-v3 | test-kimi-*) continue ;; esac        # each takes seconds of a core
        released m "$name"
        run plan --model m --seq 16 --batch 1
        expect_status 3; expect_out "^model   $says parameters"; expect_out '^fits    NO: device 0'
    done <<'END'
deepseek-v3|deepseek_v3-L61-D7168: L=61 H=128 D=7168 F=2048 V=129280, 671\.0B
kimi-k2-instruct|deepseek_v3-L61-D7168: L=61 H=64 D=7168 F=2048 V=163840, 1\.03T
deepseek-v2-lite|deepseek_v2-L27-D2048: L=27 H=16 D=2048 F=1408 V=102400, 15\.7B
gpt-oss-20b|gpt_oss-L24-D2880: L=24 H=64 D=2880 F=2880 V=201088, 20\.9B
smollm2-1.7b-instruct|llama-L24-D2048: L=24 H=32 D=2048 F=8192 V=49152, 1\.71B
END
    released m llama-4-scout-17b-16e
    run plan --model m;                                     expect_status 1; expect_error '--model m/config.json: model_type is "llama4", which is not read: it sees images'
}

# A run needs the weights: they are codes, another program's files, or not there.
test_weights_of_others_have_one_line() {
    make_text
    local small='"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 32'
    mkdir codes pickles gguf
    echo "{$small, \"quantization_config\": {\"quant_method\": \"mxfp4\"}}" >codes/config.json; : >codes/model.safetensors
    run train --model codes --data "$text" --seq 8 --batch 1 --steps 1
    expect_status 1
    expect_error 'codes/config.json: quantization_config says that the weights are codes, of "mxfp4"; .*Mxfp4Config\(dequantize=True\)'
    run plan --model codes --seq 8 --batch 1;               expect_status 0
    echo "{$small, \"auto_map\": {\"AutoConfig\": \"a.B\"}}" >pickles/config.json
    : >pickles/pytorch_model.bin
    run train --model pickles --data "$text" --seq 8 --batch 1 --steps 1
    expect_status 1; expect_error "pickles: there is no model.safetensors; pytorch_model.bin is PyTorch's pickle; convert it: python3 -c 'from"
    run plan --model pickles --seq 8 --batch 1;             expect_status 0
    : >gguf/m.gguf
    run plan --model gguf;                                  expect_status 1; expect_error "gguf: there is no config.json; m.gguf is llama.cpp's format"
}

run_tests test_plans_need_shapes_alone test_weights_of_others_have_one_line
