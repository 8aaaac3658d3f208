# Files that `orrery plan --from` refuses in one line: keys that contradict each other, keys that nobody knows, damaged texts, and scripts that do
# more than words can say.  Nothing of a file is executed.
# tier: check
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/from.sh"

test_contradictions() {
    gpt3
    sed 's/NUM_NODES=16/NUM_NODES=1/' gpt3.sh >few.sh
    refused 'few.sh: nproc_per_node x nnodes = 8 devices cannot be divided by --tensor.* = 128' --from few.sh
    sed 's/global-batch-size 32/global-batch-size 31/; s/micro-batch-size 1/micro-batch-size 2/' gpt3.sh >odd.sh
    refused 'odd.sh: --global-batch-size: a batch of 31 cannot be divided by --micro-batch-size 2' --from odd.sh
    sed 's/pretrain_gpt/pretrain_bert/' gpt3.sh >bert.sh;           refused 'line 35: launcher.program pretrain_bert.py: trains another model' --from bert.sh
    sed 's/--fp16/--swiglu --num-experts 8 --sequence-parallel --expert-model-parallel-size 8/' gpt3.sh >ep.sh
    refused 'expert-model-parallel-size 8: times --expert-tensor-parallel-size 8 does not divide the 8 devices' --from ep.sh
    sed 's/--fp16/--fp16 --bf16/' gpt3.sh >both.sh;                 refused 'both.sh: line 35: --fp16: and --bf16: give one' --from both.sh
    sed 's/--fp16/--overlap-param-gather/' gpt3.sh >gather.sh;      refused 'overlap-param-gather: needs --use-distributed-opt' --from gather.sh
    sed 's/--fp16/--use-distributed-optimizer --overlap-param-gather/' gpt3.sh >late.sh; refused 'overlap-param-gather: needs --overlap-grad-reduce' --from late.sh
    sed 's/--fp16/--recompute-granularity full/' gpt3.sh >full.sh;  refused 'recompute-granularity full: needs --recompute-method' --from full.sh
    sed 's/--fp16/--hidden-sise 4/' gpt3.sh >mistyped.sh;           refused 'hidden-sise 4: is no key that is known .*did you mean --hidden-size' --from mistyped.sh
    sed 's/12288/$WIDTH/' gpt3.sh >unset.sh;                        refused 'hidden-size \$WIDTH: must be a whole number' --from unset.sh
    printf '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 1}' >p.json
    refused 'offload_param.device cpu: needs zero_optimization.stage 3, which is 2' --from p.json --model tiny --dp 2
    printf '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}' >b.json
    refused 'train_batch_size 30: cannot be divided by train_micro_batch_size_per_gpu 4 times gradient_accumulation_steps 2' --from b.json --model tiny
    titan 8B 8 1 false '"sometimes"' false >mode.toml;              refused 'line 3[0-9]: activation_checkpoint.mode sometimes: must be' --from mode.toml --dp 1
    printf '%s\n' '[model]' 'name = "deepseek_v3"' 'flavor = "671B"' '[parallelism]' 'expert_parallel_degree = 16' >ep.toml
    refused 'line 5: parallelism.expert_parallel_degree 16: times .* does not divide the 8 devices' --from ep.toml --dp 8
    refused '--config gives words, too' --from gpt3.sh --config gpt3.sh
    run train --from gpt3.sh; expect_status 2; expect_error '--from is not a flag of train'
}

