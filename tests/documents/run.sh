# run.sh -- runs the commands that a page prints, in order, in a fresh folder, and compares what they print.
#
#     ORRERY=./orrery bash tests/documents/run.sh README.md docs/using/runs.md
#
# A line for each command that does not do what the page says, then a line of counts; status 1 if there is one.  Where a
# page says less than all ("..", "..."), what it says must be among what is printed.  exceptions.txt has what cannot be
# run, ends otherwise, or is of this machine; a line of it that is of no use is an error, too.
#
# tests/cli/test_printed_commands.sh calls this.
here=$(realpath "$(dirname "$0")")
top=$(realpath "$here/../..")
program=$(realpath "${ORRERY:-./orrery}")
launcher=$(command -v "${MPIEXEC:-mpiexec}")
limit=${LIMIT:-300}                     # seconds for a command

# A page's folder has the tree's files as links; orrery and mpiexec there are programs that end.
open_folder() {                         # open_folder FOLDER
    mkdir -p "$1/home" && (cd "$1" && cp -rs "$top"/{golden,tutorials,docs,ref,emulated_devices,README.md,Makefile} . &&
        printf '#!/bin/sh\nexec timeout -k 5 %s %s "$@"\n' "$limit" "$program" >orrery &&
        printf '#!/bin/sh\nexec timeout -k 5 %s %s "$@"\n' "$limit" "$launcher" >mpiexec && chmod +x orrery mpiexec)
}

# The words of exceptions.txt of a kind and a page, as patterns.
exceptions() {                          # exceptions KIND PAGE
    awk -v kind="$1" -v page="$2" '$1 == kind && $2 == page { sub(/^[^ ]+ +[^ ]+ +/, ""); sub(/  +#.*/, ""); print }' "$here/exceptions.txt"
}

# Whether a pattern of that kind matches; patterns that did are kept in `used`.
is_exception() {                        # is_exception KIND PAGE TEXT
    local pattern
    while IFS= read -r pattern; do
        [[ $3 =~ $pattern ]] && { printf '%s %s %s\n' "$1" "$2" "$pattern" >>"$used"; return 0; }
    done < <(exceptions "$1" "$2")
    return 1
}

# A word in capitals stands for what a reader has: such a command is a form, not a command.  README.md is a file.
is_form() { local text=${1%%  #*}; [[ ${text//README.md/} =~ (^|[\ =/:])([A-Z]+([\ :./,]|$)|\.\.\.?(\ |$)) ]]; }

# A page shows some files: the block whose first line matches the pattern, up to an empty line.
write_shown_files() {                   # write_shown_files PAGE FOLDER
    local name pattern
    while read -r name pattern; do
        awk -v pattern="$pattern" '
            /^```/ { if (inside) exit; fenced = !fenced; fresh = fenced; next }
            !fenced && !/^    / { if (inside) exit; fresh = 1; next }
            { text = $0; if (!fenced) sub(/^    /, "", text) }
            inside && text == "" { exit }
            fresh && text ~ pattern { inside = 1 }
            { fresh = 0 }
            inside { print text }' "$top/$1" >"$2/$name"
        [ ! -s "$2/$name" ] || printf 'file %s %s %s\n' "$1" "$name" "$pattern" >>"$used"
    done < <(exceptions file "$1")
}

# Run a page's commands in one shell, so that `cd` and `export` hold: what each prints is in said/LINE, its status in LINE.status.
run_page() {                            # run_page PAGE FOLDER
    local kind line text
    local -
    (
        cd "$2" && export HOME=$2/home PATH=$2:$PATH
        unset TIER ORRERY
        while IFS=$'\t' read -r kind line text; do
            [ "$kind" = C ] || continue
            if is_form "$text" || is_exception skip "$1" "$text"; then echo skipped >"$2/said/$line.status"; continue; fi
            eval "$text" >"$2/said/$line" 2>&1 </dev/null
            echo $? >"$2/said/$line.status"
        done <"$2/said/list"
    )
}

# What is said of a command, beside what it printed.
compare() {                             # compare PRINTED SAID: a line for each that is said and not printed
    awk '
        function plain(text) { gsub(/[ \t]+/, " ", text); sub(/^ /, "", text); sub(/ $/, "", text); return text }
        function form(text) { gsub(/[0-9][0-9.,e+-]*/, "#", text); return text }
        NR == FNR { printed[++n] = plain($0); next }
        {
            split($0, part, "\t"); text = plain(substr($0, index($0, "\t") + 1))
            sub(/ ?\.\.\.?$/, "", text)
            if (text == "" || text ~ /^#/) next
            found = 0; alike = ""
            for (i = 1; i <= n && !found; i++) {
                found = index(printed[i], text) > 0 || (length(printed[i]) > 20 && index(text, printed[i]) > 0)
                if (alike == "" && form(printed[i]) == form(text)) alike = printed[i]
            }
            if (!found) print part[1] "\t" text "\t" alike
        }' "$1" "$2"
}

used=$(mktemp) pages=0 commands=0 skipped=0 slow=0 failed=0
root=$(mktemp -d)
trap 'rm -rf "$root" "$used"' EXIT
for page in "$@"; do
    folder=$root/$((pages++))
    mkdir -p "$folder/said" && open_folder "$folder" || exit 1
    awk -f "$here/commands.awk" "$top/$page" >"$folder/said/list"
    write_shown_files "$page" "$folder"
    run_page "$page" "$folder"
    while IFS=$'\t' read -r kind line text; do
        [ "$kind" = C ] || continue
        status=$(cat "$folder/said/$line.status")
        if [ "$status" = skipped ]; then skipped=$((skipped + 1)); continue; fi
        commands=$((commands + 1))
        # What takes too long here is counted; what the command has printed until then is compared no further.
        [[ $status != 124 && $status != 137 ]] || { slow=$((slow + 1)); continue; }
        awk -F'\t' -v line="$line" '$1 == "C" { on = $2 == line } on && $1 == "E" { print $2 "\t" $3 }' "$folder/said/list" >"$folder/said/$line.said"
        # A page that shows an error, or a failed check, shows a status, too.
        if grep -qE $'\t(orrery: |FAILED|NOT ENOUGH)' "$folder/said/$line.said"; then [ "$status" != 0 ]; else [ "$status" = 0 ]; fi ||
            is_exception ends "$page" "$text" ||
            { printf '%s:%s: status %s: %s\n' "$page" "$line" "$status" "$text"; sed 's/^/    | /' "$folder/said/$line" | tail -n 4; failed=$((failed + 1)); continue; }
        while IFS=$'\t' read -r at shown alike; do
            is_exception varies "$page" "$shown" && continue
            printf '%s:%s: shown: %s\n' "$page" "$at" "$shown"
            [ -z "$alike" ] || printf '    printed: %s\n' "$alike"
            failed=$((failed + 1))
        done < <(compare "$folder/said/$line" "$folder/said/$line.said")
    done <"$folder/said/list"
    # What an exception is for may have changed.
    while IFS= read -r text; do
        grep -qxF "$text" "$used" || { echo "tests/documents/exceptions.txt: of no use: $text"; failed=$((failed + 1)); }
    done < <(awk -v page="$page" '$2 == page { sub(/  +#.*/, ""); $1 = $1; print }' "$here/exceptions.txt")
    rm -rf "$folder"
done
echo "$pages pages, $commands commands run, $skipped not; $slow took more than $limit s; $failed are not as shown"
[ $failed -eq 0 ]
