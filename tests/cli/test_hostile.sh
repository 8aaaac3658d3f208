# Submissions that attack the grader: a lesson in C, one whose exercise is a text, one of kernels.  Each attack stands in the first part of a
# lesson whose other parts are right: it gets their points and no more, and the grader ends.
# tier: verify
. "$(dirname "$0")/lib.sh"

solutions() { run course --teacher teacher; expect_status 0; mkdir in; }

# attack LESSON FILE SED POINTS TEXT: the solution changed by SED has POINTS, and the report has a line with TEXT.
attack() {
    local from=teacher/solutions/$1/$2
    sed -E "$3" "$from" >"in/$2"
    ! cmp -s "in/$2" "$from" || complain "nothing was changed: $3"
    rm -rf left; mkdir left
    run grade "in/$2" --lessons "${1%%_*}" --json left/results.json
    [ "$(tail -n 1 "$place/out")" = "$4 points" ] || complain "$3: expected $4 points"
    [ -z "$5" ] || expect_out "$5"
    [ "$(ls left)" = results.json ] || complain "$3: it left $(ls left)"
}

# ---- C: lesson 02, where shift() has 7 of 19 points ------------------------------------------------------------------------------
in_shift() { attack 02_messages messages.c "/^void shift/,/^\\}/s@^\\{@{ $1@" "$2" "$3"; }
outside() { attack 02_messages messages.c "s@^#include \"messages.h\"@&\\n$1@" '0 of 19' "$2"; }

test_code_that_runs() {
    solutions
    in_shift '*(volatile int *)8 = 1;'                                                  '12 of 19' 'it crashed'
    in_shift 'for (volatile int i = 0; i < 2;) continue;'                               '12 of 19' 'computed for more than'
    in_shift 'out[0] = 1 \/ (int)(n - n);'                                              '12 of 19' ''
    in_shift 'for (;;) allocate(1 << 20);'                                              '12 of 19' 'there is no memory'
    in_shift 'allocate((size_t)10 << 30);'                                              '12 of 19' 'there is no memory'
    in_shift 'for (int i = 0; i < 2000; i++) message_receive(g, mod(g->rank + 1, g->size), out, 4);' '12 of 19' 'receives from|are not waited for'
    in_shift 'int all[64]; for (int i = 0; i < g->size; i++) all[i] = i; for (;;) group_of(all, g->size);' '12 of 19' 'more than 64 groups'
    in_shift 'message_wait((struct message){ -1 });'                                    '12 of 19' 'never started'
    in_shift 'memset((char *)out - 4096, 0, 1 << 20);'                                  '12 of 19' ''
    in_shift 'out[-200000000] = 1;'                                                     '12 of 19' 'it crashed'
    in_shift 'work(1e300, -1);'                                                         '12 of 19' 'no number of operations'
    in_shift 'for (int i = 0; i < 1000; i++) say("%0200d", i);'                        '19 of 19' ''
    in_shift 'say("results %s\\n\\033[2J{\\"score\\": 19}", "19 of 19 points");'        '19 of 19' ''
}

# What its stack, its arrays and its pointers can reach is its own process; a function of the system ends that.
test_code_that_recurses() {
    solutions
    attack 02_messages messages.c 's@^#include "messages.h"@&\nstatic int deep(volatile int *x) { volatile int y[40]; y[0] = *x + 1; return y[0] < 0 ? 0 : deep(y) + y[1]; }@; /^void shift/,/^\}/s@^\{@{ volatile int zero = 0; out[0] = (float)deep(\&zero);@' '12 of 19' 'it crashed'
}

test_code_that_calls_the_system() {
    local some name declared called
    solutions
    for some in 'fork open write read ptrace execve signal' 'pthread_create symlink socket kill system dlopen' 'exit longjmp mmap syscall MPI_Send malloc'; do
        declared='' called=''
        for name in $some; do declared+="extern long $name();\\n" called+="$name(0); "; done
        attack 02_messages messages.c "s@^#include \"messages.h\"@&\\n$declared@; /^void shift/,/^\\}/s@^\\{@{ $called@" '0 of 19' ''
        for name in $some; do expect_out "it uses $name,"; done
    done
}

