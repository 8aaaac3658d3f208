"""device.py -- does what course.py offers, over the socket of a device: the same words as worker.c (protocol.h).

worker.py loads this module once; each device's process is a copy, in which open_device() comes first.  A mistake of the
student's code is sent as ASK_MISUSE with one line of text, and the process ends with status 0.  A broken socket ends the
process with status 1.
"""
import io
import mmap
import os
import struct
import sys

import course
import numpy as np

POOL, GUARD, POISON = 48 << 20, 64, 0x7f        # WORKER_POOL; four bytes of poison are a float of 3e38
MOST_MESSAGES, STREAM_ARRAYS = 1024, 256
REQUEST, ANSWER = struct.Struct("IiiiQQq2d"), struct.Struct("qQ")
(SEND, RECEIVE, WAIT, ALLOCATE, RELEASE, ADDED, WORKED, TIME, GROUP, COLLECTIVE, STREAM, SAY, MISUSE,
 DONE) = range(1, 15)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")

link = pool = base = None                       # the socket; this device's memory, as bytes; its address
student = "your file"                           # the name of the student's file
devices = rank = 0
blocks, flying, arrived = {}, {}, []            # by number: [place, bytes, array; True: of the call]; messages; of a stream
on_stream = False


# ---- the socket ------------------------------------------------------------------------------------------------------

def put(*parts):
    for part in parts:
        left = memoryview(part).cast("B") if len(part) else b""
        while len(left):
            try:
                left = left[link.write(left):]
            except OSError:
                os._exit(1)


def get(into):
    left = memoryview(into).cast("B") if len(into) else b""
    while len(left):
        try:
            n = link.readinto(left)
        except OSError:
            n = 0
        if not n:
            os._exit(1)
        left = left[n:]


def ask(kind, group=0, peer=0, number=0, bytes=0, payload=(), a=0, real=(0., 0.)):
    put(REQUEST.pack(kind, group, peer, number, bytes, sum(len(p) for p in payload), a, *real), *payload)


def hear(into=b""):
    head = bytearray(ANSWER.size)
    get(head)
    value, count = ANSWER.unpack(head)
    if count > len(into):
        os._exit(1)
    get(into[:count])
    return value


def place_in_file(frame):
    """The innermost line of the student's file from a frame outwards, or ""."""
    while frame is not None and frame.f_code.co_filename != student:
        frame = frame.f_back
    return "line %d of %s: " % (frame.f_lineno, student) if frame is not None else ""


def end_with(text):
    """Say what is wrong, and end this process: nothing that the student's code catches goes on."""
    ask(MISUSE, payload=(text.encode("utf-8", "replace").replace(b"\n", b" ")[:300],))
    os._exit(0)


def misuse(format, *words):
    end_with(place_in_file(sys._getframe(1)) + (format % words if words else format))


def say(text):
    for line in str(text).split("\n"):
        ask(SAY, payload=(line.encode("utf-8", "replace")[:199],))


# ---- memory: blocks with poison around them --------------------------------------------------------------------------

