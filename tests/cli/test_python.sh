# The Python package of tutorials/python: each of its functions, and the notebook; skipped without Python and numpy.
. "$(dirname "$0")/lib.sh"
export ORRERY=$program PYTHONPATH=$top/tutorials/python PYTHONDONTWRITEBYTECODE=1
python=
for one in "${PYTHON:-}" "${PY:-}" python3; do
    if [ -n "$one" ] && "$one" -c 'import numpy' 2>/dev/null; then python=$one; break; fi
done
has_python() { [ -n "$python" ] || { echo 'skipped: there is no Python with numpy'; return 1; }; }

test_package() {
    has_python || return 0
    make_text
    cat >mine.py <<'P'
import os, sys
import numpy, orrery

text, golden = sys.argv[1:]
assert orrery.command("train", dp=2, check=True, seed=None, devices=[1, 2]) == ["train", "--dp", "2", "--check", "--devices", "1,2"]
run = orrery.train(model="tiny", data=text, dp=2, steps=2, batch=2, dtype="bf16", check="ref", save="saved", trace="trace.json")
assert run.status == 0 and run["check"]["holds"] and run["format"] == "orrery train"
assert run.losses().shape == (2,) and numpy.isfinite(run.norms()).all()
saved = orrery.read_checkpoint("saved")
assert saved["training"]["step"] == 2 and saved["config"]["n_layer"] == 8
weights = saved["weights"]
assert all(numpy.isfinite(x).all() for x in weights.values()) and any(x.size > 100 for x in weights.values())
assert any(x.ndim == 2 and numpy.abs(x).max() > 0.01 for x in weights.values())
slices = orrery.read_trace("trace.json")
assert {one["device"].split()[1] for one in slices} == {"0", "1"} and all(one["us"] >= 0 for one in slices)
loss = orrery.read_tensors(golden, ["loss"])["loss"]
assert loss.dtype == numpy.float64 and 1 < loss.item() < 9
ids = orrery.read_tensors(golden)["ids"]
assert ids.dtype == numpy.int32 and ids.min() >= 0
for wrong in (lambda: orrery.train(model="tniy"), lambda: orrery.json_of("plna")):
    try:
        wrong()
        raise SystemExit("a wrong word raises nothing")
    except orrery.Error as why:
        assert why.status == 2 and "did you mean" in str(why), why
check = orrery.json_of("check", golden, golden.replace("gpt2-tied", "biased-mlp"))
assert check.status == 3 and not check["holds"]
for bad in (text, golden):
    try:
        orrery.read_tensors(bad, ["no such tensor"])
        raise SystemExit("nothing is raised")
    except (ValueError, KeyError):
        pass
heard = []
run = orrery.train(model="tiny", data=text, steps=3, batch=2, hear=heard.append)
assert run.status == 0 and sum(line.startswith("step ") for line in heard) == 3, heard
stopped = orrery.train(model="tiny", data=text, steps=40000, batch=2, hear=lambda line: not line.startswith("step "))
assert stopped.status == 143 and 1 <= len(stopped.losses()) < 1000, stopped.status
def broken(line):
    raise RuntimeError("in hear")
try:
    orrery.train(model="tiny", data=text, steps=40000, batch=2, hear=broken)
    raise SystemExit("an error in hear is lost")
except RuntimeError as why:
    assert str(why) == "in hear"
assert orrery.draw_losses(run, run, names=["a", "<b>"]).count("polyline") == 2 and "&lt;b&gt;" in orrery.draw_losses(run, names=["<b>"])
assert orrery.draw_memory(run).startswith("<svg") and orrery.draw_schedule("1f1b", pp=2, micro=2).startswith("<svg")
print("all of it")
P
    command='python mine.py'; watched "$python" mine.py "$text" "$top/golden/gpt2-tied.safetensors"
    expect_status 0; expect_out '^all of it$'
}

# Every function says what it takes and gives: a checker of types agrees, and without one the annotations are there.
test_types() {
    has_python || return 0
    cat >mine.py <<'P'
import inspect, typing, orrery
for name in orrery.__all__:
    one = getattr(orrery, name)
    for function in [one] if inspect.isfunction(one) else [x for x in vars(one).values() if inspect.isfunction(x)]:
        said = inspect.signature(function)
        bare = [p.name for p in said.parameters.values() if p.annotation is p.empty and p.name != "self"]
        assert not bare and said.return_annotation is not said.empty, (name, function.__name__, bare)
print("all of it")
P
    command='python mine.py'; watched "$python" mine.py; expect_status 0; expect_out '^all of it$'
    [ -e "$top/tutorials/python/orrery/py.typed" ] || complain 'py.typed is not there'
    "$python" -m mypy --version >/dev/null 2>&1 || { echo 'there is no mypy: annotations are not compared with the code'; return; }
    command='mypy --strict'; (cd "$top/tutorials/python" && "$python" -m mypy --strict --cache-dir "$place/cache" orrery) >"$place/out" 2>&1 || { look; complain 'a checker of types disagrees'; }
}

