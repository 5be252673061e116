# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine with an IOMMU as a node whose NPUs go to virtual machines: the kernel's own vfio-pci binds them."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from tests.integration._driver import OLD
from tests.integration._play import Data
from tests.lab import Lab, _vmnode
from tests.lab._base import until
from tests.lab._operands import TAG, operand_images
from tests.proofs._proof import Part
from tests.proofs._vm_node import LABEL, NAMESPACE, inputs
from tests.vm._server import Server

OFFER = "rebellions.ai/RBLN-CA22_PF"
BOUND = "for d in /sys/bus/pci/devices/*; do readlink $d/driver; done | grep -c vfio-pci || :"
CHECKS = ("vfio_module", "vfio_groups", "vfio_bound", "vfio_nodes")
OPENS = "for n in /dev/vfio/[0-9]*; do : <$n && echo $n; done"


def wanted(**more: object) -> Data:
    return {
        **inputs(OLD),
        "rbln_driver_source": "container",
        "rbln_driver_version": "",
        # The host part is the host tool alone, by which the validator proves the binding.
        "rbln_container_toolkit_source": "container",
        "rbln_workload": "vm-passthrough",
        "rbln_operands_workload": "vm-passthrough",
        "rbln_operands_vfio_manager": {"enabled": True, "release_on_exit": True},
        "rbln_operands_sandbox_device_plugin": {"enabled": True, "image": {"tag": TAG}},
        **more,
    }


def vfio(part: Part, server: Server) -> None:
    lab, name = Lab(), server.name
    try:
        with part.case("the machine boots with an IOMMU and becomes a node"):
            server.switch_off()
            # The kernel turns an IOMMU on by itself; on busy processors its timer fails where interrupts are remapped.
            server.switch_on("-device", "intel-iommu,intremap=off")
            _vmnode.join(server.vm)
            lab.kubectl("label", "node", name, LABEL + "=true", "--overwrite")
            lab.kubectl("taint", "node", name, LABEL + "=true:NoSchedule", "--overwrite")
            with tempfile.TemporaryDirectory(prefix="npu-lab-") as folder:
                shutil.copy(operand_images("debian12", server.vm.kernel()), folder)
                server.vm.push(Path(folder), "/var/tmp/operands")
            server.sh("ctr -n k8s.io images import /var/tmp/operands/image.tar && modprobe vfio-pci")
        with part.case("site.yml binds free functions to vfio-pci, and the kubelet offers them"):
            run = server.play("site", wanted()).good([name])
            part.note = "site.yml %.0f s" % run.seconds
            assert server.sh(BOUND).split() == ["2"]
            assert lab.nodes()[name]["allocatable"].get(OFFER) == "2", lab.nodes()[name]
        with part.case("the validator proves module, groups and device files by the tool of the host"):
            logs = ("logs", "-n", NAMESPACE, "daemonset/rbln-sandbox-validator", "-c", "vfio-validation")
            told = lab.kubectl(*logs).stdout
            proven = {line.split()[1].rstrip(":") for line in told.splitlines() if line.startswith("ok ")}
            assert {"vfio/" + check for check in CHECKS} <= proven and told.endswith("passed\n"), told
        with part.case("the second run changes nothing"):
            server.play("site", wanted()).unchanged([name])
        with part.case("a pod opens the groups of its functions"):
            container = {
                "name": "look",
                "image": "lab.local/busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", OPENS],
                "resources": {"limits": {OFFER: "2"}},
            }
            spec = {
                "nodeSelector": {"kubernetes.io/hostname": name},
                "tolerations": [{"operator": "Exists"}],
                "restartPolicy": "Never",
                "containers": [container],
            }
            item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "opens-vfio"}, "spec": spec}
            lab.kubectl("create", "-f", "-", stdin=json.dumps(item))
            succeeded = "--for=jsonpath={.status.phase}=Succeeded"
            lab.kubectl("wait", succeeded, "pod/opens-vfio", "--timeout=170s", timeout=180)
            assert len(lab.kubectl("logs", "opens-vfio").stdout.split()) == 2
            lab.kubectl("delete", "pod", "opens-vfio", "--wait=true")
        with part.case("remove gives the functions back"):
            server.play("remove", wanted()).good([name])
            until(90, "functions", lambda: server.sh(BOUND).split() == ["0"])
    finally:
        lab.kubectl("delete", "pod", "opens-vfio", "--ignore-not-found", "--wait=false", check=False)
        lab.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false", check=False)
        _vmnode.leave(server.vm, True)
