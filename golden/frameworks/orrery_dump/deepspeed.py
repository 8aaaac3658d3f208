"""What DeepSpeed's ZeRO keeps of a parameter on this rank, as elements in row-major order.

Stage 3 cuts each parameter in equal flat shards, the last one padded.  Stages 1 and 2 cut one long row of all parameters, so that a
rank has a run of elements of a parameter, all of it or nothing.  deepspeed is imported only where a parameter is its.
"""
from .errors import DumpError


def is_shared(p):
    return hasattr(p, "ds_id") or hasattr(p, "_hp_mapping")


def _shard(p):
    """(begin, count) of this rank's elements of a stage 3 parameter."""
    each = p.ds_tensor.numel()
    rank = p.ds_process_group.rank() if hasattr(p, "ds_process_group") else __import__("torch").distributed.get_rank()
    begin = min(rank * each, p.ds_numel)
    return begin, min(each, p.ds_numel - begin)


def start(recorder, name, p, stored_in):
    if not hasattr(p, "ds_id"):
        return recorder.parameter("start/", name, p, stored_in=stored_in)
    recorder.flat("start/", name, p.ds_tensor, *_shard(p))


def gradient(recorder, kind, name, p, times):
    if hasattr(p, "ds_id"):
        from deepspeed.utils import safe_get_local_grad
        return recorder.flat(kind, name, safe_get_local_grad(p), *_shard(p), times=times)
    if p._hp_mapping is None:
        return                                                      # another rank's
    at = p._hp_mapping.lp_fragment_address
    fragment = p._hp_mapping.get_lp_grad_fragment(p._index_in_param_group)
    if fragment is None:
        raise DumpError(f"{kind}{name} is None: gradients() belongs between the last backward of a batch and step")
    whole = fragment.numel() != at.numel                            # some stages keep a buffer of all of it on each rank
    fragment = fragment.reshape(-1)
    recorder.flat(kind, name, fragment[at.start:at.start + at.numel] if whole else fragment, at.start, at.numel, times=times)


def weight(recorder, kind, name, p, states=("exp_avg", "exp_avg_sq")):
    """The fp32 master and the optimizer's states."""
    if hasattr(p, "ds_id"):
        from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_optimizer_state
        recorder.flat(kind + "weight/", name, safe_get_local_fp32_param(p), *_shard(p))
        for state in states:
            recorder.flat(f"{kind}{state}/", name, safe_get_local_optimizer_state(p, state), *_shard(p))
    elif p._hp_mapping is not None:
        at, own = p._hp_mapping.lp_fragment_address, p._hp_mapping.get_hp_fragment_address()
        recorder.flat(kind + "weight/", name, p._hp_mapping.get_hp_fragment(), at.start, at.numel)
        kept = _optimizer_states(recorder.model.optimizer, p._hp_mapping.param_group_index)
        for state in states:
            recorder.flat(f"{kind}{state}/", name, kept[state].narrow(0, own.start, own.numel), at.start, at.numel)


def _optimizer_states(optimizer, group):
    """Of a group's flat partition.  Not by DeepSpeed's own function: in 0.19.8 it finds those of the first group of parameters only."""
    flat = getattr(optimizer, "single_partition_of_fp32_groups", None) or optimizer.fp32_groups_flat_partition
    return optimizer.optimizer.state[flat[group]]
