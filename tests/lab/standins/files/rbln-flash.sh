#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Stand-in for rbln-flash @VERSION@: what the next load of the module tells as fw_ver (--cp) and smc_ver (--mcu).
# A card keeps its firmware in /var/lib/npu-lab/cards. Faults in /run/npu-lab/fault: flash-fail (addresses, or all), flash-hang (seconds a card).
set -eu
pci=/sys/bus/pci/devices fault=/run/npu-lab/fault cards=/var/lib/npu-lab/cards
usage() { echo "usage: rbln-flash --cp | --mcu  -f FILE | -d DIR  -s BDF | all"; }
part='' file='' folder='' slot=''
while [ $# -gt 0 ]; do
	case $1 in
	--cp | --mcu) part=${1#--} ;;
	-f | -d | -s)
		[ $# -gt 1 ] || { usage >&2; exit 2; }
		case $1 in -f) file=$2 ;; -d) folder=$2 ;; *) slot=$2 ;; esac
		shift
		;;
	--version) echo "rbln-flash @VERSION@"; exit 0 ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
if [ -z "$part" ] || [ -z "$slot" ] || [ -z "$file$folder" ]; then usage >&2; exit 2; fi
[ "$(id -u)" = 0 ] || { echo "rbln-flash: run as root" >&2; exit 1; }
[ ! -e /sys/module/rebellions ] || { echo "rbln-flash: the rebellions driver is loaded: unload it first" >&2; exit 1; }

# Physical functions only.
devices() { for d in "$pci"/*; do [ "$(cat "$d/vendor" 2>/dev/null)" != 0x1eff ] || case $(cat "$d/device") in *0) echo "${d##*/}" ;; esac; done; }
image() {
	[ -z "$file" ] || { echo "$file"; return; }
	case $(cat "$pci/$1/device") in 0x122?) echo "$folder/ca22.bin" ;; 0x125?) echo "$folder/ca25.bin" ;; 0x213?) echo "$folder/cr13.bin" ;; esac
}
of() { cat "$cards/$1.$2" 2>/dev/null || { [ "$2" = cp ] && cat $fault/fw-ver 2>/dev/null; } || echo; }
list() { for d in $(devices); do printf '%s,' "$(of "$d" "$1")"; done | sed 's/,$//'; }

[ "$slot" != all ] || slot=$(devices)
[ -n "$slot" ] || { echo "rbln-flash: no device" >&2; exit 1; }
code=0 summary=''
mkdir -p "$cards"
for address in $slot; do
	[ -d "$pci/$address" ] || { echo "rbln-flash: no device $address" >&2; exit 2; }
	source=$(image "$address")
	version=$(sed -n 's/^stand-in firmware //p' "$source" 2>/dev/null || :)
	echo "Flashing $part of $address with ${source:-nothing}"
	[ ! -e $fault/flash-hang ] || sleep "$(cat $fault/flash-hang)"
	if [ -z "$version" ] || grep -qwsF -e "$address" -e all $fault/flash-fail; then
		code=1 summary="$summary$address : FAIL [X]\n"
	else
		echo "$version" >"$cards/$address.$part"
		summary="$summary$address : SUCCESS [O]\n"
	fi
done
echo "Summary"
# shellcheck disable=SC2059
printf "$summary"
if ! systemd-detect-virt -q --container 2>/dev/null && [ ! -e /run/.containerenv ]; then
	echo "options rebellions fw=$(list cp) smc=$(list mcu)" >/etc/modprobe.d/npu-lab-fw.conf
fi
exit $code
