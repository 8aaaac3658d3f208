# `make install` into a folder of its own: program, library, man page, completion and lessons work from there, without the sources.
. "$(dirname "$0")/lib.sh"
to=$(mktemp -d)                                     # of all tests: installed once
# As the build has it, and without what make tells make.
in_tree() { (cd "$top" && env -u MAKEFLAGS -u MAKELEVEL make -s --no-print-directory ${san:+SAN=1} DESTDIR="$to" PREFIX=/usr "$@"); }
san=; [[ ${BUILD:-build} != *-san ]] || san=yes

test_install() {
    watched in_tree install;                        expect_status 0
    local f
    for f in bin/orrery include/orrery.h include/orrery/emulated_devices/schemes/plugin.h lib/liborrery.so lib/pkgconfig/orrery.pc share/man/man1/orrery.1 \
        share/bash-completion/completions/orrery share/zsh/site-functions/_orrery share/fish/vendor_completions.d/orrery.fish \
        share/orrery/golden/gpt2-tied.safetensors share/orrery/golden/published/megatron-2021.txt share/orrery/tutorials/worker/worker.c share/orrery/docs/concepts/data.md; do
        expect_file "$to/usr/$f"
    done
    [ "$(command -v nm)" ] || return
    ! nm -D --defined-only "$to/usr/lib/liborrery.so" | awk '$2 != "A" { print $3 }' | grep -v '^orrery_' >"$place/others" || complain "exported: $(head -n 3 "$place/others")"
    readelf -d "$to/usr/lib/liborrery.so" | grep -q 'SONAME.*liborrery\.so\.[0-9]*\]' || complain 'the library has no version'
}

# From another folder, with nothing of the tree to be seen where that is permitted.
away() {
    local words; printf -v words '%q ' "$@"
    command="installed: orrery $*"
    if unshare -rm true 2>/dev/null; then watched unshare -rm bash -c "mount -t tmpfs none '$top' && '$to/usr/bin/orrery' $words"
    else watched "$to/usr/bin/orrery" "$@"; fi
}