# With nbclient as Jupyter runs it; without, its cells one after another.
test_notebook() {
    has_python || return 0
    cat >run.py <<'P'
import json, sys
book = json.load(open(sys.argv[1]))
try:
    import nbclient, nbformat
    nbclient.NotebookClient(nbformat.read(sys.argv[1], as_version=4), timeout=200, kernel_name="python3").execute()
    print("by nbclient")
except ImportError:
    names = {}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    print("there is no nbclient: its cells alone")
P
    command='python run.py first_run.ipynb'; watched "$python" run.py "$top/tutorials/python/first_run.ipynb"
    expect_status 0; expect_out '^by nbclient$|^there is no nbclient'; cat "$place/out"
}

# What other programs do with it: every shipped file is read, errors travel between processes, and a run ends with its caller.
test_beside_other_programs() {
    has_python || return 0
    cat >mine.py <<'P'
import glob, os, pickle, sys
import numpy, orrery

golden = sys.argv[1]
numbers = orrery.read_tensors(golden + "/fp8.safetensors")
eight = [x for x in numbers.values() if x.dtype == numpy.float32 and x.size]
assert eight and all(numpy.isfinite(x).any() for x in eight), "no numbers of 8 bits"
files = sorted(glob.glob(golden + "/**/*.safetensors", recursive=True), key=os.path.getsize)
for path in files[: len(files) if "all" in sys.argv else 12]:
    assert orrery.read_tensors(path), path
from orrery.files import EIGHT_BITS
e4m3, e5m2 = EIGHT_BITS["F8_E4M3"], EIGHT_BITS["F8_E5M2"]
assert e4m3[0x7e] == 448 and e4m3[1] == 2.0**-9 and e4m3[0xb8] == -1 and numpy.isnan(e4m3[0x7f]) and numpy.isnan(e4m3).sum() == 2
assert e5m2[0x7b] == 57344 and e5m2[1] == 2.0**-16 and e5m2[0x3c] == 1 and numpy.isinf(e5m2[0xfc]) and numpy.isnan(e5m2).sum() == 6
again = pickle.loads(pickle.dumps(orrery.Error("no such model", 2)))
assert type(again) is orrery.Error and str(again) == "no such model" and again.status == 2
assert orrery.command("x", a=numpy.bool_(False), b=numpy.bool_(True)) == ["x", "--b"]
with open("broken.safetensors", "wb") as file:
    file.write((8).to_bytes(8, "little") + b"{ \"a\": ?")
with open("new.safetensors", "wb") as file:
    head = b'{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}'
    file.write(len(head).to_bytes(8, "little") + head + b"1")
for path in ("broken.safetensors", "new.safetensors"):
    try:
        orrery.read_tensors(path)
        raise SystemExit("nothing is raised")
    except ValueError as why:
        assert str(why).startswith(path + ": "), why
print("all of it")
P
    local all=; [ "${TIER:-test}" != verify ] || all=all
    command='python mine.py'; watched "$python" mine.py "$top/golden" $all; expect_status 0; expect_out '^all of it$'
    cat >slow.py <<'P'
import os, orrery
print(os.getpid(), flush=True)
orrery.train(model="tiny", steps=4000)
P
    "$python" slow.py >pid 2>/dev/null & local i child= parent=$!
    for i in {1..200}; do [ ! -s pid ] || child=$(ps -o pid= --ppid "$(cat pid)" 2>/dev/null | head -n 1); [ -z "$child" ] || break; sleep 0.1; done
    [ -n "$child" ] || complain 'no run was started'
    kill -KILL "$parent"; wait "$parent" 2>/dev/null
    for i in {1..50}; do kill -0 $child 2>/dev/null || break; sleep 0.1; done
    ! kill -0 $child 2>/dev/null || complain 'its run goes on without it'
}

# pip needs no network and no other package, and leaves nothing in the folder, which may be another user's.
test_pip() {
    has_python || return 0
    "$python" -m pip --version >/dev/null 2>&1 || { echo 'skipped: there is no pip'; return; }
    ls -lAR "$top/tutorials/python" >before
    command='pip install tutorials/python'; watched "$python" -m pip install -q --no-index --no-deps --disable-pip-version-check --root-user-action ignore --target here "$top/tutorials/python"
    expect_status 0; expect_file here/orrery/program.py; expect_file here/orrery-0.1.dist-info/METADATA
    ls -lAR "$top/tutorials/python" | cmp -s - before || complain 'pip has written into the folder'
    (unset PYTHONPATH; cd here && "$python" -c 'import orrery; print(orrery.plan(model="tiny", dp=2)["format"])') >"$place/out" || complain 'the installed package does not work'
    expect_out '^orrery plan$'
}

run_tests test_package test_types test_notebook test_beside_other_programs test_pip
