"""The groups of parallel folding, by Megatron Core's own generator.  Usage: python make_folding.py [--check] [folding.txt]

Needs megatron-core 0.16.1 (pip install --no-deps) and torch, which it imports; nothing runs on a GPU.
Each line is a shape and one of its groups: devices tp cp pp ep etp, the axis, then the ranks.  Axes of attention are tp,
cp, dp, pp and dp-cp, whose devices sum gradients; of the experts etp, ep, edp and epp, their pipeline.
"""
import os
import sys

from megatron.core.parallel_state import RankGenerator

ORDER = "tp-cp-ep-dp-pp"                # the default of initialize_model_parallel
SHAPES = [                              # devices, tp, cp, pp, ep, etp
    (64, 2, 2, 2, 2, 2), (8, 2, 2, 1, 8, 1), (8, 2, 2, 1, 4, 2), (8, 2, 2, 1, 2, 2), (8, 1, 4, 2, 2, 2),
    (24, 3, 2, 2, 2, 3), (12, 2, 3, 1, 6, 1), (32, 4, 2, 2, 16, 1), (16, 4, 1, 1, 2, 1), (6, 1, 1, 2, 3, 1),
]


def generators(world, tp, cp, pp, ep, etp):
    attention = RankGenerator(tp=tp, ep=1, dp=world // (tp * cp * pp), pp=pp, cp=cp, order=ORDER)
    experts = RankGenerator(tp=etp, ep=ep, dp=world // (etp * ep * pp), pp=pp, cp=1, order=ORDER)
    yield from (("tp", attention, "tp"), ("cp", attention, "cp"), ("dp", attention, "dp"), ("pp", attention, "pp"),
                ("dp-cp", attention, "dp-cp"), ("etp", experts, "tp"), ("ep", experts, "ep"), ("edp", experts, "dp"),
                ("epp", experts, "pp"))


def lines():
    for shape in SHAPES:
        for name, generator, token in generators(*shape):
            for ranks in generator.get_ranks(token):
                yield " ".join(map(str, shape)) + f" {name} " + " ".join(map(str, ranks)) + "\n"


def main():
    words = [w for w in sys.argv[1:] if w != "--check"]
    path = words[0] if words else os.path.join(os.path.dirname(os.path.abspath(__file__)), "folding.txt")
    text = "# groups of devices, by Megatron Core 0.16.1: make_folding.py\n" + "".join(lines())
    if "--check" in sys.argv:
        with open(path) as f:
            sys.exit(0 if f.read() == text else f"{path}: not what Megatron Core makes")
    with open(path, "w") as f:
        f.write(text)


main()
