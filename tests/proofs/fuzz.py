# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random input, the same every time, judged by the programs that own the formats.

CDI specifications by the CDI project's library, sets of containerd files by containerd itself, daemon.json by dockerd,
YAML by PyYAML, TOML by tomllib, TOML and JSON edits by reading them again, certificates by cryptography, ELF by
readelf, loader caches by ldconfig, package fields by dpkg. Garbage in the place of any input is judged by how a reader
ends: with a value or its
own error.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import release_numbers
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.containerd_config import effective, load_set
from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_config.edit import covers
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.splice import differences
from ansible_collections.rebellions.npu.tests.unit.fixtures import garbage, random_json, random_toml, random_yaml

from tests.integration import _containerd as containerd
from tests.integration._cdi_library import disagreements
from tests.integration._judges import containerds, debian
from tests.lab._base import run
from tests.proofs import _containerd_sets as sets
from tests.proofs import _docker_files
from tests.proofs import _readers as readers
from tests.proofs._proof import SAMPLE, Part, Proof

SEED = 20260303
SPECIFICATIONS, SETS, EDITS, WRITTEN, READ = (900, 40, 300, 60, 3000) if SAMPLE else (15000, 640, 20000, 3000, 300000)
SIGNED, LIBRARIES, STANZAS, GARBAGE = (60, 60, 10, 400) if SAMPLE else (3000, 2000, 300, 40000)
CACHES = 10 if SAMPLE else 500
RELEASES = ("1.7", "2.4")
CRI_NAMES = {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}


def specifications(part: Part, folder: Path) -> None:
    source = random.Random(SEED)
    refused, wrong = disagreements(folder, source, SPECIFICATIONS)
    assert SPECIFICATIONS / 5 < refused < SPECIFICATIONS * 0.95, refused
    part.good(SPECIFICATIONS - len(wrong))
    for text in wrong:
        part.bad("specification", text)
    part.note = "the library refuses %d of %d, and so do we" % (refused, SPECIFICATIONS)


class Reading(t.NamedTuple):
    """Our own reading: state is (CDI on, directories), None when containerd would not load the files."""

    state: tuple[bool, list[str]] | None
    cri_off: bool = False
    import_missing: bool = False
    declared: bool = True


def reading(program: Path, config: Path) -> Reading:
    release = release_numbers(containerd.version_of(program))
    files = load_set(Host(), str(config), release)
    found = effective(files, release)
    declared = any(item.version for item in files.files)
    if found.error:
        return Reading(None, False, files.error_code == "containerd_config_unreadable", declared)
    if found.enabled is None:
        return Reading((False, []), True, False, declared)
    return Reading((found.enabled, list(found.spec_dirs)), False, False, declared)


