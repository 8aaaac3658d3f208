#!/usr/bin/env bash
# Make the manual in build/docs/html, and look at all of its links.  Usage: docs/site/make.sh, from the top of the tree, with Doxygen.
# contents.txt says which pages there are, page.awk how Doxygen gets them, lecture.awk what becomes of a source.
set -euo pipefail
to=build/docs site=docs/site
LECTURES=(ref/ops ref/model ref/optim ref/routers emulated_devices/check emulated_devices/collectives emulated_devices/schemes/{data,tensor,pipeline,attention,experts,sbp,spatial})

# In XML, what a title must not have.
xml() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g'; }
name_of() { local page=${1%/README.md}; page=${page%.md}; printf '%s' "${page//[!A-Za-z0-9]/_}"; }
tab() { printf '<tab type="user" url="@ref %s" title="%s"/>\n' "$1" "$(xml <<<"$2")"; }          # tab PAGE TITLE
chapter() { printf '<tab type="usergroup" url="[none]" title="%s">\n' "$(xml <<<"$1")"; }

lectures() {                                    # makes their pages, and says their part of the tree
    local room source
    rm -rf "$to/lectures" && mkdir -p "$to/lectures"
    for room in "${LECTURES[@]}"; do
        chapter "$room"
        for source in $(find "$room" -name '*.c' -o -name '*.def' | sort); do
            case $(head -c 2 "$source") in '/*') ;; *) continue ;; esac
            local page=${source//[!A-Za-z0-9]/_}
            awk -f "$site/lecture.awk" "$source" >"$to/lectures/$page.md"
            tab "$page" "$(awk -v title=1 -f "$site/lecture.awk" "$source")"
        done
        echo '</tab>'
    done
}

contents() {                                    # the tree of contents.txt
    local line page open=
    while IFS= read -r line; do
        case $line in
            '' | '#'*) ;;
            ' '*) for page in $line; do tab "$(name_of "$page")" "$(sed -n '1s/^# //p' "$page")"; done ;;
            *) [ -z "$open" ] || echo '</tab>'
               chapter "$line"; open=yes ;;
        esac
    done <"$site/contents.txt"
    echo '</tab>'
}

layout() {
    echo '<doxygenlayout version="1.0"><navindex><tab type="mainpage" title="Orrery"/>'
    contents
    chapter Lectures; lectures; echo '</tab>'
    echo '<tab type="pages" visible="no"/>
          <tab type="filelist" visible="yes" title="Headers"/><tab type="globals" visible="yes" title="Functions"/>
          <tab type="classlist" visible="yes" title="Structures"/></navindex></doxygenlayout>'
}

# What a page links to that is no page, such as a schema, stands beside the pages.
copies() {
    local file
    for file in $(pages | xargs awk -v files=1 -f "$site/page.awk" | sort -u); do
        if [ -d "$file" ]; then
            mkdir -p "$to/html/files/$file"
            cp "$file"/* "$to/html/files/$file/"
            { echo "<!DOCTYPE html><title>$file</title><h1>$file</h1>"
              (cd "$file" && printf '<p><a href="%s">%s</a>\n' $(ls | sed p)); } >"$to/html/files/$file/index.html"
        else
            install -D -m 644 "$file" "$to/html/files/$file"
        fi
    done
}
pages() { echo README.md; for page in $(grep '^ ' "$site/contents.txt"); do echo "$page"; done; }

mkdir -p "$to"
layout >"$to/layout.xml"
rm -rf "$to/html"
{ cat docs/Doxyfile; echo "INPUT += $(pages | tr '\n' ' ')"; } | doxygen -
copies
install -D -m 644 -t "$to/concepts" docs/concepts/*.svg              # pages of other folders show them, too
find . -name '*.md' -not -path './build*' -not -path '*/corpus/*' -exec awk -f "$site/links.awk" {} +
find "$to/html" \( -name '*.html' -o -name '*.js' ! -name search.js ! -name jquery.js ! -name resize.js ! -name dynsections.js \) -exec awk -v html=1 -f "$site/links.awk" {} +

# ---- what the manual must have ---------------------------------------------------------------------------------------------------
complain() { echo "docs/site/make.sh: $1" >&2; missed=1; }
missed=

# Every source of these rooms that begins with a comment is a page.
for source in $(find "${LECTURES[@]}" \( -name '*.c' -o -name '*.def' \) -exec awk 'FNR == 1 && /^\/\*/ { print FILENAME }' {} +); do
    ls "$to/html/${source//[!A-Za-z0-9]/_}.html" >/dev/null 2>&1 || complain "$source has no page"
done

# A reader finds an algorithm and a scheme by their names.
for words in 'ring_20all_2dreduce' 'zero3'; do
    grep -qil "'$words" "$to"/html/search/pages_*.js || complain "the search does not find $words among titles of pages"
done

# FIELDS_TOLD of 100 fields of structs have a text; a change may raise that number.
FIELDS_TOLD=90
read -r told fields < <(awk -f "$site/told.awk" "$to"/xml/struct*.xml)
echo "  FIELDS $told of $fields have a text"
[ $((told * 100)) -ge $((fields * FIELDS_TOLD)) ] || complain "only $told of $fields fields of structs have a text"
[ -z "$missed" ]
