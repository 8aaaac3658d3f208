# `orrery list systems`: every published system has a command that shows it, and every command runs.
# In `make test` those that take no time, in `make verify` all.
. "$(dirname "$0")/lib.sh"

commands() { sed -nE 's/^ +shown by: orrery (.*)$/\1/p' "$1"; }

# A name once, a source each, and no line is folded: a reader copies the command.
test_each_has_its_command() {
    COLUMNS=200 run list systems; expect_status 0; expect_silent; cp "$place/out" list
    local systems; systems=$(grep -cE '^ +from ' list)
    [ "$systems" -ge 50 ] || complain "$systems systems"
    [ "$(commands list | wc -l)" = "$systems" ] || complain 'not every system has a command'
    run list systems --json list.json; expect_status 0
    [ "$(grep -oE '"name":[^,]*' list.json | sort | uniq -d | wc -l)" = 0 ] || complain "a name stands twice: $(grep -oE '"name":[^,]*' list.json | sort | uniq -d)"
}

# The words of each command are known to it: with --help behind, nothing runs, and wrong words are still refused.
test_commands_run() {
    local line quick='^(show|list|plan) '
    COLUMNS=200 run list systems; cp "$place/out" list
    [ "${TIER:-test}" != verify ] || quick=.
    while IFS= read -r line; do
        [[ $line =~ $quick ]] || continue
        eval "run $line"; expect_status 0
    done < <(commands list | sort -u)
}

run_tests test_each_has_its_command test_commands_run
