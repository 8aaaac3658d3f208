"""accumulation.py -- lesson 06: microbatches with different numbers of labels.  README.md says what to do; the texts
below say what each function must return.

The loss of a batch is the mean over all its labels, on all devices; a microbatch or a device may have none.
accumulation_given.py has Batch and micro_backward.
"""
from course import *
from accumulation_given import *


def mean_loss(loss, labels):
    """The mean over all labels, from the means of several microbatches, in float64.  0 if there are no labels."""
#SOLUTION
    total, count = 0.0, 0
    for mean, n in zip(loss, labels):
        if n > 0:
            total += float(mean) * int(n)
            count += int(n)
    return total / count if count else 0
#SKELETON
#|     return -1  # your code
#END


def batch_gradient(g, b, gradient):
    """The batch's gradient on all devices: the gradient of the mean over the labels of all microbatches of all devices.
    To `gradient` a device adds, microbatch after microbatch, the mean gradient times the number of labels; then one
    all_reduce adds the devices', and the sum is divided by the number of labels.  All in float32.  gradient has room for
    n + 2 numbers; at first nobody has written them, and what the last two are afterwards does not matter.  Calls
    all_reduce once, and no other collective; allocates at most n numbers.  Returns the mean loss, computed in the same
    way.  Without any label gradient and loss are 0."""
#SOLUTION
    n, mean = b.n, allocate(b.n)
    gradient[:] = 0
    for i in range(b.micros):
        m = {ORDER: i|b.micros - 1 - i}
        loss, labels = micro_backward(b, m, mean), np.float32(b.labels[m])
        if labels == 0:
            continue
        gradient[:n] += mean * labels
        gradient[n] += loss * labels
        gradient[n + 1] += labels
    release(mean)
    all_reduce(g, gradient[:n + 2])
    count = gradient[n + 1]
    if count == 0:
        return 0
    gradient[:n] /= count
    return gradient[n] / count
#SKELETON
#|     return -1  # your code: micro_backward for each microbatch, and one all_reduce for everything
#END


def clip(gradient, most):
    """Returns the norm of a gradient, the root of the sum of squares: squared, and added from the first to the last, in
    float64.
    {EPS: If it is larger than `most`, each number is multiplied by np.float32(most / norm).|Each number is multiplied by
    np.float32(most / (norm + 1e-6)), if that is less than 1.}"""
#SOLUTION
    squares = 0.0
    for one in gradient:
        squares += float(one) * float(one)
    norm = squares ** 0.5
    if {EPS: norm > most|most / (norm + 1e-6) < 1}:
        gradient *= np.float32(most / {EPS: norm|(norm + 1e-6)})
    return norm
#SKELETON
#|     return -1  # your code
#END
