# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release: the same bytes from the same commit, the content that ansible-galaxy would pack, checksums and SBOM."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.bundle import wanted_images
from ansible_collections.rebellions.npu.tests.tools import build, sbom
from ansible_collections.rebellions.npu.tests.tools.build import File
from ansible_collections.rebellions.npu.tests.tools.paths import SELF, Missing
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

WHEN, COMMIT = 1_700_000_000, "a" * 40
TARBALL, BILL = "rebellions-npu-0.1.0.tar.gz", "rebellions-npu-0.1.0.cdx.json"
GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_AUTHOR_DATE": f"{WHEN} +0000",
    "GIT_COMMITTER_DATE": f"{WHEN} +0000",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(root: Path, *argv: str) -> None:
    subprocess.run(["git", "-C", str(root), *argv], check=True, capture_output=True, env={**os.environ, **GIT})


@pytest.fixture(name="tree", scope="module")
def tree_fixture() -> dict[str, File]:
    tree = build.working()
    assert len(tree) > 300
    return tree


@pytest.fixture(name="checkout", scope="module")
def checkout_fixture(tree: dict[str, File], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of this checkout in one commit, and the link to itself."""
    root = tmp_path_factory.mktemp("checkout")
    for name, one in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(one.data)
        (root / name).chmod(0o755 if one.executable else 0o644)
    (root / SELF).parent.mkdir(parents=True)
    (root / SELF).symlink_to("../../../..")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "One")
    return root


def release(root: Path, target: Path, monkeypatch: pytest.MonkeyPatch, epoch: str = "") -> dict[str, bytes]:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    tarball, files = build.release(root, target)
    assert tarball == target / TARBALL and files > 300
    return {path.name: path.read_bytes() for path in target.iterdir()}


def members(data: bytes) -> dict[str, bytes | None]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in archive} == {(WHEN, 0, 0, "", "")}
        assert {one.mode for one in archive} <= {0o644, 0o755}
        found = [(one.name, archive.extractfile(one)) for one in archive]
    assert len(found) == len(dict(found))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {
            one.name: t.cast(t.IO[bytes], archive.extractfile(one)).read() if one.isfile() else None for one in archive
        }


# -- the tarball


def test_a_commit_gives_the_same_bytes_on_every_machine(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other times, modes, umask, order of files and changes that are not committed make no difference."""
    first = release(checkout, tmp_path / "one", monkeypatch)
    assert sorted(first) == [build.SUMS, BILL, TARBALL]
    before = os.umask(0o077)
    try:
        git(tmp_path, "clone", "-q", str(checkout), "clone")
    finally:
        os.umask(before)
    clone = tmp_path / "clone"
    (clone / "README.md").write_text("changed", encoding="utf-8")
    (clone / "new.txt").write_text("new", encoding="utf-8")
    (clone / "LICENSE").unlink()
    assert release(clone, tmp_path / "two", monkeypatch) == first
    # Settings of the account.
    (tmp_path / "attributes").write_text("*.md export-ignore\n", encoding="utf-8")
    for name, value in (("core.autocrlf", "true"), ("core.attributesFile", tmp_path / "attributes")):
        git(clone, "config", name, str(value))
    git(clone, "config", "tar.umask", "0777")
    assert release(clone, tmp_path / "two", monkeypatch) == first
    git(clone, "commit", "-q", "-a", "-m", "Two")
    assert release(clone, tmp_path / "two", monkeypatch)[TARBALL] != first[TARBALL]


def test_the_content_is_what_ansible_galaxy_packs(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = Path(sys.executable).with_name("ansible-galaxy")
    argv = [str(tool), "collection", "build", "--output-path", str(tmp_path)]
    subprocess.run(argv, cwd=checkout, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    theirs = {}
    with tarfile.open(tmp_path / TARBALL) as archive:
        for one in archive:
            stream = archive.extractfile(one) if one.isfile() else None
            theirs[one.name] = stream.read() if stream else None
    ours = members(release(checkout, tmp_path / "dist", monkeypatch)[TARBALL])
    listings = [json.loads(files.pop("FILES.json") or b"") for files in (ours, theirs)]
    ordered = [sorted(one["files"], key=lambda row: str(row["name"])) for one in listings]
    assert ordered[0] == ordered[1] and len(ordered[0]) > 300 and listings[0]["format"] == listings[1]["format"]
    manifests = [json.loads(files.pop("MANIFEST.json") or b"") for files in (ours, theirs)]
    # Their list of files has another order, so another digest.
    digests = [one["file_manifest_file"].pop("chksum_sha256") for one in manifests]
    assert manifests[0] == manifests[1] and digests[0] != digests[1]
    assert ours == theirs


def test_the_manifests_have_the_digests_of_what_they_list(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = members(release(checkout, tmp_path, monkeypatch)[TARBALL])
    listing, manifest = files["FILES.json"], files["MANIFEST.json"]
    assert listing and manifest
    assert json.loads(manifest)["file_manifest_file"]["chksum_sha256"] == hashlib.sha256(listing).hexdigest()
    rows = {row["name"]: row["chksum_sha256"] for row in json.loads(listing)["files"]}
    assert rows.pop(".") is None
    assert rows == {
        name: None if data is None else hashlib.sha256(data).hexdigest()
        for name, data in files.items()
        if name not in ("FILES.json", "MANIFEST.json")
    }


def test_checksums_are_those_of_sha256sum_and_an_older_release_goes(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rebellions-npu-0.0.9.tar.gz", "rebellions-npu-0.0.9.cdx.json", "notes.txt"):
        (tmp_path / name).write_text("old", encoding="utf-8")
    found = release(checkout, tmp_path, monkeypatch)
    assert sorted(found) == [build.SUMS, "notes.txt", BILL, TARBALL]
    done = subprocess.run(["sha256sum", "-c", build.SUMS], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{BILL}: OK\n{TARBALL}: OK\n")


def test_the_build_needs_neither_packages_nor_environment(checkout: Path, tmp_path: Path) -> None:
    """make build in a fresh clone, by a Python without packages."""
    git(tmp_path, "clone", "-q", str(checkout), "clone")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    script = "import sys; sys.path.insert(0, '.'); from tests.tools.build import main; sys.exit(main())"
    done = subprocess.run(
        [str(python), "-c", script], cwd=tmp_path / "clone", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "clone" / ".work").iterdir()) == ["dist"]
    recipe = (checkout / "Makefile").read_text(encoding="utf-8").partition("\nbuild:")[2].split("\n")
    assert recipe[0].split("##")[0].strip() == "" and recipe[1] == "\t@$(PYTHON) -m tests.tools.build"


@pytest.mark.parametrize(
    "name, patterns, expected",
    [
        ("tests/unit/a.py", ["tests"], False),
        ("plugins/tests/a.py", ["tests"], True),
        ("docs/a.md", ["*.md"], False),
        ("docs/a.md", ["docs/*"], False),
        ("docsite/a", ["docs"], True),
        ("changelogs/fragments/a", ["changelogs/fragments"], False),
        ("changelogs/a", ["changelogs/fragments"], True),
        ("a.tar.gz", ["*.tar.gz"], False),
    ],
)
def test_which_files_are_left_out(name: str, patterns: list[str], expected: bool) -> None:
    assert bool(build.kept({name: File(b"")}, patterns)) is expected


def test_what_cannot_be_built_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Missing, match="^git .* failed in .*not a git repository.* Next: clone the repository$"):
        build.release(tmp_path, tmp_path / "dist")
    git(tmp_path, "init", "-q")
    (tmp_path / "link").symlink_to("a")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "One")
    with pytest.raises(Missing, match="^link is not a regular file. Next: make it one"):
        build.committed(tmp_path)
    with pytest.raises(Missing, match="^a{101} has more than 100 bytes. Next: shorten it$"):
        build.packed({"a" * 101: None}, 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="^git is not on PATH. Next: apt-get install git$"):
        build.release(tmp_path, tmp_path / "dist")


# -- the SBOM


@pytest.fixture(name="bill", scope="module")
def bill_fixture(tree: dict[str, File], tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    target = tmp_path_factory.mktemp("dist")
    build.build(target, tree, WHEN, COMMIT)
    found: dict[str, t.Any] = json.loads((target / BILL).read_bytes())
    assert found["metadata"]["component"]["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256((target / TARBALL).read_bytes()).hexdigest()}
    ]
    return found


def test_the_bill_is_valid_by_the_schema_of_cyclonedx(bill: dict[str, t.Any]) -> None:
    judge = JsonStrictValidator(SchemaVersion.V1_6)
    error = judge.validate_str(json.dumps(bill))
    assert error is None, error
    assert judge.validate_str(json.dumps({**bill, "serialNumber": "1"})) is not None
    assert judge.validate_str(json.dumps({**bill, "vendored": []})) is not None


def test_the_bill_names_the_collection_and_the_commit(bill: dict[str, t.Any]) -> None:
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"], own["licenses"]) == (
        "rebellions.npu",
        "0.1.0",
        [{"license": {"id": "GPL-3.0-or-later"}}],
    )
    assert own["externalReferences"][0]["comment"] == f"commit {COMMIT}"
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_the_bill_names_every_requirement(bill: dict[str, t.Any], tree: dict[str, File]) -> None:
    found = {
        one["name"]: one["properties"][0]["value"]
        for one in bill["components"]
        if one["type"] in ("library", "platform")
    }
    lines = [line for line in tree["requirements.txt"].data.decode().splitlines() if not line.startswith("#")]
    assert found == {
        "ansible-core": ">=2.16.0",
        "python": ">=3.10 on the controller, >=3.8 on managed hosts",
        **{line.partition(">=")[0]: ">=" + line.partition(">=")[2] for line in lines},
    }
    assert len(lines) == 3
    assert {one["purl"] for one in bill["components"] if one["type"] == "library"} == {
        "pkg:pypi/ansible-core", "pkg:pypi/kubernetes", "pkg:pypi/pyyaml", "pkg:pypi/tomlkit"
    }  # fmt: skip


def test_the_bill_names_the_images_of_the_default_inputs(bill: dict[str, t.Any]) -> None:
    rows, warning = wanted_images(t.cast(t.Any, inputs()))
    assert not warning
    found = sorted(f"{one['name']}:{one['version']}" for one in bill["components"] if one["type"] == "container")
    assert found == sorted(row["reference"] for row in rows) and len(found) == 2


def test_nothing_is_vendored(bill: dict[str, t.Any], tree: dict[str, File]) -> None:
    """Every file that is packed names us as its author, and the bill says that there is nothing else."""
    assert bill["compositions"][0]["aggregate"] == "complete"
    assert "components" not in bill["metadata"]["component"]
    packed = build.kept(tree, (*build.NEVER, *build.described(tree)["build_ignore"]))
    unmarked = {"LICENSE", "CHANGELOG.md"}
    others = [
        name
        for name, one in packed.items()
        if b"The rebellions.npu authors" not in one.data[:400] and one.data and name not in unmarked
    ]
    assert [name for name in others if not name.endswith((".json", ".yaml", ".png"))] == []


def test_a_build_of_other_inputs_is_another_bill() -> None:
    galaxy = {
        "namespace": "a", "name": "b", "version": "1.0.0", "description": "d", "authors": ["x"], "license": ["MIT"],
        "repository": "https://a", "documentation": "https://a", "issues": "https://a", "dependencies": {"c.d": ">=1"},
    }  # fmt: skip
    one = sbom.describe(galaxy, "x>=1,<2  # why\n", 'requires_ansible: ">=2.17"\n', "0" * 64, 0, COMMIT)
    other = sbom.describe(galaxy, "x>=1,<2  # why\n", 'requires_ansible: ">=2.17"\n', "1" * 64, 0, COMMIT)
    versions = {
        part["name"]: part["properties"][0]["value"] for part in one["components"] if part["scope"] == "required"
    }
    assert versions == {"ansible-core": ">=2.17", "c.d": ">=1", "python": sbom.PYTHON, "x": ">=1,<2"}
    assert one["serialNumber"] != other["serialNumber"]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(one)) is None
