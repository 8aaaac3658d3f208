# `make install` into a folder of its own: program, library, man page, completion and lessons work from there, without the sources.
. "$(dirname "$0")/lib.sh"
ground=$(mktemp -d)                                 # of all tests: installed once, where every path has blanks
stage=$ground/'the stage' to=$ground/'the stage/usr/our own'
# As the build has it, and without what make tells make.
in_tree() { (cd "$top" && env -u MAKEFLAGS -u MAKELEVEL -u PREFIX -u DESTDIR make -s --no-print-directory ${san:+SAN=1} "$@"); }
placed() { in_tree "$1" DESTDIR="$stage" PREFIX='/usr/our own'; }
san=; [[ ${BUILD:-build} != *-san ]] || san=yes

# What an unquoted path would be taken for, and what is not ours in the folders that are.
make_neighbours() {
    mkdir -p "$ground/the/mine" "$stage/usr/our/mine" "$to/bin" "$to/share/orrery"
    neighbours=("$ground/the/mine/a" "$stage/usr/our/mine/b" "$to/bin/c" "$to/share/orrery/d e" "$ground/the stage/usr/f")
    touch "${neighbours[@]}"
}

test_install() {
    make_neighbours
    watched placed install;                         expect_status 0
    local f
    for f in bin/orrery include/orrery.h include/orrery/emulated_devices/schemes/plugin.h lib/liborrery.so lib/pkgconfig/orrery.pc share/man/man1/orrery.1 \
        share/bash-completion/completions/orrery share/zsh/site-functions/_orrery share/fish/vendor_completions.d/orrery.fish \
        share/orrery/golden/gpt2-tied.safetensors share/orrery/golden/published/plan-2021.txt share/orrery/tutorials/worker/worker.c share/orrery/docs/concepts/data.md; do
        expect_file "$to/$f"
    done
    # What makes solutions, and they themselves, stay in the tree (test_student_tree.sh): lessons are as students get them.
    ! grep -rlE 'SOLUTION\*/|#SOLUTION' "$to"/share/orrery/tutorials/[0-9]* || complain 'solutions are installed'
    [ -z "$(find "$to" -name 'mutants.txt' -o -path '*tutorials/teacher*' -o -path '*tutorials/*/check.c')" ] || complain 'what teachers have is installed'
    command='orrery course'; watched "$to/bin/orrery" course --teacher "$ground/stolen"; expect_status 2; expect_error 'course: there is no such command'
    [ "$(command -v nm)" ] || return
    ! nm -D --defined-only "$to/lib/liborrery.so" | awk '$2 != "A" { print $3 }' | grep -v '^orrery_' >"$place/others" || complain "exported: $(head -n 3 "$place/others")"
    readelf -d "$to/lib/liborrery.so" | grep -q 'SONAME.*liborrery\.so\.[0-9]*\]' || complain 'the library has no version'
}

# From another folder, with nothing of the tree to be seen where that is permitted.
away() {
    local words; printf -v words '%q ' "$@"
    command="installed: orrery $*"
    if unshare -rm true 2>/dev/null; then watched unshare -rm bash -c "mount -t tmpfs none '$top' && ${before[*]} '$to/bin/orrery' $words"
    else watched "${before[@]}" "$to/bin/orrery" "$@"; fi
}

