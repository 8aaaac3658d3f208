# slides.awk -- a page of markdown as slides: one file of HTML that needs no network, for a wall, a telephone or paper.
#
#     awk -v folder=docs/concepts -f docs/site/slides.awk docs/concepts/data.md >data.html
#
# A slide begins at a heading, at a paragraph that begins with bold words (its title), at a picture and at a table.  A slide that gets too long
# for a wall goes on in the next one.  Pictures are put into the file.  Links to other pages become plain words.

BEGIN { LINES = 15; CODE = 14; quote = sprintf("%c", 39) }              # lines of a wall at its size of letters; lines of code beside a text

function escape(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); gsub(/"/, "\\&quot;", s); return s }

# Words of a paragraph: code, bold, links; no mark inside code is read.
function words(s,    out, at, mark, middle) {
    out = ""
    while (match(s, /`[^`]+`|\*\*[^*]+\*\*|\*[^* ][^*]*\*|\[[^]]*\]\([^) ]*\)/)) {
        at = substr(s, RSTART, RLENGTH); out = out escape(substr(s, 1, RSTART - 1)); s = substr(s, RSTART + RLENGTH)
        if (at ~ /^`/) out = out "<code>" escape(substr(at, 2, length(at) - 2)) "</code>"
        else if (at ~ /^\*\*/) out = out "<b>" escape(substr(at, 3, length(at) - 4)) "</b>"
        else if (at ~ /^\*/) out = out "<em>" escape(substr(at, 2, length(at) - 2)) "</em>"
        else {
            middle = index(at, "](")
            mark = words(substr(at, 2, middle - 2)); at = substr(at, middle + 2, length(at) - middle - 2)
            out = out (at ~ /^https?:/ ? "<a href=\"" escape(at) "\">" mark "</a>" : mark)
        }
    }
    return out escape(s)
}

function slide(title) {                                                 # begin one; the same title again is one that goes on
    if (used || count == 0 || title != now) {
        if (listed) print "</ul>"
        listed = 0
        if (count) print "</section>"
        count++
        print "<section id=\"" count "\">\n<h2>" words(title) (title == now ? " <small>(goes on)</small>" : "") "</h2>"
    }
    now = title; used = 0
}
function room(lines) { if (used > 0 && used + lines > LINES) slide(now); used += lines }

function picture(alt, path,    data, line, type) {
    type = path ~ /\.svg$/ ? "svg+xml" : "png"
    path = folder "/" path
    data = ""
    while ((("base64 <" quote path quote) | getline line) > 0) data = data line
    close("base64 <" quote path quote)
    if (data == "") { print "slides.awk: " path ": no picture" >"/dev/stderr"; failed = 1; return }
    slide(alt)
    print "<figure><img alt=\"" escape(alt) "\" src=\"data:image/" type ";base64," data "\"></figure>"
    used = LINES
}

# A paragraph has been collected; bold words at its beginning are the title of a slide.
function flush(    title) {
    if (text == "") return
    if (match(text, /^!\[[^]]*\]\([^) ]+\)$/)) {
        title = text; sub(/^!\[/, "", title); sub(/\]\(.*/, "", title); sub(/.*\]\(/, "", text); sub(/\)$/, "", text)
        picture(title, text)
    } else if (text ~ /^Next: /) text = ""                              # a slide leads nowhere
    else {
        if (match(text, /^\*\*[^*]+\*\*/)) {
            title = substr(text, 3, RLENGTH - 4)                        # a title without a full stop is the sentence's beginning, too
            if (title ~ /[.:?]$/) { text = substr(text, RLENGTH + 1); sub(/[.:]$/, "", title); sub(/^ +/, "", text) }
            slide(title)
        }
        if (text != "") { room(int(length(text) / 75) + 1); print "<p>" words(text) "</p>" }
    }
    text = ""
}
function flush_item() { if (item != "") { room(int(length(item) / 75) + 1); if (!listed) print "<ul>"; listed = 1; print "<li>" words(item) "</li>" } item = "" }
function end_list() { flush_item(); if (listed) print "</ul>"; listed = 0 }
function end_code(    i, begin) {
    if (!lines) return
    for (begin = 1; begin <= lines; begin += CODE) {
        room(lines - begin + 1 < CODE ? lines - begin + 1 : CODE)
        printf "<pre tabindex=\"0\">"
        for (i = begin; i <= lines && i < begin + CODE; i++) print escape(code[i])
        print "</pre>"
    }
    lines = 0
}
function end_table() { if (rows) print "</table>"; rows = 0 }
function end_all() { flush(); end_list(); end_code(); end_table() }

