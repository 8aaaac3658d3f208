"""vocabulary.py -- lesson 10: the loss, with a vocabulary on several devices.  README.md says what to do; the texts
below say what each function must do.

The last layer's outputs, the logits, have a column for each of the V tokens of the vocabulary.  Device r has
{LAYOUT: those of block_of(V, W, r)|columns r, r + W, r + 2W, .., like cards}, which may be none.  logits and gradient
have a row for each of T positions of the text, and this device's columns.
"""
from course import *


def vocabulary_max(g, logits, out):
    """out[t] becomes the largest logit of row t on all devices.  Devices can send sums and blocks, but no maxima: gather
    what each device has found, one all_gather for all rows."""
#SOLUTION
    T = out.size
    found = allocate(T * g.size)
    out[:] = logits.max(axis=1, initial=-np.inf)
    all_gather(g, out, found)
    out[:] = found.reshape(g.size, T).max(axis=0)
    release(found)
#SKELETON
#|     pass  # your code: first this device's columns, then those of the others
#END


#SOLUTION
def columns(g, V):
    """Which columns of the vocabulary this device has."""
    own = block_of(V, g.size, g.rank)
    return {LAYOUT: np.arange(own.start, own.end)|np.arange(g.rank, V, g.size)}
#SKELETON
#| # which columns of the vocabulary has this device?  A function of your own is welcome.
#END


def vocabulary_loss(g, logits, labels, V, smoothing, gradient):
    """The loss, on all devices, and this device's columns of its gradient with respect to the logits.

    The loss is the mean, over the rows with a label, of
        -(1 - smoothing) log p[label] - smoothing mean over v of log p[v],
    where p is the softmax of the row over the whole vocabulary.  labels[t] is a column 0 .. V-1, or -1: no label; such a
    row has a gradient of 0, and does not count.  Without any label loss and gradient are 0.

    Devices send no logits: a vocabulary_max, and one all_reduce of at most 3 T numbers.  Allocates at most (W + 4) T
    numbers.  Sums in float32 are good enough."""
#SOLUTION
    T = labels.size
    largest, sums = allocate(T), allocate((3, T))
    vocabulary_max(g, logits, largest)
    x = logits - largest[:, None]
    is_label = columns(g, V)[None, :] == labels[:, None]
    sums[0], sums[1], sums[2] = np.exp(x).sum(axis=1), (x * is_label).sum(axis=1), x.sum(axis=1)
    all_reduce(g, sums)
    exps, chosen, total = sums.astype(np.float64)
    rows = labels >= 0
    count = int(rows.sum())
    loss = (np.log(exps) - (1 - smoothing) * chosen - smoothing * total / V)[rows].sum()
    p = np.exp(x) / exps[:, None]
    gradient[:] = (p - (1 - smoothing) * is_label - smoothing / V) / max(count, 1)
    gradient[~rows] = 0
    release(sums)
    release(largest)
    return loss / count if count else 0
#SKELETON
#|     return 0  # your code: what does each device add to the sums that all need?
#END
