#!/usr/bin/env bash
# Puts the page of a plan together: bash make.sh ORRERY PLAN.WASM PAGE.html STYLES AND SCRIPTS..  `make wasm` calls this file.
#
# The page is one file that asks nothing of any network.  Its program is packed by gzip and spelled in base64; the names
# of models, clusters and schemes are those that the program lists.
set -euo pipefail
orrery=$1 wasm=$2 page=$3
shift 3
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for part in models clusters tensor data schedules dtypes; do "$orrery" list "$part" --json "$work/$part" >/dev/null; done
# The page of a run that goes on asks a server, which no plan does.
styles=("$here"/*.css) scripts=()
for file in "$@"; do case $file in *.css) styles=("$file" "${styles[@]}") ;; *live.js) ;; *) scripts+=("$file") ;; esac; done

{
    cat "$here/head.html"
    echo '<style>'
    cat "${styles[@]}"
    printf '</style>\n</head>\n<body>\n<div id="ask"></div>\n<main id="page"></main>\n'
    printf '<script type="application/json" id="names">[\n'
    first=1
    for part in models clusters tensor data schedules dtypes; do
        [ $first ] || echo ,
        first=
        sed 's/</\\u003c/g' "$work/$part"
    done
    printf ']</script>\n<script type="text/plain" id="engine">\n'
    cat "$here"/engine/*.js
    printf '</script>\n<script type="text/plain" id="program">'
    gzip -9nc "$wasm" | base64 -w0
    printf '</script>\n<script>\n'
    cat "${scripts[@]}" "$here"/*.js
    printf '</script>\n</body>\n</html>\n'
} >"$page.new"
mv "$page.new" "$page"
