"""ring.py -- lesson 03: the ring.  README.md says what to do; the texts below say what each function must do.

All devices of a group of W call a function together, with arrays x of the same n numbers.  Block i of x is
block_of(n, W, i) of course.py; block numbers are modulo W.  Devices send only to the {RING: right|left} neighbour,
r {RING: + 1|- 1} modulo W for device r, and receive only from the other one.  W >= 1, n >= 0: blocks may be empty, and
are sent all the same.
"""
from course import *

#SOLUTION
DIR, OWN = {RING: 1|-1}, {OWNER: 0|1}


def block(g, x, i):
    """Block i of x, which may be any number modulo W."""
    b = block_of(x.size, g.size, mod(i, g.size))
    return x[b.start:b.end]


def pass_on(g, out, into):
    """One step of a ring."""
    exchange_both(g, mod(g.rank + DIR, g.size), out, mod(g.rank - DIR, g.size), into)
#SKELETON
#| # Functions of your own are welcome, such as one for a step of the ring.
#END


def ring_reduce_scatter(g, x):
    """Afterwards block {OWNER: r|r + 1} of x on device r is the sum of that block on all devices; the other blocks may
    be anything.  A block is added on its way round the ring: to what arrives a device adds its own numbers.  W-1
    messages of one block; allocates at most one block, ceil(n/W) numbers."""
#SOLUTION
    if g.size == 1:
        return
    arrived = allocate(block_of(x.size, g.size, 0).count)
    for step in range(g.size - 1):
        give = g.rank + OWN - DIR * (step + 1)
        mine = block(g, x, give - DIR)
        pass_on(g, block(g, x, give), arrived[:mine.size])
        add_into(mine, arrived[:mine.size])
    release(arrived)
#SKELETON
#|     pass  # your code: W-1 steps; in each, exchange_both, then add_into
#END


def ring_all_gather(g, x):
    """At first block {OWNER: r|r + 1} of x on device r is right; afterwards all blocks are, on all devices.  W-1
    messages of one block; allocates nothing."""
#SOLUTION
    for step in range(g.size - 1):
        give = g.rank + OWN - DIR * step
        pass_on(g, block(g, x, give), block(g, x, give - DIR))
#SKELETON
#|     pass  # your code: blocks can be received where they belong
#END


def ring_all_reduce(g, x):
    """Afterwards x is the sum of x on all devices, with the same bits on all of them: one after the other of the
    above."""
#SOLUTION
    ring_reduce_scatter(g, x)
    ring_all_gather(g, x)
#SKELETON
#|     pass  # your code
#END
