# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundle is on the host, root's alone to write, and enough for apt."""

from __future__ import annotations

import json

testinfra_hosts = ["podman://mol-a", "podman://mol-b"]

PLACE = "/var/lib/rbln/bundle"


def test_manifest_names_what_is_there(host):
    manifest = json.loads(host.file(PLACE + "/manifest.json").content_string)
    names = [one["path"] for one in manifest["files"]]
    assert any(name.startswith("packages/make_") for name in names)
    assert all(host.file("%s/%s" % (PLACE, name)).exists for name in names)


def test_folder_belongs_to_root(host):
    folder = host.file(PLACE)
    assert (folder.user, folder.group) == ("root", "root")
    assert folder.mode & 0o022 == 0


def test_apt_needs_nothing_else(host):
    done = host.run("APT_CONFIG=%s/apt.conf apt-get -s install make" % PLACE)
    assert done.rc == 0 and "Inst make " in done.stdout
