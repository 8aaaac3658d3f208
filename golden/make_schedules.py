#!/usr/bin/env python3
"""Golden pipeline schedules: what each device does in order, and when, from the papers' definitions.

    golden/make_schedules.py                       write golden/schedules/* and their lines of golden/MANIFEST
    golden/make_schedules.py --check               make them again and compare, line by line
    golden/make_schedules.py --regression ORRERY   also write anew the orders that our own generators make (REGRESSION below)

Nothing here is shared with the C.  The orders of INDEPENDENT are written from the papers as rules for a device: what it does next,
given what it has done.  Those of REGRESSION, most of them found by search, are what Orrery made once, and only guard against change.
The times of both are computed here, by relaxation: the least times at which everything waits for what it needs.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

try:
    import tensor_file
except ImportError as missing:
    sys.exit(f"make_schedules.py: {missing}; golden/README.md says what to install")

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "schedules"
TIMES = ({"F": 1, "I": 1, "W": 1, "U": 0, "message": 0}, {"F": 3, "I": 4, "W": 2, "U": 1, "message": 5})
PER_LINE = 12                                   # actions in a line of a file


# ---- a schedule ------------------------------------------------------------------------------------------------------------

class Schedule:
    """Who holds which stage, and what each device computes: (kind, microbatch, chunk)."""

    def __init__(self, name, P, M, place, order, update=None):
        self.name, self.P, self.M, self.place, self.update = name, P, M, place, update
        self.stages = max(stage for stages in place for stage in stages) + 1
        self.twice = sum(len(stages) for stages in place) > self.stages         # two pipelines, even microbatches in the first
        self.lists = [list(self.with_messages(d, [a for a in order(d) if a[1] < M])) for d in range(P)]

    def holder(self, stage, micro):
        """The device and chunk that compute a stage for a microbatch; none before the first stage and after the last."""
        found = [(d, c) for d, stages in enumerate(self.place) for c, s in enumerate(stages) if s == stage and (not self.twice or c == micro % 2)]
        return found[0] if found else (None, None)

    def with_messages(self, d, computations):
        """Each with its receive right before it and its send right after it, where the neighbour is another device."""
        for kind, micro, chunk in computations:
            stage, way = self.place[d][chunk], {"F": ("a", 1), "B": ("g", -1), "I": ("g", -1)}.get(kind)
            source, target = (self.holder(stage - way[1], micro)[0], self.holder(stage + way[1], micro)[0]) if way else (None, None)
            if source not in (None, d):
                yield "r" + way[0], micro, chunk, source
            yield kind, micro, chunk, None
            if target not in (None, d):
                yield "s" + way[0], micro, chunk, target

    def lines(self):
        """The file: docs/parallelism/schedules.md."""
        chunks = len(self.place[0])
        yield from ("orrery schedule 1", f"name {self.name}", f"devices {self.P}", f"micros {self.M}", f"chunks {chunks}")
        if self.update:
            yield from (f"update {self.update}", "versions 2")
        yield from (f"place {d}: {' '.join(map(str, stages))}" for d, stages in enumerate(self.place))
        if self.twice:
            yield "routes 2"
            for route in (0, 1):
                yield f"route {route}: " + " ".join("%d.%d" % self.holder(stage, route) for stage in range(self.stages))
            yield "takes 1: " + " ".join(str(m) for m in range(1, self.M, 2))
        for d, actions in enumerate(self.lists):
            for i in range(0, len(actions), PER_LINE):
                yield f"device {d}: " + " ".join(word(a, chunks) for a in actions[i:i + PER_LINE])


def word(action, chunks):
    kind, micro, chunk, peer = action
    mark = "" if peer is None else (">" if kind[0] == "s" else "<") + str(peer)
    return f"{kind}{micro}{f'.{chunk}' if chunks > 1 else ''}{mark}"


# ---- one chunk on each device: what a device does next ----------------------------------------------------------------------

def one_chunk(M, held, waiting=None):
    """Backward as soon as `held` microbatches have gone forward and not come back, else forward; where backwards are in two parts,
    the weights' part as soon as more than `waiting` of them wait."""
    done = {"F": 0, "I": 0, "W": 0}

    def do(kind):
        done[kind] += 1
        return ("B" if kind == "I" and waiting is None else kind), done[kind] - 1, 0

    while done["I"] < M or (waiting is not None and done["W"] < M):
        late = done["I"] - done["W"]
        if waiting is not None and (late > waiting or (done["I"] == M and late)):
            yield do("W")
        elif done["F"] < M and done["F"] - done["I"] < held:
            yield do("F")
        else:
            yield do("I")


