# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository of the driver beside what a host has already: used, named, or written. Here apt itself is asked in
test_repository_signatures of the integration tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, Sequence

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt import Apt
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt_sources import (
    normal_suite,
    normal_uri,
    parse_list,
    parse_sources,
    read_sources,
)
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Transaction
from ansible_collections.rebellions.npu.plugins.module_utils._packages.dnf import Dnf
from ansible_collections.rebellions.npu.plugins.module_utils._packages.keys import certificates
from ansible_collections.rebellions.npu.plugins.module_utils._packages.repository import Placed, Wanted, place
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, case
from ansible_collections.rebellions.npu.tests.unit.plugins.signing import Keys, made_keys

H07 = "H07-apt-signed-by-conflict"
URL = "https://mirror.example/rbln"
LIST = "/etc/apt/sources.list.d/rebellions.list"
RING = "/usr/share/keyrings/rebellions.gpg"
OWN, OWN_KEY = Apt.own_file, Apt.own_key
REPO = "/etc/yum.repos.d/site.repo"
# The name of every shell says which machine this is.
SHELL = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0\x3e\0"


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> Iterator[Keys]:
    with made_keys() as keys:
        yield keys


class Machine:
    """A host whose apt-get reads its sources well, unless `broken`."""

    def __init__(self, root: Path, keys: Keys) -> None:
        self.tree = Tree(root).write("/bin/sh", SHELL, 0o755)
        self.key = (keys.home / "vendor.asc").read_bytes()
        self.other = (keys.home / "other.asc").read_bytes()
        self.calls: list[list[str]] = []
        self.answers: list[str] = []
        self.host = Host(str(root), runner=self._run)

    def _run(self, argv: Sequence[str], *_rest: object) -> Probe:
        self.calls.append(list(argv))
        said = self.answers.pop(0) if self.answers else ""
        return Probe(VALUE, Completed(100 if said else 0, "", said))

    def place(self, deb: bool = True, check: bool = False, url: str = URL, suite: str = "stable") -> Placed:
        wanted = Wanted(url, suite, ["main"], certificates(self.key, "key"))
        return place(Apt(self.host) if deb else Dnf(self.host), wanted, check)

    def text(self, path: str) -> str:
        return self.tree.real(path).read_text(encoding="utf-8")

    def there(self, path: str) -> bool:
        return self.tree.real(path).exists()


@pytest.fixture(name="machine")
def machine_fixture(tmp_path: Path, keys: Keys) -> Machine:
    return Machine(tmp_path, keys)


def test_a_host_without_it_gets_source_and_key_once(machine: Machine) -> None:
    assert machine.place(check=True).changes == ["write " + OWN_KEY, "write " + OWN]
    assert not machine.there(OWN) and machine.calls == []
    assert machine.place() == Placed(OWN, False, ["write " + OWN_KEY, "write " + OWN])
    assert machine.text(OWN) == (
        "# Managed by Ansible\nTypes: deb\nURIs: %s\nSuites: stable\nComponents: main\nSigned-By: %s\n" % (URL, OWN_KEY)
    )
    assert certificates(machine.text(OWN_KEY).encode(), "") == certificates(machine.key, "")
    machine.calls.clear()
    assert machine.place().changes == [] and machine.calls == []


def test_a_flat_repository_has_no_components(machine: Machine) -> None:
    machine.place(suite="./")
    assert "Suites: ./\nSigned-By" in machine.text(OWN)


def test_H07_the_source_of_the_host_with_the_same_key_is_used(machine: Machine) -> None:
    machine.tree.write(LIST, case(H07, "sources.list.d/rebellions.list")).write(RING, machine.key)
    assert machine.place() == Placed(LIST, True, ["write " + OWN_KEY])
    assert not machine.there(OWN) and machine.place().changes == []
    # Packages still need a valid signature, whatever apt.conf of the host allows.
    assert "Acquire::AllowInsecureRepositories=false" in Apt(machine.host)._apt_get("update")


def test_H07_a_source_that_an_earlier_run_added_beside_it_goes(machine: Machine) -> None:
    machine.tree.write(LIST, case(H07, "sources.list.d/rebellions.list")).write(RING, machine.key)
    machine.tree.write(OWN, case(H07, "sources.list.d/rebellions-npu.sources")).write(OWN_KEY, machine.key)
    done = machine.place()
    assert (done.source, done.adopted) == (LIST, True) and "remove " + OWN in done.changes
    assert not machine.there(OWN)


