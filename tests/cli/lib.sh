# lib.sh -- what the tests of the command line share.
#
#     . "$(dirname "$0")/lib.sh"
#     test_help() { run show --help; expect_status 0; expect_out 'usage: orrery show'; }
#     run_tests test_help
#
# Each test starts in an empty folder of its own.  `run` leaves status, out and err; expectations that do not hold say so,
# and the test goes on.  Output is like cmocka's, which is what tests/run.sh counts.
program=$(realpath "${ORRERY:-./orrery}")
top=$(pwd)
shopt -s extglob

# Run orrery; nothing can read this script's input, and nothing runs for ever.
run() {
    command="orrery $*"
    if [ "$1" = grade ] && without_cage; then watched "$program" "$@" --own-code; else watched "$program" "$@"; fi
}

# Where the system has neither namespaces nor Landlock, tests grade what they have written as their own code.
caged=
without_cage() {
    if [ -z "$caged" ]; then
        caged=yes; : >"$place/none.c"
        "$program" grade "$place/none.c" --lessons 1 </dev/null 2>&1 | grep -q 'neither namespaces nor Landlock' && caged=no
    fi
    [ $caged = no ]
}

# The same under mpiexec: run_under N WORDS...
run_under() {
    command="mpiexec -n $1 orrery ${*:2}"
    watched "${MPIEXEC:-mpiexec}" -n "$1" "$program" "${@:2}"
    # Nobody stands between Open MPI's mpiexec and the user here: what it says of ranks that have ended is not the program's.
    awk '/^orrery: / { print; next } /^-+$/ && length($0) > 60 { inside = !inside; next } inside || /has sent help message help-|_base_help_aggregate/ { next } { print }' \
        "$place/err" >"$place/err.own" && mv "$place/err.own" "$place/err"
    look
}

watched() {
    status=0
    local limit=(timeout -k 5 "${seconds:-300}")
    [ "$(type -t "$1")" != function ] || limit=()       # of a function, which only knows how to start the program
    "${limit[@]}" "$@" </dev/null >"$place/out" 2>"$place/err" || status=$?
    look
}

# Make NAME.safetensors and its bounds; a script computes the same words once.
golden_make() {                         # golden_make NAME WORDS OF golden make...
    local kept; kept=$place/goldens/$(cksum <<<"$*" | tr ' ' -)
    if [ -d "$kept" ]; then cp "$kept"/* .; return; fi
    run golden make --out "$1.safetensors" "${@:2}"; expect_status 0
    mkdir -p "$kept"; cp "$1.safetensors" "$1.bounds.json" "$kept"
}

# rarely WORDS...: a case of a kind that the test has already; `make verify` takes all.
rarely() { [ "$TIER" != verify ] || "$@"; }

# On a system without namespaces and Landlock: there a compiler that a test has written can write into `compiled`, which a cage hides.
deny() { [ -x "$place/deny" ] || cc "$top/tests/cli/deny.c" -o "$place/deny" || complain 'deny.c does not compile'; }
uncaged() {
    deny; chmod 755 ../.. .. .; : >compiled; chmod 666 compiled
    command="uncaged: ${*##*/}"
    watched "$place/deny" namespaces landlock -- "$@"
}

look() { out=$(cat "$place/out") err=$(cat "$place/err"); }

# Train the smallest preset on a text of its own.
train() { make_text; run train --model tiny --data "$text" "$@"; }
train_under() { make_text; run_under "$1" train --model tiny --data "$text" "${@:2}"; }
make_text() { text=$place/text; [ -s "$text" ] || seq 2000 >"$text"; }

complain() {
    broken=$((broken + 1))
    printf '%s: %s\n' "$command" "$1"
    [ -z "$out" ] || printf '%s\n' "$out" | head -n 30 | sed 's/^/    | /'
    [ -z "$err" ] || printf '%s\n' "$err" | head -n 5 | sed 's/^/    ! /'
}

expect_status() { [ "$status" = "$1" ] || complain "exit status $status, expected $1"; }
expect_out() { grep -qE -- "$1" "$place/out" || complain "no line of its output matches: $1"; }
expect_no_out() { ! grep -qE -- "$1" "$place/out" || complain "a line of its output matches: $1"; }
expect_silent() { [ -z "$err" ] || complain 'it has something to complain about'; }
# A failure is one line that begins with "orrery: ".
expect_error() {
    [ "$(wc -l <"$place/err")" = 1 ] || complain "$(wc -l <"$place/err") lines of errors, expected 1"
    grep -qE -- "^orrery: .*$1" "$place/err" || complain "the error does not match: $1"
}
expect_columns() { [ "$(wc -L <"$place/out")" -le "$1" ] || complain "a line is wider than $1 columns"; }
expect_same() { cmp -s "$1" "$2" || complain "$1 and $2 differ"; }
expect_nothing() { [ -z "$(ls -A "${1:-.}")" ] || complain "it left behind: $(ls -A "${1:-.}")"; }
expect_file() { [ -s "$1" ] || complain "$1 is not there, or empty"; }

