#!/bin/bash
# make demo: a machine is brought back, on real parts. DEMO chooses how. By default its Debian
# does not boot any more: test/demo-repair.sh. In the others a password is forgotten:
#   forgotten  virtual media through a Redfish BMC, BIOS
#   ipmi       iPXE through an IPMI BMC, BIOS
#   uefi       UEFI HTTP boot through a Redfish BMC
#   uefi-media virtual media through a Redfish BMC, UEFI
# ODD has lines, each an oddity of the Redfish BMC as salvor-lab lab up --odd takes it.
# It ends with status 0 only if every proof held.
set -euo pipefail
cd "$(dirname "$0")/.."
road=${DEMO:-repair}
[ "$road" != repair ] || exec test/demo-repair.sh
case $road in
forgotten)  bmc=redfish firmware=bios boot=redfish-virtual-media ;;
uefi-media) bmc=redfish firmware=uefi boot=redfish-virtual-media ;;
uefi)       bmc=redfish firmware=uefi boot=http ;;
ipmi)       bmc=ipmi firmware=bios boot=ipxe ;;
*) echo "demo: DEMO=$road is none of repair, forgotten, uefi-media, uefi, ipmi" >&2; exit 2 ;;
esac

ramdisk=$PWD/build/ramdisk
. test/demo-lab.sh

build_ramdisk minimal
say "a lab machine: $firmware firmware behind a $bmc BMC, a system on its disk whose password nobody knows"
odd=()
[ -z "${ODD:-}" ] || while IFS= read -r line; do odd+=(--odd "$line"); done <<<"$ODD"
lab up --bmc "$bmc" --firmware "$firmware" "${odd[@]}" >"$work/lab.json"
address=$(machine tenant_address)
# In a list of systems that cannot be read whole, salvor chooses no machine by itself.
[ -z "${ODD:-}" ] || options=(--driver-info redfish_system_id="$(machine system_id)")
enrol_machine

cli node power on m1 >/dev/null
known="$(machine host_key)"
echo "$address $known" >"$work/tenant_hosts"
# The time bounds the handshake too, which an emulated processor computes slowly beside other work.
options=(-o ConnectTimeout=20 -o LogLevel=ERROR -o PreferredAuthentications=password)
tenant() { inside sshpass -e ssh "${options[@]}" -o UserKnownHostsFile="$work/tenant_hosts" -o StrictHostKeyChecking=yes "root@$address" "$@"; }
rescued() { inside sshpass -e ssh "${options[@]}" -o UserKnownHostsFile="$work/rescue_hosts" -o StrictHostKeyChecking=yes "rescue@$address" "$@"; }
agent() { inside curl -sk -m 5 -o /dev/null -w '%{http_code}' "https://$address:9999/v1/commands/"; }
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
ssh-keygen -q -t ed25519 -N '' -f "$work/id"
printf '%s\n' "$SSHPASS" | cli node rescue m1 --rescue-password-file - --key "$work/id.pub" --expires-in 1d --wait
say "m1 is in rescue, $(seconds "$asked") s after the request"
echo "$address $(cli rescue-session show m1 -f value -c host_key)" >"$work/rescue_hosts"
until rescued true 2>/dev/null; do
	[ $(($(date +%s%N) - asked)) -lt 120000000000 ] || die "no ssh prompt within 120 s"
	sleep 0.1
done
prompt=$(seconds "$asked")
proof "an ssh prompt with the rescue password on the tenant network, $prompt s after the request"
cli node ssh --address "$address" m1 -F none -i "$work/id" -o BatchMode=yes true || die "salvor node ssh does not log in by the key"
proof "the host key is the one that the agent reported, with the password and with the key"
until code=$(agent); [ "$code" = 401 ]; do
	[[ $code != 2* ]] || die "the agent of the rescue answers without its token"
	[ $(($(date +%s%N) - asked)) -lt 180000000000 ] || die "the agent of the rescue does not serve: $code"
	sleep 0.2
done
proof "the agent of the rescue takes nothing without its token"

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