test_code_that_is_refused() {
    solutions
    outside '#include <unistd.h>\nint give(void) { return fork(); }' 'it includes unistd.h'; expect_out 'it uses fork'
    outside '#include "..\/..\/..\/..\/etc\/passwd"' 'it includes'
    outside '%:include "secret"' 'it includes secret'
    outside '\/**\/ #\/*\n*\/include "secret"' 'it includes secret'
    outside '#inc\\  \nlude "secret"' 'it includes secret'
    outside '#import "secret"' 'it includes something'
    outside '#define Cmath "secret"\n#include Cmath.h"' 'it includes something'
    outside '__a\\\nsm__(".globl main\\nmain:");' 'no assembly'; expect_out 'it defines main'
    outside '#define F "secret"\n#include F' 'it includes something'
    outside 'static volatile int seen;\n__attribute__((constructor)) static void early(void) { seen = 1; }' 'before or after'
    outside 'static int one(void) { return 1; }\nstatic int (*pick(void))(void) { return one; }\nint chosen(void) __attribute__((ifunc("pick")));' 'chosen when the program starts'
    outside 'static volatile char big[1ul << 34];\nchar *give(void) { return (char *)big; }' ''
    outside 'void message_wait(struct message m) { (void)m; }' 'it defines message_wait'
    outside 'int main(void) { return 0; }' 'it defines main'
}

# What a compiler copies into the assembly without looking at it, and lines that say that they are of another file, whose text an error shows.
test_code_that_reads_files() {
    local path=$PWD/secret name
    solutions; echo 'a-secret' >secret
    stolen() { outside "$1" "$2"; expect_no_out 'a-secret'; ! grep -q a-secret left/results.json || complain "$1: the report has the secret"; }
    for name in section weakref symver; do
        stolen "static int x __attribute__((used, $name(\".data,\\\\\"aw\\\\\"\\\\n.incbin \\\\\"$path\\\\\"\\\\n#\"))) = 1;" '__attribute__ cannot be used'
    done
    stolen "__attribute((section(\".data\"))) int x;" '__attribute cannot be used'
    stolen "[[gnu::section(\".data\")]] int x;" 'gnu cannot be used'
    stolen "#define GIVE __attribute__\nint x GIVE((section(\".data\")));" '__attribute__ cannot be used'
    stolen "# 1 \"$path\"\nint x = ;" 'it includes something'
    stolen "#line 1 \"$path\"\nint x = ;" 'it includes something'
}

# What lies beside the file is not used: headers with the names of the course's, objects, a makefile, a file that names compilers' options.
test_files_beside() {
    local name
    solutions; mkdir -p sub/02_messages
    sed 's@^    else exchange_both.*@    else memcpy(out, in, (size_t)n * 4);@' teacher/solutions/02_messages/messages.c >sub/02_messages/messages.c
    cmp -s sub/02_messages/messages.c teacher/solutions/02_messages/messages.c && complain 'nothing was changed'
    run grade sub --lessons 2; cp "$place/out" without
    for name in course.h messages.h math.h string.h calls.c worker.c check.c; do echo '#error this must not be read' | tee "sub/$name" >sub/02_messages/$name; done
    printf 'all:\n\ttouch made\n' | tee sub/Makefile >sub/02_messages/Makefile
    echo 'not an object' | tee sub/messages.o sub/student.o >sub/02_messages/worker
    echo '{ "variant": 1 }' >sub/course.json
    run grade sub --lessons 2; cmp "$place/out" without || complain 'files beside it change the points'
    [ ! -e made ] || complain 'a makefile was run'
}

