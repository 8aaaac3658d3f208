# pages.awk -- which paragraphs and lists of pages of markdown are too long.
#
#     awk -f tests/tree/pages.awk PAGE...               from the top of the tree; prints FILE:LINE: what is too long
#     awk -v lines=1 -f tests/tree/pages.awk PAGE...    prints FILE:LINE, a tab, and the line, for each line of text
#
# A paragraph is a run of lines of text; each item of a list begins a paragraph.  A list is a run of items that begin at the left edge, with
# their paragraphs, tables and code.  Headings, tables and code (in fences, or four columns to the right and after no item) are no text.
# What a link leads to is no text either: [words](target) counts as [words].

function end_paragraph() {
    if (words > 100 && !lines) printf "%s:%d: a paragraph of %d words: 100 are the limit\n", page, begun, words
    words = 0
}
function end_list() {
    end_paragraph()
    if (items > 10 && !lines) printf "%s:%d: a list of %d items: more than 10 are a table\n", page, list, items
    items = 0
}

FNR == 1 { end_list(); page = FILENAME; fenced = 0 }
/^ *```/ { end_paragraph(); fenced = !fenced; next }
fenced { next }
/^ *$/ { end_paragraph(); blank = 1; next }
/^#/ { end_list(); next }
/^ *\|/ || /^    / && !items && !words || /^      / && items && !words && blank { end_paragraph(); blank = 0; next }
{
    text = $0; blank = 0
    gsub(/\]\([^)]*\)/, "]", text)
    if (lines) printf "%s:%d\t%s\n", page, FNR, text
    item = text ~ /^ *([-*]|[0-9]+\.) /
    if (item) end_paragraph()
    if (item && text !~ /^ /) { if (!items++) list = FNR }
    else if (text !~ /^ / && !words) end_list()
    if (!words) begun = FNR
    words += split(text, word, " ")
}
END { end_list() }
