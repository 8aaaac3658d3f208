# liborrery in a program of one's own: C and C++, from a prefix that was moved; callers with odd signals, descriptors and threads.
. "$(dirname "$0")/lib.sh"
ground=$(mktemp -d)
in_tree() { (cd "$top" && env -u MAKEFLAGS -u MAKELEVEL -u PREFIX -u DESTDIR make -s --no-print-directory "$@"); }

# The test cannot be done with sanitizers, which a program would need, too, or without pkg-config.
can_compile() {
    [[ ${BUILD:-build} != *-san ]] || { echo 'skipped: a program would need the sanitizers, too'; return 1; }
    command -v pkg-config >/dev/null || { echo 'skipped: there is no pkg-config'; return 1; }
    [ ! -d "$ground/moved" ] || return 0
    in_tree install PREFIX="$ground/first" >log 2>&1 || complain "make install: $(tail -n 3 log)"
    mv "$ground/first" "$ground/moved"
}

# compile COMPILER SOURCE: as docs/using/installing.md has it.
compile() {
    local flags; flags=$(PKG_CONFIG_PATH=$ground/moved/lib/pkgconfig pkg-config --cflags --libs orrery) || complain 'pkg-config does not find orrery'
    command="$*"
    "$@" -Wall -Wextra -Werror $flags -pthread -o mine || complain "it does not compile: $flags"
}
mine() { LD_LIBRARY_PATH=$ground/moved/lib "${before[@]}" ./mine "$@"; }
before=()

test_odd_callers() {
    can_compile || return 0
    cat >mine.c <<'C'
#include <orrery.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *plan[] = { "plan", "--model", "tiny", "--dp", "2", NULL }, *wrong[] = { "plna", NULL };
static char *differs[] = { "check", NULL, NULL, NULL }, *slow[] = { "train", "--model", "tiny", "--steps", "4000", "--quiet", NULL };
static char *long_run[] = { "train", "--model", "tiny", "--steps", "40000", NULL }, *short_run[] = { "train", "--model", "tiny", "--steps", "3", NULL };

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }

/* A document, and nothing else, with status 0. */
static int is_right(void)
{
    char *json = NULL;
    const int status = orrery_json(plan, &json);
    const int right = status == 0 && json != NULL && json[0] == '{' && strstr(json, "\"orrery plan\"") != NULL;
    if (!right) fprintf(stderr, "status %d, %.60s\n", status, json ? json : "no document");
    orrery_free(json);
    return right;
}

/* Count a command's lines, and stop the command at a line that begins with a word. */
struct heard { int lines, steps; const char *stop; };

static int hear(void *context, const char *line)
{
    struct heard *const h = context;
    h->lines++, h->steps += strncmp(line, "step ", 5) == 0;
    return h->stop != NULL && strncmp(line, h->stop, strlen(h->stop)) == 0;
}

static void *in_thread(void *right) { return *(int *)right = is_right(), NULL; }

