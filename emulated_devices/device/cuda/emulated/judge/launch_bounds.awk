# Between the preprocessor and the compiler: __launch_bounds__(THREADS, ...) before a kernel's name is left out, and its body begins
# with emulated::bounded(THREADS, ...), which refuses larger blocks.  THREADS may be any expression, also of a template's arguments.
BEGIN { NONE = 0; BOUNDS = 1; NAME = 2; SKIP = 3; PARAMETERS = 4; BODY = 5 }
state == NONE && !/__launch_bounds__/ { print; next }
/^#/ { print; next }
{
    text = $0; made = ""
    while (text != "") {
        if (state == NONE) {
            if (!match(text, /__launch_bounds__[ \t]*\(/)) { made = made text; break }
            before = made substr(text, 1, RSTART - 1); word = before
            if (gsub(/"/, "", word) % 2) { made = before substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH); continue }
            made = before; text = substr(text, RSTART + RLENGTH - 1)            # of a string it is none
            state = BOUNDS; depth = 0; bounds = ""
            continue
        }
        c = substr(text, 1, 1); text = substr(text, 2)
        if (state == BOUNDS || state == SKIP || state == PARAMETERS) {
            if (c == "(") depth++
            if (c == ")") depth--
            if (state == BOUNDS) { bounds = bounds c } else made = made c
            if (depth == 0 && c == ")") { state = state == PARAMETERS ? BODY : NAME; word = "" }
            continue
        }
        if (state == NAME && c == "(") { depth = 1; state = word ~ /__attribute__[ \t]*$/ ? SKIP : PARAMETERS }
        word = word c; made = made c
        if (state == BODY && c == "{") { made = made " emulated::bounded" bounds ";"; state = NONE }
        if (state == BODY && c == ";") state = NONE
    }
    print made
}