test_without_the_sources() {
    unshare -rm true 2>/dev/null || echo 'the tree cannot be hidden here: no mount namespaces'
    seq 2000 >text
    away train --model tiny --data text --steps 1 --batch 2 --dp 2 --check ref; expect_status 0; expect_out '^OK: every'
    away train --model tiny --steps 1 --batch 2;    expect_status 0; expect_out '^text +two plays of Shakespeare, 317026 bytes'
    away plan --model tiny --dp 2 --tp 2;           expect_status 0
    away check gpt2-tied gpt2-tied;                 expect_status 1; expect_error 'ACTUAL gpt2-tied: cannot be read'
    away check gpt2-tied "$to/share/orrery/golden/gpt2-tied.safetensors"; expect_status 0; expect_out '^OK: '
    away sample --model tiny --prompt a --tokens 2; expect_status 0; expect_out '^a'
    [ "${TIER:-test}" != verify ] || { away bench step --model tiny --runs 1 --rounds 1; expect_status 0; }
    away bench published --only plan-2021;          expect_status 0; expect_out '^orrery plan: Megatron-LM on up to 3072 A100'
    away learn --start mine;                        expect_status 0
    deny; local before=("$place/deny" namespaces landlock --); : >compiled; chmod 666 compiled; chmod 755 .. .      # what is the same in all workers is installed as it was built, for the compiler that built it
    local words; words=$(head -n 1 "$to/lib/orrery/course/worker.o.key"); words=${words%% -std=*}
    mkdir bin; printf '#!/bin/bash\nfor word; do [[ $word != *.c ]] || echo "${word##*/}" >>"%s"; done\nexec "%s" "$@"\n' "$PWD/compiled" "$(command -v "${words##* }")" >"bin/${words##* }"; chmod 755 bin/*
    CC=$words PATH=$PWD/bin:$PATH away learn 1 --in mine; expect_status 3; expect_out 'FAILS +1.forward'
    [ "$(sort -u compiled | tr '\n' ' ')" = 'calls.c sums.c ' ] || complain "compiled: $(tr '\n' ' ' <compiled)"
    : >compiled
    if type c++ >/dev/null 2>&1; then               # the judge of kernels is installed as it was built
        printf '#!/bin/bash\nfor word; do [[ $word != *.cu ]] || echo "${word##*/}" >>"%s"; done\nexec c++ "$@"\n' "$PWD/compiled" >counts; chmod 755 counts
        CXX=$PWD/counts away learn 19 --in mine;    expect_status 3; expect_out 'FAILS +1.values'
        [ "$(cat compiled)" = scan.cu ] || complain "compiled: $(tr '\n' ' ' <compiled)"
    fi
    before=(); away list all --plugin "$to/share/orrery/tutorials/plugins/lion.c"; expect_status 0; expect_out '^  lion '
}

test_a_program_of_ones_own() {
    [ -z "$san" ] || { echo 'skipped: a program would need the sanitizers, too'; return; }
    command -v pkg-config >/dev/null || { echo 'skipped: there is no pkg-config'; return; }
    cat >mine.c <<'C'
#include <orrery.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    char *plan[] = { "plan", "--model", "tiny", "--dp", "2", NULL }, *wrong[] = { "plna", NULL }, *json, why[ORRERY_MESSAGE];
    if (argc < 2 || orrery_json(plan, &json) != 0 || strstr(json, "\"orrery plan\"") == NULL) return 1;
    orrery_free(json);
    if (orrery_json(wrong, &json) != 2 || json != NULL) return 2;
    struct orrery_tensors *file = orrery_tensors_open("nowhere", why);
    if (file != NULL || strstr(why, "nowhere") == NULL) return 3;
    file = orrery_tensors_open(argv[1], why);
    struct orrery_tensor t;
    const int i = file ? orrery_tensors_find(file, "loss") : -1;
    if (i < 0 || orrery_tensors_get(file, i, &t) != 0 || t.count != 1 || orrery_tensors_get(file, -1, &t) == 0) return 4;
    double loss = 0, *ids = NULL;
    const int k = orrery_tensors_find(file, "ids");
    if (orrery_tensors_read(file, i, &loss, why) != 0 || !(loss > 1 && loss < 9)) return 5;
    if (k < 0 || orrery_tensors_get(file, k, &t) != 0 || (ids = malloc(sizeof *ids * (size_t)t.count)) == NULL) return 6;
    if (orrery_tensors_read(file, k, ids, why) != 0 || !(ids[0] >= 0 && ids[0] == (long)ids[0])) return 7;
    printf("orrery %s, loss %.4f\n", orrery_version(), loss);
    free(ids);
    orrery_tensors_close(file);
    return 0;
}
C
    local flags; flags=$(PKG_CONFIG_PATH=$to/lib/pkgconfig pkg-config --cflags --libs orrery) || complain 'pkg-config does not find orrery'
    eval "flags=($flags)"                           # as a shell reads them: in each a path with a blank
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror mine.c "${flags[@]/'/usr/our own'/"$to"}" -o mine || complain "it does not compile: ${flags[*]}"
    compiled() { LD_LIBRARY_PATH=$to/lib ./mine "$1"; }
    command=./mine; watched compiled "$to/share/orrery/golden/gpt2-tied.safetensors"; expect_status 0; expect_out '^orrery [0-9.]*, loss [0-9]'
}

