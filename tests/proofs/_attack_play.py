# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole playbooks against hosts that answer with crafted data, beside one honest host, in a watched home directory."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from tests.proofs._attack_answers import ATTACKS, OBSERVE, Answer, Crafted, Targets, archive, craft
from tests.tools.paths import COLLECTIONS, ROOT, STAGE, STAGED, VENV, environment

HONEST = "honest"
SECRET = "value-of-the-secret-file"
PRODUCT = str(1000003 * 1000033)
# The lab of another proof may write below these.
OF_OTHERS = ("/etc/containers", "/etc/cni")
# Where names that a crafted answer makes up are searched after each run.
SEARCHED = ("/etc", "/root", "/home", "/opt", "/srv", "/tmp", "/var/tmp", "/usr/local", "/run", str(ROOT))
# What of a controller's output is not text: C0 without line feed and tab, DEL, C1, and what reorders or splits lines.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# Names of Python's exceptions, and how ansible-core words those that nobody expected.
RAISED = re.compile(
    r"Traceback \(most recent call last\)|Unexpected failure during module execution|Unexpected Exception|"
    r"\b(?:Key|Type|Attribute|Value|Index|Recursion|Unicode\w+|Overflow|Assertion|NotImplemented|Memory|OS)Error\b|"
    r"object has no attribute|has no attribute|is undefined|unhashable type|not subscriptable|not iterable|"
    r"codec can't|object of type|unexpected keyword|object is not|maximum recursion|Unhandled|must be str"
)
# How ansible-core itself, and we, refuse what core cannot read.
REFUSED = re.compile(
    r"Ansible cannot read it \(\w+\)|"
    r"Refusing to deserialize an invalid UTF8 string value: [^:]*: surrogates not allowed|"
    r"maximum recursion depth exceeded while decoding a JSON (?:array|object) from a unicode string"
)
IN_BUNDLE = re.compile(
    r"(?:h\d{3}|%s)(?:/[a-z0-9_]+-[a-z0-9._]+-[a-z0-9_]+"
    r"(?:/(?:manifest\.json|Release|Packages|Packages\.gz|(?:packages|driver)(?:/[A-Za-z0-9][\w.+~-]*)?))?)?" % HONEST
)
LINE = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=\d+\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


@dataclass(frozen=True)
class Book:
    """A playbook of the collection: the modules whose answers are crafted, and attacks that come more often."""

    name: str
    modules: tuple[str, ...]
    more: tuple[str, ...] = ()
    check: bool = False

    def __str__(self) -> str:
        return self.name + (" --check" if self.check else "")


CHANGES = ("rbln_driver", "rbln_driver_files", "rbln_validate", "rbln_cdi_spec", "rbln_config_write", "rbln_host_tool")
BOOKS = (
    Book("discover", (OBSERVE,), ("key", "text", "template")),
    Book("plan", (OBSERVE,)),
    Book("validate", (OBSERVE, "rbln_validate")),
    Book("site", (OBSERVE, *CHANGES, "async_wrapper", "async_status", "other"), ("template", "template")),
    Book("site", (OBSERVE, *CHANGES), check=True),
    Book("bundle", (OBSERVE, "rbln_bundle"), ("path", "path", "path")),
    Book("bundle_place", (OBSERVE, "rbln_bundle")),
    Book("remove", (OBSERVE, "rbln_driver", "rbln_validate", "rbln_config_write", "async_status", "other")),
)
# What the inventory says of every host, and no host may change.
INPUTS = (
    "ansible_connection", "ansible_host", "ansible_python_interpreter", "rbln_registry", "rbln_preflight_unlisted",
    "rbln_bundle_folder", "rbln_operands_kubeconfig",
)  # fmt: skip
BOOK = """
- name: The playbook
  ansible.builtin.import_playbook: rebellions.npu.%s
- name: Ask what the run believes
  hosts: keeper
  gather_facts: false
  tasks:
    - name: Tell
      ansible.builtin.debug:
        msg: "PROBE {{ item }} {{ dict(names | zip(names | map('extract', hostvars, item))) | to_json }}"
      vars:
        names: "{{ groups['npu_nodes'] }}"
      loop: %s
    - name: Tell of groups
      ansible.builtin.debug:
        msg: "GROUPS {{ groups.keys() | list | to_json }} {{ groups['all'] | length }}"
"""


