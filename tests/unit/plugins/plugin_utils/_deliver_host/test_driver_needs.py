# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installation needs on the controller: who waits for one, which files, and what is wrong with them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.driver_needs import (
    Need,
    is_due,
    needs,
    open_need,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.checked import checked
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import (
    NO_DRIVER,
    facts,
    inputs,
    npu,
    observed,
    runtimes,
)

RUNFILE = {
    "rbln_driver_source": "runfile",
    "rbln_driver_version": "3.2.2",
    "rbln_driver_runfile": "/srv/{version}.run",
    "rbln_driver_runfile_sha256": "0" * 64,
}


def due(raw: dict[str, Any], **changes: Any) -> bool:
    seen = facts(**changes)
    looked = {**observed(), "checks": checked(seen, runtimes())}
    return is_due(inputs(raw), {"rbln": seen, "rbln_runtimes": runtimes(), "rbln_observed": looked})


def test_only_a_host_whose_driver_is_not_the_wanted_one_waits() -> None:
    assert not due(RUNFILE)
    assert due(RUNFILE, driver=NO_DRIVER)
    assert due({**RUNFILE, "rbln_driver_version": "3.4.0"})
    assert not due({**RUNFILE, "rbln_driver_state": "absent"}, driver=NO_DRIVER)
    assert not due(RUNFILE, driver=NO_DRIVER, npus=[npu(state="passthrough")])


def found(raw: dict[str, Any], seen: Any = None) -> list[Need]:
    return needs(inputs(raw), seen, lambda path: "/beside/" + path)


def test_the_files_of_a_host_and_those_of_any_host() -> None:
    (need,) = found(RUNFILE, facts())
    assert (need.src, need.name, need.sha256) == ("/srv/3.2.2.run", "rebellions-x86_64-3.2.2.run", "0" * 64)
    assert found(RUNFILE) == [need]
    families = {"ATOM": "3.4.0", "REBEL": "3.5.0"}
    several = {**RUNFILE, "rbln_driver_version": "", "rbln_driver_versions": families}
    assert [need.src for need in found(several)] == ["/srv/3.4.0.run", "/srv/3.5.0.run"]
    assert found({"rbln_driver_source": "preinstalled", "rbln_driver_ca_cert": "/ca"}) == []


def test_certificate_and_key_of_a_repository_are_needed() -> None:
    repository = {"url": "https://r", "key": "vendor.asc", "fingerprint": ["AB"]}
    raw = {"rbln_driver_source": "package", "rbln_driver_repository": repository, "rbln_driver_ca_cert": "/ca.pem"}
    assert found(raw) == [Need("/ca.pem"), Need("/beside/vendor.asc", fingerprints=("AB",))]
    raw["rbln_driver_repository"] = {**repository, "key": "https://r/key.asc"}
    assert found(raw) == [Need("/ca.pem")]


def test_what_the_plan_says_is_not_said_again() -> None:
    assert found({**RUNFILE, "rbln_driver_runfile": "https://user:word@r/a.run"}) == []
    assert found({**RUNFILE, "rbln_driver_runfile": "https://r/a.run?token=hunted-word-3"}) == []
    repository = {"url": "https://user:word@r/", "key": "/srv/key.asc"}
    assert found({"rbln_driver_source": "package", "rbln_driver_repository": repository}) == []
    (need,) = found({**RUNFILE, "rbln_driver_runfile_keyring": "/ring.asc"})
    assert (need.keyring, need.signature) == ("", "")


def test_files_are_opened(tmp_path: Path) -> None:
    path, text = tmp_path / "a.run", b"text"
    path.write_bytes(text)
    good = hashlib.sha256(text).hexdigest()
    open_need(Need(str(path), sha256=good))
    open_need(Need(str(tmp_path), "a.run", good))
    open_need(Need(str(path)))
    open_need(Need("https://nowhere.invalid/a.run"))
    with pytest.raises(NpuError, match="^The SHA-256 of %s is %s, not 1111" % (path, good)):
        open_need(Need(str(path), sha256="1" * 64))
    none = str(tmp_path / "none.run")
    for need in (Need(none), Need(str(tmp_path), "none.run"), Need(none, sha256=good)):
        with pytest.raises(NpuError, match="^%s/none.run cannot be read on the controller: No such file" % tmp_path):
            open_need(need)
    with pytest.raises(NpuError, match="^A signature of a.run is set, but no keyring. Next: Set keyring"):
        open_need(Need(str(path), sha256=good, signature="/sig"))
    with pytest.raises(NpuError, match="/none.asc cannot be read on the controller"):
        open_need(Need("/none.asc", fingerprints=()))
