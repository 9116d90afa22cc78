# shellcheck shell=sh disable=SC2154 # src is the caller's
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Sourced by what must run on a fresh Debian machine: makes sure that the
# packages of sections of packages.txt are there. $src is the source tree.

packages_of() {
	awk -v want="[$1]" '/^\[/ { on = $0 == want; next }
		on && /^[a-z0-9]/ { print $1 }' "$src/fabtests/packages.txt"
}

# packages_need SECTION...: installs what is missing, or says what to install.
packages_need() {
	command -v dpkg-query >/dev/null || {
		echo "not a Debian system; needed are the equivalents of:" \
			"$(for section; do packages_of "$section"; done | tr '\n' ' ')" >&2
		return 0
	}
	missing=$(for section; do packages_of "$section"; done | sort -u |
		while read -r package; do
			status=$(dpkg-query -W -f '${db:Status-Status}' \
				"$package" 2>/dev/null)
			[ "$status" = installed ] || printf '%s ' "$package"
		done)
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		echo "packages are missing; as root, run:" >&2
		echo "  apt-get install --no-install-recommends $missing" >&2
		return 1
	fi
	echo "installing $missing" >&2
	packages_log=$(mktemp) || return 1
	# shellcheck disable=SC2086 # a list of words
	{
		apt-get -q update &&
			DEBIAN_FRONTEND=noninteractive apt-get -q -y install \
				--no-install-recommends $missing
	} >"$packages_log" 2>&1 || {
		tail -n 20 "$packages_log" >&2
		echo "apt-get failed (all of it: $packages_log)" >&2
		return 1
	}
	rm -f "$packages_log"
}

# source_tree BUILD: prints what to configure from. That is $src; but automake
# refuses to build elsewhere from a tree that was built in itself, and then it is
# a copy of the sources in BUILD.
source_tree() {
	[ -e "$src/config.status" ] || {
		echo "$src"
		return
	}
	git -C "$src" rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
		echo "$src was configured in itself: run make distclean there first" >&2
		return 1
	}
	rm -rf "$1/source" && mkdir -p "$1/source" || return
	(cd "$src" && git ls-files -z --cached --others --exclude-standard |
		tar --null --ignore-failed-read -T - -cf -) |
		tar -C "$1/source" -xf - || return
	echo "$1/source"
}
