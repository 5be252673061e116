#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Stand-in for loading and unloading the kernel module: a container cannot load one, so what the driver would make in /sys
# and /dev is laid down here. modprobe calls it through the install and remove lines of modprobe.d.
# Faults are files in /run/npu-lab/fault: load, load-hang (seconds), probe, busy, fw-ver (version).
set -eu
module=/sys/module/rebellions class=/sys/class/rebellions pci=/sys/bus/pci/devices
fault=/run/npu-lab/fault cards=/var/lib/npu-lab/cards

devices() { for d in "$pci"/*; do [ "$(cat "$d/vendor" 2>/dev/null)" = 0x1eff ] && echo "${d##*/}"; done; return 0; }

# As in the kernel, the load ends with the modprobe that asked for it.
hang() {
	left=$1
	while [ "$left" -gt 0 ]; do
		sleep 1
		[ -d "/proc/$PPID" ] || exit 1
		left=$((left - 1))
	done
}

load() {
	[ ! -e "$module/version" ] || return 0
	version=$(modinfo -F version rebellions 2>/dev/null) || { echo "modprobe: FATAL: Module rebellions not found in directory /lib/modules/$(uname -r)" >&2; exit 1; }
	[ ! -e "$fault/load" ] || { echo "modprobe: ERROR: could not insert 'rebellions': Exec format error" >&2; exit 1; }
	[ ! -e "$fault/load-hang" ] || hang "$(cat "$fault/load-hang")"
	mkdir -p "$module" "$class/rsd/rsd0" /sys/bus/pci/drivers/rebellions
	echo live >"$module/initstate"; echo 0 >"$module/refcnt"
	echo "group_id,bus,device" >"$class/rsd/rsd_group"; echo 0 >"$class/rsd/rsd0/hard_reset"
	[ ! -e "$fault/probe" ] || { echo "$version" >"$module/version"; return 0; }
	count=$(devices | wc -l); n=0
	# Minors of the kernel's memory devices: each opens, does no harm, and differs from its neighbour.
	set -- 3 5 7 9
	for address in $(devices); do
		d=$class/rbln$n; mkdir -p "$d"
		case $(cat "$pci/$address/device") in
		0x122?) card=RBLN-CA22 dram=16877879296 ;;
		0x125?) card=RBLN-CA25 dram=16877879296 ;;
		0x213?) card=RBLN-CR13 dram=150323855360 ;;
		*) card=RBLN-UNKNOWN dram=0 ;;
		esac
		minor=${1:-3}; [ $# -eq 0 ] || shift
		fw=$(cat "$cards/$address.cp" 2>/dev/null || cat "$fault/fw-ver" 2>/dev/null || echo "$version")
		smc=$(cat "$cards/$address.mcu" 2>/dev/null || echo "$version")
		for kv in kernel_version="$version" fw_ver="$fw" smc_ver="$smc" card_name=$card status=@STATUS@ group_id=0 dram_total=$dram dram_used=0 qstat=0 dev=1:$minor; do
			echo "${kv#*=}" >"$d/${kv%%=*}"
		done
		row=rbln$n; i=0; while [ $i -lt "$count" ]; do [ $i -eq $n ] && row="$row 0" || row="$row 4"; i=$((i + 1)); done
		echo "$row" >"$d/topology"
		ln -sfn "../../../bus/pci/devices/$address" "$d/device"
		bus=${address#*:}; echo "0,${bus%%:*},rbln$n" >>"$class/rsd/rsd_group"
		ln -sfn ../../drivers/rebellions "$pci/$address/driver"
		[ -e "/dev/rbln$n" ] || mknod -m 666 "/dev/rbln$n" c 1 "$minor"
		n=$((n + 1))
	done
	[ $n -eq 0 ] || [ -e /dev/rsd0 ] || mknod -m 666 /dev/rsd0 c 1 8
	echo "$version" >"$module/version"
}

unload() {
	[ -e "$module" ] || return 0
	[ ! -e "$fault/busy" ] || { echo "modprobe: FATAL: Module rebellions is in use." >&2; exit 1; }
	rm -rf "$module" "$class" /sys/bus/pci/drivers/rebellions
	for d in "$pci"/*; do rm -f "$d/driver"; done
	rm -rf /dev/rbln[0-9]* /dev/rsd[0-9]* /dev/.npu-lab
}

case ${1:-} in
load) load ;;
unload) unload ;;
*) echo "usage: ${0##*/} load|unload" >&2; exit 2 ;;
esac
