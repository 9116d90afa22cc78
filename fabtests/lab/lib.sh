# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What the host-side scripts share: how they fail, which package brings which
# tool, and where the cache is. Sourced, never run.

# The caller's PATH goes to the guest as it is; a plain user's has no sbin.
# shellcheck disable=SC2034 # used by run
lab_caller_path=$PATH
PATH=$PATH:/usr/sbin:/sbin

# 125 is the lab's own failure, as docker and timeout have it: it cannot be
# told from a command that exits with 125, so every such exit has a message.
lab_die() {
	echo "lab: $*" >&2
	exit 125
}

lab_package_of() {
	case $1 in
	qemu-system-x86_64) echo qemu-system-x86 ;;
	apt-get | apt-cache) echo apt ;;
	dpkg-deb) echo dpkg ;;
	depmod | modprobe) echo kmod ;;
	ip | rdma) echo iproute2 ;;
	xz) echo xz-utils ;;
	strip) echo binutils ;;
	perl) echo perl-base ;;
	setpriv | flock) echo util-linux ;;
	*) echo "$1" ;;
	esac
}

# lab_need TOOL...: name everything that is missing at once, and the cure. No
# tool is used for it.
lab_need() {
	local tool missing='' package packages=' '

	for tool; do
		command -v "$tool" >/dev/null && continue
		missing+=" $tool"
		package=$(lab_package_of "$tool")
		[[ $packages == *" $package "* ]] || packages+="$package "
	done
	[[ -z $missing ]] || lab_die "missing:$missing" \
		"(as root: apt-get install --no-install-recommends${packages% })"
}

# Sets lab_cache. The kernel's make cannot work below a path with blanks.
lab_find_cache() {
	lab_cache=${VRC_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/vrc-lab}
	mkdir -p "$lab_cache" || lab_die "cannot create the cache $lab_cache"
	lab_cache=$(realpath "$lab_cache")
	[[ -w $lab_cache ]] || lab_die "cannot write to the cache $lab_cache"
	[[ $lab_cache != *[[:space:]:]* ]] ||
		lab_die "blank or colon in the cache's path: $lab_cache" \
			"(set VRC_LAB_CACHE)"
}
