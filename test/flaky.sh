#!/bin/bash
# Runs the tests of each package ROUNDS times (30) at low priority with GOMAXPROCS=1, and prints each test that failed. LOAD (20) test
# programs run at once, so each is under the load of the others. PACKAGES chooses packages (./...), TESTS is a regular expression of test
# names. Sweeps run in their short form, as in make check.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROUNDS=${ROUNDS:-30} TESTS=${TESTS:-.}
load=${LOAD:-20}
programs=$(mktemp -d)
failed=$(mktemp -d -t flaky-XXXXXX) # what failed rounds said, whole
export programs failed
trap 'rm -rf "$programs"' EXIT
trap 'exit 130' INT TERM

read -ra packages <<<"${PACKAGES:-./...}"
root=$PWD
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "${packages[@]}" >"$programs/folders"
while read -r folder; do
	name=${folder#"$root"}
	go test -c -o "$programs/${name//\//_}.test" "$folder"
done <"$programs/folders"

# run ROUND FOLDER: one round of one package.
run() {
	local round=$1 folder=$2 name=${2#"$PWD"}
	local out=$programs/${name//\//_}.$round
	if ! (cd "$folder" && nice -n 10 "$programs/${name//\//_}.test" -test.short -test.timeout 60m -test.run "$TESTS") >"$out" 2>&1; then
		echo "$name" >>"$programs/failed"
		echo "flaky: .$name failed in round $round:"
		grep -E -- '--- FAIL|^panic|_test.go:' "$out" | head -n 40 || tail -n 40 "$out"
		mv "$out" "$failed/"
	fi
	rm -f "$out"
}
export -f run
export GOMAXPROCS=1
touch "$programs/failed"
for round in $(seq "$ROUNDS"); do
	sed "s|^|$round |" "$programs/folders"
done | xargs -P "$load" -n 2 bash -c 'run "$@"' run
while read -r folder; do
	name=${folder#"$root"}
	bad=$(grep -cxF -- "$name" "$programs/failed" || true)
	[ "$bad" = 0 ] || echo "flaky: .$name failed in $bad of $ROUNDS rounds"
done <"$programs/folders"
echo "flaky: $(wc -l <"$programs/folders") packages, $ROUNDS rounds each, $load at once, $(wc -l <"$programs/failed") failed rounds"
[ -s "$programs/failed" ] && echo "flaky: all that they said is in $failed" || rmdir "$failed"
[ ! -s "$programs/failed" ]
