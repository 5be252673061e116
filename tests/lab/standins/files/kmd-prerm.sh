#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# rebellions-kmd: unload on removal; take the built modules away on removal and before another version.
# Fault in /run/npu-lab/fault: remove.
set -e
version=@VERSION@
container() { systemd-detect-virt -q --container 2>/dev/null || [ -e /run/.containerenv ]; }
unload() {
	if container; then modprobe -r rebellions; return; fi
	systemctl stop rbln-smd.service 2>/dev/null || :
	# By its name in the kernel: after a failed build there is no file that modprobe could find.
	[ ! -e /sys/module/rebellions ] || rmmod rebellions
}

case $1 in remove | upgrade | deconfigure) ;; *) exit 0 ;; esac
if [ "$1" = remove ]; then
	[ ! -e /run/npu-lab/fault/remove ] || { echo "rebellions $version: stand-in fault: cannot be removed" >&2; exit 1; }
	if [ -d /run/systemd/system ]; then unload || { echo "rebellions is in use: stop what holds it first" >&2; exit 1; }; fi
fi
if command -v dkms >/dev/null && dkms status -m rebellions -v "$version" | grep -q .; then
	dkms remove -m rebellions -v "$version" --all
fi
[ "$1" = remove ] || exit 0
systemctl disable -q rbln-standin-load.service || true
if container; then rm -f "/lib/modules/$(uname -r)/updates/dkms/rebellions.ko" /usr/lib/modprobe.d/rbln-standin.conf; fi
depmod -a 2>/dev/null || true
