"""worker.py -- the processes of a student's file in Python: one that has loaded numpy, and copies of it, a device each.

    python3 -I -B worker.py judge|check RULES NUMPY FILE FUNCTION...

emulated_devices/course/python.c starts this program in the cage, once for a check.  RULES is what a process may ask the
system for, as rules of seccomp in hexadecimal digits; NUMPY the folder that numpy is in; FILE the student's file.  Only
what is trusted is loaded here.  A copy locks itself in before it compiles the student's text: from there on it computes,
takes memory, and reads and writes one socket.  It sends what worker.c sends (protocol.h).

judge: socket 3 brings requests, two whole numbers each (PYTHON_RUN, .. of python.h).
check: says what is wrong with the text on its output, and ends with status 1; 3: this machine cannot run it.
"""
import os
import sys

CONTROL, MACHINE = 3, 3
READY, RUN, STATUS, END = b"r", 1, 2, 3


def fail(text):
    """This machine is at fault, and no student."""
    if sys.argv[1:2] == ["judge"]:
        os.write(CONTROL, text.encode())
    else:
        os.write(1, text.encode() + b"\n")
    os._exit(MACHINE)


sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.path.append(sys.argv[3])
try:
    import array, bisect, cmath, collections, contextlib, copy, ctypes, dataclasses, enum, fractions, functools, heapq
    import itertools, linecache, math, operator, random, re, resource, signal, socket, statistics, string, struct
    import textwrap, time, types, typing, warnings, builtins, gc
    import numpy as np
    import course, device
except Exception as e:
    fail("%s: %s" % (type(e).__name__, str(e).strip().split("\n")[-1]))    # numpy's advice is long, its reason last

START = struct.Struct("@64s3i8i8i12Q12I12I12q12dIi")    # struct start of protocol.h
BUFFER_IN, BUFFER_OUT, BUFFERS, GROUPS = 1, 2, 12, 8
TEMPORARIES = 64 << 20                          # bytes that numpy's own arrays may take, beside the device's memory
source = open(sys.argv[4], "rb").read()
device.student = os.path.basename(sys.argv[4])
libc = ctypes.CDLL(None, use_errno=True)


# ---- before the student's text ---------------------------------------------------------------------------------------

def load_lesson():
    """calls.py of the lesson, and what its contract gives (ring_given.py), if there is such a file."""
    name = device.student[:-3] + "_given"
    if os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")):
        __import__(name)
    import calls
    return calls.CALLS


class Refuses:
    """Modules that are not loaded cannot be: their files are out of reach."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        raise ModuleNotFoundError("there is no module %s here; there are course, numpy, math, and what is loaded with "
                                  "them" % name)


def keep_from_files():
    """Python itself reads files to show a line or a warning: without them it would end by the first one."""
    warnings.simplefilter("ignore")
    warnings.showwarning = lambda *words, **named: None
    linecache.updatecache = lambda *words, **named: []
    sys.meta_path[:] = [Refuses]
    sys.path[:] = []
    builtins.print = lambda *words, sep=" ", end="\n", file=None, flush=False: device.say(
        (" " if sep is None else sep).join(str(w) for w in words))
    builtins.input = builtins.breakpoint = lambda *words: device.misuse("nobody can type something here")


def warm():
    """What numpy's library of matrices takes at its first product, it takes here."""
    for dtype in (np.float32, np.float64):
        a, b = np.ones((96, 64), dtype), np.ones((64, 96), dtype)
        a @ b, a @ a.T, a @ b[:, 0], np.linalg.norm(a), np.linalg.inv(np.eye(64, dtype=dtype))
    np.random.default_rng(0).random(2)


