"""Whether the parallelism that was asked for is in force.

A run that is silently not sharded computes the right numbers and proves nothing, so each mode has a test of the model itself.
A test returns None, or what is there instead.
"""
from .errors import DumpError

MATRICES = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight", "down_proj.weight",
            "c_attn.weight", "c_fc.weight", "c_proj.weight", "linear_qkv.weight", "linear_proj.weight", "linear_fc1.weight", "linear_fc2.weight")


def _is_dtensor(p):
    return hasattr(p, "placements") and hasattr(p, "device_mesh")


def _cut_over(p, axis):
    """Whether a DTensor is cut over a mesh dimension of this name."""
    names = p.device_mesh.mesh_dim_names or ()
    return any(n == axis and hasattr(q, "dim") for n, q in zip(names, p.placements))


def _all_cut(parameters, axis, wanted):
    found = 0
    for name, p in parameters.items():
        if not wanted(name):
            continue
        found += 1
        if not _is_dtensor(p):
            return f"{name} is a plain tensor, not a DTensor that is cut over {axis}"
        if not _cut_over(p, axis):
            return f"{name} has placements {tuple(p.placements)} over {p.device_mesh.mesh_dim_names}: it is not cut over {axis}"
    return None if found else "there is no parameter that it would cut"


def _class_in(model, *names):
    return any(c.__name__ in names for c in type(model).__mro__)


def _ddp(model, parameters, mesh):
    return None if _class_in(model, "DistributedDataParallel") else f"the model is a {type(model).__name__}, not a DistributedDataParallel"


def _fsdp1(model, parameters, mesh):
    if not _class_in(model, "FullyShardedDataParallel"):
        return f"the model is a {type(model).__name__}, not a FullyShardedDataParallel"
    if model.sharding_strategy.name == "NO_SHARD":
        return "its strategy is NO_SHARD, as it becomes on one rank"
    whole = [n for n in parameters if n.endswith("flat_param") or "._flat_param" in n]
    return f"{whole[0]} has no names of its own: give use_orig_params=True" if whole else None


def _fsdp2(model, parameters, mesh):
    if not _class_in(model, "FSDPModule"):
        return f"the model is a {type(model).__name__}, not an FSDPModule: fully_shard was not called on it"
    return _all_cut(parameters, "dp", lambda name: True)


def _tp(model, parameters, mesh):
    megatron = [n for n, p in parameters.items() if getattr(p, "tensor_model_parallel", False)]
    if megatron:
        whole = [n for n in parameters if n.endswith(MATRICES) and n not in megatron]
        return f"{whole[0]} is not tensor-parallel" if whole else None
    return _all_cut(parameters, "tp", lambda name: name.endswith(MATRICES))


def _zero(stage):
    def test(model, parameters, mesh):
        if not _class_in(model, "DeepSpeedEngine"):
            return f"the model is a {type(model).__name__}, not a DeepSpeedEngine"
        if model.zero_optimization_stage() != stage:
            return f"the engine has ZeRO stage {model.zero_optimization_stage()}"
        if model.dp_world_size != mesh.get("dp", 1):
            return f"the engine shares over {model.dp_world_size} ranks, the mesh has dp={mesh.get('dp', 1)}"
        if stage == 3:
            whole = [n for n, p in parameters.items() if not hasattr(p, "ds_id")]
            return f"{whole[0]} is not partitioned" if whole else None
        name = type(model.optimizer).__name__
        return None if name.startswith("DeepSpeedZeroOptimizer") else f"the optimizer is a {name}"
    return test


TESTS = {"ddp": _ddp, "fsdp1": _fsdp1, "fsdp2": _fsdp2, "tp": _tp, "zero1": _zero(1), "zero2": _zero(2), "zero3": _zero(3)}
SEEN = {"sp": "no activation has fewer tokens on a rank of tp than the microbatch", "cp": "every rank has all tokens of its sequences",
        "pp": "this rank has all layers"}
MODES = (*TESTS, *SEEN)


def check(modes, model, parameters, mesh):
    """Refuse modes that are unknown, or not in force.  Those of SEEN show only while the model runs."""
    for mode in modes:
        if mode not in MODES:
            raise DumpError(f"mode {mode!r} is not one of {', '.join(MODES)}")
        why = TESTS[mode](model, parameters, mesh) if mode in TESTS else None
        if why:
            raise DumpError(f"mode {mode} is not in force: {why}")


def check_seen(modes, seen):
    """After the run.  seen: modes of SEEN that showed."""
    for mode in modes:
        if mode in SEEN and mode not in seen:
            raise DumpError(f"mode {mode} is not in force: {SEEN[mode]}")
