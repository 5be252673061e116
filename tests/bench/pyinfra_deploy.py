# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten operations of pyinfra on what the collection looks at too: all of them find what they want."""

from __future__ import annotations

from pyinfra.operations import apt, files, server, systemd

apt.packages(name="PCI tools", packages=["pciutils", "kmod"], _sudo=True)
files.directory(name="Directory of the CDI specification", path="/var/run/cdi", present=True, _sudo=True)
files.file(name="CDI specification", path="/var/run/cdi/rbln.yaml", mode="644", _sudo=True)
files.directory(name="Directory of the ready files", path="/run/rbln/validations", present=True, _sudo=True)
files.file(name="Ready file", path="/run/rbln/validations/driver-ready", _sudo=True)
files.line(
    name="CDI in the runtime's configuration",
    path="/etc/containerd/config.toml",
    line=r"^\s*enable_cdi = true$",
    _sudo=True,
)
files.file(name="Host tool", path="/usr/local/libexec/rebellions-npu/rbln-host", mode="755", _sudo=True)
systemd.service(name="containerd", service="containerd", running=True, enabled=True, _sudo=True)
# Not a user: pyinfra asks several programs about each of the accounts, of which this server has 500.
server.group(name="Group", group="root", _sudo=True)
server.shell(name="The vendor's tool", commands=["rbln-smi -j >/dev/null"], _sudo=True)
