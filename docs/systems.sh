# systems.sh -- prints docs/systems.md, which has what `orrery list systems` says.
#
#     ORRERY=./orrery bash docs/systems.sh >docs/systems.md
#
# tests/cli/test_systems.sh compares the page with what it prints.
set -e
program=${ORRERY:-./orrery}
cat <<'PAGE'
# Published systems

What is here of papers on training and serving with many devices. Each entry has what its paper
claims, and the command that shows how that is here. `not here` is what a claim needs and this
program lacks. `orrery bench` prints claims and our numbers side by side, so none is repeated here.

`docs/systems.sh` prints this page; the list itself stands in `emulated_devices/cli/list/systems.c`.

```
$ ./orrery list systems
PAGE
COLUMNS=100 "$program" list systems
printf '```\n'
