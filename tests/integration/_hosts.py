# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests ask of hosts and cluster.

Which hosts are virgin, a fingerprint of the disk, and the objects as the server has them.
"""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

from tests.integration._play import (
    CLUSTER,
    FOLDER,
    NAMESPACE_OF_TESTS,
    NODE_LABEL,
    RESOURCE,
    SITE,
    Data,
    Run,
    inventory,
    play,
)
from tests.lab import Lab

NODES = {"it-a": "containerd2", "it-b": "containerd17"}
BARE = {"it-c": "containerd16", "it-d": "engines", "it-e": "containerd17"}

# Folders in which running programs write by themselves.
LIVE = (
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/cni",
    "/var/lib/systemd",
    "/var/lib/private",
)
TREES = ("/etc", "/usr", "/var/lib", "/run/cdi", "/run/rbln")
# A file of which inode, size and both times are known has the contents that are known: then it is not read.
_WALK = """
import hashlib, json, os, stat, sys
live, known, found = set(sys.argv[1].split(":")), json.load(sys.stdin), {}
def look(path):
    info = os.lstat(path)
    row = [oct(info.st_mode), info.st_uid, info.st_gid, "", 0, []]
    if stat.S_ISREG(info.st_mode):
        row[4], row[5] = info.st_mtime_ns, [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]
        mark, row[3] = known.get(path, ([], ""))
        if mark != row[5]:
            row[3] = hashlib.sha256(open(path, "rb").read()).hexdigest()
    elif stat.S_ISLNK(info.st_mode):
        row[3] = os.readlink(path)
    elif stat.S_ISDIR(info.st_mode):
        row[4] = info.st_mtime_ns
    found[path] = row
for top in sys.argv[2:]:
    if os.path.lexists(top):
        look(top)
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if os.path.join(folder, name) not in live]
        for name in names + files:
            look(os.path.join(folder, name))
json.dump(found, sys.stdout)
"""

_POD = """apiVersion: v1
kind: Pod
metadata: {name: look-%(node)s, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: %(node)s}
  tolerations: [{key: %(taint)s, operator: Exists}]
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - name: look
      image: lab.local/busybox:1
      imagePullPolicy: IfNotPresent
      command: [sh, -c, "%(line)s"]
      env: [{name: LD_LIBRARY_PATH, value: /opt/app/lib}]
      resources: {limits: {%(resource)s: 1}}
"""
# The last two words: what the loader of the container knows, and the variable of the image.
INSIDE = (
    "for d in /dev/rbln*; do [ -c $d ] && : <$d && echo $d; done; grep -o ' /[^ ]*librbln-[^ ]*' /proc/mounts; "
    "rbln-smi --version; tr -cs 'a-z0-9.-' ' ' </etc/ld.so.cache | grep -o ' librbln-ml.so.3 '; "
    "echo LD:$LD_LIBRARY_PATH"
)
LOADER = ["librbln-ml.so.3", "LD:/opt/app/lib"]

# A system and a kernel of the support matrix. The modules are those of the kernel that runs.
LISTED = "6.8.0-117-generic"
_LISTED = """set -e
printf 'ID=ubuntu\\nVERSION_ID="24.04"\\nVERSION_CODENAME=noble\\nPRETTY_NAME=Ubuntu\\n' >/usr/lib/os-release
ln -sfn "$(uname -r)" /usr/lib/modules/%(kernel)s
echo %(kernel)s >/run/npu-lab/osrelease; mount --bind /run/npu-lab/osrelease /proc/sys/kernel/osrelease
""" % {"kernel": LISTED}

Fingerprint = dict[str, list[t.Any]]


# {host: {path: ([inode, size, mtime, ctime], digest)}} of the last look.
_known: dict[str, dict[str, tuple[list[int], str]]] = {}


def fingerprint(lab: Lab, host: str, times: bool = True) -> Fingerprint:
    """A fingerprint {path: [mode, uid, gid, digest or link target, mtime]} of everything in TREES except LIVE.

    Without times, mtime is 0.
    """
    argv = ["python3", "-c", _WALK, ":".join(LIVE), *TREES]
    found: Fingerprint = json.loads(lab.exec(host, argv, stdin=json.dumps(_known.get(host, {}))).stdout)
    assert len(found) > 5000, len(found)
    _known[host] = {path: (row[5], row[3]) for path, row in found.items() if row[5]}
    return {path: row[:5] if times else [*row[:4], 0] for path, row in found.items()}


def difference(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Paths that are on one side only or differ, marked -, + or ~."""
    lines = ["-" + path for path in before.keys() - after.keys()] + [
        "+" + path for path in after.keys() - before.keys()
    ]
    return sorted(
        lines + ["~" + path for path in before.keys() & after.keys() if before[path] != after[path]],
        key=lambda line: line[1:],
    )


