# The command line with tokenizers of every kind: tokens and texts as golden/make_pipelines.py has them from the library `tokenizers`.
. "$(dirname "$0")/lib.sh"

# Lines of examples.txt: name, string, ids, text of the ids.  In `make verify` all of them, else one of seven.
examples() { if [ "$TIER" = verify ]; then cat "$top/golden/pipelines/examples.txt"; else sed -n '1~7p' "$top/golden/pipelines/examples.txt"; fi; }

test_tokens_of_each_kind() {
    local name string ids text tried=0
    while IFS=$'\t' read -r name string ids text; do
        ! grep -q "^$name:" "$top/golden/pipelines/refused.txt" || continue
        tried=$((tried + 1))
        run tokenize --tokenizer "$top/golden/pipelines/$name.json" --text "$string"
        expect_status 0
        [ "$(head -n 1 "$place/out")" = "$ids" ] || complain "$name: the library's ids are $ids"
        run tokenize --tokenizer "$top/golden/pipelines/$name.json" --decode "$ids" --special
        expect_status 0
        [ "$out" = "$text" ] || complain "$name: the library's text is \"$text\""
    done < <(examples)
    [ "$tried" -ge 10 ] || complain "only $tried examples were tried"
}

run_tests test_tokens_of_each_kind
