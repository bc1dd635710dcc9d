#!/bin/bash
# Installs the Debian packages of test/packages that are missing, and nothing else: no
# upgrade, nothing that is merely recommended, and no daemon that the packages bring is started.
set -euo pipefail
cd "$(dirname "$0")"

missing=()
while read -r package; do
	case $package in '' | '#'*) continue ;; esac
	status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) || status=
	[ "$status" = "install ok installed" ] || missing+=("$package")
done <packages
command -v gcc >/dev/null || missing+=(gcc libc6-dev) # the race detector links by it
if [ ${#missing[@]} = 0 ]; then
	echo "packages: all there"
	exit 0
fi
echo "packages: missing: ${missing[*]}"

if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "packages: installing them needs root and there is no sudo; as root: apt-get install --no-install-recommends ${missing[*]}" >&2
		exit 1
	fi
	echo "packages: installing them needs root: going on by sudo"
	exec sudo -- "$(realpath "$0")"
fi

# Debian asks this program before it starts a daemon; 101 forbids it. What was there before is put back.
policy=/usr/sbin/policy-rc.d
kept=
restore() {
	rm -f "$policy"
	if [ -n "$kept" ]; then mv "$kept" "$policy"; fi
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
get=(apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
fresh() { "${get[@]}" --simulate install --no-install-recommends "${missing[@]}" >/dev/null 2>&1; }
fresh || "${get[@]}" update
install() { "${get[@]}" install -y --no-install-recommends --no-upgrade "${missing[@]}"; }
if ! install; then
	# Lists that are out of date name files that are gone.
	"${get[@]}" update
	install
fi
