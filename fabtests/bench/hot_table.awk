# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# hot's table, or with -v check=true its verdict, from lines of
#
#	time SUBJECT OPERATION FORMAT OPERATIONS NS-EACH
#	count SUBJECT OPERATION FORMAT OPERATIONS ALL OUTSIDE-OF-THE-DEVICE
#
# All figures are per operation.

BEGIN {
	promised = 120	# instructions over raw verbs of a send with completion
	half = 0.5	# and of what verbs has over raw verbs
	safe = 1.15	# FI_THREAD_SAFE to FI_THREAD_DOMAIN, device and all
}

$1 != "time" && $1 != "count" { bad = "not a figure: " $0; exit }

{
	op = $3 " " $4
	if (!(op in seen)) {
		seen[op] = 1
		ops[++op_cnt] = op
	}
	key = $2 " " op
}

# What disturbs makes it longer: the shortest is the nearest to the truth.
$1 == "time" && (!(key in ns) || $6 < ns[key]) { ns[key] = $6 + 0 }

$1 == "count" {
	all[key] = $6 / $5
	own[key] = $7 / $5
}

# Raw verbs have one format of completions, msg; or so we call it.
function raw(op) {
	sub(/ .*/, " msg", op)
	return "raw " op
}

function over(subject, op,    key, base) {
	key = subject " " op
	if (!(key in own))
		return "-"
	base = raw(op)
	return sprintf("%+.0f (%+.0f), %+.1f ns", own[key] - own[base],
		all[key] - all[base], ns[key] - ns[base])
}

function table(    i, op, base) {
	print "| operation | raw verbs | vrc | vrc, FI_THREAD_SAFE |" \
		" verbs | verbs, FI_THREAD_SAFE |"
	print "|---|---|---|---|---|---|"
	for (i = 1; i <= op_cnt; i++) {
		op = ops[i]
		base = raw(op)
		printf "| %s | %.0f (%.0f), %.1f ns | %s | %s | %s | %s |\n",
			label(op), own[base], all[base], ns[base],
			over("vrc", op), over("vrc-safe", op),
			over("verbs", op), over("verbs-safe", op)
	}
}

function label(op,    word) {
	split(op, word, " ")
	if (word[1] == "sent" || word[1] == "received")
		return word[1] ", " toupper(word[2])
	return word[1]
}

# verdict TEXT VALUE LIMIT
function verdict(text, value, limit) {
	printf "%s %s: %.1f, at most %.1f\n", value <= limit ? "ok" : "FAILED",
		text, value, limit
	if (value > limit)
		failed = 1
}

function judge(    op, base) {
	op = "send+complete msg"
	base = own["raw " op]
	verdict("instructions of a send with completion over raw verbs",
		own["vrc " op] - base, promised)
	verdict("the same, half of what verbs needs",
		own["vrc " op] - base, half * (own["verbs " op] - base))
	verdict("the same with FI_THREAD_SAFE, device and all",
		all["vrc-safe " op], safe * all["vrc " op])
}

END {
	if (bad == "" && !("raw send+complete msg" in own) ||
	    !("vrc send+complete msg" in own) ||
	    !("vrc-safe send+complete msg" in own) ||
	    !("verbs send+complete msg" in own))
		bad = "figures are missing"
	if (bad != "") {
		print "hot: " bad >"/dev/stderr"
		exit 1
	}
	if (check == "true")
		judge()
	else
		table()
	exit failed
}
