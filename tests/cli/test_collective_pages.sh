# `orrery show COLLECTIVE` and `show schedule` as SVG and as pages: what is drawn is what was run.
. "$(dirname "$0")/lib.sh"

operations="allreduce reduce reduce-scatter broadcast scatter gather allgather alltoall scan sparse-allgather sparse-reduce-scatter barrier"

# The data of a page, and a list of it, one entry a line: part FILE passes|messages.
part() { sed -n 's/.*"'"$2"'":\[\(\[[^]]*\]\(,\[[^]]*\]\)*\)\].*/\1/p' "$1" | sed 's/\],\[/\n/g; s/^\[//; s/\]$//'; }
# Cells: TIME,DEVICE,COLUMN,"TEXT",STATE.
cells() { sed -n 's/.*"cells":{"columns":\[[^]]*\],"rows":\[\[\([^}]*\)\]\]}.*/\1/p' "$1" | sed 's/\],\[/\n/g'; }

expect_svg() {
    [ "$(head -c 4 "$1")" = '<svg' ] && [ "$(tail -n 1 "$1")" = '</svg>' ] || complain "$1 is no whole SVG"
    ! grep -q 'nan\|inf"' "$1" || complain "$1 has a length that is no number"
}

# A panel for each step and one for the start; as many arrows as messages, where a message has one block.
test_every_collective() {
    local op
    for op in $operations; do
        run show $op --devices 5 --svg s.svg --page p.html
        expect_status 0; expect_silent; expect_svg s.svg; expect_file p.html
        [ "$(grep -c '>step [0-9]*' s.svg)" = "$(grep -c '^step ' "$place/out")" ] || complain "not a panel for each step of $op"
        [ "$(part p.html messages | wc -l)" = "$(sed -n 's/^\([0-9]*\) messages,.*/\1/p' "$place/out")" ] || complain "the page has not the messages of $op"
        grep -q '"kind":"collective","unit":"ps"' p.html || complain "the page of $op is no film of a collective"
        rm s.svg p.html
    done
    expect_nothing
}

# By hand: 3 sums on each of 4 devices, then 3 rounds of whole blocks; 4 + 8 + 12 + 16 whole cells in the panels.
test_a_ring_drawn() {
    run show allreduce ring --svg s.svg;                expect_status 0; expect_svg s.svg
    [ "$(grep -c '>sum</text>' s.svg)" = 40 ] || complain "$(grep -c '>sum</text>' s.svg) whole cells, not 40"
    grep -o 'd="M[0-9.]* [0-9.]*H[0-9.]*V[0-9.]*H[0-9.]*" fill="none"' s.svg >arrows
    [ "$(wc -l <arrows)" = 24 ] || complain "$(wc -l <arrows) arrows, not 24"
    # From each device to the next is downwards, from the last to the first up.
    local down; down=$(sed 's/d="M[0-9.]* \([0-9.]*\)H[0-9.]*V\([0-9.]*\)H.*/\1 \2/' arrows | awk '$2 > $1' | wc -l)
    [ "$down" = 18 ] || complain "$down arrows lead down, not 18: an arrow does not go to the next device"
    run show allreduce ring --devices 16 --svg w.svg;   expect_status 0; expect_svg w.svg
    [ "$(stat -c %s w.svg)" -lt 3000000 ] || complain "$(stat -c %s w.svg) bytes for 16 devices"
    run show broadcast chain --count 40000 --svg l.svg; expect_status 0; expect_svg l.svg
    grep -q '>Drawn are the first 63 of [0-9]* steps, and the end.<' l.svg || complain 'it is not said that steps are left out'
    [ "$(grep -c '>step [0-9]*' l.svg)" = 64 ] || complain "$(grep -c '>step [0-9]*' l.svg) panels of steps, not 64"
}

