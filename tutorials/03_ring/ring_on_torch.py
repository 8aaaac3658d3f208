"""ring_on_torch.py -- the ring of lesson 03 on a real framework: torch.distributed with gloo, a process for each device.

    python3 ring_on_torch.py ring.py                 run it on 4 processes, write dumps, and judge them
    python3 ring_on_torch.py ring.py --devices 5 --numbers 1003 --dumps FOLDER
    python3 ring_on_torch.py --judge FOLDER          judge dumps that are there

ring.py is the file that `orrery learn 03` judges.  Here its messages are isend and irecv of torch.distributed.  Each
process writes FOLDER/rank-R.npz: its numbers before and after ring_all_reduce, and what it has sent.  The judge only
reads these files: every process must have the same bits, those of a ring, after 2 (W-1) messages.  Exit status 0: right;
3: wrong; 2: there is no torch, or no such file.
"""
import argparse
import os
import sys
import tempfile

import numpy as np


def find_course():
    """course.py lies in the folder of the course, above that of the lesson."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, os.path.dirname(here)]
    import course
    return course


class TorchDevice:
    """What course.py asks of a device, by torch.distributed.  The numbers of allocate() are counted, too."""

    def __init__(self, course, distributed, torch):
        self.course, self.distributed, self.torch = course, distributed, torch
        self.messages = self.bytes = self.held = self.peak = 0
        self.memory = {}

    def tensor(self, x):
        if not x.flags.c_contiguous:
            raise ValueError("the numbers of an array that is sent or received must lie one after another")
        return self.torch.from_numpy(x.reshape(-1).view(np.uint8))

    def message_send(self, g, to, data):
        self.messages, self.bytes = self.messages + 1, self.bytes + data.nbytes
        return self.distributed.isend(self.tensor(data), to) if data.nbytes else None

    def message_receive(self, g, source, data):
        return self.distributed.irecv(self.tensor(data), source) if data.nbytes else None

    def message_wait(self, message):
        if message is not None:                 # gloo has no empty messages; both sides leave them out
            message.wait()

    def exchange_both(self, g, to, out, source, into):
        receive = self.message_receive(g, source, into) if source >= 0 else None
        send = self.message_send(g, to, out) if to >= 0 else None
        self.message_wait(receive), self.message_wait(send)

    def add_into(self, into, source):
        into += source

    def allocate(self, shape, dtype):
        x = np.full(shape, np.nan, dtype)
        self.held += x.nbytes
        self.memory[id(x)], self.peak = x, max(self.peak, self.held)
        return x

    def release(self, x):
        if x is not None:
            self.held -= self.memory.pop(id(x)).nbytes

    def work(self, operations, bytes):
        pass

    def say(self, text):
        print("device %d says: %s" % (self.distributed.get_rank(), text), flush=True)

    def __getattr__(self, name):
        raise NotImplementedError("%s is not part of a ring of messages" % name)


def numbers(rank, count):
    """What a device begins with: of many sizes, so that the order of additions shows in the bits."""
    draw = np.random.default_rng(rank)
    return (draw.uniform(-1, 1, count) * 2.0 ** draw.integers(-4, 5, count)).astype(np.float32)


def be_a_process(rank, path, devices, count, folder, meet):
    import torch
    import torch.distributed as distributed
    distributed.init_process_group("gloo", init_method="file://" + meet, rank=rank, world_size=devices)
    course = find_course()
    course._device = device = TorchDevice(course, distributed, torch)
    student = {"__name__": "ring"}
    with open(path) as f:
        exec(compile(f.read(), path, "exec"), student)
    x = numbers(rank, count)
    before = x.copy()
    student["ring_all_reduce"](course.Group(rank, devices, 0), x)
    distributed.barrier()
    np.savez(os.path.join(folder, "rank-%d.npz" % rank), before=before, after=x, messages=device.messages,
             bytes=device.bytes, peak=device.peak)
    distributed.destroy_process_group()


# ---- the judge, which only reads dumps -------------------------------------------------------------------------------

def sum_round_the_ring(x, way, owner):
    """The sums of a ring that sends in this direction, and where device r finishes block r + owner."""
    course, W = find_course(), len(x)
    total = np.empty_like(x[0])
    for i in range(W):
        b = course.block_of(total.size, W, i)
        last = i - owner
        part = x[(last + way) % W][b.start:b.end].copy()
        for k in range(2, W + 1):
            part += x[(last + k * way) % W][b.start:b.end]
        total[b.start:b.end] = part
    return total


def judge(folder):
    names = [n for n in os.listdir(folder) if n.startswith("rank-") and n.endswith(".npz")]
    dumps = [np.load(os.path.join(folder, "rank-%d.npz" % r)) for r in range(len(names))]
    W = len(dumps)
    if W == 0:
        print("%s: there are no dumps rank-0.npz, .." % folder)
        return 2
    before = [d["before"] for d in dumps]
    exact = np.sum(np.array(before, np.float64), axis=0)
    bound = (W - 1) * 2.0 ** -24 * np.sum(np.abs(np.array(before, np.float64)), axis=0) * 1.01
    for r, d in enumerate(dumps):
        wrong = np.flatnonzero(~(np.abs(d["after"] - exact) <= bound))
        if wrong.size:
            e = wrong[0]
            print("device %d: x[%d] is %.9g and should be %.9g; %d of %d numbers are wrong" %
                  (r, e, d["after"][e], exact[e], wrong.size, exact.size))
            return 3
        if not np.array_equal(d["after"].view(np.int32), dumps[0]["after"].view(np.int32)):
            print("device %d has other bits than device 0: each adds in an order of its own" % r)
            return 3
        if d["messages"] != 2 * (W - 1):
            print("device %d sent %d messages; it should be %d (2 (W-1))" % (r, d["messages"], 2 * (W - 1)))
            return 3
        if d["peak"] > 4 * -(-exact.size // W):
            print("device %d had %d bytes allocated at once; at most %d are needed (4 ceil(n/W))" %
                  (r, d["peak"], 4 * -(-exact.size // W)))
            return 3
    for way in (1, -1):
        for owner in (0, 1):
            want = sum_round_the_ring(before, way, owner)
            if np.array_equal(want.view(np.int32), dumps[0]["after"].view(np.int32)):
                print("OK: %d processes of torch.distributed have the bits of a ring that sends to the %s, where device "
                      "r finishes block r%s" % (W, "right" if way == 1 else "left", " + 1" if owner else ""))
                return 0
    print("the sums are right but for rounding, and their bits are those of no ring")
    return 3


def main():
    words = argparse.ArgumentParser(description="The ring of lesson 03 on torch.distributed (gloo).")
    words.add_argument("file", nargs="?")
    words.add_argument("--devices", type=int, default=4)
    words.add_argument("--numbers", type=int, default=1003)
    words.add_argument("--dumps", help="an empty folder; default: one that is removed")
    words.add_argument("--judge", metavar="DUMPS", help="judge these dumps, and run nothing")
    a = words.parse_args()
    if a.judge:
        return judge(a.judge)
    if a.file is None or not os.path.isfile(a.file):
        print("%s: there is no such file" % a.file)
        return 2
    try:
        import torch.multiprocessing
    except ImportError:
        print("there is no torch here: python3 -m pip install torch, or judge your ring by orrery learn 03")
        return 2
    with tempfile.TemporaryDirectory() as own:
        folder = a.dumps or own
        os.makedirs(folder, exist_ok=True)
        try:
            torch.multiprocessing.spawn(be_a_process, (os.path.abspath(a.file), a.devices, a.numbers, folder,
                                                       os.path.join(own, "meet")), nprocs=a.devices)
        except torch.multiprocessing.ProcessRaisedException as e:
            lines = str(e).strip().split("\n")
            place = [l.strip() for l in lines if os.path.abspath(a.file) in l]
            print("%s%s" % (place[-1] + ": " if place else "", lines[-1]))
            return 3
        return judge(folder)


if __name__ == "__main__":
    sys.exit(main())
