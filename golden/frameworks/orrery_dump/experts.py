"""What each expert of a mixture computes in transformers: steps inside one module, so no module's result.

A torch function mode sees every call inside the module that has all experts.  The product with an expert's matrix, or the sum with its bias, shows
the expert by where in the module's parameters the operand lies; the rows are the tokens that were last taken from the module's input.
Ours are rows for each choice of a token, sorted by expert, then by token of the whole batch: they are known when all choices are.
"""
from dataclasses import dataclass

import numpy as np

from .errors import DumpError


STEPS = ("mlp.up", "mlp.act", "experts.out")


@dataclass
class Mixture:
    """A layer's experts: where they are, and what their tensors are in ours."""
    layer: int
    module: str                                 # that has all experts
    weights: str                                # our name of the choices' weights, which the module gets with the choices
    experts: int
    up: np.ndarray                              # columns of our mlp.up, of each of theirs
    inner: int                                  # columns of mlp.act
    width: int                                  # of experts.out


class _Watch:
    """The calls of one pass through the module.  seen(name, expert, tokens, tensor)"""

    def __init__(self, module, given, seen):
        self.given, self.seen, self.tokens = given, seen, None
        self.parts = {p.untyped_storage().data_ptr(): (n, p) for n, p in module.named_parameters(recurse=False)}

    def part(self, t):
        """(name, expert) of a piece of a parameter."""
        if not hasattr(t, "untyped_storage"):
            return None, -1
        name, whole = self.parts.get(t.untyped_storage().data_ptr(), (None, None))
        return name, -1 if whole is None else t.storage_offset() // (whole.numel() // whole.shape[0])

    def called(self, name, args, result):
        if name == "__getitem__" and args[0] is self.given and getattr(args[1], "ndim", 0) == 1:
            self.tokens = args[1]
        elif name in ("matmul", "__matmul__", "mm") and len(args) == 2:
            part, expert = self.part(args[1])
            if part == "down_proj":
                self.seen("mlp.act", expert, self.tokens, args[0])
        elif name in ("add", "__add__") and len(args) == 2:
            part, expert = self.part(args[1])
            if part in ("gate_up_proj_bias", "down_proj_bias"):
                self.seen("mlp.up" if part == "gate_up_proj_bias" else "experts.out", expert, self.tokens, result)
        elif name == "linear" and len(args) == 2:
            part, expert = self.part(args[1])
            if part == "gate_up_proj":
                self.seen("mlp.up", expert, self.tokens, result)
            elif part == "down_proj":
                self.seen("mlp.act", expert, self.tokens, args[0])
                self.seen("experts.out", expert, self.tokens, result)


def watch(module, seen, chosen):
    """Have seen(name, expert, tokens, tensor) called for each expert's rows in every pass, and before it chosen(choices, weights).
    @return what takes it back"""
    torch = __import__("torch")
    inner = module.forward

    class Mode(torch.overrides.TorchFunctionMode):
        def __init__(self, calls):
            super().__init__()
            self.calls = calls

        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            self.calls.called(getattr(func, "__name__", ""), args, result)
            return result

    def watched(hidden, choices, weights, *args, **kwargs):
        chosen(choices, weights)
        with Mode(_Watch(module, hidden, seen)):
            return inner(hidden, choices, weights, *args, **kwargs)

    module.forward = watched
    return lambda: module.__dict__.pop("forward", None)


def watch_product(module, inside, seen):
    """Have seen(tensor) called for the product of another tensor and the result of a module inside.  @return what takes it back"""
    torch = __import__("torch")
    results, inner = [], module.forward

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") in ("mul", "__mul__", "__rmul__") and any(a is r for a in args for r in results):
                seen(result)
            return result

    def watched(*args, **kwargs):
        results.clear()
        with Mode():
            return inner(*args, **kwargs)

    handle = inside.register_forward_hook(lambda _m, _i, out: results.append(out))
    module.forward = watched

    def take_back():
        handle.remove()
        module.__dict__.pop("forward", None)

    return take_back


class Choices:
    """Which experts the tokens of the batch have chosen, and the rows of ours that they therefore are."""

    def __init__(self, mixtures, tokens):
        self.mixtures, self.tokens, self.chosen, self.kept = mixtures, tokens, {m.layer: {} for m in mixtures}, []

    def chose(self, layer, rows, experts):
        """rows: of the batch; experts [rows, k]."""
        self.chosen[layer].update(zip(map(int, rows), np.asarray(experts).tolist()))

    def keep(self, name, mixture, expert, rows, numbers, more):
        self.kept.append((name, mixture, expert, rows, numbers, more))

    def _all(self):
        """The choices of all ranks, which all call this: a row of ours depends on the tokens before it."""
        dist = __import__("torch").distributed
        if not (dist.is_available() and dist.is_initialized()):
            return self.chosen
        of_ranks = [None] * dist.get_world_size()
        dist.all_gather_object(of_ranks, self.chosen)
        return {layer: {t: e for one in of_ranks for t, e in one.get(layer, {}).items()} for layer in {k for one in of_ranks for k in one}}

    def write(self, file):
        """Add everything that was kept."""
        if not self.mixtures or not any(self.chosen.values()):
            return
        for m in self.mixtures:
            if self.chosen[m.layer] and not any(one[1] is m for one in self.kept):
                raise DumpError(f"{m.module}: nothing of its experts was seen: set config._experts_implementation to \"eager\" before the model runs")
        chosen, places = self._all(), {}
        for m in self.mixtures:
            of = chosen[m.layer]
            if len(of) < self.tokens:
                raise DumpError(f"h.{m.layer}.experts: the choices of {len(of)} of {self.tokens} tokens are known, but rows are those of the whole batch")
            pairs = sorted((e, t) for t, experts in of.items() for e in experts)
            places[m.layer] = ({pair: i for i, pair in enumerate(pairs)}, len(pairs))
        for name, m, expert, rows, numbers, more in self.kept:
            at, count = places[m.layer]
            width, cols = {"mlp.up": (len(m.up), m.up), "mlp.act": (m.inner, None), "experts.out": (m.width, None)}[name.split(".", 2)[2]]
            file.add(name, numbers, of=(count, width), rows=np.array([at[expert, int(t)] for t in rows]), cols=cols, **more)
        self.kept = []
