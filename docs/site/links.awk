# links.awk -- looks for links that lead nowhere: to a file that is not there, or to a place in it that has no such name.
#
#     awk -f docs/site/links.awk PAGE.md...                         pages of markdown, from the top of the tree
#     awk -v html=1 -f docs/site/links.awk FILE.html... FILE.js...  a site: its pages, and what its tree and its search open
#
# Links to other sites are counted, not followed. Exit status 1 if a link is dead, or if there was nothing to look at.

function clean(path,    n, i, k, part, kept, out) {                # without . and ..
    n = split(path, part, "/"); k = 0; out = ""
    for (i = 1; i <= n; i++) {
        if (part[i] == "" || part[i] == ".") continue
        if (part[i] == ".." && k > 0 && kept[k] != "..") { k--; continue }
        kept[++k] = part[i]
    }
    for (i = 1; i <= k; i++) out = out (i > 1 ? "/" : "") kept[i]
    return (substr(path, 1, 1) == "/" ? "/" : "") out
}
function anchor_of(title) {                                         # as GitHub makes it
    title = tolower(title)
    gsub(/[^a-z0-9 _-]/, "", title)
    gsub(/ /, "-", title)
    return title
}
function link(to,    i, path, anchor) {                             # one link of this file
    if (to ~ /^(https?|mailto):/) { outside++; return }
    if (to ~ /^(javascript|data):/ || to == "") return
    i = index(to, "#")
    path = i ? substr(to, 1, i - 1) : to
    anchor = i ? substr(to, i + 1) : ""
    path = path == "" ? here : clean(folder path)
    count++
    if (!((path "#" anchor) in wanted)) wanted[path "#" anchor] = FILENAME ":" FNR
}
function place(name) { there[here "#" name] = 1 }

FNR == 1 { here = clean(FILENAME); folder = here; sub(/[^\/]*$/, "", folder); read[here] = 1; fenced = 0; split("", seen) }

html && FILENAME ~ /\.js$/ {
    s = $0
    while (match(s, /["'][^"' ]*\.html(#[^"' ]*)?["']/)) { link(substr(s, RSTART + 1, RLENGTH - 2)); s = substr(s, RSTART + RLENGTH) }
    next
}
html {
    s = $0
    while (match(s, / (href|src|id|name|data|xlink:href)="[^"]*"/)) {
        part = substr(s, RSTART + 1, RLENGTH - 2)
        s = substr(s, RSTART + RLENGTH)
        at = index(part, "=\"")
        if (part ~ /^(id|name)=/) place(substr(part, at + 2)); else link(substr(part, at + 2))
    }
    next
}

/^ *```/ { fenced = !fenced; next }
fenced || /^    / { next }
/^#+ / {
    title = $0; sub(/^#+ +/, "", title)
    anchor = anchor_of(title)
    place(seen[anchor]++ ? anchor "-" seen[anchor] - 1 : anchor)
}
{
    s = $0
    gsub(/`[^`]*`/, "`", s)
    while (match(s, /\]\([^) ]+\)/)) { link(substr(s, RSTART + 2, RLENGTH - 3)); s = substr(s, RSTART + RLENGTH) }
}

function exists(path) {
    if (path in read) return 1
    if (!(path in known)) known[path] = path ~ /^[A-Za-z0-9_.\/+-]+$/ && system("test -e " path) == 0
    return known[path]
}
END {
    for (key in wanted) {
        at = index(key, "#")
        path = substr(key, 1, at - 1)
        if (!exists(path)) { print wanted[key] ": a link to " path ", which is not there"; dead++ }
        else if (substr(key, at + 1) != "" && (path in read) && !(key in there)) { print wanted[key] ": a link to " key ", which has no such place"; dead++ }
    }
    printf "  LINKS %d in %s, %d of them dead; %d to other sites\n", count, html ? "the manual" : "pages of markdown", dead, outside
    if (dead || !count) exit 1
}
