# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of docs/support.md from the data that the plan and the cluster part judge by.

python -m tests.tools.support
"""

from __future__ import annotations

import re
import sys
import typing as t
from pathlib import Path

import yaml

from .paths import ROOT

PAGE = "docs/support.md"
RULES, IMAGES = "roles/rbln_preflight/vars/main.yml", "roles/rbln_operands/vars/main.yml"
NAMES = {"ubuntu": "Ubuntu", "rhel": "RHEL", "almalinux": "AlmaLinux", "rocky": "Rocky Linux"}
START, END = "<!-- generated: %s -->", "<!-- end: %s -->"
# Keys of a rule that a row shows; another one needs a place in `notes`.
SHOWN = {"os", "version", "drivers", "families", "kernel", "kernel_max", "flavours", "tested", "packages_absent",
         "pciehp", "too_old", "too_new"}  # fmt: skip

Data = dict[str, t.Any]


def load(root: Path, name: str) -> Data:
    data: Data = yaml.safe_load((root / name).read_text(encoding="utf-8"))
    return data


def table(head: t.Sequence[str], rows: t.Iterable[t.Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| %s |" % " | ".join(cells) for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")


def drivers(rule: Data) -> str:
    """`>=3.4 <3.5`; a bare version is that one alone."""
    return "`%s`" % " ".join(rule["drivers"])


def notes(rule: Data, variables: Data) -> str:
    """What a person has to know of a system beside its kernels."""
    unknown = set(rule) - SHOWN
    if unknown:
        raise ValueError("%s: no place on the page for %s" % (rule, ", ".join(sorted(unknown))))

    def text(key: str) -> str:
        """A text of the rule, with the variable that it names."""
        return re.sub(r"{{ (\w+) }}", lambda found: str(variables[found[1]]), str(rule.get(key, ""))).strip(" \n.")

    told = ["partly tested by the vendor"] if rule.get("tested") == "partial" else []
    told += ["older kernel: " + text("too_old")] if "too_old" in rule else []
    told += ["newer kernel: " + text("too_new")] if "too_new" in rule else []
    told += ["not with `%s`" % "`, `".join(rule["packages_absent"])] if "packages_absent" in rule else []
    told += ["pciehp: " + text("pciehp")] if "pciehp" in rule else []
    return "; ".join(told).replace("|", "\\|")


def hosts(root: Path) -> str:
    variables = load(root, RULES)
    rows = []
    for rule in variables["__rbln_preflight_support_matrix"]:
        if "os" not in rule:
            continue
        most = rule.get("kernel_max")
        kernel = "%s to %s" % (rule["kernel"], most) if most else "%s, no bound published" % rule["kernel"]
        kind = " (%s)" % ", ".join(rule["flavours"]) if rule.get("flavours") else ""
        system = "%s %s" % (NAMES.get(rule["os"], rule["os"]), rule["version"])
        rows.append((drivers(rule), ", ".join(rule["families"]), system, kernel + kind, notes(rule, variables)))
    return table(("driver", "family", "system", "kernel", "notes"), rows)


def releases(root: Path) -> str:
    rules = load(root, RULES)["__rbln_preflight_support_matrix"]
    rows = [
        (", ".join(rule["sdk"]), drivers(rule), ", ".join(rule.get("families") or ["all"]))
        for rule in rules
        if "sdk" in rule
    ]
    return table(("SDK", "driver", "family"), rows)


def sources(root: Path) -> str:
    rules = load(root, RULES)["__rbln_preflight_support_matrix"]
    rows = [(drivers(rule), ", ".join(rule["sources"])) for rule in rules if "sources" in rule and "os" not in rule]
    return table(("driver", "comes as"), rows)


def components(root: Path) -> str:
    variables = load(root, IMAGES)
    known, images = variables["__rbln_operands_releases"], variables["__rbln_operands_images"]
    rows = [
        (name, "`%s`" % image["repository"], *("`%s`" % image["tag"].format(version=release["versions"][name])
                                               if name in release["versions"] else "–" for release in known))
        for name, image in images.items()
    ]  # fmt: skip
    rows.append(("driver", "", *(", ".join(release["drivers"]) for release in known)))
    return table(("component", "image", *("SDK %s" % release["sdk"] for release in known)), rows)


def pairs(root: Path) -> str:
    rows = [
        (pair["component"], "`<%s` with driver `>=%s`, or the other way round" % (pair["version"], pair["driver"]),
         pair["effect"])
        for pair in load(root, IMAGES)["__rbln_operands_wrong_pairs"]
    ]  # fmt: skip
    return table(("component", "refused", "because"), rows)


TABLES: dict[str, t.Callable[[Path], str]] = {
    "hosts": hosts,
    "sources": sources,
    "releases": releases,
    "components": components,
    "pairs": pairs,
}


def page(root: Path = ROOT) -> str:
    """The page with its tables made from the data of this checkout."""
    text = (root / PAGE).read_text(encoding="utf-8")
    for name, make in TABLES.items():
        start, end = START % name, END % name
        before, found, rest = text.partition(start)
        _old, also, after = rest.partition(end)
        if not found or not also:
            raise ValueError("%s has no %s with its %s" % (PAGE, start, end))
        text = "%s%s\n\n%s\n\n%s%s" % (before, start, make(root), end, after)
    return text


def main() -> int:
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
