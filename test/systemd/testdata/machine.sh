#!/bin/sh
# machine.sh ROOT ARCHIVE PACKAGES CGROUP...: installs a minimal Debian 12 with systemd in ROOT and boots it, again after each reboot.
# It is process 1 of a PID and a mount namespace, so its end ends the machine and unmounts all of it. PACKAGES is /packages in the machine.
# ARCHIVE is a tar file with the Debian, which is made if it is missing; empty: there is none.
set -eu
root=$1 archive=$2 packages=$3
shift 3
for cgroup; do
	echo 0 >"$cgroup/cgroup.procs"
done
install_debian() {
	mmdebstrap --quiet --variant=minbase --include=systemd,ca-certificates bookworm "$1"
}
mount -t tmpfs -o mode=0755,size=2g tmpfs "$root"
if [ -z "$archive" ]; then
	install_debian "$root"
else
	[ -e "$archive" ] || install_debian "$archive"
	tar -C "$root" -xf "$archive"
fi
# What systemd-nspawn remembers of its machines goes with the namespace.
mount -t tmpfs tmpfs /run
while :; do
	status=0
	systemd-nspawn --quiet --directory="$root" --boot --keep-unit --register=no --private-network --link-journal=no --console=pipe \
		--resolv-conf=off --timezone=off --bind-ro="$packages:/packages" || status=$?
	[ "$status" = 133 ] || exit "$status" # 133: the machine was rebooted
done
