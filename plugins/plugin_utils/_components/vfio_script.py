# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell scripts of nodes that give their NPUs to virtual machines.

They need what a POSIX shell and busybox have.
"""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

# A physical function whose virtual ones are in use is not given away: they are.
LOOK = r"""take() {
  taken=""
  [ -r "$1" ] && read -r taken < "$1"
}
functions() {
  for dir in /sys/bus/pci/devices/*; do
    take "$dir/vendor"
    [ "$taken" = "$PCI_VENDOR" ] || continue
    take "$dir/class"
    case "$taken" in "$PCI_CLASS"*) ;; *) continue ;; esac
    take "$dir/sriov_numvfs"
    case "$taken" in "" | 0) echo "$dir" ;; esac
  done
}
driver_of() {
  link="$(readlink "$1/driver")"
  echo "${link##*/}"
}
lacking() {
  seen=""
  for dir in $(functions); do
    seen=yes
    driver="$(driver_of "$dir")"
    [ "$driver" = vfio-pci ] || echo "${dir##*/} is bound to ${driver:-no driver}"
  done
  [ -n "$seen" ] || echo "there is no NPU on the PCI bus"
}
"""

WAIT = (
    LOOK
    + r"""left="$WAIT_SECONDS"
why="$(lacking)"
while [ -n "$why" ]; do
  if [ "$left" -le 0 ]; then
    printf 'not every NPU of %s is at vfio-pci after %s s:\n%s\n' "$NODE_NAME" "$WAIT_SECONDS" "$why" >&2
    exit 1
  fi
  sleep 2
  left=$((left - 2))
  why="$(lacking)"
done
"""
)

# Only the whole host part brings the tool of the host, and NPUs of virtual machines need none of the rest.
PROVE = (
    r"""if [ -x "/host$HOST_TOOL" ]; then
  exec chroot /host "$HOST_TOOL" validate --scope vfio --wait "$WAIT_SECONDS" "$@"
fi
echo "the host has no $HOST_TOOL: its IOMMU groups and the nodes below /dev/vfio are not checked"
"""
    + WAIT
)

MANAGER = (
    "#!/bin/sh\n" + LOOK + r"""put() {
  printf '%s\n' "$1" > "$2"
}
# Prints "NODE PID" for all that is open or mapped of the NPUs. Fails when it cannot look.
held() {
  [ -n "$(ls /proc/1/fd 2> /dev/null)" ] || return 1
  {
    find /proc/[0-9]*/fd -type l -exec ls -l {} + 2> /dev/null | """
    r"""sed -n 's|.*/proc/\([0-9]*\)/fd/[0-9]* -> /dev/\(.*\)|\2 \1|p'
    grep -oE " /dev/($DEVICE_NODE|$GROUP_NODE|vfio/).*" /proc/[0-9]*/maps /dev/null 2> /dev/null | """
    r"""sed -n 's|.*/proc/\([0-9]*\)/maps: /dev/\(.*\)|\2 \1|p'
  } | sed 's| (deleted)||' | sort -u
}
# Prints who holds one of the nodes, which are an extended expression; fails when it cannot look.
holder() {
  all="$(held)" || return 1
  printf '%s\n' "$all" | grep -E "^($1) " | head -n 1 | sed 's| | by process |'
}
# Nodes of groups and of storage may belong to any device.
host_nodes() {
  names="(${GROUP_NODE}|${STORAGE_NODE})[0-9]+"
  here="$(readlink -f "$1")"
  for node in "$CLASS_DIR/$DEVICE_NODE"[0-9]*; do
    [ "$(readlink -f "$node/device")" = "$here" ] && names="$names|${node##*/}"
  done
  echo "$names"
}
machine_nodes() {
  group="$(readlink "$1/iommu_group")"
  names="vfio/(noiommu-)?${group##*/}"
  for node in "$1"/vfio-dev/vfio*; do
    [ -e "$node" ] && names="$names|vfio/devices/${node##*/}"
  done
  echo "$names"
}
bind() {
  address="${1##*/}"
  driver="$(driver_of "$1")"
  case "$driver" in
    vfio-pci)
      echo "$address is at vfio-pci"
      return
      ;;
    "" | "$MODULE") ;;
    *)
      echo "$address is bound to $driver, and stays there"
      return
      ;;
  esac
  if [ ! -d /sys/bus/pci/drivers/vfio-pci ]; then
    echo "$address stays: vfio-pci is not loaded on the host"
    return
  fi
  if [ ! -e "$1/iommu_group" ]; then
    echo "$address stays: it has no IOMMU group; turn the IOMMU on in the BIOS and on the kernel's command line"
    return
  fi
  if ! user="$(holder "$(host_nodes "$1")")"; then
    echo "$address stays: the processes of the host cannot be seen"
    return
  fi
  if [ -n "$user" ]; then
    echo "$address is in use: $user"
    return
  fi
  put vfio-pci "$1/driver_override"
  [ -z "$driver" ] || put "$address" "$1/driver/unbind"
  put "$address" /sys/bus/pci/drivers_probe
  if [ "$(driver_of "$1")" = vfio-pci ]; then
    echo "$address is at vfio-pci"
  else
    put "" "$1/driver_override"
    put "$address" /sys/bus/pci/drivers_probe
    echo "$address was not taken by vfio-pci: look at the kernel's log"
  fi
}
pass() {
  all="$(functions)"
  [ -n "$all" ] || echo "there is no NPU on the PCI bus"
  for dir in $all; do
    bind "$dir" 2>&1
  done
}
# Only what this script has bound, and no machine has.
release() {
  for dir in $(functions); do
    address="${dir##*/}"
    take "$dir/driver_override"
    [ "$(driver_of "$dir") $taken" = "vfio-pci vfio-pci" ] || continue
    if ! user="$(holder "$(machine_nodes "$dir")")" || [ -n "$user" ]; then
      echo "$address stays at vfio-pci: ${user:-the processes of the host cannot be seen}"
      continue
    fi
    put "" "$dir/driver_override"
    put "$address" "$dir/driver/unbind"
    put "$address" /sys/bus/pci/drivers_probe
    echo "$address was given back"
  done
}
end() {
  [ "$RELEASE_ON_EXIT" = true ] && release
  exit 0
}
if [ "$1" = check ]; then
  why="$(lacking)"
  [ -z "$why" ] && exit 0
  echo "$why"
  exit 1
fi
trap end TERM INT
last=""
while :; do
  now="$(pass)"
  [ "$now" = "$last" ] || echo "$now"
  last="$now"
  sleep 10 > /dev/null 2>&1 &
  wait $!
done
"""
)


def environment() -> dict[str, str]:
    """What the scripts have to know of the vendor."""
    return {
        "PCI_VENDOR": "0x" + PROFILE.pci_vendor,
        "PCI_CLASS": "0x" + PROFILE.pci_class,
        "CLASS_DIR": PROFILE.class_dir,
        "DEVICE_NODE": PROFILE.device_prefix,
        "GROUP_NODE": PROFILE.group_prefix,
        "STORAGE_NODE": PROFILE.storage_prefix,
        "MODULE": PROFILE.module,
    }
