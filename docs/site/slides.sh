#!/usr/bin/env bash
# Slides of the concept pages: a file of HTML each, and a list of them.  Usage: slides.sh FOLDER [PAGE...], from the top of the tree; pages are
# markdown, by default those of docs/concepts.  `make slides` calls this.
set -euo pipefail
to=$1; shift
[ $# -gt 0 ] || set -- docs/concepts/{start,data,zero,tensor,pipeline,context,experts}.md
mkdir -p -- "$to"
{ echo '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Slides</title>'
  echo '<style>:root{color-scheme:light dark} body{font:1.2em/1.8 system-ui,sans-serif;margin:2em auto;max-width:40em;padding:0 1em}</style></head>'
  echo '<body><h1>Slides</h1><p>Keys: arrows, space, Home, End. Print them with the browser: a slide is a page.</p><ul>'
  for page; do
      name=${page##*/}; name=${name%.md}
      LC_ALL=C.UTF-8 awk -v "folder=$(dirname "$page")" -f docs/site/slides.awk "$page" >"$to/.$name.html" && mv "$to/.$name.html" "$to/$name.html" ||
          { rm -f "$to/.$name.html"; echo "slides.sh: $page: no slides" >&2; exit 1; }
      echo "<li><a href=\"$name.html\">$(sed -n 's/<title>//; s/<\/title>//; T; p; q' <<<"$(grep -o '<title>[^<]*</title>' "$to/$name.html")")</a></li>"
  done
  echo '</ul></body></html>'; } >"$to/index.html"
