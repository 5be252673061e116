# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the walk: what runs where, and what has to be seen of it inside pods and on hosts."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from tests.integration._hosts import LISTED, Hosts
from tests.integration._play import NAMESPACE_OF_TESTS, RESOURCE, Data, Run, play
from tests.lab._base import podman, until
from tests.lab._operands import TAG, operand_images
from tests.lab.standins.payload import VERSIONS
from tests.proofs._proof import Part
from tests.tools.paths import OLD_VENV, environment

# The one has its own driver, the other all of it in containers.
OWN, BARE = "it-w1", "it-w2"
HOSTS = {OWN: "containerd2", BARE: "containerd17"}
OLD, NEW = VERSIONS
IN_CONTAINERS: Data = {
    "rbln_driver_source": "container",
    "rbln_driver_version": "",
    "rbln_container_toolkit_source": "container",
    "rbln_preflight_unlisted": "fail",
}
# A name of its own, so that nothing is taken for ours because of ours in it.
DRA = "npus.example.com"
BY_DRA: Data = {
    "rbln_operands_device_plugin": {"enabled": False},
    "rbln_operands_dra_driver": {"enabled": True, "image": {"tag": TAG}, "driver_name": DRA},
}
EVERYWHERE = {"device-plugin", "metrics-exporter", "validator"}
OLDEST = {"PATH": environment(OLD_VENV)["PATH"]}


def prepare(hosts: Hosts) -> None:
    """Give each host the stand-ins, as a registry would, and one of them a system of the support matrix."""
    hosts.listed(BARE)
    archive = operand_images("ubuntu24.04", LISTED)
    for host in hosts.names:
        podman("cp", archive, host + ":/var/tmp/operands.tar")
        hosts.lab.exec(host, "ctr -n k8s.io images import /var/tmp/operands.tar && rm /var/tmp/operands.tar")


class Walk:
    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.lab = hosts, hosts.lab
        # Of the host that has its own driver.
        self.own: Data = {}

    def site(
        self, version: str = OLD, book: str = "site", env: t.Mapping[str, str] | None = None, **more: t.Any
    ) -> Run:
        """A playbook with every component that fits beside the others; the driver in containers of this version."""
        return play(book, self.where(version, **more), env=env)

    def where(self, version: str, **more: t.Any) -> Path:
        """The inventory of such a run."""
        enabled = {"enabled": True, "image": {"tag": TAG}}
        inputs: Data = {
            "rbln_operands_driver": {
                "enabled": True,
                "image": {"tag": version},
                "manager": {"image": {"tag": TAG}},
            },
            "rbln_operands_container_toolkit": {**enabled, "refresh_interval": 2},
            "rbln_operands_device_plugin": {"image": {"tag": TAG}},
            # Its image takes the version of the driver.
            "rbln_operands_smd": {"enabled": True},
            "rbln_operands_metrics_exporter": enabled,
            "rbln_operands_deadlines": {"driver": 120},
            **more,
        }
        for host in HOSTS:
            self.hosts.state[host] = "dirty"
        return self.hosts.inventory(host_vars={BARE: IN_CONTAINERS, OWN: self.own}, **inputs)

    def pods(self, node: str) -> dict[str, Data]:
        """{component: its pod on the node}, but for pods that are about to go."""
        listed = self.lab.kubectl(
            "get", "pods", "-n", NAMESPACE_OF_TESTS, "--field-selector", "spec.nodeName=" + node, "-o", "json"
        ).stdout
        return {
            item["metadata"]["labels"]["app.kubernetes.io/component"]: item
            for item in json.loads(listed)["items"]
            if "deletionTimestamp" not in item["metadata"]
        }

    def ready(self, node: str) -> set[str]:
        """Components whose pod on the node is ready; a restart of containerd may have cost one start each."""
        return {
            name
            for name, pod in self.pods(node).items()
            if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
            and all(one["restartCount"] <= 1 for one in pod["status"].get("containerStatuses", []))
        }

    def gates(self, node: str) -> dict[str, str]:
        start = "rebellions.ai/npu.deploy."
        return {key[len(start) :]: value for key, value in self.hosts.labels(node).items() if key.startswith(start)}

    def inside(self, node: str, component: str, *argv: str) -> str:
        name = self.pods(node)[component]["metadata"]["name"]
        return self.lab.kubectl("exec", "-n", NAMESPACE_OF_TESTS, name, "--", *argv).stdout

    def loaded(self, node: str) -> str:
        return self.lab.exec(node, "cat /sys/module/rebellions/version 2>/dev/null || :").stdout.strip()

    def mounts(self, node: str) -> list[str]:
        """What is mounted on the host at or below /run/rbln."""
        return self.lab.exec(node, "awk '$2 ~ \"^/run/rbln\" {print $3, $2}' /proc/mounts").stdout.splitlines()

    def ready_files(self, node: str) -> set[str]:
        return set(self.lab.exec(node, "ls -A /run/rbln/validations 2>/dev/null || :").stdout.split())

    def runs(self, name: str, node: str, spec: Data, line: str) -> list[str]:
        """What a pod prints that runs a shell line on a node."""
        container = {
            "name": "look",
            "image": "lab.local/busybox:1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", line],
            **spec.pop("container", {}),
        }
        pod = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            **spec,
        }
        item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}
        self.lab.kubectl("create", "-f", "-", stdin=json.dumps(item))
        try:
            succeeded = "--for=jsonpath={.status.phase}=Succeeded"
            self.lab.kubectl("wait", succeeded, "pod/" + name, "--timeout=60s", timeout=70)
            return self.lab.kubectl("logs", name).stdout.split()
        except Exception as exc:
            raise AssertionError("%s\n%s" % (exc, self.lab.kubectl("describe", "pod", name).stdout[-1500:])) from exc
        finally:
            self.lab.kubectl("delete", "pod", name, "--wait=true")