# Nothing is executed, and what is no text of words is refused by line.
test_hostile() {
    local lines malformed toml
    malformed() { local pattern=$1; shift; run plan "$@"; expect_status 1; expect_error "$pattern"; [ -z "$out" ] || complain 'it says more than why'; }
    lines() { printf "$1" >h; malformed "$2" --from "megatron:h"; }
    lines 'A=1\ntouch made; torchrun a.py' 'h: line 2: touch: a script is read, not run'
    lines 'X=$(touch made)\nY=`touch made`\neval $X' 'h: line 3: eval: a script is read'
    lines 'A="--num-layers 2\n\n' 'h: line 1: a quote is not closed: "'
    lines 'A=(--x 2\n\n' 'h: line 1: an array is not closed'
    lines 'for i in 1 2; do torchrun a.py; done' 'h: line 1: for: a script is read'
    lines 'if [ -n "$A" ]; then\npython a.py' 'h: line 2: an if has no fi'
    lines 'python a.py --x ${A^^}' 'h: line 1: .*are expanded'
    lines 'f() { echo; }' 'line 1: a sign \('
    lines 'cat <<EOF > x\nEOF' 'line 1: a text of the script itself'
    lines 'python a.py\n\npython b.py' 'line 3: a second program is started; the first was in line 1'
    lines 'echo hello' 'h: starts no Python program'
    { echo X=aaaaaaaaaaaaaaaa; for _ in 1 2 3 4 5 6 7 8 9; do echo 'X=$X$X$X$X'; done; echo 'python a.py $X'; } >h
    malformed 'h: line 7: the words expand to too many bytes' --from megatron:h
    lines '\000\000' 'h: has a byte 0'
    printf -- '--num-layers 99999999999999999999 --hidden-size 64 --num-attention-heads 8 --seq-length 64' >h
    refused 'num-layers 99999999999999999999: must be a whole number from 1 to 1024' --from h --dp 1
    [ ! -e made ] || complain 'a command of the script has run'
    toml() { printf "$1" >h.toml; malformed "$2" --from torchtitan:h.toml --dp 1; }
    toml '[model]\nname = "llama3\n' 'h.toml: line 2: a quote is not closed on its line'
    toml '[model]\nname = """x"""\n' 'line 2: a text of several lines'
    toml '[[model]]\n' 'line 1: a list of tables is not read'
    toml '[model]\nname = {a = 1}\n' 'line 2: a table inside a line'
    toml '[model]\na.b = 1\n' 'line 2: a key with dots'
    toml '[model]\nx = 1979-05-27\n' 'line 2: a value must be'
    toml '[model]\nx = [[[[[[1]]]]]]\n' 'line 2: lists are nested too deeply'
    toml '[model]\nname = "a"\nname = "b"\n' 'line 3: name stands there twice'
    toml '[model]\nname = "a"\n[job]\n[model]\nflavor = "b"\n' 'line 4: a table stands there twice'
    printf '[model]\nnome = "a"\n' >h.toml; refused 'line 2: model.nome a: is no key .*did you mean model.name' --from h.toml --dp 1
    printf '{"a":%.0s' $(seq 50) >h.json; malformed 'h.json' --from deepspeed:h.json
    printf '{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":1}}}}}}}}}' >h.json; malformed 'nested too deeply' --from deepspeed:h.json --model tiny
    printf 'hello\n' >h; malformed 'h: looks like no configuration of deepspeed, torchtitan, accelerate' --from h
    malformed 'no-such-file' --from no-such-file
    refused '--from: needs a file|--from: .*value' --from
    mkdir folder; malformed 'folder' --from folder
}

# Words of a branch that does not run are not there; a key that stands twice has its last value, as argparse takes it.
test_branches() {
    printf '%s\n' 'T=4' 'if [[ "$T" -gt 2 ]] && [ "$U" = "" ]; then' 'A="--tensor-model-parallel-size $T"' 'else' 'A="--else-was-read 1"' 'fi' \
        'S=(--num-layers 8 --hidden-size $((16*4)) --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64)' \
        'python -m torch.distributed.run --nproc_per_node=8 a.py $A ${S[@]} --micro-batch-size 1 --micro-batch-size=2 --vocab-size 256' >b.sh
    run plan --from b.sh --memory 0
    [ "$status" = 0 ] || complain '--else was read, or something else is wrong'
    expect_out '^mesh    dp=2 x tp=4, 8 devices'
    expect_out '^batch   4 sequences of 64 tokens, 1 microbatch a copy'
    expect_out 'U is not set'; expect_out '^  launcher.program a.py +it trains a causal decoder'
}

# A preset with other sizes: what follows the colon.
test_sizes() {
    # Heads that are not given: K stays 8, which 4 query heads cannot share.
    refused 'H=4 heads are not a multiple of K=8' --model llama3-8b:L=2,D=64,H=4,F=96,V=256
    run plan --model llama3-8b:L=2,D=64,H=16,F=96,V=256 --memory 0; expect_status 0
    # 2 V D, and in each of 2 layers D (D + 2 8 4 + D) + 3 D F of matrices and 2 D of norms; D of the last norm.
    expect_out 'L=2 H=16 D=64 F=96 V=256, 94.5K parameters'
    refused 'gpt2:E=4: E and k are of mixtures' --model gpt2:E=4
    refused 'gpt2:L=2,L=3: a letter stands there twice' --model gpt2:L=2,L=3
    refused 'gpt2:L=0: a size must be a whole number' --model gpt2:L=0
    refused 'gpt2:L=2,: the last comma' --model gpt2:L=2,
    refused 'gpt2:: the colon has no sizes' --model gpt2:
    refused 'gpt2:X=2: after the preset must stand sizes' --model gpt2:X=2
    refused 'gpt2:D=100: H does not divide D' --model gpt2:D=100
}

test_json() {
    gpt3
    run plan --from gpt3.sh --memory 0 --cluster h100-infiniband --json -; expect_status 0
    expect_out '"framework":	"megatron"'
    expect_out '"key":	"tensor-model-parallel-size"'
    expect_out '"becomes":	"not in this plan"'
    run list frameworks; expect_status 0; expect_out 'Megatron-LM core_v0.16.1 \(55ac7082517c\)'
}

run_tests test_contradictions test_hostile test_branches test_sizes test_json
