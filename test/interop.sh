#!/bin/bash
# Runs the tests that ironic-tempest-plugin, ironicclient and openstacksdk ship in Debian against
# salvor under Debian's keystone; test/interop/expected holds how many have to pass.
# ONLY is a list of words: only tests whose names hold one of them. SUITE chooses one suite.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
SALVOR_INTEROP=1 SALVOR_INTEROP_ONLY="${ONLY:-}" \
	go test -tags e2e -count 1 -timeout 60m -v -run "^TestSuites\$/^${SUITE:-}" ./test/interop >"$out" 2>&1 || status=$?
if [ $status -ne 0 ]; then
	cat "$out"
fi
grep -E '^ +suite_test.go:[0-9]+: [a-z-]+: ([0-9]+ (passed|tests)|skipped:|failed:)' "$out" | sed -E 's/^ +suite_test.go:[0-9]+: //'
exit $status
