#!/usr/bin/env python3
"""Golden cases of collectives: what every member passes in and must get, from numpy alone.

    golden/make_collectives.py            write golden/collectives/*.safetensors and their lines of golden/MANIFEST
    golden/make_collectives.py --check    make them again and compare, bit for bit

Nothing here is shared with the C, and no algorithm is run: a result is what the operation is defined to be (MPI 4.1,
chapter 6; NCCL for averages), written with the arrays of all members at hand.  Every sum, product and quotient is exact, or is
rounded once by IEEE 754 or wraps round as the integer does, so that the order in which members are added cannot matter and there
is one right answer to the bit.
"""
import argparse
import json
import pathlib
import sys

try:
    import numpy as np
except ImportError as missing:
    sys.exit(f"make_collectives.py: {missing}; golden/README.md says what to install")

import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "collectives"
SIZES = (2, 3, 5, 8)                            # P
PRIME = 13
FORMATS = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
FORMAT_LIST = list(FORMATS)


# ---- inputs: integers that depend on (member, index) ---------------------------------------------------------------------

def small(member, count, dtype):
    """-30 .. 30, or 0 .. 30 for bytes: no sum or product of so few members leaves what the format holds exactly."""
    i = np.arange(count)
    x = (member * 31 + i * 7) % 61 - 30
    return (np.abs(x) if dtype == np.uint8 else x).astype(dtype)


def factors(member, count, dtype):
    """For products: few are 2, some -1."""
    i = np.arange(count)
    x = np.where((member + i) % 5 == 0, 2, np.where((member * 3 + i) % 7 == 0, -1, 1))
    return (np.abs(x) if dtype == np.uint8 else x).astype(dtype)


def huge(member, count, dtype):
    """Integers whose sum wraps round."""
    i = np.arange(count)
    return (np.iinfo(dtype).max - (member * 3 + i) % 11).astype(dtype)