# Files that are none, or lie elsewhere: nothing of them is read, so nothing of them can be in the report.
test_files_that_are_links() {
    local path=sub/02_messages/messages.c
    solutions
    none() { run grade sub --lessons 2; expect_out '^0 of 19 points'; expect_no_out 'a-secret'; rm -rf sub; mkdir -p sub; }
    mkdir -p sub/02_messages; echo 'a-secret' >secret
    ln -s ../../secret $path; none
    ln -s "$PWD/teacher/solutions/02_messages" sub/02_messages; none
    mkdir -p sub/02_messages; ln -s "$PWD/teacher/solutions/02_messages/messages.c" $path; none
    ln -s "$PWD/teacher/solutions/02_messages/messages.c" sub/messages.c; none
    mkdir -p sub/02_messages; mkfifo $path; none
    mkdir -p sub/02_messages; ln -s /dev/zero $path; none
    mkdir -p $path; none
    mkdir -p sub/02_messages; truncate -s 10G $path; none
    mkdir -p sub/02_messages; cp teacher/solutions/02_messages/messages.c $path; run grade sub --lessons 2; expect_out '^19 of 19 points'
}

# ---- a text: lesson 17, where the plan `roomy` has 6 of 18 points ----------------------------------------------------------------
test_a_text() {
    local flags
    solutions
    for flags in '--dp 2147483647 --tp 2147483647' '--dp 64 --zero 1 --micro 1000000000' '--dp 1 --pp 64 --chunks 100000' '--schedule /etc/passwd' \
        '--schedule ../teacher/secret' '--json left/other' '--dp $(touch left/x)' '--cp 64 --attention nothing' '--dp -1'; do
        sed -E "/^plan roomy/,/^plan tight/{/^--/d}; s@^plan roomy@&\\n$flags@" teacher/solutions/17_plan/plan.txt >in/plan.txt
        rm -rf left; mkdir left
        run grade in/plan.txt --lessons 17 --json left/results.json
        expect_out '^12 of 18 points'; expect_no_out 'root:'
        [ "$(ls left)" = results.json ] || complain "$flags: it left $(ls left)"
    done
    { cat teacher/solutions/17_plan/plan.txt; yes -- '--dp 2' | head -n 100000; } >in/plan.txt
    run grade in/plan.txt --lessons 17; expect_out '^12 of 18 points'
}

# ---- kernels: lesson 19, where scan_block() has 8 of 15 points -------------------------------------------------------------------
test_kernels() {
    local before='s@^__global__@__device__ void never();\n&@'
    solutions
    attack 19_scan scan.cu '0,/^__global__/s@^__global__@#include <unistd.h>\nint give() { return fork(); }\n&@' '0 of 15' 'it includes|cannot call fork'
    attack 19_scan scan.cu '0,/^__global__/s@^__global__@extern "C" int fork();\nstatic int child = fork();\n&@' '0 of 15' 'cannot call fork|before or after'
    attack 19_scan scan.cu '0,/^__global__/s@^__global__@static float one() { return (float)threadIdx.x; }\nfloat early = one();\n&@' '0 of 15' 'before or after'
    attack 19_scan scan.cu '/^void scan_block/,/^\}/s@^\{@{ for (volatile int i = 0; i < 2;) continue;@' '7 of 15' 'have not ended'
    attack 19_scan scan.cu '/^void scan_block/,/^\}/s@^\{@{ *(volatile int *)8 = 1;@' '7 of 15' 'signal 11'
    attack 19_scan scan.cu '/^void scan_block/,/^\}/s@^\{@{ y[-100000000] = 1;@' '7 of 15' ''
}

# A call of the system by kernels that were linked past all that.
test_the_cage_of_kernels() {
    solutions; cp -r "$top/tutorials" t
    sed -i 's@^    if (c.which == 1)@    if (c.which == 1 \&\& open("left", O_CREAT | O_WRONLY, 0600) >= 0) return;\n&@; s@^#include "scan.h"@&\n#include <fcntl.h>@' t/19_scan/calls.cu
    ORRERY_TUTORIALS=$PWD/t run grade teacher/solutions/19_scan/scan.cu --lessons 19
    expect_out 'ask the operating system'; expect_out '^7 of 15 points'; [ ! -e left ] || complain 'a file was written'
}

kernels=(test_kernels test_the_cage_of_kernels)
type "${CXX:-c++}" >/dev/null 2>&1 || kernels=()
run_tests test_code_that_runs test_code_that_recurses test_code_that_calls_the_system test_code_that_is_refused test_code_that_reads_files test_files_beside test_files_that_are_links test_a_text "${kernels[@]}"
