# Attacks on the grader, of eleven kinds: files, environment, compiler, linker, assembler, processes, memory, output, signals, time, texts.  None has an effect
# beyond its own points: no word of a secret comes out, no file changes, no process stays, and the points are those of the rest of the lesson.
# Three hands attack: what a student wrote, a compiler that does what it likes (as if a student's text had taken it over), and a program that
# runs code before it is locked in (as if an object had passed that should not).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/processes.sh"

nobody=(setpriv --reuid nobody --regid nogroup --clear-groups)
who=() deny=()
type setpriv >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || nobody=()

prepare() {
    [ -d teacher ] && return
    chmod 711 . .. ../..
    run course --teacher teacher; expect_status 0
    solution=teacher/solutions/01_sums/sums.c
    mkdir in left tmp kept; chmod 777 left; chmod 1777 tmp
    echo 'a-secret' >secret; chmod 644 secret; cp secret kept/canary; chmod 666 kept/canary; chmod 777 kept
    export GRADERS_TOKEN=a-secret TMPDIR=$PWD/tmp
}

# grade_it LESSON FILE: as root or nobody, on a system that may allow less, with hands that are named by CC and ORRERY_TUTORIALS.
grade_it() {
    rm -rf left; mkdir left; chmod 777 left
    command="${who[*]} orrery grade $2 ($name)"
    watched "${who[@]}" "${deny[@]}" "$program" grade "$2" --lessons "$1" --json left/results.json
}