def some_nan(member, count, dtype):
    """One NaN somewhere in member 1: whoever drops it by comparing is found."""
    x = small(member, count, dtype)
    if member == 1 and count:
        x[count // 2] = np.nan
    return x


# ---- reductions -----------------------------------------------------------------------------------------------------------

def by_fold(pair):
    def whole(rows):
        out = rows[0]
        for row in rows[1:]:
            out = pair(out, row)
        return out
    return whole


def average(rows):
    """One division of the exact sum; of integers, towards zero."""
    total = by_fold(np.add)(rows)
    if total.dtype.kind == "f":
        return total / total.dtype.type(len(rows))
    return (np.sign(total.astype(np.int64)) * (np.abs(total.astype(np.int64)) // len(rows))).astype(total.dtype)


REDUCTIONS = {"sum": by_fold(np.add), "product": by_fold(np.multiply), "max": by_fold(np.maximum), "min": by_fold(np.minimum),
              "average": average}


def reduced(case, rows):
    if case["count"] == 0:
        return rows[0]
    with np.errstate(over="ignore", invalid="ignore"):
        return REDUCTIONS[case["reduction"]](rows)


# ---- operations: from the inputs of all members to the outputs of all -----------------------------------------------------

def counts_of(case):
    """Lengths of the P blocks: given, or nearly equal ones, the first count % P of them one longer."""
    P, n = case["P"], case["count"]
    return case["counts"] if "counts" in case else [n // P + (b < n % P) for b in range(P)]


def blocks(case, vector):
    return np.split(vector, np.cumsum(counts_of(case))[:-1])


def at_root(case, value):
    return [value if r == case["root"] else None for r in range(case["P"])]


def broadcast(case, given):
    x = given(case["root"], case["count"])
    return at_root(case, x), [x] * case["P"]


def reduce(case, given):
    rows = [given(r, case["count"]) for r in range(case["P"])]
    return rows, at_root(case, reduced(case, rows))


def allreduce(case, given):
    rows = [given(r, case["count"]) for r in range(case["P"])]
    return rows, [reduced(case, rows)] * case["P"]


def reduce_scatter(case, given):
    rows = [given(r, sum(counts_of(case))) for r in range(case["P"])]
    return rows, blocks(case, reduced(dict(case, count=rows[0].size), rows))


def allgather(case, given):
    mine = [given(r, n) for r, n in enumerate(counts_of(case))]
    return mine, [np.concatenate(mine)] * case["P"]


def gather(case, given):
    mine = [given(r, n) for r, n in enumerate(counts_of(case))]
    return mine, at_root(case, np.concatenate(mine))


def scatter(case, given):
    x = given(case["root"], sum(counts_of(case)))
    return at_root(case, x), blocks(case, x)


def alltoall(case, given):
    P = case["P"]
    table = case.get("table") or [[case["count"]] * P for _ in range(P)]       # [from][to]
    sent = [[given(s * 17 + d, table[s][d]) for d in range(P)] for s in range(P)]
    return [np.concatenate(row) for row in sent], [np.concatenate([sent[s][d] for s in range(P)]) for d in range(P)]


def scan(case, given):
    rows = [given(r, case["count"]) for r in range(case["P"])]
    last = [r if case["exclusive"] else r + 1 for r in range(case["P"])]
    return rows, [reduced(case, rows[:n]) if n else None for n in last]


def placement(case):
    """Of each block its owner, and the members that hold it: dense, or those of the case."""
    P = case["P"]
    owner = case.get("owner", list(range(P)))
    held = case.get("held", [[1] * P] * len(owner))
    return owner, [[m for m in range(P) if held[b][m] or m == owner[b]] for b in range(len(owner))]


def joined(arrays, dtype):
    return np.concatenate([np.zeros(0, dtype)] + arrays)


def sparse_allgather(case, given):
    (owner, held), n = placement(case), counts_of(case)
    block = [given(17 * b + owner[b], n[b]) for b in range(len(owner))]
    dtype = FORMATS[case["dtype"]]
    return tuple([joined([x for b, x in enumerate(block) if has(b, r)], dtype) for r in range(case["P"])]
                 for has in (lambda b, r: owner[b] == r, lambda b, r: r in held[b]))


def sparse_reduce_scatter(case, given):
    (owner, held), n = placement(case), counts_of(case)
    value = [{r: given(17 * b + r, n[b]) for r in held[b]} for b in range(len(owner))]
    total = [reduced(dict(case, count=n[b]), list(value[b].values())) for b in range(len(owner))]
    if case["reduction"] == "average":                              # of all P members, whoever holds the block
        total = [average([reduced(dict(case, count=n[b], reduction="sum"), list(value[b].values()))] +
                         [np.zeros_like(total[b])] * (case["P"] - 1)) for b in range(len(owner))]
    dtype = FORMATS[case["dtype"]]
    return ([joined([value[b][r] for b in range(len(owner)) if r in held[b]], dtype) for r in range(case["P"])],
            [joined([total[b] for b in range(len(owner)) if owner[b] == r], dtype) for r in range(case["P"])])


OPERATIONS = {"broadcast": broadcast, "reduce": reduce, "allreduce": allreduce, "reduce-scatter": reduce_scatter,
              "allgather": allgather, "alltoall": alltoall, "gather": gather, "scatter": scatter, "scan": scan,
              "sparse-allgather": sparse_allgather, "sparse-reduce-scatter": sparse_reduce_scatter}
REDUCING = ("reduce", "allreduce", "reduce-scatter", "scan", "sparse-reduce-scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
BLOCKS = ("reduce-scatter", "allgather", "gather", "scatter")


# ---- which cases ------------------------------------------------------------------------------------------------------------

def uneven(P):
    """Lengths of blocks: every third empty; all but the last empty; the first empty, the others of one element."""
    return [[(b * 5 + 3) % 7 * (b % 3 != 1) for b in range(P)], [PRIME if b == P - 1 else 0 for b in range(P)], [0] + [1] * (P - 1)]


def table(P):
    """Of an uneven all-to-all: who sends how much to whom, some of it nothing."""
    return [[(s * 3 + d * 5) % 7 for d in range(P)] for s in range(P)]


def sparse(P):
    """Some members own nothing; blocks with no target, with one, with all; an empty block; no block at all."""
    yield {"counts": [(b * 5 + 3) % 7 for b in range(2 * P + 1)], "owner": [b * b % P for b in range(2 * P + 1)],
           "held": [[int((b * 3 + m * 5) % 4 == 1) for m in range(P)] for b in range(2 * P + 1)]}
    yield {"counts": [4, 0, PRIME], "owner": [P - 1] * 3, "held": [[0] * P, [1] * P, [1] + [0] * (P - 1)]}
    yield {"counts": [], "owner": [], "held": []}


def cases(operation, P):
    """(name, how it is called, how inputs are drawn).  Formats and roots go round."""
    turn = P

    def case(what, kind=None, dtype=None, given=small, **fields):
        nonlocal turn
        dtype = dtype or FORMAT_LIST[turn % len(FORMAT_LIST)]
        call = {"operation": operation, "P": P, "dtype": dtype, "count": 0, **fields}
        if operation in REDUCING:
            call["reduction"] = kind or "sum"
        if operation in ROOTED:
            call["root"] = (turn + P - 1) % P
        if operation == "scan":
            call["exclusive"] = turn % 2 == 1
        turn += 1
        return f"P{P}-{what}-{dtype}".lower(), call, lambda member, count: given(member, count, FORMATS[dtype])

    for count in sorted({0, 1, P - 1, P + 1, PRIME}):
        yield case(f"{count}", count=count)
    if operation in BLOCKS:
        for i, counts in enumerate(uneven(P)):
            yield case(f"uneven{i}", counts=counts)
    if operation.startswith("sparse"):
        for i, fields in enumerate(sparse(P)):
            yield case(f"sparse{i}", **fields)
    if operation == "alltoall":
        yield case("uneven", table=table(P))
    if operation in REDUCING:
        for kind in ("max", "min", "product"):
            yield case(f"{PRIME}-{kind}", kind, given=factors if kind == "product" else small, count=PRIME)
        yield case(f"{PRIME}-wraps", "sum", "I32", huge, count=PRIME)
        yield case(f"{PRIME}-wraps", "sum", "U8", huge, count=PRIME)
        yield case(f"{PRIME}-max-nan", "max", "F32", some_nan, count=PRIME)
        yield case(f"{PRIME}-min-nan", "min", "F64", some_nan, count=PRIME)
    if operation in REDUCING and operation != "scan":               # nobody has defined the average of a part
        for dtype in ("F32", "F64", FORMAT_LIST[2 + P % 3]):
            yield case(f"{PRIME}-average", "average", dtype, count=PRIME)


def make(operation):
    """The tensors and the metadata of one file."""
    tensors, calls = {}, {}
    for P in SIZES:
        for name, case, given in cases(operation, P):
            assert name not in calls
            ins, outs = OPERATIONS[operation](case, given)
            calls[name] = case
            for side, arrays in (("in", ins), ("out", outs)):
                tensors.update({f"{name}/{side}/{r}": x for r, x in enumerate(arrays) if x is not None})
    return tensors, {"generator": "golden/make_collectives.py", "numpy": np.__version__, "cases": json.dumps(calls, separators=(",", ":"))}


# ---- files -------------------------------------------------------------------------------------------------------------------

def path_of(operation):
    return FOLDER / f"{operation}.safetensors"


def compare(operation):
    """Print what differs.  Returns whether the stored file holds."""
    (new, new_meta), (old, old_meta) = make(operation), tensor_file.read(path_of(operation))
    wrong = [f"metadata {key} differs" for key in ("generator", "cases") if new_meta[key] != old_meta.get(key)]
    wrong += [f"{key}: in one of the two only" for key in sorted(set(new) ^ set(old))]
    wrong += [f"{key} differs" for key in old if key in new and (new[key].dtype, new[key].tobytes()) != (old[key].dtype, old[key].tobytes())]
    if not tensor_file.checksum_holds(HERE, path_of(operation)):
        wrong.append("MANIFEST has another checksum")
    for line in wrong:
        print(f"  collectives/{operation}: {line}")
    if not wrong:
        print(f"  collectives/{operation}: {len(old)} tensors, every bit the same")
    return not wrong


def main():
    arguments = argparse.ArgumentParser(description="Make the golden cases of collectives with numpy.")
    arguments.add_argument("--check", action="store_true", help="compare with the stored files instead of writing them")
    if arguments.parse_args().check:
        return 0 if all([compare(operation) for operation in OPERATIONS]) else 1
    FOLDER.mkdir(exist_ok=True)
    for operation in OPERATIONS:
        tensor_file.write(path_of(operation), *make(operation))
    tensor_file.note_checksums([path_of(operation) for operation in OPERATIONS], HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
