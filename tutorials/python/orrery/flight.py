"""Who is slow, and who hangs, by flight-recorder dumps of PyTorch: what `orrery diagnose` says of its own runs.

    python3 -m orrery.diagnose FOLDER        # or: orrery.diagnose_pytorch("folder")

A dump is the pickle of one rank that PyTorch writes at a timeout (TORCH_FR_DUMP_TEMP_FILE, earlier TORCH_NCCL_DEBUG_INFO_TEMP_FILE),
or torch._C._distributed_c10d._dump_fr_trace() returns, also of gloo.  The file's name ends with the rank.  It is read without
PyTorch, by a reader that builds only containers, numbers and strings.  Fields are those of versions 2.0 to 2.10.

Unlike the records of Orrery, dumps have times of the wall clock.  `time_created_ns` of different hosts are compared as they are, so
their clocks must agree to a few milliseconds; waits (from start to end of a collective) are of one clock each.
"""

import os
import re
import statistics

from orrery import restricted

SLOW_DELAY = 1.5  # a link's or card's messages take so many times what the others' do (check/slow/slow.h)
LATE_SHARE = 0.25  # a device comes later by this share of the usual time from call to call (SLOW_PACE of slow.h)
OFTEN = 0.5  # in this share of the calls
LEAST_CALLS = 3


