"""FullyShardedDataParallel (FSDP1): parameters of a wrapped module are one long row, of which each rank has a run."""


def shards(model, clean):
    """{parameter: (begin, count)}: this rank's elements of each parameter in row-major order; {} if nothing is FSDP1's."""
    found = {}
    for prefix, module in model.named_modules():
        flat = getattr(getattr(module, "_handle", None), "flat_param", None)
        if flat is None:
            continue
        for name, info in zip(flat._fqns, flat._shard_param_infos):
            whole = clean(f"{prefix}.{name}" if prefix else name)
            found[whole] = (info.intra_param_start_idx, info.numel_in_shard) if info.in_shard else (0, 0)
    return found
