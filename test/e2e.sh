#!/bin/bash
# Runs the tests that need QEMU or namespaces, package by package and one at a time. Only the
# tests that the build tag adds: all others of those packages have run under the race detector.
# E2E is a regular expression of test names that chooses among them.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*_test.go' | xargs -r grep -l '^//go:build e2e')
mapfile -t folders < <(printf '%s\n' "${files[@]}" | xargs -rn1 dirname | sort -u)
status=0
# The long rounds take hours.
limit=20m
[ -z "${SALVOR_SOAK:-}" ] || limit=4h
for folder in "${folders[@]}"; do
	tests=$(for f in "${files[@]}"; do
		if [ "$(dirname "$f")" = "$folder" ]; then sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' "$f"; fi
	done | grep -vx TestMain | grep -E -- "${E2E:-.}" | sort -u | paste -sd '|') || continue
	go test -tags e2e -p 1 -parallel 1 -count 1 -timeout "$limit" -run "^($tests)\$" "./$folder" || status=1
done
# This demo is a test too; "make test" runs the other two.
[ -n "${E2E:-}" ] || test/demo-evacuate.sh || status=1
exit $status