class _Rank:
    """A rank's entries by process group and number."""

    def __init__(self, path):
        self.path = path
        digits = re.findall(r"\d+", os.path.basename(path))
        if not digits:
            raise ValueError(f"{path}: its name does not end with a rank")
        self.rank = int(digits[-1])
        dump = restricted.load_file(path)
        if not isinstance(dump, dict) or not isinstance(dump.get("version"), str) or not isinstance(dump.get("entries", []), list):
            raise ValueError(f"{path}: is no dump of PyTorch's flight recorder")
        if not re.fullmatch(r"2\.\d{1,3}", dump["version"]):
            raise ValueError(f"{path}: is of version {dump['version'][:20]}; versions 2.x are read")
        self.groups = {}
        for name, config in (dump.get("pg_config") or {}).items():
            members = config.get("ranks", "") if isinstance(config, dict) else ""
            members = members if isinstance(members, (list, tuple)) else re.findall(r"\d+", str(members))
            self.groups[str(name)] = [int(one) for one in members]
        self.calls, self.messages = {}, []
        for entry in dump.get("entries", []):
            self._take(entry)

    def _take(self, entry):
        try:
            group = entry["process_group"]
            group = str(group[0] if isinstance(group, (list, tuple)) else group)
            call = {
                "name": str(entry["profiling_name"]),
                "number": int(entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"]),
                "created": int(entry["time_created_ns"]),
                "started": entry.get("time_discovered_started_ns"),
                "ended": entry.get("time_discovered_completed_ns"),
                "done": bool(entry.get("retired")) or entry["state"] == "completed",
                "sizes": entry.get("input_sizes"),
                "ms": entry.get("duration_ms"),
            }
        except (KeyError, TypeError, ValueError, IndexError):
            raise ValueError(f"{self.path}: an entry lacks what each entry has") from None
        if entry.get("is_p2p"):
            self.messages.append(call)
        else:
            self.calls.setdefault(group, {})[call["number"]] = call


def _finding(kind, part, rank, other, sentence):
    return {"class": kind, "part": part, "device": rank, "other": other, "sentence": sentence}


def _names(ranks):
    ranks = sorted(ranks)
    shown = ", ".join(str(r) for r in ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return ("rank " if len(ranks) == 1 else "ranks ") + shown


def _members(ranks, group):
    """Ranks of a group that have dumps, and those that should have one."""
    with_calls = {r for r, one in ranks.items() if group in one.calls}
    listed = {m for one in ranks.values() for m in one.groups.get(group, [])}
    if not listed:  # gloo's default group is listed under an empty name
        listed = {m for one in ranks.values() for m in one.groups.get("", [])} if with_calls else set()
    return with_calls | (listed & set(ranks)), listed - set(ranks)


def _first_open(calls):
    """The first call that has not ended.  Calls of a group end in order, so one before another that has ended has ended, too."""
    ended = max((n for n, call in calls.items() if call["done"]), default=-1)
    return min((n for n, call in calls.items() if n > ended), default=None)


def _hangs(ranks, group):
    members, absent = _members(ranks, group)
    last = {r: max(ranks[r].calls.get(group, {}), default=0) for r in members}
    waiting = {r: _first_open(ranks[r].calls.get(group, {})) for r in members}
    stuck = [n for n in waiting.values() if n is not None]
    if not stuck:
        return []
    number = min(stuck)
    inside = [r for r in members if waiting[r] == number]
    call = ranks[inside[0]].calls[group][number]
    begun = {r: ranks[r].calls[group][number] for r in members if number in ranks[r].calls.get(group, {})}
    differ = [r for r, c in begun.items() if c["name"] != statistics.mode(x["name"] for x in begun.values())]
    if differ:
        r, usual = differ[0], statistics.mode(x["name"] for x in begun.values())
        return [_finding("hangs in communication", "device", r, -1,
                         f"rank {r} calls {begun[r]['name']} as number {number} of group {group}, where others call {usual}: "
                         f"they wait for each other")]
    missing = [r for r in members if last[r] < number]
    if missing or absent:
        who = missing or sorted(absent)
        r = who[0]
        evidence = (f"its last of {last[r]} calls has returned" if missing else "it has left no dump")
        return [_finding("hangs outside communication", "device", r, -1,
                         f"{_names(who)} hang{'s' if len(who) == 1 else ''} outside communication: {call['name']} number {number} of "
                         f"group {group} waits in {_names(inside)}, and {'it' if len(who) == 1 else 'they'} never came to it; {evidence}")]
    done = [r for r in members if r not in inside]
    text = f", and {_names(done)} {'has' if len(done) == 1 else 'have'} left it" if done else ""
    return [_finding("hangs in communication", "device", inside[0] if len(inside) == 1 else -1, -1,
                     f"all {len(members)} ranks of group {group} have begun {call['name']} number {number}, and it ends not on "
                     f"{_names(inside)}{text}")]


def _late(ranks, group):
    """The rank that comes last again and again, so that it waits least."""
    members, _ = _members(ranks, group)
    common = set.intersection(*(set(ranks[r].calls.get(group, {})) for r in members)) if len(members) > 1 else set()
    numbers = sorted(common)
    if len(numbers) < LEAST_CALLS:
        return []
    came = {n: {r: ranks[r].calls[group][n]["created"] for r in members} for n in numbers}
    first = {n: min(came[n].values()) for n in numbers}
    steps = [first[b] - first[a] for a, b in zip(numbers, numbers[1:])]
    usual = statistics.median(steps)
    findings = []
    for r in sorted(members):
        others = {n: max(t for m, t in came[n].items() if m != r) for n in numbers}
        behind = [came[n][r] - others[n] for n in numbers if came[n][r] - others[n] > LATE_SHARE * usual]
        if usual <= 0 or len(behind) < max(LEAST_CALLS, OFTEN * len(numbers)):
            continue
        waits = {m: statistics.median(c["ended"] - c["started"] for c in (ranks[m].calls[group][n] for n in numbers)
                                      if c["ended"] and c["started"]) if all(
            ranks[m].calls[group][n]["ended"] and ranks[m].calls[group][n]["started"] for n in numbers) else None for m in members}
        least = ""
        if all(w is not None for w in waits.values()):
            if waits[r] > min(waits.values()):
                continue  # it comes last and waits: the network is slow, not the device
            most = max(w for m, w in waits.items() if m != r)
            least = f" and waits least: {waits[r] / 1e6:.3f} ms in a call, others up to {most / 1e6:.3f} ms"
        findings.append(_finding("slow outside communication", "device", r, -1,
                                 f"rank {r} is slow outside communication: it comes last to {len(behind)} of {len(numbers)} calls of "
                                 f"group {group}, {statistics.median(behind) / 1e6:.3f} ms after all others{least}"))
    return findings


def _median_low(numbers):
    return statistics.median_low(numbers) if numbers else 0


def _delays(ranks):
    """Matrix of delays out of receives with a duration: row = sender, column = receiver, ns a byte."""
    cells = {}
    for one in ranks.values():
        for call in one.messages:
            match = re.search(r"recv (\d+)\s*<-\s*(\d+)", call["name"])
            took = call["ms"] * 1e6 if call["ms"] else (
                call["ended"] - call["started"] if call["ended"] and call["started"] else None)
            if match is None or took is None or not call["sizes"]:
                continue
            numbers = 1
            for n in call["sizes"][0]:
                numbers *= int(n)
            cells.setdefault((int(match[2]), int(match[1])), []).append(took / max(numbers, 1))
    return {pair: statistics.median(all_of) for pair, all_of in cells.items()}


def _slow_links(ranks):
    """As check/slow/slow_step.c: whole hot rows, then whole hot columns, then cells."""
    cells = _delays(ranks)
    median = _median_low(list(cells.values()))
    left, findings = dict(cells), []
    if median <= 0:
        return []
    for sends in (True, False):
        for r in sorted({pair[0 if sends else 1] for pair in cells}):
            line = {pair: t for pair, t in left.items() if pair[0 if sends else 1] == r}
            if len(line) < 2 or any(t < SLOW_DELAY * median for t in line.values()):
                continue
            times = statistics.mean(line.values()) / median
            part = "card that sends" if sends else "card that receives"
            findings.append(_finding("slow in communication", part, r, -1,
                                     f"the card of rank {r} is slow in {'sending' if sends else 'receiving'}: messages "
                                     f"{'to' if sends else 'from'} each of {len(line)} ranks take {times:.1f} times as long as others"))
            for pair in line:
                del left[pair]
    for (a, b), t in sorted(left.items()):
        if t >= SLOW_DELAY * median:
            alone = sum(p[0] == a for p in left) < 2 or sum(p[1] == b for p in left) < 2
            findings.append(_finding("slow in communication", "link or a card" if alone else "link", a, b,
                                     f"the link from rank {a} to rank {b} is slow{', or a card at its ends' if alone else ''}: messages take "
                                     f"{t / median:.1f} times as long as others"))
    return findings


def diagnose_pytorch(folder):
    """What is slow or hangs, by all dumps of a folder: a list of dicts with class, part, device, other and sentence.

    A hang comes first and alone.  Raises ValueError, in one line, if a file is no dump or names anything beside containers, numbers
    and strings: then nothing of it was run.
    """
    paths = sorted(os.path.join(folder, name) for name in os.listdir(folder)) if os.path.isdir(folder) else [folder]
    paths = [path for path in paths if os.path.isfile(path) and not path.endswith((".json", ".txt"))]
    if not paths:
        raise ValueError(f"{folder}: has no dumps")
    ranks = {}
    for path in paths:
        one = _Rank(path)
        if one.rank in ranks:
            raise ValueError(f"{path}: is the second dump of rank {one.rank}, beside {ranks[one.rank].path}")
        ranks[one.rank] = one
    groups = sorted({group for one in ranks.values() for group in one.calls})
    hangs = [finding for group in groups for finding in _hangs(ranks, group)]
    if hangs:
        return hangs
    return [finding for group in groups for finding in _late(ranks, group)] + _slow_links(ranks)
