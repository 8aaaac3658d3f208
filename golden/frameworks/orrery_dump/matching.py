"""A map of names for a model whose parameters have names of its own: by numbers, by shape, and by order.

A parameter that has the numbers of one weight of the golden file's start is that weight.  Where numbers say nothing, as those of new norms, the shape may.
Where several have one shape, as queries and the output of attention, the order in which both list them is a guess: such a map is shown and not used.
"""
import re
from dataclasses import dataclass, field

import numpy as np

from .errors import DumpError
from .layouts import of_parts
from .start import says_nothing, same, values_of

NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass
class Target:
    """A weight that a parameter may be: one of the golden file's, or the part of one that files have by itself."""
    name: str
    ours: str
    rows: np.ndarray                            # of ours
    columns: int

    def shapes(self):
        return (len(self.rows), self.columns), ((len(self.rows),) if self.columns == 1 else (self.columns, len(self.rows)))


@dataclass
class Proposal:
    names: dict = field(default_factory=dict)   # theirs -> target's name
    how: dict = field(default_factory=dict)     # theirs -> "numbers", "shape", "order", "none"
    others: dict = field(default_factory=dict)  # theirs -> names of further candidates


def starred(name):
    """(a name with stars for the numbers in it, the numbers)"""
    return NUMBER.sub("*", name), tuple(NUMBER.findall(name))


def cut(values, shape, tp):
    """The parts of a whole that a rank may have of it, with this shape: the whole, or its share of rows or columns."""
    if values.shape == shape or (values.shape[1] == 1 and values.shape[:1] == shape):
        yield values
    for axis in (0, 1) if tp and tp[0] > 1 and len(shape) == 2 else (0,) if tp and tp[0] > 1 else ():
        if axis < values.ndim and values.shape[axis] > 1:
            part = np.take(values, of_parts((values.shape[axis],), *tp), axis)
            if part.shape == shape or (part.shape[1] == 1 and part.shape[:1] == shape):
                yield part


def fits(shape, target, tp):
    """Whether a parameter of this shape may be a target, or a rank's share of it, as it is or transposed."""
    whole = np.empty((len(target.rows), target.columns), np.bool_)
    return any(True for t in ((whole,) if target.columns == 1 else (whole, whole.T)) for _ in cut(t, tuple(shape), tp))


def has_numbers(p, target, start, tp):
    """Whether a parameter has the numbers of a target.  None: nobody can tell."""
    values, near = values_of(p)
    whole = start.weight(target.ours)
    if values is None or whole is None or says_nothing(values):
        return None
    whole = whole[target.rows]
    return any(same(values, part, near) for t in (whole, whole.T) for part in cut(t, tuple(values.shape), tp))


def propose(parameters, targets, start, tp=None):
    """@return Proposal.  parameters: {name: tensor}, in the model's order; targets: in the golden file's order; tp: (ranks, this one's place)."""
    result, left = Proposal(), {}
    for name, p in parameters.items():
        possible = [t for t in targets if fits(p.shape, t, tp)]
        told = {t.name: has_numbers(p, t, start, tp) for t in possible}
        equal = [t for t in possible if told[t.name]]
        if len(equal) == 1:
            result.names[name], result.how[name] = equal[0].name, "numbers"
        else:
            left[name] = equal or possible
    for name in list(result.names):
        _take(left, next(t for t in targets if t.name == result.names[name]))
    _by_shape(result, left)
    _by_order(result, left)
    return result


def _take(left, taken):
    """A target that is taken is no other parameter's; nor is a part of it, or what it is a part of."""
    for name, possible in left.items():
        left[name] = [t for t in possible if t.name != taken.name and not (t.ours == taken.ours and taken.ours in (t.name, taken.name))]


def _patterns(left):
    """[(names with one pattern, patterns of targets that each of them may be)]: parameters of all layers at once."""
    of = {}
    for name in left:
        of.setdefault(starred(name)[0], []).append(name)
    for names in of.values():
        possible = [[starred(t.name)[0] for t in left[n]] for n in names]
        yield names, [t for t in dict.fromkeys(possible[0]) if all(p.count(t) == len(names) for p in possible)]


def _give(result, left, names, pattern, how, others=()):
    """Targets of a pattern, in order, are those of the parameters."""
    of = [t for t in left[names[0]] if pattern and starred(t.name)[0] == pattern]
    for k, name in enumerate(names):
        result.how[name], result.others[name] = how, list(others)
        if of:
            result.names[name] = of[k].name
    for name in names:
        del left[name]
    for t in of:
        _take(left, t)


def _by_shape(result, left):
    """Those that only one pattern of the golden file fits, as long as there are some."""
    while True:
        found = next(((names, common[0]) for names, common in _patterns(left) if len(common) == 1), None)
        if found is None:
            return
        _give(result, left, *found, "shape")


def _by_order(result, left):
    """Those of one shape: as many of theirs as of the golden file's are taken in the order of both lists."""
    groups = {}
    for names, common in _patterns(left):
        groups.setdefault(tuple(common), []).append(names)
    for common, members in groups.items():
        for i, names in enumerate(members):
            target = common[i] if len(members) == len(common) else None
            _give(result, left, names, target, "order" if target else "none", [t for t in common if t != target])


def rows_of_text(proposal):
    """[(pattern, target, how, others)] with layers together where their numbers are the same in both."""
    rows = {}
    for theirs, how in proposal.how.items():
        target = proposal.names.get(theirs)
        (a, of_a), (b, of_b) = starred(theirs), starred(target) if target else (None, ())
        key = (a, b) if target is None or of_a == of_b else (theirs, target)
        rows.setdefault(key, (how, [starred(o)[0] for o in proposal.others.get(theirs, [])]))
    return [(a, b, *rest) for (a, b), rest in rows.items()]


def text_of(proposal):
    """The map as Python, to be pasted; what is only a guess says so."""
    rows = rows_of_text(proposal)
    width = max(len(f'"{a}": "{b}",') for a, b, _, _ in rows)
    lines = []
    for a, b, how, others in rows:
        entry = f'"{a}": "{b}",' if b else f'# "{a}":'
        note = {"numbers": "", "shape": "", "order": "by order; it may also be ", "none": "one of "}[how]
        lines.append("    " + (entry.ljust(width) + "  # " + note + ", ".join(others or ["nothing that is left"]) if note else entry))
    return "names={\n" + "\n".join(lines) + "\n}"


def chosen(proposal):
    """The map, if nothing in it is a guess.  @raise DumpError with the map to be looked at and given"""
    guesses = [n for n, how in proposal.how.items() if how in ("order", "none")]
    if not guesses:
        return proposal.names
    seen = sum(how == "numbers" for how in proposal.how.values())
    numbers = f"{seen} of {len(proposal.how)} are told by their numbers" if seen else "none has the numbers of the golden file's start, which the model should have before"
    raise DumpError(f"the model's parameters have names of its own, and which is which is not clear for {len(guesses)}, first {guesses[0]}; {numbers}. "
                    f"Look at those with a remark, and give\n{text_of(proposal)}")
