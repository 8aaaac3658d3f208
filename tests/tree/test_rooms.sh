# The rules of the house (docs/authors/architecture.md), held against the sources: who may include whom, who may call MPI, and how.
# tier: check
#
# Every violation is a line "FILE:LINE: RULE: what stands there".

tree=.

# From the bottom up: a room may use itself and what stands before it.
rooms='ref library device comm collectives schemes plan model train serve search check verify weather draw launch run rl cluster bench course cli browser'

# The same of the floors of check/.  What a program has and what it should have come from below; what is wrong is said above.
floors='dump recompute mistakes report'

# What of MPI does not wait for another device.  The rest spins in MPICH, and starves whom it waits for (docs/authors/architecture.md, Waiting).
harmless='MPI_(I[a-z_]+|Test[a-z]*|Init|Initialized|Finalize|Abort|Cancel|Error_string|Get_count|Get_library_version|Request_free|Comm_(rank|size|free|idup|set_errhandler))'

sources() { (cd "$tree" && find "$@" -name '*.[ch]' -o -name '*.def' | sort); }

# FILE:LINE: RULE: text, from the standard input of `grep -n`.
report() { sed -E "s|^([^:]*:[0-9]+): *|\1: $1: |"; }

looks_up() {
    (cd "$tree" && grep -nE '^ *# *include "' $(sources ref emulated_devices tests)) | awk -F: -v rooms="$rooms" -v floors="$floors" '
        function room(path,   part) { split(path, part, "/"); return part[1] == "emulated_devices" ? part[2] : part[1] }
        function floor_of(path,   part) { split(path, part, "/"); return part[2] == "check" ? floor[part[3]] : 0 }
        BEGIN { n = split(rooms, name, " "); for (i = 1; i <= n; i++) place[name[i]] = i; place["tests"] = n + 1; place["tutorials"] = place["course"]
                n = split(floors, name, " "); for (i = 1; i <= n; i++) floor[name[i]] = i }
        {
            split($3, quoted, "\""); to = room(quoted[2]); from = room($1); why = ""
            if (!(from in place)) why = "no such room: " from
            else if (!(to in place)) why = "not included by its path from the top"
            else if (place[to] > place[from]) why = from " may not use " to
            else if (from == "check" && floor_of(quoted[2]) > floor_of($1)) why = "a floor of check/ may not use one above it"
            if (why != "") print $1 ":" $2 ": " why ": " $3
        }'
}

# A name in quotes calls nothing: the lint knows such names (course/lint/calls.c).
mpi_outside_comm() {
    (cd "$tree" && grep -nE '\bMPI_[A-Za-z]|<mpi\.h>' $(sources ref emulated_devices)) | grep -vE '^emulated_devices/comm/|^emulated_devices/course/lint/[^:]*:[0-9]+:[^:]*"MPI_[A-Za-z_]+"' | report 'only comm/ calls MPI'
}

# bench holds our collectives against those of MPI, in peer.c.  SimGrid's MPI simulates its waits.  A call that never waits, because what it is for has come, says so on its line.
mpi_that_blocks() {
    (cd "$tree" && grep -noE '^.*\bMPI_[A-Z][a-z_]+\(.*$' $(sources emulated_devices/comm tests)) | grep -vE '^(emulated_devices/comm/peer\.c|tests/simgrid/smpi\.c):' |
        grep -v 'never waits' | grep -E "\bMPI_[A-Z][a-z_]+\(" |
        awk -v harmless="^$harmless\$" '{
            rest = $0
            while (match(rest, /MPI_[A-Z][a-z_]+\(/)) {
                call = substr(rest, RSTART, RLENGTH - 1); rest = substr(rest, RSTART + RLENGTH)
                if (call !~ harmless) { print; next }
            } }' | report 'this call of MPI blocks'
}

# Absolute paths that are there on somebody's machine only.  Sources ask for TMPDIR; a line that says what is then may name /tmp.
foreign_paths() {
    (cd "$tree" && git ls-files 2>/dev/null | grep -vE '^golden/.*\.(json|txt)$' || sources ref emulated_devices tests) | (cd "$tree" &&
        xargs -d '\n' grep -nsIE "(^|[^A-Za-z0-9_.})*/-])/(tmp|home|root|Users|work|mnt|opt|srv|var|data)\b") | grep -vE '^[^:]*\.md:.*/tmp|TMPDIR' | report 'a path of one machine'
}

