# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an honest host answers to each module, and the crafted answers that are made of it.

The observation is made by the code of the hosts on a host built below a folder, so that it has the shape of today.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import tarfile
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.prove import PASSED
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import ABSENT, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import look, observe, prove_look
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import complete, read_settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.undo import RECORD
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host, module_file
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import Machine

Answer = dict[str, t.Any]
Place = tuple[t.Any, ...]
PACKAGE = b"not really a package"
OBSERVE = "rbln_observe"
AIMED = ("path", "id", "version_id", "family", "arch", "name", "architecture", "ansible_job_id", "results_file")
# Replaced in the text, because no value of Python writes them.
DEEP, HUGE = "@deep@", "@huge@"
RAW = {'"%s"' % DEEP: "[" * 4000 + "]" * 4000, '"%s"' % HUGE: "9" * 5000}


def honest(root: Path) -> dict[str, Answer]:
    """{module: its answer} of a healthy server with four cards, driver 3.2.2, containerd and a kubelet."""
    tree, machine = ca22_host(root), Machine(root)
    tree.write("/bin/sh", module_file())
    machine.containerd("1.7.24", "version = 2\n")
    machine.kubelet()

    def run(argv: t.Sequence[str], timeout: float, env: t.Any = None, *_more: t.Any) -> Probe:
        found = machine.run(argv, timeout, env)
        return tree.run(argv, timeout, env) if found.state == ABSENT else found

    host, settings = Host(str(root), runner=run), read_settings(PROFILE, complete({}, "options"))
    seen = observe(PROFILE, host, settings)
    facts: Answer = {"rbln": seen["facts"], "rbln_runtimes": seen["runtimes"], "rbln_observed": seen["observed"]}
    proof = prove_look(PROFILE, host, look(PROFILE, host, settings), settings).to_dict()
    proof.update(state=PASSED, passed=True, failed=[], unknown=[])
    sha = hashlib.sha256(PACKAGE).hexdigest()
    package = {"name": "dkms", "version": "3.0.10-8", "architecture": "all"}
    file = {"path": "packages/dkms_3.0.10-8_all.deb", "size": len(PACKAGE), "sha256": sha, "kind": "package"}
    control = {"Package": "dkms", "Version": "3.0.10-8", "Architecture": "all", "Depends": "make | build-essential"}
    change = {
        "outcome": "unchanged", "version": "3.2.2", "previous": "3.2.2", "error": "", "reason": "",
        "reboot_required": False, "steps": [{"step": "install", "seconds": 3.5}], "in_use": [], "simulated": [],
        "firmware": [{"address": "0000:83:00.0", "ok": True, "detail": "flashed"}], "packages": [], "left": [],
        "installer": False, "diff": {"before": "", "after": ""},
    }  # fmt: skip
    plain: Answer = {"stat": {"exists": False}, "state": "absent", "rc": 0, "stdout": "", "stderr": "", "status": {}}
    return {
        OBSERVE: {"ansible_facts": facts},
        "rbln_driver_facts": {"ansible_facts": {"rbln": facts["rbln"]}},
        "rbln_runtime_detect": {"ansible_facts": {"rbln_runtimes": facts["rbln_runtimes"]}},
        "rbln_validate": {
            **{key: proof[key] for key in ("checks", "passed", "state", "changes")},
            "failed_checks": [], "unknown_checks": [], "diff": {"before": "", "after": ""},
            "ansible_facts": {"rbln": facts["rbln"], "rbln_runtimes": facts["rbln_runtimes"], "rbln_proof": proof},
        },
        "rbln_cdi_spec": {
            "path": "/var/run/cdi/rbln.yaml", "format": "yaml", "action": "write", "found": "missing",
            "state": "current",
            "devices": [{"name": "rbln0", "path": "/dev/rbln0", "major": 5, "minor": 0, "group": 0}],
            "libraries": ["/usr/lib64/librbln-ml.so.3.2.2"], "tools": ["/usr/bin/rbln-smi"], "missing": [],
            "conflicts": [], "missing_host_paths": [], "problems": [],
        },
        "rbln_config_write": {
            "files": {
                path: {"state": "absent", "sha256": None, "content": None, "missing_dirs": [], "detail": ""}
                for path in ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-rbln.toml", RECORD)
            },
            "unfinished": False, "restored": [], "judged": True, "backups": ["/etc/containerd/config.toml.rbln-backup"],
        },
        "rbln_host_tool": {"changed_paths": ["/usr/local/libexec/rebellions-npu/rbln-host"]},
        "rbln_driver": change,
        "rbln_driver_files": {
            "files": [{"path": "/var/lib/rbln/incoming/rebellions.run", "sha256": sha}], "missing": ["rebellions.run"],
        },
        "rbln_mok": {
            "state": "pending", "acts": ["key"], "console": ["Enroll MOK"], "certificate": "/var/lib/rbln/mok.der",
            "subject": "CN=host", "serial": "0a", "own": True, "password_file": None, "msg": "Confirm the key.",
        },
        "rbln_bundle": {
            "directory": "/var/lib/rbln/bundle", "format": "deb", "requested": ["dkms"], "images": [], "lacking": [],
            "os": {"id": "ubuntu", "version_id": "24.04", "architecture": "x86_64"},
            "files": [{**file, **package, "control": control}],
            "planned": [{"name": "dkms", "size": len(PACKAGE), "sha256": sha}],
            "environment": {"APT_CONFIG": "/var/lib/rbln/bundle/apt.conf"}, "dnf_options": [], "dnf_config": "",
            "runfiles": {"3.2.2": {"path": "/var/lib/rbln/bundle/driver/rebellions.run", "sha256": sha}},
        },
        "async_wrapper": {"ansible_job_id": "j1.1", "results_file": "/root/.ansible_async/j1.1", "started": 1},
        "async_status": {"ansible_job_id": "j1.1", "started": 1, "finished": 1, **change},
        "other": plain,
    }  # fmt: skip


