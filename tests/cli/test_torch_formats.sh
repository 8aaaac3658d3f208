# Formats of PyTorch: flight-recorder dumps by hand, hostile pickles, and with PyTorch dumps of gloo and folders of torch.distributed.checkpoint;
# folders of several files as Hugging Face has them.  Skipped without Python and numpy, and by name without PyTorch.
. "$(dirname "$0")/lib.sh"
export ORRERY=$program PYTHONPATH=$top/tutorials/python PYTHONDONTWRITEBYTECODE=1
python= torch=
for one in "${PYTHON:-}" "${PY:-}" python3; do
    [ -n "$one" ] && "$one" -c 'import numpy' 2>/dev/null || continue
    [ -n "$python" ] || python=$one
    if [ -z "$torch" ] && "$one" -c 'import torch.distributed.checkpoint' 2>/dev/null; then torch=$one; fi
done
has_python() { [ -n "$python" ] || { echo 'skipped: there is no Python with numpy'; return 1; }; }
has_torch() { [ -n "$torch" ] || { echo 'skipped: there is no Python with PyTorch'; return 1; }; }
script() { command="python $1"; watched "$python" "$@"; }

# dump.py makes dumps by the documented schema: of each rank a pickle.
make_dumps() {
    cat >dump.py <<'P'
import os, pickle, sys

def call(number, created, done=True, name="nccl:all_reduce", sizes=((64,),), started=None, ended=None, p2p=None, ms=None):
    entry = {"frames": [], "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
             "p2p_seq_id": number if p2p else 0, "op_id": number, "profiling_name": p2p or name, "time_created_ns": created,
             "input_sizes": sizes, "output_sizes": sizes, "state": "completed" if done else "started", "retired": done,
             "time_discovered_started_ns": started, "time_discovered_completed_ns": ended, "is_p2p": bool(p2p), "timeout_ms": 600000}
    if ms is not None:
        entry["duration_ms"] = ms
    return entry

def write(folder, ranks):
    os.makedirs(folder, exist_ok=True)
    for rank, entries in enumerate(ranks):
        if entries is None:
            continue
        dump = {"version": "2.10", "entries": entries, "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(len(ranks))))}}}
        with open(os.path.join(folder, f"nccl_trace_rank_{rank}"), "wb") as file:
            pickle.dump(dump, file, protocol=2)

STEP = 10_000_000
def steps(rank, late=None, by=4_000_000, count=8):
    return [call(n, n * STEP + rank * 1000 + (by if rank == late else 0)) for n in range(1, count + 1)]

write("clean", [steps(r) for r in range(4)])
write("late", [steps(r, late=2) for r in range(4)])
# A device that comes last and also waits is no culprit: it comes late because of the network.
def waits(rank, least):
    return [dict(e, time_discovered_started_ns=e["time_created_ns"], time_discovered_completed_ns=e["time_created_ns"] + (1000 if rank == least else 5_000_000))
            for e in steps(rank, late=2)]
write("waits", [waits(r, 2) for r in range(4)])
write("waits_not", [waits(r, 1) for r in range(4)])
hung = [steps(r) + ([call(9, 9 * STEP, done=False)] if r != 3 else []) for r in range(4)]
write("outside", hung)
write("absent", [hung[0], hung[1], hung[2], None])
write("inside", [steps(r) + [call(9, 9 * STEP, done=False)] for r in range(4)])
write("other", [steps(r) + [call(9, 9 * STEP, done=False, name="nccl:broadcast" if r == 1 else "nccl:all_reduce")] for r in range(4)])
def matrix(hot):
    return [[call(s + 1, s, p2p=f"nccl:recv {r}<-{s}", ms=4.0 if hot(s, r) else 1.0) for s in range(4) if s != r] for r in range(4)]
write("link", matrix(lambda s, r: (s, r) == (0, 3)))
write("out", matrix(lambda s, r: s == 2))
write("into", matrix(lambda s, r: r == 1))
P
    "$python" dump.py || complain 'dump.py does not run'
}

said() {                                        # said FOLDER STATUS REGEX
    command="python -m orrery.diagnose $1"; watched "$python" -m orrery.diagnose "$1"
    expect_status "$2"; [ "$2" = 1 ] || expect_out "$3"
    [ "$2" != 1 ] || expect_error "$3"
}

test_dumps_by_hand() {
    has_python || return 0
    make_dumps
    said clean 0 '^OK: no rank stands out$'
    said late 3 '^rank 2 is slow outside communication: it comes last to 8 of 8 calls of group 0, [34]\.9*[0-9]* ms after all others$'
    said waits 3 '^rank 2 is slow outside communication: .* and waits least: 0\.001 ms in a call, others up to 5\.000 ms$'
    said waits_not 0 '^OK: no rank stands out$'
    said outside 3 '^rank 3 hangs outside communication: nccl:all_reduce number 9 of group 0 waits in ranks 0, 1, 2, and it never came to it; its last of 8 calls has returned$'
    said absent 3 '^rank 3 hangs outside communication: .*it has left no dump$'
    said inside 3 '^all 4 ranks of group 0 have begun nccl:all_reduce number 9, and it ends not on ranks 0, 1, 2, 3$'
    said other 3 '^rank 1 calls nccl:broadcast as number 9 of group 0, where others call nccl:all_reduce'
    said link 3 '^the link from rank 0 to rank 3 is slow: messages take 4\.0 times as long as others$'
    said out 3 '^the card of rank 2 is slow in sending: messages to each of 3 ranks take 4\.0 times'
    said into 3 '^the card of rank 1 is slow in receiving: messages from each of 3 ranks take 4\.0 times'
    "$python" -m orrery.diagnose link | wc -l | grep -qx 1 || complain 'a link is more than one finding'
}

# A pickle that names anything else is refused before that is looked up; so is what is no dump.
test_hostile_pickles() {
    has_python || return 0
    cat >hostile.py <<'P'
import builtins, os, pickle, subprocess, sys

class Calls:
    def __init__(self, *what): self.what = what
    def __reduce__(self): return self.what

evil = [Calls(os.system, ("touch ran",)), Calls(subprocess.Popen, (["touch", "ran"],)), Calls(builtins.eval, ("open('ran','w')",)),
        Calls(getattr, ("text", "upper")), Calls(builtins.__import__, ("os",))]
n = 0
for one in evil:
    for protocol in (0, 2, 4):
        for what in (one, {"version": "2.10", "entries": [{"frames": one}]}, [1, (2, one)]):
            os.makedirs(f"bad{n}")
            with open(f"bad{n}/rank_0", "wb") as file:
                pickle.dump(what, file, protocol=protocol)
            n += 1
sound = pickle.dumps({"version": "2.10", "entries": []})
for bad in (b"", b"no pickle", sound[:-3], b"cos\nsystem\n(S'touch ran'\ntR.", b"Pname\n.", b"\x80\x05\x95", pickle.dumps({"version": "3.0", "entries": []}),
            pickle.dumps([1]), pickle.dumps({"version": "2.1", "entries": [{}]}), b"(" * 100000):
    os.makedirs(f"bad{n}")
    with open(f"bad{n}/rank_0", "wb") as file:
        file.write(bad)
    n += 1
import orrery
for i in range(n):
    try:
        found = orrery.diagnose_pytorch(f"bad{i}")
        raise SystemExit(f"bad{i}: is read: {found}")
    except ValueError as why:
        assert "\n" not in str(why) and f"bad{i}/rank_0" in str(why) and len(str(why)) < 400, why
assert not os.path.exists("ran"), "something was run"
print(n, "refused")
P
    script hostile.py; expect_status 0; expect_out '^55 refused$'
    mkdir -p one; "$python" -c "import os, pickle
class C:
    def __reduce__(self): return os.system, ('touch ran',)
pickle.dump(C(), open('one/rank_0', 'wb'))"
    said one 1 'one/rank_0: is no pickle that can be read safely: names [a-z]+\.system, which is not listed'
    [ ! -e ran ] || complain 'a pickle was run'
}

# Dumps that gloo makes: a rank that sleeps before each call, and one that never comes to the last.
test_gloo() {
    has_torch || return 0
    cat >gloo.py <<'P'
import datetime, os, sys, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "200"
rank, hangs = int(sys.argv[1]), sys.argv[2] == "hang"
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet_{sys.argv[2]}", rank=rank, world_size=3, timeout=datetime.timedelta(seconds=60))
x = torch.ones(64)
dist.all_reduce(x)
for i in range(6):
    if rank == 1 and not hangs:
        time.sleep(0.3)
    dist.all_reduce(x)
work = None
if hangs and rank != 1:
    work = dist.all_reduce(x, async_op=True)
from torch._C import _distributed_c10d as c10d
os.makedirs(sys.argv[2], exist_ok=True)
with open(f"{sys.argv[2]}/trace_{rank}", "wb") as file:
    file.write(c10d._dump_fr_trace())
os._exit(0)
P
    "$torch" -c 'from torch._C._distributed_c10d import _dump_fr_trace' 2>/dev/null || { echo 'skipped: this PyTorch has no recorder of gloo'; return 0; }
    local kind rank
    for kind in slow hang; do
        for rank in 0 1 2; do timeout 200 "$torch" gloo.py $rank $kind >log_$rank 2>&1 & done; wait
        [ "$(ls $kind 2>/dev/null | wc -l)" = 3 ] || { complain "gloo makes no dumps: $(tail -1 log_0)"; return; }
    done
    said slow 3 '^rank 1 is slow outside communication: it comes last to [67] of 7 calls'
    said hang 3 '^rank 1 hangs outside communication: gloo:all_reduce number 8 of group 0 waits in ranks 0, 2, and it never came to it'
}

# Written here and loaded by PyTorch; saved by two ranks of PyTorch in pieces and read here; a .metadata that names anything else.
test_dcp() {
    has_torch || return 0
    train --steps 1 --batch 2 --save saved --sample 0; expect_status 0
    cat >dcp.py <<'P'
import os, pickle, numpy, torch, orrery
from torch.distributed import checkpoint
weights = orrery.read_checkpoint("saved")["weights"]
orrery.write_dcp("ours", weights)
state = {name: torch.zeros(array.shape, dtype=torch.float32) for name, array in weights.items()}
checkpoint.load(state, checkpoint_id="ours", no_dist=True)
assert all((state[name].numpy() == array).all() for name, array in weights.items())
assert orrery.dcp_shapes("ours") == {name: array.shape for name, array in weights.items()}
again = orrery.read_dcp("ours")
assert set(again) == set(weights) and all((again[n] == weights[n]).all() and again[n].dtype == weights[n].dtype for n in weights)
orrery.write_tensors("again.safetensors", again)
assert all((orrery.read_tensors("again.safetensors")[n] == weights[n]).all() for n in weights)
for wrong in (lambda: orrery.write_dcp("ours", weights), lambda: orrery.read_dcp("ours", ["no such"])):
    try:
        wrong()
        raise SystemExit("nothing is raised")
    except (ValueError, KeyError):
        pass
class Evil:
    def __reduce__(self): return os.system, ("touch ran",)
os.makedirs("evil")
pickle.dump({"state_dict_metadata": Evil()}, open("evil/.metadata", "wb"))
try:
    orrery.read_dcp("evil")
    raise SystemExit("a hostile .metadata is read")
except ValueError as why:
    assert "which is not listed" in str(why) and not os.path.exists("ran"), why
print("both ways")
P
    cat >ranks.py <<'P'
import os, sys, torch, torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(35, dtype=torch.float32).reshape(7, 5)
state = {"cut": DTensor.from_local(whole[:4] if rank == 0 else whole[4:], mesh, [Shard(0)], shape=whole.shape, stride=whole.stride()),
         "whole": torch.arange(6, dtype=torch.int64), "half": torch.arange(4).to(torch.bfloat16), "step": 7}
checkpoint.save(state, checkpoint_id="pieces")
if rank == 0:
    import orrery
    read = orrery.read_dcp("pieces")
    assert (read["cut"] == whole.numpy()).all()
    assert read["whole"].tolist() == list(range(6)) and read["half"].tolist() == [0, 1, 2, 3] and "step" not in read
    print("pieces of two ranks")
dist.barrier()
P
    command='python dcp.py'; watched "$torch" dcp.py;       expect_status 0; expect_out '^both ways$'
    timeout 200 "$torch" ranks.py 1 >log 2>&1 &
    command='python ranks.py'; watched "$torch" ranks.py 0; expect_status 0; expect_out '^pieces of two ranks$'
    wait
}

# model.safetensors.index.json and the files that it names: the program reads them as the one file that they were cut from.
test_hugging_face_files() {
    has_python || return 0
    train --steps 1 --batch 2 --save saved --sample 0; expect_status 0
    cat >cut.py <<'P'
import json, os, shutil, orrery
weights = orrery.read_tensors("saved/model.safetensors")
names, files = sorted(weights), 3
os.makedirs("cut")
shutil.copy("saved/config.json", "cut")
index = {"metadata": {"total_size": sum(w.nbytes for w in weights.values())}, "weight_map": {}}
for i in range(files):
    file = f"model-{i + 1:05d}-of-{files:05d}.safetensors"
    mine = names[i::files]
    orrery.write_tensors(f"cut/{file}", {name: weights[name] for name in mine})
    index["weight_map"].update({name: file for name in mine})
with open("cut/model.safetensors.index.json", "w") as out:
    json.dump(index, out)
P
    script cut.py; expect_status 0
    make_text
    local from
    for from in saved cut; do run train --model $from --data "$text" --steps 1 --batch 2 --dp 2 --save from_$from --sample 0; expect_status 0; done
    cmp from_saved/model.safetensors from_cut/model.safetensors || complain 'a model of three files trains to other weights'
}

run_tests test_dumps_by_hand test_hostile_pickles test_gloo test_dcp test_hugging_face_files
