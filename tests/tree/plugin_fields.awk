# plugin_fields.awk -- the fields of structures, and the values of enumerations, that plug-ins share with the program.
#
#     cc -E -P -I. emulated_devices/schemes/plugin.h | awk -v structs="algorithm .." -v enums="operation .." -f tests/tree/plugin_fields.awk
#
# Prints a line "F(struct, field)" for each field and "V(value)" for each value, in the order of the headers.

# The name that a declaration declares: the last word before [ , ) or the end; of a pointer to a function, the word after (*.
function declared(text) {
    if (match(text, /\( *\* *(const *)?[A-Za-z_0-9]+/)) {
        text = substr(text, RSTART, RLENGTH); sub(/^\( *\* *(const +)?/, "", text)
        return text
    }
    sub(/[ ]*\[.*$/, "", text); sub(/[ ]*:.*$/, "", text); sub(/[ ]+$/, "", text)
    sub(/^.*[^A-Za-z_0-9]/, "", text)
    return text
}

# Split at the separator outside of all brackets, and call declared() for each part.
function fields(type, body,    i, c, depth, at, part) {
    at = 1; depth = 0; body = body ";"
    for (i = 1; i <= length(body); i++) {
        c = substr(body, i, 1)
        if (c ~ /[({[]/) depth++
        if (c ~ /[)}\]]/) depth--
        if (depth > 0 || (c != ";" && c != ",")) continue
        part = substr(body, at, i - at); at = i + 1
        gsub(/\{[^{}]*\}/, "", part); gsub(/^ +| +$/, "", part)
        if (part != "") print "F(" type ", " declared(part) ")"
    }
}

function values(body,    n, part, i) {
    n = split(body, part, ",")
    for (i = 1; i <= n; i++) {
        sub(/=.*$/, "", part[i]); gsub(/ /, "", part[i])
        if (part[i] != "") print "V(" part[i] ")"
    }
}

BEGIN {
    n = split(structs, name, " "); for (i = 1; i <= n; i++) want["struct " name[i]] = 1
    n = split(enums, name, " ");   for (i = 1; i <= n; i++) want["enum " name[i]] = 1
}
{ text = text " " $0 }
END {
    gsub(/[ \t]+/, " ", text); gsub(/__attribute__ *\(\([^()]*(\([^()]*\))*[^()]*\)\)/, "", text)
    while (match(text, /(struct|enum) [A-Za-z_0-9]+ \{/)) {
        head = substr(text, RSTART, RLENGTH - 2); text = substr(text, RSTART + RLENGTH)
        depth = 1
        for (i = 1; depth > 0; i++) { c = substr(text, i, 1); depth += (c == "{") - (c == "}") }
        body = substr(text, 1, i - 2)
        if (head in want) { type = head; sub(/^[a-z]+ /, "", type); if (head ~ /^struct/) fields(type, body); else values(body) }
    }
}
