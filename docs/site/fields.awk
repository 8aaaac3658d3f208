# fields.awk -- a header as Doxygen gets it: comments of structs and fields become their texts.
#
#     awk -f docs/site/fields.awk FILE
#
#     int rows;        /* of the shard */           the text of rows
#     double lr, eps;  /* -1: not given */          the text of both
#     /* Runs once. */ above fields                 the text of each field up to an empty line that has none of its own
#     struct range { int first, last; };            each field has the struct's comment
#
# Each line stays at its place, so that Doxygen names the lines of the source.

function trimmed(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }

# "double lr, *eps" as declarations of one name each, each with the text; a function or what is no declaration stays.
function declared(s, text,    n, i, part, base, first, out, c, depth, at) {
    s = trimmed(s)
    if (s ~ /\(/ || s !~ /^[A-Za-z_].*[ *][A-Za-z_]/) return s ";" text
    n = depth = 0; at = 1
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        depth += (c == "[" || c == "{") - (c == "]" || c == "}")
        if (c == "," && depth == 0) { part[++n] = substr(s, at, i - at); at = i + 1 }
    }
    part[++n] = substr(s, at)
    first = part[1]
    sub(/(\[[^\]]*\])+$/, "", first); match(first, /[ *]+[A-Za-z_][A-Za-z_0-9]*$/)
    base = substr(first, 1, RSTART)
    sub(/[ *]+$/, "", base)
    out = part[1] ";" text
    for (i = 2; i <= n; i++) out = out " " base " " trimmed(part[i]) ";" text
    return out
}

# A line of fields, each with its own text or that of its group.
function fields(line, text,    at, indent, head, tail) {
    if (match(line, /^ *(typedef )?(struct|union) [A-Za-z_0-9]* *\{ .*; \};$/)) {       # all in one line
        at = index(line, "{")
        head = substr(line, 1, at); tail = substr(line, at + 1); sub(/ *\};$/, "", tail)
        return head " " several(tail, text == "" ? about : text) " };"
    }
    match(line, /^ */); indent = substr(line, 1, RLENGTH)
    return indent several(trimmed(line), text == "" ? group : text)
}
function several(s, text,    n, i, part, out) {
    text = text == "" ? "" : " /**< " text " */"
    n = split(s, part, ";")
    for (i = 1; i < n; i++) out = out (i > 1 ? " " : "") declared(part[i], text)
    return out part[n]
}
function is_open(line,    open, closed) { open = gsub(/\(/, "(", line); closed = gsub(/\)/, ")", line); return open != closed }
function is_fields(line) { return !is_open(line) && (line ~ /^ +[A-Za-z_].*;$/ || line ~ /^ *(struct|union) [A-Za-z_0-9]* *\{ .*; \};$/) }

function words_of(comment) {                            # its text, in one line
    sub(/^[ \t]*\/\*+ ?/, "", comment); sub(/ *\*\/[ \t]*$/, "", comment)
    return trimmed(comment)
}

{ line[++lines] = $0 }

END {
    for (i = 1; i <= lines; i++) {
        s = line[i]
        if (s ~ /^[ \t]*$/) { group = about = ""; print s; continue }
        if (s ~ /^[ \t]*\/\*/) {                        # a comment of its own lines
            whole = ""; last = i
            while (line[last] !~ /\*\//) { whole = whole " " more(line[last]); last++ }
            whole = whole " " more(line[last])
            text = words_of(trimmed(whole))
            told = i > 1 && text !~ /^----/ && line[last] ~ /\*\/[ \t]*$/ && line[last + 1] !~ /^[ \t]*$/
            if (told) { if (s ~ /^ /) group = text; else about = text }
            if (told && s ~ /^\/\* /) sub(/\/\* /, "/** ", s)
            if (told && s ~ /^ +\/\* / && line[last + 1] ~ /\(/) sub(/\/\* /, "/** ", s)
            print s
            while (i < last) print line[++i]
            continue
        }
        if (match(s, /[;,{] *\/\*\*?<? /)) {            # a comment behind fields, perhaps of several lines
            code = substr(s, 1, RSTART); text = substr(s, RSTART + 1)
            if (text ~ /\*\/./ && text !~ /\*\/[ \t]*$/) { print s; continue }        # and more code behind the comment
            from = i
            while (line[i] !~ /\*\/[ \t]*$/ && i < lines) text = text " " more(line[++i])
            sub(/^ *\/\*+<? */, "", text); sub(/ *\*\/[ \t]*$/, "", text)
            if (is_fields(code)) print fields(code, text)
            else { sub(/\/\* /, "/**< ", s); print s; for (from++; from <= i; from++) print line[from]; continue }
            for (from++; from <= i; from++) print ""
            continue
        }
        print is_fields(s) && s !~ /^ +return / ? fields(s, "") : s
    }
}
function more(s) { sub(/^[ \t]*\*? ?/, "", s); return trimmed(s) }
