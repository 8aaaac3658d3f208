# processes.sh -- who has started whom, for tests that kill.

# "pid parent state name" of all processes, from /proc or ps; names of several words are cut.
all_processes() {
    if [ -r /proc/self/stat ]; then sed -n 's/^\([0-9]*\) (\([^ )]*\).*) \([A-Za-z]\) \([0-9]*\) .*/\1 \4 \3 \2/p' /proc/[0-9]*/stat 2>/dev/null
    else ps -A -o pid= -o ppid= -o state= -o comm=; fi
}

# Processes started by one, directly or not.  The list is not of one moment, so parents may go in a circle.
descendants() {
    all_processes | awk -v root="$1" '{ parent[$1] = $2 }
        END { for (p in parent) { q = p; for (n = 0; n < 20 && q in parent && q != root; n++) q = parent[q]; if (q == root && p != root) print p } }'
}

is_alive() { kill -0 "$1" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }
