#!/bin/bash
# demo-console.sh: a machine does not come up any more, and nobody knows its address: its fstab names a disk that is gone. Its console
# says so while it runs. salvor mends it, and the login prompt on its console proves it. It ends with status 0 only if every proof held.
set -euo pipefail
cd "$(dirname "$0")/.."
bmc=redfish firmware=bios boot=redfish-virtual-media
ramdisk=$PWD/build/ramdisk-diagnose
. test/demo-lab.sh

build_ramdisk diagnose
lab up --bmc "$bmc" --sol --firmware "$firmware" >"$work/lab.json"
disk=$(dirname "$(machine serial_log)")/disk.img
ssh-keygen -q -t ed25519 -N '' -f "$work/id"
mkdir -p build
make_debian "$work/debian.img" "$(machine tenant_address)" "$work/id.pub"
add_line "$work/debian.img" "$offset" /etc/fstab 'UUID=6f1f2d5e-9c1b-4f0e-8f0d-2c9b6d1c7a55 /srv ext4 defaults,x-systemd.device-timeout=5s 0 2'
cp --sparse=always "$work/debian.img" "$disk"
say "a lab machine: $firmware firmware behind a $bmc BMC with Serial over LAN, a Debian 12 on its disk, whose fstab names a disk that is gone"

host=$(machine address | sed 's|.*//||; s|:.*||')
options=(--console-interface ipmi-sol --driver-info ipmi_address="$host" --driver-info ipmi_username="$(machine user)" --driver-info ipmi_password="$(machine password)")
enrol_machine
cli node console enable m1
cli node power on m1 --wait >/dev/null 2>&1
# console_shows WORDS SECONDS: waits until the kept console has the words.
console_shows() {
	for _ in $(seq "$2"); do
		! cli console log show m1 2>/dev/null | grep -q "$1" || return 0
		sleep 1
	done
	cli console log show m1 --lines 10 >&2 || true
	die "the console does not show: $1"
}
console_shows 'root account is locked\|emergency mode' 180
proof "the kept console shows that systemd stopped in its emergency mode"

cli diagnose m1 --wait >"$work/report" || true
cat "$work/report"
grep -q console-emergency-mode "$work/report" || die "the diagnosis of the running machine does not name what the console shows"
proof "a diagnosis of the running machine, without a restart, names it"

asked=$(date +%s%N)
cli repair m1 --yes --reboot --wait | tee "$work/repair"
grep -q 'is proven' "$work/repair" && grep -q 'console shows that its own system booted to the login' "$work/repair" || die "the console does not prove the repair"
proof "its own system boots to the login prompt on its console, $(seconds "$asked") s after the request; no address of it is known"
console_shows 'debian login:' 60
! grep -q 'the console cannot be read' "$work/serve.log" || die "the console was not read all the time"
cli node console disable m1
