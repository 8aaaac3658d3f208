# What devices do, for viewers and simulators: every slice says where it belongs; a simulator's input has each message of the run once, with
# its bytes, waits for nothing that is not there, and never in a circle.
. "$(dirname "$0")/lib.sh"

plans=('--dp 2 --zero 3' '--pp 2 --micro 4 --schedule zb-h1' '--cp 2 --attention ring --offload weights')
[ "${TIER:-test}" != verify ] || plans+=('--tp 3 --tensor 1d-sp --cluster a100-ethernet' '--tp 2 --pp 2 --dp 2' '--tp 4 --tensor 2d --dtype bf16')

# LogGOPSim's grammar, line by line; each label once, and before it is used.  A replay of what waits for what must come to its end.  Leaves
# the sums of what each rank sends in `sent`.
check_goal() {
    awk '
        function bad(why) { print "line " NR ": " why ": " $0; broken = 1 }
        NR == 1 { if ($0 !~ /^num_ranks [0-9]+$/) bad("no number of ranks"); next }
        /^rank [0-9]+ \{$/ { rank = $2; open = 1; next }
        /^\}$/ { open = 0; next }
        !open { bad("outside a rank"); next }
        /^[a-zA-Z][a-zA-Z0-9_]*: (calc [0-9]+|send [0-9]+b to [0-9]+ tag [0-9]+|recv [0-9]+b from [0-9]+ tag [0-9]+)( cpu [0-9]+)?$/ {
            label = rank ":" substr($1, 1, length($1) - 1)
            if (label in waits) bad("a label twice")
            waits[label] = 0; nodes++
            if ($2 == "send") { way = rank "-" $5 "-" $7 "-" $3; out[way]++; source[way] = label; sent[rank] += $3 }
            if ($2 == "recv") { way = $5 "-" rank "-" $7 "-" $3; in_[way]++; target[way] = label }
            next
        }
        /^[a-zA-Z][a-zA-Z0-9_]* requires [a-zA-Z][a-zA-Z0-9_]*$/ {
            a = rank ":" $1; b = rank ":" $3
            if (!(a in waits) || !(b in waits)) { bad("a label that is not there"); next }
            waits[a]++; after[b] = after[b] " " a
            next
        }
        { bad("not a line of the language") }
        END {
            for (way in out) {
                if (out[way] != 1 || in_[way] != 1) { print "message " way ": sent " out[way] + 0 ", received " in_[way] + 0 " times"; broken = 1; continue }
                waits[target[way]]++; after[source[way]] = after[source[way]] " " target[way]
            }
            for (way in in_) if (!(way in out)) { print "message " way ": is never sent"; broken = 1 }
            for (label in waits) if (waits[label] == 0) ready[n++] = label
            for (done = 0; done < n; done++) {
                count = split(after[ready[done]], next_, " ")
                for (i = 1; i <= count; i++) if (--waits[next_[i]] == 0) ready[n++] = next_[i]
            }
            if (n != nodes) { print n " of " nodes " can ever begin"; broken = 1 }
            for (rank = 0; rank in sent; rank++) printf "%d\n", sent[rank] >"sent"
            exit broken
        }' "$1" >wrong || complain "$1: $(head -n 3 wrong)"
}

# What each device has sent, all kinds together, by the run itself.
counted() {
    awk '/^\t\t\t"rank"/ { rank++ } /^\t\t\t"sent"/ { inside = 1 } /^\t\t\t}/ { inside = 0 } inside && /^\t\t\t\t\t"bytes":/ { gsub(/[^0-9]/, ""); sum[rank] += $0 }
         END { for (i = 1; i <= rank; i++) printf "%d\n", sum[i] }' "$1"
}

test_goal() {
    local plan
    for plan in "${plans[@]}"; do
        train --batch 8 --seq 8 --steps 2 $plan --trace run.goal --trace-format goal --json run.json;       expect_status 0; expect_silent
        check_goal run.goal
        [ "$(wc -l <sent)" -ge 2 ] || complain 'fewer than two ranks send'
        expect_same sent <(counted run.json)
    done
    cp run.goal first.goal
    train --batch 8 --seq 8 --steps 2 $plan --trace run.goal --trace-format goal;       expect_same first.goal run.goal
}