LINE = (
    "for d in /dev/rbln* /dev/rsd0; do [ -c $d ] && : <$d && echo $d; done; "
    "grep -o ' /[^ ]*librbln-ml[^ ]*' /proc/mounts; rbln-smi --version"
)


def containers(part: Part, walk: Walk) -> None:
    """By the oldest ansible-core as a whole: hosts and cluster."""
    with part.case("from nothing: all pods are ready, with a driver of the host beside one in a container"):
        run = walk.site(env=OLDEST).good([OWN, BARE])
        part.note = "site.yml %.0f s" % run.seconds
        assert walk.ready(BARE) == EVERYWHERE | {"rbln-driver", "container-toolkit", "smd"}, walk.ready(BARE)
        assert walk.ready(OWN) >= EVERYWHERE and not {"rbln-driver", "container-toolkit"} & set(walk.pods(OWN))
        assert walk.gates(OWN)["driver"] == walk.gates(OWN)["container-toolkit"] == "false", walk.gates(OWN)
        assert walk.hosts.allocatable() == {OWN: "2", BARE: "2"}
        assert (walk.loaded(OWN), walk.loaded(BARE)) == (OLD, OLD)
    with part.case("the driver's files are mounted once on its host, and nothing else is"):
        assert walk.mounts(BARE) == ["tmpfs /run/rbln/driver"], walk.mounts(BARE)
        assert walk.ready_files(BARE) == {".driver-ctr-ready", "driver-ready", "toolkit-ready"}
    with part.case("a pod has its device, its group and the libraries of the container's driver by CDI annotation"):
        limits = {"container": {"resources": {"limits": {RESOURCE: "1"}}}}
        seen = walk.runs("walk-npu", BARE, limits, LINE)
        assert seen[0] in ("/dev/rbln0", "/dev/rbln1") and seen[1] == "/dev/rsd0" and seen[-1] == OLD, seen
        assert any(word.startswith("/usr/local/lib/rbln/librbln-ml.so") for word in seen), seen
    with part.case("the exporter tells which pod has an NPU, with its rights alone"):
        get = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9090/metrics').read().decode())"
        limits = {"container": {"resources": {"limits": {RESOURCE: "2"}}}}
        # Two NPUs: whichever the kubelet gives, the pod has rbln0. The host's address is that of the exporter.
        line = "wget -qO- http://$HOST_IP:9090/metrics"
        limits["container"]["env"] = [
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ]
        seen = walk.runs("walk-metrics", BARE, limits, line)
        told = [word for word in seen if word.startswith("rbln_npu_health{")]
        assert len(told) == 2 and all('pod="walk-metrics"' in word for word in told), seen
        assert "rbln_npu_health" in walk.lab.exec(BARE, ["python3", "-c", get]).stdout
    with part.case(
        "the node is labelled with the version that its pod has brought, and the second run changes nothing"
    ):
        assert walk.hosts.labels(BARE)["rebellions.ai/driver-version.full"] == OLD, walk.hosts.labels(BARE)
        walk.site(env=OLDEST).unchanged([OWN, BARE])