def archive(path: Path) -> None:
    """The tar archive that an honest host sends with the files of its bundle: each by its digest."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        member = tarfile.TarInfo(hashlib.sha256(PACKAGE).hexdigest())
        member.size = len(PACKAGE)
        tar.addfile(member, io.BytesIO(PACKAGE))


@dataclass(frozen=True)
class Crafted:
    """One answer: to which module, what of it is crafted (attack and place), and the text with its exit code."""

    module: str
    attack: str
    place: str
    out: bytes
    err: bytes = b""
    rc: int = 0


@dataclass(frozen=True)
class Targets:
    """What the crafted values aim at; `mark` is of one case and in the name of everything that one makes."""

    home: Path
    canaries: Path
    mark: str


def places(value: t.Any, here: Place = ()) -> t.Iterator[Place]:
    """Each place of a value: keys and indices from its root."""
    yield here
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*here, key))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from places(value[number], (*here, number))


def shape(place: Place) -> str:
    """A place with all indices alike."""
    return "/".join("*" if isinstance(part, int) else str(part) for part in place)


def at(value: t.Any, place: Place) -> t.Any:
    for part in place:
        value = value[part]
    return value


def put(value: t.Any, place: Place, new: t.Any) -> t.Any:
    """The value with another one at a place."""
    if not place:
        return new
    at(value, place[:-1])[place[-1]] = new
    return value


def choose(source: random.Random, value: t.Any, kinds: tuple[type, ...], aimed: bool = False) -> Place:
    """A place with a value of these kinds; each place of the schema is as likely as any other.

    aimed: one that may become a path of the controller, if there is any.
    """
    found: dict[str, list[Place]] = {}
    for place in places(value):
        kind = at(value, place)
        if place and isinstance(kind, kinds):
            found.setdefault(shape(place), []).append(place)
    some = [name for name in found if name.rpartition("/")[2] in AIMED]
    if aimed and some:
        found = {name: found[name] for name in some}
    return source.choice(found[source.choice(sorted(found))]) if found else ()


def templates(to: Targets) -> list[t.Any]:
    touch = "touch %s/%s" % (to.canaries, to.mark)
    secret = "{{ lookup('file', '%s/.secret') }}" % to.home
    return [
        "{{ lookup('pipe', '%s') }}" % touch,
        "{%% if lookup('ansible.builtin.pipe', '%s') %%}x{%% endif %%}" % touch,
        secret,
        "{{ 1000003 * 1000033 }}",
        "#jinja2: variable_start_string:'<<'\n{{ 1000003 * 1000033 }}",
        {"__ansible_type": "TrustedAsTemplate", "value": "{{ lookup('pipe', '%s') }}" % touch},
        {"__ansible_type": "_AnsibleTaggedStr", "value": secret, "tags": [{"__ansible_type": "TrustedAsTemplate"}]},
        {"__ansible_unsafe": "{{ lookup('pipe', '%s') }}" % touch},
        {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n3132"},
        {"{{ lookup('pipe', '%s') }}" % touch: "x"},
    ]


def paths(to: Targets) -> list[t.Any]:
    up = "../" * 12
    return [
        "%s/pwn-%s" % (to.home, to.mark),
        up + str(to.home).lstrip("/") + "/pwn-" + to.mark,
        up + str(to.home).lstrip("/") + "/.ssh/authorized_keys",
        "../pwn-" + to.mark,
        "packages/../../pwn-" + to.mark,
        "%s/.bashrc" % to.home,
        "/etc/cron.d/pwn-" + to.mark,
        "~/pwn-" + to.mark,
        "x\0/pwn-" + to.mark,
        "-pwn-%s" % to.mark,
        "; touch %s/%s #" % (to.canaries, to.mark),
        "$(touch %s/%s)" % (to.canaries, to.mark),
    ]


def escapes(to: Targets) -> list[t.Any]:
    signs = ("\x1b]0;%s\x07", "\x1b[2J%s", "\x9b31m%s", "a\r%s", "\u202e%s", "\u2028%s", "\x7f\x08%s", "\u2066%s\u200f")
    return [sign % to.mark for sign in signs]


def numbers(_to: Targets) -> list[t.Any]:
    return [10**400, -1, 2**63, -(2**64), float("nan"), float("inf"), float("-inf"), 1e308, 0, "12", HUGE]


def kinds(_to: Targets) -> list[t.Any]:
    return [None, [], {}, 0, True, False, "text", 1.5, [None], [[]], {"": {}}, [{}], ["text"], {"text": "text"}, -1]


def sizes(to: Targets) -> list[t.Any]:
    return ["A" * 300_000, to.mark + "é" * 100_000, "\n" * 50_000, "a " * 100_000, "9." * 50_000]


def counts(to: Targets) -> list[t.Any]:
    return [
        [to.mark] * 20_000,
        [{} for _one in range(5_000)],
        {"%s%d" % (to.mark, number): {} for number in range(5_000)},
        list(range(30_000)),
    ]


def surrogates(to: Targets) -> list[t.Any]:
    return ["\ud800" + to.mark, to.mark + "\udcff", "\ud83d", "\udc1b\udc5b2J"]


# What may stand in any place of the kinds named.
VALUES: dict[str, tuple[t.Callable[[Targets], list[t.Any]], tuple[type, ...]]] = {
    "template": (templates, (str,)),
    "path": (paths, (str,)),
    "escape": (escapes, (str,)),
    "surrogate": (surrogates, (str,)),
    "size": (sizes, (str,)),
    "number": (numbers, (int, float)),
    "type": (kinds, (object,)),
    "count": (counts, (list, dict)),
}


def facts_of_others(to: Targets) -> Answer:
    """Facts that would be variables of the run: of the connection and inputs."""
    program = str(to.canaries / "program")
    return {
        "ansible_connection": "local", "ansible_host": "127.0.0.1", "ansible_python_interpreter": program,
        "ansible_become_exe": program, "ansible_remote_tmp": str(to.home / ("pwn-" + to.mark)),
        "ansible_shell_executable": program, "inventory_hostname": "keeper", "ansible_delegated_vars": {"a": {}},
        "rbln_registry": "wrong.example", "rbln_driver_version": "9.9.9", "rbln_preflight_stop": False,
        "rbln_operands_kubeconfig": "/wrong", "rbln_bundle_folder": "%s/pwn-%s" % (to.home, to.mark),
        "rbln_failure": {"task": "x", "msg": "x"}, "group_names": ["npu_bundle"], "groups": {"all": ["keeper"]},
    }  # fmt: skip


def keys(to: Targets) -> list[Answer]:
    """Keys beside the known ones that ansible-core or the roles could act on."""
    others = facts_of_others(to)
    escape = "\x1b]0;%s\x07" % to.mark
    return [
        {"ansible_facts": others},
        {"ansible_facts": {**others, "discovered_interpreter_python": others["ansible_python_interpreter"]}},
        {"add_host": {"host_name": "pwn-" + to.mark, "groups": ["npu_nodes"], "host_vars": others}},
        {"add_group": "npu_bundle", "parent_groups": ["all"]},
        {"ansible_stats": {"data": {to.mark: escape}, "per_host": False, "aggregate": False}},
        {"_ansible_delegated_vars": {"ansible_delegated_host": "keeper", **others}, "_ansible_no_log": False},
        {"_ansible_verbose_always": True, "_ansible_verbose_override": True, "_ansible_item_label": escape},
        {"results": [{"changed": True, "failed": True, "msg": escape, "_ansible_item_result": True, "item": escape}]},
        {"warnings": [escape, "{{ 1000003 * 1000033 }}"], "deprecations": [{"msg": escape, "version": "2.0"}]},
        {"exception": "Traceback of " + escape, "failed": True, "msg": escape},
        {"failed": True, "msg": {"a": [escape]}},
        {"failed": True, "msg": None},
        {"unreachable": True, "msg": escape},
        {"skipped": True, "skip_reason": escape},
        {"diff": [{"before": escape, "after": "x", "before_header": escape}, {"prepared": escape}], "changed": True},
        {"invocation": {"module_args": {escape: escape}}, "_ansible_parsed": False, "_ansible_notify": ["x"]},
        {"include": "/etc/passwd", "include_vars": "/etc/passwd", "ansible_included_var_files": ["/x"]},
    ]  # fmt: skip


def texts(source: random.Random, good: str, to: Targets) -> tuple[bytes, bytes, int]:
    """(output, errors, exit code) that are not one JSON object."""
    data = good.encode()
    cut = source.randrange(1, len(data))
    escape = ("\x1b]0;%s\x07" % to.mark).encode()
    outputs = [
        b"",
        data[:cut],
        data + escape,
        escape + b"\n" + data,
        b"[" + data + b"]",
        b"null",
        b'"' + to.mark.encode() + b'"',
        b"\xff\xfe" + data,
        data.replace(b'"changed"', b'"changed": 1, "\xff\xed\xa0\x80"', 1),
        data.replace(b"{", b'{"ansible_facts": {"rbln": {}}, "changed": "x", ', 1),
        b"{" * 100_000,
        b"panic: \n" + escape,
        b"A" * 3_000_000,
        "{{ 1000003 * 1000033 }}".encode(),
        json.dumps({"failed": True, "msg": "{{ lookup('pipe', 'touch %s/%s') }}" % (to.canaries, to.mark)}).encode(),
        json.dumps({"failed": True, "msg": "\x1b[2J" + to.mark, "module_stderr": "\x1b[2J"}).encode(),
    ]
    return source.choice(outputs), source.choice([b"", b"", escape, b"E" * 100_000]), source.choice([0, 0, 1, 255, -1])


ATTACKS = (*VALUES, "depth", "missing", "key", "text")


def craft(source: random.Random, attack: str, module: str, good: Answer, to: Targets) -> Crafted:
    """One crafted answer of a module."""
    data = copy.deepcopy({"changed": False, **good})
    if attack == "text":
        out, err, code = texts(source, json.dumps(data), to)
        return Crafted(module, attack, out[:60].decode("latin-1"), out, err, code)
    said = []
    for _one in range(source.choice((1, 1, 3))):
        if attack == "key":
            new = source.choice(keys(to))
            facts = {**data.get("ansible_facts", {}), **new.get("ansible_facts", {})}
            data = {**data, **new, **({"ansible_facts": facts} if facts else {})}
            said.append("+" + ",".join(new))
        elif attack == "missing":
            place = choose(source, data, (object,))
            at(data, place[:-1]).pop(place[-1])
            said.append(shape(place))
        else:
            make, where = VALUES.get(attack, (lambda _to: [DEEP], (object,)))
            place = choose(source, data, where, attack in ("path", "template") and source.random() < 0.6)
            value = source.choice(make(to))
            data = put(data, place, value)
            said.append("%s=%.80r" % (shape(place), value))
    out = json.dumps(data)
    for word, raw in RAW.items():
        out = out.replace(word, raw)
    return Crafted(module, attack, " ".join(said), out.encode())