@dataclass
class Case:
    """One host: what it answers, and what the judges found."""

    name: str
    crafted: Crafted
    wrong: list[str] = field(default_factory=list)


class Sandbox:
    """A home directory, a working directory and a place for temporary files, watched."""

    def __init__(self, root: Path, good: t.Mapping[str, Answer]) -> None:
        self.root, self.good = root, good
        for name in ("home/.ssh", "work", "bundles", "tmp", "canaries", "recipes", "files"):
            (root / name).mkdir(parents=True)
        (root / "home/.secret").write_text(SECRET)
        (root / "home/.ssh/authorized_keys").write_text("ssh-ed25519 AAAA administrator\n")
        (root / "home/.bashrc").write_text("# shell\n")
        program = root / "canaries/program"
        program.write_text("#!/bin/sh\ntouch %s/ran\n" % (root / "canaries"))
        program.chmod(0o755)
        run = root / "files/rebellions-x86_64-3.4.0.run"
        run.write_text("#!/bin/sh\nexit 1\n")
        self.runfile = {
            "rbln_driver_source": "runfile",
            "rbln_driver_runfile": str(run),
            "rbln_driver_runfile_sha256": hashlib.sha256(run.read_bytes()).hexdigest(),
        }

    def watched(self) -> dict[str, str]:
        """{path: what it is} of all that a run must leave alone."""
        found = {}
        for top in (self.root / "home", self.root / "work", self.root / "canaries", self.root / "files", Path("/etc")):
            for folder, names, files in os.walk(top):
                names[:] = [name for name in names if os.path.join(folder, name) not in OF_OTHERS]
                for name in (*names, *files):
                    path = Path(folder, name)
                    try:
                        info = path.lstat()
                    except OSError:
                        continue
                    found[str(path)] = "%o %d" % (info.st_mode, info.st_size)
                    if name in files:
                        found[str(path)] += " %d" % info.st_mtime_ns
        return found

    def recipe(self, host: str, crafted: Crafted | None) -> None:
        """Write what a host answers: an honest answer to all that is not crafted."""
        answers = {
            name: {"rc": 0, "out": json.dumps({"changed": False, **data}).encode(), "err": b""}
            for name, data in self.good.items()
        }
        answers["temporary"] = {"rc": 0, "out": b"ansible-tmp-1=/root/.ansible/tmp/ansible-tmp-1\n", "err": b""}
        journal = {"step": "install", "previous": {"version": "3.2.2"}, "wanted": {"version": "3.4.0"}}
        ended = "=note\n%s\n=jobs\n/proc/7/cmdline\n=journal\n%s\n" % (
            json.dumps({"started": 1, "finished": 1}),
            json.dumps(journal),
        )
        answers["follow"] = {"rc": 0, "out": ended.encode(), "err": b""}
        if crafted is not None:
            answers[crafted.module] = {"rc": crafted.rc, "out": crafted.out, "err": crafted.err}
        encoded = {
            name: {**data, "out": _text(data["out"]), "err": _text(data["err"])} for name, data in answers.items()
        }
        (self.root / "recipes" / (host + ".json")).write_text(json.dumps(encoded))
        archive(self.root / "recipes" / (host + ".tar"))


def _text(data: t.Any) -> str:
    return base64.b64encode(data).decode("ascii")


