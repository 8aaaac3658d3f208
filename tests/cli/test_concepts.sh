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
        grep -qE "\((../concepts/)?$f\)" "$pages"/*.md "$top"/docs/parallelism/*.md || complain "no page shows $f"
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

# The bug of the first page is found as the page says, by the commands that stand there.
test_first_page() {
    local line
    cp -r "$top/golden/bugs" "$top/golden/gpt2-tied.safetensors" .
    mkdir golden; mv bugs gpt2-tied.safetensors golden; cp "$top"/golden/gpt2-tied.bounds.json golden; ln -s "$program" orrery
    while read -r line; do
        eval "${line#'$ '}" >out 2>&1 || complain "README.md: $line: exit status $?"
    done < <(grep '^\$ ' "$top/README.md" | grep -v orrery)
    sed 's/^\$ \.\/orrery /$ orrery /' "$top/README.md" >page.md
    page_quotes page.md; expect_status 3
    [ "$TIER" != verify ] || { sed 's/^    \.\/orrery /    orrery /' "$top/README.md" >page.md; page_commands page.md; }
}

run_tests test_first_page test_pictures_are_up_to_date test_concept_pages
