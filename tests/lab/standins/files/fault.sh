#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# fault NAME [VALUE]: set a fault of the stand-ins until the next reboot (value 1 unless told); fault NAME -: take it away; fault: list.
# Where the module is a real one, those of loading reach it through modprobe's own configuration.
set -eu
dir=/run/npu-lab/fault conf=/run/modprobe.d/npu-lab-fault.conf
mkdir -p $dir
case $# in
0) grep -H '' $dir/* 2>/dev/null | sed "s#^$dir/##" || :; exit 0 ;;
1) echo 1 >"$dir/$1" ;;
2) if [ "$2" = - ]; then rm -f "$dir/$1"; else echo "$2" >"$dir/$1"; fi ;;
*) echo "usage: fault [NAME [VALUE | -]]" >&2; exit 2 ;;
esac
! systemd-detect-virt -q --container 2>/dev/null && [ ! -e /run/.containerenv ] || exit 0
mkdir -p ${conf%/*}
cards=$(cat /sys/bus/pci/devices/*/vendor | grep -cx 0x1eff || :)
{
	[ ! -e $dir/load ] || echo 'install rebellions echo "modprobe: ERROR: could not insert rebellions: Exec format error" >&2; exit 1'
	[ ! -e $dir/busy ] || echo 'remove rebellions echo "modprobe: FATAL: Module rebellions is in use." >&2; exit 1'
	[ ! -e $dir/load-hang ] || echo "options rebellions hang=$(cat $dir/load-hang)"
	[ ! -e $dir/probe ] || echo 'options rebellions broken=1'
	[ ! -e $dir/fw-ver ] || echo "options rebellions fw=$(yes "$(cat $dir/fw-ver)" | head -n "$cards" | paste -sd,)"
} >$conf
