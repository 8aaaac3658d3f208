# Make the changes of a fault.  Usage: awk -v to=FOLDER -f apply.awk FAULT
#
# Writes each changed file under FOLDER and its name to the standard output.  A change is a block of lines that begin with `-` (goes),
# `+` (comes) or a blank (stays); those that go and stay must be together in the file exactly once.  Blanks at both ends of a line do not
# count.  The first line of what is written tells the compiler the name of the original.
function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }

function fail(what) { print FILENAME ": " what | "cat >&2"; close("cat >&2"); failed = 1; exit 1 }

function load(name,    line, got) {
    path = name; lines = 0
    while ((got = (getline line < path)) > 0) text[++lines] = line
    if (got < 0) fail("there is no file " path)
    close(path)
}

function save(    i, copy, folder) {
    if (path == "") return
    folder = copy = to "/" path
    sub(/\/[^\/]*$/, "", folder)
    if (system("mkdir -p '" folder "'") != 0) fail("no folder for " path)
    printf "# 1 \"%s\"\n", path > copy
    for (i = 1; i <= lines; i++) print text[i] > copy
    close(copy)
    print path
    path = ""
}

function stands_at(at,    i) {
    for (i = 1; i <= olds; i++) if (trim(text[at + i - 1]) != trim(old[i])) return 0
    return 1
}

function change(    i, at, times) {
    if (news + olds == 0) return
    if (path == "") fail("a change before `file:`")
    if (olds == 0) fail("a change without a line that says where")
    times = 0
    for (i = 1; i + olds - 1 <= lines; i++) if (stands_at(i)) { at = i; times++ }
    if (times != 1) fail("no longer applies: " path " has " (times == 0 ? "nowhere" : times " times") ": " trim(old[1]))
    for (i = 1; i <= lines; i++) tail[i] = text[i]
    for (i = 1; i <= news; i++) text[at + i - 1] = new[i]
    for (i = at + olds; i <= lines; i++) text[i + news - olds] = tail[i]
    lines += news - olds
    olds = news = 0
}

/^file: /       { change(); save(); load(substr($0, 7)); next }
/^-/ && path    { old[++olds] = substr($0, 2); next }
/^\+/ && path   { new[++news] = substr($0, 2); next }
/^[ \t]+[^ \t]/ && path { old[++olds] = $0; new[++news] = $0; next }
                { if (path) change() }
END             { if (!failed) { change(); save() } }