def open_device(socket, of, own):
    global link, pool, base, devices, rank
    link = io.FileIO(socket, "r+", closefd=False)
    pool = np.frombuffer(mmap.mmap(-1, POOL, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    base = pool.__array_interface__["data"][0]
    devices, rank = of, own


def find_place(count, skew):
    at = GUARD + skew
    for start, n, _ in sorted(blocks.values(), key=lambda b: b[0]):
        if at + count + GUARD <= start:
            break
        at = max(at, (start + n + GUARD + 63) // 64 * 64 + skew)
    return at if at + count + GUARD <= POOL else -1


def take_block(count, of=True, skew=0):
    at, number = find_place(count, skew), 0
    while number in blocks:
        number += 1
    if at < 0 or number >= 512:
        misuse("there is no memory for %d more bytes", count)
    blocks[number] = [at, count, of]
    pool[at:at + count] = POISON
    return number, pool[at:at + count]


def allocate(shape, dtype):
    try:
        dtype, shape = np.dtype(dtype), tuple(int(n) for n in np.atleast_1d(shape))
    except (TypeError, ValueError):
        misuse("allocate: %.60r is no number of numbers, or %.40r no type of them", shape, dtype)
    if min(shape, default=0) < 0 or dtype.hasobject or dtype.itemsize == 0:
        misuse("allocate: %r numbers of type %s are none", shape, dtype)
    count = dtype.itemsize
    for n in shape:
        count *= n
    number, memory = take_block(count, None)
    blocks[number][2] = array = memory.view(dtype).reshape(shape)
    ask(ALLOCATE, number=number, bytes=count)
    return array


def address(array):
    return array.__array_interface__["data"][0] - base


def release(array):
    if array is None:
        return
    if isinstance(array, np.ndarray):
        for number, (at, count, of) in blocks.items():
            if of is True or not (of is array or count and at == address(array)):
                continue                        # an empty array has no place: only itself can be given back
            lose(at, count)
            pool[at:at + count] = POISON
            del blocks[number]
            ask(RELEASE, number=number)
            return
    misuse("release() of memory that was not allocated, or was already released")


def memory_of(by, what, array, dtype=None, writes=False):
    """The bytes of an array of this device, as pool has them.  Says what is wrong with others, by name."""
    if not isinstance(array, np.ndarray):
        misuse("%s: `%s` is %s, and should be a numpy array", by, what, kind_of(array))
    if dtype is not None and array.dtype != dtype:
        misuse("%s: `%s` is an array of %s, and should be of %s", by, what, array.dtype, np.dtype(dtype))
    if not array.flags.c_contiguous:
        misuse("%s: the numbers of `%s` do not lie one after another: copy them into an array of allocate()", by, what)
    if writes and not array.flags.writeable:
        misuse("%s: `%s` is only to be read", by, what)
    if array.nbytes == 0:
        return pool[:0]
    at = address(array)
    for start, count, _ in blocks.values():
        if start <= at <= start + count and array.nbytes <= start + count - at:
            return pool[at:at + array.nbytes]
    misuse("%s: `%s` is not in this device's memory: it was released, or numpy made it; allocate() counts memory", by,
           what)


def kind_of(value):
    return "None" if value is None else "of type " + type(value).__name__


def whole(by, what, value):
    try:
        return value.__index__()
    except AttributeError:
        misuse("%s: `%s` is %s, and should be a whole number", by, what, kind_of(value))


# ---- messages --------------------------------------------------------------------------------------------------------

def group_is(by, g):
    if not isinstance(g, course.Group):
        misuse("%s: the first argument is %s, and should be a group", by, kind_of(g))


def start_message(kind, g, peer, data, by, what="data", both=0):
    group_is(by, g)
    peer, sending = whole(by, "to" if kind == SEND else "source", peer), kind == SEND
    if not 0 <= peer < g.size:
        misuse("%s: there is no device %d in a group of %d", by, peer, g.size)
    if peer == g.rank:
        misuse("%s: device %d %s itself; what it has needs no message", by, peer,
               "sends to" if sending else "receives from")
    memory, number = memory_of(by, what, data, writes=not sending), 0
    while number in flying:
        number += 1
    if number == MOST_MESSAGES:
        misuse("%s: %d messages are not waited for", by, MOST_MESSAGES)
    flying[number] = (sending, memory, bytes(memory) if sending else b"", peer)
    ask(kind, g.number, peer, number, len(memory), (memory,) if sending else (), both)
    return Message(number)


class Message:
    """A message on its way."""
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


def message_send(g, to, data):
    return start_message(SEND, g, to, data, "message_send")


def message_receive(g, source, data):
    return start_message(RECEIVE, g, source, data, "message_receive")


def message_wait(message):
    if not isinstance(message, Message) or message.number not in flying:
        misuse("message_wait: this message was waited for before, or never started")
    sending, memory, copy, peer = flying.pop(message.number)
    ask(WAIT, number=message.number)
    hear(b"" if sending else memory)
    if not sending:
        arrive(memory)
    elif bytes(memory) != copy:
        misuse("a message to device %d was changed between message_send and message_wait", peer)


def exchange_both(g, to, out, source, into):
    receive = send = None
    if whole("exchange_both", "source", source) >= 0:
        receive = start_message(RECEIVE, g, source, into, "exchange_both", "into", 1)
    if whole("exchange_both", "to", to) >= 0:
        send = start_message(SEND, g, to, out, "exchange_both", "out")
    if receive:
        message_wait(receive)
    if send:
        message_wait(send)


def group_of(ranks):
    ranks = [whole("group_of", "ranks", r) for r in ranks]
    if not 1 <= len(ranks) <= devices:
        misuse("group_of: a group of %d, of %d devices", len(ranks), devices)
    if rank not in ranks:
        misuse("group_of: device %d is not in its own group", rank)
    ask(GROUP, payload=(np.array(ranks, np.int32).view(np.uint8),))
    return course.Group(ranks.index(rank), len(ranks), hear())


# ---- collective operations -------------------------------------------------------------------------------------------

def collective(kind, g, count, source, out, root=0, counts=()):
    ask(COLLECTIVE, g.number, root, kind, a=count, payload=(*counts, source))
    hear(out)
    arrive(out)


def floats_of(by, g, *arrays):
    group_is(by, g)
    return [memory_of(by, what, x, np.float32, writes) for what, x, writes in arrays]


def all_reduce(g, x):
    memory, = floats_of("all_reduce", g, ("x", x, True))
    collective(0, g, x.size, memory, memory)


def must_hold(by, what, array, count):
    if array.size != count:
        misuse("%s: `%s` has %d numbers, and should have %d", by, what, array.size, count)


def reduce_scatter(g, source, out):
    i, o = floats_of("reduce_scatter", g, ("source", source, False), ("out", out, True))
    must_hold("reduce_scatter", "out", out, course.block_of(source.size, g.size, g.rank).count)
    collective(1, g, source.size, i, o)


def all_gather(g, source, out):
    i, o = floats_of("all_gather", g, ("source", source, False), ("out", out, True))
    must_hold("all_gather", "source", source, course.block_of(out.size, g.size, g.rank).count)
    collective(2, g, out.size, i, o)


def broadcast(g, root, x):
    memory, = floats_of("broadcast", g, ("x", x, True))
    if not 0 <= whole("broadcast", "root", root) < g.size:
        misuse("broadcast: there is no device %d in a group of %d", root, g.size)
    collective(3, g, x.size, memory if root == g.rank else b"", memory, int(root))


def all_to_all(g, source, give, out, take):
    i, o = floats_of("all_to_all", g, ("source", source, False), ("out", out, True))
    counts = []
    for what, list_of, array in (("give", give, source), ("take", take, out)):
        numbers = [whole("all_to_all", what, n) for n in list_of]
        if len(numbers) != g.size or min(numbers) < 0:
            misuse("all_to_all: `%s` should be %d numbers, none of them negative", what, g.size)
        must_hold("all_to_all", "source" if what == "give" else "out", array, sum(numbers))
        counts.append(np.array(numbers, np.int64).view(np.uint8))
    collective(4, g, 0, i, o, counts=counts)


# ---- computing -------------------------------------------------------------------------------------------------------

def work(operations, bytes):
    try:
        real = float(operations), float(bytes)
    except (TypeError, ValueError):
        misuse("work: operations and bytes are two numbers")
    ask(WORKED, real=real)


def add_into(into, source):
    memory_of("add_into", "into", into, np.float32, True), memory_of("add_into", "source", source, np.float32)
    must_hold("add_into", "source", source, into.size)
    into += source.reshape(into.shape)
    ask(ADDED, a=into.size)


def matrix_product(C, A, B, how):
    for what, x in (("C", C), ("A", A), ("B", B)):
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 2:
            misuse("matrix_product: `%s` is %s, and should be a matrix of float32", what, kind_of(x) if not
                   isinstance(x, np.ndarray) else "an array of %s of the shape %s" % (x.dtype, x.shape))
    A, B = A.T if how & course.TRANSPOSE_A else A, B.T if how & course.TRANSPOSE_B else B
    (m, k), n = A.shape, B.shape[1]
    if B.shape[0] != k or C.shape != (m, n):
        misuse("matrix_product: %s = %s times %s do not fit", C.shape, A.shape, B.shape)
    total = C.copy() if how & course.ADD else np.zeros((m, n), np.float32)
    for i in range(k):                          # each product and each sum is rounded, as in worker.c
        total += np.multiply.outer(A[:, i], B[i])
    C[...] = total
    work(2. * m * k * n, 4. * (m * k + k * n + (2 if how & course.ADD else 1) * m * n))


def time_now():
    ask(TIME)
    return hear()


# ---- what a stream makes is out of reach until stream_join (streams.h) -------------------------------------------------

def arrive(memory):
    if on_stream and len(arrived) < STREAM_ARRAYS:
        arrived.append([memory, b""])


def look_at_stream():
    """Put back what was put away, the other way round, because arrays may overlap."""
    touched = False
    for one in reversed(arrived):
        touched |= bool((one[0] != POISON).any())
        one[0][:] = np.frombuffer(one[1], np.uint8) if len(one[1]) else one[0]
    if touched:
        misuse("what arrived on the stream was changed before stream_join(): it can be used only after that")


def stream_begin():
    global on_stream
    ask(STREAM, number=0)
    if not on_stream:
        look_at_stream()
    on_stream = True


def stream_end():
    global on_stream
    if on_stream:
        on_stream = False
        for one in arrived:
            one[1] = bytes(one[0])
        for one in arrived:
            one[0][:] = POISON
    ask(STREAM, number=1)


def stream_join():
    if not on_stream:
        look_at_stream()
    arrived.clear()
    ask(STREAM, number=2)


def lose(at, count):
    """Memory is given back: by the stream itself, or too early."""
    for one in list(arrived):
        if not len(one[0]) or address(one[0]) >= at + count or address(one[0]) + len(one[0]) <= at:
            continue
        if not on_stream:
            misuse("release() of memory that the stream still works on: stream_join() comes first")
        arrived.remove(one)
