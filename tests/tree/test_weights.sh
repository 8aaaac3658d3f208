# How many objects of the program each of these headers is in.  A header that is in many makes a change of it a long build, and lets its
# readers see what they need not know.  A change may lower these numbers.  Files of families are not counted: each new one includes the same.
# tier: check

# Each plan has a copy of struct model_config, so config.h is in most objects, and kinds.h names what is only a number there.
: "${BUILD:=build}"
limits='ref/model/config.h 480
ref/model/kinds.h 98
ref/model/params.h 127
ref/model/options.def 41
ref/model/node.h 41
ref/model/op.h 248
ref/model/families/families.def 8
ref/model/transformer.h 192
ref/model/mezo.h 5
ref/optim/galore.h 19
ref/optim/rates.h 8'

echo "[ RUN      ] headers_are_in_few_objects"
failed=
while read -r header most; do
    objects=$(find "$BUILD/ref" "$BUILD/emulated_devices" -name '*.d' -exec grep -lE "(^| )$header( |:|\$)" {} + | sed -E "s#^$BUILD/##; s/(\.F(32|64))?\.d\$//" |
        grep -v '^ref/model/families/' | sort -u | while read -r source; do [ ! -e "$source.c" ] || echo; done | wc -l)         # a file that is gone has left its .d
    [ "$objects" -gt 0 ] || { echo "$header: no object has it: was it renamed?"; failed=1; }
    [ "$objects" -le "$most" ] || { echo "$header is in $objects objects, and $most are the limit: include less in headers, or declare the struct"; failed=1; }
done <<<"$limits"
if [ -z "$failed" ]; then echo "[       OK ] headers_are_in_few_objects"; else echo "[  FAILED  ] headers_are_in_few_objects"; fi

echo "[ RUN      ] config_h_names_no_kind"
if grep -nE '^enum [a-z_]+ *\{' ref/model/config.h; then
    echo "a new value of this enum is compiled wherever there is a plan: kinds.h is for the names of kinds, a number for the field"
    failed=1; echo "[  FAILED  ] config_h_names_no_kind"
else echo "[       OK ] config_h_names_no_kind"; fi

# The compiler compares a number with any enum; these fields take names with their own beginning only.
echo "[ RUN      ] kinds_are_of_their_fields"
mixed=
for pair in norm:NORM_ positions:POSITIONS_ mlp:MLP_ activation:ACTIVATION_ norms_at:NORMS_ scaling:SCALING_; do
    field=${pair%:*} begins=${pair#*:}
    ! grep -rnoE "(\.|->)$field *[=!]?= *[A-Z]{2}[A-Z_]*" --include='*.[ch]' ref emulated_devices tests | grep -v "= *$begins\|= *NULL" || mixed=1
done
if [ -z "$mixed" ]; then echo "[       OK ] kinds_are_of_their_fields"
else echo "a kind is compared with a name of another kind"; failed=1; echo "[  FAILED  ] kinds_are_of_their_fields"; fi
# The linker takes the first function of a name that it finds in a library, whatever its arguments, and says nothing.
echo "[ RUN      ] functions_are_defined_once"
if ! type nm >/dev/null 2>&1; then echo 'skipped: there is no nm'
else
    twice=$(nm -A --defined-only "$BUILD/libdevices.a" "$BUILD/libref.a" 2>/dev/null | awk 'NF >= 3 && $(NF - 1) ~ /^[TDBR]$/ { print $NF }' | sort | uniq -d)
    nm --defined-only "$BUILD/libref.a" 2>/dev/null | grep -q ' T ' || twice="nothing: $BUILD/libref.a has no symbols"
    [ -z "$twice" ] || { echo "defined in two files: $twice"; failed=1; echo "[  FAILED  ] functions_are_defined_once"; }
fi
[ -n "${twice:-}" ] || echo "[       OK ] functions_are_defined_once"
[ -z "$failed" ] || exit 1
