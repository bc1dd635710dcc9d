#!/bin/bash
# Lets every fuzz target look for inputs of its own for FUZZTIME, four at a time with one worker each. What is of interest stays in
# Go's cache for the next time; an input that fails is written beside the target's seeds. FUZZ is a regular expression of target names.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${FUZZTIME:-5s} programs cache
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
cache=$(go env GOCACHE)/fuzz/$(go list -m)

target() {
	local folder=$1 name=$2 out
	out=$(cd "$folder" && "$programs/${folder//\//_}" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$FUZZTIME" \
		-test.fuzzcachedir "$cache/$folder" -test.parallel 1 2>&1) && return
	# A worker that is cut off by the end of its time is told as a failure now and then; there is no input to it.
	if [[ $out == *"context deadline exceeded"* && $out != *"Failing input written"* && $out != *panic:* ]]; then return; fi
	printf '%s %s:\n%s\n' "$folder" "$name" "$out"
	return 1
}
export -f target

targets=$(git ls-files --cached --others --exclude-standard '*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' |
	sed -E 's|^([^:]*)/[^/]*:func |\1 |' | awk -v wish="${FUZZ:-.}" '$2 ~ wish' | sort -u)
# Without paths in them, what another clone compiled serves here too.
for folder in $(cut -d ' ' -f 1 <<<"$targets" | uniq); do
	go test -c -fuzz . -trimpath -ldflags '-s -w' -o "$programs/${folder//\//_}" "./$folder"
done
echo "$(wc -l <<<"$targets") fuzz targets, $FUZZTIME each"
xargs -P 4 -n 2 bash -c 'target "$@"' target <<<"$targets"
