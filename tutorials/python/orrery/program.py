"""Starts the program, and reads the JSON that it writes."""

import json
import os
import subprocess
import sys

CHECK_FAILED = 3


class Error(Exception):
    """A command that has failed: its last line of errors, and its exit status."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status

    def __reduce__(self):
        """A pool of processes sends errors to each other."""
        return Error, (str(self), self.status)


class Run(dict):
    """The document of a command (docs/using/json.md), and its exit status: 0, or 3 if a check failed."""

    status = 0

    def losses(self):
        """The loss of each step, as an array of numpy."""
        return self._of_steps("loss")

    def norms(self):
        """The norm of the gradients of each step, before clipping."""
        return self._of_steps("norm")

    def _of_steps(self, key):
        import numpy

        return numpy.array([step[key] for step in self["steps"]], dtype=float)


def command(*words, **flags):
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


def find_program():
    """The program: $ORRERY, else that of a wheel, else `orrery` in PATH."""
    inside = os.path.join(INSIDE, "orrery")
    return os.environ.get("ORRERY") or (inside if os.access(inside, os.X_OK) else "orrery")


def environment():
    """The environment of the program, which ends when this process ends.  A wheel's own mpiexec is found first."""
    path = os.environ.get("PATH", os.defpath)
    if os.path.isdir(INSIDE):
        path = INSIDE + os.pathsep + path
    return {**os.environ, "PATH": path, "ORRERY_CALLER": f"{os.getpid()}:-1"}


def main():
    """The command `orrery` of a wheel: this process becomes the program."""
    program = find_program()
    os.execvpe(program, [program, *sys.argv[1:]], environment())


def json_of(*words, **flags):
    """Run any command with --json and return its document as a Run: json_of("list", "ring")."""
    program = find_program()
    line = [program, *command(*words, **flags), "--json", "-"]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment()
        )
    except OSError as why:
        raise Error(f"{program}: {why.strerror}; ORRERY names the program", 127) from None
    if done.returncode not in (0, CHECK_FAILED) or not done.stdout.lstrip().startswith("{"):
        lines = [line for line in done.stderr.splitlines() if line.startswith("orrery: ")]
        raise Error(lines[-1] if lines else f"orrery ended with status {done.returncode}", done.returncode)
    run = Run(json.loads(done.stdout))
    run.status = done.returncode
    return run


def train(**flags):
    """Train a model: train(model="tiny", dp=2, zero=3, steps=10, data="text.txt")."""
    return json_of("train", **flags)


def infer(**flags):
    """Run a model's forward passes."""
    return json_of("infer", **flags)


def plan(**flags):
    """What a training step would take, without running it: plan(model="gpt3-175b", dp=8, tp=8, pp=8)."""
    return json_of("plan", **flags)
