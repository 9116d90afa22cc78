# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# What one dump of callgrind counted (--compress-strings=no --compress-pos=no):
# prints all instructions, and those outside of the device.
#
#	awk -v device=REGEX -f hot_count.awk DUMP
#
# REGEX matches the paths of the device's shared objects. All that is called
# there, from outside, is the device's, down to what it calls in the C library.

/^summary:/ { all = $2 }
/^ob=/ { object = substr($0, 4) }
/^cob=/ { called = substr($0, 5) }
/^cfn=/ { if (called == "") called = object }
/^calls=/ {
	# The next line is the place of the call and what it cost.
	getline
	if (object !~ device && called ~ device)
		inside += $2
	called = ""
}
END {
	if (all == "") {
		print "no dump of callgrind" >"/dev/stderr"
		exit 1
	}
	print all, all - inside
}
