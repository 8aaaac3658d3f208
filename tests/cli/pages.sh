# Pages of markdown: their commands run, what is quoted of an output is there.  Sourced after lib.sh.

commands_of() { grep -E '^(    |\$ )orrery ' "$1" | sed -E 's/^(    |\$ )//; s/ +#.*//' | grep -v -- --watch; }

orrery() { run "$@"; }                          # as the pages call it

page_commands() {                               # page_commands PAGE
    local line
    while read -r line; do
        eval "$line"
        case $line in
            'orrery learn '*) [ "$status" = 0 ] || [ "$status" = 3 ] || complain "$1: exit status $status" ;;
            *) [ "$status" = 0 ] || complain "$1: exit status $status" ;;
        esac
    done < <(commands_of "$1")
}

# After a line "$ COMMAND" in a block of code all lines are of its output, in this order; lines may be left out, where ".." stands.
page_quotes() {
    local line quoting=
    while IFS= read -r line; do
        case $line in
            '$ orrery '*) eval "${line#'$ '}"; sed 's/ *$//' "$place/out" >quoted; quoting=yes ;;
            '```'*) quoting= ;;
            ..) ;;
            *) [ -n "$quoting" ] && [ -n "$line" ] || continue
               grep -nxF -- "$line" quoted >found || { complain "$1 quotes a line that is not there: $line"; continue; }
               sed -i "1,$(head -n 1 found | cut -d: -f1)d" quoted ;;
        esac
    done <"$1"
}
