# page.awk -- a page of markdown as Doxygen takes it: headings get names, links lead to pages, sections, sources or copied files.
#
#     awk -f docs/site/page.awk docs/using/runs.md                     from the top of the tree; Doxygen calls it as a filter
#     awk -v files=1 -f docs/site/page.awk PAGE...               only the files and folders that links lead to, a line each
#
# GitHub names a heading by its words, in each page anew; Doxygen wants names that no other page has. So the section "Traces" of docs/using/runs.md
# is docs_runs_traces, and a link runs.md#traces, written for GitHub, becomes a reference to it.

function clean(path,    n, i, k, part, kept) {                   # without . and ..
    n = split(path, part, "/"); k = 0
    for (i = 1; i <= n; i++) {
        if (part[i] == "" || part[i] == ".") continue
        if (part[i] == "..") { if (k > 0) k--; continue }
        kept[++k] = part[i]
    }
    path = kept[1]
    for (i = 2; i <= k; i++) path = path "/" kept[i]
    return path
}
function words(s) { gsub(/[^A-Za-z0-9]/, "_", s); return s }
function page_name(path) {
    if (path == "README.md") return "index"
    sub(/\/README\.md$/, "", path); sub(/\.[a-z]+$/, "", path)
    return words(path)
}
function section_name(page, anchor) { return (page == "index" ? "readme" : page) "_" words(anchor) }
function anchor_of(title) {                                       # as GitHub makes it
    title = tolower(title)
    gsub(/[^a-z0-9 _-]/, "", title)
    gsub(/ /, "-", title)
    return title
}
function is_lecture(path) { return path ~ /\.c$/ && path ~ /^(ref|emulated_devices)\// }

# Where a link of this page leads in the manual.
function target(to,    path, anchor, i) {
    if (to ~ /^[a-z]+:/) return to
    i = index(to, "#")
    anchor = i ? substr(to, i + 1) : ""
    path = i ? substr(to, 1, i - 1) : to
    path = path == "" ? here : clean(folder path)
    if (path ~ /\.md$/) return "@ref " (anchor == "" ? page_name(path) : section_name(page_name(path), anchor))
    if (path ~ /^(ref|emulated_devices)\/.*\.h$/) return "@ref " path
    if (is_lecture(path)) return "@ref " page_name(path) "_c"
    if (files) print path
    return "files/" path (path ~ /\.[a-zA-Z]+$|LICENSE$/ ? "" : "/index.html")
}

# The links of a piece of text without code; pictures stay.
function linked(s,    out, at, end) {
    out = ""
    while (match(s, /\[[^]]*\]\([^) ]+\)/)) {
        at = RSTART; end = RSTART + RLENGTH
        if (at > 1 && substr(s, at - 1, 1) == "!") { out = out substr(s, 1, end - 1); s = substr(s, end); continue }
        out = out substr(s, 1, at - 1) link(substr(s, at, end - at))
        s = substr(s, end)
    }
    return out s
}
function link(s,    i) {
    i = index(s, "](")
    return substr(s, 1, i + 1) target(substr(s, i + 2, length(s) - i - 2)) ")"
}
# A line's links; what is between backquotes is code.  A link's text may be code: [`name`](to).
function line_of(s,    n, i, part, code) {
    n = 0
    while (match(s, /`[^`]*`/)) {
        code[++n] = substr(s, RSTART, RLENGTH)
        s = substr(s, 1, RSTART - 1) "\001" n "\002" substr(s, RSTART + RLENGTH)
    }
    s = linked(s)
    for (i = 1; i <= n; i++) { part = index(s, "\001" i "\002"); s = substr(s, 1, part - 1) code[i] substr(s, part + length("\001" i "\002")) }
    return s
}

FNR == 1 {
    here = FILENAME
    if (index(here, ENVIRON["PWD"] "/") == 1) here = substr(here, length(ENVIRON["PWD"]) + 2)
    page = page_name(here)
    folder = here; sub(/[^\/]*$/, "", folder)
    fenced = hiding = 0; split("", seen)
    made = here ~ /^build\//                                      # lecture.awk has made it for Doxygen
}
made { print; next }
# Of a lesson's page the first variant: <!--NAME-->first<!--|other, over several lines, too-->.
{
    gsub(/<!--[A-Z_]+-->/, "")
    was = $0; hidden = hiding
    $0 = first_variant($0)
    if ($0 == "" && (hidden || was != "")) next
    joined = hidden && /^[.,;:]/                                   # the rest of a sentence, or doxygen sees a list
}
function first_variant(s,    kept, at) {
    while (hiding || index(s, "<!--|")) {
        if (!hiding) { at = index(s, "<!--|"); kept = kept substr(s, 1, at - 1); s = substr(s, at + 5); hiding = 1 }
        at = index(s, "-->")
        if (!at) return kept
        s = substr(s, at + 3); hiding = 0
    }
    return kept s
}
/^ *```/ { fenced = !fenced; say($0); next }
fenced || /^    / { say($0); next }
/^#+ / {
    title = $0; sub(/^#+ +/, "", title)
    if (/^# /) { say($0 " {#" (page == "index" ? "mainpage" : page) "}"); next }
    anchor = anchor_of(title)
    if (seen[anchor]++) anchor = anchor "-" seen[anchor] - 1
    say($0 " {#" section_name(page, anchor) "}")
    next
}
{ say(line_of($0)) }
function say(s) { if (!files) { printf "%s%s", said && !joined ? "\n" : "", s; said = 1 } }
END { if (said) print "" }
