"""messages.py -- lesson 02: messages and deadlocks.  README.md says what to do; the texts below say what each function
must do.

All devices of a group of W call a function together, with arrays of the same length n >= 1 and the same k.  A function
returns when its device has its result.  Every function works for any W >= 1, and also if every message waits for its
receiver.
"""
from course import *


def shift(g, source, out, k):
    """Round the ring: numbers travel k devices to the right.  `out` of device r becomes `source` of device r - k,
    counted modulo W; k may be negative, or larger than W.  One message a device, and none if a device gets its own
    numbers.  source and out are two arrays."""
#SOLUTION
    to, origin = mod(g.rank + k, g.size), mod(g.rank - k, g.size)
    if to == g.rank:
        out[:] = source
    else:
        exchange_both(g, to, source, origin, out)
#SKELETON
#|     pass  # your code: mod() and exchange_both() are in course.py
#END


def swap_pairs(g, x):
    """Devices 0 and 1, 2 and 3, .. exchange their n numbers, in place.  The last device of an odd number keeps its own.
    One message a device, and no more than n numbers of allocated memory."""
#SOLUTION
    partner = g.rank ^ 1
    if partner >= g.size:
        return
    theirs = allocate(x.size)
    exchange_both(g, partner, x, partner, theirs)
    x[:] = theirs
    release(theirs)
#SKELETON
#|     pass  # your code: x must not change while it is being sent
#END


def running_sum(g, x):
    """Sums along a line: x of device r becomes the sum of x of the devices {LINE: 0 .. r|r .. W-1}, number by number,
    added one after another beginning with device {LINE: 0|W-1}.  One message a device to the next one of the line; the
    last one sends none."""
#SOLUTION
    before, after = g.rank {LINE: - 1|+ 1}, g.rank {LINE: + 1|- 1}
    if 0 <= before < g.size:
        total = allocate(x.size)
        message_wait(message_receive(g, before, total))
        add_into(x, total)
        release(total)
    if 0 <= after < g.size:
        message_wait(message_send(g, after, x))
#SKELETON
#|     pass  # your code: who is first, and who is last?
#END