def started(lab: Lab, host: str, unit: str = "containerd.service") -> str:
    """When the unit's main process started, with its pid."""
    return lab.exec(
        host, ["systemctl", "show", "-p", "ExecMainPID,ExecMainStartTimestampMonotonic,ActiveState", unit]
    ).stdout


class Hosts:
    """A group of hosts of the lab and what is known of each: virgin, done (site.yml has ended well) or dirty."""

    def __init__(self, lab: Lab, kinds: t.Mapping[str, str], kube: bool) -> None:
        self.lab = lab
        self.kinds = dict(kinds)
        self.kube = kube
        self.fresh: dict[str, Fingerprint] = {}
        known = lab.hosts()
        lab.up(self.kinds, kube=kube)
        # Hosts that an earlier session left are not to be trusted.
        self.state = {name: "dirty" if name in known else "new" for name in self.kinds}

    @property
    def names(self) -> list[str]:
        return sorted(self.kinds)

    @property
    def variables(self) -> Data:
        return {**SITE, **CLUSTER} if self.kube else dict(SITE)

    def leave(self) -> None:
        """Take the hosts down, unless NPU_KEEP asks for them to stay."""
        if self.kube:
            self.lab.kubectl(
                "delete", "namespace", NAMESPACE_OF_TESTS, "--ignore-not-found", "--wait=false", check=False
            )
        if not os.environ.get("NPU_KEEP"):
            self.lab.down(self.names)

    def virgin(self, *hosts: str) -> None:
        """Make sure that nothing has been done to these hosts, and remember their fingerprint."""
        chosen = list(hosts or self.names)
        used = {host: self.kinds[host] for host in chosen if self.state[host] in ("dirty", "done")}
        if self.kube and chosen == self.names:
            self.lab.kubectl(
                "delete", "namespace", NAMESPACE_OF_TESTS, "--ignore-not-found", "--wait=true", timeout=120
            )
        if used:
            self.lab.down(used)
            for host in used if self.kube else ():
                # Else the new node of the same name starts the pods of the old one.
                mine = ["-n", NAMESPACE_OF_TESTS, "--field-selector", "spec.nodeName=" + host]
                self.lab.kubectl("delete", "pods", *mine, "--force", "--grace-period=0", check=False)
            self.lab.up(used, kube=self.kube)
        for host in chosen:
            if self.state[host] != "virgin":
                self.fresh[host] = fingerprint(self.lab, host)
                self.state[host] = "virgin"
            if self.kube:
                self.lab.kubectl("label", "node", host, NODE_LABEL + "=true", "--overwrite")
                self.lab.kubectl("taint", "node", host, NODE_LABEL + "=true:NoSchedule", "--overwrite")

    def listed(self, host: str) -> None:
        """Let a virgin host say that it is one of the support matrix, for runs with its gate on."""
        self.lab.exec(host, _LISTED)
        self.state[host] = "dirty"

    def inventory(
        self, *hosts: str, host_vars: t.Mapping[str, Data] | None = None, name: str = "hosts", **variables: t.Any
    ) -> Path:
        """An inventory of these hosts (all when none is named) with the site's variables."""
        return inventory(FOLDER / (name + ".json"), hosts or self.names, {**self.variables, **variables}, host_vars)

    def site(self, *hosts: str, **variables: t.Any) -> Run:
        """site.yml on hosts, which have to end well."""
        chosen = list(hosts or self.names)
        for host in chosen:
            self.state[host] = "dirty"
        run = play("site", self.inventory(*chosen, **variables)).good(chosen)
        for host in chosen:
            self.state[host] = "done"
        return run

    def done(self, *hosts: str) -> None:
        """Make sure that site.yml has ended well on these hosts."""
        rest = [host for host in hosts or self.names if self.state[host] != "done"]
        for host in rest:
            if self.state[host] != "virgin":
                self.virgin(host)
        if rest:
            self.site(*rest)

    def mended(self, *hosts: str) -> None:
        """Make sure that site.yml has ended well on hosts that it can make right without their being made anew."""
        for host in hosts:
            if self.state[host] == "new":
                self.virgin(host)
            if self.state[host] != "done":
                self.site(host)

    # -- cluster

    def allocatable(self) -> dict[str, str | None]:
        """{node: allocatable NPUs as the API server says, None without the resource}."""
        nodes = self.lab.nodes()
        return {host: nodes[host]["allocatable"].get(RESOURCE) for host in self.names}

    def labels(self, node: str) -> dict[str, str]:
        """Labels of the vendor's prefix on a node."""
        item = json.loads(self.lab.kubectl("get", "node", node, "-o", "json").stdout)
        return {key: value for key, value in item["metadata"]["labels"].items() if key.startswith("rebellions.ai/")}

    def pods(self, node: str) -> dict[str, str]:
        """{app name: phase} of the pods of the namespace on a node."""
        out = self.lab.kubectl(
            "get", "pods", "-n", NAMESPACE_OF_TESTS, "--field-selector", "spec.nodeName=" + node, "-o", "json"
        ).stdout
        return {
            item["metadata"]["generateName"].rstrip("-"): item["status"]["phase"] for item in json.loads(out)["items"]
        }

    def look(self, node: str) -> list[str]:
        """What a pod that asks for one NPU sees: device files that open, mounted libraries, the version of rbln-smi."""
        name = "look-" + node
        self.lab.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=true")
        self.lab.kubectl(
            "apply", "-f", "-", stdin=_POD % {"node": node, "taint": NODE_LABEL, "resource": RESOURCE, "line": INSIDE}
        )
        self.lab.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/" + name, "--timeout=90s", timeout=120
        )
        seen = self.lab.kubectl("logs", name).stdout.split()
        self.lab.kubectl("delete", "pod", name, "--wait=false")
        return seen

    def objects(self) -> dict[str, Data]:
        """The objects of the namespace as the server has them, and our labels of each node.

        What the server counts is left out.
        """
        kinds = "namespace,serviceaccount,secret,configmap,daemonset.apps"
        out = self.lab.kubectl("get", "-n", NAMESPACE_OF_TESTS, kinds, "-o", "json").stdout
        found: dict[str, Data] = {}
        for item in json.loads(out)["items"]:
            meta = item["metadata"]
            if item["kind"] == "Namespace" and meta["name"] != NAMESPACE_OF_TESTS:
                continue
            # The status tells of the nodes that have come so far.
            if meta["name"] in ("default", "kube-root-ca.crt", "rbln-status"):
                continue
            item.pop("status", None)
            for key in ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"):
                meta.pop(key, None)
            meta.get("annotations", {}).pop("deprecated.daemonset.template.generation", None)
            found["%s/%s" % (item["kind"], meta["name"])] = item
        found.update({"labels of " + node: self.labels(node) for node in self.names})
        return found
