# Links between the tree's pages lead somewhere, the manual's tree has every page, and what looks for dead links finds them.  Of the
# manual itself `make docs` looks at all links (docs/site/make.sh).
# tier: check
. tests/cli/lib.sh
links=$top/docs/site/links.awk

find_links() { watched awk -f "$links" "$@"; }
pages() { (cd "$top" && find . -name '*.md' -not -path './build*' -not -path '*/corpus/*' -not -path './.git/*' | sed 's|^\./||' | sort); }

test_pages_of_the_tree() {
    command='docs/site/links.awk'
    cd "$top" || return
    find_links $(pages)
    expect_status 0
    expect_out 'LINKS [1-9][0-9]* in pages of markdown, 0 of them dead'
}

# A page that is in no chapter is not in the manual.
test_contents_have_every_page() {
    command='docs/site/contents.txt'
    (cd "$top" && for page in $(grep '^ ' docs/site/contents.txt); do echo "$page"; done) | sort >listed
    uniq -d listed | while read -r page; do echo "twice: $page"; done >wrong
    pages | grep -vE '^(README.md|tutorials/(student|teacher)/|\.github/)' | comm -3 - listed >>wrong
    [ ! -s wrong ] || complain "pages that are not in the manual (first column) or not in the tree: $(cat wrong)"
}

test_dead_links_are_found() {
    mkdir -p a
    printf '# Top\n\n## Same\n## Same\n[1](a/b.md) [2](#same-1) [3](a/b.md#a-b-c) [4](https://x.org) `[5](none)`\n```\n[6](none)\n```\n' >p.md
    printf '# B\n## `A`, b: C!\n[up](../p.md#top)\n' >a/b.md
    find_links p.md a/b.md; expect_status 0; expect_out 'LINKS 4 .*0 of them dead; 1 to other'
    echo '[7](a/c.md)' >>p.md
    find_links p.md a/b.md; expect_status 1; expect_out '^p.md:9: a link to a/c.md, which is not there'
    sed -i '$d; s/#same-1/#same-2/' p.md
    find_links p.md a/b.md; expect_status 1; expect_out '^p.md:5: a link to p.md#same-2, which has no such place'
    find_links /dev/null; expect_status 1
}

test_dead_links_of_a_site_are_found() {
    mkdir -p s/search
    echo '<h1 id="one">1</h1><a href="b.html#two">2</a><img src="c.svg"/><a href="https://x.org">x</a>' >s/a.html
    echo '<a name="two" href="a.html#one"></a>' >s/b.html
    echo "[['../a.html#one'],[\"../b.html#two\"]]" >s/search/all.js
    touch s/c.svg
    find_links -v html=1 s/a.html s/b.html s/search/all.js; expect_status 0; expect_out 'LINKS 5 in the manual'
    sed -i 's/#one/#three/' s/search/all.js
    find_links -v html=1 s/a.html s/b.html s/search/all.js; expect_status 1; expect_out 'all.js:1: a link to s/a.html#three'
    sed -i 's/#three/#one/' s/search/all.js
    rm s/c.svg
    find_links -v html=1 s/a.html s/b.html s/search/all.js; expect_status 1; expect_out 'a.html:1: a link to s/c.svg, which is not there'
}

# Of a lesson's page the first variant, of a link written for GitHub a name of the manual; a source becomes a page.
test_pages_for_the_manual() {
    mkdir -p docs ref/ops
    printf '# Page\n\n## Some part\n[a](../ref/x.c) [b](q.md#other-part) [c](#some-part) is <!--W-->left<!--|right,\nor\nleft-->.\n' >docs/page.md
    watched awk -f "$top/docs/site/page.awk" docs/page.md
    printf '# Page {#docs_page}\n\n## Some part {#docs_page_some_part}\n[a](@ref ref_x_c) [b](@ref docs_q_other_part) [c](@ref docs_page_some_part) is left.\n' >want
    expect_same "$place/out" want
    printf '/* twice: doubles x_i.\n *\n * Source  nobody\n */\nint a;\n\n/* Why *b. */\nint b;\n' >ref/ops/twice.c
    watched awk -f "$top/docs/site/lecture.awk" ref/ops/twice.c
    printf '%s\n' '# twice {#ref_ops_twice_c}' '' 'Doubles x\_i.' '' @verbatim 'Source  nobody' @endverbatim '' 'The source is `ref/ops/twice.c`.' '' \
        '```{.c}' 'int a;' '```' '' 'Why \*b.' '' '```{.c}' 'int b;' '```' '' >want
    expect_same "$place/out" want
    printf '/* b.c -- one\n * sentence. */\nint a;\n' >ref/ops/b.c
    watched awk -f "$top/docs/site/lecture.awk" ref/ops/b.c
    printf '%s\n' '# b.c {#ref_ops_b_c}' '' 'One sentence.' '' 'The source is `ref/ops/b.c`.' '' '```{.c}' 'int a;' '```' '' >want
    expect_same "$place/out" want
}

run_tests test_pages_of_the_tree test_contents_have_every_page test_dead_links_are_found test_dead_links_of_a_site_are_found test_pages_for_the_manual
