#!/bin/bash
# diagnose-times.sh [LOOKS]: measures how long a diagnosis takes from the request to the report, with a boot and in a rescue under way, on a real machine
# of the lab. The rescue takes a key and has an end: its owner logs in, and the machine boots its own system by itself afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
looks=${1:-20}
bmc=redfish firmware=bios boot=redfish-virtual-media
ramdisk=$PWD/build/ramdisk-diagnose
. test/demo-lab.sh

set_up_broken_debian
cp --sparse=always "$work/debian.img" "$disk"
enrol_machine
describe_network "$address"
cli node power off m1 --wait >/dev/null 2>&1
before=$(sha256sum "$disk")

# measure WHAT GOAL COUNT: diagnoses so often, and prints the median and the 95th percentile. The goal is that of the 95th.
measure() {
	local asked
	: >"$work/times"
	for _ in $(seq "$3"); do
		asked=$(date +%s%N)
		cli diagnose m1 --wait >"$work/report" 2>"$work/progress" || die "$1: $(tail -n 3 "$work/progress")"
		seconds "$asked" >>"$work/times"
		echo >>"$work/times"
		grep -q fstab-device-missing "$work/report" || die "$1: the report does not name the fault"
	done
	sort -n "$work/times" | awk -v what="$1" -v goal="$2" '
		{ t[NR] = $1 }
		END { high = t[int((NR * 95 + 99) / 100)]; printf "%s: %.1f s in the middle, %.1f s at the 95th percentile of %d; the goal is %d s\n", what, t[int((NR + 1) / 2)], high, NR, goal; exit high > goal }'
}
measure "with a boot" 60 "$looks"
[ "$before" = "$(sha256sum "$disk")" ] || die "a diagnosis changed the disk"
proof "no byte of the disk has changed"

lasts=$((180 + looks * 30)) # twice what the goal allows
end=$((SECONDS + lasts))
cli node rescue m1 --key "$work/id.pub" --expires-in "$lasts" --wait >/dev/null 2>&1
measure "in a rescue under way" 15 "$looks"
[ "$(cli node ssh m1 -i "$work/id" 'echo inside')" = inside ] || die "nobody can log in"
proof "the rescue system lets the key in, and has the host key that its agent reported"
while [ "$(cli node show m1 -f value --fields provision_state)" = rescue ]; do
	[ "$SECONDS" -lt $((end + 60)) ] || die "the rescue does not end"
	sleep 1
done
until [ "$(cli node show m1 -f value --fields provision_state)" = active ]; do
	[ "$SECONDS" -lt $((end + 120)) ] || die "the node is $(cli why m1)"
	sleep 1
done
[ "$SECONDS" -ge "$((end - 5))" ] || die "the rescue ended too early"
proof "the rescue ended by itself, $lasts s after it was asked for"