# What must hold after every attack.
expect_harmless() {
    expect_no_out 'a-secret'; ! grep -q 'a-secret' "$place/err" left/results.json 2>/dev/null || complain 'a secret came out'
    ! grep -qs 'root:x:' "$place/out" left/results.json || complain '/etc/passwd came out'
    [ "$(ls left)" = results.json ] || complain "it left $(ls left)"
    cmp -s secret kept/canary && [ "$(ls kept)" = canary ] || complain "it changed files: $(ls kept)"
    [ -z "$(ls tmp)" ] || { complain "it left in TMPDIR: $(ls tmp)"; rm -rf tmp/*; }
    ! grep -qsa '^sleep.9876' /proc/[0-9]*/cmdline || complain 'a process stays'
}

expect_points() { [ "$(tail -n 1 "$place/out")" = "$1 points" ] || complain "expected $1 points"; }

# text NAME POINTS OUT: the file in/sums.c has so many points; what is said matches OUT.
text() { name=$1; grade_it 1 in/sums.c; expect_points "$2"; [ -z "$3" ] || expect_out "$3"; expect_harmless; }

# before NAME POINTS OUT LINES: the solution with lines of C before it.
before() { { printf '%b\n' "$4"; cat $solution; } >in/sums.c; text "$1" "$2" "$3"; }

# inside NAME POINTS OUT STATEMENTS: the solution with statements in sum_careful, which has 4 of 14 points.
inside() { awk -v code="$4" '/^float sum_careful/ { hit = 1 } { print } hit && /^\{/ { print code; hit = 0 }' <(printf '%s\n' "$system"; cat $solution) >in/sums.c; text "$1" "$2" "$3"; }

# A call of the system without libc.
system='#if defined __x86_64__
static long sys(long n, long a, long b, long c) { register long d __asm__("r10") = 0; long r; __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(d) : "rcx", "r11", "memory"); return r; }
enum { OPEN = 257, KILL = 62, FORK = 57, PTRACE = 101, SOCKET = 41, SLEEP = 35, MMAP = 9, GETPPID = 110, PRLIMIT = 302, MEMFD = 319, SENDMSG = 46, PAUSE = 34 };
#else
static long sys(long n, long a, long b, long c) { register long x8 __asm__("x8") = n; register long x0 __asm__("x0") = a; register long x1 __asm__("x1") = b; register long x2 __asm__("x2") = c; __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory"); return x0; }
enum { OPEN = 56, KILL = 129, FORK = 220, PTRACE = 117, SOCKET = 198, SLEEP = 101, MMAP = 222, GETPPID = 173, PRLIMIT = 261, MEMFD = 279, SENDMSG = 211, PAUSE = 73 };
#endif'

# compiler NAME POINTS OUT COMMANDS: a compiler that runs commands of a shell each time that it compiles the student's file, then does its work.
compiler() {
    cp $solution in/sums.c
    printf '#!/bin/sh\ncase "$*" in *sums.c*) %s ;; esac\nexec %s "$@"\n' "$4" "$(command -v cc)" >hostile; chmod 755 hostile
    name=$1; CC=$PWD/hostile grade_it 1 in/sums.c; expect_points "$2"; [ -z "$3" ] || expect_out "$3"; expect_harmless
}

# program NAME POINTS OUT STATEMENTS: code that runs before main, in a program that was linked with it.
program() {
    cp $solution in/sums.c; rm -rf t; cp -r "$top/tutorials" t; chmod -R a+rX t
    printf '#define _GNU_SOURCE\n#include <fcntl.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <sys/resource.h>\n#include <sys/socket.h>\n#include <sys/stat.h>\n#include <sys/uio.h>\nextern char **environ;\n__attribute__((constructor)) static void early(void) { %s }\n' "$4" |
        cat - "$top/tutorials/01_sums/calls.c" >t/01_sums/calls.c
    name=$1; ORRERY_TUTORIALS=$PWD/t grade_it 1 in/sums.c; expect_points "$2"; [ -z "$3" ] || expect_out "$3"; expect_harmless
}

# `make test` has two to six attacks of each kind; `more` marks those of `make verify` alone.
more() { [ "$TIER" != verify ] || "$@"; }

# ---- files -----------------------------------------------------------------------------------------------------------------------
attack_files() {
    local p=$PWD/secret s=$PWD/$solution
    before 'an include behind a trigraph'     '0 of 14' 'No such file|Permission denied' "/* *??/\n/\n#include \"$p\"\n/* */"
    before 'an include behind a mark of UTF-8' '0 of 14' 'No such file|Permission denied' "\xef\xbb\xbf#include \"$p\""
    more before 'an include behind a lone return'  '0 of 14' 'No such file|Permission denied' "#if 0\n/\r*\n#endif\n#include \"$p\"\n/* */"
    printf '/* *??/\n/\n#include "%s"\n/* */\n' "$s" >in/sums.c; more text 'the solution by an include' '0 of 14' 'No such file|Permission denied'
    more before 'an include of a macro'            '0 of 14' 'No such file|Permission denied' "#define F \"$p\"\n#include F"
    more before 'a file of the system'             '0 of 14' 'No such file|Permission denied' '#include "/etc/passwd"'
    more before 'a device'                         '0 of 14' '' '#include "/dev/stdin"\n#include "/proc/self/environ"'
    compiler 'a compiler that looks for secrets' '14 of 14' '' "cat $p $s /etc/passwd /etc/shadow /proc/1/environ >&2; find $PWD -name '*secret*' -exec cat {} + >&2"
    more compiler 'a compiler that writes'         '14 of 14' '' "echo x >$PWD/kept/canary; touch $PWD/kept/new $PWD/left/new $PWD/tmp/new; rm -rf $PWD/kept; chmod 600 $PWD/kept/canary"
    compiler 'a result that is a link'        '0 of 14' 'made no file' "shift \$((\$# - 1)); ln -sf $p \"\$1\"; exit 0"
    more compiler 'a result that is a pipe'        '0 of 14' 'made no file' "shift \$((\$# - 1)); mkfifo \"\$1\"; mkdir -p a/b/c/d; exit 0"
    more program 'a program that reads'            '14 of 14' '' "char b[99]; int f = open(\"$p\", O_RDONLY); if (f >= 0 && read(f, b, 99) > 0) _exit(1); f = open(\"$PWD/kept/new\", O_CREAT | O_WRONLY, 0600); if (f >= 0) _exit(1);"
    inside 'a file at run time'               '10 of 14' 'asked the operating system' "sys(OPEN, -100, (long)\"$PWD/kept/new\", 0101);"
}

# ---- environment -----------------------------------------------------------------------------------------------------------------
attack_environment() {
    mkdir -p paths; cp secret paths/math.h
    more compiler 'a compiler that reads the environment' '14 of 14' '' 'env >&2; echo "$GRADERS_TOKEN" >&2; cat /proc/*/environ >&2'
    program 'a program that reads it'         '14 of 14' '' 'for (char **e = environ; *e; e++) _exit(1);'
    cp $solution in/sums.c; name='folders of headers'
    CPATH=$PWD/paths C_INCLUDE_PATH=$PWD/paths LIBRARY_PATH=$PWD/paths LD_PRELOAD='' GCC_EXEC_PREFIX=$PWD/paths/ grade_it 1 in/sums.c; expect_points '14 of 14'; expect_harmless
    [ "$TIER" = verify ] || return 0
    mkdir -p in/sub; cp $solution in/sub/sums.c; cp secret in/sub/course.h; cp secret in/sub/math.h; printf 'all:\n\ttouch %s/kept/made\n' "$PWD" >in/sub/Makefile
    name='files beside it'; grade_it 1 in/sub/sums.c; expect_points '14 of 14'; expect_harmless
    cp $solution in/sums.c; name='a folder that can be written'; (cd kept && name=$name who=("${who[@]}") watched "${who[@]}" "${deny[@]}" "$program" grade ../in/sums.c --lessons 1 --json ../left/results.json); expect_points '14 of 14'; expect_harmless
}

# ---- compiler --------------------------------------------------------------------------------------------------------------------
attack_compiler() {
    before 'a file that includes itself'      '0 of 14' '' '#include __FILE__'
    more before 'options by a pragma'              '14 of 14' '' '#pragma GCC optimize ("O0")\n#pragma GCC poison nothing_of_ours'
    before 'names of headers'                 '0 of 14' '' "#if __has_include(\"$PWD/secret\")\n#error it is there\n#endif\n#if 1\n#error over\n#endif"; expect_no_out 'it is there'
    more before 'lines of another file'            '14 of 14' '' "# 1 \"$PWD/secret\"\nint warned(int x) ;"
    more before 'an error in lines of another file' '0 of 14' 'error' "# 1 \"$PWD/secret\"\nint x = ;"
    more before 'parentheses without an end'       '14 of 14' '' "static inline int q(void) { return $(printf '(%.0s' {1..30000})1$(printf ')%.0s' {1..30000}); }"
}

# ---- linker ----------------------------------------------------------------------------------------------------------------------
attack_linker() {
    before 'sections for a linker that optimizes' '0 of 14' 'section .gnu.lto' '__asm__(".section .gnu.lto_.opts,\\"e\\",@progbits\\n.ascii \\"x\\"\\n.text\\n.globl __gnu_lto_slim\\n.comm __gnu_lto_slim,1,1");'
    before 'code that runs early'             '0 of 14' 'before or after' '__asm__(".section .init_array,\\"aw\\"\\n.quad 0\\n.text");'
    more before 'an attribute that runs early'     '0 of 14' 'before or after' 'static volatile int seen;\n__attribute__((constructor)) static void early(void) { seen = 1; }'
    before 'a function of the judge'          '0 of 14' 'it defines message_wait' '#include "course.h"\nvoid message_wait(struct message m) { (void)m; }'
    more before 'another main'                     '0 of 14' 'it defines main' 'int main(void) { return 0; }'
    more before 'another loader'                   '0 of 14' 'section .interp' "__asm__(\".section .interp,\\\\\"a\\\\\"\\\\n.asciz \\\\\"$PWD/secret\\\\\"\\\\n.text\");"
    more before 'words for the linker'             '0 of 14' 'section' '__asm__(".section .gnu.warning.main,\\"\\"\\n.asciz \\"a\\"\\n.section .drectve,\\"\\"\\n.asciz \\"-T x\\"\\n.text");'
    more before 'a function chosen at the start'   '0 of 14' 'chosen when' 'static int one(void) { return 1; }\nstatic int (*pick(void))(void) { return one; }\nint chosen(void) __attribute__((ifunc("pick")));'
}

# ---- assembler -------------------------------------------------------------------------------------------------------------------
attack_assembler() {
    before 'a file by the assembler'          '0 of 14' '' "__asm__(\".section .rodata\\\\n.incbin \\\\\"$PWD/secret\\\\\"\\\\n.text\");"
    more before 'a text by the assembler'          '0 of 14' '' "__asm__(\".include \\\\\"$PWD/secret\\\\\"\");"
    more before 'a file in an attribute'           '0 of 14' '' "static int x __attribute__((used, section(\".data,\\\\\"aw\\\\\"\\\\n.incbin \\\\\"$PWD/secret\\\\\"\\\\n#\"))) = 1;"
    before 'a huge object'                    '0 of 14' '' '__asm__(".data\\n.fill 3000000000,1,1\\n.text");'
    more before 'repetition'                       '0 of 14' '' '__asm__(".rept 4000000\\n.quad 1,2,3,4,5,6,7,8\\n.endr");'
    more before 'a macro that calls itself'        '0 of 14' '' '__asm__(".macro m\\nm\\nm\\n.endm\\nm");'
}

# ---- processes, signals ----------------------------------------------------------------------------------------------------------
attack_processes() {
    inside 'a process at run time'            '10 of 14' 'asked the operating system' 'sys(FORK, 17, 0, 0);'
    more inside 'another process is watched'       '10 of 14' 'asked the operating system' 'sys(PTRACE, 16, sys(GETPPID, 0, 0, 0), 0);'
    more inside 'the network'                      '10 of 14' 'asked the operating system' 'sys(SOCKET, 2, 1, 0);'
    compiler 'a process that stays'           '14 of 14' '' 'setsid sleep 9876 >/dev/null 2>&1 & (setsid sh -c "sleep 9876 & sleep 9876" >/dev/null 2>&1 &)'
    more compiler 'processes without end'          '0 of 14' '' 'b() { b | b & }; b; sleep 3; exit 1'
    more program 'a program that leaves a process' '14 of 14' '' 'if (fork() == 0) { setsid(); for (int i = 0; i < 70; i++) close(i); execl("/bin/sleep", "sleep", "9876", (char *)0); for (;;) pause(); }'
    program 'a program that reads the judge'  '14 of 14' '' 'char b[64]; struct iovec l = { b, 64 }, r = { (void *)early, 64 }; if (process_vm_readv(getppid(), &l, 1, &r, 1, 0) >= 0 || socket(2, 1, 0) >= 0) _exit(1);'
}

attack_signals() {
    inside 'the judge is killed'              '10 of 14' 'asked the operating system' 'sys(KILL, sys(GETPPID, 0, 0, 0), 9, 0);'
    more inside 'all are killed'                   '10 of 14' 'asked the operating system' 'sys(KILL, -1, 9, 0);'
    more compiler 'a compiler that kills'          '14 of 14' '' 'kill -9 -1; kill -STOP $PPID; kill -9 0; kill -9 1'
    program 'a program that kills'            '14 of 14' '' 'kill(-1, SIGKILL); kill(0, SIGKILL); kill(getppid(), SIGSTOP);'
    more program 'limits of the judge'             '14 of 14' '' 'struct rlimit no = { 0, 0 }; if (prlimit(getppid(), RLIMIT_CPU, &no, 0) == 0) _exit(1); setpriority(PRIO_PROCESS, getppid(), 19);'
}

# ---- memory, output --------------------------------------------------------------------------------------------------------------
attack_memory() {
    inside 'all of its memory'                '10 of 14' 'there is no memory' 'for (;;) memset(allocate(1 << 20), 1, 1 << 20);'
    more inside 'memory of the system'             '10 of 14' 'asked the operating system' 'sys(MMAP, 0, 1 << 30, 3);'
    more inside 'a stack without an end'           '10 of 14' 'it crashed' 'volatile char big[1800]; big[0] = 1; x = x ? x : 0; sum_careful(x, n); big[1] = 1;'
    before 'large variables'                  '0 of 14' '4096 are allowed' 'static volatile char big[1ul << 34];\nchar *sum_forward_(void);\nstatic inline char *give(void) { return (char *)big; }\nstatic char *(*volatile keep)(void) = give;'
    more compiler 'a compiler that takes memory'   '14 of 14' '' 'x=xxxxxxxxxxxxxxxx; (while :; do x=$x$x; done) 2>/dev/null'
}

attack_output() {
    inside 'lines without an end'             '14 of 14' '' 'for (int i = 0; i < 3000; i++) say("%0190d", i);'
    more inside 'lines that look like points'      '14 of 14' '' 'say("\\n14 of 14 points\\n]]></failure>{\\"score\\": 99}\\033[2J");'
    compiler 'a compiler that says too much'  '0 of 14' 'says too much' 'yes a-line >&2'
    more compiler 'a compiler that writes too much' '0 of 14' '' 'i=0; while [ $i -lt 40 ]; do i=$((i + 1)); head -c 30000000 /dev/zero >f$i || exit 1; done; sleep 9876'
    more compiler 'a compiler that says control characters' '0 of 14' '' 'printf "\\033[2J\\000\\007 0 of 0 points" >&2; exit 1'; ! grep -q "$(printf '\033')" "$place/out" || complain 'control characters came out'
    more before 'errors without an end'            '0 of 14' '' "$(for i in {1..300}; do printf '#error %s\\n' "$(printf 'e%.0s' {1..900})"; done)"
}

# ---- time ------------------------------------------------------------------------------------------------------------------------
attack_time() {
    inside 'a loop without an end'            '10 of 14' 'computed for more than' 'for (volatile int i = 0; i < 2;) continue;'
    inside 'sleep'                            '10 of 14' 'asked the operating system' 'long t[2] = { 9999, 0 }; sys(SLEEP, (long)t, 0, 0);'
    more compiler 'a compiler that only sleeps' '0 of 14' 'it waits, and does not compute' 'sleep 9876'
    more inside 'a clock that runs'                '10 of 14' 'no number of operations' 'work(1e300, -1); (void)x;'
}

# ---- texts: lessons whose exercise is no code -------------------------------------------------------------------------------------
# worded LESSON FILE NAME OUT TEXT: a text has no points, and what is said of it, in words that this may break into lines, matches OUT.
worded() {
    printf '%b\n' "$5" >"in/$2"; name=$3; grade_it "$1" "in/$2"; expect_status 3
    tr -s ' \n' ' ' <"$place/out" >words; grep -qE -- "$4" words || complain "it does not say: $4"
    expect_no_out 'please tell|ended early'; ! grep -q "$(printf '[\033\007]')" "$place/out" left/results.json || complain 'control characters came out'
    expect_harmless
}
plan() { worded 17 plan.txt "$1" "$2" "plan roomy\n$3"; }

attack_texts() {
    local flag
    mkdir -p here; cp secret here/own.txt; cd here || return
    mkdir -p in left tmp kept; cp ../kept/canary kept; cp ../secret .; chmod 777 left; export TMPDIR=$PWD/tmp; chmod 1777 tmp; chmod 777 kept
    for flag in --config --plugin --data --json --out --trace --log --save --resume --model --cluster --batches --dump; do
        plan "a text with $flag" "$flag: is not one of --dp" "$flag secret"
        [ "$TIER" = verify ] || [ $flag != --data ] || break
    done
    plan 'a path'                             '/etc/passwd:x: a word of letters' '--schedule /etc/passwd:x'
    more plan 'a path upwards'                     '../secret:x: a word of letters' '--schedule ../secret:x'
    more plan 'the folder above'                   'is not a regular file' '--schedule ..:x --dp 64'
    plan 'a file that lies beside'            'own.txt: No such file' '--schedule own.txt:own --pp 64 --micro 64'
    more plan 'a variable'                         'a word of letters' '--tensor $GRADERS_TOKEN'
    plan 'commands of a shell'                'a word of letters' '--tensor `cat<secret`'
    plan 'control characters'                 'a word of letters' '--tensor \033[2J\007'
    more plan 'no value'                           'its value is expected' '--schedule --dp'
    plan 'an option in a value'               'its value is expected' '--schedule --config=secret'
    plan 'too many devices'                   'must be a whole number' '--dp 2147483647'
    more plan 'thousands of devices'               'uses 4096 of 64 devices|was stopped' '--dp 64 --cp 64'
    more plan 'too many words'                     'there are too many words' "$(printf -- '--dp 2 %.0s' {1..90})"
    more plan 'a long word'                        'a word of letters' "--schedule $(printf 'x%.0s' {1..3000})"
    more worded 17 plan.txt 'a text without flags' 'no flags under' "$(printf 'plan plan plan\\n%.0s' {1..20000})"
    worded 11 schedules.txt 'devices without end' 'expected a number, 1' 'orrery schedule 1\nname gpipe\ndevices 2000000000\nmicros 2000000000\nchunks 2000000000'
    worded 11 schedules.txt 'actions without end' 'micro|F' "orrery schedule 1\nname gpipe\ndevices 3\nmicros 4\nchunks 1\nplace 0: 0\nplace 1: 1\nplace 2: 2\ndevice 0: $(printf 'F0 %.0s' {1..60000})"
    more worded 11 schedules.txt 'schedules without end' 'name' "$(printf 'orrery schedule 1\\nname x\\n%.0s' {1..20000})"
    worded 16 faults.txt 'a case of control characters' 'case' 'case 1\ntensor \033[2J\007\ncause \033'
    more worded 16 faults.txt 'words without end'  'case' "case 1\ntensor $(printf 'x%.0s' {1..90000})"
    more worded 18 capstone.txt 'an option of files' '--data: is not one of' 'run mine\n--data own.txt'
    worded 18 capstone.txt 'a schedule of its own without end' 'says: --schedule capstone.txt' 'run mine\n--pp 8 --micro 16 --schedule capstone.txt:own\norrery schedule 1\nname own\ndevices 8\nmicros 1000000000\nchunks 1'
    head -c 3000000 /dev/zero | tr '\0' 'x' >in/plan.txt; name='a huge file'; grade_it 17 in/plan.txt; expect_points '0 of 18'; expect_harmless
    ln -sf ../secret in/plan.txt; name='a link'; grade_it 17 in/plan.txt; expect_points '0 of 18'; expect_harmless; rm in/plan.txt
    if [ "$TIER" = verify ]; then worded 18 capstone.txt 'a plan without end' 'was stopped: it takes too long' 'run mine\n--dp 8 --bucket 1'; fi
    cd ..; TMPDIR=$PWD/tmp
}

every_kind() {
    local kind
    prepare
    for kind in files environment compiler linker assembler processes signals memory output time texts; do "attack_$kind"; done
}

test_as_this_user() { every_kind; }
test_as_nobody() { local who=("${nobody[@]}"); every_kind; }

# A container that allows no namespaces, and one that has nothing: then only one's own code is graded.
build_deny() { [ -x ../deny ] || cc "$top/tests/cli/deny.c" -o ../deny || complain 'deny.c does not compile'; chmod 755 ../deny; }
# Called root in a namespace that has no other users, as in a container without root: the code is nobody's all the same.
test_root_of_a_namespace() {
    unshare -rm true 2>/dev/null || { echo 'skipped: no namespaces'; return; }
    prepare; cp $solution in/sums.c; name='root of a namespace'
    watched unshare -rm "$program" grade in/sums.c --lessons 1; expect_status 0; expect_out '^14 of 14 points'
    run learn --start mine; cp $solution mine/01_sums/; watched unshare -rm "$program" learn 1 --in mine; expect_status 0
}

test_by_landlock() { prepare; build_deny; local deny=("$PWD/../deny" namespaces --); attack_files; attack_processes; attack_signals; attack_texts; }
test_by_landlock_as_nobody() { local who=("${nobody[@]}"); test_by_landlock; }
test_without_a_cage() {
    prepare; build_deny; local deny=("$PWD/../deny" namespaces landlock --); cp $solution in/sums.c; name=uncaged
    grade_it 1 in/sums.c; expect_status 2; expect_error 'neither namespaces nor Landlock.*--own-code'; [ -z "$out" ] || complain 'it gives points'
    watched "${deny[@]}" "$program" grade in/sums.c --lessons 1 --own-code; expect_status 0; expect_out '^14 of 14 points'
    run learn --start mine; cp $solution mine/01_sums/; watched "${deny[@]}" "$program" learn 1 --in mine; expect_status 0
}

# ---- kernels ---------------------------------------------------------------------------------------------------------------------
test_kernels() {
    local s p=$PWD/secret
    prepare; s=teacher/solutions/19_scan/scan.cu
    { printf '/* *??/\n/\n#include "%s"\n/* */\n' "$p"; cat $s; } >in/scan.cu; name='C++ has no trigraphs'; grade_it 19 in/scan.cu; expect_points '15 of 15'; expect_harmless
    for hide in "\xef\xbb\xbf#include \"$p\"" "#if 0\n/\r*\n#endif\n#include \"$p\"\n/* */" "#include \"$PWD/$s\"" "__asm__(\".incbin \\\\\"$p\\\\\"\");"; do
        { printf '%b\n' "$hide"; cat $s; } >in/scan.cu; name=$hide; grade_it 19 in/scan.cu; expect_points '0 of 15'; expect_harmless
    done
    cp $s in/scan.cu; name='the solution'; grade_it 19 in/scan.cu; expect_points '15 of 15'; expect_harmless
}

# ---- what the whole tree of the judge takes --------------------------------------------------------------------------------------
# measured NAME POINTS: in/FILE is graded; all processes together stay under 750 MB, and take less than so many seconds of a processor.
measured() {
    local job peak=0 now tree seconds
    name=$1; rm -rf left; mkdir left; command="orrery grade ($1)"
    TIMEFORMAT='%U %S'
    { time "$program" grade "$2" --lessons "$3" --json left/results.json >"$place/out" 2>"$place/err" </dev/null; } 2>"$place/time" & job=$!
    while kill -0 $job 2>/dev/null; do
        now=$(for p in $job $(descendants $job); do sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' /proc/$p/status; done 2>/dev/null | awk '{ sum += $1 } END { print int(sum / 1000) }')
        [ "$now" -le "$peak" ] || peak=$now
        sleep 0.05
    done
    wait $job; look
    seconds=$(awk '{ print int($1 + $2) }' "$place/time")
    [ "$peak" -le 750 ] || complain "its processes took $peak MB"
    [ "$seconds" -lt "$4" ] || complain "it took $seconds seconds of a processor"
    expect_points "$5"; expect_harmless
    echo "    $1: $peak MB, $seconds s"
}

test_what_the_judge_takes() {
    local i m=teacher/solutions/02_messages/messages.c
    prepare
    { for i in 1 2 3 4 5 6 7 8 9; do printf '#define A%d(x) A%d(A%d(x))\n' $i $((i - 1)) $((i - 1)); done | sed '1i #define A0(x) x x x x x x x x x x'; echo 'static inline int q(void) { return 0 A5(+1); }'; cat $solution; } >in/sums.c
    measured 'a bomb of macros' in/sums.c 1 32 '0 of 14'
    { echo 'static const char z[(1ul << 27) - 64] = {1};'; echo 'static inline const char *zz(void) { return z; }'; cat $solution; echo 'const char *(*volatile keep)(void) = zz;'; } >in/sums.c
    measured 'a huge constant' in/sums.c 1 32 '0 of 14'
    sed '/^void shift/,/^}/s@^{@{ if (g->size > 1) { float *b = allocate(4 << 20); memset(b, 1, 4 << 20); for (int i = 0; i < 1000; i++) message_send(g, mod(g->rank + 1, g->size), b, 4 << 20); }@' $m >in/messages.c
    measured 'a flood of messages' in/messages.c 2 60 '12 of 19'
    sed '/^void shift/,/^}/s@^{@{ if (g->size == 8) { for (int i = 0; i < 46; i++) memset(allocate(1 << 20), 1, 1 << 20); }@' $m >in/messages.c
    measured 'all memory of all devices' in/messages.c 2 60 '12 of 19'
    sed '/^void shift/,/^}/s@^{@{ if (g->size == 8) { volatile char *all = allocate(4); for (int i = 0; i < 47 << 20; i += 4096) all[i] = 1; float y[1] = { 0 }; for (int i = 0; i < 300; i++) all_reduce(g, y, 1); }@' $m >in/messages.c
    measured 'memory that nobody has given' in/messages.c 2 60 '12 of 19'
    { echo 'static inline double q(double *a) {'; for i in {1..9000}; do echo "a[$((i % 13))] += a[$((i % 11))] * a[$((i * 7 % 12))] > $i ? a[$((i % 5))] / $i : a[$((i * 3 % 13))] - $i;"; done; echo 'return a[0]; }'; cat $solution; echo 'double (*volatile keep)(double *) = q;'; } >in/sums.c
    measured 'a function that takes long to compile' in/sums.c 1 32 '0 of 14'
    sed '/^void shift/,/^}/s@^{@{ for (int i = 0; i < 100000; i++) say("%0190d", i);@' $m >in/messages.c
    measured 'a flood of lines' in/messages.c 2 60 '0 of 19'
}

some=(test_as_this_user test_root_of_a_namespace test_by_landlock test_without_a_cage)
if [ "$TIER" = verify ]; then
    some+=(test_what_the_judge_takes)
    [ ${#nobody[@]} = 0 ] || some+=(test_as_nobody test_by_landlock_as_nobody)
    if type "${CXX:-c++}" >/dev/null 2>&1; then some+=(test_kernels); fi
fi
! place=${TMPDIR:-/tmp} without_cage || { some=(test_without_a_cage); echo 'skipped: no cage here'; }
run_tests "${some[@]}"
