#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Stand-in for rbln-smi @VERSION@: tells what /sys/class/rebellions says, in the shape that public programs parse.
# Faults are files in /run/npu-lab/fault: smi-hang (seconds), smi-exit (code), smi-noise (text before the JSON),
# smi-truncate, smi-collapse (every npu is 0), smi-word-rblnN (status word), smi-missing-rblnN, smi-kmd (version),
# smi-contexts (the JSON array of contexts).
class=/sys/class/rebellions fault=/run/npu-lab/fault
groups="" json=""
content() { cat "$1" 2>/dev/null || echo "$2"; }
node() { [ -e "/dev/$1" ] || mknod -m 666 "/dev/$1" c "${2%:*}" "${2#*:}"; }
if [ "${1:-}" = mknod ]; then
	[ -e "$class/rbln0" ] || { echo "rbln-smi: no device" >&2; exit 1; }
	for path in "$class"/rbln[0-9]*; do node "${path##*/}" "$(cat "$path/dev")" || exit 1; done
	node rsd0 "$(content /sys/class/misc/rsd0/dev 1:8)"
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
			for path in /dev/.npu-lab/*; do [ "$(content "$path" 0)" != "$id" ] || rm "$path"; done
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

of() { cat "$class/$1/$2" 2>/dev/null || echo; }
pci() { cat "$class/$1/device/$2" 2>/dev/null || echo; }
names() { n=0; while [ -e "$class/rbln$n" ]; do [ -e "$fault/smi-missing-rbln$n" ] || echo "rbln$n"; n=$((n + 1)); done; }
word() {
	if [ -e "$fault/smi-word-$1" ]; then cat "$fault/smi-word-$1"; elif [ "$(of "$1" status)" = 0 ]; then echo normal; else echo abnormal; fi
}
kmd=$(cat $fault/smi-kmd 2>/dev/null || cat /sys/module/rebellions/version 2>/dev/null || of rbln0 kernel_version)
host=$(cat /etc/machine-id 2>/dev/null || uname -n)

report() {
	printf '{\n  "KMD_version": "%s",\n  "devices": [' "${kmd:-N/A}"
	comma=
	for name in $(names); do
		n=${name#rbln}; npu=$n; [ ! -e $fault/smi-collapse ] || npu=0
		id=$(printf '%s %s' "$host" "$n" | cksum 2>/dev/null || echo "$n"); id=${id%% *}
		address=$(readlink "$class/$name/device"); address=${address##*/}
		device=$(pci "$name" device); speed=$(pci "$name" current_link_speed)
		printf '%s\n    {\n' "$comma"; comma=,
		[ -z "$groups" ] || printf '      "group_id": "%s",\n' "$(content "/dev/.npu-lab/$name" "$(of "$name" group_id)")"
		printf '      "npu": %s,\n      "name": "%s",\n      "sid": "%016d",\n      "uuid": "00000000-0000-4000-8000-%012x",\n' "$npu" "$(of "$name" card_name)" "$id" "$id"
		printf '      "device": "%s",\n      "status": "%s",\n      "fw_ver": "%s",\n' "$name" "$(word "$name")" "$(of "$name" fw_ver)"
		printf '      "pci": {"dev": "%s", "bus_id": "%s", "numa_node": "%s", "link_speed": "%s", "link_width": "%s"},\n' "${device#0x}" "$address" "$(pci "$name" numa_node)" "$(echo "${speed% PCIe}" | tr -d ' ')" "$(pci "$name" current_link_width)"
		printf '      "temperature": "30C",\n      "card_power": "19200000uW",\n      "pstate": "P14",\n'
		printf '      "memory": {"used": "%s", "total": "%s"},\n      "util": "0.0",\n      "board_info": "rev 1",\n      "location": %s\n    }' "$(of "$name" dram_used)" "$(of "$name" dram_total)" "$n"
	done
	printf '\n  ],\n  "contexts": %s\n}\n' "$(content $fault/smi-contexts '[]')"
}

if [ -n "$json" ]; then
	[ ! -e $fault/smi-noise ] || cat $fault/smi-noise
	if [ -e $fault/smi-truncate ]; then report | head -c 200; else report; fi
else
	echo "Device Information KMD ver: ${kmd:-N/A}"
	for name in $(names); do printf '| %s | %s | %s | %s |\n' "${name#rbln}" "$(of "$name" card_name)" "$name" "$(word "$name")"; done
fi
