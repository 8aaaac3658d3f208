# `orrery list systems`: every published system has a command that shows it, and every command runs.
# In `make test` those that take no time, in `make verify` all.
. "$(dirname "$0")/lib.sh"

commands() { grep -oE '"shown by: orrery [^"]*"' "$1" | sed -E 's/^"shown by: orrery (.*)"$/\1/'; }

# A name once, a source and a command each.
test_each_has_its_command() {
    run list systems; expect_status 0; expect_silent; expect_columns 100
    run list systems --json list.json; expect_status 0
    local systems; systems=$(grep -c '"name":' list.json)
    [ "$systems" -ge 50 ] || complain "$systems systems"
    [ "$(commands list.json | wc -l)" = "$systems" ] || complain 'not every system has a command'
    [ "$(grep -oE '"from [^"]*"' list.json | wc -l)" = "$systems" ] || complain 'not every system has a source'
    [ "$(grep -oE '"name":[^,]*' list.json | sort | uniq -d | wc -l)" = 0 ] || complain "a name stands twice: $(grep -oE '"name":[^,]*' list.json | sort | uniq -d)"
}

test_commands_run() {
    local line quick='^(show|list|plan|lint) '
    ln -s "$top/tutorials" tutorials      # whose files some commands read
    run list systems --json list.json
    [ "${TIER:-test}" != verify ] || quick=.
    while IFS= read -r line; do
        [[ $line =~ $quick ]] || continue
        eval "run $line"; expect_status 0
    done < <(commands list.json | sort -u)
}

# docs/systems.md is made of the list.
test_page_is_of_the_program() {
    ORRERY=$program bash "$top/docs/systems.sh" >page
    cmp -s page "$top/docs/systems.md" ||
        complain "docs/systems.md is not what docs/systems.sh prints; $(diff page "$top/docs/systems.md" | head -3)"
}

run_tests test_each_has_its_command test_page_is_of_the_program test_commands_run
