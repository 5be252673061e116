# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else decides what a container gets: directories, files of our kind, hooks; and what is repaired."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.manage import manage
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import CdiOptions
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import compare
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.trust import choose_interpreter, known_hook
from ansible_collections.rebellions.npu.plugins.module_utils._host import host
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.table import HERE, full
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import Tree

PATH = "/var/run/cdi/rbln.yaml"
OPTIONS = {"machine": "x86_64", "selinux_context": "none", "hooks": "off"}
VENDOR_HOOK = "/usr/local/bin/rbln-cdi-hook"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners can only be changed by root")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A host as an administrator with umask 022 has it, with our specification in place."""
    old = os.umask(0o022)
    try:
        tmp_path.chmod(0o755)
        tree = Tree(tmp_path)
        full("/dev/rbln0", verbs=True)(tree)
        tree.directory("/etc/cdi", "/run/cdi")
        tree.link("../run", "/var/run")
        run(tree)
    finally:
        os.umask(old)
    return tree


def run(tree: Tree, check: bool = False, **params: Any) -> dict[str, Any]:
    return manage(PROFILE, tree.host(host), {**OPTIONS, **params}, check)


def look(tree: Tree, path: str = PATH, engine_dirs: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
    return compare(PROFILE, tree.host(host), CdiOptions(**{**OPTIONS, **options}), path, engine_dirs)


def told(seen: dict[str, Any], *severities: str) -> dict[str, str]:
    """Code to detail of the problems about trust."""
    found = [one if isinstance(one, dict) else one.to_dict() for one in seen["problems"]]
    codes = ("cdi_dir_", "cdi_file_", "cdi_other_file", "cdi_hook_", "cdi_plugin_")
    return {
        one["code"]: one["detail"]
        for one in found
        if one["code"].startswith(codes)
        and one["code"] != "cdi_dir_not_read"
        and one["severity"] in (severities or ("error", "warning"))
    }


def mode(tree: Tree, path: str) -> int:
    return (tree.root / path.lstrip("/")).stat().st_mode & 0o7777


def spec(name: str = "7", kind: str = "rebellions.ai/npu", edits: str = "env: [A=b]") -> str:
    return 'cdiVersion: "0.5.0"\nkind: %s\ndevices:\n  - name: "%s"\n    containerEdits: {%s}\n' % (kind, name, edits)


def calling(path: str, key: str = "hooks") -> str:
    return spec(edits='%s: [{hookName: createContainer, path: "%s"}]' % (key, path))


def test_a_host_in_order_has_nothing_to_tell(tree: Tree) -> None:
    seen = look(tree)
    assert told(seen) == {} and not seen["changed"] and seen["repairs"] == []
    assert [(one["path"], one["state"], one["linked_to"], one["mode"]) for one in seen["directories"]] == [
        ("/var/run/cdi", "value", None, "0755"),
        ("/etc/cdi", "value", None, "0755"),
    ]
    assert seen["files"] == [
        {
            "path": "/run/cdi/rbln.yaml",
            "kind": "rebellions.ai/npu",
            "owner": os.geteuid(),
            "group": os.getegid(),
            "mode": "0644",
            "written_by_us": True,
            "hooks": [],
        }
    ]


def listed(tree: Tree) -> None:
    """The files and directories of C10-cdi-perms."""
    for line in (HERE / "cases" / "C10-cdi-perms" / "listing.txt").read_text().splitlines():
        bits, _owner, _group, path = line.split()
        number = sum(1 << (8 - at) for at, letter in enumerate(bits[1:]) if letter != "-")
        if bits[0] == "-":
            tree.put(path, (tree.root / "run/cdi/rbln.yaml").read_text(), number)
        else:
            tree.directory(path)
            (tree.root / path.lstrip("/")).chmod(number)


def test_c10_cdi_perms(tree: Tree) -> None:
    """C10-cdi-perms: unreadable for rootless engines is told and repaired; a directory for everybody is an error."""
    (tree.root / "etc/cdi/rbln.yaml").write_text("")
    listed(tree)
    (tree.root / "run/cdi/rbln.yaml").unlink()
    seen = look(tree, "/etc/cdi/rbln.yaml")
    assert set(told(seen, "error")) == {"cdi_dir_writable"} and "/var/run/cdi" in told(seen)["cdi_dir_writable"]
    assert set(told(seen, "warning")) == {"cdi_dir_unreadable", "cdi_file_unreadable"} and seen["changed"]
    old = os.umask(0o077)
    try:
        dry = run(tree, True, path="/etc/cdi/rbln.yaml")
        assert dry["changed"] and mode(tree, "/etc/cdi") == 0o700
        done = run(tree, path="/etc/cdi/rbln.yaml")
    finally:
        os.umask(old)
    assert done["repairs"] == dry["repairs"] and len(done["repairs"]) == 2
    assert all(repair in done["diff"]["after"] for repair in done["repairs"])
    assert (mode(tree, "/etc/cdi"), mode(tree, "/etc/cdi/rbln.yaml")) == (0o755, 0o644)
    # Not our directory: named, and never changed.
    assert set(told(done)) == {"cdi_dir_writable"} and mode(tree, "/run/cdi") == 0o777
    assert not run(tree, path="/etc/cdi/rbln.yaml")["changed"]
    with_ours = run(tree)
    assert with_ours["changed"] and mode(tree, "/run/cdi") == 0o755
    assert not run(tree)["changed"] and "cdi_dir_writable" not in told(look(tree))


def test_s03_foreign_cdi(tree: Tree) -> None:
    """S03-foreign-cdi: the other file is in the facts, flagged, and its hook fails validation."""
    for path in sorted((HERE / "cases" / "S03-foreign-cdi").iterdir()):
        tree.put(f"/run/cdi/{path.name}", path.read_text())
    seen = look(tree)
    assert [(one["path"], one["written_by_us"], one["mode"], one["hooks"]) for one in seen["files"]] == [
        ("/run/cdi/rbln.yaml", True, "0644", []),
        ("/run/cdi/zz-other.yaml", False, "0644", ["/tmp/x"]),
    ]
    assert set(told(seen, "error")) == {"cdi_hook_unknown"} and "runs /tmp/x" in told(seen)["cdi_hook_unknown"]
    assert "owner %d, mode 0644" % os.geteuid() in told(seen, "warning")["cdi_other_file"]
    run(tree)
    judged = run(tree, state="validate")
    assert not judged["valid"] and set(told(judged, "error")) == {"cdi_hook_unknown"}
    assert (tree.root / "run/cdi/zz-other.yaml").read_text() == (
        HERE / "cases" / "S03-foreign-cdi" / "zz-other.yaml"
    ).read_text()


class TestDirectories:
    @pytest.mark.parametrize("bits", [0o777, 0o1777, 0o757, 0o733])
    @pytest.mark.parametrize("place", ["etc/cdi", "etc", "opt/engine"])
    def test_writable_for_everybody(self, tree: Tree, place: str, bits: int) -> None:
        tree.directory("/opt/engine/cdi")
        if place == "opt/engine":
            place = "opt/engine/cdi"
        (tree.root / place).chmod(bits)
        seen = look(tree, engine_dirs=("/opt/engine/cdi",))
        sticky = bits == 0o1777 and place == "etc"
        assert ("cdi_dir_writable" in told(seen, "error")) == (not sticky), told(seen)
        assert seen["repairs"] == [] and not seen["changed"]

    def test_a_missing_directory_that_anybody_can_make(self, tree: Tree) -> None:
        tree.directory("/tmp")
        (tree.root / "tmp").chmod(0o1777)
        seen = look(tree, engine_dirs=("/tmp/cdi",))
        assert "/tmp: everybody can write it (mode 1777)" in told(seen, "error")["cdi_dir_writable"]
        assert [one["state"] for one in seen["directories"]] == ["value", "value", "absent"]
        assert told(look(tree, engine_dirs=("/opt/none/cdi", "/none"))) == {}

    @needs_root
    @pytest.mark.parametrize("owner, group, bits", [(1234, 0, 0o755), (0, 1234, 0o775), (0, 1234, 0o2775)])
    def test_another_owner_or_group(self, tree: Tree, owner: int, group: int, bits: int) -> None:
        os.chown(tree.root / "etc/cdi", owner, group)
        (tree.root / "etc/cdi").chmod(bits)
        seen = look(tree)
        assert "1234" in told(seen, "error")["cdi_dir_writable"] and not seen["changed"]

    def test_the_group_of_root_is_root(self, tree: Tree) -> None:
        (tree.root / "etc/cdi").chmod(0o775)
        assert told(look(tree)) == {}

    def test_an_access_list_counts(self, tree: Tree) -> None:
        acl, nobody = struct.pack("<I", 2), 2**32 - 1
        for tag, bits, who in ((1, 7, nobody), (2, 7, 1234), (4, 5, nobody), (16, 7, nobody), (32, 5, nobody)):
            acl += struct.pack("<HHI", tag, bits, who)
        for place in ("etc/cdi", "run/cdi"):
            os.setxattr(tree.root / place, "system.posix_acl_access", acl)
        seen = look(tree)
        found = " ".join(one.detail for one in seen["problems"] if one.code == "cdi_dir_writable")
        assert all(f"{place}: an access list lets others write it" in found for place in ("/etc/cdi", "/run/cdi"))
        assert seen["repairs"] == ["/var/run/cdi: mode 0775 becomes 0755"]
        assert run(tree)["changed"] and not run(tree)["changed"] and mode(tree, "/run/cdi") == 0o755

    def test_our_directory_as_a_link_is_an_error_and_its_target_is_left_alone(self, tree: Tree) -> None:
        tree.directory("/root")
        (tree.root / "root").chmod(0o700)
        (tree.root / "run/cdi/rbln.yaml").unlink()
        (tree.root / "run/cdi").rmdir()
        tree.link("/root", "/run/cdi")
        seen = look(tree)
        assert "is a symbolic link to /root" in told(seen, "error")["cdi_dir_linked"]
        assert seen["directories"][0]["linked_to"] == "/root" and seen["repairs"] == []
        run(tree)
        assert mode(tree, "/root") == 0o700

    def test_another_directory_as_a_link_is_a_warning(self, tree: Tree) -> None:
        (tree.root / "etc/cdi").rmdir()
        tree.link("/run/cdi", "/etc/cdi")
        seen = look(tree)
        assert set(told(seen, "warning")) == {"cdi_dir_linked"} and told(seen, "error") == {}
        assert len(seen["files"]) == 1

    def test_a_link_to_where_others_write(self, tree: Tree) -> None:
        tree.directory("/home/u/cdi")
        (tree.root / "home/u").chmod(0o777)
        (tree.root / "etc/cdi").rmdir()
        tree.link("../home/u/cdi", "/etc/cdi")
        assert "/home/u: everybody can write it" in told(look(tree), "error")["cdi_dir_writable"]

    @needs_root
    def test_a_directory_above_that_keeps_others_out(self, tree: Tree) -> None:
        (tree.root / "run").chmod(0o750)
        seen = look(tree)
        assert set(told(seen)) == {"cdi_dir_unreadable"} and seen["repairs"] == []
        assert not run(tree)["changed"] and mode(tree, "/run") == 0o750

    def test_what_cannot_be_read_is_not_empty(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        real = host.Host.listdir
        denied = host.Probe(host.DENIED, None, "Permission denied")
        monkeypatch.setattr(host.Host, "listdir", lambda self, path: denied if path == "/etc/cdi" else real(self, path))
        assert [one["state"] for one in look(tree)["directories"]] == ["value", "denied"]


class TestFiles:
    @pytest.mark.parametrize("kind", ["rebellions.ai/npu", "rebellions.ai/rds", "vendor.com/gpu"])
    def test_a_file_that_everybody_can_write_is_an_error_whatever_its_kind(self, tree: Tree, kind: str) -> None:
        tree.put("/etc/cdi/other.yaml", spec(kind=kind), 0o666)
        seen = look(tree)
        assert "/etc/cdi/other.yaml: everybody can write it" in told(seen, "error")["cdi_file_writable"]
        assert ("cdi_other_file" in told(seen, "warning")) == kind.startswith("rebellions")
        run(tree)
        assert mode(tree, "/etc/cdi/other.yaml") == 0o666

    @needs_root
    @pytest.mark.parametrize(
        "owner, group, bits", [(1234, 1234, 0o644), (0, 1234, 0o664), (0, 0, 0o666), (0, 0, 0o600)]
    )
    def test_ours_is_repaired(self, tree: Tree, owner: int, group: int, bits: int) -> None:
        path = tree.root / "run/cdi/rbln.yaml"
        before = path.read_bytes()
        os.chown(path, owner, group)
        path.chmod(bits)
        seen = look(tree)
        assert seen["changed"] and len(seen["repairs"]) == 1 and seen["before"] == seen["after"]
        assert run(tree, True)["changed"] and path.stat().st_mode & 0o777 == bits
        done = run(tree)
        assert done["changed"] and told(done) == {} and done["state"] == "current"
        info = path.stat()
        assert (info.st_uid, info.st_mode & 0o7777, path.read_bytes()) == (0, 0o644, before)
        assert not run(tree)["changed"]

    @needs_root
    def test_a_second_name_of_a_file_is_not_opened_to_others(self, tree: Tree) -> None:
        """Who could write the directory may have put another file there by a hard link."""
        secret = tree.root / "etc/secret"
        secret.write_bytes((tree.root / "run/cdi/rbln.yaml").read_bytes())
        secret.chmod(0o600)
        (tree.root / "run/cdi/rbln.yaml").unlink()
        os.link(secret, tree.root / "run/cdi/rbln.yaml")
        assert run(tree)["changed"] and mode(tree, "/etc/secret") == 0o600 and mode(tree, PATH) == 0o644

    def test_a_planted_link_is_neither_read_nor_written(self, tree: Tree) -> None:
        tree.put("/etc/shadow", "root:secret:1\n", 0o600)
        (tree.root / "run/cdi/rbln.yaml").unlink()
        tree.link("/etc/shadow", "/run/cdi/rbln.yaml")
        (tree.root / "run/cdi").chmod(0o777)
        for act in (lambda: run(tree), lambda: look(tree), lambda: run(tree, state="validate")):
            with pytest.raises(NpuError, match="symbolic link that others than root could have made") as caught:
                act()
            assert caught.value.next_step == "Remove the link."
        assert (tree.root / "etc/shadow").read_text() == "root:secret:1\n" and mode(tree, "/etc/shadow") == 0o600

    def test_a_link_to_a_file_in_the_home_of_a_user(self, tree: Tree) -> None:
        tree.put("/home/u/x.yaml", spec())
        (tree.root / "home/u").chmod(0o777)
        tree.link("/home/u/x.yaml", "/etc/cdi/x.yaml")
        assert "/home/u: everybody can write it" in told(look(tree), "error")["cdi_file_writable"]

    def test_the_specification_of_storage_is_ours_and_a_copy_elsewhere_is_not(self, tree: Tree) -> None:
        tree.put("/run/cdi/rbln-rds.yaml", spec("rblnfs0", "rebellions.ai/rds"))
        tree.put("/etc/cdi/rbln.yaml", spec())
        found = {one["path"]: one["written_by_us"] for one in look(tree)["files"]}
        assert found == {"/run/cdi/rbln.yaml": True, "/run/cdi/rbln-rds.yaml": True, "/etc/cdi/rbln.yaml": False}

    @pytest.mark.parametrize("name, read", [("x.yaml", True), ("x.json", True), ("x.yml", False), ("d/x.yaml", False)])
    def test_what_runtimes_read(self, tree: Tree, name: str, read: bool) -> None:
        as_json = '{"cdiVersion": "0.5.0", "kind": "rebellions.ai/npu", "devices": []}'
        tree.put(f"/etc/cdi/{name}", as_json if name.endswith("json") else spec())
        assert ("cdi_other_file" in told(look(tree))) == read

    def test_what_a_device_plugin_has_left_keeps_the_next_one_from_starting(self, tree: Tree) -> None:
        """Its pod has /var/run/cdi read-only, and it wants to remove these files when it starts."""
        tree.directory("/run/cdi/rebellions.ai-npu_dir")
        tree.put("/run/cdi/rebellions.ai-npu.yaml", spec("8", kind="vendor.com/gpu"))
        tree.put("/etc/cdi/rebellions.ai-npu_5.json", "{}")
        assert "cdi_plugin_leftover" not in told(look(tree))
        tree.put("/run/cdi/rebellions.ai-npu_17b3.json", "{}")
        tree.put("/run/cdi/rebellions.ai-npu_tmp", "")
        seen = told(look(tree), "warning")["cdi_plugin_leftover"]
        assert "left rebellions.ai-npu_17b3.json, rebellions.ai-npu_tmp in /var/run/cdi" in seen
        assert told(look(tree), "error") == {}

    def test_capitals_hide_nothing(self, tree: Tree) -> None:
        """The readers of CDI do not care for capitals in keys."""
        text = calling("/tmp/x", "HOOKS").replace("kind:", "Kind:").replace("containerEdits", "ContainerEdits")
        tree.put("/etc/cdi/x.yaml", text.replace("path:", "PATH:").replace("devices:", "DEVICES:"))
        seen = look(tree)
        assert set(told(seen)) == {"cdi_other_file", "cdi_hook_unknown"}
        tree.put("/etc/cdi/x.yaml", spec("0").replace("kind:", "Kind:").replace("name:", "Name:"))
        assert [one["name"] for one in look(tree)["conflicts"]] == ["rebellions.ai/npu=0"]

    @pytest.mark.parametrize(
        "text",
        [
            (HERE / "cases" / "S03-foreign-cdi-documents.txt").read_text(),
            calling("/tmp/x") + "---\n",
            calling("/tmp/x") + "...\ngarbage: [\n",
            "%YAML 1.1\n# x\n--- # y\n" + calling("/tmp/x") + "--- {a: b}\n",
            calling("/tmp/x").replace("\n", "\r\n"),
            "\ufeff" + calling("/tmp/x"),
            calling("/tmp/x").replace("rebellions.ai/npu", ">-\n  rebellions.ai/npu"),
            calling("/tmp/x").replace("/npu", "/rds"),
            "h: &h [{hookName: prestart, path: /tmp/x}]\n" + spec(edits="hooks: *h"),
            "containerEdits: {hooks: [{hookName: poststop, path: /tmp/x}]}\n" + spec(),
        ],
        ids="case next-empty next-garbage directive crlf bom folded rds anchor top".split(),
    )
    def test_no_way_of_writing_hides_a_hook_S03_foreign_cdi(self, tree: Tree, text: str) -> None:
        """The CDI project's library reads such files; of the anchor's it refuses only the key that holds it."""
        tree.put("/etc/cdi/x.yaml", text.encode())
        assert set(told(look(tree))) == {"cdi_other_file", "cdi_hook_unknown"}


def test_the_python_of_the_host_tool_is_that_of_the_system_or_of_root(tree: Tree) -> None:
    """A hook runs as root at every container start: never by a Python in the home of a user."""
    tree.tool("/usr/bin/python3.9", "/usr/bin/python3.6", "/opt/py/bin/python3", "/home/a/venv/bin/python")
    tree.link("python3.9", "/usr/bin/python3")
    (tree.root / "home/a/venv/bin").chmod(0o777)
    seen = tree.host(host)
    assert choose_interpreter(seen, "/home/a/venv/bin/python") == ("/usr/bin/python3", "")
    tree.link("python3.6", "/usr/bin/python3")
    assert choose_interpreter(seen, "/opt/py/bin/python3") == ("/opt/py/bin/python3", "")
    old = "/usr/bin/python3.6 is older than Python 3.8"
    assert choose_interpreter(seen, "") == ("/usr/bin/python3", old)
    python, reason = choose_interpreter(seen, "/home/a/venv/bin/python")
    assert python == "/usr/bin/python3" and reason.startswith(old)
    assert "others than root can change /home/a/venv/bin/python: /home/a/venv/bin: everybody can write it" in reason


class TestHooks:
    @pytest.mark.parametrize(
        "path, known",
        [
            (VENDOR_HOOK, True),
            ("/usr/local/libexec/rebellions-npu/rbln-host", True),
            ("/usr/bin/rbln-cdi-hook", True),
            ("/opt/site/hook", True),
            ("/opt/tools/any", True),
            ("/opt/toolsx", False),
            ("/usr/local/bin/other", False),
            ("/tmp/x", False),
            ("/usr/bin/nvidia-ctk", True),
            ("/usr/bin/nvidia-cdi-hook", True),
            ("/usr/bin/nvidia-container-runtime-hook", True),
            ("/sbin/ldconfig", True),
            ("/usr/sbin/ldconfig.real", True),
            ("/tmp/nvidia-ctk", False),
            ("/usr/bin/cp", False),
            ("/usr/bin/dd", False),
            ("/usr/bin/tee", False),
            ("/bin/mount", False),
            ("/usr/bin/tar", False),
            ("/usr/bin/sed", False),
            ("/usr/bin/curl", False),
            ("/usr/sbin/iptables", False),
            ("/usr/bin/sh", False),
            ("/bin/bash", False),
            ("/usr/bin/env", False),
            ("/usr/bin/python3.12", False),
            ("/usr/bin/../../tmp/x", False),
            ("/usr/bin//x", False),
            ("/usr/bin/sub/x", False),
            ("usr/bin/x", False),
            ("", False),
        ],
    )
    def test_known(self, path: str, known: bool) -> None:
        assert known_hook(PROFILE, CdiOptions(known_hooks=("/opt/site/hook", "/opt/tools/")), path) is known

    def test_a_known_hook_that_others_can_change(self, tree: Tree) -> None:
        tree.put("/etc/cdi/x.yaml", calling(VENDOR_HOOK))
        tree.hook()
        assert set(told(look(tree))) == {"cdi_other_file"}
        (tree.root / "usr/local/bin").chmod(0o777)
        seen = look(tree)
        assert "/usr/local/bin: everybody can write it" in told(seen, "error")["cdi_hook_writable"]
        (tree.root / "usr/local/bin").chmod(0o755)
        tree.hook(0o777)
        assert set(told(look(tree), "error")) == {"cdi_hook_writable"}

    def test_a_hook_in_our_own_file_goes_away_by_writing(self, tree: Tree) -> None:
        tree.put(PATH, calling("/tmp/x"))
        assert set(told(look(tree), "error")) == {"cdi_hook_unknown"}
        assert told(run(tree)) == {} and look(tree)["state"] == "current"

    def test_hooks_of_other_kinds_are_not_judged(self, tree: Tree) -> None:
        tree.put("/etc/cdi/gpu.yaml", calling("/usr/bin/vendor-ctk").replace("rebellions.ai/npu", "vendor.com/gpu"))
        tree.put("/etc/cdi/gpu2.yaml", calling("/opt/x").replace("rebellions.ai/npu", "vendor.com/gpu"))
        seen = look(tree)
        assert told(seen) == {} and len(seen["files"]) == 1