test_without_the_sources() {
    unshare -rm true 2>/dev/null || echo 'the tree cannot be hidden here: no mount namespaces'
    seq 2000 >text
    away train --model tiny --data text --steps 1 --batch 2 --dp 2 --check ref; expect_status 0; expect_out '^OK: every'
    away train --model tiny --steps 1 --batch 2;    expect_status 0; expect_out '^text +two plays of Shakespeare, 317026 bytes'
    away plan --model tiny --dp 2 --tp 2;           expect_status 0
    away check gpt2-tied gpt2-tied;                 expect_status 1; expect_error 'ACTUAL gpt2-tied: cannot be read'
    away check gpt2-tied "$to/usr/share/orrery/golden/gpt2-tied.safetensors"; expect_status 0; expect_out '^OK: '
    away sample --model tiny --prompt a --tokens 2; expect_status 0; expect_out '^a'
    [ "${TIER:-test}" != verify ] || { away bench step --model tiny --runs 1 --rounds 1; expect_status 0; }
    away bench published;                           expect_status 0; expect_out '^Megatron-LM on up to 3072 A100'
    away learn --start mine;                        expect_status 0
    rm -f compiled                                  # what is the same in all workers is installed as it was built, for the compiler that built it
    local words; words=$(head -n 1 "$to/usr/lib/orrery/course/worker.o.key"); words=${words%% -std=*}
    mkdir bin; printf '#!/bin/bash\nfor word; do [[ $word != *.c ]] || echo "${word##*/}" >>"%s"; done\nexec "%s" "$@"\n' "$PWD/compiled" "$(command -v "${words##* }")" >"bin/${words##* }"; chmod 755 bin/*
    CC=$words PATH=$PWD/bin:$PATH away learn 1 --in mine; expect_status 3; expect_out 'FAILS +1.forward'
    [ "$(sort -u compiled | tr '\n' ' ')" = 'calls.c sums.c ' ] || complain "compiled: $(tr '\n' ' ' <compiled)"
    rm compiled
    if type c++ >/dev/null 2>&1; then               # the judge of kernels is installed as it was built
        printf '#!/bin/bash\nfor word; do [[ $word != *.c* ]] || echo "${word##*/}" >>"%s"; done\nexec c++ "$@"\n' "$PWD/compiled" >counts; chmod 755 counts
        CXX=$PWD/counts away learn 19 --in mine;    expect_status 3; expect_out 'FAILS +1.values'
        [ "$(cat compiled)" = scan.cu ] || complain "compiled: $(tr '\n' ' ' <compiled)"
    fi
    away list --plugin "$to/usr/share/orrery/tutorials/plugins/lion.c"; expect_status 0; expect_out '^  lion '
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
    local flags; flags=$(PKG_CONFIG_SYSROOT_DIR=$to PKG_CONFIG_PATH=$to/usr/lib/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 \
        pkg-config --cflags --libs orrery) || complain 'pkg-config does not find orrery'
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror mine.c $flags -o mine || complain 'it does not compile'
    compiled() { LD_LIBRARY_PATH=$to/usr/lib ./mine "$1"; }
    command=./mine; watched compiled "$to/usr/share/orrery/golden/gpt2-tied.safetensors"; expect_status 0; expect_out '^orrery [0-9.]*, loss [0-9]'
}

test_man_page() {
    command -v mandoc >/dev/null || { echo 'skipped: there is no mandoc'; return; }
    command="mandoc -T lint orrery.1"; watched mandoc -T lint "$to/usr/share/man/man1/orrery.1"; expect_status 0
    [ ! -s "$place/out" ] || complain 'it has something to complain about'
    command="mandoc orrery.1"; watched mandoc -T utf8 "$to/usr/share/man/man1/orrery.1"; sed -i 's/.\x08//g' "$place/out"
    local word
    for word in $("$to/usr/bin/orrery" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do expect_out "^ +orrery $word\$"; done
    expect_out '^ +--check ref\|FILE'
}

# What bash would offer, after these words.
offers() { (COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); . "$to/usr/share/bash-completion/completions/orrery"; _orrery; printf '%s\n' "${COMPREPLY[@]}") >"$place/out"; command="completion of: $*" err=; out=$(cat "$place/out"); }

test_completion() {
    offers orrery tr;                               [ "$out" = train ] || complain 'not train'
    offers orrery show sch;                         [ "$out" = schedule ] || complain 'not schedule'
    offers orrery show schedule --mi;               [ "$out" = --micro ] || complain 'not --micro'
    offers orrery train --dtype bf;                 [ "$out" = bf16 ] || complain 'not bf16'
    offers orrery verify colle;                     [ "$out" = collectives ] || complain 'not collectives'
    offers orrery golden m;                         [ "$out" = make ] || complain 'not make'
    touch words.txt; offers orrery train --data wor; [ "$out" = words.txt ] || complain 'not a file'
    if command -v zsh >/dev/null; then zsh -n "$to/usr/share/zsh/site-functions/_orrery" || complain 'zsh cannot read it'; else echo 'no zsh: its completion is not tried'; fi
    if command -v fish >/dev/null; then
        fish -c "source $to/usr/share/fish/vendor_completions.d/orrery.fish; complete -C 'orrery train --dty'" 2>&1 | grep -q '^--dtype' || complain 'fish does not complete --dtype'
    else echo 'no fish: its completion is not tried'; fi
}

test_uninstall() {
    watched in_tree uninstall;                      expect_status 0
    [ -z "$(find "$to" -type f -o -type l)" ] || complain "it leaves $(find "$to" -type f -o -type l | head -n 3)"
    rm -rf "$to"
}

run_tests test_install test_without_the_sources test_a_program_of_ones_own test_man_page test_completion test_uninstall
