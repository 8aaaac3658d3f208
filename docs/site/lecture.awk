# lecture.awk -- a source that reads as a lecture, as a page of markdown: its head is the introduction, comments stand between pieces of code.
#
#     awk -f docs/site/lecture.awk ref/ops/layernorm.c                from the top of the tree
#     awk -v title=1 -f docs/site/lecture.awk FILE                    only the page's title
#
# The first line of the head, up to ": " or " -- ", is the title; "allreduce, ring" becomes "ring all-reduce", as a reader would look for it.  The rest of the head has drawings and columns, so it stays as it is typed.

function escape(s) { gsub(/[\\@<>#*_`$%&|~\[\]]/, "\\\\&", s); return s }
function sentence(s) { return escape(toupper(substr(s, 1, 1)) substr(s, 2)) }
function heading(s,    at) {
    at = match(s, /(: | -- )/)
    if (at) { about = substr(s, at + RLENGTH); s = substr(s, 1, at - 1) } else about = ""
    at = index(s, ", ")
    if (at && at + 1 == match(s, / [^ ,]+( [^ ,]+)?$/)) s = substr(s, at + 2) " " group_of(substr(s, 1, at - 1))
    return s
}
function group_of(s) {
    sub(/allreduce/, "all-reduce", s); sub(/allgather/, "all-gather", s); sub(/alltoall/, "all-to-all", s); sub(/^experts$/, "dispatch of experts", s)
    return s
}
function fence(on) { if (on != fenced) print on ? "```{.c}" : "```\n"; fenced = on }

FNR == 1 {
    if (!/^\/\*/) exit
    name = FILENAME; gsub(/[^A-Za-z0-9]/, "_", name)
    head = $0; sub(/^\/\* */, "", head)
    in_head = 1
    if (sub(/ *\*\/ *$/, "", head)) in_head = 2
    head = heading(head)
    if (title) { print head; exit }
    print "# " escape(head) " {#" name "}\n"
    if (in_head == 2) begin()
    next
}
in_head == 1 {
    ended = /\*\/ *$/
    sub(/^ \*\/? ?/, ""); sub(/ *\*\/ *$/, "")
    if (!intro_done && $0 !~ /^ *$/) {                                  # the first sentence goes on
        about = about " " $0
        if (ended) begin()
        next
    }
    if (!intro_done) { print sentence(about) "\n"; intro_done = 1; if (!ended) print "@verbatim"; opened = !ended; if (!ended) next }
    if ($0 !~ /^ *$/ || !ended) print
    if (ended) { if (opened) print "@endverbatim\n"; begin() }
    next
}
function begin() {
    if (!intro_done) print sentence(about) "\n"
    intro_done = 1
    print "The source is `" FILENAME "`.\n"
    in_head = 0; skipping = 1
}
# Comments of a file's own level become text; doxygen's commands in them are for its headers.
in_comment { comment_line(); next }
/^\/\*/ { fence(0); in_comment = 1; said = ""; comment_line(); next }
/^[ \t]*$/ { if (fenced) blank++; next }
{ fence(1); while (blank > 0) { print ""; blank-- } print }
function comment_line(    s, ended) {
    s = $0
    ended = s ~ /\*\/ *$/
    sub(/^\/\*+ ?/, "", s); sub(/ *\*\/ *$/, "", s); sub(/^ \* ?/, "", s)
    said = said (said == "" ? "" : "\n") s
    if (!ended) return
    in_comment = blank = 0
    if (said ~ /\n {3,}|   /) print "@verbatim\n" said "\n@endverbatim\n"        # drawn or in columns
    else { gsub(/^ +/, "", said); print escape(said) "\n" }
}
END { fence(0) }