def in_turn(P):
    return [[d] for d in range(P)]


def gpipe(P, M):
    """arXiv:1811.06965, figure 2c; backwards from the first microbatch on."""
    return Schedule("gpipe", P, M, in_turn(P), lambda d: one_chunk(M, M))


def one_f_one_b(P, M):
    """arXiv:2104.04473, figure 4, top: at most P-d microbatches on device d."""
    return Schedule("1f1b", P, M, in_turn(P), lambda d: one_chunk(M, P - d))


def zb_h1(P, M):
    """arXiv:2401.10241, section 2.1: 1F1B, and as many weight gradients wait as hold P microbatches on every device."""
    return Schedule("zb-h1", P, M, in_turn(P), lambda d: one_chunk(M, P - d, d))


def zb_h2(P, M):
    """arXiv:2401.10241, section 2.2: 2P-1 microbatches on every device, at first all going forward on device 0."""
    return Schedule("zb-h2", P, M, in_turn(P), lambda d: one_chunk(M, 2 * (P - d) - 1, 2 * d))


def pipedream_2bw(P, M, update):
    """arXiv:2006.09503, section 3.1: 1F1B, and a step of the optimizer after each batch's last backward."""
    def order(d):
        for action in one_chunk(M, P - d):
            yield action
            if action[0] == "B" and (action[1] + 1 == M or (action[1] + 1) % update == 0):
                yield "U", action[1], 0
    return Schedule("pipedream-2bw", P, M, in_turn(P), order, update)


# ---- several chunks: loops, and two streams ----------------------------------------------------------------------------------

def looped(P, v):
    return [[d + c * P for c in range(v)] for d in range(P)]


