#!/bin/bash
# repair-rounds.sh [ROUNDS]: repairs a real machine again and again. In each round one thing fails at a random moment of one phase: the control plane is
# killed, the machine loses its power for 5 s, or its BMC does not answer for 20 s. All the while PostgreSQL cuts reads of the control plane at random. In
# the end the machine must be proven to work, or hold the bytes that it held before; any other end fails the run. SEED reproduces the order of a run.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10}
bmc=redfish firmware=bios boot=redfish-virtual-media
ramdisk=$PWD/build/ramdisk-diagnose
. test/demo-lab.sh
RANDOM=${SEED:=$((RANDOM * 32768 + RANDOM))}
say "seed $SEED"

start_postgres
set_up_broken_debian
name=$(machine name)
before=$(sha256sum <"$work/debian.img")
enrol_machine
describe_network "$address"

state() { cli repair show m1 -f json 2>/dev/null | jq -r .state; }
# await SECONDS STATE...: waits until the newest repair is in one of the states, and prints it.
await() {
	local until=$((SECONDS + $1)) now
	shift
	while [ "$SECONDS" -lt "$until" ]; do
		now=$(state) || now=
		case " $* " in *" $now "*) [ -z "$now" ] || { echo "$now"; return; } ;; esac
		sleep 0.2
	done
	echo "late:$now"
}
# reset_disk: the machine is off, and its disk is broken as in the beginning.
reset_disk() {
	for _ in $(seq 120); do
		# A repair shuts a machine down that was off, and this Debian does not listen to a power button.
		! cli node power off m1 --wait >/dev/null 2>&1 || break
		cli node abort m1 >/dev/null 2>&1 || true
		sleep 1
	done
	[ "$(cli node show m1 -f value --fields power_state)" = 'power off' ] || die "the machine stays on: $(cli why m1)"
	cp --sparse=always "$work/debian.img" "$disk"
}
reset_machine() {
	inside curl -sfk -u "$(machine user):$(machine password)" -H 'Content-Type: application/json' -d "{\"ResetType\": \"$1\"}" \
		"$(machine address)/redfish/v1/Systems/$name/Actions/ComputerSystem.Reset" >/dev/null || die "the BMC refuses $1"
}

# cli waits until no read is cut, so that only the jobs of the control plane meet the cuts, and no answer to this script does.
cli() { (flock 9 && inside "$salvor" "$@") 9>>"$work/lock"; }
# cut_reads: every 0.3 to 2 s, has all readers and writers of a table wait for a moment, and then ends the statements that wait, every other time with their
# connections. That is what a time-out of a statement or a lock, a restart of a pooler or an administrator does. $postgres/cuts counts them.
cut_reads() {
	local tables=(node document job contact) ends=(pg_cancel_backend pg_terminate_backend) n=0 cut
	RANDOM=$SEED
	while [ -d "$postgres" ] && sleep "$((RANDOM % 2)).$((3 + RANDOM % 7))"; do # until the run ends
		cut=$(exec 9>>"$work/lock" && flock 9 && query_in=salvor query 'BEGIN' "LOCK TABLE ${tables[$((RANDOM % 4))]}" "SELECT pg_sleep(0.$((1 + RANDOM % 5)))" \
			"SELECT count(${ends[$((RANDOM % 2))]}(pid)) FROM pg_stat_activity WHERE usename = 'salvor' AND wait_event_type = 'Lock' AND query ILIKE 'select%'" 'COMMIT' 2>/dev/null |
			tail -n 1) || continue
		n=$((n + ${cut:-0}))
		echo "$n" >"$work/cuts"
	done
}
cut_reads &
cutter=$!
cuts() { cat "$work/cuts" 2>/dev/null || echo 0; }

reset_disk
cli repair m1 --plan >"$work/plan"
digest=$(sed -n 's/^digest: //p' "$work/plan")
[ -n "$digest" ] || die "no plan: $(cat "$work/plan")"
say "the plan has the digest ${digest:0:12}"
phases=(planning writing booting) faults=(kill power bmc)
for round in $(seq "$rounds"); do
	reset_disk
	earlier=$(cuts)
	phase=${phases[$((round % 3))]} fault=${faults[$((RANDOM % 3))]}
	cli repair m1 --digest "$digest" >"$work/asked" 2>&1 || die "round $round: $(cat "$work/asked")"
	reached=$(await 300 "$phase" proven failed rolled-back unproven)
	sleep "0.$((RANDOM % 9))"
	[ "$phase" != planning ] || sleep $((RANDOM % 30))
	case $fault in
	kill)
		pid=$(pgrep -o -f "^$salvor serve --config $work/") || die "salvor serve does not run" # $serve is the program that began it in the lab
		kill -9 "$pid"
		wait "$serve" 2>/dev/null || true
		start_serve
		;;
	power)
		reset_machine ForceOff
		sleep 5
		reset_machine On
		;;
	bmc)
		lab fault "$name" down
		sleep 20
		lab fault "$name" none
		;;
	esac
	end=$(await 900 proven failed rolled-back unproven interrupted)
	content=other
	[ "$before" != "$(sha256sum <"$disk")" ] || content=before
	why=$(cli repair show m1 -f json | jq -r '.problem // ""')
	[ "$reached" = "$phase" ] || die "round $round: it was never $phase: $reached: $why"
	say "round $round: $fault while $reached: $end${why:+ ($why)}; the disk holds $([ "$content" = before ] && echo 'what it held before' || echo 'the repaired system'); $(($(cuts) - earlier)) reads were cut"
	case $end:$content in
	proven:other) [ "$(tenant_ssh hostname)" = debian ] || die "round $round: nobody can log in" ;;
	failed:before | rolled-back:before) ;;
	*) die "round $round: $end, and the disk holds $content: $(cli repair show m1)" ;;
	esac
	for _ in $(seq 300); do
		[ "$(cli node show m1 -f value --fields provision_state)" != active ] || break
		sleep 1
	done
	[ "$(cli node show m1 -f value --fields provision_state)" = active ] || die "round $round: the node is $(cli why m1)"
done
kill "$cutter"
[ "$(cuts)" -gt 0 ] || die "no read of the database was ever cut"
proof "$rounds rounds with $(cuts) cut reads: each machine works, or holds what it held before"
