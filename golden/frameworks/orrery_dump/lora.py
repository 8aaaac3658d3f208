"""Low-rank adapters of peft: W + s B A, with a frozen W.

A and B are recorded as tensors of their own, and the file's metadata says what each is an adapter of (docs/checking/adapters.md).  Nothing is merged.
What orrery check does not compute is refused by name: dropout, DoRA, several adapters, adapters of embeddings.
"""
import re

from .errors import DumpError


def is_lora(model):
    return any(hasattr(m, "lora_A") and hasattr(m, "base_layer") for m in model.modules())


def clean(name):
    """A name of the model without what peft puts into it."""
    name = re.sub(r"\.modules_to_save\.[^.]+", "", name)
    name = ".".join(part for part in name.split(".") if part != "base_layer")
    return re.sub(r"^(base_model\.)(model\.)", "", name)


def inner(model):
    """The model that peft has wrapped."""
    base = getattr(model, "base_model", None)
    return base.model if hasattr(model, "peft_config") and hasattr(base, "model") else model


def is_own(name):
    """Whether a parameter is one that the model has without peft, or its trained copy."""
    return not re.search(r"\.lora_(A|B|E|embedding_A|embedding_B|magnitude_vector)\.|\.original_module\.", "." + name)


class Adapter:
    """An adapter of one module: A [rank, in], B [out, rank]."""

    def __init__(self, module_name, module, adapter, rslora):
        self.name, self.rank, self.alpha, self.rslora = module_name, int(module.r[adapter]), float(module.lora_alpha[adapter]), bool(rslora)
        self.factors = {"A": module.lora_A[adapter].weight, "B": module.lora_B[adapter].weight}

    def metadata(self, place):
        rows = [int(r) for r in place.rows]
        if rows != list(range(rows[0], rows[0] + len(rows))):
            raise DumpError(f"adapter {self.name}: its rows are not one interval of {place.name}")
        return {"of": place.name, "rows": [rows[0], len(rows)], "rank": self.rank, "alpha": self.alpha, "rslora": self.rslora}


def adapters_of(model, tidy):
    """[Adapter] of a model; tidy: makes names clean.  @raise DumpError of what cannot be recorded"""
    configs = next((m.peft_config for m in model.modules() if isinstance(getattr(m, "peft_config", None), dict)), {})
    found = []
    for name, module in model.named_modules():
        if not hasattr(module, "base_layer") or not hasattr(module, "lora_A"):
            continue
        own = tidy(name)
        if len(getattr(module, "lora_embedding_A", {})):
            raise DumpError(f"adapter {own}: adapters of embeddings are not recorded")
        names = list(module.lora_A.keys())
        if len(names) != 1:
            raise DumpError(f"adapter {own}: it has {len(names)} adapters, {', '.join(names)}: one can be recorded; delete_adapter() the others")
        adapter = names[0]
        config = configs.get(adapter)
        if getattr(module, "merged", False):
            raise DumpError(f"adapter {own}: it is merged into its weight: unmerge_adapter() before")
        if getattr(module, "disable_adapters", False) or adapter not in module.active_adapters:
            raise DumpError(f"adapter {own}: {adapter} is not active, so nothing computes with it: set_adapter({adapter!r})")
        if getattr(module.lora_dropout[adapter], "p", 0.0) > 0 and module.training:
            raise DumpError(f"adapter {own}: lora_dropout {module.lora_dropout[adapter].p} draws masks that nobody knows: set lora_dropout=0, or model.eval()")
        if getattr(module, "use_dora", {}).get(adapter) or getattr(config, "use_dora", False):
            raise DumpError(f"adapter {own}: use_dora divides by norms, which orrery check does not compute")
        if getattr(module.lora_B[adapter], "bias", None) is not None:
            raise DumpError(f"adapter {own}: lora_bias adds a bias to B, which orrery check does not compute")
        found.append(Adapter(own, module, adapter, getattr(config, "use_rslora", False)))
    if not found:
        raise DumpError("the model has no adapter of LoRA that is seen: modules with lora_A and base_layer")
    return found


def trained(parameters, places, adapters):
    """Our names of what is trained whole beside the adapters.  @raise DumpError if a part of one of ours is trained and a part is not"""
    state = {}
    for name, p in parameters.items():
        for place in places[name] if isinstance(places[name], list) else [places[name]]:
            state.setdefault(place.name, {})[name] = bool(p.requires_grad)
    for ours, of in state.items():
        if len(set(of.values())) > 1:
            yes, no = (next(n for n, t in of.items() if t is want) for want in (True, False))
            raise DumpError(f"{yes} is trained and {no} is frozen, and both are rows of {ours}: train or freeze both")
    return [ours for ours, of in state.items() if all(of.values())]
