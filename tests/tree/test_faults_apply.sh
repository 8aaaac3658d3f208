# Every fault of tests/faults still fits the sources.  Who changes a line sees here which faults have to follow; whether they are
# noticed is for `make faults`.
# tier: check
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

echo '[ RUN      ] every_fault_applies'
for fault in tests/faults/*.fault; do
    awk -v to="$place" -f tests/faults/apply.awk "$fault" 2>&1 >/dev/null | head -n 1
done >"$place/stale"
if [ ! -s "$place/stale" ]; then echo '[       OK ] every_fault_applies'; exit 0; fi
cat "$place/stale"
echo '[  FAILED  ] every_fault_applies'
exit 1