def interleaved(P, M, v):
    """arXiv:2104.04473, section 2.2: groups of microbatches, each through all chunks; 2(P-1-d) + (v-1)G forwards first, G of the
    first group.  As many groups as hold P each, the larger ones first."""
    groups = max(1, M // P)
    sizes = [len(range(g, M, groups)) for g in range(groups)]
    of = [g for g, size in enumerate(sizes) for _ in range(size)]

    def order(d):
        forwards = sorted(((of[m], c, m, m) for m in range(M) for c in range(v)))
        backwards = sorted(((of[m], -c, m, m) for m in range(M) for c in range(v)))
        first = min(P - 1 - d if v == 1 else 2 * (P - 1 - d) + (v - 1) * sizes[0], len(forwards))
        backs = iter(backwards)
        for i, (_, c, _, m) in enumerate(forwards):
            yield "F", m, c
            if i >= first:
                _, c, _, m = next(backs)
                yield "B", m, -c
        yield from (("B", m, -c) for _, c, _, m in backs)
    return Schedule("interleaved", P, M, looped(P, v), order)


def bfs(P, M, v):
    """arXiv:2211.05953, figure 4d: all microbatches through a chunk before the next chunk."""
    def order(d):
        yield from (("F", m, c) for c in range(v) for m in range(M))
        yield from (("B", m, c) for c in reversed(range(v)) for m in range(M))
    return Schedule("bfs", P, M, looped(P, v), order)


STEPS = "F0, F0 F1, I1 W F1, F0 B1 F1 B0, B1 F1 B0, B1 B0, W I0, W".split(", ")


def two_streams(end, length, n, micro, chunk):
    """DualPipe's eight steps (arXiv:2412.19437, figure 5; their counts: github.com/deepseek-ai/DualPipe).  `end`: distance from the
    nearer end of a pipeline that turns round after `length` devices; micro(stream, i): the stream's i-th microbatch."""
    out, back = length - 1 - end, end + 1
    done, waiting = {}, []
    left = 2 * back                             # backwards of the sixth step; the last half of them is for the input alone
    for words, times in zip(STEPS, (2 * out, back, out, n - 2 * length + back, out, back, out, back)):
        for word in times * words.split():
            if word == "W":
                yield ("W", *waiting.pop(0))
                continue
            kind, stream = word[0], int(word[1])
            if words == "B1 B0":
                kind, left = "I" if left <= back else "B", left - 1
            way = (kind == "F", stream)
            done[way] = done.get(way, 0) + 1
            what = micro(stream, done[way] - 1), chunk(stream)
            waiting += [what] if kind == "I" else []
            yield (kind, *what)


def dualpipe(P, M):
    """Even microbatches from device 0 on, odd ones from device P-1."""
    n = max(-(-M // 2), P)

    def order(d):
        side = int(d >= P // 2)
        return two_streams(min(d, P - 1 - d), P // 2, n, lambda s, i: 2 * i + (s ^ side), lambda s: s ^ side)
    return Schedule("dualpipe", P, M, [[d, P - 1 - d] for d in range(P)], order)


def dualpipev(P, M):
    """Half of it, folded: the program's dualpipev.py."""
    return Schedule("dualpipev", P, M, [[d, 2 * P - 1 - d] for d in range(P)],
                    lambda d: two_streams(d, P, max(M, 2 * P), lambda s, i: i, lambda s: s))


# Fewer microbatches than devices, odd ones, numbers that the schedule was not drawn for (there, those missing are struck out).
INDEPENDENT = {
    **{f"{name}-p{P}-m{M}": (make, P, M) for P, M in ((2, 3), (4, 9), (5, 2))
       for name, make in (("gpipe", gpipe), ("1f1b", one_f_one_b), ("zb-h1", zb_h1), ("zb-h2", zb_h2))},
    **{f"pipedream-2bw-p{P}-m{M}": (pipedream_2bw, P, M, update) for P, M, update in ((2, 5, 3), (4, 9, 4))},
    **{f"interleaved-p{P}-m{M}-v{v}": (interleaved, P, M, v) for P, M, v in ((2, 4, 2), (4, 8, 3), (3, 5, 2), (3, 4, 1))},
    **{f"bfs-p{P}-m{M}-v{v}": (bfs, P, M, v) for P, M, v in ((2, 3, 2), (4, 5, 3))},
    **{f"dualpipe-p{P}-m{M}": (dualpipe, P, M) for P, M in ((2, 4), (4, 10), (4, 3), (6, 12))},
    **{f"dualpipev-p{P}-m{M}": (dualpipev, P, M) for P, M in ((2, 4), (3, 7), (3, 2))},
}
REGRESSION = {f"{name}-p{P}-m{M}": (name, P, M) for name, P, M in (
    ("zb-1p", 4, 9), ("zb-2p", 4, 9), ("zb-v", 3, 6), ("zb-v", 4, 3), ("v-half", 4, 6), ("v-half", 3, 5), ("v-min", 4, 6), ("v-min", 3, 5),
    ("chimera", 4, 8), ("chimera", 4, 3), ("skippipe", 5, 6))}


# ---- times -----------------------------------------------------------------------------------------------------------------------

def read_lists(lines):
    """Each device's actions as (kind, microbatch, stage, peer, word), from a file's lines."""
    lists, place = {}, {}
    for line in lines:
        key, _, rest = line.partition(":")
        if key.startswith("place "):
            place[int(key[6:])] = rest.split()
        if not key.startswith("device "):
            continue
        d = int(key[7:])
        for text in rest.split():
            kind = text[:2] if text[0] in "sr" else text[0]
            number, _, peer = text[len(kind):].replace(">", "<").partition("<")
            micro, _, chunk = number.partition(".")
            lists.setdefault(d, []).append((kind, int(micro), int(place[d][int(chunk or 0)]), int(peer or -1), text))
    return lists


def partner(lists):
    """The send that each receive waits for: matched in order by (kind, microbatch, from, to)."""
    sends = {}
    for d, actions in lists.items():
        for i, (kind, micro, _, peer, _) in enumerate(actions):
            if kind[0] == "s":
                sends.setdefault((kind[1], micro, d, peer), []).append((d, i))
    for d, actions in lists.items():
        for i, (kind, micro, _, peer, _) in enumerate(actions):
            if kind[0] == "r":
                yield (d, i), sends[kind[1], micro, peer, d].pop(0)


def relax(lists, times):
    """Start and end of every action: from 0, later and later until nothing waits for less than it needs."""
    cost = {**times, "B": times["I"] + times["W"]}
    sent_by = dict(partner(lists))
    end = {(d, i): 0 for d, actions in lists.items() for i in range(len(actions))}
    for _ in range(len(end) + 1):
        changed = False
        for (d, i), was in end.items():
            kind, now = lists[d][i][0], end.get((d, i - 1), 0)
            if kind[0] == "r":
                now = max(now, end[sent_by[d, i]] + times["message"])
            else:
                now += cost.get(kind, 0)
            changed |= now != was
            end[d, i] = now
        if not changed:
            return {(d, i): (end.get((d, i - 1), 0), e) for (d, i), e in end.items()}
    raise AssertionError("the schedule does not come to its end")


def event_lines(name, lines):
    lists = read_lists(lines)
    at = [relax(lists, times) for times in TIMES]
    yield from ("orrery events 1", f"schedule {name}.txt")
    yield from ("times " + " ".join(f"{key}={value}" for key, value in times.items()) for times in TIMES)
    yield "# device action, start and end with the first times, start and end with the second"
    for d, actions in sorted(lists.items()):
        for i, action in enumerate(actions):
            yield f"{d} {action[-1]} " + " ".join("%d %d" % times[d, i] for times in at)


# ---- files -----------------------------------------------------------------------------------------------------------------------

def stored(path):
    return path.read_text().splitlines() if path.exists() else []


def ask(orrery, name, P, M):
    """What our own generator makes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "schedule.txt"
        subprocess.run([orrery, "show", "schedule", name, "--pp", str(P), "--micro", str(M), "--save", path], check=True, stdout=subprocess.DEVNULL)
        return stored(path)


def files(orrery=None):
    """Path -> lines.  Without ORRERY regression orders are the stored ones."""
    out = {}
    for name in [*INDEPENDENT, *REGRESSION]:
        path = FOLDER / f"{name}.txt"
        if name in INDEPENDENT:
            make, *numbers = INDEPENDENT[name]
            lines = list(make(*numbers).lines())
        else:
            lines = ask(orrery, *REGRESSION[name]) if orrery else stored(path)
        out[path], out[path.with_suffix(".events")] = lines, list(event_lines(name, lines))
    return out


def compare(path, new):
    """Print the first line that differs.  Returns whether the stored file holds."""
    old = stored(path)
    at = next((i for i, (a, b) in enumerate(zip(new, old)) if a != b), min(len(new), len(old)))
    good = at == len(new) == len(old)
    if not good:
        shown = [lines[at] if at < len(lines) else "nothing" for lines in (old, new)]
        print(f"  schedules/{path.name}:{at + 1}: stored \"{shown[0]}\", made \"{shown[1]}\"")
    if not tensor_file.checksum_holds(HERE, path):
        print(f"  schedules/{path.name}: MANIFEST has another checksum")
        good = False
    return good


def check(new):
    extra = sorted(set(FOLDER.iterdir()) - set(new))
    for path in extra:
        print(f"  schedules/{path.name}: nothing makes it")
    good = all([compare(path, lines) for path, lines in new.items()]) and not extra
    if good:
        print(f"  schedules: {len(new)} files, every line the same")
    return good


def main():
    arguments = argparse.ArgumentParser(description="Make the golden pipeline schedules.")
    arguments.add_argument("--check", action="store_true", help="compare with the stored files instead of writing them")
    arguments.add_argument("--regression", metavar="ORRERY", help="the program that makes the orders of which nothing else is known")
    options = arguments.parse_args()
    new = files(options.regression)
    if options.check:
        return 0 if check(new) else 1
    FOLDER.mkdir(exist_ok=True)
    for path, lines in new.items():
        path.write_text("".join(line + "\n" for line in lines))
    tensor_file.note_checksums(list(new), HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
