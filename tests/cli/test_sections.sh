# `--plan FILE`: runs of layers with devices, a mesh and schemes each, beside one device; the same bits as one device; what a folder keeps; what is refused.
. "$(dirname "$0")/lib.sh"

model='--model llama-tiny:L=4 --batch 12 --micro 2'
equal() { expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas on every device$'; expect_out '^memory  counted peaks of weights, gradients, optimizer and activations equal the formulas on every device$'; }
holds() { expect_status 0; expect_out '^OK: every activation'; equal; }

# Seven devices: three with parts of a layer, two copies, two with parts of sequences and then of a layer.
seven() {
    cat >seven.yaml <<'END'
sections:
  - layers: 0
    devices: 0-2
    tp: 3
    tensor: 1d-sp
    zero: 1
  - layers: 1
    devices: 3-4
    dp: 2
    zero: 3
  - layers: 2
    devices: 5-6
    cp: 2
    attention: ulysses
  - layers: 3
    devices: 5-6
    tp: 2
    recompute: full
END
}

test_beside_one_device() {
    seven; make_text
    run train $model --data "$text" --plan seven.yaml --steps 2 --check ref;    holds
    expect_out '^mesh    3 stages, 7 devices'
    expect_out '^stage   0: layer 0 on devices 0-2: tp 3, zero1, 1d-sp$'
    expect_out '^stage   2: layer 3 on devices 5-6: tp 2, ddp, 1d, recompute full$'
    run train $model --data "$text" --plan seven.yaml --steps 2 --check ref --dtype bf16 --schedule zb-h1;    holds
}

# The embedding that is also the output matrix, in two sections with other shards.
test_tied() {
    seven; make_text
    run train --model tiny:L=4 --batch 12 --micro 2 --data "$text" --plan seven.yaml --steps 2 --check ref --paranoid;    holds
}

# Dense attention by parts, experts over devices; both sections of a mixture.
test_mixture() {
    make_text
    printf 'sections:\n  - { layers: 0-1, devices: 0-2, tp: 3, recompute: full }\n  - { layers: 2-3, devices: 3-6, dp: 4, ep: 2, etp: 2 }\n' >plan.yaml
    run train --model mixtral-tiny:L=4 --batch 12 --micro 2 --data "$text" --plan plan.yaml --balance-over sequence --as megatron --steps 2 --check ref;    holds
    expect_out '^stage   1: layers 2-3 on devices 3-6: dp 4, ddp, ep 2, etp 2, alltoall$'
    run plan --model mixtral-tiny:L=4 --batch 12 --plan plan.yaml --as megatron --balance-over microbatch;    expect_status 2;    expect_error 'dp is 1 in layers 0-1 and 4 in layers 2-3'
}

# One balance loss of all layers, whose sums go from section to section; routers with biases that move.
test_routers() {
    make_text
    printf 'sections:\n  - { layers: 0-1, devices: 0-3, tp: 2, cp: 2 }\n  - { layers: 2, devices: 4-5, cp: 2 }\n  - { layers: 3, devices: 4-5, tp: 2, tensor: 1d-sp, etp: 2 }\n' >plan.yaml
    run train --model mixtral-tiny:L=4 --batch 12 --micro 2 --data "$text" --plan plan.yaml --steps 2 --check ref;    holds
    run train --model mixtral-tiny:L=4 --batch 12 --micro 2 --data "$text" --plan plan.yaml --steps 2 --check ref --schedule gpipe --balance-over batch;    holds
    printf 'sections:\n  - { layers: 0-1, devices: 0-2, tp: 3 }\n  - { layers: 2-3, devices: 3-6, dp: 4, ep: 2, etp: 2 }\n' >plan.yaml
    run train --model deepseek-v3-tiny:L=4 --batch 12 --micro 2 --data "$text" --plan plan.yaml --steps 2 --check ref --dtype fp64;    holds
}

# With exact sums the strategy of a layer changes no bit.
test_bits() {
    local bits
    seven; make_text
    run train $model --data "$text" --steps 2 --arithmetic exact;    expect_status 0
    bits=$(grep -oE 'fingerprint [0-9a-f]{16}' <<<"$out")
    run train $model --data "$text" --plan seven.yaml --steps 2 --arithmetic exact;    expect_status 0
    expect_out "$bits, on every layout"
    printf 'orrery batches 1\n2 1\n5 3\n' >uneven
    run train --model llama-tiny:L=4 --data "$text" --batches uneven --steps 2 --arithmetic exact;    expect_status 0
    bits=$(grep -oE 'fingerprint [0-9a-f]{16}' <<<"$out")
    run train --model llama-tiny:L=4 --data "$text" --batches uneven --plan seven.yaml --steps 2 --arithmetic exact --check ref;    expect_status 0
    expect_out "$bits, on every layout";    expect_out '^OK: every activation'
    # A sum beyond the bits is named, in whichever section.
    run train --arithmetic exact --model tiny:L=4 --seq 20 --batch 12 --micro 2 --plan seven.yaml --steps 3 --warmup 0 --lr 1e6;    expect_status 3
    expect_error 'step 2: h.0.attn.qkv: an exact sum is beyond the bits there are .*, so the loss is nan'
    sed -i /recompute/d seven.yaml
    run train --arithmetic exact --model tiny:L=4 --seq 20 --batch 12 --plan seven.yaml --steps 2 --optimizer mezo --clip 0 --mezo-eps 1e6;    expect_status 3
    expect_error 'step 1: h.0.attn.qkv: an exact sum is beyond the bits there are'
}

# What was saved by sections is read by one device, and the other way; also the biases of routers.
test_saved() {
    seven; make_text
    printf 'sections:\n  - { layers: 0-1, devices: 0-2, tp: 3 }\n  - { layers: 2-3, devices: 3-4, ep: 2 }\n' >biased.yaml
    run train --model deepseek-v3-tiny:L=4 --batch 12 --micro 2 --data "$text" --plan biased.yaml --steps 2 --save biased;    expect_status 0
    run train --resume biased --data "$text" --steps 1 --check ref;    expect_status 0;    expect_out '^OK: every activation'
    run train $model --data "$text" --plan seven.yaml --steps 2 --save one;    expect_status 0
    run train --resume one --data "$text" --steps 1 --check ref;    expect_status 0;    expect_out '^OK: every activation'
    run train $model --data "$text" --steps 2 --save two;    expect_status 0
    run train --resume two --data "$text" --plan seven.yaml --steps 1 --check ref;    holds
}

# A plan says what a run counts.
test_planned() {
    local time
    seven; make_text
    run plan $model --plan seven.yaml;    expect_status 0
    time=$(grep -oE '^virtual .* a step' <<<"$out")
    run train $model --data "$text" --plan seven.yaml --steps 1 --backend count;    expect_status 0;    equal
    expect_out "^$time"
    run show plan $model --plan seven.yaml --svg plan.svg;    expect_status 0
    expect_out '^ +5  cp=0, tp=0  2, 3, loss '
    [ -s plan.svg ] || complain 'there is no picture'
    run show data $model --plan seven.yaml --page data.html;    expect_status 0;    expect_out '^layer 0 on devices 0-2: tp 3, zero1, 1d-sp$'
    run show memory $model --plan seven.yaml;    expect_status 0;    expect_out '^what device 5, the fullest of 7'
    expect_out '^  backward  layer 3 '
}

# Copies share a microbatch's sequences as the file says, or by the speeds of devices in their places.
test_rows() {
    make_text
    printf 'sections:\n  - { layers: 0-1, devices: 0-1, rows: 2:1, zero: 2 }\n  - { layers: 2-3, devices: 2-4 }\n' >plan.yaml
    run train $model --data "$text" --plan plan.yaml --steps 2 --check ref;    holds
    expect_out '^stage   0: layers 0-1 on devices 0-1: dp 2, zero2, rows 2:1$'
    run show plan $model --plan plan.yaml;    expect_out '^ +0  dp=0 .* 0-3, 6-9 '
    printf 'sections:\n  - { layers: 0-3, devices: 0-3, rows: proportional }\n' >plan.yaml
    run plan $model --plan plan.yaml --cluster two-generations;    expect_out 'dp 4, ddp, rows 100:100:50:50$'
    run plan $model --plan plan.yaml --cluster two-generations --slots 0,2,1,3;    expect_out 'dp 4, ddp, rows 100:50:100:50$'
    refused '  - { layers: 0-3, devices: 0-2, rows: 2:1 }\n' 1 'rows: 2:1: must be proportional, or a number for each copy along dp such as 2:1'
    refused '  - { layers: 0-3, devices: 0-1, rows: 0:0 }\n' 1 'rows: 0:0: must be proportional'
    refused '  - { layers: 0-3, devices: 0-1, rows: "2:" }\n' 1 'rows: 2:: must be proportional'
    run plan --model mixtral-tiny:L=4 --batch 12 --plan plan.yaml;    expect_status 2;    expect_error 'rows of layers 0-3 are in proportions'
}

# Slow tiers, codes, parallel streams and low rank, each section by itself.
test_storage() {
    make_text
    printf 'sections:\n  - { layers: 0-3, devices: 0-3, dp: 2, cp: 2, zero: 3 }\n  - { layers: 4, devices: 4-5, dp: 2, zero: 3 }\n' >plan.yaml
    local deep='--model llama-tiny:L=5 --batch 12 --micro 2 --steps 2 --check ref'
    run train $deep --data "$text" --plan plan.yaml --offload optimizer,gradients,weights;    expect_status 0
    expect_out '^OK: every activation';    expect_out 'and those of the slow tier, equal the formulas'
    run train $deep --data "$text" --plan plan.yaml --offload activations --offload-to .;    expect_out 'and those of the slow tier, equal the formulas'
    run train $deep --data "$text" --plan plan.yaml --quantize-weights int8 --quantize-gradients int4;    expect_out '^OK: .* quantised alike'
    printf 'sections:\n  - { layers: 0-1, devices: 0-3, dp: 2, cp: 2 }\n  - { layers: 2-3, devices: 4-5, tp: 2 }\n' >plan.yaml
    printf 'sections:\n  - { layers: 0-1, devices: 0-3, dp: 2, cp: 2 }\n  - { layers: 2-3, devices: 4-5 }\n' >plain.yaml
    run train --model parscale-tiny:L=4 --batch 12 --data "$text" --plan plan.yaml --steps 2 --check ref;    holds
    run train $model --data "$text" --plan plain.yaml --steps 2 --check ref --optimizer galore;    holds
    run plan --model tiny:L=4 --batch 12 --plan plain.yaml --optimizer galore;    expect_status 2;    expect_error 'layers 0-1 and layers 2-3 have the same embedding, cut in other ways; use --untied'
}

# A golden file is reached by sections, and the folder of their dump is judged.
test_golden() {
    printf 'sections:\n  - { layers: 0, devices: 0-2, tp: 3 }\n  - { layers: 1, devices: 3-4 }\n  - { layers: 2, devices: 3-4, cp: 2 }\n' >three.yaml
    run train --check "$top/golden/llama-grouped.safetensors" --plan three.yaml --dump dump/;    expect_status 0
    expect_out '^OK: every activation'
    run check "$top/golden/llama-grouped.safetensors" dump;    expect_status 0;    expect_out '^OK: '
    printf 'sections:\n  - { layers: 0, devices: 0 }\n  - { layers: 1, devices: 1-2, dp: 2 }\n' >two.yaml
    run train --check "$top/golden/deepseekv3-moved.safetensors" --plan two.yaml;    expect_status 0;    expect_out '^OK: every activation'
}

refused() { printf 'sections:\n%b' "$1" >bad.yaml; run plan $model --plan bad.yaml; expect_status "$2"; expect_error "$3"; }
wrong()   { printf '%b' "$1" >bad.yaml;            run plan $model --plan bad.yaml; expect_status 1; expect_error "$2"; }

test_refused() {
    local rest='  - { layers: 1-3, devices: 1 }\n'
    refused "$rest" 2 'layers 1-3: layer 0 before has no devices'
    refused '  - { layers: 0-2, devices: 0 }\n' 2 'layer 3: has no devices; the sections end before it'
    refused "  - { layers: 0-1, devices: 0 }\n$rest" 2 'layers 1-3: layer 1 has devices already'
    refused '  - { layers: 0-4, devices: 0 }\n' 2 'layers 0-4: model llama-tiny:L=4 has layers 0 to 3'
    refused '  - { layers: 0, devices: 0 }\n  - { layers: 1-3, devices: 2 }\n' 2 'layers 1-3: device 1 before has no layers'
    refused '  - { layers: 0, devices: 0 }\n  - { layers: 1, devices: 1 }\n  - { layers: 2-3, devices: 0 }\n' 2 'layers 2-3: device 0 has layers of an earlier stage'
    refused "  - { layers: 0, devices: 0, tp: 3 }\n$rest" 1 'dp x cp x tp is 3, but the section has 1 devices'
    refused "  - { layers: 0, devices: 0, pp: 2 }\n$rest" 1 'pp: a section has no such key'
    refused "  - { layers: 0, devices: 0, tensr: 1d }\n$rest" 1 'tensr: a section has no such key; did you mean tensor'
    refused "  - { layers: 0, devices: 0, zero: 4 }\n$rest" 1 'zero: 4: must be a stage from 0 to 3'
    refused "  - { layers: 0, devices: 0, zero: 1, data-parallel: ddp }\n$rest" 1 'zero and data-parallel: one of them'
    refused "  - { layers: 3-1, devices: 0 }\n$rest" 1 'layers: 3-1: must be a number, or the first and the last'
    refused "  - { devices: 0 }\n$rest" 1 'the section does not say its layers'
    refused "  - { layers: 0, devices: 0, tensor: 4d }\n$rest" 2 'layer 0: .*4d'
    refused "  - { layers: 0, devices: 0, data-parallel: diloco }\n$rest" 2 'layer 0: --plan with sections: replicas of .* have all layers'
    wrong 'layers: 3\n' 'must have one key, sections'
    wrong '' 'must have one key, sections'
    wrong 'sections: [' 'bad.yaml'
    run plan $model --plan none.yaml;    expect_status 1;    expect_error 'none.yaml'
    seven
    run plan $model --plan seven.yaml --dp 2;    expect_status 2;    expect_error '--dp: the sections of --plan seven.yaml have devices of their own$'
    run plan $model --plan seven.yaml --schedule interleaved --chunks 2;    expect_status 2;    expect_error 'sections are on one stage each'
    run plan --model llama-tiny:L=4 --batch 400000 --micro 20000 --plan seven.yaml;    expect_status 2;    expect_error '--micro 20000: with 4 sections at most 8192'
}

# Without gradients: forward passes alone, and both losses of mezo.
test_without_gradients() {
    local words='--model llama-tiny:L=4 --batch 12 --micro 2 --dtype fp64 --plan seven.yaml'
    make_text; sed 's/^ *recompute:.*//' <<<"$(seven; cat seven.yaml)" >plain.yaml; mv plain.yaml seven.yaml
    run infer $words --data "$text" --steps 1 --check ref; expect_status 0; expect_out '^OK: every activation and loss'
    run train $words --data "$text" --steps 2 --optimizer mezo --clip 0 --check ref; expect_status 0; expect_out '^OK: both losses, the slope and every weight'
    expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas on every device$'
    expect_out '^memory  counted peaks of weights, gradients, optimizer and activations equal the formulas on every device$'
    run train $words --data "$text" --optimizer mezo --clip 0 --perturb 2; expect_status 2; expect_error '--perturb 2: half of the copies make each pass; sections have other numbers'
}

# Encoders feed the first section, from all devices or from some; what they hold and send equals the formulas.
test_clips() {
    local words='--model llama-tiny:L=4 --batch 12 --micro 2 --seq 24 --modalities 2 --steps 2'
    seven; make_text
    run train $words --data "$text" --plan seven.yaml --check ref;    holds
    run train $words --data "$text" --plan seven.yaml --encoders apart --bridge-chunks 3 --zero 3 --schedule zb-h1 --check ref;    holds
    printf 'sections:\n  - { layers: 0-1, devices: 0-3, tp: 4, tensor: 2d }\n  - { layers: 2-3, devices: 4 }\n' >columns.yaml
    run plan $words --plan columns.yaml;    expect_status 2;    expect_error '--tensor 2d cuts rows of the stream; encoders need whole rows'
}

# Microbatches of other sizes in each step, also without a sequence; each section cuts them over its own copies.
test_batches() {
    seven; make_text
    printf 'orrery batches 1\n2 1\n5 3\n0 4\n' >uneven
    run train --model llama-tiny:L=4 --data "$text" --plan seven.yaml --batches uneven --steps 4 --check ref;    holds
    printf 'sections:\n  - { layers: 0-3, devices: 0-3, dp: 2, cp: 2, zero: 3 }\n  - { layers: 4, devices: 4-5, dp: 2 }\n' >deep.yaml
    run train --model llama-tiny:L=5 --data "$text" --plan deep.yaml --batches uneven --steps 3 --offload activations;    expect_status 0
    expect_out 'and those of the slow tier, equal the formulas'
    printf 'orrery batches 1\n2 1 | 3 1\n' >copies
    run plan --model llama-tiny:L=4 --plan seven.yaml --batches copies;    expect_status 2;    expect_error '--batches: its steps have 2 copies; with --plan they have one'
}

# Sections whose schemes plan where tokens are, or adapt to what routers choose, box anew in each step.
test_planned_by_data() {
    local scheme
    make_text
    for scheme in hdp flexsp; do
        printf 'sections:\n  - { layers: 0-1, devices: 0-1, attention: %s, cp: 2 }\n  - { layers: 2-3, devices: 2-4, attention: %s, cp: 3 }\n' $scheme $scheme >plan.yaml
        run train $model --data "$text" --pack lognormal:20,1 --plan plan.yaml --steps 2 --check ref;    expect_status 0;    expect_out '^OK: every activation'
    done
    run plan $model --pack lognormal:20,1 --plan plan.yaml --micro-tokens 100;    expect_status 2;    expect_error 'chooses microbatches, and not with --batches, --plan'
    for scheme in tutel fssdp speculative; do
        printf 'sections:\n  - { layers: 0-1, devices: 0-3, tp: 2, ep: 2, dispatch: %s }\n  - { layers: 2-3, devices: 4-5, ep: 2, dispatch: %s }\n' $scheme $scheme >plan.yaml
        run train --model mixtral-tiny:L=4 --batch 12 --micro 2 --data "$text" --plan plan.yaml --balance-over sequence --steps 3 --check ref;    holds
    done
}

# Equal devices of each stage run once, and say what all of them do.
test_folded() {
    local words='--model llama-tiny:L=4 --batch 16 --micro 2 --untied --cluster textbook --plan even.yaml'
    printf 'sections:\n  - { layers: 0-1, devices: 0-7, dp: 8, zero: 1 }\n  - { layers: 2-3, devices: 8-11, dp: 4, zero: 2 }\n' >even.yaml
    run plan $words --json folded.json; expect_status 0; expect_silent
    expect_out '^folded  4 equal parts of each stage: 3 of 12 devices ran$'; expect_out '^ +0-7 +stage 0 '; expect_out '^ +8-11 +stage 1 '
    run plan $words --unfolded --json whole.json; expect_status 0; expect_out '^folded  nothing: 12 of 12 devices ran'
    [ "$(grep virtual_step_ps folded.json)" = "$(grep virtual_step_ps whole.json)" ] || complain "folded $(grep virtual_step_ps folded.json), whole $(grep virtual_step_ps whole.json)"
    run plan ${words/--batch 16/--batch 18}; expect_status 0; expect_out 'copies have different numbers of sequences'
}

run_tests test_without_gradients test_clips test_batches test_planned_by_data test_folded test_beside_one_device test_tied test_mixture test_routers test_bits test_saved test_planned test_rows test_storage test_golden test_refused