def one_set(source: random.Random, program: Path, folder: Path) -> str:
    """Read, edit, edit again, take out one random set; what became of it. AssertionError names the set."""
    config = sets.write(source, folder / "etc")
    before = containerd.snapshot(config.parent)
    shown = "\n".join("--- %s\n%s" % (name, data.decode()) for name, data in before.items())
    said = containerd.cdi_state(program, config)
    old, ours = containerd.dumped(program, config), reading(program, config)
    if ours.import_missing and said is not None:
        # The daemon of 2.x does not start when a named import is missing; `config dump` says nothing of it.
        return "not judged"
    if ours.cri_off:
        # The dump shows the table of a plugin that is switched off, too.
        assert old is not None and CRI_NAMES & set(old["disabled_plugins"]), (
            "we read that the CRI plugin is off\n%s" % shown
        )
    else:
        assert ours.state == said, "containerd says %s, we read %s\n%s" % (said, ours.state, shown)
    runtime = containerd.runtime_of(program, config)
    sleeping = any(str(path) not in runtime["config_files"] for path in (config.parent / "conf.d").glob("*.toml"))
    if release_numbers(runtime["version"]) >= (2,) and (sleeping or source.random() < 0.5):
        path, kind = (config, "main") if sleeping else (config.parent / "conf.d/99-rbln.toml", "dropin")
        runtime["edit_target"] = {"path": str(path), "kind": kind}
    wanted = source.choice([["/var/run/cdi"], ["/etc/cdi", "/var/run/cdi"], ["/opt/npu/cdi"]])
    try:
        done = containerd.apply(runtime, folder / "state", wanted)
    except NpuError as exc:
        assert containerd.snapshot(config.parent) == before, "refused (%s), but the files differ\n%s" % (exc, shown)
        return "refused"
    now, new = containerd.cdi_state(program, config), containerd.dumped(program, config)
    if not done["changed"]:
        assert containerd.snapshot(config.parent) == before, shown
        return "left"
    assert said is not None and old is not None, "edited, but containerd does not load it\n%s" % shown
    assert now is not None and new is not None and now[0] and covers(now[1], wanted), (
        "wanted %s, containerd says %s\n%s" % (wanted, now, shown)
    )
    # Files in which no version stands are given one, and with it the tables count that they have for that version.
    if said[1] and ours.declared and old.get("disabled_plugins") == new.get("disabled_plugins"):
        assert set(said[1]) <= set(now[1]), "directories are lost: %s, %s\n%s" % (said, now, shown)
        rest = [path for path in differences(old, new) if path[-1] not in ("enable_cdi", "cdi_spec_dirs", "imports")]
        assert rest == [], "the edit also changed %s\n%s" % (rest, shown)
    after = containerd.snapshot(config.parent)
    runtime = {**containerd.runtime_of(program, config), "edit_target": runtime.get("edit_target")}
    assert (
        not containerd.apply(runtime, folder / "state", wanted)["changed"]
        and containerd.snapshot(config.parent) == after
    ), "not idempotent\n%s" % shown
    containerd.apply(runtime, folder / "state", wanted, remove=True)
    assert containerd.snapshot(config.parent) == before, "removal left something\n%s" % shown
    return "edited"


def configurations(part: Part, folder: Path, release: str) -> None:
    program = containerds()[release]()
    became: dict[str, int] = {}
    for number in range(SETS):
        home = folder / str(number)
        with part.case("set %d of containerd %s" % (number, release)):
            word = one_set(random.Random("%d %d" % (SEED, number)), program, home)
            became[word] = became.get(word, 0) + 1
        shutil.rmtree(home, ignore_errors=True)
    part.note = ", ".join("%s %d" % item for item in sorted(became.items()))
    assert {"refused", "edited"} <= set(became), became


def daemon_files(part: Part, folder: Path) -> None:
    program = debian("trixie") / "dockerd"
    version = run([program, "--version"]).stdout.split()[2].partition("+")[0]
    became: dict[str, int] = {}
    for number in range(SETS):
        with part.case("file %d of dockerd %s" % (number, version)):
            word = _docker_files.one(random.Random("%d %d" % (SEED, number)), program, version, folder / str(number))
            became[word] = became.get(word, 0) + 1
    part.note = ", ".join("%s %d" % item for item in sorted(became.items()))
    assert {"refused", "edited"} <= set(became), became


def edits(part: Part, edit: t.Callable[[random.Random], None]) -> None:
    for number in range(EDITS):
        with part.case("document %d" % number):
            edit(random.Random("%d %d" % (SEED, number)))


def toml(part: Part) -> None:
    both = 0
    source = random.Random(SEED)
    for number in range(READ):
        with part.case("text %d" % number):
            both += readers.toml_text(source)
    assert both > READ / 10, both
    part.note = "%d texts, of which both readers take %d" % (READ, both)


def certificates(part: Part) -> None:
    signer = readers.Signer()
    for number in range(SIGNED):
        with part.case("certificate %d" % number):
            signer.one(random.Random("%d %d" % (SEED, number)))


