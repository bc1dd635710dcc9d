#!/bin/bash
# make demo: a machine with a Debian of its own does not boot any more, and lets nobody in: its fstab names a disk that is gone, and its sshd's
# configuration is broken. salvor says why, mends both, and the machine proves that it works. It ends with status 0 only if every proof held.
set -euo pipefail
cd "$(dirname "$0")/.."
bmc=redfish firmware=bios boot=redfish-virtual-media
ramdisk=$PWD/build/ramdisk-diagnose
. test/demo-lab.sh

set_up_broken_debian
say "a lab machine: $firmware firmware behind a $bmc BMC, a Debian 12 on its disk"

cp --sparse=always "$work/debian.img" "$disk"
say "broken: fstab names a disk that is gone, and sshd's configuration has a word that no sshd knows"

enrol_machine
describe_network "$address"
cli node power off m1 --wait >/dev/null 2>&1
before=$(sha256sum "$disk")
asked=$(date +%s%N)
cli diagnose m1 --wait | tee "$work/report"
say "the diagnosis took $(seconds "$asked") s"
grep -q fstab-device-missing "$work/report" && grep -q sshd-config-invalid "$work/report" || die "the diagnosis does not name both faults"
[ "$before" = "$(sha256sum "$disk")" ] || die "the diagnosis changed the disk"
proof "both faults are named, and no byte of the disk has changed"

asked=$(date +%s%N)
cli repair m1 --yes --wait | tee "$work/repair"
repaired=$(seconds "$asked")
grep -q 'is proven' "$work/repair" || die "the repair is not proven"
proof "its own system boots and its sshd has the key that lies on its disk, $repaired s after the request"

name=$(tenant_ssh hostname) || die "ssh does not open"
[ "$name" = debian ] || die "another system answers: $name"
proof "ssh opens with the owner's key"
say "done: repaired $repaired s after the request"
