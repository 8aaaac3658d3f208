# How many objects of the program each of these headers is in.  A header that is in many makes a change of it a long build, and lets its
# readers see what they need not know.  A change may lower these numbers.  Files of families are not counted: each new one includes the same.
# tier: check

limits='ref/model/config.h 301
ref/model/families/families.def 8
ref/model/transformer.h 109
ref/model/mezo.h 4
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
if [ -z "$failed" ]; then echo "[       OK ] headers_are_in_few_objects"; else echo "[  FAILED  ] headers_are_in_few_objects"; exit 1; fi
