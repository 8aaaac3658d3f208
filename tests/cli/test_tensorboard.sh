# Files of events, read by tensorboard itself where Python has it: the same numbers as the log, steps of a run that was cut off replaced,
# and whole records whatever byte a file ends at.
. "$(dirname "$0")/lib.sh"

python=${PYTHON:-python3}

test_tensorboard_reads_it() {
    train --batch 4 --seq 8 --steps 5 --eval-every 2 --tensorboard events --log log.jsonl --save S --save-every 3;     expect_status 0; expect_silent
    [ "$(ls events | wc -l)" = 1 ] || complain "events has $(ls events)"
    rm -r S/step-00000005
    sleep 1                                             # files are read in the order of their names, which have the second
    train --batch 4 --seq 8 --steps 6 --lr-steps 5 --eval-every 2 --tensorboard events --log log.jsonl --save S --save-every 3 --resume auto
    expect_status 0
    if ! "$python" -c 'import tensorboard' 2>/dev/null; then
        echo "skipped: $python has no tensorboard"
        return
    fi
    command='tensorboard'
    "$python" - <<'END' >"$place/out" 2>"$place/err" || complain 'it does not read what was written'
import json, pathlib, struct
from tensorboard.backend.event_processing import event_accumulator, event_file_loader

log = {r["step"]: r for r in map(json.loads, open("log.jsonl")) if r["type"] == "step"}
assert sorted(log) == [1, 2, 3, 4, 5, 6], sorted(log)
all_events = event_accumulator.EventAccumulator("events")
all_events.Reload()
for tag, key in [("train/loss", "loss"), ("train/norm", "norm"), ("train/lr", "lr"), ("validation/loss", "validation_loss")]:
    want = {s: struct.unpack("f", struct.pack("f", r[key]))[0] for s, r in log.items() if key in r}
    got = {e.step: e.value for e in all_events.Scalars(tag)}
    assert len(all_events.Scalars(tag)) == len(want) and got == want, (tag, got, want)

first = min(pathlib.Path("events").iterdir())
whole = first.read_bytes()
cut, before = pathlib.Path("cut"), 0
cut.mkdir()
for n in range(len(whole) + 1):
    file = cut / first.name
    file.write_bytes(whole[:n])
    steps = [e.step for e in event_file_loader.EventFileLoader(str(file)).Load() if e.HasField("summary")]
    assert steps == [1, 2, 3, 4, 5][:len(steps)] and len(steps) >= before, (n, steps)
    before = len(steps)
assert before == 5, before
END
}

run_tests test_tensorboard_reads_it
