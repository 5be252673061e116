#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# The host's hardware, laid over the machine's sysfs before anything reads it. sysfs allows no mkdir, so:
# - /sys/bus/pci/devices becomes a tmpfs folder with the devices of /etc/npu-lab/hardware;
# - /sys/class, /sys/module and /sys/bus/pci/drivers become overlays: the real entries stay, new ones are written to a tmpfs.
# A tmpfs, because a loaded driver does not outlive a reboot.
set -eu
run=/run/npu-lab
mkdir -p $run/fault
mountpoint -q $run/sys || { mkdir -p $run/sys; mount -t tmpfs -o mode=755,size=16m npu-lab-sys $run/sys; }
for name in class module bus/pci/drivers; do
	[ "$(stat -f -c %T "/sys/$name")" != overlayfs ] || continue
	flat=$(echo $name | tr / -); mkdir -p "$run/sys/$flat" "$run/sys/$flat.work"
	mount -t overlay npu-lab -o "lowerdir=/sys/$name,upperdir=$run/sys/$flat,workdir=$run/sys/$flat.work" "/sys/$name"
done
pci=$run/sys/pci
mkdir -p $pci
mountpoint -q /sys/bus/pci/devices || mount --bind $pci /sys/bus/pci/devices

put() { echo "$2" >"$1"; }
for old in /sys/bus/pci/devices/*; do [ ! -e "$old" ] || rm -rf "$old"; done
while read -r address device numa speed width max_speed max_width; do
	case $address in '' | \#*) continue ;; esac
	d=/sys/bus/pci/devices/$address; mkdir -p "$d"
	put "$d/vendor" 0x1eff; put "$d/device" "0x$device"; put "$d/class" 0x120000; put "$d/revision" 0x01
	put "$d/subsystem_vendor" 0x1eff; put "$d/subsystem_device" 0x0001; put "$d/irq" 11; put "$d/enable" 0
	put "$d/numa_node" "$numa"; put "$d/local_cpulist" 0-1
	put "$d/current_link_speed" "$speed GT/s PCIe"; put "$d/current_link_width" "$width"
	put "$d/max_link_speed" "$max_speed GT/s PCIe"; put "$d/max_link_width" "$max_width"
	put "$d/sriov_totalvfs" 4; put "$d/sriov_numvfs" 0
	put "$d/modalias" "pci:v00001EFFd0000${device}sv00001EFFsd00000001bc12sc00i00"
	for _ in 1 2 3 4 5 6 7; do echo "0x0000000000000000 0x0000000000000000 0x0000000000000000"; done >"$d/resource"
	# vendor, device, command and status, revision, class; then zeros up to the subsystem ids
	hi=$(printf '%03o' "0x${device%??}"); lo=$(printf '%03o' "0x${device#??}")
	{
		# shellcheck disable=SC2059
		printf "\\377\\036\\$lo\\$hi\\0\\0\\0\\0\\001\\000\\000\\022"
		head -c 32 /dev/zero
		printf '\377\036\001\000'
		head -c 16 /dev/zero
	} >"$d/config"
done </etc/npu-lab/hardware

# Each host is a machine of its own to whoever asks the firmware.
[ ! -L /sys/class/dmi/id ] || rm /sys/class/dmi/id
mkdir -p /sys/class/dmi/id
cp /etc/npu-lab/product_uuid /sys/class/dmi/id/product_uuid; chmod 400 /sys/class/dmi/id/product_uuid
put /sys/class/dmi/id/sys_vendor "rebellions.npu lab"; put /sys/class/dmi/id/product_name "systemd container"
[ -e "/lib/modules/$(uname -r)/modules.dep.bin" ] || depmod 2>/dev/null || true