# Chakra's files say the same as goal's: their protocol buffers taken apart by a few lines of Python, where there is one.
test_chakra() {
    local python=${PYTHON:-python3} plan
    "$python" -c '' 2>/dev/null || { echo "skipped: no $python"; return; }
    for plan in "${plans[@]:0:2}"; do
        train --batch 8 --seq 8 --steps 2 $plan --trace run --trace-format chakra;                          expect_status 0; expect_silent
        train --batch 8 --seq 8 --steps 2 $plan --trace run.goal --trace-format goal --json run.json;       expect_status 0
        command="the files of $plan"
        "$python" - >"$place/out" 2>"$place/err" <<'END' || complain 'they are not what Chakra reads'
import collections, re

def varint(b, p):
    value = shift = 0
    while True:
        value |= (b[p] & 127) << shift
        shift, p = shift + 7, p + 1
        if b[p - 1] < 128:
            return value, p

def fields(b):
    p, out = 0, collections.defaultdict(list)
    while p < len(b):
        key, p = varint(b, p)
        if key & 7 == 0:
            value, p = varint(b, p)
        else:
            assert key & 7 == 2, key
            n, p = varint(b, p)
            value, p = b[p:p + n], p + n
        out[key >> 3].append(value)
    assert p == len(b)
    return out

def messages(b):
    p = 0
    while p < len(b):
        n, p = varint(b, p)
        yield fields(b[p:p + n])
        p += n

goal, rank = collections.defaultdict(dict), None
for line in open("run.goal"):
    if m := re.match(r"rank (\d+)", line):
        rank = int(m[1])
    elif m := re.match(r"n(\d+): (\w+) (\d+)(?:b (?:to|from) (\d+) tag (\d+))?", line):
        goal[rank][int(m[1])] = dict(kind=m[2], size=int(m[3]), peer=m[4], tag=m[5], after=set())
    elif m := re.match(r"n(\d+) requires n(\d+)", line):
        goal[rank][int(m[1])]["after"].add(int(m[2]))
kinds = {4: "calc", 5: "send", 6: "recv"}
for rank, nodes in goal.items():
    head, *rest = messages(open(f"run.{rank}.et", "rb").read())
    assert head[1] == [b"0.0.4"], head
    assert len(rest) == len(nodes)
    for n in rest:
        want, after, packed, p = nodes[n[1][0]], set(), b"".join(n[5]), 0
        while p < len(packed):
            one, p = varint(packed, p)
            after.add(one)
        attributes = {}
        for a in map(fields, n[10]):
            (field, value), = [(k, v[0]) for k, v in a.items() if k != 1]
            assert field == {"is_cpu_op": 27, "comm_size": 9, "duration_ps": 13}.get(a[1][0].decode(), 7), a
            attributes[a[1][0].decode()] = value
        assert kinds[n[3][0]] == want["kind"] and after == want["after"], (n, want)
        if want["kind"] != "calc":
            ends = (attributes["comm_src"], attributes["comm_dst"])
            assert ends == ((rank, int(want["peer"])) if want["kind"] == "send" else (int(want["peer"]), rank)), (n, want)
            assert attributes["comm_size"] == want["size"] and attributes["comm_tag"] == int(want["tag"]), (n, want)
    micros = sum(sum(n[7]) for n in rest)
    exact = sum(v[0] for n in rest for a in map(fields, n[10]) if a[1][0] == b"duration_ps" for k, v in a.items() if k != 1) / 1e6
    assert exact - 8 <= micros <= exact, (micros, exact)
END
    done
}

# Perfetto's slices: where they belong, and how many bytes; a counter of memory; nothing of the run changes.
test_slices_say_where_they_belong() {
    train --batch 8 --seq 8 --steps 2 --dp 2 --pp 2 --zero 1 --micro 2 --trace t.json --json seen.json;   expect_status 0; expect_silent
    train --batch 8 --seq 8 --steps 2 --dp 2 --pp 2 --zero 1 --micro 2 --json plain.json
    expect_same <(results seen.json) <(results plain.json)
    [ "$(grep '"ph":"X"' t.json | grep -cv '"args":{"bytes":[0-9]*,')" = 0 ] || complain 'a slice has no bytes'
    local name
    for name in '"name":"linear forward h\.[0-7] m[01]"' '"layer":"h\.7","microbatch":1,"pass":"F"' '"layer":"h\.0","microbatch":0,"pass":"B"' \
                '"layer":"embedding"' '"layer":"loss"' '"name":"send over pp m[01]".*"scheme":"1f1b","microbatch"' \
                '"name":"reduce-scatter over dp.*"scheme":"zero1"' '"ph":"C","name":"memory","pid":3,.*"activations":[1-9]'; do
        grep -qE "$name" t.json || complain "no event matches $name"
    done
}

test_what_is_refused() {
    train --steps 1 --trace t --trace-format ns3;           expect_status 2; expect_error '--trace-format ns3: must be one of chrome, chakra, goal$'
    train --steps 1 --trace no/where --trace-format goal;   expect_status 1; expect_error '--trace no/where'
    train --steps 1 --trace no/where --trace-format chakra; expect_status 1; expect_error '--trace no/where'
    train --steps 1 --trace-format goal;                    expect_status 2; expect_error '--trace-format goal: needs --trace FILE$'
    expect_nothing
}

run_tests test_goal test_chakra test_slices_say_where_they_belong test_what_is_refused
