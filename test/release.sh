#!/bin/bash
# Builds the release of the last commit in two clones that differ in path, depth, umask, time zone and language, and compares the bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
git clone --quiet . "$dir/one"
git clone --quiet --depth 1 --no-tags "file://$PWD" "$dir/another-place"
(cd "$dir/one" && umask 022 && TZ=UTC LC_ALL=C make --no-print-directory release)
(cd "$dir/another-place" && umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 make --no-print-directory release)
if ! diff "$dir"/{one,another-place}/build/release/SHA256SUMS; then
	echo "release: two builds of one commit differ" >&2
	exit 1
fi
cd "$dir/one/build/release"
sha256sum --check --strict --quiet SHA256SUMS
program=$(echo salvor-[0-9]*-linux-"$(dpkg --print-architecture)")
commit=$(git -C "$dir/one" rev-parse HEAD)
"./$program" version | grep -F "(commit $commit, " || { echo "release: $program does not name the commit $commit" >&2; exit 1; }
echo "release: two builds of one commit are the same $(wc -l <SHA256SUMS) files"
