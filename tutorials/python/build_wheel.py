"""Makes the wheel of the package, for pip: a zip of its sources and of what pyproject.toml says.

pip calls build_wheel and the two functions before it (PEP 517).  Nothing is written beside the sources.
"""

import base64
import hashlib
import os
import re
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def _project():
    """The strings of [project]: Python 3.9 has no reader of TOML."""
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        text = file.read().split("[project]", 1)[1]
    found = dict(re.findall(r'^([a-z-]+) = "(.*)"$', text, re.MULTILINE))
    found["dependencies"] = re.findall(r'"([^"]+)"', re.search(r"^dependencies = \[(.*)\]$", text, re.MULTILINE)[1])
    return found


def get_requires_for_build_wheel(config_settings=None):
    """Nothing else is needed."""
    return []


def _files():
    """What the wheel has: the names in it, and their bytes."""
    project = _project()
    info = f"orrery-{project['version']}.dist-info"
    metadata = [
        "Metadata-Version: 2.1", "Name: orrery", f"Version: {project['version']}", f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}", "License: MIT",
        *(f"Requires-Dist: {name}" for name in project["dependencies"]),
    ]
    files = {}
    for name in sorted(os.listdir(os.path.join(HERE, "orrery"))):
        if name.endswith((".py", ".typed")):
            with open(os.path.join(HERE, "orrery", name), "rb") as file:
                files[f"orrery/{name}"] = file.read()
    files[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: orrery\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return project["version"], info, files


def _digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Write the wheel into pip's folder, and return its name."""
    version, info, files = _files()
    record = [f"{name},{_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,"]) + "\n").encode()
    name = f"orrery-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name
