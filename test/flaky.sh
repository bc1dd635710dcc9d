#!/bin/bash
# Runs the tests of each package ROUNDS times (30) with GOMAXPROCS=1 and at low priority, beside LOAD (20) busy processes of the lowest
# priority, and lists each test that failed. PACKAGES chooses packages (./...), TESTS is a regular expression of test names.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-30}
programs=$(mktemp -d)
load=()
finish() {
	[ ${#load[@]} = 0 ] || kill "${load[@]}" 2>/dev/null || true
	rm -rf "$programs"
}
trap finish EXIT
trap 'exit 130' INT TERM

read -ra packages <<<"${PACKAGES:-./...}"
mapfile -t folders < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "${packages[@]}")
root=$PWD
for folder in "${folders[@]}"; do
	name=${folder#"$root"}
	go test -c -o "$programs/${name//\//_}.test" "$folder"
done
for _ in $(seq "${LOAD:-20}"); do
	nice -n 19 timeout 12h bash -c 'while :; do :; done' &
	load+=($!)
done
export GOMAXPROCS=1
failed=0
for folder in "${folders[@]}"; do
	name=${folder#"$root"}
	program=$programs/${name//\//_}.test
	from=$SECONDS bad=0
	for round in $(seq "$rounds"); do
		if ! (cd "$folder" && nice -n 10 "$program" -test.short -test.timeout 60m -test.run "${TESTS:-.}") >"$programs/out" 2>&1; then
			bad=$((bad + 1))
			echo "flaky: .$name failed in round $round:"
			grep -E -- '--- FAIL|^panic|_test.go:' "$programs/out" | head -n 40 || tail -n 40 "$programs/out"
		fi
	done
	failed=$((failed + bad))
	echo "flaky: .$name: $rounds rounds, $bad failed, $((SECONDS - from)) s"
done
echo "flaky: ${#folders[@]} packages, $rounds rounds each, $failed failed rounds"
[ "$failed" = 0 ]
