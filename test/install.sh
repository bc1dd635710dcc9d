#!/bin/bash
# install.sh PURPOSE...: installs the missing Debian packages of test/packages/PURPOSE, and nothing else: no upgrade, nothing that is
# merely recommended, and no daemon that the packages bring is started. What apt says is shown only when it fails.
# install.sh --missing PURPOSE... prints them, without root.
set -euo pipefail
cd "$(dirname "$0")"

if [ "${1:-}" = --missing ]; then
	print=1
	shift
else
	print=
fi
[ $# -gt 0 ] || { echo "usage: install.sh [--missing] PURPOSE...; a purpose is one of: $(cd packages && echo *)" >&2; exit 2; }

missing=()
while read -r package; do
	status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) || status=
	[ "$status" = "install ok installed" ] || missing+=("$package")
done < <(cd packages && cat -- "$@" | grep -v '^#' | sort -u)
if [ "$print" ]; then
	echo "${missing[*]}"
	exit 0
fi
if [ ${#missing[@]} = 0 ]; then
	exit 0
fi

if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "packages: installing them needs root and there is no sudo; as root: apt-get install --no-install-recommends ${missing[*]}" >&2
		exit 1
	fi
	echo "packages: installing needs root: this goes on by sudo"
	exec sudo -- "$(realpath "$0")" "$@"
fi
echo "packages: installing ${#missing[@]} for $*: ${missing[*]}"
log=$(mktemp)

# Debian asks this program before it starts a daemon; 101 forbids it. What was there before is put back.
policy=/usr/sbin/policy-rc.d
kept=
restore() {
	status=$?
	rm -f "$policy"
	if [ -n "$kept" ]; then mv "$kept" "$policy"; fi
	if [ "$status" != 0 ]; then
		echo "packages: apt-get failed, and said:" >&2
		cat "$log" >&2
	fi
	rm -f "$log"
}
trap restore EXIT
trap 'exit 130' INT TERM HUP
mark='# of the salvor tests'
if grep -qs "$mark" "$policy"; then
	rm -f "$policy" # left behind by a run that was killed
fi
if [ -e "$policy" ] || [ -L "$policy" ]; then
	kept=$(mktemp -u "$policy.salvor.XXXXXX")
	mv "$policy" "$kept"
fi
printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
get=(apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
fresh() { "${get[@]}" --simulate install --no-install-recommends "${missing[@]}"; }
install() { "${get[@]}" install -y --no-install-recommends --no-upgrade "${missing[@]}"; }
{
	fresh || "${get[@]}" update
	if ! install; then
		# Lists that are out of date name files that are gone.
		"${get[@]}" update
		install
	fi
} >"$log" 2>&1
echo "packages: installed"
