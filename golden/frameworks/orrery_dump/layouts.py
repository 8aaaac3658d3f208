"""Which rows and columns of a whole tensor a rank has.

An *index* is an array of global row (or column) numbers in the order of memory; None means all of them.  Every layout is made by
cutting and joining indices, so that nested cuts (FSDP over tensor parallelism), permuted sequences and interleaved matrices
need no case of their own.
"""
import numpy as np

from .errors import DumpError


def chunk(index, parts, which):
    """The `which`-th of `parts` as torch.chunk cuts: all of the same length but the last ones, which may be shorter or empty."""
    each = -(-len(index) // parts)
    return index[min(which * each, len(index)):min((which + 1) * each, len(index))]


def strided(index, parts, which, factor):
    """_StridedShard: cut in `factor` chunks first, as if by an axis further right; each is cut in `parts`."""
    return np.concatenate([chunk(chunk(index, factor, i), parts, which) for i in range(factor)])


def head_tail(length, parts, which):
    """Context parallelism that balances the causal mask: of 2n chunks a rank has one from the front and one from the back."""
    if length % (2 * parts):
        raise DumpError(f"{length} tokens do not make 2 x {parts} equal chunks, as head-tail order needs")
    index = np.arange(length)
    return np.concatenate([chunk(index, 2 * parts, which), chunk(index, 2 * parts, 2 * parts - 1 - which)])


def of_parts(sizes, parts, which):
    """A fused matrix of which each part is cut by itself, such as Megatron's gated fc1 (partition_stride 2): [gate; up]."""
    starts = np.cumsum([0] + list(sizes))
    return np.concatenate([chunk(np.arange(a, b), parts, which) for a, b in zip(starts, starts[1:])])


def interleaved_qkv(heads, groups, width):
    """Rows of our [queries; keys; values] in Megatron's order: for each group its queries, its key, its value."""
    each = heads // groups
    q, k, v = np.split(np.arange((heads + 2 * groups) * width).reshape(-1, width), [heads, heads + groups])
    return np.concatenate([np.concatenate([q[g * each:(g + 1) * each], k[g:g + 1], v[g:g + 1]]).reshape(-1) for g in range(groups)])


def token_rows(sequences, positions, tokens):
    """Rows of the batch: token s of sequence b is row b * tokens + s.  Order of memory: [sequences, positions]."""
    return (np.asarray(sequences)[:, None] * tokens + np.asarray(positions)[None, :]).reshape(-1)


def intervals(index):
    """[[begin, count], ...] of an index."""
    index = np.asarray(index)
    if len(index) == 0:
        return []
    cuts = np.flatnonzero(np.diff(index) != 1) + 1
    starts = np.concatenate([[0], cuts])
    lengths = np.diff(np.concatenate([starts, [len(index)]]))
    return [[int(index[a]), int(n)] for a, n in zip(starts, lengths)]


def flat_boxes(begin, count, columns):
    """A run of elements of a matrix in row-major order as at most three boxes: (rows, columns, offset in the run)."""
    boxes, at = [], 0
    while count > 0:
        row, column = divmod(begin, columns)
        if column or count < columns:
            wide = min(columns - column, count)
            boxes.append((np.array([row]), np.arange(column, column + wide), at))
            taken = wide
        else:
            boxes.append((np.arange(row, row + count // columns), np.arange(columns), at))
            taken = count // columns * columns
        begin, count, at = begin + taken, count - taken, at + taken
    return boxes


# ---- DTensor ------------------------------------------------------------------------------------------------------------------------------------------

def of_placements(shape, placements, names, sizes, coordinates, what):
    """(an index of each dimension, axes over which the value is a part of a sum, factor) of a DTensor's local tensor.

    shape        of the whole
    placements   one for each mesh dimension, applied from the left, as DTensor does
    """
    index, partial, times = [np.arange(n) for n in shape], [], 1.0
    for placement, name, parts, at in zip(placements, names, sizes, coordinates):
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind == "Shard":
            index[placement.dim] = chunk(index[placement.dim], parts, at)
        elif kind == "_StridedShard":
            index[placement.dim] = strided(index[placement.dim], parts, at, placement.split_factor)
        elif kind.endswith("Partial") and getattr(placement, "reduce_op", None) in ("sum", "avg"):
            partial.append(name)
            times *= 1.0 / parts if placement.reduce_op == "avg" else 1.0
        else:
            raise DumpError(f"{what}: placement {placement} over {name} is not one of Shard, _StridedShard, Replicate, Partial(sum), Partial(avg)")
    return index, partial, times


def of_dtensor(t, what):
    mesh = t.device_mesh
    names = mesh.mesh_dim_names or [f"axis{i}" for i in range(mesh.ndim)]
    return of_placements(t.shape, t.placements, names, mesh.shape, mesh.get_coordinate(), what)
