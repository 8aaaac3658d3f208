# Every fault of tests/faults still fits the sources, and names a program that notices it.  Who changes a line sees here which faults
# have to follow; whether they are noticed is for `make faults`.
# tier: check
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

echo '[ RUN      ] every_fault_applies'
for fault in tests/faults/*.fault; do
    awk -v to="$place" -f tests/faults/apply.awk "$fault" 2>&1 >/dev/null | head -n 1
done >"$place/stale"
if [ ! -s "$place/stale" ]; then echo '[       OK ] every_fault_applies'
else cat "$place/stale"; echo '[  FAILED  ] every_fault_applies'; bad=1; fi

# A test's program, not its source, which bash would be asked to run.
echo '[ RUN      ] every_fault_names_a_program'
grep -HnE '^caught by: (! )?tests/' tests/faults/*.fault >"$place/files"
if [ ! -s "$place/files" ]; then echo '[       OK ] every_fault_names_a_program'
else cat "$place/files"; echo '[  FAILED  ] every_fault_names_a_program'; bad=1; fi
# What the page says of a fault is of one that is there; names with a star are of several.
echo '[ RUN      ] named_faults_are_there'
sed -n '/^## What developers report/,/^Rows of the cat.*/p; /^| M[0-9]/p' docs/checking/faults.md | grep '^|' | cut -d'|' -f3 | grep -oE '`[a-z0-9*_-]+`' | tr -d '`' |
    while read -r name; do compgen -G "tests/faults/$name.fault" >"$place/found" || echo "docs/checking/faults.md: $name is not there"; done >"$place/gone"
if [ ! -s "$place/gone" ]; then echo '[       OK ] named_faults_are_there'
else cat "$place/gone"; echo '[  FAILED  ] named_faults_are_there'; bad=1; fi
exit ${bad:-0}
