"""Pictures for a notebook: SVG, drawn here, so that nothing else has to be installed."""

from __future__ import annotations

import html
import math
import os
import tempfile
from typing import Any, Optional, Sequence

from orrery.program import Run, command, json_of

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 34, 14


class Picture(str):
    """An SVG text, which a notebook shows."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str) -> None:
        """Write it to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)


def _svg(parts: list[str], height: int = HEIGHT) -> Picture:
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="12">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, words: object, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#555">{html.escape(str(words))}</text>'


def draw_losses(*runs: Run, names: Optional[Sequence[str]] = None) -> Picture:
    """The loss of each step of one or several runs."""
    curves = [[float(x) for x in run.losses()] for run in runs]
    points = [x for curve in curves for x in curve if math.isfinite(x)]
    if not points:
        raise ValueError("these runs have no finite losses")
    low, high, steps = min(points), max(points), max(len(curve) for curve in curves)
    span = high - low or 1

    def place(i: int, x: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT - 20) * i / max(steps - 1, 1), TOP + (HEIGHT - BOTTOM - TOP) * (high - x) / span

    parts = [_text(LEFT - 6, place(0, x)[1] + 4, f"{x:.3f}", "end") for x in (low, low + span / 2, high)]
    parts += [_text(LEFT, HEIGHT - 10, "step 1"), _text(WIDTH - 20, HEIGHT - 10, f"step {steps}", "end")]
    for k, curve in enumerate(curves):
        line = " ".join("{:.1f},{:.1f}".format(*place(i, x)) for i, x in enumerate(curve) if math.isfinite(x))
        colour = COLOURS[k % len(COLOURS)]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if names:
            parts.append(f'<rect x="{WIDTH - 150}" y="{TOP + 18 * k}" width="10" height="10" fill="{colour}"/>')
            parts.append(_text(WIDTH - 134, TOP + 10 + 18 * k, names[k]))
    return _svg(parts)


def draw_memory(run: Run) -> Picture:
    """The peak memory of each device, by what holds it."""
    kinds = ["parameters", "gradients", "optimizer", "activations", "buffers"]
    devices = run["devices"]
    most = max(device["peak_bytes"]["total"] for device in devices) or 1
    row = 22
    parts: list[str] = []
    for k, kind in enumerate(kinds):
        parts.append(f'<rect x="{LEFT + 112 * k}" y="4" width="10" height="10" fill="{COLOURS[k]}"/>')
        parts.append(_text(LEFT + 14 + 112 * k, 13, kind))
    for i, device in enumerate(devices):
        x, y = float(LEFT), 26 + row * i
        parts.append(_text(LEFT - 6, y + 12, f"{device['rank']}", "end"))
        for k, kind in enumerate(kinds):
            width = (WIDTH - LEFT - 20) * device["peak_bytes"][kind] / (sum(
                device["peak_bytes"][name] for name in kinds) or 1) * device["peak_bytes"]["total"] / most
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{row - 6}" fill="{COLOURS[k]}"/>')
            x += width
    return _svg(parts, 30 + row * len(devices))


def draw_schedule(name: str, **flags: Any) -> Picture:
    """A pipeline schedule as `orrery show schedule --svg` draws it: draw_schedule("zb-h1", pp=4, micro=8)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "schedule.svg")
        json_of(*command("show", "schedule", name, svg=path, **flags))
        with open(path, encoding="utf-8") as file:
            return Picture(file.read())
