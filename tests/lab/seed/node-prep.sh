#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Before containerd and kubelet: shared mounts (systemd does not make them in a container), the cgroup of the pods, the base
# of the pods' runtime specification.
set -eu
mount --make-rshared /
root=
if [ -d /sys/fs/cgroup/memory ]; then
	# Below the container's own cgroup in every hierarchy: pods are counted there and go with the container.
	root=$(sed -n 's#^[0-9]*:memory:##p' /proc/1/cgroup | sed 's#/init.scope$##')
	for d in /sys/fs/cgroup/*; do
		if [ -L "$d" ] || ! mountpoint -q "$d" || [ "$d" = /sys/fs/cgroup/unified ]; then continue; fi
		# systemd mounts hierarchies that the machine does not use; the kubelet would want its cgroup in each.
		[ -d "$d$root" ] || { umount "$d"; continue; }
		mkdir -p "$d$root/kubelet"
		[ ! -e "$d/cpuset.cpus" ] || for f in cpuset.cpus cpuset.mems; do cat "$d$root/$f" >"$d$root/kubelet/$f"; done
	done
fi
echo "CGROUP_ROOT=$root/kubelet" >/run/npu-lab/node.env
# A pod mounts a sysfs of its own, which shows the machine's hardware and not this host's: bind this host's over it.
# `ctr oci spec` carries a limit of 1024 open files, which no pod should get.
[ -s /etc/containerd/npu-lab-base.json ] || ctr oci spec 2>/dev/null | python3 -c '
import json, sys
spec = json.load(sys.stdin)
spec["process"].pop("rlimits", None)
for path in ("/sys/bus/pci/devices", "/sys/bus/pci/drivers", "/sys/class", "/sys/module"):
    spec["mounts"].append({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
json.dump(spec, open("/etc/containerd/npu-lab-base.json", "w"))'
