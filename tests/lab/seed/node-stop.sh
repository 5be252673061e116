#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# At shutdown, after kubelet and containerd: their KillMode=process leaves pods and shims, and systemd would wait 90 s for them.
. /run/npu-lab/node.env
root=${CGROUP_ROOT%/kubelet}
procs() {
	find "/sys/fs/cgroup/memory$CGROUP_ROOT" "/sys/fs/cgroup/systemd$root/system.slice/containerd.service" "/sys/fs/cgroup$CGROUP_ROOT" -name cgroup.procs -exec cat {} + 2>/dev/null
}
for p in $(procs); do kill -TERM "$p" 2>/dev/null; done
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -n "$(procs)" ] || exit 0; sleep 0.1; done
for p in $(procs); do kill -KILL "$p" 2>/dev/null; done
exit 0