def test_visual_studio_code_263_a_source_that_the_package_itself_brings(machine: Machine) -> None:
    """gantsign/ansible-role-visual-studio-code 263: with it and ours, apt would read no source at all."""
    machine.tree.write("/var/lib/dpkg/status", "")
    machine.place()
    brought = "Types: deb\nURIs: %s/\nSuites: stable\nComponents: main\nSigned-By: %s\n" % (URL, RING)

    def install(argv: Sequence[str], *_rest: object) -> Probe:
        if "-s" in argv:
            return Probe(VALUE, Completed(0, "Inst kmd (2 m [all])\n", ""))
        if "install" in argv:
            machine.tree.write("/etc/apt/sources.list.d/rebellions.sources", brought).write(RING, machine.key)
        return Probe(VALUE, Completed(0, "", ""))

    manager = Apt(Host(machine.host.root, runner=install))
    manager.apply(Transaction(install=["kmd=2"]))
    assert not machine.there(OWN) and machine.there(OWN_KEY)
    assert machine.place() == Placed("/etc/apt/sources.list.d/rebellions.sources", True, [])
    # Another repository of the vendor is not in the way.
    machine.tree.real("/etc/apt/sources.list.d/rebellions.sources").unlink()
    machine.place()
    brought = brought.replace("stable", "testing")
    manager.apply(Transaction(install=["kmd=2"]))
    assert machine.there(OWN)


def test_a_source_that_a_failing_package_has_brought_is_not_in_the_way_of_the_rollback(machine: Machine) -> None:
    """Its script failed, as a build of DKMS may; with two sources apt could neither hold a package nor remove one."""
    machine.tree.write("/var/lib/dpkg/status", "")
    machine.place()
    brought = "deb [signed-by=%s] %s stable main\n" % (RING, URL)
    read_with_both: list[str] = []

    def install(argv: Sequence[str], *_rest: object) -> Probe:
        if "-s" in argv:
            return Probe(VALUE, Completed(0, "Inst kmd (2 m [all])\n", ""))
        if "install" in argv:
            machine.tree.write(LIST, brought).write(RING, machine.key)
            return Probe(VALUE, Completed(100, "", "E: Sub-process /usr/bin/dpkg returned an error code (1)"))
        read_with_both.extend(argv if machine.there(LIST) and machine.there(OWN) else [])
        return Probe(VALUE, Completed(0, "", ""))

    manager = Apt(Host(machine.host.root, runner=install))
    with pytest.raises(NpuError, match="returned an error code"):
        manager.apply(Transaction(install=["kmd=2"], allow_held=True))
    assert machine.there(LIST) and not machine.there(OWN) and read_with_both == []
    # The failure of the package is what is told, not a source that cannot be read.
    machine.tree.real(LIST).unlink()
    machine.place()
    brought = "broken"
    machine.tree.link("/etc/apt/sources.list.d/loop.list", "loop.list")
    with pytest.raises(NpuError, match="returned an error code"):
        manager.apply(Transaction(install=["kmd=2"]))


def test_H07_another_key_is_named_with_file_and_line_before_anything_is_written(machine: Machine) -> None:
    machine.tree.write(LIST, "# mirror\n" + case(H07, "sources.list.d/rebellions.list")).write(RING, machine.other)
    for check in (True, False):
        with pytest.raises(NpuError) as caught:
            machine.place(check=check)
        assert caught.value.message.startswith(LIST + " line 2 has this repository with another key (")
        assert caught.value.next_step.endswith("nothing was changed.")
    assert not machine.there(OWN) and not machine.there(OWN_KEY) and machine.calls == []


BLOCK = "deb822"


