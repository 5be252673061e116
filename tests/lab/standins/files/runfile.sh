#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Stand-in for the driver's runfile, version @VERSION@. The real one's flags and log are not public; these are ours.
set -eu
version=@VERSION@
log=/var/log/rebellions/install.log
usage() { echo "usage: ${0##*/} [--silent] | --uninstall | --extract DIR | --version"; }
unpack() { mkdir -p "$1"; tail -n +@LINE@ "$0" | tar -xzf - -C "$1"; }
# Runs a command with both of its streams also in the log.
logged() {
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $*" >>"$log"
    { { { "$@" 3>&- || echo $? >"$work/code"; } 2>&1 >&3 | tee -a "$log" >&2; } 3>&1 | tee -a "$log"; }
    [ ! -e "$work/code" ] || { echo "exit $(cat "$work/code")" >>"$log"; return "$(cat "$work/code")"; }
}
packages="rebellions-kmd rebellions-fw rbln-tools librbln"
act=install
while [ $# -gt 0 ]; do
    case $1 in
    --silent | -s) ;;
    --uninstall) act=uninstall ;;
    --extract) act=extract; shift; [ $# -gt 0 ] || { usage >&2; exit 2; }; target=$1 ;;
    --version) echo "rebellions $version"; exit 0 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
if [ $act = extract ]; then unpack "$target"; exit 0; fi
[ "$(id -u)" = 0 ] || { echo "rebellions $version: run as root" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || { echo "rebellions $version: for x86_64 only" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
mkdir -p "${log%/*}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
if [ $act = uninstall ]; then
    # shellcheck disable=SC2086
    present=$(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' $packages 2>/dev/null | awk '$2 != "un" {print $1}')
    # shellcheck disable=SC2086
    [ -z "$present" ] || logged dpkg --purge $present
    echo "rebellions $version: removed"
    exit 0
fi
unpack "$work/debs"
logged dpkg -i "$work"/debs/*.deb
echo "rebellions $version: installed"
exit 0
