"""course.py -- everything that your code may call, in Python.

Your functions run on every device at the same time, each device in a process of its own.  A device knows only what it
was given, and what others have sent to it.  It has memory, a clock, and links to the others.  Messages, bytes, memory
and time are counted outside of your process.

Arrays are numpy arrays.  What you send, receive or reduce lies in the device's own memory: an array that your function
was given, or one of allocate(), or a part of one (x[3:8]).  Arrays that numpy makes by itself (x + y, x.copy()) are for
computing: they are not counted, and cannot be sent.

Besides this module: numpy and math, and what is loaded with them.  print() shows a line below a check that fails.
tutorials/worker/worker.py loads this module and a student's file; device.py does what is asked for.
"""
import collections

import numpy as np

__all__ = ["np", "Group", "Block", "group_of", "message_send", "message_receive", "message_wait", "exchange_both",
           "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "add_into", "matrix_product",
           "TRANSPOSE_A", "TRANSPOSE_B", "ADD", "work", "stream_begin", "stream_end", "stream_join", "time_now",
           "allocate", "release", "block_of", "mod", "say"]

_device = None                                  # worker.py sets it in a device's process


def _here():
    if _device is None:
        raise RuntimeError("only a device can do this: `orrery learn NN` runs your file on devices")
    return _device


# ---- who works together ---------------------------------------------------------------------------------------------

Group = collections.namedtuple("Group", "rank size number")
Group.__doc__ = "Some devices, numbered 0 .. size-1; this one is number `rank`.  `number` is not for you."


def group_of(ranks):
    """Make a group of some devices, by their numbers in the group of all.  All of them call it, with the same list, in
    the same order of calls; this device is one of them."""
    return _here().group_of(ranks)


# ---- messages -------------------------------------------------------------------------------------------------------

def message_send(g, to, data):
    """Start to send an array to a member of the group, and return a message at once.  The array must not change before
    message_wait.  Between two devices of a group, messages arrive in the order in which they were sent."""
    return _here().message_send(g, to, data)


def message_receive(g, source, data):
    """Start to receive exactly as many bytes as `data` has from member `source`, and return a message at once.  They are
    not there before message_wait."""
    return _here().message_receive(g, source, data)


def message_wait(message):
    """Wait for a message.  Each one is waited for once.  A long message is only complete when its receiver has started
    to receive: until then its sender waits."""
    _here().message_wait(message)


def exchange_both(g, to, out, source, into):
    """Send `out` to one member while receiving `into` from another, and wait for both.  A member of -1 leaves that half
    out; its array can be None."""
    _here().exchange_both(g, to, out, source, into)


# ---- collective operations ------------------------------------------------------------------------------------------
# Where a lesson allows them.  All members call them, in the same order.  Arrays are of float32.

def all_reduce(g, x):
    """x[i] becomes the sum of all members' x[i]; added in the order of their numbers."""
    _here().all_reduce(g, x)


def reduce_scatter(g, source, out):
    """out becomes this member's block of the sum of all members' `source`.  Blocks are those of
    block_of(source.size, g.size, g.rank)."""
    _here().reduce_scatter(g, source, out)


def all_gather(g, source, out):
    """out becomes all members' blocks, `source` being this member's; blocks of out.size numbers as above."""
    _here().all_gather(g, source, out)


def broadcast(g, root, x):
    """x of member `root` is copied to all."""
    _here().broadcast(g, root, x)


def all_to_all(g, source, give, out, take):
    """give[i] numbers of `source` go to member i; take[i] numbers of `out` come from it.  Blocks lie one after
    another."""
    _here().all_to_all(g, source, give, out, take)


# ---- computing, with what it costs on the clock ---------------------------------------------------------------------

def add_into(into, source):
    """into[i] += source[i], in float32, of two arrays of the same length."""
    _here().add_into(into, source)


TRANSPOSE_A, TRANSPOSE_B, ADD = 1, 2, 4


def matrix_product(C, A, B, how=0):
    """C = A B, of matrices; each element is added up from the first product to the last.  C has m rows of n numbers, A
    has m rows of k, B has k rows of n.  TRANSPOSE_A: A is stored as k rows of m; TRANSPOSE_B: B as n rows of k; ADD:
    C += A B."""
    _here().matrix_product(C, A, B, how)


def work(operations, bytes):
    """Arithmetic of your own: this many operations, and bytes read or written."""
    _here().work(operations, bytes)


def stream_begin():
    """What follows, until stream_end, takes place on a stream beside the computations.  It starts where the device now
    is, and after what the stream did before.  What it makes can be used only after stream_join, which waits for it."""
    _here().stream_begin()


def stream_end():
    """End what stream_begin has begun."""
    _here().stream_end()


def stream_join():
    """Wait for the stream."""
    _here().stream_join()


def time_now():
    """Return the time of this device, in picoseconds: computing and sending take time, waiting too."""
    return _here().time_now()


# ---- memory ---------------------------------------------------------------------------------------------------------

def allocate(shape, dtype=np.float32):
    """Return an array in this device's memory, counted; its content is undefined.  shape: a number, or several."""
    return _here().allocate(shape, dtype)


def release(array):
    """Give the memory of allocate() back.  None is no error."""
    _here().release(array)


# ---- blocks of a vector ---------------------------------------------------------------------------------------------

class Block(collections.namedtuple("Block", "start count")):
    """Where a block begins, and its length.  x[b.start:b.end] are its numbers."""
    __slots__ = ()

    @property
    def end(self):
        return self.start + self.count


def block_of(n, parts, i):
    """Return block i of a vector of n numbers in `parts` blocks: nearly equal, the first n % parts blocks one number
    longer."""
    each, longer = divmod(int(n), int(parts))
    return Block(each * int(i) + min(int(i), longer), each + (i < longer))


def mod(i, P):
    """Return i modulo P, in 0 .. P-1 also for negative i."""
    return i % P


# ---- for you --------------------------------------------------------------------------------------------------------

def say(format, *words):
    """Print a line: say("step %d", 3).  `orrery learn NN` shows it with the device's number, below a check that fails."""
    _here().say(format % words if words else str(format))
