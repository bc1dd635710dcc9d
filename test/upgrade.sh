#!/bin/bash
# upgrade.sh COMMIT: runs the stories that start a server with the program of a former release, and then with this tree's.
# The history must hold that commit.
set -euo pipefail
cd "$(dirname "$0")/.."
former=$(mktemp -d)
trap 'rm -rf "$former"' EXIT
git clone -q . "$former/tree"
git -C "$former/tree" -c advice.detachedHead=false checkout -q "$1"
mkdir "$former/bin"
for program in salvor salvor-agent; do
	(cd "$former/tree" && CGO_ENABLED=0 go build -o "$former/bin/$program" "./cmd/$program")
done
echo "the former release is $(git -C "$former/tree" log -1 --format='%h of %cs')"
export SALVOR_BIN=$former/bin:$PWD/bin
go test -tags upgrade -count 1 -timeout 20m -v -run TestUpgrade ./test/crash
go test -vet=off -tags e2e,upgrade -count 1 -timeout 30m -v -run TestUpgrade ./test/evacuate