# What only Linux, or only the GNU C library, has.  ref/machine/system.h has a function for it, with what other systems have in its place; the cage of
# lessons is Linux's altogether, and so is the emulator of GPUs with its judge, which reads ELF.
only_linux='/proc/|<sys/(prctl|syscall|eventfd|epoll|inotify|signalfd|timerfd|sendfile)\.h>|<linux/|<malloc\.h>|<semaphore\.h>|\b(prctl|memfd_create|pipe2|accept4|eventfd|sched_[gs]etaffinity|sem_init|sem_timedwait|process_vm_[a-z]+|getrandom|qsort_r|posix_fallocate|clock_nanosleep|clock_getcpuclockid|mallopt|malloc_trim|unshare|setns|shm_open|shm_unlink)\(|\bpthread_(barrier|setaffinity)|\b(SOCK_CLOEXEC|SOCK_NONBLOCK|O_TMPFILE|MAP_POPULATE|MSG_NOSIGNAL|SO_PEERCRED|PR_SET_[A-Z]+|__linux__|__APPLE__)\b|\bst_[acm]tim(espec)?\b'
rooms_of_systems='^(ref/machine/(system(_linux|_portable)?|cgroup)\.[ch]|emulated_devices/course/cage/cage(_calls|_files|_portable)?\.[ch]|tutorials/worker/cage\.h|emulated_devices/device/cuda/.*):'
system_outside_its_room() {
    (cd "$tree" && grep -nE "$only_linux" $(sources ref emulated_devices tutorials)) | grep -vE "$rooms_of_systems|^[^:]*:[0-9]*: \* " | report 'only ref/machine/system.h asks which system it is'
}

# What lies at the top level.  A file that a test left there is committed by mistake otherwise.
top='.ci .dockerignore .github .gitignore CHANGELOG.md Containerfile LICENSE Makefile README.md docs emulated_devices golden ref tests tutorials'
top_level() {
    (cd "$tree" && git ls-files 2>/dev/null || sources .) | sed 's|^\./||; s|/.*||' | sort -u | while read -r name; do
        case " $top " in *" $name "*) ;; *) echo "$name:1: nothing else lies at the top level" ;; esac
    done
}

# In characters, not bytes.
long_lines() {
    (cd "$tree" && LC_ALL=C.UTF-8 grep -nE '^.{121}' $(sources ref emulated_devices tests tutorials)) | report 'more than 120 columns'
}

rule() {                                # rule NAME
    echo "[ RUN      ] $1"
    local found; found=$($1 2>&1)
    if [ -z "$found" ]; then echo "[       OK ] $1"; else printf '%s\n' "$found"; echo "[  FAILED  ] $1"; failed=1; fi
}

# Each rule speaks of a tree that breaks it.
rules_find_what_breaks_them() {
    local tree words; tree=$(mktemp -d)
    mkdir -p "$tree"/ref/io "$tree"/emulated_devices/{comm,schemes,attic,check/dump} "$tree"/{tests,tutorials}
    printf '#include "emulated_devices/comm/comm.h"\n' >"$tree/ref/io/a.c"
    printf '#include <mpi.h>\nint f(void) { return MPI_Comm_size(0, 0); }\n#include "local.h"\n' >"$tree/emulated_devices/schemes/b.c"
    printf 'void g(void) { MPI_Isend(x); MPI_Barrier(c); }\nvoid h(void) { MPI_Wait(r, s); } /* never waits */\n' >"$tree/emulated_devices/comm/t.c"
    printf '#include "ref/io/json.h"\n' >"$tree/emulated_devices/attic/d.c"
    printf '#include "emulated_devices/check/recompute/single.h"\n' >"$tree/emulated_devices/check/dump/e.c"
    printf 'a = "%s/x";\nb = "%s/me";\nc = getenv("TMPDIR") ? 0 : "%s";\n' /tmp /home /tmp >"$tree/tests/x.c"
    printf '/* %0117d */\n/* %0114d */\n' 0 0 >"$tree/tests/y.c"
    printf '/* %0115d */\n' 0 >"$tree/tutorials/z.h"
    printf 'int left;\n' >"$tree/left.c"
    mkdir -p "$tree/ref/machine"; printf 'f = fopen("/%s/self/stat");\n#include <semaphore.h>\nt = st.st_mtim;\n' proc >"$tree/ref/io/s.c"
    cp "$tree/ref/io/s.c" "$tree/ref/machine/system_linux.c"
    { looks_up; mpi_outside_comm; mpi_that_blocks; foreign_paths; long_lines; top_level; system_outside_its_room; } >"$tree/found" 2>&1
    for words in 'ref/io/a.c:1: ref may not use comm' 'schemes/b.c:3: not included by its path' 'attic/d.c:1: no such room' 'dump/e.c:1: a floor of check/' \
        'schemes/b.c:1: only comm/ calls MPI' 'schemes/b.c:2: only comm/' 'comm/t.c:1: this call of MPI blocks' 'tests/x.c:1: a path' 'tests/x.c:2: a path' 'tests/y.c:1: more than 120' \
        'tutorials/z.h:1: more than 120' 'left.c:1: nothing else lies' 'ref/io/s.c:1: only ref/machine/system.h' 'ref/io/s.c:2: only ref' 'ref/io/s.c:3: only ref'; do
        grep -qF "$words" "$tree/found" || echo "a tree that breaks the rules: nothing says \"$words\""
    done
    [ "$(wc -l <"$tree/found")" = 15 ] || { echo 'a tree that breaks the rules 15 times:'; cat "$tree/found"; }
    rm -rf "$tree"
}

for name in looks_up mpi_outside_comm mpi_that_blocks foreign_paths long_lines top_level system_outside_its_room rules_find_what_breaks_them; do rule $name; done
[ -z "${failed:-}" ]
