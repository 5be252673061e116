# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node Feature Discovery itself, built from its source and installed by its own manifests, on both kubelets.

Only its image is ours: its programs without a system around them. One node is of the run; no run looks at the other.
"""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import yaml

from tests.integration._hosts import NODE_LABEL
from tests.integration._play import Data, Run, play
from tests.lab import Lab
from tests.lab._base import KUBERNETES_VERSION, LAB_DIR, cached, digest, podman, run, until
from tests.lab._go import NFD, NFD_VERSION, module_folder, program
from tests.lab._image import Entry, tar_of, write_image
from tests.lab.standins.payload import VERSIONS
from tests.proofs._proof import Part
from tests.proofs._walk import BARE, OWN, Walk

NAMESPACE = "node-feature-discovery"
MASTER = "system:serviceaccount:%s:nfd-master" % NAMESPACE
IMAGE = "registry.k8s.io/nfd/node-feature-discovery:" + NFD_VERSION
FILE = "/etc/kubernetes/node-feature-discovery/features.d/rbln-features"
OURS, THEIRS = "rebellions.ai/", "feature.node.kubernetes.io/"
ANNOTATION = "nfd.node.kubernetes.io/feature-labels"
# Its name of what is also ours.
SAME = {
    THEIRS + "system-os_release.ID": OURS + "host.os-id",
    THEIRS + "system-os_release.VERSION_ID": OURS + "host.os-version",
    THEIRS + "kernel-version.full": OURS + "host.kernel",
}
RULED = {OURS + "npu.present": "true", OURS + "npu.family": "ATOM", OURS + "npu.product": "RBLN-CA22"}
# Nobody waits for a minute here, as its worker does between two looks.
INTERVAL = "2s"
NOBODY = 65534
INPUTS: Data = {
    "rbln_operands_feature_discovery": {"enabled": True},
    "rbln_operands_node_feature_rule": {"enabled": True},
    "rbln_operands_label_policy": {"enabled": True, "users": [MASTER]},
    "rbln_operands_deadlines": {"feature_discovery": 10},
}


def image() -> Path:
    """A docker-archive of its programs, under the name in its manifests."""
    home = program("nfd")
    entries = {"usr/bin/" + path.name: Entry(path) for path in sorted(home.iterdir())}

    def make(part: Path) -> None:
        write_image(part / "image.tar", IMAGE, tar_of(entries))

    key = digest(LAB_DIR / "_image.py", home.name, IMAGE)
    return cached("image-nfd", key, make) / "image.tar"


def manifests(denied: str = "") -> list[Data]:
    """Its default overlay, for nodes with the taint of the tests; the master refuses labels of a denied prefix."""
    overlay = module_folder("nfd", NFD) / "deployment" / "overlays" / "default"
    text = run([program("kube") / "kubectl", "kustomize", overlay]).stdout
    items: list[Data] = list(yaml.safe_load_all(text))
    for item in items:
        name = item["metadata"]["name"]
        if item["kind"] == "ConfigMap" and name.startswith("nfd-worker-conf"):
            item["data"]["nfd-worker.conf"] = "core: {sleepInterval: %s}\n" % INTERVAL
        if item["kind"] not in ("DaemonSet", "Deployment"):
            continue
        spec = item["spec"]["template"]["spec"]
        spec["tolerations"] = [{"key": NODE_LABEL, "operator": "Exists"}]
        spec["nodeSelector"] = {NODE_LABEL: "true"}
        # The image of its makers names a user.
        spec["securityContext"] = {"runAsUser": NOBODY}
        if name == "nfd-master" and denied:
            spec["containers"][0]["args"] = ["-deny-label-ns=" + denied]
    return items


def install(lab: Lab, items: t.Sequence[Data]) -> None:
    # Namespace and definitions are first.
    for kinds in (("Namespace", "CustomResourceDefinition"), ()):
        chosen = [item for item in items if not kinds or item["kind"] in kinds]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": chosen})
        lab.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    lab.kubectl("rollout", "status", "-n", NAMESPACE, "deployment/nfd-master", "--timeout=60s", timeout=70)


def meta(lab: Lab, node: str) -> Data:
    found: Data = json.loads(lab.kubectl("get", "node", node, "-o", "json").stdout)["metadata"]
    return found


def discovered(lab: Lab, node: str) -> dict[str, str]:
    """Labels that it gives by itself."""
    return {key: value for key, value in meta(lab, node)["labels"].items() if key.startswith(THEIRS)}


def uninstall(lab: Lab) -> None:
    """Take it away; without its workers the master takes its labels from the nodes."""
    lab.kubectl("delete", "daemonset", "nfd-worker", "-n", NAMESPACE, "--cascade=foreground", "--ignore-not-found")
    lab.kubectl("delete", "nodefeatures", "-n", NAMESPACE, "--all", check=False)
    until(60, "its labels gone", lambda: not any(discovered(lab, node) for node in (OWN, BARE)))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests()})
    lab.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", stdin=text, timeout=120)


def told(run_: Run) -> str:
    return "\n".join(one.msg for one in run_.failed())


def discovery(part: Part, walk: Walk) -> None:
    lab, hosts = walk.lab, walk.hosts
    archive = image()
    hosts.state[OWN] = "dirty"
    where = hosts.inventory(OWN, **INPUTS)
    for node in (OWN, BARE):
        podman("cp", archive, node + ":/var/tmp/nfd.tar")
        lab.exec(node, "ctr -n k8s.io images import /var/tmp/nfd.tar && rm /var/tmp/nfd.tar")
    part.note = "Node Feature Discovery %s on Kubernetes %s" % (NFD_VERSION, KUBERNETES_VERSION)
    with part.case("without it the run says that it has not looked, and that the rule is left out"):
        first = play("site", where)
        assert first.code == 2 and "has not looked at node " + OWN in told(first), (first.code, told(first))
        assert "does not serve nfd.k8s-sigs.io/v1alpha1 NodeFeatureRule" in first.warnings(), first.warnings()[-1500:]
    try:
        with part.case("where it is and keeps our labels out, the run says what to allow"):
            install(lab, manifests(denied=OURS.rstrip("/")))
            until(60, "its labels", lambda: all(discovered(lab, node) for node in (OWN, BARE)))
            second = play("site", where, "--tags", "operands")
            words = "has no label rebellions.ai/npu.count yet"
            assert second.code == 2 and words in told(second), (second.code, told(second))
            assert "has not looked" not in told(second), told(second)
        with part.case("it takes our file, also where our policy protects the labels, and the run is good"):
            install(lab, manifests())
            play("site", where, "--tags", "operands").good([OWN])
            wanted = dict(
                line.split("=", 1) for line in lab.exec(OWN, "cat " + FILE).stdout.splitlines() if line.startswith(OURS)
            )
            assert wanted[OURS + "npu.count"] == "2" and wanted[OURS + "driver-version.full"] == VERSIONS[0], wanted
            assert wanted.items() >= RULED.items(), wanted
            until(30, "its labels", lambda: wanted.items() <= hosts.labels(OWN).items())
            named = meta(lab, OWN)["annotations"][ANNOTATION].split(",")
            assert set(wanted) <= set(named), (wanted, named)
            play("site", where, "--tags", "operands").unchanged([OWN])
        with part.case("it finds the PCI functions by themselves, and names system and kernel as we do"):
            for node in (OWN, BARE):
                assert discovered(lab, node).get(THEIRS + "pci-1200_1eff.present") == "true", discovered(lab, node)
            labels = meta(lab, OWN)["labels"]
            assert all(labels[name] == labels[ours] for name, ours in SAME.items()), labels
        with part.case("our rule labels the node that no run has looked at"):
            until(30, "the rule", lambda: hosts.labels(BARE) == RULED)
        with part.case("discovery and rule that are turned off leave no file, and the run ends with the host's labels"):
            off = {"rbln_operands_feature_discovery": {}, "rbln_operands_node_feature_rule": {}}
            play("site", where, "--tags", "operands", extra=off).good([OWN])
            assert lab.exec(OWN, ["ls", FILE], check=False).returncode, FILE
            assert hosts.labels(OWN).items() >= wanted.items(), hosts.labels(OWN)
            assert not [name for name in meta(lab, OWN)["annotations"][ANNOTATION].split(",") if OURS in name]
            until(30, "the labels of the rule gone", lambda: not hosts.labels(BARE))
            # Its worker and its master go on.
            time.sleep(3 * float(INTERVAL.rstrip("s")))
            assert hosts.labels(OWN).items() >= wanted.items(), hosts.labels(OWN)
            play("site", where, "--tags", "operands", extra=off).unchanged([OWN])
        with part.case("and they come back"):
            play("site", where, "--tags", "operands").good([OWN])
            until(30, "their labels", lambda: hosts.labels(BARE) == RULED)
        with part.case("remove leaves no label of ours while it goes on"):
            play("remove", where, extra={"rbln_operands_absent_scope": "cluster"}).good([OWN])
            assert lab.exec(OWN, ["ls", FILE], check=False).returncode, FILE
            until(30, "our labels gone", lambda: not hosts.labels(OWN) and not hosts.labels(BARE))
            assert not [name for name in meta(lab, OWN)["annotations"][ANNOTATION].split(",") if OURS in name]
            assert discovered(lab, OWN), "it has stopped"
    finally:
        uninstall(lab)
