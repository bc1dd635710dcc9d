#!/bin/bash
# make demo-vm: a server whose password nobody knows is rescued, mended and put back, on two
# VM hosts with libvirt daemons of their own. DEMO chooses the server's firmware: bios (default) or uefi.
# It ends with status 0 only if every proof held; with DEMO_STRICT=1 the ssh prompt must be there within 15 s too.
set -euo pipefail
cd "$(dirname "$0")/.."
firmware=${DEMO:-bios}
case $firmware in
bios | uefi) ;;
*) echo "demo-vm: DEMO=$firmware is none of bios, uefi" >&2; exit 2 ;;
esac

salvor=${SALVOR_BIN:-$PWD/bin}/salvor
ramdisk=${SALVOR_RAMDISK:-$PWD/build/ramdisk}
work=$(mktemp -d "${TMPDIR:-/tmp}/salvor-demo.XXXXXX")
lab() { local verb=$1; shift; "${salvor}-lab" lab "$verb" --state-dir "$work" --name demo "$@"; }
inside() { "${salvor}-lab" lab exec --state-dir "$work" --name demo -- "$@"; }
onhost() { local host=$1; shift; "${salvor}-lab" lab exec --state-dir "$work" --name demo --host "$host" -- "$@"; }
running=()
finish() {
	status=$?
	trap - EXIT
	if [ "$status" != 0 ]; then
		for log in "$work"/*.log; do
			[ -f "$log" ] || continue
			echo "demo-vm: failed; the last words of $(basename "$log" .log):" >&2
			grep -v 'msg=request ' "$log" | tail -n 15 >&2
		done
		for log in "$work"/h?/servers/*/console.log; do
			[ ! -f "$log" ] || { echo "demo-vm: and of the server:" >&2; tail -n 15 "$log" | tr -d '\r' >&2; }
		done
	fi
	for pid in "${running[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
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
die() { echo "demo-vm: $*" >&2; exit 1; }
# until_true SECONDS WHAT COMMAND...: a condition, looked at ten times a second.
until_true() {
	local bound=$1 what=$2 from
	shift 2
	from=$(date +%s%N)
	until "$@" 2>/dev/null; do
		[ $(($(date +%s%N) - from)) -lt $((bound * 1000000000)) ] || die "$what: not within $bound s"
		sleep 0.1
	done
}

agent=$(dirname "$salvor")/salvor-agent
if [ ! -f "$ramdisk/manifest.json" ] || [ "$agent" -nt "$ramdisk/manifest.json" ]; then
	"$salvor" ramdisk build --out "$ramdisk" >/dev/null
	say "the rescue ramdisk is built"
fi
say "two VM hosts, each a libvirt daemon in namespaces of its own"
lab up --machines 0 --hosts 2 >"$work/lab.json"
lab image "$work/tenant.img" >"$work/image.json"
image() { jq -r ".$1" "$work/image.json"; }

cat >"$work/salvor.conf" <<END
[hosts]
listen = 10.77.0.1:6387
[compute]
shutdown_timeout = 10
[conductor]
rescue_kernel = $ramdisk/kernel
rescue_ramdisk = $ramdisk/initramfs
END
inside "$salvor" serve --config "$work/salvor.conf" --state-dir "$work/state" >"$work/serve.log" 2>&1 &
running+=($!)
until_true 20 "salvor serve" inside curl -sf http://127.0.0.1:6385/healthz -o /dev/null
cli() { inside "$salvor" "$@"; }

for host in h1 h2; do
	cli host token create --note "$host" -f value -c token >"$work/$host.token"
	onhost "$host" "$salvor" host --controller https://10.77.0.1:6387 --join-file "$work/$host.token" --state-dir "$work/$host" >"$work/$host.log" 2>&1 &
	running+=($!)
done
joined() {
	for host in h1 h2; do
		[ "$(cli host show "$host" -f json | jq '.state == "up" and .inventory.vcpus > 0')" = true ] || return 1
	done
}
until_true 30 "both hosts are up" joined
say "both hosts have joined: they pull their orders, and open no port"

cli network create lan --bridge br-tenant --cidr 10.78.0.0/24 --first 10.78.0.100 --last 10.78.0.199 >/dev/null
cli flavor create small --ram 512 --disk 0 --vcpus 1 >/dev/null
property=()
[ "$firmware" = bios ] || property=(--property hw_firmware_type=uefi)
cli image create tenant --file "$work/tenant.img" --property OS=tenant --property OSFAMILY=linux "${property[@]}" >/dev/null
cli server create web1 --flavor small --image tenant --network lan --use-config-drive --wait >/dev/null
address=$(cli server show web1 -f json | jq -r '[.addresses[][].addr][0]')
say "web1 is ACTIVE with the address $address, by $firmware"

echo "$address $(image host_key)" >"$work/tenant_hosts"
options=(-F none -o ConnectTimeout=20 -o LogLevel=ERROR -o PreferredAuthentications=password)
tenant() { inside sshpass -e ssh "${options[@]}" -o UserKnownHostsFile="$work/tenant_hosts" -o StrictHostKeyChecking=yes "root@$address" "$@"; }
rescued() { inside sshpass -e ssh "${options[@]}" -o UserKnownHostsFile="$work/rescue_hosts" -o StrictHostKeyChecking=yes "rescue@$address" "$@"; }
# Its ssh answers (status 5 is a refused password), so its own system is up.
refuses() {
	local answer=0
	SSHPASS=guess tenant true || answer=$?
	[ "$answer" = 5 ]
}
until_true 60 "the server's own system" refuses
proof "its own system runs and refuses a guessed password"

SSHPASS=rescue-$(head -c 9 /dev/urandom | base64 | tr -d '/+=')
export SSHPASS
asked=$(date +%s%N)
ssh-keygen -q -t ed25519 -N '' -f "$work/id"
printf '%s\n' "$SSHPASS" | cli server rescue web1 --password-file - --key "$work/id.pub" --expires-in 1d --wait >"$work/rescue.txt"
say "web1 is in RESCUE, $(seconds "$asked") s after the request"
told=$(sed -n 's/^ssh host key: //p' "$work/rescue.txt")
[ -n "$told" ] || die "the fingerprint of the ssh host key was not told"
# A key that the network shows is trusted only if its fingerprint is the one that was told.
scan() { inside ssh-keyscan -T 2 "$address" 2>/dev/null | grep -v '^#' >"$work/scanned"; }
until_true 60 "the ssh host key of the rescue system" scan
while read -r key; do
	[ "$(ssh-keygen -lf - <<<"$key" | awk '{ print $2 }')" != "$told" ] || echo "$key" >>"$work/rescue_hosts"
done <"$work/scanned"
[ -s "$work/rescue_hosts" ] || die "another ssh host key than $told answers"
until_true 60 "an ssh prompt of the rescue system" rescued true
prompt=$(seconds "$asked")
proof "the ssh host key is the one that the control plane told"
cli server ssh web1 -F none -i "$work/id" -o BatchMode=yes true || die "salvor server ssh does not log in by the key"
proof "salvor server ssh logs in by the key"
proof "an ssh prompt with the rescue password, $prompt s after the request"
[ "${DEMO_STRICT:-0}" != 1 ] || awk -v s="$prompt" 'BEGIN { exit s > 15 }' || die "the ssh prompt took $prompt s, more than 15 s"
[ "$(cli server show web1 -f value -c status)" = RESCUE ] || die "the status is not RESCUE"
rescued 'ls /sys/block' | grep -x vda >/dev/null || die "the server's own disk is not the first disk"
proof "its own disk is the first disk, as ever"

new=mended-$(head -c 9 /dev/urandom | base64 | tr -d '/+=')
hash=$(printf '%s' "$new" | openssl passwd -6 -stdin)
rescued "set -e; mkdir -p /mnt; mount /dev/vda2 /mnt
sed -i 's|^root:[^:]*:|root:$hash:|' /mnt/etc/shadow; echo mended >/mnt/etc/mend; sync; umount /mnt"
say "mended: the system on the disk has a new password"

back=$(date +%s%N)
cli server unrescue web1 --wait >/dev/null
SSHPASS=$new
until_true 60 "the server's own system" tenant true
[ "$(tenant 'cat /etc/marker /etc/mend')" = "$(image marker)"$'\n'mended ] || die "another system answers"
proof "its own system is back, $(seconds "$back") s after the request, with the mend in it"
[ "$(cli server show web1 -f value -c status)" = ACTIVE ] || die "web1 is not ACTIVE"
cli server delete web1 --wait >/dev/null
if grep -rqF -e "$new" -e "rescue-" "$work/serve.log"; then die "a password is in the log"; fi
say "done: $firmware, ssh prompt after $prompt s"
