# A family of models is declared once: a file in ref/model/families/ and its line in families.def.  Nobody else asks which family a
# model is of: what differs is an option (ref/model/options.def).  The one-device model does not read the tables that devices run.
# tier: check

tree=.

# Whatever is not in both the list and the folder, or whose file declares another family.
list_and_folder() {
    (cd "$tree/ref/model/families" && diff <(sed -n 's/^FAMILY(\(.*\))$/\1/p' families.def | sort) \
        <(sed -nE 's/^const struct family family_([a-z0-9_]+) = \{$/\1/p' ./*.c | sort) | sed -nE 's/^([<>]) (.*)/\2: \1/p' |
        sed 's/: </: in families.def, and no file declares it/; s/: >/: declared, and not in families.def/'
    for name in $(grep -l '^const struct family family_' ./*.c); do
        grep -q "^const struct family family_$(basename "$name" .c) = {" "$name" || echo "$name: declares the family of another file"
    done)
}

# FILE:LINE of each comparison of a family, or of its name.
asked() {
    (cd "$tree" && grep -rnE '[!=]= *&family_[a-z0-9_]+|&family_[a-z0-9_]+ *[!=]=|([!=]= *|case )FAMILY_[A-Z0-9_]+|strcmp\([^;]*family->(name|title), *"' \
        --include='*.[ch]' ref emulated_devices) | sed 's/^\([^:]*:[0-9]*\):.*/\1: asks which family a model is of; ask for an option/'
}

# What of ref/ reads tables of nodes besides the families, their lists and what declares them.  golden/names.c computes
# nothing: it writes the tables' names into golden files.
driven() {
    (cd "$tree" && grep -rlE '\bmodel_program\(|struct (node|program)\b|ref/model/node\.h' --include='*.[ch]' ref) |
        grep -vE '^ref/(model/(families/|family\.h$|node\.h$)|golden/names\.c$)' | sed 's/$/: the one-device model reads no tables of nodes/'
}

check() {
    local found
    echo "[ RUN      ] $1"
    if found=$("$2") && [ -z "$found" ]; then echo "[       OK ] $1"; else echo "$found"; echo "[  FAILED  ] $1"; failed=1; fi
}

failed=
check families_are_in_the_list list_and_folder
check no_family_is_asked_for asked
check the_one_device_model_reads_no_table driven

# The rules find what breaks them.
echo "[ RUN      ] rules_find_what_breaks_them"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/ref/model/families" "$tree/emulated_devices"
printf 'FAMILY(one)\nFAMILY(two)\n' >"$tree/ref/model/families/families.def"
echo 'const struct family family_one = {' >"$tree/ref/model/families/one.c"
echo 'const struct family family_three = {' >"$tree/ref/model/families/third.c"
echo 'if (c->family == &family_one) x = 1;' >"$tree/ref/model/forward.c"
echo 'for (const struct node *n = t; n; n++) run(n);' >>"$tree/ref/model/forward.c"
said=$(list_and_folder; asked; driven)
wanted='three: declared, and not in families.def
two: in families.def, and no file declares it
./third.c: declares the family of another file
ref/model/forward.c:1: asks which family a model is of; ask for an option
ref/model/forward.c: the one-device model reads no tables of nodes'
if [ "$(sort <<<"$said")" = "$(sort <<<"$wanted")" ]; then echo "[       OK ] rules_find_what_breaks_them"
else diff <(echo "$wanted") <(echo "$said"); echo "[  FAILED  ] rules_find_what_breaks_them"; failed=1; fi
[ -z "$failed" ]