test_man_page() {
    command -v mandoc >/dev/null || { echo 'skipped: there is no mandoc'; return; }
    command="mandoc -T lint orrery.1"; watched mandoc -T lint "$to/share/man/man1/orrery.1"; expect_status 0
    [ ! -s "$place/out" ] || complain 'it has something to complain about'
    command="mandoc orrery.1"; watched mandoc -T utf8 "$to/share/man/man1/orrery.1"; sed -i 's/.\x08//g' "$place/out"
    local word
    for word in $("$to/bin/orrery" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do expect_out "^ +orrery $word\$"; done
    expect_out '^ +--check ref\|FILE'
}

# What bash would offer, after these words.
offers() { (COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); . "$to/share/bash-completion/completions/orrery"; _orrery; printf '%s\n' "${COMPREPLY[@]}") >"$place/out"; command="completion of: $*" err=; out=$(cat "$place/out"); }

test_completion() {
    offers orrery tr;                               [ "$out" = train ] || complain 'not train'
    offers orrery show sch;                         [ "$out" = schedule ] || complain 'not schedule'
    offers orrery show schedule --mi;               [ "$out" = --micro ] || complain 'not --micro'
    offers orrery train --dtype bf;                 [ "$out" = bf16 ] || complain 'not bf16'
    offers orrery verify colle;                     [ "$out" = collectives ] || complain 'not collectives'
    offers orrery golden m;                         [ "$out" = make ] || complain 'not make'
    touch words.txt; offers orrery train --data wor; [ "$out" = words.txt ] || complain 'not a file'
    if command -v zsh >/dev/null; then zsh -n "$to/share/zsh/site-functions/_orrery" || complain 'zsh cannot read it'; else echo 'no zsh: its completion is not tried'; fi
    if command -v fish >/dev/null; then
        fish -c "source '$to'/share/fish/vendor_completions.d/orrery.fish; complete -C 'orrery train --dty'" 2>&1 | grep -q '^--dtype' || complain 'fish does not complete --dtype'
    else echo 'no fish: its completion is not tried'; fi
}

test_uninstall() {
    watched placed uninstall;                       expect_status 0
    local left; left=$(cd "$ground" && find . ! -type d | sort)
    [ "$left" = "$(printf '%s\n' "${neighbours[@]/#"$ground"/.}" | sort)" ] || complain "left: $left"
    [ -d "$to/bin" ] && [ -d "$to/share/orrery" ] || complain 'folders that were there before are gone'
    [ ! -e "$to/lib" ] && [ ! -e "$to/include" ] && [ ! -e "$to/share/man" ] || complain "folders of nothing are left: $(ls "$to" "$to/share")"
    watched placed uninstall;                       expect_status 2; expect_make_error 'installed.txt is not there: nothing was installed there'
}

expect_make_error() { grep -qF -- "$1" "$place/err" || complain "no error says: $1"; }

# What make, a shell or pkg-config would take for something else.
test_paths() {
    local strange="$ground/it's a \"b&c|d;e#"
    watched in_tree install PREFIX="$strange";      expect_status 0
    watched "$strange/bin/orrery" list dtypes;      expect_status 0
    echo kept >"$strange/lib/orrery/kernels/mine"
    echo gone/old >>"$strange/share/orrery/installed.txt"; mkdir "$strange/gone"; touch "$strange/gone/old"
    watched in_tree install PREFIX="$strange";      expect_status 0     # a file of the version before is not one of this
    [ ! -e "$strange/gone/old" ] || complain 'a file of the version before is left'
    echo ../../x >>"$strange/share/orrery/installed.txt"
    watched in_tree uninstall PREFIX="$strange";    expect_status 2; expect_make_error 'this line names no file of its own; nothing was changed'
    sed -i '$d' "$strange/share/orrery/installed.txt"
    watched in_tree uninstall PREFIX="$strange";    expect_status 0
    [ "$(cd "$strange" && find . ! -type d)" = ./lib/orrery/kernels/mine ] || complain "left: $(find "$strange" ! -type d)"
    watched in_tree install PREFIX=there;           expect_status 2; expect_make_error 'PREFIX=there: must begin with /'
    watched in_tree uninstall PREFIX=;              expect_status 2; expect_make_error 'PREFIX=: must begin with /'
    watched in_tree install PREFIX="$ground/\$x/y"; expect_status 2; expect_make_error 'PREFIX and DESTDIR cannot have a $'
    [ ! -e "$ground//y" ] && [ ! -e "$top/there" ] || complain 'something was installed'
    rm -rf "$ground"
}

run_tests test_install test_without_the_sources test_a_program_of_ones_own test_man_page test_completion test_uninstall test_paths
