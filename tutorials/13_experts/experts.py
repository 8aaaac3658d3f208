"""experts.py -- lesson 13: experts on several devices.  README.md says what to do; the texts below say what each
function must do.

A group of W devices, at most 8.  Each has tokens of its own, T of D numbers; others may have more, or none.  There are E
experts, and each token goes to k of them: its choices.  Device r has the experts of block_of(E, W, r), which may be none.
Choices of a device are numbered: choice i belongs to token i // k.  experts_given.py has Trip, Experts and Kept.
"""
from course import *
from experts_given import *


def route(logits, k, choice, weight):
    """choice and weight, [T, k].  Choices are the experts with the largest logits, the largest first; of two equal ones
    that with the {TIE: lower|higher} number comes first.  Weights are exp(logit), divided by the sum of exp over
    {WEIGHTS: the k chosen experts|all E experts}.  Logits may be in the thousands.  1 <= k <= E."""
#SOLUTION
    E = logits.shape[1]
    for t, row in enumerate(logits):
        order = sorted(range(E), key=lambda e: (-row[e], {TIE: e|-e}))[:k]
        exps = np.exp(row - row[order[0]])
        choice[t], weight[t] = order, exps[order] / {WEIGHTS: exps[order].sum()|exps.sum()}
#SKELETON
#|     pass  # your code: k times the largest logit that is not chosen yet
#END


def plan_trip(g, E, choice, capacity, t):
    """Plan a trip for all choices.  Rows leave in the order of experts.  A device goes through its choices {DROP: from
    the first to the last|from the last to the first}; rows for an expert lie in that order, and when there are `capacity`
    of them, further choices of this expert are dropped.  capacity 0: there is no limit.  The devices tell each other how
    many rows will come: one all_to_all, of a number for each expert, which a float32 holds exactly."""
#SOLUTION
    n, own = choice.size, block_of(E, g.size, g.rank).count
    counts, come = allocate(E), allocate((g.size, own))
    t.send[:] = 0
    for j in range(n):
        i = {DROP: j|n - 1 - j}
        full = capacity > 0 and t.send[choice[i]] == capacity
        t.row[i] = -1 if full else t.send[choice[i]]
        t.send[choice[i]] += not full
    starts = np.cumsum(t.send) - t.send
    for i in range(n):
        if t.row[i] >= 0:
            t.row[i] += starts[choice[i]]
    counts[:] = t.send
    all_to_all(g, counts, [block_of(E, g.size, d).count for d in range(g.size)], come, [own] * g.size)
    t.come[:] = come
    release(come)
    release(counts)
#SKELETON
#|     pass  # your code: count, drop, find places, and tell the others
#END


#SOLUTION
def numbers_of(g, m, t):
    """How many numbers go to each device, and come from it."""
    blocks = [block_of(m.E, g.size, d) for d in range(g.size)]
    return ([int(t.send[b.start:b.end].sum()) * m.D for b in blocks],
            [int(t.come[d].sum()) * m.D for d in range(g.size)])


def rows_of(t):
    """The rows that came, for each device and expert: (expert, from, to)."""
    at = 0
    for row in t.come:
        for e, count in enumerate(row.tolist()):
            yield e, at, at + count
            at += count
#SKELETON
#| # functions of your own: how many numbers go to device d, and come from it, is needed four times
#END


def experts_forward(g, m, t, x, weight, kept, y):
    """y, T rows of D numbers: the sum of weight times result over the choices of a token, from 0 and its first choice to
    the last; a dropped choice adds nothing.  Fills `kept`.  Two all_to_all: rows there, results back."""
#SOLUTION
    give, take = numbers_of(g, m, t)
    rows, came = allocate((sum(give) // m.D, m.D)), allocate((sum(take) // m.D, m.D))
    for i, row in enumerate(t.row):
        if row >= 0:
            rows[row] = x[i // m.k]
    all_to_all(g, rows, give, came, take)
    made = allocate(came.shape)
    for e, start, end in rows_of(t):
        matrix_product(made[start:end], came[start:end], m.M[e])
    all_to_all(g, made, take, rows, give)
    release(made)
    y[:] = 0
    for i, row in enumerate(t.row):
        if row >= 0:
            y[i // m.k] += weight[i] * rows[row]
    kept.came, kept.results = came, rows
#SKELETON
#|     pass  # your code: rows there, products, results back, sums with weights
#END


def experts_backward(g, m, t, weight, kept, dy, dx, dweight, dM):
    """From dy: dx, in the order of forward's sums; dweight, the sum of products of dy and the result, from the first
    number to the last, 0 for a dropped choice; dM, of this device's experts: over rows in the order in which they came.
    To the experts goes weight times dy.  Two all_to_all.  Releases what is kept.  At no time of both passes are more than
    (L + 2 R) D numbers allocated, when L rows leave this device and R come."""
#SOLUTION
    give, take = numbers_of(g, m, t)
    rows, came, back = kept.results, kept.came, allocate(kept.came.shape)
    dweight[:] = 0
    for i, row in enumerate(t.row):
        if row >= 0:
            dweight[i] = np.add.accumulate(dy[i // m.k] * rows[row])[-1]
            rows[row] = weight[i] * dy[i // m.k]
    all_to_all(g, rows, give, back, take)
    dM[:] = 0
    for e, start, end in rows_of(t):
        matrix_product(dM[e], came[start:end], back[start:end], TRANSPOSE_A | ADD)
        matrix_product(came[start:end], back[start:end], m.M[e], TRANSPOSE_B)
    all_to_all(g, came, take, rows, give)
    dx[:] = 0
    for i, row in enumerate(t.row):
        if row >= 0:
            dx[i // m.k] += rows[row]
    release(back)
    release(came)
    release(rows)
#SKELETON
#|     pass  # your code: the same trip with gradients; which places are free again?
#END
