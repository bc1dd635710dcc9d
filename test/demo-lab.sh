# What the demos with a machine in the lab share. It is sourced, with road, bmc, firmware, boot and ramdisk set.

salvor=$PWD/bin/salvor
work=$(mktemp -d "${TMPDIR:-/tmp}/salvor-demo.XXXXXX")
lab() { local verb=$1; shift; "${salvor}-lab" lab "$verb" --state-dir "$work" --name demo "$@"; }
inside() { "${salvor}-lab" lab exec --state-dir "$work" --name demo -- "$@"; }
serve= postgres= database=
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
	[ -z "$postgres" ] || stop_postgres
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

# build_ramdisk PROFILE: builds $ramdisk, unless it is there and not older than the agent. Two demos that run at once build it once.
build_ramdisk() {
	local lock
	mkdir -p build
	exec {lock}>"$ramdisk.lock"
	flock "$lock"
	if [ ! -f "$ramdisk/manifest.json" ] || [ bin/salvor-agent -nt "$ramdisk/manifest.json" ]; then
		"$salvor" ramdisk build --profile "$1" --out "$ramdisk" >/dev/null
		say "the rescue ramdisk is built"
	fi
	exec {lock}>&-
}
machine() { jq -r ".machines[0].$1" "$work/lab.json"; }
cli() { inside "$salvor" "$@"; }

# start_postgres: starts a PostgreSQL of its own, on a Unix socket, for salvor's records. $postgres is its directory.
start_postgres() {
	local bin
	bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
	postgres=$(mktemp -d "${TMPDIR:-/tmp}/salvor-pg.XXXXXX")
	[ "$(id -u)" != 0 ] || chown postgres "$postgres"
	as_postgres "$bin/initdb" -D "$postgres/data" -U postgres -A trust -E UTF8 --no-sync --locale=C.UTF-8 >/dev/null
	as_postgres "$bin/pg_ctl" -D "$postgres/data" -l "$postgres/log" -w -o "-k $postgres -c listen_addresses= -c fsync=off" start >/dev/null
	query 'CREATE ROLE salvor LOGIN' 'CREATE DATABASE salvor OWNER salvor' >/dev/null
	database="postgres://salvor@/salvor?host=$postgres"
}
stop_postgres() {
	as_postgres "$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)/pg_ctl" -D "$postgres/data" -m immediate stop >/dev/null 2>&1 || true
	rm -rf "$postgres"
}
# as_postgres COMMAND: PostgreSQL does not run as root.
as_postgres() { if [ "$(id -u)" = 0 ]; then (cd / && setpriv --reuid postgres --regid postgres --init-groups -- "$@"); else "$@"; fi; }
# query STATEMENT...: runs statements as the superuser.
query() {
	local statements=() s
	for s in "$@"; do statements+=(-c "$s"); done
	psql -h "$postgres" -U postgres -d "${query_in:-postgres}" -qtA -v ON_ERROR_STOP=1 "${statements[@]}"
}

# start_serve: starts the control plane, and waits until it answers.
start_serve() {
	"${salvor}-lab" lab exec --state-dir "$work" --name demo -- "$salvor" serve --config "$work/salvor.conf" --state-dir "$work/state" >>"$work/serve.log" 2>&1 &
	serve=$!
	for _ in $(seq 200); do
		inside curl -sf http://127.0.0.1:6385/healthz >/dev/null 2>&1 && return
		kill -0 "$serve" 2>/dev/null || die "salvor serve did not start"
		sleep 0.1
	done
	die "salvor serve does not answer"
}

# describe_network ADDRESS: tells salvor the fixed address of m1.
describe_network() {
	cat >"$work/network" <<END
{"links": [{"id": "l", "type": "phy", "ethernet_mac_address": "$(machine mac)"}],
 "networks": [{"id": "n", "network_id": "n", "type": "ipv4", "link": "l", "ip_address": "$1", "netmask": "255.255.255.0"}],
 "services": []}
END
	cli node set m1 --network-data "$work/network" >/dev/null
}