/^```/ { if (!fenced) end_all(); else end_code(); fenced = !fenced; next }
fenced { code[++lines] = $0; next }
/^    / && text == "" && item == "" { end_list(); end_table(); sub(/^    /, ""); code[++lines] = $0; next }
lines { end_code() }
/^# / && !count {
    title = $0; sub(/^# /, "", title)
    print head(title)
    count = 1; now = title
    print "<section id=\"1\" class=\"title\">\n<h1>" words(title) "</h1>"
    used = 1
    next
}
/^#+ / { end_all(); sub(/^#+ /, ""); slide($0); next }
/^\|/ {
    flush(); end_list()
    if (!rows) { if (used > 4) slide(now); print "<table>" }
    if ($0 ~ /^\|[-:| ]+\|$/) next
    if (rows++ == LINES) { print "</table>"; slide(now); print "<table>"; rows = 1 }
    line = $0; sub(/^\| */, "", line); sub(/ *\| *$/, "", line); n = split(line, cell, / *\| */)
    printf "<tr>"; for (i = 1; i <= n; i++) printf "%s", (rows == 1 ? "<th>" : "<td>") words(cell[i]) (rows == 1 ? "</th>" : "</td>")
    print "</tr>"; used++
    next
}
rows { end_table() }
/^([-*]|[0-9]+\.) / { flush(); flush_item(); sub(/^([-*]|[0-9]+\.) /, ""); item = $0; next }
/^ *$/ { flush(); end_list(); next }
item != "" { sub(/^ +/, ""); item = item " " $0; next }
{ sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0 }
END { end_all(); if (count) print "</section>\n" script() "</body></html>"; else failed = 1; exit failed }

function head(title) {
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" escape(title) "</title>\n" \
        "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n" \
        ":root { color-scheme: light dark; --ink: #14213d; --paper: #fdfdfb; --line: #8884; --mark: #1d6fb8 }\n" \
        "@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e4; --paper: #14161a; --mark: #7db7ee } }\n" \
        "* { box-sizing: border-box } html { scroll-snap-type: y proximity } body { margin: 0; color: var(--ink); background: var(--paper);\n" \
        "  font: clamp(16px, 1.9vw, 32px)/1.45 system-ui, sans-serif; counter-reset: slide }\n" \
        "section { position: relative; min-height: 100vh; padding: 4vh 7vw 9vh; scroll-snap-align: start; counter-increment: slide;\n" \
        "  display: flex; flex-direction: column; justify-content: center; border-bottom: 1px solid var(--line) }\n" \
        "section > * { flex: none; max-width: 100% } h1 { font-size: 2.2em; line-height: 1.15; margin: 0 0 .4em } h2 { font-size: 1.5em;\n" \
        "  line-height: 1.2; margin: 0 0 .5em; color: var(--mark) } small { font-weight: normal; font-size: .6em } p, ul { margin: .35em 0 }\n" \
        "section::after { content: counter(slide); position: absolute; right: 3vw; bottom: 3vh; font-size: .7em; opacity: .7 }\n" \
        "figure { margin: 0; text-align: center } img { max-width: 100%; max-height: 74vh; width: 100%; object-fit: contain; background: #fff;\n" \
        "  border-radius: 6px } pre { overflow-x: auto; font-size: .72em; line-height: 1.35; padding: .7em 1em; margin: .5em 0; border-left:\n" \
        "  4px solid var(--mark); background: #8881 } code { overflow-wrap: anywhere } table { display: block; overflow-x: auto;\n" \
        "  border-collapse: collapse; font-size: .85em } td, th { border-bottom: 1px solid var(--line); padding: .25em .8em; text-align: left }\n" \
        "@media (max-width: 40em) { section { justify-content: flex-start; padding: 5vh 5vw 9vh } figure { overflow-x: auto }\n" \
        "  img { width: auto; max-width: none; height: 60vh } }\n" \
        "@page { size: A4 landscape; margin: 10mm } @media print { :root { --ink: #000; --paper: #fff; --mark: #124a7d } body { font-size: 17px }\n" \
        "  section { min-height: 0; height: 185mm; break-after: page; border: 0; padding: 4mm 8mm } section:last-of-type { break-after: auto }\n" \
        "  img { max-height: 145mm } pre { white-space: pre-wrap } }\n</style></head><body>"
}
function script() {
    return "<script>\nconst slides = [...document.querySelectorAll('section')]\n" \
        "const at = () => { const y = slides.map(s => Math.abs(s.getBoundingClientRect().top)); return y.indexOf(Math.min(...y)) }\n" \
        "const go = i => slides[Math.max(0, Math.min(slides.length - 1, i))].scrollIntoView()\n" \
        "addEventListener('keydown', e => {\n  if (e.ctrlKey || e.altKey || e.metaKey) return\n" \
        "  const by = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, ' ': e.shiftKey ? -1 : 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 }[e.key]\n" \
        "  if (e.target.closest('pre, table') && e.key.startsWith('Arrow')) return\n" \
        "  const i = e.key === 'Home' ? 0 : e.key === 'End' ? slides.length - 1 : by ? at() + by : -1\n" \
        "  if (by || i >= 0) { go(i); e.preventDefault() }\n})\n</script>\n"
}
