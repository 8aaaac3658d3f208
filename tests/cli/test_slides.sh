        ! sed 's/<a href="https:[^"]*"/<a/g' "slides/$name.html" | grep -nE '(src|href)="(https?:)?//|url\(|@import|<link|fetch\(' || complain "$name asks for a network"
. "$(dirname "$0")/lib.sh"

make_slides() { command="slides.sh $*"; (cd "$top" && bash docs/site/slides.sh "$@") || complain 'slides.sh fails'; }

# Tags of one file that are not closed, or closed in another order.
unclosed() {
    grep -oE '</?(html|head|body|section|figure|table|tr|td|th|ul|li|pre|p|h1|h2|code|b|em|small|script|style|title|a)( [^>]*)?>' "$1" | awk '
        { tag = $1; gsub(/[<>\/]/, "", tag) }
        /^<\// { if (open[n] != tag) { print "closed: " tag ", open: " open[n]; exit } n--; next }
        { open[++n] = tag }
        END { if (n) print n " tags are open: " open[n] }'
}

test_slides_of_all_concepts() {
    local page name
    make_slides "$PWD/slides"
    for page in "$top"/docs/concepts/*.md; do
        name=$(basename "$page" .md); expect_file "slides/$name.html"
        ! sed 's/<a href="https:[^"]*"/<a/g' "slides/$name.html" | grep -nE '(src|href)="(https?:)?//|url\(|@import|<link|fetch\(' || complain "$name asks for a network"
        [ -z "$(unclosed "slides/$name.html")" ] || complain "$name: $(unclosed "slides/$name.html")"
        [ "$(grep -c '^!\[' "$page")" = "$(grep -o 'src="data:image/svg+xml;base64,' "slides/$name.html" | wc -l)" ] || complain "$name lacks a picture"
        grep -q "href=\"$name.html\"" slides/index.html || complain "the list lacks $name"
        # Each word of the page is on a slide; words of links that lead on are not.
        sed '/^!\[/d; s/\[\([^]]*\)\]([^)]*)/\1/g' "$page" | awk '/^Next: /,/^$/ { next } 1' | tr -cs 'A-Za-z0-9' '\n' | sort -u >words
        sed 's/base64,[^"]*//; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' "slides/$name.html" | tr -cs 'A-Za-z0-9' '\n' | sort -u >shown
        [ -z "$(comm -23 words shown)" ] || complain "$name: words on no slide: $(comm -23 words shown | head -n 5 | tr '\n' ' ')"
    done
}

# Markup in a page is text on a slide, and long pages go on.
test_a_page_of_ones_own() {
    { echo '# A <b>title</b> & more'; echo; echo '**First.** `a < b` and *so on*, see [this](other.md) & [that](https://example.org/x).'; echo
      for i in {1..40}; do echo "- item $i of a list that is long enough to fill a line of a slide, and then some words more"; done
      echo; echo '| a | b |'; echo '|---|---|'; echo '| <i> | `x` |'; echo; echo '```'; seq 30; echo '```'; } >own.md
    make_slides "$PWD/slides" "$PWD/own.md"
    grep -q '<h1>A &lt;b&gt;title&lt;/b&gt; &amp; more</h1>' slides/own.html || complain "a title: $(grep '<h1>' slides/own.html)"
    grep -q '<code>a &lt; b</code> and <em>so on</em>, see this &amp; <a href="https://example.org/x">that</a>' slides/own.html || complain "words: $(grep 'so on' slides/own.html)"
    grep -q '<td>&lt;i&gt;</td><td><code>x</code></td>' slides/own.html || complain 'a table'
    [ "$(grep -c '<section' slides/own.html)" -ge 8 ] || complain "a long page has $(grep -c '<section' slides/own.html) slides"
    [ -z "$(unclosed slides/own.html)" ] || complain "$(unclosed slides/own.html)"
    echo '![a picture](none.svg)' >>own.md
    ! (cd "$top" && bash docs/site/slides.sh "$place/in/slides" "$place/in/own.md") 2>"$place/err" || complain 'a picture that is not there'
    grep -q 'none.svg: no picture' "$place/err" || complain "$(cat "$place/err")"
}

run_tests test_slides_of_all_concepts test_a_page_of_ones_own