# make_debian IMAGE ADDRESS KEY: a Debian 12 whose root file system begins at $offset.
make_debian() {
	test/debian-disk.sh "$1" "$PWD/build/debian-12.tar" "$2/24" "$3"
	offset=$(sfdisk -J "$1" | jq '.partitiontable.partitions[1].start * 512')
}

# make_broken_debian IMAGE ADDRESS KEY: a Debian 12 whose fstab names a disk that is gone, and whose sshd has a word in its configuration that no sshd
# knows.
make_broken_debian() {
	local offset
	make_debian "$1" "$2" "$3"
	add_line "$1" "$offset" /etc/fstab 'UUID=6f1f2d5e-9c1b-4f0e-8f0d-2c9b6d1c7a55 /srv ext4 defaults 0 2'
	add_line "$1" "$offset" /etc/ssh/sshd_config 'PermitRootLogins yes'
}

# set_up_broken_debian: has a machine in the lab, a ramdisk that diagnoses, and a broken Debian for its $disk in $work/debian.img, which lets in who has
# $work/id. $address is the one that the machine has on its tenant's network.
set_up_broken_debian() {
	build_ramdisk diagnose
	lab up --bmc "$bmc" --firmware "$firmware" >"$work/lab.json"
	address=$(machine tenant_address)
	disk=$(dirname "$(machine serial_log)")/disk.img
	ssh-keygen -q -t ed25519 -N '' -f "$work/id"
	mkdir -p build
	make_broken_debian "$work/debian.img" "$address" "$work/id.pub"
}

# add_line IMAGE OFFSET PATH LINE: adds a line to a file of the file system at that offset.
add_line() {
	debugfs -R "dump $3 $work/file" "$1?offset=$2" 2>/dev/null
	printf '%s\n' "$4" >>"$work/file"
	printf 'rm %s\nwrite %s %s\n' "$3" "$work/file" "$3" | debugfs -w -f - "$1?offset=$2" >/dev/null 2>&1
}

# tenant_ssh COMMAND: runs a command in the machine's own Debian, whose host key has to be that of its disk. $address, $work/id and
# $work/debian.img.host-key name them.
tenant_ssh() {
	echo "$address $(cat "$work/debian.img.host-key")" >"$work/known_hosts"
	inside ssh -F none -i "$work/id" -o BatchMode=yes -o ConnectTimeout=20 -o LogLevel=ERROR -o UserKnownHostsFile="$work/known_hosts" \
		-o StrictHostKeyChecking=yes "root@$address" "$@"
}

# enrol_machine: starts salvor in the lab, and has it adopt the machine as m1. The array options may hold more options of `salvor node create`.
enrol_machine() {
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
rescue_kernel = $ramdisk/kernel
rescue_ramdisk = $ramdisk/initramfs
${database:+[database]
connection = $database}
END
	start_serve
	if [ "$bmc" = redfish ]; then
		info=(--driver-info redfish_address="$(machine address)" --driver-info redfish_username="$(machine user)" --driver-info redfish_password="$(machine password)")
	else
		info=(--driver-info ipmi_address="$(machine address)" --driver-info ipmi_port="$(machine port)" --driver-info ipmi_username="$(machine user)" --driver-info ipmi_password="$(machine password)")
	fi
	cli node create --driver "$bmc" --name m1 --network-interface bridge --boot-interface "$boot" --property capabilities="boot_mode:$firmware" "${info[@]}" ${options[@]+"${options[@]}"} >/dev/null
	cli port create --node "$(cli node show m1 -f value --fields uuid)" "$(machine mac)" --local-link-connection port_id="$(machine port_id)" --local-link-connection switch_id=52:54:00:00:00:01 >/dev/null
	cli node manage m1 --wait >/dev/null 2>&1
	cli node adopt m1 --wait >/dev/null 2>&1
	say "enrolled and adopted: m1 is active"
}
