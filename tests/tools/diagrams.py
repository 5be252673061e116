# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the pictures of the guides from what they show: docs/images/*.svg. A test proves that they are as drawn here."""

from __future__ import annotations

import re
import sys
import typing as t
from html import escape
from pathlib import Path

import yaml

from .paths import ROOT

FOLDER = "docs/images"
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-labelledby="t">
<!-- Copyright (c) 2026 The rebellions.npu authors. SPDX-License-Identifier: GPL-3.0-or-later -->
<title id="t">%s</title>
<style>
text { font: 14px system-ui, sans-serif; fill: #1c2733 } .h { font-weight: 600 } .s { font-size: 12px; fill: #56657a }
.b { fill: #f4f7fb; stroke: #8296b0 } .a { fill: none; stroke: #56657a; stroke-width: 1.5; marker-end: url(#m) }
.m { fill: #56657a }
@media (prefers-color-scheme: dark) {
text { fill: #e8edf4 } .s { fill: #a9b7c9 } .b { fill: #1d2631; stroke: #5b6f8a }
.a { stroke: #a9b7c9 } .m { fill: #a9b7c9 }
}
</style>
<defs><marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path class="m" d="M0 0L8 4L0 8z"/></marker></defs>
"""


def box(x: int, y: int, width: int, lines: list[tuple[str, str]]) -> tuple[str, int]:
    """(a box with lines, each with its class; its height)."""
    height = 20 + 22 * len(lines)
    out = [f'<rect class="b" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>']
    for number, (style, line) in enumerate(lines):
        out.append(f'<text class="{style}" x="{x + 14}" y="{y + 26 + 22 * number}">{escape(line)}</text>')
    return "\n".join(out), height


def arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<path class="a" d="M{x1} {y1}L{x2} {y2}"/>'


def used(item: t.Any) -> t.Iterator[str]:
    """Each role that an item of a playbook runs, with its entry point, in order."""
    if isinstance(item, dict):
        for key in ("ansible.builtin.import_role", "ansible.builtin.include_role"):
            if key in item:
                entry = str(item[key].get("tasks_from", "main")).removesuffix(".yml")
                yield item[key]["name"].rpartition(".")[2] + ("" if entry == "main" else f": {entry}")
        for key in ("pre_tasks", "tasks", "block", "rescue", "always"):
            yield from used(item.get(key) or [])
    elif isinstance(item, list):
        for value in item:
            yield from used(value)


def states(root: Path) -> str:
    """The plays of site.yml in order, each with the roles that it runs."""
    width, y, parts = 420, 10, []
    plays = yaml.safe_load((root / "playbooks/site.yml").read_text(encoding="utf-8"))
    for number, play in enumerate(plays):
        roles = list(dict.fromkeys(used(play)))
        drawn, height = box(10, y, width, [("h", play["name"]), *(("s", role) for role in roles)])
        parts.append(drawn)
        y += height
        if number < len(plays) - 1:
            parts.append(arrow(10 + width // 2, y, 10 + width // 2, y + 24))
            y += 24
    title = "The plays of site.yml in order, and the roles that each runs"
    return HEAD % (width + 20, y + 10, width + 20, title) + "\n".join(parts) + "\n</svg>\n"


def rooms_of(root: Path, side: str) -> list[str]:
    """The rooms of one side, in the order of docs/architecture.md."""
    page = (root / "docs/architecture.md").read_text(encoding="utf-8")
    return [name for name in re.findall(r"^\*\*`(_\w+)`\*\*", page, re.M) if (root / "plugins" / side / name).is_dir()]


def rooms(root: Path) -> str:
    """The rooms of controller and hosts; a room imports only those above it."""
    parts, heights = [], []
    sides = (("plugin_utils", "controller", "plugins/action", 10), ("module_utils", "hosts", "plugins/modules", 330))
    for side, where, door, x in sides:
        drawn, height = box(x, 10, 220, [("h", door), ("s", f"run on {where}")])
        parts.append(drawn)
        y = 10 + height + 24
        parts.append(arrow(x + 110, 10 + height, x + 110, y))
        lines = [("h", f"plugins/{side}")]
        lines += [("s", name) for name in rooms_of(root, side)]
        drawn, height = box(x, y, 220, lines)
        parts.append(drawn)
        heights.append(y + height)
    parts.append(arrow(230, 160, 330, 160))
    parts.append('<text class="s" x="246" y="150">imports</text>')
    high = max(heights) + 10
    title = "The rooms of the code: each imports only rooms above it, and those of hosts nothing of the controller"
    return HEAD % (560, high, 560, title) + "\n".join(parts) + "\n</svg>\n"


PICTURES: dict[str, t.Callable[[Path], str]] = {"states.svg": states, "rooms.svg": rooms}


def main() -> int:
    for name, draw in PICTURES.items():
        (ROOT / FOLDER / name).write_text(draw(ROOT), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
