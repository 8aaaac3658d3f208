"""Pages whose examples are Python: all of two_ranks.md is typed and run as it stands; the four lines of frameworks.md are those of a run."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHECKING = ROOT / "docs" / "checking"
ORRERY = pathlib.Path(os.environ.get("ORRERY", ROOT / "orrery")).resolve()


def blocks(page):
    """[(name, text)] of a page's code: files as `NAME.py` before a block in Python, and blocks of commands, whose name is None."""
    found = []
    for before, kind, text in re.findall(r"(?:`([\w.]+\.py)`:\n\n)?^```(\w*)\n(.*?)^```$", page, re.M | re.S):
        found.append((before if kind == "python" else None, text))
    return found


class Typed(unittest.TestCase):
    def command(self, line, folder):
        """Run a line of the page.  @return what it says"""
        # Standard input is nothing, and numpy is all that a file of the page may import.
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=dict(os.environ, PATH=f"{folder / 'bin'}:{os.environ['PATH']}", PYTHONPATH=str(folder)),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
        self.assertIn(done.returncode, (0, 3), f"{line}: {done.stderr}")
        return done.stdout + done.stderr

    def quoted(self, text, folder):
        """A block of commands: lines after one are of its output, in this order."""
        said, line_of = [], ""
        for line in text.splitlines():
            if line.startswith("$ "):
                line_of = line[2:]
                said = [x.rstrip() for x in self.command(line_of, folder).splitlines()]
            elif line.strip() and line != "...":
                self.assertIn(line.rstrip(), said, f"what {line_of} says")
                said = said[said.index(line.rstrip()) + 1:]

    def test_two_ranks(self):
        self.assertTrue(ORRERY.exists(), f"{ORRERY} is not built")
        page, files, commands = (CHECKING / "two_ranks.md").read_text(), 0, 0
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "bin").mkdir()
            (folder / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')       # a link would leave its environment
            (folder / "bin" / "python3").chmod(0o755)
            os.symlink(ORRERY, folder / "bin" / "orrery")
            for name, text in blocks(page):
                if name:
                    (folder / name).write_text(text)
                    files += 1
                elif text.startswith("$ "):
                    commands += text.count("$ ")
                    self.quoted(text, folder)
            shutil.rmtree(folder / "dump")
        self.assertEqual((files, commands), (3, 8))

    def test_numpy_is_all_that_is_imported(self):
        for name, text in blocks((CHECKING / "two_ranks.md").read_text()):
            imported = re.findall(r"^(?:import|from) (.*?)(?: as .*| import .*)?$", text, re.M) if name else []
            self.assertLessEqual({n for line in imported for n in line.split(", ")}, {"numpy", "json", "math", "os", "sys", "safefile"})

    def test_four_lines(self):
        """The lines of runs/four_lines.py that are numbered are those of the page, and all that name the recorder."""
        run = (ROOT / "golden/frameworks/runs/four_lines.py").read_text()
        marked = [re.sub(r" *# \d$", "", line).strip() for line in run.splitlines() if re.search(r"# \d$", line)]
        page = (CHECKING / "frameworks.md").read_text().split("## Four lines", 1)[1].split("\n## ", 1)[0]
        shown = [re.sub(r" *# \d$", "", line).strip() for line in page.splitlines() if re.search(r"# \d$", line)]
        self.assertEqual(len(marked), 4)
        self.assertEqual(shown, marked)
        others = [line for line in run.splitlines() if re.search(r"recorder|Recorder|orrery_dump", line) and not re.search(r"# \d$", line)]
        self.assertEqual(others, [])


if __name__ == "__main__":
    unittest.main()