# Every block changes when a message has arrived or a sum is made, and never loses what the device has itself.
test_a_ring_filmed() {
    run show allreduce ring --page p.html;              expect_status 0
    [ "$(cells p.html | grep -c '"\*",2$')" = 16 ] || complain "$(cells p.html | grep -c '"\*",2$') blocks become whole, not 16"
    part p.html passes >passes; part p.html messages >messages
    [ "$(wc -l <passes)" = 36 ] || complain "$(wc -l <passes) passes, not 24 messages that are waited for and 12 sums"
    cells p.html | awk -F, '
        FILENAME == "passes" { ends[$1 "," $4] = 1; next }
        FILENAME == "messages" { if ($4 <= $3) print "message from " $1 " to " $2 " takes no time"; next }
        $1 > 0 && !(($2 "," $1) in ends) { print "device " $2 ", block " $3 " changes at " $1 ", when nothing ends there" }
        $4 != "\"*\"" && index($4, $2) == 0 { print "device " $2 ", block " $3 " has lost its own numbers: " $4 }
    ' passes messages - >wrong
    [ ! -s wrong ] || complain "$(head -n 3 wrong)"
    # The first message leaves at the latency of nothing: 2.91 ns of starting, a port of 1 ns and 8 bytes, 1 us of latency.
    [ "$(head -n 1 messages)" = 0,1,2910,1006669,8,0 ] || complain "the first message is $(head -n 1 messages)"
}

# Passes are those of the text; all that is held is freed; messages go between neighbours and lead to stages.
test_schedules() {
    local name messages
    run show schedule
    for name in $(sed -n 's/^  \([a-z0-9-]*\)  *[^ ].*/\1/p' "$place/out"); do
        run show schedule "$name" --pp 4 --micro 8 --comm 1 --page p.html --json p.json
        expect_status 0; expect_silent
        [ "$(part p.html passes | wc -l)" = "$(grep -c '"pass":' p.json)" ] || complain "not every pass of $name is filmed"
        messages=$(sed -n 's/^  messages  //p' "$place/out")
        [ "$(part p.html messages | awk -F, '$4 == $3 + 1' | wc -l)" = "$messages" ] || complain "not every message of $name is filmed"
        [ "$(sed 's/.*"memory":\[//; s/"cells".*//' p.html | grep -o '[0-9]*\]\]}' | sort -u)" = '0]]}' ] || complain "$name holds microbatches at its end"
    done
    grep -q '"place":"stages 0, 7"' <("$program" show schedule zb-v --page /dev/stdout) || complain 'zb-v: device 0 has not stages 0 and 7'
}

# Nothing is half written; what a page cannot show is said.  Names come from files.
test_bad_input() {
    run show allreduce --svg /nowhere/x.svg;            expect_status 1; expect_error '/nowhere/x.svg: cannot be written'
    run show allreduce --page /nowhere/x.html;          expect_status 1; expect_error '/nowhere/x.html: cannot be written'
    run show schedule 1f1b --page /nowhere/x.html;      expect_status 1; expect_error '/nowhere/x.html: cannot be written'
    run show schedule 1f1b --pp 300 --micro 300 --page p.html; expect_status 2; expect_error '--page: 300 devices with [0-9]+ actions; a page shows at most 256 with 40000'
    run show allreduce --devices 17 --svg s.svg;        expect_status 2; expect_error '--devices 17: must be a whole number from 1 to 16'
    expect_nothing
    sed 's|"name": "toy"|"name": "<script>alert(1)</script>"|' "$top/emulated_devices/device/clusters/toy.json" >"../a<b>.json"
    run show allreduce --cluster "../a<b>.json" --svg s.svg --page p.html; expect_status 0; expect_svg s.svg
    ! grep -q '<script' s.svg || complain 'the SVG has the markup of a name'
    [ "$(grep -c 'alert(1)</script>' p.html)" = 0 ] || complain 'the page has the markup of a name'
}

run_tests test_every_collective test_a_ring_drawn test_a_ring_filmed test_schedules test_bad_input
