# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook drift on nodes of a real cluster, after a package and a person have changed something.

It comes after the tests that compare what is on a host: what apt keeps of its own is not taken back.
"""

from __future__ import annotations

from tests.integration._hosts import Hosts
from tests.integration._play import NAMESPACE_OF_TESTS, play
from tests.integration._red import TERMINAL
from tests.integration._reports import newest, reporting

A, B = "it-a", "it-b"
BOTH = [A, B]

# A package whose script changes what another one has configured, as some do; apt logs who was asked for it.
PACKAGE = r"""set -e
mkdir -p /tmp/p/DEBIAN
printf 'Package: containerd-tuning\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@y>\n' >/tmp/p/DEBIAN/control
printf 'Description: x\n' >>/tmp/p/DEBIAN/control
cat >/tmp/p/DEBIAN/postinst <<'EOF'
#!/bin/sh
sed -i '/cri.v1.runtime"]$/a cdi_spec_dirs = ["/nowhere"]' /etc/containerd/config.toml
EOF
chmod 755 /tmp/p/DEBIAN/postinst
dpkg-deb --build /tmp/p /tmp/containerd-tuning.deb
apt-get install -y /tmp/containerd-tuning.deb
"""
# What a person does with an editor to files that a run has written. Where dpkg never ran there is no log of it, and
# nobody would know whether a package did it.
EDIT = r"""set -e
: >>/var/log/dpkg.log
f=$(grep -rl enable_cdi /etc/containerd)
sed -i 's/enable_cdi.*/enable_cdi = false/' "${f:?no file of containerd sets enable_cdi}"
sed -i 's/librbln-ml/librbln-xx/g' /run/cdi/rbln.yaml
"""


def test_drift_says_what_was_changed_and_by_whom(nodes: Hosts) -> None:
    nodes.done()
    first = play("drift", nodes.inventory(), env=reporting())
    assert first.code == 0, first.out[-2000:] + first.err[-2000:]
    nodes.state.update({A: "dirty", B: "dirty"})
    nodes.lab.exec(A, "sleep 1.1\n" + PACKAGE)
    nodes.lab.exec(B, EDIT)
    accounts = nodes.lab.kubectl("-n", NAMESPACE_OF_TESTS, "get", "serviceaccounts", "-o", "name").stdout.split()
    gone = next(name for name in accounts if not name.endswith("/default"))
    nodes.lab.kubectl("-n", NAMESPACE_OF_TESTS, "delete", gone)
    asked = {"rbln_drift_exit": True}
    found = play("drift", nodes.inventory(), extra=asked, env={**TERMINAL, **reporting()})
    assert found.code == 3, found.out[-3000:] + found.err[-1000:]
    said = {one["name"]: one["drift"] for one in newest("drift")["hosts"]}
    edited = {one["what"].split()[0].lower(): one for one in said[B]}
    assert len(said[B]) == 2 and {one["by"] for one in said[B]} == {"person"}, said
    wrote = "was written, its owner is root; no package manager did that"
    for what, place in (("containerd", "/etc/containerd/"), ("cdi", "/var/run/cdi/rbln.yaml")):
        assert what in edited, said
        evidence = edited[what]["evidence"]
        assert evidence.startswith(place) and evidence.endswith(wrote), said
    by = [one for one in said[A] if one["by"] == "package manager"]
    assert by and all(one["what"].startswith("containerd") for one in by), said
    assert by[0]["evidence"].startswith("/var/log/apt/history.log: apt-get install -y /tmp/containerd-tuning.deb"), by
    assert (
        "Drift on 2 of 2 hosts since " in found.out
        and "by a person at 2" in found.out
        and "by a package manager at 2" in found.out
    ), found.out
    name = "ServiceAccount %s/%s" % (NAMESPACE_OF_TESTS, gone.partition("/")[2])
    assert "has drifted:\n  %s is missing" % name in found.out, found.out
    assert [one["drift"] for one in newest("drift")["clusters"]] == [[{"object": name, "is": "missing"}]]
    again = play("drift", nodes.inventory(), extra=asked, env={**TERMINAL, **reporting()})
    assert again.code == 0 and "No drift on 2 hosts since " in again.out, again.out
    assert "A run would change 2 hosts as before: it-a, it-b." in again.out
    assert "has drifted" not in again.out
    play("site", nodes.inventory()).good(BOTH)
    nodes.lab.exec(A, "dpkg --purge containerd-tuning")
    nodes.state.update({A: "done", B: "done"})