@pytest.mark.parametrize(
    "path, text, told",
    [
        # The same repository in another spelling.
        (LIST, "deb [signed-by=%(ring)s] https://MIRROR.example:443/rbln// stable main contrib\n", ""),
        (LIST, "deb [ arch=amd64,arm64 signed-by=%(ring)s ] %(url)s/ stable main # a comment\n", ""),
        (LIST, "deb [signed-by=%(print)s] %(url)s stable main\n", ""),
        (LIST, "deb [signed-by=%(print)s] https://user:pw@mirror.example/rbln stable main\n", ""),
        (LIST, "deb [signed-by=/gone.gpg,%(ring)s] %(url)s stable main\n", ""),
        (LIST, "deb-src [signed-by=%(ring)s] %(url)s stable main\ndeb [signed-by=%(ring)s] %(url)s stable main\n", ""),
        ("/etc/apt/sources.list", "deb [signed-by=%(ring)s] %(url)s stable main\n", ""),
        (BLOCK, "Types: deb deb-src\nURIs: https://a.example %(url)s\nSuites: old stable\nComponents: main\n"
         "Signed-By: %(ring)s\n", ""),
        (BLOCK, "types: deb\nuris: %(url)s\nsuites: stable\ncomponents: main\nsigned-by:\n%(key)s\n", ""),
        (LIST, "deb %(url)s stable main\n", ""),
        # Not in the way: off, elsewhere, or a file that apt does not read.
        (LIST, "# deb [signed-by=/x] %(url)s stable main\n", None),
        (LIST, "deb [signed-by=/x] %(url)s testing main\n", None),
        (LIST, "deb [signed-by=/x] http://mirror.example/rbln stable main\n", None),
        ("/etc/apt/sources.list.d/x.list.save", "deb [signed-by=/x] %(url)s stable main\n", None),
        (BLOCK, "Enabled: no\nTypes: deb\nURIs: %(url)s\nSuites: stable\nComponents: main\nSigned-By: /x\n", None),
        # In the way.
        (LIST, "deb [trusted=yes] %(url)s stable main\n", "line 1 has this repository and takes unsigned packages"),
        (LIST, "\ndeb-src [signed-by=%(ring)s] %(url)s stable main\n", "line 2 has this repository without packages"),
        (LIST, "deb [arch=arm64 signed-by=%(ring)s] %(url)s stable main\n", "line 1 has this repository without pack"),
        (LIST, "deb [signed-by=%(ring)s] %(url)s stable extra\n", "line 1 has this repository without the component m"),
        (LIST, "deb [signed-by=/gone.gpg] %(url)s stable main\n", "with another key (none found) than"),
        (BLOCK, "# a\n\n# b\nTypes: deb\nURIs: %(url)s\nSuites: stable\nComponents: main\nSigned-By: /gone\n",
         "line 4 has this repository with another key"),
    ],
)  # fmt: skip
def test_H07_what_people_have(machine: Machine, path: str, text: str, told: str | None) -> None:
    path = "/etc/apt/sources.list.d/site.sources" if path == BLOCK else path
    key = "\n".join(" " + (line or ".") for line in machine.key.decode().splitlines())
    fingerprint = certificates(machine.key, "")[0].fingerprints[0]
    values = {"ring": RING, "url": URL, "key": key, "print": fingerprint}
    machine.tree.write(RING, machine.key).write("/etc/apt/trusted.gpg.d/site.asc", machine.key)
    machine.tree.write(path, text % values)
    if told:
        with pytest.raises(NpuError) as caught:
            machine.place()
        assert caught.value.message.startswith(path) and told in caught.value.message
        assert "user:pw" not in str(caught.value)
    else:
        assert machine.place()[:2] == ((OWN, False) if told is None else (path, True))
    assert machine.there(OWN) is (told is None)


BROKEN = "E: Malformed entry 1 in list file /etc/apt/sources.list.d/x.list (Suite)\nE: The list of sources could not be"


def test_a_list_that_was_broken_before_is_named_and_left(machine: Machine) -> None:
    machine.answers = [BROKEN]
    with pytest.raises(NpuError, match="x.list.*Next: Correct the named file"):
        machine.place()
    assert not machine.there(OWN) and not machine.there(OWN_KEY)


def test_H07_a_list_that_breaks_takes_our_files_away_again(machine: Machine) -> None:
    machine.answers = ["", case(H07, "apt-get.txt")]
    with pytest.raises(NpuError, match="The sources of the host are as before"):
        machine.place()
    assert not machine.there(OWN) and not machine.there(OWN_KEY)
    machine.tree.write(OWN, "# before\n").write(OWN_KEY, "before\n")
    machine.answers = [BROKEN]
    with pytest.raises(NpuError):
        machine.place()
    assert (machine.text(OWN), machine.text(OWN_KEY)) == ("# before\n", "before\n")


def test_H07_the_message_of_apt_has_a_remedy_that_names_both_files(machine: Machine) -> None:
    for name in ("rebellions.list", "rebellions-npu.sources"):
        machine.tree.write("/etc/apt/sources.list.d/" + name, case(H07, "sources.list.d/" + name))
    error = Apt(machine.host).failure(["apt-get", "update"], Completed(100, "", case(H07, "apt-get.txt")))
    assert OWN + " line 2" in error.next_step and LIST + " line 1" in error.next_step
    error = Apt(Host("/nonexistent")).failure(["apt-get"], Completed(100, "", case(H07, "apt-get.txt")))
    assert error.next_step.startswith("Remove one of the two sources")


