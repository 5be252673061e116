# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundle's folder on the controller.

It holds what a host sent and the driver's files, and is exchanged as a whole, never half.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pathlib
import resource
import subprocess
import tarfile
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import (
    BundleFile,
    Manifest,
    examine,
    parse_manifest,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.bundle import (
    Answer,
    answer_of,
    asked_of,
    assemble,
    driver_files,
    pack_for,
    planned_of,
    read_folder,
    room_for,
    verified,
    wanted_images,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

BODY = b"make"
CONTROL = {"Package": "make", "Version": "4.4.1-2", "Architecture": "amd64", "Description": "make"}
ROW = {
    "path": "packages/make_4.4.1-2_amd64.deb",
    "size": len(BODY),
    "sha256": hashlib.sha256(BODY).hexdigest(),
    "kind": "package",
    "name": "make",
    "version": "4.4.1-2",
    "architecture": "amd64",
    "control": CONTROL,
}
IMAGE = {
    "name": "p",
    "reference": "docker.io/r/p:1",
    "target": "docker.io/r/p:1",
    "digest": None,
    "reason": "skopeo: denied",
}
ANSWER: dict[str, t.Any] = {
    "format": "deb",
    "os": {"id": "debian", "version_id": "13", "architecture": "x86_64"},
    "requested": ["make"],
    "files": [ROW],
    "images": [IMAGE],
}
RUN = b"#!/bin/sh\n"
Drivers = list[tuple[str, BundleFile]]


def archive(folder: pathlib.Path, files: dict[str, bytes]) -> str:
    """The archive of a host with these files of the answer, by the digest that they should have."""
    path = folder / "sent.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(ROW["sha256"] if name == ROW["path"] else name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return str(path)


def made(
    folder: pathlib.Path, sent: str, drivers: Drivers, base: str = "none", kernels: t.Sequence[str] = (), have: str = ""
) -> tuple[bool, Manifest]:
    return assemble(str(folder), answer_of(ANSWER), sent, [have], drivers, base, kernels)


@pytest.fixture
def drivers(tmp_path: pathlib.Path) -> Drivers:
    path = tmp_path / "rebellions-x86_64-3.2.2.run"
    path.write_bytes(RUN)
    digest = hashlib.sha256(RUN).hexdigest().upper()
    return driver_files(
        [{"path": str(tmp_path / "rebellions-x86_64-{version}.run"), "version": "3.2.2", "sha256": digest}], []
    )


def test_a_bundle_is_made_and_made_again(tmp_path: pathlib.Path, drivers: Drivers) -> None:
    folder = tmp_path / "out" / "debian-13-x86_64"
    sent = archive(tmp_path, {ROW["path"]: BODY})
    changed, manifest = made(folder, sent, drivers, "important", ["6.1.0-28-amd64"])
    assert folder.stat().st_mode & 0o777 == 0o755
    names = [
        "Packages",
        "Packages.gz",
        "Release",
        "driver/rebellions-x86_64-3.2.2.run",
        "manifest.json",
        "packages/make_4.4.1-2_amd64.deb",
    ]
    assert changed and sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == names
    assert read_folder(str(folder))[0].dump() == manifest.dump() and examine(str(folder), manifest.files).good
    assert [(one.kind, one.version) for one in manifest.of("runfile")] == [("runfile", "3.2.2")]
    assert manifest.images[0].digest is None and manifest.images[0].reason == "skopeo: denied"
    assert "Filename: ./packages/make_4.4.1-2_amd64.deb\n" in (folder / "Packages").read_text()
    # What the controller has is not sent again; the same content leaves the folder, its time and its collector alone.
    before = (folder / "manifest.json").stat().st_mtime_ns
    nothing = archive(tmp_path, {})
    changed, again = made(folder, nothing, drivers, "important", ["6.1.0-28-amd64"], ROW["sha256"])
    assert not changed and again.dump() == manifest.dump() and (folder / "manifest.json").stat().st_mtime_ns == before
    assert [path.name for path in folder.parent.iterdir()] == ["debian-13-x86_64"]


def test_another_driver_takes_the_place_of_the_old(tmp_path: pathlib.Path, drivers: Drivers) -> None:
    folder = tmp_path / "out"
    made(folder, archive(tmp_path, {ROW["path"]: BODY}), drivers)
    changed, _manifest = made(folder, archive(tmp_path, {}), [])
    assert changed and not (folder / "driver").exists() and (folder / ROW["path"]).read_bytes() == BODY


@pytest.mark.parametrize("sent, word", [({}, "is missing"), ({ROW["path"]: b"mAke"}, "is another file")])
def test_what_did_not_come_as_it_should_leaves_the_old_folder(
    tmp_path: pathlib.Path, drivers: Drivers, sent: dict[str, bytes], word: str
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(NpuError, match=word):
        made(folder, archive(tmp_path, sent), drivers)
    assert not folder.exists() and [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_folder_of_something_else_stays(tmp_path: pathlib.Path, drivers: Drivers) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("x")
    with pytest.raises(NpuError, match="files that are not a bundle"):
        made(tmp_path / "out", archive(tmp_path, {ROW["path"]: BODY}), drivers)
    assert (tmp_path / "out/thesis.tex").read_text() == "x"


@pytest.mark.parametrize(
    "name, sha256, word",
    [
        ("a.run", "0" * 64, "is %s, not %s" % (hashlib.sha256(RUN).hexdigest(), "0" * 64)),
        ("a.run", "abc", "64 hexadecimal"),
        ("b.run", "0" * 64, "cannot be read on the controller"),
        ("https://x/b.run", "0" * 64, "is an address"),
    ],
)
def test_a_driver_that_is_not_what_was_said_is_refused(
    tmp_path: pathlib.Path, name: str, sha256: str, word: str
) -> None:
    (tmp_path / "a.run").write_bytes(RUN)
    with pytest.raises(NpuError, match=word):
        driver_files([{"path": name if "://" in name else str(tmp_path / name), "sha256": sha256}], [])


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("rebellions-kmd_3.2.2_amd64.deb", ("rebellions-kmd", "3.2.2", "amd64")),
        ("librbln-ml-3.2.2-1.el9.x86_64.rpm", ("librbln-ml", "3.2.2-1.el9", "x86_64")),
        ("driver.deb", None),
    ],
)
def test_driver_packages_are_known_by_name(
    tmp_path: pathlib.Path, name: str, wanted: tuple[str, str, str] | None
) -> None:
    (tmp_path / name).write_bytes(RUN)
    rows = [{"path": str(tmp_path / name), "sha256": hashlib.sha256(RUN).hexdigest()}]
    if wanted is None:
        with pytest.raises(NpuError, match="neither a deb nor an rpm file name"):
            driver_files([], rows)
        return
    [(_path, one)] = driver_files([], rows)
    assert (
        (one.name, one.version, one.architecture) == wanted
        and one.path == "driver/" + name
        and one.kind == "driver_package"
    )


def test_a_folder_that_is_not_whole_is_not_sent(tmp_path: pathlib.Path, drivers: Drivers) -> None:
    folder = tmp_path / "out"
    _changed, manifest = made(folder, archive(tmp_path, {ROW["path"]: BODY}), drivers)
    verified(str(folder), manifest.files)
    (folder / ROW["path"]).unlink()
    (folder / "driver/rebellions-x86_64-3.2.2.run").write_bytes(b"#!/bin/bash")
    with pytest.raises(NpuError) as caught:
        verified(str(folder), manifest.files)
    text = str(caught.value)
    assert "make_4.4.1-2_amd64.deb (4 bytes, SHA-256 %s) is missing" % ROW["sha256"] in text
    assert "3.2.2.run (10 bytes" in text and "is another file: it has 11 bytes" in text and "nothing was sent" in text


def test_no_bundle_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NpuError, match="There is no bundle in .*playbook bundle"):
        read_folder(str(tmp_path))


def test_only_what_a_host_lacks_is_packed(tmp_path: pathlib.Path, drivers: Drivers) -> None:
    folder = tmp_path / "out"
    _changed, manifest = made(folder, archive(tmp_path, {ROW["path"]: BODY}), drivers)
    asked = asked_of({"lacking": [ROW["path"], "driver/rebellions-x86_64-3.2.2.run", ROW["path"]]}, manifest)
    pack_for(str(folder), asked, str(tmp_path / "x.tar"))
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert sorted(tar.getnames()) == sorted(one.sha256 for one in asked) and len(asked) == 2
    assert asked_of({}, manifest) == asked_of({"lacking": []}, manifest) == []


@pytest.mark.parametrize(
    "lacking",
    [["../../.ssh/id_rsa"], ["/etc/shadow"], ["packages/../Packages"], ["manifest.json"], [None], [["a"]], "x"],
)
def test_a_host_gets_no_other_file_of_the_controller(lacking: t.Any) -> None:
    manifest = dataclasses.replace(answer_of(ANSWER).manifest, created="now")
    with pytest.raises(NpuError, match="asks for files that are not in the bundle"):
        asked_of({"lacking": lacking}, manifest)


def lying(**change: t.Any) -> dict[str, t.Any]:
    return {**ANSWER, **change}


def row(**change: t.Any) -> dict[str, t.Any]:
    return lying(files=[{**ROW, **change}])


def control(**change: t.Any) -> dict[str, t.Any]:
    return row(control={**CONTROL, **change})


INDEX_ROW = {**ROW, "kind": "index", "path": "repodata/repomd.xml"}


@pytest.mark.parametrize(
    "answer, word",
    [
        ({}, "not a list"),
        (lying(files=None), "not a list"),
        (lying(files={"a": 1}), "not a list"),
        (lying(files=["x"]), "not a mapping"),
        (lying(files=[ROW, ROW]), "lists a file twice"),
        (lying(files=[ROW] * 20001), "more than 20000"),
        (row(path="../../.ssh/authorized_keys"), "not a valid path"),
        (row(path="/root/.ssh/authorized_keys"), "not a valid path"),
        (row(path="packages/../../x"), "not a valid path"),
        (row(path=".bashrc"), "not a valid path"),
        (row(path="packages/\x1b]0;x"), "not a valid path"),
        (row(path=7), "not a valid path"),
        (row(size=10**15), "size, SHA-256 or kind"),
        (row(size="4"), "size, SHA-256 or kind"),
        (row(sha256="{{ x }}"), "size, SHA-256 or kind"),
        (row(name=["make"]), "name is not text"),
        (row(path="driver/rebellions-x86_64-3.2.2.run"), "which is no package"),
        (row(kind="runfile", path="driver/rebellions-x86_64-3.2.2.run"), "which is no package"),
        (row(kind="driver_package"), "which is no package"),
        (row(kind="index", path="Packages"), "which is no package"),
        (lying(files=[INDEX_ROW]), "which is no package"),
        (lying(format="rpm", files=[{**INDEX_ROW, "path": "Release"}]), "which is no package"),
        (lying(format="tar"), "format or a value of os"),
        (lying(os={"id": "..", "version_id": "", "architecture": ""}), "format or a value of os"),
        (lying(os="debian"), "os is not a mapping"),
        (lying(requested=[1]), "not text"),
        (lying(images=[{**IMAGE, "digest": 1}]), "entry of images"),
        (lying(images=[{**IMAGE, "reason": "\x1b[2J"}]), "reason is not text"),
        (row(control=None), "control fields"),
        (row(control=[]), "control fields"),
        (control(Package="other"), "control fields"),
        (control(Version=["4.4.1-2"]), "control fields"),
        (control(Description="x\n\nPackage: evil\nFilename: ./packages/evil.deb"), "control fields"),
        (control(Description="x\nFilename: evil"), "control fields"),
        (control(Description="x\r"), "control fields"),
        (control(Description="x\n   \n y"), "control fields"),
        (control(**{"A: b\nFilename": "x"}), "control fields"),
        (control(**{"Filename ": "x"}), "control fields"),
        (control(Description="x" * 70000), "control fields"),
    ],
)
def test_what_a_host_says_passes_the_rules_of_a_manifest(answer: dict[str, t.Any], word: str) -> None:
    with pytest.raises(NpuError, match=word) as caught:
        answer_of(answer)
    assert str(caught.value).startswith("The answer of the connected host") and str(caught.value).isprintable()


def test_what_a_host_says_of_more_is_left_out() -> None:
    more = lying(files=[{**ROW, "local": "/etc/shadow"}], images=[{**IMAGE, "evil": 1}], changed=True)
    assert answer_of(more) == answer_of(ANSWER) == Answer(answer_of(ANSWER).manifest, {ROW["path"]: CONTROL})
    long = control(Description="make\n a tool\n .\n\tfor all")
    assert answer_of(long).controls[ROW["path"]]["Description"].endswith("for all")
    rpm = answer_of(lying(format="rpm", files=[{**ROW, "path": "packages/make.rpm"}, INDEX_ROW]))
    assert [one.kind for one in rpm.manifest.files] == ["package", "index"] and rpm.controls == {}


@pytest.mark.parametrize(
    "planned",
    [
        {},
        "x",
        [1],
        [{"name": "\x1b", "size": 1}],
        [{"name": "x", "size": "1"}],
        [{"name": "x", "size": True}],
        [{"name": "x", "size": 1, "sha256": "x"}],
    ],
)
def test_a_plan_of_a_host_is_a_list_of_files(planned: t.Any) -> None:
    with pytest.raises(NpuError, match="planned is not a list of files"):
        planned_of({"planned": planned})
    good = [{"name": "x", "size": 1, "sha256": None}]
    assert planned_of({"planned": [{**good[0], "more": 1}]}) == good and planned_of({}) == []


def test_an_archive_with_more_than_was_announced_changes_nothing(tmp_path: pathlib.Path, drivers: Drivers) -> None:
    sent = archive(tmp_path, {ROW["path"]: BODY, "../.ssh/authorized_keys": b"evil"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NpuError, match="which was not announced"):
        made(tmp_path / "out", sent, drivers)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_host_cannot_fill_the_disk_of_the_controller(tmp_path: pathlib.Path) -> None:
    before, limit = resource.getrlimit(resource.RLIMIT_FSIZE), 64 * 1024 * 1024
    command = ["dd", "if=/dev/zero", "of=%s" % (tmp_path / "files.tar"), "bs=1M", "count=80"]
    with room_for(answer_of(ANSWER).manifest.files, str(tmp_path)):
        done = subprocess.run(command, capture_output=True, check=False)
        with pytest.raises(OSError, match="File too large"), open(tmp_path / "own", "wb") as stream:
            stream.seek(limit)
            stream.write(b"x")
            stream.flush()
    assert done.returncode != 0 and (tmp_path / "files.tar").stat().st_size == limit
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    (tmp_path / "files.tar").unlink()
    huge = [BundleFile("packages/%d" % number, 8 * 1024**3 - 1, "%064x" % number, "package") for number in range(8)]
    real = subprocess.run(["stat", "-f", "-c", "%a %S", str(tmp_path)], capture_output=True, text=True, check=True)
    blocks, size = map(int, real.stdout.split())
    many = huge * (blocks * size // sum(one.size for one in huge) + 1)
    many = [dataclasses.replace(one, sha256="%064x" % number) for number, one in enumerate(many)]
    with pytest.raises(NpuError, match="but only .* are free"), room_for(many, str(tmp_path)):
        pytest.fail("there is no room for that")


@pytest.mark.parametrize("content, word", [(b"\xff", "is not text"), (b"x" * (16 * 1024**2 + 1), "more than 16777216")])
def test_a_manifest_that_is_none_is_said(tmp_path: pathlib.Path, content: bytes, word: str) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(NpuError, match=word):
        read_folder(str(tmp_path))


def test_a_pipe_in_the_place_of_a_manifest_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    subprocess.run(["mkfifo", str(tmp_path / "manifest.json")], check=True)
    with pytest.raises(NpuError, match="is not JSON"):
        read_folder(str(tmp_path))


REGISTRY = "registry.example.internal/npu"
POOLS = [{"os_id": "ubuntu", "os_version": "24.04", "kernel": "6.8.0-%d-generic" % number} for number in (10, 11)]
TEMPLATE = "{tag}-{kernel}"


def images(**given: t.Any) -> dict[str, str]:
    """{where the cluster asks: where it is published}."""
    found, warning = wanted_images(inputs(**given))
    assert warning == ""
    return {row["target"]: row["reference"] for row in found}


def test_images_are_those_of_the_operands() -> None:
    found = images()
    assert sorted(found) == sorted(found.values()) and len(found) == 2
    assert [image for image in found if image.startswith("docker.io/rebellions/k8s-device-plugin:")]


def test_a_site_s_registry_is_where_the_cluster_asks_G01_airgap_no_internet() -> None:
    found = images(registry=REGISTRY, validator={"source": "image", "image": {"repository": "r/v", "tag": "1"}})
    assert REGISTRY + "/r/v:1" in found
    assert all(
        target.startswith(REGISTRY + "/") and not published.startswith(REGISTRY) for target, published in found.items()
    )


def test_the_drivers_of_all_pools_and_their_manager_are_images_too() -> None:
    driver = {
        "enabled": True,
        "image": {"repository": "r/d", "tag": "3.4.1"},
        "manager": {"image": {"repository": "r/m", "tag": "1"}},
    }
    found = images(registry=REGISTRY, driver={**driver, "pools": POOLS, "tag_template": TEMPLATE})
    assert {REGISTRY + "/r/m:1", *(REGISTRY + "/r/d:3.4.1-6.8.0-%d-generic" % number for number in (10, 11))} <= set(
        found
    )


def test_an_instance_of_a_driver_asks_for_its_own_image() -> None:
    own = [
        {"name": name, "enabled": True, "image": {"repository": "r/d", "tag": tag}, "pools": POOLS[:1]}
        for name, tag in (("a", "3.4.1"), ("b", "3.5.1"))
    ]
    for instance in own:
        instance.update(node_selector={"x": instance["name"]}, manager={"image": {"repository": "r/m", "tag": "1"}})
    assert {"3.4.1", "3.5.1"} <= {image.rpartition(":")[2].split("-")[0] for image in images(driver_instances=own)}


def test_a_policy_file_names_images(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("devicePlugin:\n  registry: mirror.example.org\n  image: r/plugin\n  tag: 9.9.9\n")
    assert [image for image in images(policy_files=[str(path)]) if image.endswith("r/plugin:9.9.9")]


def test_a_driver_without_a_pool_is_warned_of() -> None:
    _found, warning = wanted_images(inputs(driver={"enabled": True, "image": {"tag": "3.4.1"}}))
    assert "no pool sets an image of rbln_operands_driver. Next: set pools in rbln_operands_driver" in warning
    shared = {"enabled": True, "image": {"tag": "3.4.1"}, "manager": {"image": {"tag": "1"}}}
    own = [
        {**shared, "name": name, "pools": pools, "node_selector": {"x": name}}
        for name, pools in (("a", POOLS), ("b", []))
    ]
    assert "no pool sets an image of b. Next" in wanted_images(inputs(driver_instances=own))[1]


def test_a_bundle_that_is_to_find_the_digests_needs_none() -> None:
    assert images(require_digest=True) == images()


def test_images_by_digest_are_copied_by_digest() -> None:
    """skopeo copies REFERENCE to TARGET: both name the digest that the cluster asks for."""
    digest, tag = "sha256:" + "1" * 64, "docker.io/library/busybox:1.37"
    for key in (tag, REGISTRY + "/library/busybox:1.37"):
        found = images(registry=REGISTRY, image_digests={key: digest})
        assert found.pop(REGISTRY + "/library/busybox@" + digest) == "docker.io/library/busybox@" + digest
        assert len(found) == 1 and all("@" not in one for one in (*found, *found.values()))


def test_a_component_that_is_off_asks_for_no_image() -> None:
    assert not [image for image in images(device_plugin={"enabled": False}) if "device-plugin" in image]


def test_a_manifest_on_disk_is_text_that_comes_back(tmp_path: pathlib.Path, drivers: Drivers) -> None:
    made(tmp_path / "out", archive(tmp_path, {ROW["path"]: BODY}), drivers)
    _manifest, text = read_folder(str(tmp_path / "out"))
    assert parse_manifest(text).dump() == text
