#!/bin/bash
# make demo: a machine with a forgotten password is rescued, mended and put back, on
# real parts. DEMO chooses the road of the rescue ramdisk:
#   media      virtual media through a Redfish BMC, BIOS (default)
#   ipmi       iPXE through an IPMI BMC, BIOS
#   uefi       UEFI HTTP boot through a Redfish BMC
#   uefi-media virtual media through a Redfish BMC, UEFI
# It ends with status 0 only if every proof held.
set -euo pipefail
cd "$(dirname "$0")/.."
road=${DEMO:-media}
case $road in
media)      bmc=redfish firmware=bios boot=redfish-virtual-media ;;
uefi-media) bmc=redfish firmware=uefi boot=redfish-virtual-media ;;
uefi)       bmc=redfish firmware=uefi boot=http ;;
ipmi)       bmc=ipmi firmware=bios boot=ipxe ;;
*) echo "demo: DEMO=$road is none of media, uefi-media, uefi, ipmi" >&2; exit 2 ;;
esac

salvor=$PWD/bin/salvor
work=$(mktemp -d "${TMPDIR:-/tmp}/salvor-demo.XXXXXX")
lab() { local verb=$1; shift; "$salvor" lab "$verb" --state-dir "$work" --name demo "$@"; }
inside() { "$salvor" lab exec --state-dir "$work" --name demo -- "$@"; }
serve=
finish() {
	status=$?
	trap - EXIT
	if [ "$status" != 0 ] && [ -f "$work/serve.log" ]; then
		echo "demo: failed; the last words of the server:" >&2
		grep -v 'msg=request ' "$work/serve.log" | tail -n 15 >&2
		log=$(lab status 2>/dev/null | jq -r '.machines[0].serial_log') || log=
		[ -f "$log" ] && { echo "demo: and of the machine:" >&2; tail -n 15 "$log" | tr -d '\r' >&2; }
	fi
	[ -z "$serve" ] || { kill "$serve" 2>/dev/null && wait "$serve" 2>/dev/null; } || true
	lab down 2>/dev/null || true
	rm -rf "$work"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

start=$(date +%s%N)
seconds() { awk -v ns="$(($(date +%s%N) - ${1:-$start}))" 'BEGIN { printf "%.1f", ns / 1e9 }'; }
say() { printf '%7s s  %s\n' "$(seconds)" "$*"; }
proof() { printf '%7s s  proof: %s\n' "$(seconds)" "$*"; }
die() { echo "demo: $*" >&2; exit 1; }

if [ ! -f build/ramdisk/manifest.json ] || [ bin/salvor-agent -nt build/ramdisk/manifest.json ]; then
	"$salvor" ramdisk build --out "$PWD/build/ramdisk" >/dev/null
	say "the rescue ramdisk is built"
fi
say "a lab machine: $firmware firmware behind a $bmc BMC, a system on its disk whose password nobody knows"
lab up --bmc "$bmc" --firmware "$firmware" >"$work/lab.json"
machine() { jq -r ".machines[0].$1" "$work/lab.json"; }
address=$(machine tenant_address)

cat >"$work/salvor.conf" <<END
[ramdisk]
listen = 10.79.0.1:6386
[bridge]
provisioning_network = br-prov
cleaning_network = br-clean
rescuing_network = br-rescue
tenant_network = br-tenant
[netboot]
interfaces = br-rescue:authoritative:10.79.0.100-10.79.0.199/24
[conductor]
rescue_kernel = $PWD/build/ramdisk/kernel
rescue_ramdisk = $PWD/build/ramdisk/initramfs
END
inside "$salvor" serve --config "$work/salvor.conf" --state-dir "$work/state" >"$work/serve.log" 2>&1 &
serve=$!
for _ in $(seq 200); do
	inside curl -sf http://127.0.0.1:6385/healthz >/dev/null 2>&1 && break
	kill -0 "$serve" 2>/dev/null || die "salvor serve did not start"
	sleep 0.1
done
cli() { inside "$salvor" "$@"; }

if [ "$bmc" = redfish ]; then
	info=(--driver-info redfish_address="$(machine address)" --driver-info redfish_username="$(machine user)" --driver-info redfish_password="$(machine password)")
else
	info=(--driver-info ipmi_address="$(machine address)" --driver-info ipmi_port="$(machine port)" --driver-info ipmi_username="$(machine user)" --driver-info ipmi_password="$(machine password)")
fi
cli node create --driver "$bmc" --name m1 --network-interface bridge --boot-interface "$boot" --property capabilities="boot_mode:$firmware" "${info[@]}" >/dev/null
cli port create --node "$(cli node show m1 -f value --fields uuid)" "$(machine mac)" --local-link-connection port_id="$(machine port_id)" --local-link-connection switch_id=52:54:00:00:00:01 >/dev/null
cli node manage m1 --wait >/dev/null 2>&1
cli node adopt m1 --wait >/dev/null 2>&1
say "enrolled and adopted: m1 is active"

cli node power on m1 >/dev/null
known="$(machine host_key)"
echo "$address $known" >"$work/tenant_hosts"
options=(-o ConnectTimeout=3 -o LogLevel=ERROR -o PreferredAuthentications=password)
tenant() { inside sshpass -e ssh "${options[@]}" -o UserKnownHostsFile="$work/tenant_hosts" -o StrictHostKeyChecking=yes "root@$address" "$@"; }
rescued() { inside sshpass -e ssh "${options[@]}" -o UserKnownHostsFile="$work/rescue_hosts" -o StrictHostKeyChecking=accept-new "rescue@$address" "$@"; }
closed() { ! inside timeout 2 bash -c "exec 3<>/dev/tcp/$address/9999" 2>/dev/null; }
# Its ssh answers (status 5 is a refused password), so its own system is up.
for _ in $(seq 300); do
	set +e; SSHPASS=guess tenant true 2>/dev/null; answer=$?; set -e
	[ "$answer" != 5 ] || break
	sleep 0.2
done
[ "$answer" = 5 ] || die "the machine's own system does not come up"
proof "its own system runs and refuses a guessed password"

SSHPASS=rescue-$(head -c 9 /dev/urandom | base64 | tr -d '/+=')
export SSHPASS
asked=$(date +%s%N)
printf '%s\n' "$SSHPASS" | cli node rescue m1 --rescue-password-file - --wait
say "m1 is in rescue, $(seconds "$asked") s after the request"
until rescued true 2>/dev/null; do
	[ $(($(date +%s%N) - asked)) -lt 120000000000 ] || die "no ssh prompt within 120 s"
	sleep 0.1
done
prompt=$(seconds "$asked")
proof "an ssh prompt with the rescue password on the tenant network, $prompt s after the request"
closed || die "the agent's port is open on the tenant network"
proof "the agent's port is closed"

new=mended-$(head -c 9 /dev/urandom | base64 | tr -d '/+=')
hash=$(printf '%s' "$new" | openssl passwd -6 -stdin)
rescued "set -e; mkdir -p /mnt; mount /dev/vda2 /mnt
sed -i 's|^root:[^:]*:|root:$hash:|' /mnt/etc/shadow; echo mended >/mnt/etc/mend; sync; umount /mnt"
say "mended: the system on the disk has a new password"

back=$(date +%s%N)
cli node unrescue m1 --wait
SSHPASS=$new
until marker=$(tenant 'cat /etc/marker /etc/mend' 2>/dev/null); do
	[ $(($(date +%s%N) - back)) -lt 120000000000 ] || die "the machine's own system is not back within 120 s"
	sleep 0.2
done
[ "$marker" = "$(machine marker)"$'\n'mended ] || die "another system answers: $marker"
proof "its own system is back, $(seconds "$back") s after the request, with the mend in it"
[ "$(cli node show m1 -f value --fields provision_state)" = active ] || die "m1 is not active"
if grep -q "$new\|rescue-" "$work/serve.log"; then die "a password is in the log"; fi
say "done: $road, ssh prompt after $prompt s"