def test_a_repository_of_dnf(machine: Machine) -> None:
    assert machine.place(deb=False) == Placed(Dnf.own_file, False, ["write " + Dnf.own_key, "write " + Dnf.own_file])
    assert "[rebellions-npu]\n" in machine.text(Dnf.own_file) and "gpgcheck=1\n" in machine.text(Dnf.own_file)
    assert machine.place(deb=False).changes == [] and machine.calls == []


@pytest.mark.parametrize(
    "text, told",
    [
        ("[site]\nbaseurl=%s/\ngpgcheck=1\ngpgkey=file:///etc/pki/site\n" % URL, ""),
        ("[site]\nbaseurl=https://a.example\n  https://mirror.example/$releasever/$basearch/\ngpgkey=file:///etc/pki/site\n"
         "gpgcheck=1\n", None),
        ("[site]\nbaseurl=%s\nenabled=0\ngpgcheck=0\n" % URL, None),
        ("[site]\nbaseurl=%s\ngpgcheck=1\ngpgkey=https://a.example/key\n" % URL, None),
        ("[a]\nbaseurl=x\n[site]\nbaseurl=%s\ngpgcheck=0\n" % URL, " line 3 ([site]) has this repository and takes"),
        ("[site]\nbaseurl=%s\n" % URL, " line 1 ([site]) has this repository and takes unsigned packages"),
        ("[rebellions-npu]\nbaseurl=x\n", " line 1 ([rebellions-npu]) has the name of the repository of the driver."),
    ],
)  # fmt: skip
def test_H07_what_people_have_of_dnf(machine: Machine, text: str, told: str | None) -> None:
    machine.tree.write(REPO, text).write("/etc/pki/site", machine.key)
    if told:
        with pytest.raises(NpuError) as caught:
            machine.place(deb=False)
        assert caught.value.message.startswith(REPO + told)
    else:
        assert machine.place(deb=False)[:2] == ((Dnf.own_file, False) if told is None else (REPO, True))


def test_variables_of_dnf_are_replaced(machine: Machine) -> None:
    machine.tree.write("/etc/os-release", "ID=rhel\nVERSION_ID=9.6\n").write("/etc/pki/site", machine.key)
    machine.tree.write(
        REPO, "[site]\nbaseurl=https://mirror.example/$releasever/$basearch\ngpgcheck=1\ngpgkey=file:///etc/pki/site\n"
    )
    assert machine.place(deb=False, url="https://mirror.example/9/x86_64/").adopted is True


def test_addresses_and_suites_in_one_spelling() -> None:
    assert normal_uri("HTTP://A.example:80//x/y") == normal_uri("http://u:p@a.example/x//y/") == "http://a.example/x/y/"
    assert normal_uri("file:/srv/x") == normal_uri("file:///srv/x/")
    assert normal_uri("https://a/x") != normal_uri("http://a/x")
    assert (normal_suite("./"), normal_suite("/"), normal_suite("stable")) == ("/", "/", "stable")


def test_lines_that_are_no_source() -> None:
    assert parse_list("deb\ndebx a b c\ncdrom\n\ndeb cdrom:[Debian\n", "/x") == []
    assert parse_sources("Types: deb\n\nno field\n", "/x") == []
    text = "# Enabled: no\nTypes: deb\n#URIs: https://b\nURIs: https://a\nSuites: s\nSigned-By:\n /a\n# /b: old\n /c\n"
    (found,) = parse_sources(text, "/x")
    assert (found.line, found.uri, found.options) == (2, "https://a", {"signed-by": "\n/a\n/c"})
    (found,) = parse_list("deb [arch=amd64] cdrom:[Debian_12]/ bookworm main", "/x")
    assert (found.uri, found.suite) == ("cdrom:[Debian_12]/", "bookworm")


def test_a_directory_among_the_sources_is_passed_over_as_apt_does(tmp_path: Path) -> None:
    parts = tmp_path / "etc/apt/sources.list.d"
    (parts / "x.list").mkdir(parents=True)
    (parts / "y.list").write_text("deb http://example.org stable main\n")
    assert [source.path for source in read_sources(Host(str(tmp_path)))] == ["/etc/apt/sources.list.d/y.list"]
