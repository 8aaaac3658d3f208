"""Starts the program, hears what it reports, and reads the JSON that it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    import numpy

CHECK_FAILED = 3
Hear = Callable[[str], Any]


class Error(Exception):
    """A command that has failed: its last line of errors, and its exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[Error], tuple[str, int]]:
        """A pool of processes sends errors to each other."""
        return Error, (str(self), self.status)


class Run(dict[str, Any]):
    """The document of a command (docs/using/json.md), and its exit status: 0, 3 if a check failed, 143 if `hear` stopped it."""

    status: int = 0

    def losses(self) -> numpy.ndarray:
        """The loss of each step, as an array of numpy."""
        return self._of_steps("loss")

    def norms(self) -> numpy.ndarray:
        """The norm of the gradients of each step, before clipping."""
        return self._of_steps("norm")

    def _of_steps(self, key: str) -> numpy.ndarray:
        import numpy

        return numpy.array([step[key] for step in self["steps"]], dtype=float)


def command(*words: Any, **flags: Any) -> list[str]:
    """The words of a command line: command("train", dp=2, check="ref") is ["train", "--dp", "2", "--check", "ref"].

    A name's underscores are dashes; True is a flag without a value; False and None leave it out; a list has commas.
    """
    line = [str(word) for word in words]
    for name, value in flags.items():
        if type(value).__name__ in ("bool", "bool_"):  # numpy has a bool of its own
            value = bool(value)
        if value is None or value is False:
            continue
        line.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            line.append(",".join(str(x) for x in value))
        elif value is not True:
            line.append(str(value))
    return line


INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside", "bin")


def find_program() -> str:
    """The program: $ORRERY, else that of a wheel, else `orrery` in PATH."""
    inside = os.path.join(INSIDE, "orrery")
    return os.environ.get("ORRERY") or (inside if os.access(inside, os.X_OK) else "orrery")


def environment() -> dict[str, str]:
    """The environment of the program, which ends when this process ends.  A wheel's own mpiexec is found first."""
    path = os.environ.get("PATH", os.defpath)
    if os.path.isdir(INSIDE):
        path = INSIDE + os.pathsep + path
    return {**os.environ, "PATH": path, "ORRERY_CALLER": f"{os.getpid()}:-1"}


def main() -> None:
    """The command `orrery` of a wheel: this process becomes the program."""
    program = find_program()
    os.execvpe(program, [program, *sys.argv[1:]], environment())


def _hear_all(child: subprocess.Popen[str], hear: Optional[Hear]) -> tuple[str, list[str], bool]:
    """The document, all lines of standard error, and whether `hear` has stopped the command."""
    document: list[str] = []
    lines: list[str] = []
    stopped = False
    out, err = child.stdout, child.stderr
    assert out is not None and err is not None
    reader = threading.Thread(target=lambda: document.append(out.read()), daemon=True)
    reader.start()
    for line in err:
        lines.append(line.rstrip("\n"))
        if hear is not None and hear(lines[-1]) is False and not stopped:
            child.send_signal(signal.SIGTERM)
            stopped = True
    reader.join()
    return "".join(document), lines, stopped


def json_of(*words: Any, hear: Optional[Hear] = None, **flags: Any) -> Run:
    """Run any command with --json and return its document as a Run: json_of("list", "ring").

    `hear` is called with each line that the command reports, as soon as there is one: hear=print shows how a run goes on.  If `hear` returns
    False, the command is stopped; the Run has what had been done, and status 143.
    """
    program = find_program()
    line = [program, *command(*words, **flags), "--json", "-"]
    try:
        child = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            errors="replace", env=environment()
        )
    except OSError as why:
        raise Error(f"{program}: {why.strerror}; ORRERY names the program", 127) from None
    with child:
        try:
            document, lines, stopped = _hear_all(child, hear)
        except BaseException:  # Ctrl-C in a notebook, or what `hear` has raised: the run ends first
            child.terminate()
            child.communicate()
            raise
    usual = (0, CHECK_FAILED, 128 + signal.SIGTERM) if stopped else (0, CHECK_FAILED)
    if child.returncode not in usual or not document.lstrip().startswith("{"):
        errors = [line for line in lines if line.startswith("orrery: ")]
        raise Error(errors[-1] if errors else f"orrery ended with status {child.returncode}", child.returncode)
    run = Run(json.loads(document))
    run.status = child.returncode
    return run


def train(*, hear: Optional[Hear] = None, **flags: Any) -> Run:
    """Train a model: train(model="tiny", dp=2, zero=3, steps=10, data="text.txt", hear=print)."""
    return json_of("train", hear=hear, **flags)


def infer(*, hear: Optional[Hear] = None, **flags: Any) -> Run:
    """Run a model's forward passes."""
    return json_of("infer", hear=hear, **flags)


def plan(**flags: Any) -> Run:
    """What a training step would take, without running it: plan(model="gpt3-175b", dp=8, tp=8, pp=8)."""
    return json_of("plan", **flags)
