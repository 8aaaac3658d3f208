# The pages of docs/concepts/: pictures are those that the program draws now; commands and quotes hold.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pages.sh"
pages=$top/docs/concepts

test_pictures_are_up_to_date() {
    local f
    mkdir drawn
    ORRERY=$program bash "$pages/draw.sh" drawn >log 2>&1 || complain "draw.sh: $(head -n 1 log)"
    for f in "$pages"/*.svg drawn/*.svg; do
        f=${f##*/}
        cmp -s "$pages/$f" "drawn/$f" || complain "docs/concepts/$f is not what is drawn now: bash docs/concepts/draw.sh docs/concepts"
        grep -q "($f)" "$pages"/*.md || complain "no page shows $f"
    done
}

# In `make test` what is quoted; `make verify` also runs the other commands.
test_concept_pages() {
    local page
    cp "$top/README.md" .                       # a text to train on
    for page in "$pages"/*.md; do
        page_quotes "$page"
        [ "$TIER" != verify ] || page_commands "$page"
    done
}

run_tests test_pictures_are_up_to_date test_concept_pages
