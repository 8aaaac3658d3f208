# Names tell what they name: a static function carries its room's noun, a parameter its type's name.
# tier: check
#
# A function may share its name with those of two other files.  A pointer of one letter means at most two types in a room.  Letters are for
# the dimensions of docs/words.md and for numbers, so few parameters have one.

tree=.
most_files=3                            # that define a function of one name
most_types=2                            # of structs, for one letter in one room
most_letters=15                         # percent of all parameters

sources() { (cd "$tree" && find ref emulated_devices -name '*.[ch]' | sort); }

# names: FILE function NAME, and FILE parameter NAME TYPE, for each function that is defined; `pair` after parameters of one type.
names() {
    (cd "$tree" && sources | xargs -d '\n' awk '
        function declared(head, name, list,    i, depth, c, at, one, type, n, of, called, times) {
            print FILENAME, "function", name
            list = list ","; depth = 0; at = 1
            for (i = 1; i <= length(list); i++) {
                c = substr(list, i, 1); depth += (c ~ /[(\[]/) - (c ~ /[)\]]/)
                if (c != "," || depth > 0) continue
                one = substr(list, at, i - at); at = i + 1
                sub(/(\[[^]]*\])+ *$/, "", one); gsub(/^ +| +$/, "", one)
                if (one !~ /^[A-Za-z_][A-Za-z_0-9 *]*[ *][A-Za-z_0-9]+$/) continue
                type = one; sub(/[A-Za-z_0-9]+$/, "", type); sub(/^.*[^A-Za-z_0-9]/, "", one)
                gsub(/const /, "", type); gsub(/ /, "", type); sub(/^struct/, "struct ", type)
                called[++n] = one; of[n] = type; times[type]++
            }
            for (i = 1; i <= n; i++) print FILENAME, "parameter", called[i], of[i] (times[of[i]] > 1 ? " pair" : "")
        }
        FNR == 1 { text = "" }
        { sub(/\/\*.*\*\//, "") }
        text == "" && /^[a-z].*[ *][a-z_][A-Za-z_0-9]*\(/ && !/;[ ]*$/ { text = $0; sub(/^ +/, "", text); if ($0 !~ /\)[ ]*(\{.*)?$/) next }
        text != "" && FNR > 1 {
            if ($0 !~ /^[a-z]/) { line = $0; sub(/^ +/, " ", line); if (line !~ /^\{/) text = text line }
            if ($0 ~ /;[ ]*$/ && $0 !~ /\{/) { text = ""; next }
            if ($0 !~ /^\{/ && text !~ /\)[ ]*\{/) next
            head = text; sub(/[ ]*\{.*$/, "", head); text = ""
            open = index(head, "("); name = substr(head, 1, open - 1); sub(/^.*[^A-Za-z_0-9]/, "", name)
            list = substr(head, open + 1); sub(/\)[ ]*$/, "", list)
            declared(head, name, list)
        }')
}

shared_names() {
    names | awk -v most="$most_files" '$2 == "function" && !seen[$1, $3]++ { count[$3]++; files[$3] = files[$3] " " $1 }
        END { for (name in count) if (count[name] > most) print name " is a function of " count[name] " files:" files[name] ": give each the noun of its file, as in ring_run" }'
}

letters_of_many_types() {
    names | awk -v most="$most_types" '$2 == "parameter" && length($3) == 1 && $4 == "struct" && $5 ~ /\*$/ && $6 == "" {
            split($1, part, "/"); room = part[1] == "ref" ? part[1] "/" part[2] : part[2]
            if (!seen[room, $3, $5]++) { count[room " " $3]++; types[room " " $3] = types[room " " $3] " " $5 } }
        END { for (at in count) if (count[at] > most) print at ": a pointer of one letter to " count[at] " types:" types[at] ": give each the name of its type" }'
}

letters() {
    names | awk -v most="$most_letters" '$2 == "parameter" { all++; one += length($3) == 1 }
        END { if (100 * one > most * all) print one " of " all " parameters have one letter, and " most " % may" }'
}

# A file says in its first line what it is.  Generated headers and includes of X-macros (.def) are no sources.
without_head() {
    (cd "$tree" && sources | while read -r file; do [ "$(head -c 2 "$file")" = '/*' ] || echo "$file:1: begins with no comment that says what the file is"; done)
}

# The head of a header names a file that includes it, directly or through other headers, or a folder of such a file; its own source does not
# count.  So whoever reads the header alone knows who calls.  Nobody in this tree includes these:
#     library/orrery.h                      programs outside of it do
#     cooperative_groups.h and three more   the emulator refuses them: whatever includes one does not compile
without_users() {
    (cd "$tree" && { find ref emulated_devices tests tutorials -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp'; } | LC_ALL=C sort |
        LC_ALL=C xargs -d '\n' awk '
        # Includes are by a path from the top, from tutorials/ or its worker/, or beside the file; <..> may be a header of the emulator.
        function add(from, name) { includers[name] = includers[name] " " from }
        function note(from, quoted,    beside) {
            beside = from; sub(/[^\/]*$/, "", beside)
            add(from, quoted); add(from, "tutorials/" quoted); add(from, "tutorials/worker/" quoted); add(from, beside quoted)
        }
        # All files that reach this header, into `seen`.
        function reach(header,    todo, n, i, k, one, list) {
            split("", seen); todo[n = 1] = header
            for (i = 1; i <= n; i++) {
                k = split(includers[todo[i]], list, " ")
                for (; k > 0; k--) if (!(list[k] in seen)) { seen[list[k]] = 1; if (list[k] !~ /\.c$/) todo[++n] = list[k] }
            }
            one = header; sub(/h$/, "c", one); delete seen[one]; delete seen[header]
        }
        # Is this word of a head a file of `seen`, or a folder of one?
        function is_user(word,    path, at) {
            sub(/\.$/, "", word)
            if (word !~ /\// && word !~ /\.(c|h|cu|cuh|cpp)$/) return 0
            for (path in seen) {
                at = "/" path
                if (word ~ /\.(c|h|cu|cuh|cpp)$/ ? substr(at, length(at) - length(word)) == "/" word : index(at, "/" word (word ~ /\/$/ ? "" : "/"))) return 1
            }
            return 0
        }
        FNR == 1 { name[++files] = FILENAME; open = /^\/\*/ }
        open { if (FILENAME ~ /\.h$/) head[FILENAME] = head[FILENAME] " " $0; if (/\*\//) open = 0; next }
        /^[ ]*#[ ]*include "/ { split($0, part, "\""); note(FILENAME, part[2]); next }
        /^[ ]*#[ ]*include </ { split($0, part, /[<>]/); add(FILENAME, "emulated_devices/device/cuda/emulated/" part[2]); add(FILENAME, "emulated_devices/browser/include/" part[2]) }
        END {
            for (f = 1; f <= files; f++) {
                if (name[f] !~ /\.h$/ || name[f] ~ /^emulated_devices\/library\/orrery\.h$|\/emulated\/(cooperative_groups|curand_kernel|mma|texture_fetch_functions)\.h$/) continue
                reach(name[f]); found = 0
                for (words = head[name[f]]; !found && match(words, /[A-Za-z0-9_.-]+(\/[A-Za-z0-9_.-]+)*\/?/); words = substr(words, RSTART + RLENGTH))
                    found = is_user(substr(words, RSTART, RLENGTH))
                if (!found) print name[f] ":1: its head names nobody who includes it: say which file or folder calls"
            }
        }')
}

# A head that denies errors stands over no function that reports one.
denied_errors() {
    (cd "$tree" && sources | LC_ALL=C xargs -d '\n' awk '
        FNR == 1 { text = ""; open = /^\/\*/ }
        open { text = text " " $0; if (/\*\//) { open = 0; gsub(/[ *]+/, " ", text); denies = text ~ /No function (returns an error code|reports errors)/ } next }
        denies && /^[^"]*(enum error_code|[^a-z_]fail\()/ { print FILENAME ":" FNR ": its head says that no function returns an error code"; denies = 0 }')
}

# Rooms of which comments name a file: a path with one of them in front is of this tree.
named_files() {
    local rooms='cli|course|bench|run|launch|draw|verify|check|search|train|model|plan|schemes|collectives|comm|device|ref|tests|tutorials'
    (cd "$tree" && sources | xargs -d '\n' grep -noE "(^|[ (;,])(emulated_devices/)?($rooms)/([a-z_0-9]+/)*[a-z_0-9]+\.[chd][a-z]*" |
        sed -E 's/^([^:]*:[0-9]+):[ (;,]*/\1 /' | while read -r at path; do
            [ -e "$path" ] || [ -e "emulated_devices/$path" ] || [ -e "${at%/*}/$path" ] || echo "$at: names $path, which is not there"; done)
}

# A comment is a sentence about the code below; one that begins so has no subject.
without_subject() {
    (cd "$tree" && sources | xargs -d '\n' grep -nE '^ */\*\*? (Of|What|Which|The same|That of) ' | sed 's/$/  <- a comment without a subject/')
}

begin() { echo "[ RUN      ] $1"; }
end() { if [ -z "$2" ]; then echo "[       OK ] $1"; else echo "$2" | head -20; echo "[  FAILED  ] $1"; failed=1; fi; }
failed=

begin names_are_of_one_file;      end names_are_of_one_file      "$(shared_names)"
begin letters_are_of_two_types;   end letters_are_of_two_types   "$(letters_of_many_types)"
begin parameters_have_names;      end parameters_have_names      "$(letters)"

begin files_say_what_they_are;    end files_say_what_they_are    "$(without_head)"
begin headers_name_their_users;    end headers_name_their_users    "$(without_users)"
begin heads_deny_no_error;         end heads_deny_no_error         "$(denied_errors)"
begin files_that_comments_name;   end files_that_comments_name   "$(named_files)"

begin comments_have_a_subject;    end comments_have_a_subject    "$(without_subject)"

# The rules see what they forbid.
begin the_rules_see_what_they_forbid
tree=$(mktemp -d); trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/ref/a" "$tree/emulated_devices/b" "$tree/tests" "$tree/tutorials"
for k in 1 2 3 4; do
    printf 'static int run(const struct t%d *p, int64_t n,\n               struct thing *thing)\n{\n    return p->n;\n}\nint other_%d(struct t%d *p) { return p->n; }\n' $k $k $k >"$tree/emulated_devices/b/f$k.c"
done
printf 'int run(int a);\nint once(struct plan *plan)\n{\n}\n' >"$tree/ref/a/g.c"
printf '/* h.c -- as cli/gone.c and ref/a/g.c do. */\n/* Of all. */\n' >"$tree/ref/a/h.c"
printf '/* u.h -- what v.h includes for g.c; h.c calls, too. */\n' >"$tree/ref/a/u.h"                        # neither includes it
printf '/* v.h -- for files of emulated_devices/b/. */\n#include "ref/a/w.h"\n' >"$tree/ref/a/v.h"
printf '/* w.h -- b/f9.c calls, by another header.  w.c has the functions. */\n' >"$tree/ref/a/w.h"
printf '/* x.h -- x.c has the functions. */\n' >"$tree/ref/a/x.h"                                             # its own source
printf '/* x.c */\n#include "ref/a/x.h"\n' >"$tree/ref/a/x.c"
printf '/* y.c -- y.  No function\n * returns an error code. */\nenum error_code y(void) { return 0; }\n' >"$tree/ref/a/y.c"
printf '/* f9.c */\n#include "ref/a/v.h"\n' >"$tree/emulated_devices/b/f9.c"
wrong=
[ "$(without_head | grep -c '^emulated_devices/b/f1.c:1: ')/$(without_head | wc -l)" = 1/5 ] || wrong="$wrong without_head"
[ "$(without_users | sed 's/:.*//' | tr '\n' ' ')" = 'ref/a/u.h ref/a/x.h ' ] || wrong="$wrong without_users"
[ "$(denied_errors | sed 's/: .*//')" = 'ref/a/y.c:3' ] || wrong="$wrong denied_errors"
[ "$(without_subject | grep -c '^ref/a/h.c:2:')" = 1 ] || wrong="$wrong without_subject"
[ "$(named_files)" = 'ref/a/h.c:1: names cli/gone.c, which is not there' ] || wrong="$wrong named_files"
[ "$(shared_names | grep -c '^run is a function of 4 files')" = 1 ] || wrong="$wrong shared_names"
[ "$(letters_of_many_types | grep -c '^b p: a pointer of one letter to 4 types')" = 1 ] || wrong="$wrong letters_of_many_types"
[ "$(letters)" = '12 of 17 parameters have one letter, and 15 % may' ] || wrong="$wrong letters"
end the_rules_see_what_they_forbid "$wrong"
exit ${failed:+1}