int main(int argc, char **argv)
{
    char *json, *message;
    int right[6] = { 0 };
    if (argc < 3) {                             /* to be ended while its command runs */
        printf("%d\n", (int)getpid()), fflush(stdout);
        return orrery_run(slow);
    }
    if (!is_right()) return 1;
    if (orrery_call(wrong, &json, &message) != 2 || json != NULL) return 2;
    if (message == NULL || strncmp(message, "orrery: ", 8) != 0 || strstr(message, "did you mean") == NULL) return 3;
    orrery_free(message);
    differs[1] = argv[1], differs[2] = argv[2];
    if (orrery_call(differs, &json, &message) != 3 || json == NULL) return 4;
    orrery_free(json), orrery_free(message);
    struct heard all_lines = { 0 }, some = { .stop = "step " };
    if (orrery_watch(short_run, hear, &all_lines, &json, NULL) != 0 || json == NULL || all_lines.steps != 3) return 14;
    orrery_free(json);
    if (orrery_watch(long_run, hear, &some, &json, &message) != 143 || some.steps < 1 || some.steps > 100) return 15;
    if (message == NULL || strstr(message, "stopped: SIGTERM after step") == NULL) return 16;
    orrery_free(json), orrery_free(message);
    if (orrery_watch(plan, NULL, NULL, &json, NULL) != 0 || json == NULL) return 17;
    orrery_free(json);
    signal(SIGCHLD, SIG_IGN);                   /* as daemons do */
    if (!is_right()) return 5;
    if (orrery_json(differs, &json) != 3) return 6;
    orrery_free(json);
    if (orrery_json(wrong, &json) != 2 || json != NULL) return 7;
    signal(SIGCHLD, SIG_DFL);
    pthread_t thread[6];
    for (int i = 0; i < 6; i++) if (pthread_create(&thread[i], NULL, in_thread, &right[i]) != 0) return 8;
    for (int i = 0; i < 6; i++) { pthread_join(thread[i], NULL); if (!right[i]) return 9; }
    sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL);
    if (!is_right()) return 10;
    close(0), close(2);                         /* a pipe gets their numbers */
    if (!is_right()) return 11;
    const double began = now();
    if (orrery_json(wrong, &json) != 2 || now() - began > 60) return 12;
    close(1);
    return is_right() ? 0 : 13;
}
C
    compile "${CC:-cc}" -std=gnu11 mine.c
    command=./mine; watched mine "$top/golden/gpt2-tied.safetensors" "$top/golden/biased-mlp.safetensors"; expect_status 0
    # What a caller has started ends with it, however that ends.
    mine >pid 2>/dev/null & local i child= parent=$!
    for i in {1..100}; do [ ! -s pid ] || child=$(ps -o pid= --ppid "$(cat pid)" 2>/dev/null | head -n 1); [ -z "$child" ] || break; sleep 0.1; done
    [ -n "$child" ] || complain 'no command was started'
    kill -KILL "$(cat pid)"; wait "$parent" 2>/dev/null
    for i in {1..50}; do kill -0 $child 2>/dev/null || break; sleep 0.1; done
    ! kill -0 $child 2>/dev/null || complain 'its command goes on without it'
}

test_cpp() {
    can_compile || return 0
    command -v "${CXX:-c++}" >/dev/null || { echo 'skipped: there is no C++ compiler'; return; }
    cat >mine.cc <<'C'
#include <orrery.h>
#include <cstring>
int main()
{
    const char *words[] = { "plan", "--model", "tiny", nullptr };
    char *also[] = { const_cast<char *>("plna"), nullptr }, *json = nullptr, *message = nullptr;
    if (orrery_json(words, &json) != 0 || std::strstr(json, "orrery plan") == nullptr) return 1;
    orrery_free(json);
    const int status = orrery_call(also, &json, &message);
    orrery_free(message);
    return status == 2 ? 0 : 2;
}
C
    compile "${CXX:-c++}" -std=c++11 mine.cc
    command=./mine; watched mine;                   expect_status 0
}

# Two versions in one folder: a program keeps the one with which it was built, and each is removed by itself.
test_two_versions() {
    can_compile || return 0
    [ "$(uname -s)" = Linux ] || { echo 'skipped: names of libraries are otherwise here'; return; }
    printf '%s\n' '#include <orrery.h>' '#include <stdio.h>' 'int main(void) { return puts(orrery_version()) < 0; }' >mine.c
    compile "${CC:-cc}" mine.c; mv mine old
    printf '%s\n' 'const char *orrery_version(void);' 'const char *orrery_version(void) { return "99.0"; }' >new.c
    "${CC:-cc}" -shared -fPIC -Wl,-soname,liborrery.so.99 new.c -o "$ground/moved/lib/liborrery.so.99.0" || complain 'the other library does not compile'
    ln -s liborrery.so.99.0 "$ground/moved/lib/liborrery.so.99"; ln -sfn liborrery.so.99 "$ground/moved/lib/liborrery.so"
    compile "${CC:-cc}" mine.c
    command='./old, ./mine'
    LD_LIBRARY_PATH=$ground/moved/lib watched ./old;   expect_status 0; expect_out "^$("$program" --version | grep -oE '[0-9]+\.[0-9]+' | head -n 1)"
    LD_LIBRARY_PATH=$ground/moved/lib watched ./mine;  expect_status 0; expect_out '^99\.0$'
    # The list of what was installed has no file of the other version.
    in_tree uninstall PREFIX="$ground/moved" >log 2>&1 || complain "make uninstall: $(tail -n 3 log)"
    LD_LIBRARY_PATH=$ground/moved/lib watched ./mine;  expect_status 0; expect_out '^99\.0$'
    [ ! -e "$ground"/moved/lib/liborrery.so.0 ] || complain 'the library of this version is still there'
}

test_it_is_removed() { rm -rf "$ground"; }

run_tests test_odd_callers test_cpp test_two_versions test_it_is_removed
