# The fingerprint of plug-ins has every field and value that plug-ins share with the program (emulated_devices/schemes/plugin_fields.h).
# tier: check
#
#     bash tests/tree/test_plugin_fields.sh --write      writes the list anew, after a structure has changed

list=emulated_devices/schemes/plugin_fields.h

# What a plug-in fills, reads or passes on.
structs='action algorithm arena attention_call attention_scheme backend collective collective_cost comm context_parallel data_request
    data_scheme device error exchange expert_parallel expert_scheme forecast group hyperparameters interval intervals mixture_call nodes
    optimizer schedule schedule_generator schedule_request scheme shards step tensor tensor_cut tensor_parallel tensor_scheme weight_cut'
enums='action_kind adding_order arena_tag dtype equality error_code operation param_role reduction scheme_kind tensor_pass tensor_place'

# One F(struct, field) or V(value) a line.
in_headers() {
    printf '#include "emulated_devices/schemes/plugin.h"\n' >"$1/all.c"
    ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -E -P -I. "$1/all.c" |
        awk -v structs="$(echo $structs)" -v enums="$(echo $enums)" -f tests/tree/plugin_fields.awk
}
in_list() { grep -oE '\b[FV]\([a-z_A-Z0-9]+(, [a-zA-Z_0-9]+)?\)' "$list" | grep -vxE 'F\(struct, field\)|V\(value\)'; }

write_list() {
    local kind name
    sed '/^#define PLUGIN_FIELDS/,$d' "$list" >"$1/new.h"
    for kind in 'F FIELDS' 'V VALUES'; do
        name=PLUGIN_${kind#* }
        in_headers "$1" | grep "^${kind% *}(" | awk -v name="$name" -v letter="${kind% *}" '
            BEGIN { line = "#define " name "(" letter ")" }
            { if (length(line) + length($0) + 3 > 116) { printf "%-119s\\\n", line; line = "   " } line = line " " $0 }
            END { print line "\n" }'
    done >>"$1/new.h"
    echo '#endif' >>"$1/new.h"
    mv "$1/new.h" "$list"
}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if [ "${1:-}" = --write ]; then
    # The headers do not compile while the list names a field that is gone.
    sed -i '/^#define PLUGIN_FIELDS/,$d' "$list"; printf '#define PLUGIN_FIELDS(F)\n#define PLUGIN_VALUES(V)\n#endif\n' >>"$list"
    write_list "$place"; exit
fi

echo "[==========] tests: Running 1 test(s)."
echo "[ RUN      ] test_plugin_fields"
if diff <(in_headers "$place" | sort) <(in_list | sort) >"$place/differ" && [ "$(in_list | wc -l)" -gt 400 ]; then
    echo "[       OK ] test_plugin_fields"
    echo "[  PASSED  ] 1 test(s)."
else
    sed -n 's/^< /not in the list: /p; s/^> /not in the headers: /p' "$place/differ" | head
    echo "bash tests/tree/test_plugin_fields.sh --write   makes the list anew"
    echo "[  FAILED  ] test_plugin_fields"
    exit 1
fi