def libraries(part: Part, folder: Path) -> None:
    """Files made here and the libraries of this machine."""
    source = random.Random(SEED)
    folder.mkdir()
    paths = [folder / str(number) for number in range(LIBRARIES)]
    for path in paths:
        path.write_bytes(readers.elf_file(source))
    there = sorted(path for path in Path("/usr/lib").glob("*-linux-gnu/*.so*") if path.read_bytes()[:4] == b"\x7fELF")
    for one in range(0, len(paths + there[:LIBRARIES]), 100):
        some = (paths + there[:LIBRARIES])[one : one + 100]
        facts = readers.elf_facts(some)
        for path in some:
            with part.case(str(path)):
                assert readers.elf_ours(path) == facts[str(path)], (readers.elf_ours(path), facts[str(path)])
    part.note = "%d files made, %d libraries of this machine" % (len(paths), len(there[:LIBRARIES]))


def caches(part: Part, folder: Path) -> None:
    folder.mkdir()
    library = readers.empty_library(folder)
    for number in range(CACHES):
        with part.case("cache %d" % number):
            readers.loader_cache(random.Random("%d %d" % (SEED, number)), folder / "cache", library)


def stanzas(part: Part, folder: Path) -> None:
    for number in range(STANZAS):
        with part.case("status %d" % number):
            wrong = readers.stanza_file(random.Random("%d %d" % (SEED, number)), folder, 40)
            assert wrong == [], wrong[:2]


def garbled(part: Part, folder: Path, name: str) -> None:
    """Garbage in the place of one kind of input."""
    source = random.Random("%d %s" % (SEED, name))
    count = GARBAGE // 20 if name in garbage.FOLDER_TARGETS else GARBAGE
    for number in range(count):
        with part.case("%s %d" % (name, number)):
            if name in garbage.TARGETS:
                garbage.TARGETS[name](random.Random("%s %d" % (source.random(), number)))
                continue
            home = folder / "garbage" / str(number)
            home.mkdir(parents=True)
            try:
                garbage.FOLDER_TARGETS[name](random.Random("%s %d" % (source.random(), number)), home)
            finally:
                shutil.rmtree(home)


def hosts(part: Part, folder: Path) -> None:
    home = folder / "host"
    home.mkdir()
    host = garbage.Hosts(home)
    for number in range(GARBAGE // 20):
        with part.case("host %d" % number):
            host.one(random.Random("%d %d" % (SEED, number)))


def yaml(part: Part) -> None:
    both = 0
    for number in range(WRITTEN):
        with part.case("data %d" % number):
            random_yaml.write_one(random.Random("%d %d" % (SEED, number)))
    source = random.Random(SEED)
    for number in range(READ):
        with part.case("text %d" % number):
            both += random_yaml.read_one(source)
    assert both > READ / 10, both
    part.note = "%d written and read, %d texts, of which both readers take %d" % (WRITTEN, READ, both)


def parts(proof: Proof) -> None:
    """Every parser and editor; also a part of the attack."""
    with tempfile.TemporaryDirectory(prefix="npu-fuzz-") as name:
        folder = Path(name)
        with proof.part("YAML and PyYAML") as part:
            yaml(part)
        with proof.part("TOML and tomllib") as part:
            toml(part)
        with proof.part("TOML edits") as part:
            edits(part, random_toml.edit_one)
        with proof.part("pairs cut out of inline tables") as part:
            edits(part, random_toml.inline_one)
        with proof.part("JSON edits") as part:
            edits(part, random_json.edit_one)
        with proof.part("certificates and cryptography") as part:
            certificates(part)
        with proof.part("ELF and readelf") as part:
            libraries(part, folder / "elf")
        with proof.part("loader caches and ldconfig") as part:
            caches(part, folder / "ldconfig")
        with proof.part("package fields and dpkg") as part:
            stanzas(part, folder / "dpkg")
        for kind in (*garbage.TARGETS, *garbage.FOLDER_TARGETS):
            with proof.part("garbage: " + kind) as part:
                garbled(part, folder, kind)
        with proof.part("garbage: the files of a host") as part:
            hosts(part, folder)
        with proof.part("CDI specifications and the CDI library") as part:
            specifications(part, folder)
        with proof.part("daemon.json and dockerd") as part:
            daemon_files(part, folder / "docker")
        for release in RELEASES:
            with proof.part("sets of files and containerd %s" % release) as part:
                configurations(part, folder, release)


def main() -> int:
    proof = Proof("fuzz")
    parts(proof)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