def versions(part: Part, walk: Walk) -> None:
    with part.case("another version waits until the pod of the driver is deleted"):
        before = walk.pods(BARE)["rbln-driver"]["metadata"]["uid"]
        run = walk.site(NEW).good([OWN, BARE])
        assert "not of the newest template yet" in run.warnings(), run.warnings()[-1500:]
        assert walk.pods(BARE)["rbln-driver"]["metadata"]["uid"] == before and walk.loaded(BARE) == OLD
        assert walk.loaded(OWN) == OLD and walk.hosts.allocatable() == {OWN: "2", BARE: "2"}
    with part.case("the next pod brings the new driver, and everything is proven again"):
        name = walk.pods(BARE)["rbln-driver"]["metadata"]["name"]
        walk.lab.kubectl("delete", "pod", "-n", NAMESPACE_OF_TESTS, name, "--wait=true", timeout=100)
        wanted = EVERYWHERE | {"rbln-driver", "container-toolkit", "smd"}
        until(90, "the new driver", lambda: walk.loaded(BARE) == NEW and walk.ready(BARE) == wanted)
        files = {".driver-ctr-ready", "driver-ready", "toolkit-ready"}
        until(60, "ready files", lambda: walk.ready_files(BARE) == files)
        assert walk.mounts(BARE) == ["tmpfs /run/rbln/driver"], walk.mounts(BARE)
        library = "/run/rbln/driver/usr/lib/x86_64-linux-gnu/librbln-ml.so." + NEW
        assert library in walk.inside(BARE, "smd", "ls", library)
        limits = {"container": {"resources": {"limits": {RESOURCE: "1"}}}}
        assert walk.runs("walk-npu", BARE, limits, LINE)[-1] == NEW
        walk.site(NEW).good([OWN, BARE])
        assert walk.hosts.labels(BARE)["rebellions.ai/driver-version.full"] == NEW
        walk.site(NEW).unchanged([OWN, BARE])


def slices_of(walk: Walk) -> list[Data]:
    listed: list[Data] = json.loads(walk.lab.kubectl("get", "resourceslices", "-o", "json").stdout)["items"]
    return [one for one in listed if one["spec"]["driver"] == DRA]