# A JSON report without who wrote it, what computed it, and what the clock of the wall and the system say.
results() { sed '/^	"written_by"/,/^	}/d; /^	"settings"/,/^	}/d; /^	"arithmetic"/,/^	}/d; /seconds/d; /resident/d' "$1"; }

# A JSON report with an object for each device: a plan has one for each class, whose devices it finds by "every".
unfolded() {
    awk '
    function number(line) { sub(/^[^:]*:\t/, "", line); return line + 0 }
    function key(line) { gsub(/^\t*"|":.*$/, "", line); return line }
    function spread(rank, text, a, c, left, stride, first) {
        for (rank = 0; rank < size["pp"] * size["dp"] * size["cp"] * size["tp"]; rank++) {
            left = rank; stride = 1; first = 0
            for (a = 4; a > 0; a--) {
                c[a] = left % size[axis[a]]; left = int(left / size[axis[a]])
                first += c[a] % every[axis[a]] * stride; stride *= size[axis[a]]
            }
            text = of[first]; sub(/"rank":\t[0-9]+/, "\"rank\":\t" rank, text)
            for (a = 1; a <= 4; a++) sub("\"" axis[a] "\":\t[0-9]+", "\"" axis[a] "\":\t" c[a], text)
            printf "%s%s", rank ? "\t\t}, {\n" : "\t\"devices\":\t[{\n", text
        }
    }
    BEGIN { split("pp dp cp tp", axis, " ") }
    NR == FNR {
        if (/^\t"mesh":/) in_mesh = 1
        if (/^\t\t\t"every":/) folded = in_every = 1
        if (in_mesh && /^\t\t"..":/) size[key($0)] = number($0)
        if (in_every && /^\t\t\t\t"..":/) every[key($0)] = number($0)
        if (/^\t}/) in_mesh = in_every = 0
        next
    }
    folded && /^\t"devices":\t\[[{]/ { inside = 1; text = ""; next }
    inside && /^\t\t}/ { of[first] = text; text = ""; if (/\]/) { inside = 0; spread(); print } next }
    inside && /^\t\t\t"(ep|stands_for)":/ { next }           # a place among the experts; a number of devices
    inside { if (/^\t\t\t"rank":/) first = number($0); text = text $0 "\n"; next }
    !/^\t\t\t"ep":/ { print }' "$1" "$1"
}

# What a plan and a run both write of every device and step: without what only numbers can say, and what only a plan has, such as a replay, and the speed by it.
planned() { unfolded "$1" | results /dev/stdin | sed '/^\t"profile"/,/^\t}/d; /^\t"plan":/,/^\t}/d; /^\t"virtual_speed"/,/^\t}/d' | grep -vE '"(format|fingerprint|loss|norm|lr|loss_scale|validation_loss|skipped|step|virtual_step_(replayed|unhindered)_ps)"' | sed 's/,$//'; }

# The list of a checkpoint whose files were changed on purpose, made anew: what is wrong in them is then looked at.
reseal() {                                          # reseal DIR
    local list
    list=$(cd "$1" && echo '# a checkpoint of orrery; `sha256sum -c checkpoint.sha256` checks it' &&
           sha256sum config.json model.safetensors optimizer.safetensors training.json run.yaml) || complain "$1 is no checkpoint"
    printf '%s\n# %s of the lines above\n' "$list" "$(printf '%s\n' "$list" | sha256sum | cut -d' ' -f1)" >"$1/checkpoint.sha256"
}

# The processors' time of this shell and of all that it has waited for, into `processor_ms`.
look_at_processors() {
    times >"$root/times"
    processor_ms=$(awk -F '[ms ]' '{ ms += 60000 * ($1 + $4) + 1000 * ($2 + $5) } END { printf "%d", ms }' "$root/times")
}

run_tests() {
    local test failed=0 root begun processor_ms processor_ms_before
    root=$(mktemp -d)
    trap "rm -rf ${root@Q}" EXIT
    echo "[==========] Running $# test(s)."
    for test in "$@"; do
        echo "[ RUN      ] $test"
        place=$root/$test broken=0 out='' err='' command=''
        mkdir -p "$place/in" && cd "$place/in" || exit 1
        begun=${EPOCHREALTIME/./}; look_at_processors; processor_ms_before=$processor_ms
        "$test"
        cd "$top" || exit 1
        look_at_processors
        if [ $broken -eq 0 ]; then
            echo "[       OK ] $test ($(((${EPOCHREALTIME/./} - begun) / 1000)) ms, of processors $((processor_ms - processor_ms_before)) ms)"
        else
            echo "[  FAILED  ] $test"; failed=$((failed + 1))
        fi
    done
    echo "[==========] $# test(s) run."
    [ $failed -eq 0 ]
}
