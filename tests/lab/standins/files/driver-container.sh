#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Stand-in for the vendor's driver container: `load VERSION` mounts the driver's files at $DRIVER_ROOT, loads the module, says
# so by its ready file and stays; `remove` is what it does at its end, and the driver manager before the next one.
set -eu
root=${DRIVER_ROOT:-/run/rbln/driver} ready=/run/rbln/validations/.driver-ctr-ready
remove() {
	rm -f "$ready"
	/usr/lib/rbln-standin/kmod unload
	event
	while grep -q " $root tmpfs " /proc/self/mounts; do umount "$root"; done
}
# No udevd runs on the lab's hosts: what the rule of the host tool starts, is started from here.
event() {
	nsenter -t 1 -m -- sh -c '[ ! -e /etc/udev/rules.d/90-rbln-host.rules ] || systemctl --no-block start rbln-host-ready.service'
}
case $1 in
remove)
	remove
	;;
load)
	[ ! -e /sys/module/rebellions ] || { echo "a driver is loaded, and its manager has not unloaded it" >&2; exit 1; }
	[ -f /host-etc/os-release ] && [ -d "/lib/modules/$(uname -r)" ] && [ -d /usr/src ]
	trap 'remove; exit 0' TERM INT
	mount -t tmpfs -o mode=755,size=16m rbln-driver "$root"
	cp -a "/opt/npu-lab/driver/$2/." "$root"
	NPU_LAB_DRIVER=$2 /usr/lib/rbln-standin/kmod load
	: >"$ready"
	event
	echo "driver $2 is loaded"
	while :; do sleep 3600 & wait $!; done
	;;
esac