def lock_in(milliseconds):
    class Program(ctypes.Structure):
        _fields_ = [("count", ctypes.c_ushort), ("rules", ctypes.c_char_p)]

    rules = bytes.fromhex(sys.argv[2])
    try:
        pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        pages = 1 << 30
    for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NPROC, 0),
                       (resource.RLIMIT_NOFILE, 4), (resource.RLIMIT_CPU, milliseconds // 1000 + 2),
                       (resource.RLIMIT_AS, pages + TEMPORARIES)):
        resource.setrlimit(what, (most, most))
    signal.setitimer(signal.ITIMER_PROF, milliseconds / 1000)
    program = Program(len(rules) // 8, rules)
    libc.prctl(38, 1, 0, 0, 0)                  # PR_SET_NO_NEW_PRIVS
    return len(rules) > 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0   # PR_SET_SECCOMP, by a filter


# ---- what went wrong, in one line ------------------------------------------------------------------------------------

def line_of(text, number):
    lines = text.splitlines()
    return lines[number - 1].strip()[:60] if 0 < number <= len(lines) else ""


def explain(error, text):
    """line 12 of ring.py, `x[b] += 1`, called by line 30: IndexError: index 5 is out of bounds."""
    what = "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == device.student:
        return "line %d of %s, `%s`: %s: %s" % (error.lineno or 0, device.student, line_of(text, error.lineno or 0),
                                                type(error).__name__, error.msg)
    places, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == device.student:
            places.append(trace.tb_lineno)
        trace = trace.tb_next
    if not places:
        return "%s: %s" % (device.student, what)
    called = ", called by line %d" % places[-2] if len(places) > 1 and places[-2] != places[-1] else ""
    return "line %d of %s, `%s`%s: %s" % (places[-1], device.student, line_of(text, places[-1]), called, what)


def load_student():
    """Compile and run the student's text as a module.  Returns it, and the text."""
    text = source.decode("utf-8")
    module = types.ModuleType(device.student[:-3])
    module.__file__ = device.student
    exec(compile(text, device.student, "exec", dont_inherit=True), module.__dict__)
    return module


# ---- one call on one device ------------------------------------------------------------------------------------------

class Call:
    """The arguments of one call, as the check has set them (trial.h), and its results: struct call of calls.h."""

    def __init__(self):
        head = bytearray(START.size)
        device.get(head)
        f = START.unpack(head)
        self.function = f[0].split(b"\0")[0].decode()
        rank, size = f[1], f[2]
        self.milliseconds = f[-2]
        numbers = iter(f[4:-2])
        take = lambda n: [next(numbers) for _ in range(n)]
        ranks, sizes, self.bytes, self.way, skew = take(8), take(8), take(12), take(12), take(12)
        self.number, self.given = take(12), take(12)
        self.group = [course.Group(ranks[i], sizes[i], i) for i in range(GROUPS)]
        device.open_device(CONTROL, size, rank)
        self.memory = [None] * BUFFERS
        self.before = {}
        for i in range(BUFFERS):
            if self.way[i] == 0:
                continue
            _, self.memory[i] = device.take_block(self.bytes[i], True, skew[i])
            if self.way[i] & BUFFER_IN:
                device.get(self.memory[i])
            if self.way[i] == BUFFER_IN:
                self.before[i] = bytes(self.memory[i])

    def array(self, i, dtype, *shape):
        """Buffer i; what is only to be read cannot be written by mistake."""
        x = self.memory[i].view(dtype)
        x = x.reshape(shape) if shape else x
        x.flags.writeable = self.way[i] != BUFFER_IN
        return x

    def floats(self, i, *shape):
        return self.array(i, np.float32, *shape)

    def doubles(self, i, *shape):
        return self.array(i, np.float64, *shape)

    def wholes(self, i, *shape):
        return self.array(i, np.int64, *shape)

    def look_at_end(self):
        left = len(device.flying)
        if left:
            device.misuse("%d message%s not waited for when the function returned", left,
                          " was" if left == 1 else "s were")
        held = [count for _, count, of in device.blocks.values() if of is not True]
        if held:
            device.misuse("%d block%s not released when the function returned: %d byte%s", len(held),
                          " was" if len(held) == 1 else "s were", sum(held), "" if sum(held) == 1 else "s")
        for i, before in self.before.items():
            if bytes(self.memory[i]) != before:
                device.misuse("an array that is only to be read was changed (%d bytes)", len(before))


def number(function, value, whole):
    """What a function has returned, as a number; says what else it is."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if not isinstance(value, kinds):
        shape = " of the shape %s" % (value.shape,) if isinstance(value, np.ndarray) else ""
        device.misuse("%s returns %s%s, and should return a %snumber", function, device.kind_of(value), shape,
                      "whole " if whole else "")
    if whole and not -2 ** 63 <= value < 2 ** 63:
        device.misuse("%s returns a number of more than 64 bits", function)
    return int(value) if whole else float(value)


def be_a_device():
    global source
    device.link = __import__("io").FileIO(CONTROL, "r+", closefd=False)
    course._device = device
    call, text = Call(), ""
    locked = lock_in(call.milliseconds)
    if not locked:
        device.misuse("this system cannot lock a process in (seccomp)")
    try:
        text = source.decode("utf-8")
        module = load_student()
        result, real = 0, 0.
        value = CALLS[call.function](module, call)
        if isinstance(value, tuple):            # ("whole" or "real", what the function returned)
            result, real = ((number(call.function, value[1], True), 0.) if value[0] == "whole" else
                            (0, number(call.function, value[1], False)))
    except BaseException as e:
        device.end_with(explain(e, text))
    call.look_at_end()
    device.ask(device.DONE, a=result, real=(real, 0.),
               payload=[call.memory[i] for i in range(BUFFERS) if call.way[i] & BUFFER_OUT])
    os._exit(0)


# ---- the process that has loaded numpy -------------------------------------------------------------------------------

def become_device(end, others, group):
    os.dup2(end, CONTROL)
    os.closerange(CONTROL + 1, max(others) + 1)
    os.setpgid(0, group)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)      # PR_SET_PDEATHSIG
    be_a_device()


def start_devices(ends):
    """Who is asked for comes as a socket; each device's process says its number there, then its device speaks."""
    first = 0
    for end in ends:
        child = os.fork()
        if child == 0:
            become_device(end, ends, first)
        first = first or child
        try:
            os.setpgid(child, first)
        except OSError:
            pass                                # it has done so itself, and has ended
        os.write(end, struct.pack("i", child))
    for end in ends:
        os.close(end)


def wait_status(process):
    """How a process has ended, as waitpid says it; it stays a process, so that its number is nobody else's."""
    end = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    return end.si_status << 8 if end.si_code == os.CLD_EXITED else end.si_status


def judge():
    libc.prctl(36, 1, 0, 0, 0)                  # PR_SET_CHILD_SUBREAPER
    control = socket.socket(fileno=CONTROL)
    control.send(READY)
    while True:
        words, ends, _, _ = socket.recv_fds(control, 8, 128)
        if len(words) != 8:
            os._exit(0)
        kind, value = struct.unpack("ii", words)
        if kind == RUN:
            start_devices(ends)
        elif kind == STATUS:
            control.send(struct.pack("i", wait_status(value)))
        elif kind == END:
            try:
                while True:
                    os.wait()
            except ChildProcessError:
                pass
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            control.send(struct.pack("d", used.ru_utime + used.ru_stime))


# ---- the look at a text ----------------------------------------------------------------------------------------------

def check(functions):
    text = ""
    builtins.print = lambda *words, **named: None
    device.misuse = lambda format, *words: (_ for _ in ()).throw(RuntimeError(format % words if words else format))
    if not lock_in(5000):
        fail("this system cannot lock a process of python3 in (seccomp)")
    try:
        text = source.decode("utf-8")
        module = load_student()
        missing = [f for f in functions if not callable(getattr(module, f, None))]
        wrong = "".join("%s has no function %s\n" % (device.student, f) for f in missing)
    except UnicodeDecodeError as e:
        wrong = "%s is no text in UTF-8: byte %d\n" % (device.student, e.start)
    except BaseException as e:
        wrong = explain(e, text) + "\n"
    os.write(1, wrong.encode("utf-8", "replace"))
    os._exit(1 if wrong else 0)


CALLS = load_lesson()
warm()
keep_from_files()
gc.freeze()
if sys.argv[1] == "judge":
    judge()
else:
    check(sys.argv[5:])
