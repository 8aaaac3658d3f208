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
assert orrery.draw_losses(run, run, names=["a", "<b>"]).count("polyline") == 2 and "&lt;b&gt;" in orrery.draw_losses(run, names=["<b>"])
assert orrery.draw_memory(run).startswith("<svg") and orrery.draw_schedule("1f1b", pp=2, micro=2).startswith("<svg")
print("all of it")
P
    command='python mine.py'; watched "$python" mine.py "$text" "$top/golden/gpt2-tied.safetensors"
    expect_status 0; expect_out '^all of it$'
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

run_tests test_package test_notebook
