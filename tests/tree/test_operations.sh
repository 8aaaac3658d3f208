# The operands of an operation stand in the order of its row in ref/ops/ops.def: where it is defined, and where it is called.  Operands have
# one type, so a compiler takes a swapped pair.  Two arguments of which each has the name of the other's operand are one.
# tier: check
rows=ref/ops/ops.def

swapped() {                             # swapped FILE...: FILE:LINE: OPERATION: what is swapped
    awk -v rows="$rows" '
    # The end of the parenthesis that opens at s[from].
    function closing(s, from,    i, c, depth) {
        for (i = from; i <= length(s); i++) {
            c = substr(s, i, 1); depth += (c == "(") - (c == ")")
            if (depth == 0) return i
        }
        return length(s)
    }
    # The parts of s between commas that no bracket holds.
    function parts(s, part,    i, n, c, depth, at) {
        n = depth = 0; at = 1
        for (i = 1; i <= length(s) + 1; i++) {
            c = substr(s, i, 1)
            if (c ~ /[[({]/) depth++
            if (c ~ /[])}]/) depth--
            if (i > length(s) || (c == "," && depth == 0)) { part[++n] = substr(s, at, i - at); at = i + 1; gsub(/^[ \n]+|[ \n]+$/, "", part[n]) }
        }
        return n
    }
    # The last name of "struct tensor dX", "s->dX", "kept.dX"; of what is no name, such as a call, nothing.
    function name_of(s) {
        if (s !~ /^[A-Za-z_0-9 *&.>-]+$/) return ""
        sub(/^.*[^A-Za-z_0-9]/, "", s)
        return s
    }
    function lines(s) { return gsub(/\n/, "", s) }
    function read_rows(    line, text, at, end, row, item, i, n, kind) {
        while ((getline line <rows) > 0) text = text line "\n"
        while (match(text, /\nOPERATION[A-Z_]*\(/)) {
            at = RSTART + RLENGTH - 1; end = closing(text, at)
            parts(substr(text, at + 1, end - at - 1), row)
            n = parts(substr(row[3], 2, length(row[3]) - 2), item)
            for (i = 1; i <= n; i++) {
                kind = item[i]; sub(/\(.*/, "", kind)
                parts(substr(item[i], length(kind) + 2, length(item[i]) - length(kind) - 2), word)
                operand[row[1], i] = kind == "ARG" ? word[2] : word[1]
            }
            count[row[1]] = n; all++
            text = substr(text, end)
        }
    }
    function look(    rest, seen, call, at, end, name, n, first, i, k, given) {
        rest = text; seen = 1
        while (match(rest, /(dev_|->|ops_f32\.|FN\()[a-z_0-9]+\)? *\(/)) {
            call = substr(rest, RSTART, RLENGTH); at = RSTART + RLENGTH - 1
            name = call; sub(/^(dev_|->|ops_f32\.|FN\()/, "", name); sub(/\)? *\($/, "", name)
            if (name in count) {
                end = closing(rest, at)
                n = parts(substr(rest, at + 1, end - at - 1), given)
                first = call ~ /^dev_/
                if (n == count[name] + first) {
                    looked++
                    for (i = 1; i <= count[name]; i++)
                        for (k = i + 1; k <= count[name]; k++)
                            if (name_of(given[i + first]) == operand[name, k] && name_of(given[k + first]) == operand[name, i])
                                print file ":" seen + lines(substr(rest, 1, at)) ": " name ": " operand[name, i] " and " operand[name, k] " are swapped"
                }
            }
            seen += lines(substr(rest, 1, at)); rest = substr(rest, at + 1)
        }
        text = ""
    }
    BEGIN { read_rows() }
    FNR == 1 { look(); file = FILENAME }
    { text = text $0 "\n" }
    END { look(); print all + 0, looked + 0 >"/dev/stderr" }' "$@"
}

names=$(sed -nE 's/^OPERATION[A-Z_]*\(([a-z_0-9]+),.*/\1/p' "$rows")
callers() { grep -rlE --include='*.[ch]' "(dev_|->|ops_f32\.|FN\()($(tr '\n' '|' <<<"$names")sum_of_squares)\)? *\(" "$@"; }

failed=0
verdict() {                             # verdict NAME WHAT_IS_WRONG
    echo "[ RUN      ] $1"
    if [ -z "$2" ]; then echo "[       OK ] $1"; else printf '%s\n' "$2"; echo "[  FAILED  ] $1"; failed=1; fi
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
found=$(swapped $(callers ref emulated_devices tests) 2>"$tmp/counts")
read -r operations calls <"$tmp/counts"
[ "$operations" = "$(wc -w <<<"$names")" ] && [ "$operations" -gt 70 ] && [ "$calls" -gt 400 ] || found+="looked at $operations operations and $calls places: too few"
verdict no_operands_are_swapped "$found"

cat >"$tmp/a.c" <<'SOURCE'
void FN(gelu_backward_input)(struct tensor dX, struct tensor X, struct tensor dY)
{
}
static void back(struct device *d)
{
    dev_layernorm_backward_input(d, dX, dY, here(X), w, base, s->rstd, s->mean);
    op->add(Y, X, Z), op->attention_merge(O, lse, O2, lse2, a);
    dev_linear_forward(tp->device, r.X, r.Y,
                       W, tensor_none);
}
SOURCE
want="$tmp/a.c:1: gelu_backward_input: dY and X are swapped
$tmp/a.c:6: layernorm_backward_input: mean and rstd are swapped
$tmp/a.c:8: linear_forward: Y and X are swapped"
got=$(swapped "$tmp/a.c" 2>"$tmp/counts")
[ "$got" = "$want" ] || wrong="expected
$want
got
$got"
verdict swapped_operands_are_found "${wrong:-}"
exit $failed
