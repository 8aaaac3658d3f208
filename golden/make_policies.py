#!/usr/bin/env python3
"""Golden losses of reinforcement learning: what released programs make of the same samples, in fp64.

    golden/make_policies.py            write golden/policies.safetensors and its line of golden/MANIFEST
    golden/make_policies.py --check    make it again, compare with the stored one and name the tensors that differ

TRL's and verl's functions are taken unchanged from their installed packages (trl 1.16.0, verl 0.9.1; `pip install --no-deps` is enough:
nothing of them is imported, only the text of these functions is compiled).  CaRL is no package: its lines are those of
team_code_roach/dd_ppo.py at 5abef66.  Gradients are autograd's.  golden/README.md says what is in the file.
"""
import ast
import importlib.util
import pathlib
import sys
from collections import defaultdict
from types import SimpleNamespace

try:
    import numpy as np
    import torch
except ImportError as missing:
    sys.exit(f"make_policies.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "policies.safetensors"
SEED, GROUP, GROUPS, LONGEST = 23, 4, 3, 5
N = GROUP * GROUPS
ROUNDING = 1e-12                                # relative, that another PyTorch may differ by


def source_of(package, path):
    spec = importlib.util.find_spec(package)
    if spec is None:
        sys.exit(f"make_policies.py: no package {package}; golden/README.md says what to install")
    return ast.parse((pathlib.Path(spec.submodule_search_locations[0]) / path).read_text())


def functions(tree, names, scope):
    """Compile these functions, without their decorators and annotations, into a scope."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list, node.returns = [], None
            for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs:
                a.annotation = None
            exec(compile(ast.fix_missing_locations(ast.Module([node], [])), node.name, "exec"), scope)
    return scope


class Config(dict):
    """A configuration by attributes and by `get`."""
    __getattr__ = dict.get


VERL_F = functions(source_of("verl", "utils/torch_functional.py"),
                   {"masked_sum", "masked_mean", "masked_var", "masked_whiten", "clip_by_value"}, {"torch": torch})
VERL = functions(source_of("verl", "trainer/ppo/core_algos.py"),
                 {"agg_loss", "compute_policy_loss_vanilla", "compute_value_loss", "kl_penalty", "kl_penalty_forward",
                  "compute_grpo_outcome_advantage", "compute_gae_advantage_return", "compute_rewards"},
                 {"torch": torch, "np": np, "defaultdict": defaultdict, "AlgoConfig": type(None), "verl_F": SimpleNamespace(**VERL_F)})
TRL_TREE = source_of("trl", "trainer/grpo_trainer.py")
TRL = functions(source_of("trl", "trainer/utils.py"), {"nanstd", "nanvar", "nanmin", "nanmax"}, {"torch": torch})
functions(TRL_TREE, {"_compute_loss"}, TRL)


def drawn(name, *shape):
    return torch.from_numpy(philox.normal(SEED, name, int(np.prod(shape))).reshape(shape).astype(np.float64))


def samples():
    """Lengths from 1 to the longest; some tokens far from their old probability, so that every bound is met."""
    lengths = torch.tensor([1 + (5 * i) % LONGEST for i in range(N)])
    mask = (torch.arange(LONGEST)[None, :] < lengths[:, None]).double()
    old = -1 - drawn("old", N, LONGEST).abs()
    logp = old + 0.3 * drawn("moved", N, LONGEST)
    logp[1, 0], logp[2, 1] = old[1, 0] + 2, old[2, 1] + 25
    ref = old + 0.5 * drawn("ref", N, LONGEST)
    ref[3, 0] = logp[3, 0] + 4
    reward = drawn("reward", N).round(decimals=1)
    return dict(mask=mask, old=old * mask, logp=logp * mask, ref=ref * mask, reward=reward)


def trl_advantages(s, scale):
    """The lines of _generate_and_score_completions, unchanged."""
    for node in ast.walk(TRL_TREE):
        if isinstance(node, ast.If) and "sum_then_normalize" in ast.dump(node.test):
            scope = dict(TRL, self=SimpleNamespace(scale_rewards=scale, reward_weights=torch.ones(1)), device="cpu", num_generations=GROUP,
                         rewards_per_func=s["reward"][:, None], unscorable_mask=torch.zeros(N, dtype=torch.bool))
            exec(compile(ast.Module(node.body, []), "advantages", "exec"), scope)
            return scope["advantages"]
    sys.exit("make_policies.py: this TRL computes advantages elsewhere")


def trl(s, loss_type, scale, high, beta):
    advantage, logp = trl_advantages(s, scale), s["logp"].clone().requires_grad_()
    accelerator = SimpleNamespace(num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (logp, torch.zeros_like(logp), None), aux_loss_enabled=False,
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level="token", beta=beta, loss_type=loss_type,
        epsilon_low=0.2, epsilon_high=high, use_vllm=False, model=SimpleNamespace(training=True), accelerator=accelerator,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1), current_gradient_accumulation_steps=1,
        max_completion_length=LONGEST, _entropy_bonus_enabled=False, _metrics=defaultdict(lambda: defaultdict(list)))
    ids = torch.zeros(N, LONGEST, dtype=torch.long)
    loss = TRL["_compute_loss"](trainer, None, dict(
        prompt_ids=ids[:, :1], prompt_mask=ids[:, :1] + 1, completion_ids=ids, completion_mask=s["mask"], advantages=advantage,
        old_per_token_logps=s["old"], ref_per_token_logps=s["ref"], num_items_in_batch=s["mask"].sum()))
    loss.backward()
    return dict(advantage=advantage[:, None] * s["mask"], loss=loss.detach().reshape(1), dlogp=logp.grad)


def verl_policy(s, advantage, mode, kl):
    logp = s["logp"].clone().requires_grad_()
    config = Config(clip_ratio=0.2, clip_ratio_low=None, clip_ratio_high=None, clip_ratio_c=3.0,
                    global_batch_info=dict(dp_size=1, batch_num_tokens=None, global_batch_size=None, loss_scale_factor=None))
    loss, _ = VERL["compute_policy_loss_vanilla"](s["old"], logp, advantage, s["mask"], mode, config)
    if kl:
        loss = loss + kl * VERL["agg_loss"](VERL["kl_penalty"](logp, s["ref"], "low_var_kl"), s["mask"], mode)
    loss.backward()
    return dict(advantage=advantage * s["mask"], loss=loss.detach().reshape(1), dlogp=logp.grad)


def verl_grpo(s, by_deviation, mode, kl):
    index = np.arange(N) // GROUP
    scores = torch.zeros(N, LONGEST)
    scores[:, 0] = s["reward"]
    advantage, _ = VERL["compute_grpo_outcome_advantage"](scores, s["mask"], index, norm_adv_by_std_in_grpo=by_deviation)
    return verl_policy(s, advantage, mode, kl)


def last_rewards(s):
    """The reward stands at the last token."""
    rewards = torch.zeros(N, LONGEST)
    rewards[torch.arange(N), s["mask"].sum(1).long() - 1] = s["reward"]
    return rewards


def values_of(s):
    old = drawn("value", N, LONGEST) * s["mask"]
    return old, (old + 0.6 * drawn("value moved", N, LONGEST)) * s["mask"]


def verl_ppo(s):
    value, now = values_of(s)
    rewards = VERL["compute_rewards"](last_rewards(s), s["old"], s["ref"], 0.001) * s["mask"]
    advantage, returned = VERL["compute_gae_advantage_return"](rewards, value, s["mask"], 1.0, 1.0)
    out = verl_policy(s, advantage, "token-mean", 0)
    now.requires_grad_()
    value_loss, _ = VERL["compute_value_loss"](now, returned, value, s["mask"], 0.5)
    value_loss.backward()
    out.update(value=value, now_value=now.detach(), returned=returned * s["mask"], value_loss=value_loss.detach().reshape(1), dvalue=now.grad)
    return out


def carl(s):
    """One episode a sequence; the mean over tokens of all, as over the steps of a batch.  Its 0.1 is clip_coef, its 0.5 vf_coef."""
    value, now = values_of(s)
    gamma, gae_lambda, clip_coef, vf_coef = 0.99, 0.95, 0.1, 0.5
    rewards, at = last_rewards(s), s["mask"].bool()
    advantages = torch.zeros(N, LONGEST)
    lastgaelam = torch.zeros(N)
    for t in reversed(range(LONGEST)):
        nextnonterminal = s["mask"][:, t + 1] if t + 1 < LONGEST else torch.zeros(N)
        nextvalues = value[:, t + 1] if t + 1 < LONGEST else torch.zeros(N)
        delta = rewards[:, t] + gamma * nextvalues * nextnonterminal - value[:, t]
        advantages[:, t] = lastgaelam = delta + gamma * gae_lambda * nextnonterminal * lastgaelam
    returned = (advantages + value)[at]
    b_advantages = advantages[at]
    b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
    logp = s["logp"].clone().requires_grad_()
    now.requires_grad_()
    ratio = (logp[at] - s["old"][at]).exp()
    pg_loss = torch.max(-b_advantages * ratio, -b_advantages * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)).mean()
    newvalue = now[at]
    v_clipped = value[at] + torch.clamp(newvalue - value[at], -clip_coef, clip_coef)
    v_loss = 0.5 * torch.max((newvalue - returned) ** 2, (v_clipped - returned) ** 2).mean() * vf_coef
    pg_loss.backward()
    v_loss.backward()
    whole = torch.zeros(N, LONGEST)
    whole[at] = b_advantages
    of_returns = torch.zeros(N, LONGEST)
    of_returns[at] = returned
    return dict(advantage=whole, loss=pg_loss.detach().reshape(1), dlogp=logp.grad, value=value, now_value=now.detach(),
                returned=of_returns, value_loss=v_loss.detach().reshape(1), dvalue=now.grad)


# rule of ref/policy/registry.c -> what the released code makes
CASES = {
    "verl-grpo": lambda s: verl_grpo(s, True, "token-mean", 0.001),
    "verl-dr-grpo": lambda s: verl_grpo(s, False, "seq-mean-token-sum-norm", 0),
    "verl-ppo": verl_ppo,
    "trl-grpo": lambda s: trl(s, "grpo", "group", 0.2, 0.04),
    "trl-dapo": lambda s: trl(s, "dapo", "group", 0.28, 0),
    "trl-batch": lambda s: trl(s, "dapo", "batch", 0.2, 0),
    "trl-dr-grpo": lambda s: trl(s, "dr_grpo", "none", 0.2, 0),
    "trl-sums": lambda s: trl(s, "luspo", "group", 0.2, 0),
    "carl": carl,
}


def make():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    s = samples()
    tensors = {key: t.numpy().astype("<f8") for key, t in s.items()}
    for name, case in CASES.items():
        for key, t in case({k: v.clone() for k, v in s.items()}).items():
            tensors[f"{name}/{key}"] = t.numpy().astype("<f8")
    metadata = {"generator": "golden/make_policies.py", "cases": " ".join(CASES), "group": str(GROUP), "numpy": np.__version__,
                "torch": torch.__version__, "trl": "1.16.0", "verl": "0.9.1"}
    return tensors, metadata


def check():
    return tensor_file.compare("policies", make()[0], FILE, ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden losses of reinforcement learning with TRL and verl.", FILE, make, check))
