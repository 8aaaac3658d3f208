#!/usr/bin/env bash
# Put what is built into $DESTDIR$PREFIX, or remove what was put there.  Usage, from the top of the tree:
#
#   install.sh check                                                        is PREFIX a path where files can go
#   install.sh install PROGRAM BUILT LIBRARY VERSION KERNELS_FOLDER OBJECT...   OBJECT: what is ready of kernels, each with a key beside it
#   install.sh uninstall
#
# PROGRAM is installed; BUILT is ./orrery, which a teacher's tree has besides, and which cuts the solutions out of the lessons.
# `make install` and `make uninstall` have PREFIX and DESTDIR in the environment, where none of their letters means anything to a shell.
# The list share/orrery/installed.txt in PREFIX has a line for each file that was written, and a line that ends with / for each folder
# that was made.  Exit status: 0, 1 if something cannot be written, 2 for a wrong use.
set -euo pipefail
export LC_ALL=C
prefix=${PREFIX:-} to=${DESTDIR:-}${PREFIX:-} list=share/orrery/installed.txt

refuse() { echo "install.sh: $1" >&2; exit 2; }
check() {
    case $prefix in
        /*) ;;
        *) refuse "PREFIX=$prefix: must begin with /; DESTDIR may be any folder" ;;
    esac
    case $to in
        *$'\n'*) refuse 'PREFIX and DESTDIR cannot have line breaks' ;;
        /*) ;;
        *) to=$PWD/$to ;;
    esac
}

# All that is installed, as it will lie in PREFIX, in the folder $stage.
stage_files() {                                             # stage_files PROGRAM BUILT LIBRARY VERSION KERNELS_FOLDER OBJECT...
    local program=$1 built=$2 library=$3 version=$4 kernels=$5 object words; shift 5
    mkdir -p "$stage"/bin "$stage"/include/orrery "$stage"/lib/{orrery/kernels,orrery/course,pkgconfig} "$stage"/share/orrery "$stage"/share/man/man1 \
        "$stage"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    install -m 755 "$program" "$stage/bin/orrery"
    { find tutorials docs/concepts -type f -not -path 'tutorials/teacher/*' -not -path 'tutorials/[0-9]*/check.c' -not -name 'mutants*.txt'
      find golden -type f \( -name '*.safetensors' -o -name '*.json' -o -name '*.txt' \) -not -path 'golden/frameworks/*'; } | tar cf - -T - | tar xof - -C "$stage/share/orrery"
    [ ! -d emulated_devices/cli/teacher ] || "$built" course --skeletons "$stage/share/orrery/tutorials"
    { find ref emulated_devices \( -name '*.h' -o -name '*.def' \) -not -path 'emulated_devices/c*/teacher/*'
      find "$kernels" -type f ! -name '*.h'; } | tar cf - -T - | tar xof - -C "$stage/include/orrery"
    for object in "$@"; do
        [ ! -s "$object.key" ] || install -m 644 "$object" "$object.key" "$stage/lib/orrery/kernels"
    done
    install -m 644 build/course/worker.o build/course/worker.o.key "$stage/lib/orrery/course"
    install -m 644 emulated_devices/library/orrery.h "$stage/include/orrery.h"
    [ ! -s build/wasm/plan.html ] || install -m 644 build/wasm/plan.html "$stage/share/orrery/plan.html"
    install -m 755 "$library" "$stage/lib/liborrery.so.$version"
    ln -s "liborrery.so.$version" "$stage/lib/liborrery.so.${version%%.*}"
    ln -s "liborrery.so.${version%%.*}" "$stage/lib/liborrery.so"
    # A prefix can be moved: the file finds the folders from its own place.  Not every pkg-config would then find words in a
    # path with a blank: that one is written down, with a backslash before each character that would end a word.
    words='${pcfiledir}/../..'
    [[ $prefix != *[^A-Za-z0-9_.,/+:@%=-]* ]] || words=$(sed 's/[^A-Za-z0-9_.,/+:@%=-]/\\&/g' <<<"$prefix")
    words=$words awk -v version="$version" '/^prefix=/ { print "prefix=" ENVIRON["words"]; next } { sub(/@VERSION@/, version); print }' \
        emulated_devices/library/orrery.pc >"$stage/lib/pkgconfig/orrery.pc"
    "$program" manual man >"$stage/share/man/man1/orrery.1"
    "$program" manual bash >"$stage/share/bash-completion/completions/orrery"
    "$program" manual zsh >"$stage/share/zsh/site-functions/_orrery"
    "$program" manual fish >"$stage/share/fish/vendor_completions.d/orrery.fish"
}

# What the list of an earlier installation says; its lines may name nothing outside of PREFIX.
installed() {
    [ -e "$to/$list" ] || return 0
    ! grep -nE '^/|(^|/)\.\.(/|$)|^$' "$to/$list" >&2 || refuse "$to/$list: this line names no file of its own; nothing was changed"
    cat "$to/$list"
}

# Remove the files among the lines of the standard input, then those folders among them that are empty.
remove() {
    local line lines
    mapfile -t lines < <(sort -r)                           # what is in a folder comes before the folder
    for line in "${lines[@]}"; do
        case $line in */) ;; *) printf '%s\0' "$to/$line" ;; esac
    done | xargs -0 rm -f --
    for line in "${lines[@]}"; do
        case $line in */) [ ! -d "$to/$line" ] || rmdir --ignore-fail-on-non-empty -- "$to/${line#./}" ;; esac
    done
}

install_files() {
    local line lines
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    stage=$work/stage
    stage_files "$@"
    installed >"$work/before"
    (cd "$stage" && find . -type d | sed 's|^\./||; s|$|/|') >"$work/folders"
    mapfile -t lines <"$work/folders"
    for line in "${lines[@]}"; do                           # those that are not there yet, and those that an earlier installation made
        if [ ! -d "$to/$line" ] || grep -qxF -- "$line" "$work/before"; then printf '%s\n' "$line"; fi
    done >"$work/list"
    (cd "$stage" && find . ! -type d | sed 's|^\./||') >>"$work/list"
    echo "$list" >>"$work/list"
    # The list comes first: what an installation has written that ends early can be removed, too.
    mkdir -p -- "$to/${list%/*}"
    sort -u "$work/list" >"$to/$list"
    { grep -vxFf "$work/list" "$work/before" || true; } | remove
    (cd "$stage" && find . ! -type d -print0) | tar cf - -C "$stage" --null -T - | tar xof - -C "$to"
}

verb=${1:-}
case $verb in
    check) check ;;
    install) check; shift; install_files "$@" ;;
    uninstall)
        check
        [ -e "$to/$list" ] || refuse "$to/$list is not there: nothing was installed there, or by an older program; nothing was removed"
        files=$(installed)
        remove <<<"$files" ;;
    *) echo 'usage: install.sh check|install|uninstall' >&2; exit 2 ;;
esac
