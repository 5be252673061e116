#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Stand-in for rbln-smi @VERSION@: tells what /sys/class/rebellions says, in the shape that public programs parse.
# Faults are files in /run/npu-lab/fault: smi-hang (seconds), smi-exit (code), smi-noise (text before the JSON),
# smi-truncate, smi-collapse (every npu is 0), smi-word-rblnN (status word), smi-missing-rblnN, smi-kmd (version),
# smi-contexts (the JSON array of contexts).
# It is one process, as the vendor's is: observations are measured with it. So files are read by the shell itself.
class=/sys/class/rebellions fault=/run/npu-lab/fault
groups="" json=""
# get FILE [DEFAULT]: the first line of a file in $value.
get() { value=; { [ -r "$1" ] && read -r value <"$1"; } 2>/dev/null || [ -n "$value" ] || value=${2:-}; }
node() { [ -e "/dev/$1" ] || mknod -m 666 "/dev/$1" c "${2%:*}" "${2#*:}"; }
if [ "${1:-}" = mknod ]; then
	[ -e "$class/rbln0" ] || { echo "rbln-smi: no device" >&2; exit 1; }
	for path in "$class"/rbln[0-9]*; do get "$path/dev"; node "${path##*/}" "$value" || exit 1; done
	get /sys/class/misc/rsd0/dev 1:8
	node rsd0 "$value"
	exit
fi
# What a group is, is kept beside the nodes: whoever may make nodes may make groups.
if [ "${1:-}" = group ]; then
	mkdir -p /dev/.npu-lab
	case ${2:-} in
	-c)
		for n in $(echo "$5" | tr , ' '); do echo "$3" >"/dev/.npu-lab/rbln$n" || exit 1; done
		node "rsd$3" 1:8
		;;
	-d)
		for id in $(echo "$3" | tr , ' '); do
			for path in /dev/.npu-lab/*; do get "$path" 0; [ "$value" != "$id" ] || rm "$path"; done
			rm -f "/dev/rsd$id"
		done
		;;
	*) echo "usage: rbln-smi group -c ID -a NPU,... | -d ID,..." >&2; exit 2 ;;
	esac
	exit
fi
for arg; do
	case $arg in
	--version | -V) echo "rbln-smi @VERSION@"; exit 0 ;;
	-j) json=1 ;;
	-g) groups=1 ;;
	-h | --help) echo "usage: rbln-smi [-g] [-j] [--version] | mknod"; exit 0 ;;
	*) echo "rbln-smi: unknown argument $arg" >&2; exit 2 ;;
	esac
done
[ ! -e $fault/smi-hang ] || sleep "$(cat $fault/smi-hang)"
[ ! -e $fault/smi-exit ] || { echo "rbln-smi: SYS_ERROR (code: 5)" >&2; exit "$(cat $fault/smi-exit)"; }

get $class/rbln0/kernel_version
get /sys/module/rebellions/version "$value"
get $fault/smi-kmd "${value:-N/A}"
kmd=$value
# Cards of two hosts differ: by the beginning of machine-id, or by a name where there is none (in a pod).
get /etc/machine-id
case $value in
"" | *[!0-9a-f]*) first=$(uname -n | cksum 2>/dev/null || echo 0); first=${first%% *} ;;
*) first=$((0x${value%"${value#????????}"})) ;;
esac

# each ACT: runs it for every card that is listed, with $name and $n.
each() {
	n=0
	while [ -e "$class/rbln$n" ]; do
		name=rbln$n
		[ -e "$fault/smi-missing-$name" ] || "$1"
		n=$((n + 1))
	done
}
# The health of $name as a word, in $value.
word() {
	get "$class/$name/status"
	[ "$value" = 0 ] && value=normal || value=abnormal
	get "$fault/smi-word-$name" "$value"
}
device() {
	d=$class/$name
	printf '%s\n    {\n' "$comma"; comma=,
	if [ -n "$groups" ]; then get "$d/group_id"; get "/dev/.npu-lab/$name" "$value"; printf '      "group_id": "%s",\n' "$value"; fi
	npu=$n; [ ! -e $fault/smi-collapse ] || npu=0
	id=$(((first + n) & 0xffffffff))
	get "$d/card_name"; printf '      "npu": %s,\n      "name": "%s",\n      "sid": "%016d",\n      "uuid": "00000000-0000-4000-8000-%012x",\n' "$npu" "$value" "$id" "$id"
	word; printf '      "device": "%s",\n      "status": "%s",\n' "$name" "$value"
	get "$d/fw_ver"; printf '      "fw_ver": "%s",\n' "$value"
	address=; cd -P "$d/device" 2>/dev/null && address=${PWD##*/}; cd /
	get "$d/device/device"; printf '      "pci": {"dev": "%s", "bus_id": "%s", ' "${value#0x}" "$address"
	get "$d/device/numa_node"; printf '"numa_node": "%s", ' "$value"
	get "$d/device/current_link_speed"; value=${value% PCIe}
	case $value in *" "*) value=${value%% *}${value#* } ;; esac
	printf '"link_speed": "%s", ' "$value"
	get "$d/device/current_link_width"; printf '"link_width": "%s"},\n' "$value"
	printf '      "temperature": "30C",\n      "card_power": "19200000uW",\n      "pstate": "P14",\n'
	get "$d/dram_used"; printf '      "memory": {"used": "%s", ' "$value"
	get "$d/dram_total"; printf '"total": "%s"},\n      "util": "0.0",\n      "board_info": "rev 1",\n      "location": %s\n    }' "$value" "$n"
}
report() {
	printf '{\n  "KMD_version": "%s",\n  "devices": [' "$kmd"
	comma=
	each device
	contexts='[]'
	[ ! -e $fault/smi-contexts ] || contexts=$(cat $fault/smi-contexts)
	printf '\n  ],\n  "contexts": %s\n}\n' "$contexts"
}
row() { word; health=$value; get "$class/$name/card_name"; printf '| %s | %s | %s | %s |\n' "$n" "$value" "$name" "$health"; }

if [ -n "$json" ]; then
	[ ! -e $fault/smi-noise ] || cat $fault/smi-noise
	if [ -e $fault/smi-truncate ]; then report | head -c 200; else report; fi
else
	echo "Device Information KMD ver: $kmd"
	each row
fi
