#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# rebellions-kmd: build by DKMS and load. In a container, which cannot load a module, kmod stands in for the running kernel's.
# Faults are files in /run/npu-lab/fault: build, install-hang (seconds), install-no-load, install-here-only.
set -e
[ "$1" = configure ] || exit 0
version=@VERSION@ kernel=$(uname -r) fault=/run/npu-lab/fault
container() { systemd-detect-virt -q --container 2>/dev/null || [ -e /run/.containerenv ]; }
headers() { [ -f "/lib/modules/$1/build/Makefile" ] && [ -d "/lib/modules/$1/build/scripts" ]; }
fail() {
	echo "Error! Bad return status for module build on kernel: $kernel (x86_64)" >&2
	echo "Consult /var/lib/dkms/rebellions/$version/build/make.log for more information." >&2
	exit 10
}

echo "Building module for $kernel"
[ ! -e $fault/install-hang ] || sleep "$(cat $fault/install-hang)"
[ ! -e $fault/build ] || fail
if command -v dkms >/dev/null; then
	dkms status -m rebellions -v "$version" | grep -q . || dkms add -m rebellions -v "$version"
	container || dkms install --force -m rebellions -v "$version" -k "$kernel" || exit 10
	for other in /lib/modules/*; do
		other=${other##*/}
		if [ "$other" = "$kernel" ] || [ -e $fault/install-here-only ] || ! headers "$other"; then continue; fi
		echo "Building module for $other"
		dkms install --force -m rebellions -v "$version" -k "$other" || echo "rebellions $version: not built for $other" >&2
	done
elif ! container; then
	echo "Error! rebellions $version is built by dkms, which is not installed" >&2
	exit 10
fi
if container; then
	@BUILDS@ || fail
	mkdir -p "/lib/modules/$kernel/updates/dkms"
	cp /usr/lib/rbln-standin/rebellions.ko "/lib/modules/$kernel/updates/dkms/rebellions.ko"
	touch "/lib/modules/$kernel/modules.order" "/lib/modules/$kernel/modules.builtin"
	depmod -a "$kernel" 2>/dev/null
	printf '%s\n' 'install rebellions /usr/lib/rbln-standin/kmod load' 'remove rebellions /usr/lib/rbln-standin/kmod unload' >/usr/lib/modprobe.d/rbln-standin.conf
fi
[ ! -d /run/systemd/system ] || systemctl daemon-reload
! container || systemctl enable -q rbln-standin-load.service
if [ -d /run/systemd/system ]; then
	daemon=
	! systemctl -q is-active rbln-smd.service || daemon=1
	container || udevadm control --reload || :
	if [ ! -e $fault/install-no-load ]; then
		[ -z "$daemon" ] || systemctl stop rbln-smd.service
		# shellcheck disable=SC2015
		modprobe -r rebellions && modprobe rebellions || echo "rebellions is in use: version $version is loaded after a reboot"
		[ -z "$daemon" ] || systemctl start rbln-smd.service
	fi
fi
