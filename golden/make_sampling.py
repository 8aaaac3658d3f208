#!/usr/bin/env python3
"""Golden samples for ref/text/sampling.h and generate.h: what transformers' logits processors and `generate` make of them.

    golden/make_sampling.py            write golden/sampling
    golden/make_sampling.py --check    make it again, and compare with the stored one

sampling/NAME is a small model with random weights, as transformers saves it; its greedy.txt has the tokens of a prompt, and those that
`generate` without sampling puts after them.  sampling/distributions.txt has three lines for each case: temperature, top_k and top_p;
logits; the probabilities of each token after the three processors, in fp64.  Numbers are hexadecimal.  No token of a greedy text is
nearer than MARGIN to the second, and no sum of probabilities to a limit of top_p: so rounding decides nothing.
"""
import filecmp
import pathlib
import sys
import tempfile

import torch
import transformers
from transformers.generation import logits_process

FOLDER = pathlib.Path(__file__).resolve().parent / "sampling"
MARGIN = 1e-3
TOKENS = 24
COMMON = {"vocab_size": 256, "initializer_range": 0.4, "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 48}
MODELS = {
    "gpt2": (transformers.GPT2Config, {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 48}),
    "llama": (transformers.LlamaConfig, LLAMA),
    "gemma2": (transformers.Gemma2Config, {**LLAMA, "head_dim": 4, "sliding_window": 8, "final_logit_softcapping": 3.0}),
    "mixtral": (transformers.MixtralConfig, {**LLAMA, "num_local_experts": 4}),
}


def write_model(folder, kind, numbers):
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(kind(**COMMON, **numbers), attn_implementation="eager").eval()
    prompt = torch.tensor([list(b"First Citizen:")])
    out = model.generate(prompt, max_new_tokens=TOKENS, do_sample=False, use_cache=False, pad_token_id=0, return_dict_in_generate=True,
                         output_logits=True)
    for step in out.logits:
        first, second = step[0].topk(2).values
        assert first - second > MARGIN, f"{folder.name}: two tokens are nearly as probable"
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    lines = [prompt[0].tolist(), out.sequences[0, prompt.shape[1]:].tolist()]
    (folder / "greedy.txt").write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))


def processed(logits, temperature, top_k, top_p):
    """In the order of `generate`: temperature, top-k, top-p; those that change nothing are not made."""
    chain = [logits_process.TemperatureLogitsWarper(temperature)] if temperature != 1 else []
    chain += [logits_process.TopKLogitsWarper(top_k=top_k)] if top_k else []
    chain += [logits_process.TopPLogitsWarper(top_p=top_p)] if top_p < 1 else []
    scores = logits[None]
    for processor in chain:
        before = scores
        scores = processor(None, scores)
        if processor is chain[-1] and top_p < 1:
            sums = before[0].sort().values.softmax(-1).cumsum(-1)
            assert (sums - (1 - top_p)).abs().min() > MARGIN, "a sum of probabilities is at the limit"
    return scores[0].softmax(-1)


def cases():
    generator = torch.Generator().manual_seed(7)
    for temperature, top_k, top_p in [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.0, 5, 1.0), (1.0, 0, 0.9), (1.0, 0, 0.5), (0.8, 7, 0.85),
                                      (1.9, 12, 0.6), (1.0, 1, 1.0), (1.0, 0, 0.03), (0.3, 99, 0.95), (1.0, 4, 0.999)]:
        logits = 2 * torch.randn(24, generator=generator, dtype=torch.float64)
        yield temperature, top_k, top_p, logits
    equal = torch.tensor([1.0, 3.0, 2.0, 2.0, 0.0, 2.0, -1.0, 2.0], dtype=torch.float64)
    yield 1.0, 2, 1.0, equal                    # all that are equal to the second stay
    yield 0.5, 3, 1.0, equal
    barred = torch.tensor([0.5, -float("inf"), 1.5, -float("inf"), 0.25], dtype=torch.float64)
    yield 1.0, 0, 0.8, barred
    yield 0.9, 4, 1.0, barred


def lines():
    yield f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}; golden/make_sampling.py"
    for temperature, top_k, top_p, logits in cases():
        yield f"{temperature.hex()} {top_k} {top_p.hex()}"
        yield " ".join(x.hex() for x in logits.tolist())
        yield " ".join(x.hex() for x in processed(logits, temperature, top_k, top_p).tolist())


def make(folder):
    folder.mkdir(exist_ok=True)
    for name, (kind, numbers) in MODELS.items():
        write_model(folder / name, kind, numbers)
    (folder / "distributions.txt").write_text("".join(line + "\n" for line in lines()))


def main():
    if sys.argv[1:] != ["--check"]:
        make(FOLDER)
        return 0
    with tempfile.TemporaryDirectory() as again:
        make(pathlib.Path(again) / "sampling")
        made = pathlib.Path(again) / "sampling"
        differ = [path for path in sorted(made.rglob("*")) if path.is_file()
                  and not filecmp.cmp(path, FOLDER / path.relative_to(made), shallow=False)]
        for path in differ:
            print(f"  {path.relative_to(made)}: differs")
        print(f"  SAMPLING {len(differ)} files differ" if differ else "  SAMPLING as stored")
        return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
