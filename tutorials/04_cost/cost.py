"""cost.py -- lesson 04: reading a cost.  README.md says what to do; the texts below say what each function must return.

A message of B bytes takes alpha + B beta.  Times are in picoseconds, beta in picoseconds per byte.
"""
from course import *


def half_round_trip(g, count):
    """Measure a message: device 0 sends `count` bytes to device 1, which sends them back.  Called by all devices of a
    group of two or more; others than 0 and 1 do nothing.  Returns on device 0 half of the time that it took; 0 on all
    others."""
#SOLUTION
    if g.rank > 1:
        return 0
    data = allocate(count, np.uint8)
    begun = time_now()
    if g.rank == 0:
        message_wait(message_send(g, 1, data))
        message_wait(message_receive(g, 1, data))
    else:
        message_wait(message_receive(g, 0, data))
        message_wait(message_send(g, 0, data))
    ended = time_now()
    release(data)
    return (ended - begun) / 2 if g.rank == 0 else 0
#SKELETON
#|     return 0  # your code: time_now() is in course.py; allocate(count, np.uint8) is so many bytes
#END


def fit(g):
    """Find alpha and beta by measuring, at whatever sizes.  Called by all devices; only device 0 has to find them, and
    returns alpha, beta.  On the links of this lesson the time of a message is exactly alpha + B beta."""
#SOLUTION
    small, large = half_round_trip(g, 0), half_round_trip(g, 1000000)
    return small, (large - small) / 1000000
#SKELETON
#|     return 0, 0  # your code: two unknowns take two measurements
#END


def ring_time(W, count, alpha, beta):
    """The time of the ring all-reduce of lesson 03 of `count` bytes on W devices, if W divides the vector; 0 for
    W = 1."""
#SOLUTION
    return 2 * (W - 1) * (alpha + count / W * beta)
#SKELETON
#|     return 0  # your code
#END


def other_time(W, count, alpha, beta):
    """The time of the other one, for W = 2, 4, 8, ..:
    {OTHER: recursive doubling.  In each of log2 W steps a device exchanges its whole vector with another one, and
    adds|a binomial tree.  In log2 W steps whole vectors are added up on device 0, and in as many steps the result goes
    back}."""
#SOLUTION
    steps = int(W).bit_length() - 1
    return {OTHER: 1|2} * steps * (alpha + count * beta)
#SKELETON
#|     return 0  # your code
#END


def crossover(W, alpha, beta):
    """The smallest whole number of bytes, 1 or more, for which the ring takes less time than the other; -1: there is
    none.  Both times as above, as if any number of bytes could be cut.  W = 2, 4, 8, .."""
#SOLUTION
    steps = other_time(W, 0, 1, 0)
    latencies, saved = 2 * (W - 1) - steps, steps - 2 * (W - 1) / W
    if saved <= 0:
        return -1
    equal = latencies * alpha / (saved * beta)
    return 1 if equal < 0 else int(equal) + 1
#SKELETON
#|     return 0  # your code: for which number of bytes are both equal?
#END
