#!/bin/bash
# Runs the tests that need QEMU or namespaces, two at a time: of two packages, or, with E2E_PAIRS, of one package, where its tests are parallel. Only
# the tests that the build tag adds: all others of those packages have run before. E2E is a regular expression of test names that chooses.
# A test that fails is run once more, alone, when all others have ended (see test/runner).
set -euo pipefail
cd "$(dirname "$0")/.."
# A package of real machines takes up to 20 minutes on idle cores, and one guest with all odd network data an hour. The long rounds take hours.
limit=40m
[ -z "${SALVOR_SWEEP:-}" ] || limit=90m
[ -z "${SALVOR_SOAK:-}" ] || limit=4h

# The longest packages come first, and the others pass them by: one mostly waits for leases to lapse, one has all demos, one all network data.
tests=$(git ls-files --cached --others --exclude-standard '*_test.go' | xargs -r grep -l '^//go:build.*e2e' | xargs -r grep -HoE '^func Test[A-Za-z0-9_]*' |
	sed -E 's|^([^:]*)/[^/]*:func |./\1 |' | awk -v wish="${E2E:-.}" '$2 != "TestMain" && $2 ~ wish' | sort -u)
[ -n "$tests" ] || { echo "e2e: no test has a name that matches E2E=$E2E" >&2; exit 1; }
names=$(cut -d ' ' -f 2 <<<"$tests" | sort -u | paste -sd '|')
mapfile -t folders < <(cut -d ' ' -f 1 <<<"$tests" | sort -u | awk '{ print ($1 ~ "^./(test/(demos|evacuate)|agent/network)$" ? 0 : 1), $1 }' | sort | cut -d ' ' -f 2)
packages=2 of_each=1
[ -z "${E2E_PAIRS:-}" ] || { packages=1 of_each=2; }
exec go run ./test/runner -again -name e2e -- -vet=off -tags e2e -p "$packages" -parallel "$of_each" -count 1 -timeout "$limit" -run "^($names)\$" -- "${folders[@]}"
