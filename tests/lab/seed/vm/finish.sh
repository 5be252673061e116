#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Run by sh inside the new root, where apt still knows the mirror: the second kernel, and what a machine of its own needs.
set -eu
export DEBIAN_FRONTEND=noninteractive
# The mirror keeps the cloud kernel before the newest; where it does not, the generic one of the same version.
have=$(ls /boot/vmlinuz-*)
have=${have#/boot/vmlinuz-}
other=$(apt-cache pkgnames linux-image-6.1.0- | sed -n 's/^linux-image-\(.*[0-9]-cloud-amd64\)$/\1/p' | sort -V | grep -vxF "$have" | tail -n 1)
apt-get install -y -q --no-install-recommends "linux-image-${other:-amd64}" "linux-headers-${other:-amd64}"
set -- /boot/vmlinuz-*
[ $# -ge 2 ]

useradd -m -s /bin/bash npu
usermod -p '*' npu
install -d -m 700 /root/.ssh
install -d -m 700 -o npu -g npu /home/npu/.ssh
install -m 600 /root/authorized_keys /root/.ssh/authorized_keys
install -m 600 -o npu -g npu /root/authorized_keys /home/npu/.ssh/authorized_keys
rm /root/authorized_keys
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
chmod 440 /etc/sudoers.d/npu
echo npu-vm >/etc/hostname
echo '127.0.0.1 localhost' >/etc/hosts
rm -f /etc/resolv.conf
echo 'nameserver 10.0.2.3' >/etc/resolv.conf
systemctl -q enable systemd-networkd.service ssh.service
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer logrotate.timer \
	systemd-networkd-wait-online.service systemd-timesyncd.service getty@tty1.service systemd-binfmt.service systemd-pstore.service; do
	ln -sf /dev/null "/etc/systemd/system/$unit"
done
mkdir -p /boot/efi /boot/grub
grub-editenv /boot/grub/grubenv create
rm -rf /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /var/log/*.log