def crafted_case(seed: int, book: Book, number: int, good: t.Mapping[str, Answer], root: Path) -> Case:
    """A case by its seed: attacks in turn, half of them on the observation."""
    source = random.Random("%d %s %d" % (seed, book, number))
    module = OBSERVE if number % 2 or len(book.modules) == 1 else source.choice(book.modules[1:])
    name = "h%03d" % number
    attacks = (*book.more, *ATTACKS)
    answer = good.get(module, good["other"])
    to = Targets(root / "home", root / "canaries", "mark" + name)
    return Case(name, craft(source, attacks[number // 2 % len(attacks)], module, answer, to))


@dataclass
class Outcome:
    code: int
    text: str
    seconds: float
    before: dict[str, str]
    after: dict[str, str]
    asked: int


def run(sandbox: Sandbox, book: Book, cases: t.Sequence[Case], limit: float = 300) -> Outcome:
    """Run a book of the collection on the honest host and the crafted ones."""
    root = sandbox.root
    shutil.rmtree(root / "bundles", ignore_errors=True)
    (root / "bundles").mkdir()
    sandbox.recipe(HONEST, None)
    for case in cases:
        sandbox.recipe(case.name, case.crafted)
    names = [HONEST, *(case.name for case in cases)]
    every = {
        "ansible_connection": "crafted", "ansible_python_interpreter": "/usr/bin/python3", "rbln_registry": "lab.local",
        "rbln_preflight_unlisted": "warn", "rbln_operands_kubeconfig": "", "rbln_serial": len(names),
        "rbln_container_toolkit_runtime_restart": "if_required", "rbln_bundle_base": "important", **sandbox.runfile,
    }  # fmt: skip
    hosts: dict[str, Answer] = {}
    for number, host in enumerate(names):
        hosts[host] = {"ansible_host": host + ".example", "rbln_bundle_folder": str(root / "bundles" / host)}
        hosts[host]["rbln_driver_version"] = "3.4.0" if number % 4 == 1 else "3.2.2"
    if book.name == "remove":
        # Its answers do not change: the proof that nothing is left fails when the driver is to go.
        hosts[HONEST]["rbln_driver_source"] = "preinstalled"
    tree = {
        "npu_nodes": {"hosts": hosts, "vars": every},
        "npu_bundle": {"hosts": dict.fromkeys(names, {})},
        "watch": {"hosts": {"keeper": {"ansible_connection": "local"}}},
    }
    for host in names if book.name == "bundle_place" else ():
        shutil.copytree(root / "bundle", root / "bundles" / host)
    (root / "files/inventory.json").write_text(json.dumps(tree))
    (root / "files/book.yml").write_text(BOOK % (book.name, json.dumps(INPUTS)))
    settings = environment(
        VENV,
        HOME=str(root / "home"),
        TMPDIR=str(root / "tmp"),
        ANSIBLE_HOME=str(root / "ansible"),
        ANSIBLE_COLLECTIONS_PATH="%s:%s" % (STAGE, COLLECTIONS),
        ANSIBLE_CONNECTION_PLUGINS=str(STAGED / "tests/proofs/attack_connection"),
        ANSIBLE_PIPELINING="true",
        ANSIBLE_LOCALHOST_WARNING="false",
        ANSIBLE_FORKS="8",
        NPU_ATTACK_RECIPES=str(root / "recipes"),
    )
    before, began = sandbox.watched(), time.monotonic()
    argv = ["ansible-playbook", "-i", str(root / "files/inventory.json"), str(root / "files/book.yml")]
    argv += ["--check"] if book.check else []
    try:
        done = subprocess.run(
            argv, cwd=root / "work", env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=limit, check=False,
        )  # fmt: skip
        code, out = done.returncode, done.stdout
    except subprocess.TimeoutExpired as exc:
        code, out = -1, exc.stdout or b""
    log = root / "recipes/asked.log"
    asked = len(log.read_text().splitlines()) if log.exists() else 0
    return Outcome(
        code, out.decode("utf-8", "surrogateescape"), time.monotonic() - began, before, sandbox.watched(), asked
    )


def shown(text: str) -> str:
    return text[:300].encode("ascii", "backslashreplace").decode()


def collect_honestly(sandbox: Sandbox) -> None:
    """Keep the bundle that an honest host gives, for those that place one."""
    done = run(sandbox, next(book for book in BOOKS if book.name == "bundle"), [])
    assert done.code == 0, done.text
    (sandbox.root / "bundles" / HONEST).rename(sandbox.root / "bundle")


def odd_files(root: Path) -> list[str]:
    """Paths beside the known ones, and files of bundles that no bundle has."""
    tops = {"home", "work", "bundles", "bundle", "tmp", "canaries", "recipes", "files", "ansible", "host", "cache"}
    found = [str(path) for path in root.iterdir() if path.name not in tops]
    found += [str(path) for path in (root / "tmp").iterdir()]
    for path in (root / "bundles").rglob("*"):
        name = path.relative_to(root / "bundles").as_posix()
        if not IN_BUNDLE.fullmatch(name) or path.is_symlink():
            found.append(str(path))
    return found


def found_names(root: Path, since: float) -> list[str]:
    """Paths whose name a crafted answer has made up, wherever users and services keep files."""
    argv = ["find", *SEARCHED, "-xdev", "-maxdepth", "3", "-name", "*pwn-mark*", "-newermt", "@%d" % since]
    out = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return [line for line in out.splitlines() if line.startswith(str(root)) or "/npu-attack-" not in line]


def owners(lines: t.Sequence[str], number: int, names: t.Collection[str]) -> str:
    """The host that a line of the output is about: named in it, else in a later one, else in an earlier one."""
    for other in (*range(number, min(number + 40, len(lines))), *range(number, max(number - 40, -1), -1)):
        for name in re.findall(r"(?:\b|mark)(h\d{3})\b", lines[other]):
            if name in names:
                return str(name)
    return ""


def judge(sandbox: Sandbox, cases: t.Sequence[Case], alone: Outcome, done: Outcome, since: float) -> list[str]:
    """What is wrong; what concerns one host goes to its case."""
    by, wrong = {case.name: case for case in cases}, []

    def blame(text: str, names: t.Iterable[str]) -> None:
        hit = [name for name in names if name in by]
        for name in hit:
            by[name].wrong.append(text)
        if not hit:
            wrong.append(text)

    def of(text: str) -> list[str]:
        return ["h" + number for number in re.findall(r"\b(?:mark)?h(\d{3})\b", text)]

    if done.code not in (0, 2, 4):
        wrong.append("exit %d after %.0f s: %s" % (done.code, done.seconds, shown(done.text[-300:])))
    for path in sorted({*done.before, *done.after}):
        if done.before.get(path) != done.after.get(path):
            blame("changed on the controller: " + path, of(path))
    for path in (*found_names(sandbox.root, since), *odd_files(sandbox.root)):
        blame("made on the controller: " + path, of(path))
    lines = done.text.split("\n")
    for number, line in enumerate(lines):
        raised = RAISED.search(REFUSED.sub("", line))
        for kind, found in (("control character", CONTROL.search(line)), ("not a clear error", raised)):
            if found:
                start = max(found.start() - 100, 0)
                blame("%s: %s" % (kind, shown(line[start : start + 260])), [owners(lines, number, by)])
        for kind, sign in (("a template ran", PRODUCT), ("a file was read", SECRET)):
            if sign in line:
                blame("%s: %s" % (kind, shown(line)), [owners(lines, number, by)])
    inputs, wanted = (dict(re.findall(r'"PROBE (\w+) (\{.*\})"', one.text)) for one in (done, alone))
    if set(inputs) != set(INPUTS) or set(wanted) != set(INPUTS):
        wrong.append("the run did not tell what it believes: %s" % sorted(inputs))
    for name, text in inputs.items() if wanted else ():
        if name not in ("ansible_host", "rbln_bundle_folder"):
            right = json.loads(wanted[name].replace('\\"', '"'))[HONEST]
            for host, value in json.loads(text.replace('\\"', '"')).items():
                if value != right:
                    blame("%s is %s" % (name, shown(str(value))), [host])
    recap, before = ({row[0]: row[1:] for row in LINE.findall(one.text)} for one in (done, alone))
    if recap.get(HONEST) != before.get(HONEST):
        wrong.append("the honest host ended with %s, alone with %s" % (recap.get(HONEST), before.get(HONEST)))
    lost = [case.name for case in cases if case.name not in recap]
    if lost:
        wrong.append("hosts without an end: %s" % lost)
    return wrong
