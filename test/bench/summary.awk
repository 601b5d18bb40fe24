# Ten figures of the output of `make bench`, as the table of README.md. Columns are found by their headings. A figure
# that is not there is an error: the README must not show a gap.

function trim(text) { gsub(/^ +| +$/, "", text); return text }

function figure(variant, pairs, daemon, column,    key) {
	key = variant "," pairs "," daemon "," column
	if (!(key in found)) {
		print "summary.awk: nothing found for " key > "/dev/stderr"
		failed = 1
	}
	return found[key]
}

function line(what, variant, pairs, column) {
	printf "| %s | %s | %s |\n", what, figure(variant, pairs, "mudevd", column), figure(variant, pairs, "udevd", column)
}

BEGIN { FS = "|" }

/, kernel .*udevd/ { machine = $0 }

/^\| variant / { for (i = 2; i < NF; i++) heading[i] = trim($i); in_table = 1; next }

!/^\|/ { in_table = 0 }

in_table && !/^\|-/ {
	for (i = 5; i < NF; i++) found[trim($2) "," trim($3) "," trim($4) "," heading[i]] = trim($i)
}

/^System calls per event/ { calls = 1; next }

calls && /^  / { split(trim($0), word, / +/); found["A,50," word[1] ",calls"] = word[2]; next }

{ calls = 0 }

END {
	printf "%s:\n\n", machine
	print "| | mudevd | udevd |"
	print "|---|---|---|"
	line("Debian's rules, 500 pairs: CPU, s", "A", 500, "CPU s")
	line("Debian's rules, 500 pairs: until all events are through, s", "A", 500, "wall s")
	line("Debian's rules, 500 pairs: memory of all processes, MB", "A", 500, "tree MB")
	line("Debian's rules, 500 pairs: another event waits, p99, ms", "A", 500, "p99 ms")
	line("Debian's rules, 2,000 pairs: another event waits, p99, ms", "A", 2000, "p99 ms")
	line("a program for each link too, 500 pairs: CPU, s", "B", 500, "CPU s")
	line("a program for each link too, 500 pairs: another event waits, p99, ms", "B", 500, "p99 ms")
	line("rules of 90 packages, 500 pairs: CPU, s", "F", 500, "CPU s")
	line("rules of 90 packages, 500 pairs: another event waits, p99, ms", "F", 500, "p99 ms")
	line("Debian's rules, 50 pairs: system calls per event", "A", 50, "calls")
	exit failed
}
