#!/bin/bash
# Runs the tests that need QEMU or namespaces: two packages at a time, and of each package one test at a time. Only the tests that the
# build tag adds: all others of those packages have run under the race detector. E2E is a regular expression of test names that chooses.
set -euo pipefail
cd "$(dirname "$0")/.."
# The long rounds take hours.
export limit=20m
[ -z "${SALVOR_SOAK:-}" ] || limit=4h

package() {
	local folder=$1 tests=$2 out status=0
	out=$(go test -vet=off -tags e2e -parallel 1 -count 1 -timeout "$limit" -run "^($tests)\$" "./$folder" 2>&1) || status=1
	printf '%s\n' "$out"
	return $status
}
export -f package

# These demos are tests too; "make test" runs others.
demo() {
	local out
	[ -n "${E2E:-}" ] || out=$("test/$1.sh" 2>&1) || { printf '%s\n' "$out"; return 1; }
}
export -f demo

# The longest package mostly waits for leases to lapse, so it comes first, and the others pass it by.
tests=$(git ls-files --cached --others --exclude-standard '*_test.go' | xargs -r grep -l '^//go:build e2e' | xargs -r grep -HoE '^func Test[A-Za-z0-9_]*' |
	sed -E 's|^([^:]*)/[^/]*:func |\1 |' | awk -v wish="${E2E:-.}" '$2 != "TestMain" && $2 ~ wish' | sort -u |
	awk '{ tests[$1] = tests[$1] (tests[$1] ? "|" : "") $2 } END { for (folder in tests) print (folder == "test/evacuate" ? 0 : 1), folder, tests[folder] }' |
	sort | cut -d ' ' -f 2-)
{
	[ -z "$tests" ] || sed 's/^/package /' <<<"$tests"
	echo demo demo-evacuate -
	echo demo demo-repair -
} | xargs -P 2 -n 3 bash -c '"$@"' -