def claim_template(name: str) -> Data:
    request = {"name": "npu", "exactly": {"deviceClassName": DRA}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def claims(part: Part, walk: Walk) -> None:
    """The DRA driver in the place of the device plugin: a host's own specification fits it without another input."""
    fresh = not walk.loaded(BARE)
    with part.case("the devices of each node are in its ResourceSlices"):
        walk.site(NEW, **BY_DRA).good([OWN, BARE])
        for node in HOSTS:
            assert "dra-driver" in walk.ready(node) and "device-plugin" not in walk.pods(node), walk.ready(node)
        count = {one["spec"]["nodeName"]: len(one["spec"]["devices"]) for one in slices_of(walk)}
        assert count == {OWN: 2, BARE: 2}, count
    with part.case("a pod gets the device that its claim was allocated"):
        walk.lab.kubectl("create", "-f", "-", stdin=json.dumps(claim_template("walk")))
        try:
            for node, version in ((OWN, OLD), (BARE, NEW)):
                spec: Data = {
                    "resourceClaims": [{"name": "npu", "resourceClaimTemplateName": "walk"}],
                    "container": {"resources": {"claims": [{"name": "npu"}]}},
                }
                seen = walk.runs("walk-claim", node, spec, LINE)
                assert seen[0] in ("/dev/rbln0", "/dev/rbln1") and seen[1] == "/dev/rsd0" and seen[-1] == version, seen
        finally:
            walk.lab.kubectl("delete", "resourceclaimtemplate", "walk")
    with part.case("the account of the driver writes the slices of no other node"):
        other = next(one["metadata"]["name"] for one in slices_of(walk) if one["spec"]["nodeName"] == OWN)
        account = "--as=system:serviceaccount:%s:rbln-dra-driver" % NAMESPACE_OF_TESTS
        done = walk.lab.kubectl("delete", "resourceslice", other, account, check=False)
        assert "names no node" in done.stderr, done.stderr
    with part.case("the next run changes nothing"):
        if fresh:
            # It labels the node with the version that the driver's pod has brought.
            walk.site(NEW, **BY_DRA).good([OWN, BARE])
        walk.site(NEW, **BY_DRA).unchanged([OWN, BARE])


def nothing_left(part: Part, walk: Walk) -> None:
    with part.case("the oldest ansible-core removes everything, and the driver's container leaves its host clean"):
        walk.site(NEW, book="remove", env=OLDEST).good([OWN, BARE])
        kinds = "daemonsets,pods,services,serviceaccounts,secrets,clusterroles,clusterrolebindings"
        kinds += ",deviceclasses,validatingadmissionpolicies,networkpolicies"
        ours = "app.kubernetes.io/managed-by=rebellions-npu"
        until(60, "objects", lambda: not walk.lab.kubectl("get", kinds, "-A", "-l", ours, "-o", "name").stdout)
        # A kubelet removes them when their driver has been away for a while.
        until(90, "slices", lambda: not slices_of(walk))
        for node in HOSTS:
            assert walk.hosts.labels(node) == {}, walk.hosts.labels(node)
            assert walk.ready_files(node) == set() and walk.loaded(node) == "", walk.ready_files(node)
            assert walk.mounts(node) == [], walk.mounts(node)
            left = walk.lab.exec(node, "ls /dev/rbln* /dev/rsd* /var/run/cdi/*rbln* 2>/dev/null || :").stdout.split()
            assert left == [], left


# An IOMMU group for each function, and who answers when functions are to be probed: what is written to drivers_probe
# never reaches the kernel of the machine.
FIRMWARE = """set -e
touch /run/npu-lab/probe
mount --bind /run/npu-lab/probe /sys/bus/pci/drivers_probe
mount -t tmpfs npu-lab /sys/kernel/iommu_groups
n=6
for d in /sys/bus/pci/devices/*; do
  n=$((n + 1)); mkdir -p /sys/kernel/iommu_groups/$n/devices; echo >$d/driver_override
  ln -s ../../../../bus/pci/devices/${d##*/} /sys/kernel/iommu_groups/$n/devices/${d##*/}
  ln -sfn ../../../../kernel/iommu_groups/$n $d/iommu_group
done
systemd-run --quiet --unit npu-lab-probe python3 /run/npu-lab/probe.py
"""
# What the kernel does of a probe: vfio-pci takes what driver_override gives it, and loses what it takes away. By a
# lease on the file, who opens it to write waits until that is done, as in the kernel.
PROBE = """
import fcntl, os, signal, time
ours = "../../drivers/vfio-pci"
def probe():
    for entry in os.scandir("/sys/bus/pci/devices"):
        link = entry.path + "/driver"
        bound = os.path.islink(link) and os.readlink(link) == ours
        wanted = open(entry.path + "/driver_override").read().strip() == "vfio-pci"
        if bound and not wanted:
            os.unlink(link)
        elif wanted and not os.path.lexists(link):
            node = "/dev/vfio/" + os.path.basename(os.readlink(entry.path + "/iommu_group"))
            os.path.exists(node) or os.mknod(node, 0o20600, os.makedev(1, 5))
            os.symlink(ours, link)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
file = os.open("/run/npu-lab/probe", os.O_RDONLY)
while True:
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        time.sleep(0.001)
        continue
    probe()
    signal.sigwait([signal.SIGIO])
    probe()
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
"""
MODPROBE = "mkdir -p /sys/bus/pci/drivers/vfio-pci /dev/vfio; mknod /dev/vfio/vfio c 1 3"
OFFER = "rebellions.ai/RBLN-CA22_PF"


def machines(part: Part, walk: Walk) -> None:
    """A node of virtual machines, as the sample inventory has it; the kernel's part of vfio-pci is stood in for."""
    inputs: Data = {
        "rbln_driver_source": "container",
        "rbln_driver_version": "",
        "rbln_workload": "vm-passthrough",
        "rbln_operands_workload": "vm-passthrough",
        "rbln_operands_vfio_manager": {"enabled": True, "release_on_exit": True},
        "rbln_operands_sandbox_device_plugin": {"enabled": True, "image": {"tag": TAG}},
    }
    walk.hosts.state[OWN] = "dirty"
    walk.lab.exec(OWN, ["tee", "/run/npu-lab/probe.py"], stdin=PROBE)
    walk.lab.exec(OWN, FIRMWARE)
    where = walk.hosts.inventory(OWN, **inputs)
    bound = "cd /sys/bus/pci/devices; for d in *; do readlink $d/driver || :; done"

    def drivers() -> list[str]:
        return walk.lab.exec(OWN, bound).stdout.split()

    with part.case("the manager says why it binds nothing, and the run fails"):
        run = play("site", where, "--tags", "operands", extra={"rbln_operands_wait_timeout": 20})
        log = walk.lab.kubectl("logs", "-n", NAMESPACE_OF_TESTS, "daemonset/rbln-vfio-manager").stdout
        assert run.code == 2 and log.count("stays: vfio-pci is not loaded on the host") == 2, (run.code, log)
    with part.case("it binds what is free once the module is there, and the kubelet offers it"):
        walk.lab.exec(OWN, MODPROBE)
        until(60, "vfio-pci", lambda: drivers() == ["../../drivers/vfio-pci"] * 2)
        part.note = "site.yml %.0f s" % play("site", where, "--tags", "operands").good([OWN]).seconds
        wanted = {"vfio-manager", "sandbox-validator", "sandbox-device-plugin"}
        assert walk.ready(OWN) == wanted, walk.ready(OWN)
        offered = walk.lab.nodes()[OWN]["allocatable"]
        assert offered.get(OFFER) == "2" and offered.get(RESOURCE, "0") == "0", offered
        play("site", where, "--tags", "operands").unchanged([OWN])
    with part.case("a pod has the nodes of its groups"):
        spec = {"container": {"resources": {"limits": {OFFER: "2"}}}}
        seen = walk.runs("walk-vfio", OWN, spec, "ls /dev/vfio")
        assert sorted(seen) == ["7", "8", "vfio"], seen
    with part.case("remove leaves nothing, and the manager gives the functions back"):
        play("remove", where).good([OWN])
        assert walk.hosts.labels(OWN) == {}
        until(60, "pods", lambda: not walk.pods(OWN) and drivers() == [])
