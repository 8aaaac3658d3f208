# commands.awk -- the commands that a page prints, and what the page says that they print.
#
#     awk -f tests/documents/commands.awk docs/using/runs.md
#
# A line of output is a record with tabs: C, line, command; or E, line, a line that the command before is said to print.
# A block is indented by four, or fenced.  With `$ ` in a fenced block, only lines that begin so are commands.  run.sh
# calls this program.

function block_end(    i, text, command, prompts) {
    prompts = 0
    for (i = 1; i <= lines; i++) if (line[i] ~ /^\$ /) prompts = 1
    command = ""
    said = 0                            # whether lines of this block that are no commands belong to one
    for (i = 1; i <= lines; i++) {
        text = line[i]
        if (command != "") command = command " " trimmed(text)
        else if (prompts ? text ~ /^\$ / : text ~ /^(time )?(\.\/[a-z_]+|orrery) |^(printf|echo|seq|cc|mkdir|cd|cp|export|cat|mpiexec) /) {
            command = prompts ? substr(text, 3) : text
            at = number[i]
        } else {
            if (said && text !~ /^ *$/) print "E\t" number[i] "\t" text
            continue
        }
        if (command ~ /\\$/) { sub(/ *\\$/, "", command); continue }
        print "C\t" at "\t" command
        command = ""
        said = 1
    }
    lines = 0
}

function trimmed(text) { sub(/^ +/, "", text); return text }

/^```/ { block_end(); fenced = !fenced; next }
fenced { line[++lines] = $0; number[lines] = FNR; next }
/^    / { line[++lines] = substr($0, 5); number[lines] = FNR; next }
# An indented block goes on after an empty line, if what follows is indented, too.
/^$/ && lines > 0 { line[++lines] = ""; number[lines] = FNR; next }
{ block_end() }
END { block_end() }
