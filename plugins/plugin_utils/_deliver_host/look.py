# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation by the host tool that is installed: what is sent, and what comes back.

It costs a quarter of the module, whose sources a host compiles each time.
"""

from __future__ import annotations

import functools
import json
import shlex
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import INTERPRETER
from ansible_collections.rebellions.npu.plugins.module_utils._host import unpacked

from .._text.line import line
from .host_tool import LIB_DIR
from .zipapp import JUDGE, MODULE_UTILS, NAME, PACKAGE, VENDOR, program

# One line, as every shell takes it.
_CODE = 'import json,sys;d=json.load(sys.stdin);n={"__name__":"look"};exec(d["text"],n);n["start"](d)'
ARGUMENTS = ("-ISE", "-c", _CODE)
# Of a shell that does not find its program, and of Pythons before 3.8: the module speaks of these, or finds another.
NOT_FOUND = 127
TOO_OLD = ("future feature annotations is not defined", "SyntaxError")

_AGAIN = "Run the playbook rebellions.npu.site, which installs the host tool again."
_NEXT = {
    unpacked.OTHER: _AGAIN,
    unpacked.SPOILT: "Look at who changed it. " + _AGAIN,
    unpacked.PYTHON_CHANGED: _AGAIN,
    unpacked.CHANGEABLE: "Make it root's, with mode 0755, and look for files that nobody should have put there.",
}
_SILENT = "Let the start-up files of its account print nothing where there is no terminal."
_REPORT = f"Run {NAME} observe on the host; if that works, report a fault of this collection."


@dataclass(frozen=True)
class Said:
    """What came back: the answer of the module's kind; else why there is none, empty where that is no fault."""

    answer: dict[str, t.Any] | None
    why: str = ""
    next_step: str = ""


@functools.lru_cache(maxsize=None)
def _text() -> str:
    return MODULE_UTILS.joinpath(*JUDGE.split(".")).with_suffix(".py").read_text(encoding="utf-8")


def command(python: str = "") -> str:
    """The command for a shell; `python` as the inventory has it, empty for the system's."""
    return "%s %s" % (python or INTERPRETER, " ".join(map(shlex.quote, ARGUMENTS)))


def order(parameters: t.Mapping[str, t.Any], environment: t.Mapping[str, t.Any]) -> bytes:
    """What the command reads: the judge of the folder, what to look at, the variables of the task's environment."""
    sent = {
        "lib": LIB_DIR,
        "digest": program()[1],
        "vendor": f"{PACKAGE}.{VENDOR}",
        "module": f"{PACKAGE}._observe.observe",
        "parameters": parameters,
        "environment": {name: str(value) for name, value in environment.items()},
        "arguments": ARGUMENTS,
        "text": _text(),
    }
    return json.dumps(sent).encode("ascii")


def read(code: int, out: str, err: str) -> Said:
    """What the command has said. The answer is not judged yet."""
    before, mark, after = out.partition(unpacked.MARK)
    if not mark:
        if code == NOT_FOUND or any(text in err for text in TOO_OLD):
            return Said(None)
        last = next((text for text in reversed(err.splitlines()) if text.strip()), "it printed nothing")
        return Said(None, "it gave no answer (exit code %d: %s)" % (code, line(last, 300)), _REPORT)
    if before.strip():
        return Said(None, "the shell of its account prints %r before the answer" % line(before.strip(), 80), _SILENT)
    try:
        found = json.loads(after.partition("\n")[0])
    except (ValueError, RecursionError):
        return Said(None, "its answer is cut short or broken", _REPORT)
    told = found if isinstance(found, dict) else {}
    answer, unfit = told.get("answer"), told.get("unfit")
    if isinstance(answer, dict):
        return Said(answer)
    if unfit == unpacked.ABSENT:
        return Said(None)
    if not isinstance(unfit, str):
        return Said(None, "its answer is no observation", _REPORT)
    return Said(None, line(str(told.get("why")), 300).rstrip("."), _NEXT.get(unfit, _REPORT))
