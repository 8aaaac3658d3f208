/* Texts that take over what reads them: a check of a text lesson, and the command of this program that it asks for.
 * Here both are attacks.  Nothing outside of their cages is reached, as this user and as nobody, with namespaces and
 * by Landlock; and the judge goes on.
 */
#define _GNU_SOURCE                     /* setresuid, syscall numbers */
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/cage/cage.h"
#include "emulated_devices/course/command.h"
#include "emulated_devices/course/judge.h"
#include "ref/io/output.h"
#include "tests/tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* $place/secret can be read by anybody, $place/open/ written by anybody. */
static char place[260], secret[300], open_folder[300];
static bool hidden_from_all;            /* there are namespaces: also names are hidden */

static void name_files(void)
{
    snprintf(secret, sizeof secret, "%s/secret", place), snprintf(open_folder, sizeof open_folder, "%s/open", place);
}

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

static bool can_read(const char *path)
{
    char byte;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool well = fd >= 0 && read(fd, &byte, 1) == 1;
    if (fd >= 0) close(fd);
    return well;
}

static bool can_write(const char *folder)
{
    char path[400];
    snprintf(path, sizeof path, "%s/left", folder);
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0 || mkdir(path, 0700) == 0 || symlink("/", path) == 0 || rename(secret, path) == 0;
}

static bool can_list(const char *folder)
{
    DIR *d = opendir(folder);
    if (d) closedir(d);
    return d != NULL;
}

static bool reaches_files(void)
{
    return can_read(secret) || can_read("/etc/passwd") || can_read("/proc/1/environ") || can_write(open_folder) ||
           can_write("/dev/shm") || (!hidden_from_all && (can_list(place) || can_list("/"))) ||
           truncate(secret, 0) == 0 || unlink(secret) == 0 || chmod(secret, 0600) == 0;
}

/* Signal 0 is sent to nobody, but only who may signal a process can send it. */
static bool reaches_processes(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ||
           kill(getppid() ? getppid() : 1, 0) == 0 || kill(-1, 0) == 0 ||
           ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) == 0 || setuid(0) == 0 || syscall(SYS_unshare, 0x20000) == 0;
}

/* ---- a command that was taken over ------------------------------------------------------------------------------- */

static void leave_report(const char *path, bool reached)
{
    FILE *f = fopen(path, "w");
    if (f) fprintf(f, "{\"reached\": %s}\n", reached ? "true" : "false"), fclose(f);
}

static void take_memory(void)
{
    for (size_t n = 1 << 24;;) {
        char *p = malloc(n);
        if (p) memset(p, 1, n);
    }
}

static int be_the_command(int words, char **word)
{
    const char *what = word[2], *report = word[words - 1];
    extern char **environ;
    hidden_from_all = word[3][0] == '1';
    snprintf(place, sizeof place, "%s%s%s%s", word[4], word[5], word[6], word[7]);
    name_files();
    if (strcmp(what, "files") == 0) leave_report(report, reaches_files());
    if (strcmp(what, "processes") == 0) leave_report(report, reaches_processes());
    bool told = false;
    for (char **e = environ; *e; e++) told |= strstr(*e, "a-secret") != NULL;
    if (strcmp(what, "environment") == 0) leave_report(report, told);
    if (strcmp(what, "link") == 0) return symlink(secret, report) != 0;
    if (strcmp(what, "pipe") == 0) return mkfifo(report, 0600) != 0;
    if (strcmp(what, "stays") == 0 && fork() == 0) setsid(), sleep(9876), _exit(0);
    if (strcmp(what, "memory") == 0) take_memory();
    if (strcmp(what, "sleeps") == 0) sleep(9876);
    if (strcmp(what, "computes") == 0) for (volatile int i = 0; i < 2;) continue;
    if (strcmp(what, "says") == 0) for (;;) if (write(2, "orrery: \033[2J a line\n", 21) < 0) return 1;
    for (int i = 0; strcmp(what, "fills") == 0; i++) {
        char name[300], bytes[4096] = { 1 };
        snprintf(name, sizeof name, "../work/%d", i);
        const int fd = open(name, O_CREAT | O_WRONLY, 0600);
        for (int k = 0; k < 1024 && fd >= 0; k++) if (write(fd, bytes, sizeof bytes) < 0) break;
        if (fd >= 0) close(fd);
    }
    return 0;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* ---- checks that were taken over --------------------------------------------------------------------------------- */

static void asks(struct judge *j, const char *what, struct command_report *r)
{
    struct command c = { .count = 6 };
    snprintf(c.word[0], COMMAND_WORD, "%s", what), snprintf(c.word[1], COMMAND_WORD, "%d", hidden_from_all);
    for (size_t i = 0; i < 4; i++)
        snprintf(c.word[2 + i], COMMAND_WORD, "%.70s", place + min_size(strlen(place), 70 * i));
    command_run(j, "attack", &c, r);
}

/* The command ends by itself, and has reached nothing. */
static void check_command(struct judge *j, const char *what)
{
    struct command_report r;
    asks(j, what, &r);
    const cJSON *reached = r.json ? cJSON_GetObjectItem(r.json, "reached") : NULL;
    if (!cJSON_IsFalse(reached)) judge_fails(j, "%s: it reached something, or has no report", what);
    command_report_free(&r);
}

/* The command is stopped, or has no report; what is said of it is shown. */
static void check_stopped(struct judge *j, const char *what)
{
    struct command_report r;
    asks(j, what, &r);
    if (r.json) judge_fails(j, "%s: there is a report", what);
    command_report_free(&r);
}

static void reads_files(struct judge *j) { if (reaches_files()) judge_fails(j, "files were reached"); }
static void starts_processes(struct judge *j) { if (fork() >= 0) judge_fails(j, "a process was started"); }
static void reads_processes(struct judge *j) { if (reaches_processes()) judge_fails(j, "processes were reached"); }
static void takes_all_memory(struct judge *j) { (void)j, take_memory(); }
static void crashes(struct judge *j) { (void)j, abort(); }
static void never_ends(struct judge *j) { (void)j; for (volatile int i = 0; i < 2;) continue; }

static void writes_texts_without_ends(struct judge *j)
{
    memset(j->said, '\033', sizeof j->said), memset(j->drawing, '\a', sizeof j->drawing);
    memset(j->lines, 'x', sizeof j->lines);
    j->failed = true;
}

static void forges_requests(struct judge *j)
{
    struct command_request *q = j->request;
    char word = 0;
    memset(q, 'x', sizeof *q);
    q->command.count = 1 << 30;
    if (write(j->asks, &word, 1) != 1 || read(j->hears, &word, 1) != 1) judge_fails(j, "no answer");
    judge_fails(j, "%.40s", q->said);
}

static void command_files(struct judge *j) { check_command(j, "files"); }
static void command_processes(struct judge *j) { check_command(j, "processes"); }
static void command_environment(struct judge *j) { check_command(j, "environment"); }
static void command_link(struct judge *j) { check_stopped(j, "link"); }
static void command_pipe(struct judge *j) { check_stopped(j, "pipe"); }
static void command_stays(struct judge *j) { check_stopped(j, "stays"); }
static void command_memory(struct judge *j) { check_stopped(j, "memory"); }
static void command_says(struct judge *j) { check_stopped(j, "says"); }
static void command_fills(struct judge *j) { check_stopped(j, "fills"); }
static void command_computes(struct judge *j)
{
    for (int i = 0; i < 4; i++) j->failed = false, check_stopped(j, "computes");    /* 26, 4, 1 s: then none is left */
}
static void command_sleeps(struct judge *j) { check_stopped(j, "sleeps"); }

/* said: of the outcome; NULL: the check passes.  VERIFY: only in `make verify`; ONCE: there as this user, and not with
 * sanitizers, whose memory has no limit. */
struct attack { void (*run)(struct judge *); const char *said; enum { ALWAYS, VERIFY, ONCE } when; };

static const struct attack attacks[] = {
    { reads_files, NULL, ALWAYS }, { starts_processes, NULL, ALWAYS }, { reads_processes, NULL, ALWAYS },
    { takes_all_memory, "takes too long, or too much memory", ONCE }, { crashes, "ended early", ALWAYS },
    { writes_texts_without_ends, "??????", ALWAYS }, { forges_requests, "", ALWAYS },
    { never_ends, "takes too long", ONCE },
    { command_files, NULL, ALWAYS }, { command_processes, NULL, ALWAYS }, { command_environment, NULL, ALWAYS },
    { command_link, "without a report", ALWAYS }, { command_pipe, "without a report", ALWAYS },
    { command_stays, "without a report", ALWAYS }, { command_memory, "too much memory", ALWAYS },
    { command_says, "says too much", ALWAYS }, { command_fills, "too many bytes", ALWAYS },
    { command_computes, "all runs together", ONCE }, { command_sleeps, "it waits, and does not compute", VERIFY },
};
enum { ATTACKS = sizeof attacks / sizeof *attacks };

/* ---- judging them ------------------------------------------------------------------------------------------------ */

static int wrong;

static void expect(bool holds, const char *what, const char *said)
{
    if (holds) return;
    fprintf(stderr, "%s: %s\n", what, said);
    wrong++;
}

static int entries(const char *folder)
{
    int n = -2;
    DIR *d = opendir(folder);
    for (; d && readdir(d); n++) continue;
    if (d) closedir(d);
    return n;
}

static void judge_attack(const struct attack *a, int number)
{
    static struct score s;
    struct error err = { OK, "" };
    char file[300], name[40];
    snprintf(name, sizeof name, "attack %d", number);
    const struct lesson l = { .folder = "01_text", .title = "A text", .file = "text.txt",
                              .check = { { 1, "it", "it", 2, { a->run } },
                                         { 2, "next", "the next", 1, { reads_files } } } };
    const struct judging how = { .seed = 1 };
    snprintf(file, sizeof file, "%s/text.txt", place);
    const enum error_code e = judge_file(&s, &l, file, &how, &err);
    expect(e == OK, name, err.text);
    const struct outcome *o = &s.outcome[0];
    if (a->said == NULL) expect(o->verdict == PASSED, name, o->said);
    else expect(o->verdict == FAILED && strstr(o->said, a->said), name, o->said);
    expect(strchr(o->said, '\033') == NULL && strchr(o->drawing, '\a') == NULL, name, "control characters came out");
    expect(strlen(o->said) < sizeof o->said && strlen(o->lines) < sizeof o->lines, name, "a text without an end");
    expect(s.outcome[1].verdict == PASSED, name, "the next check fails");
    expect(can_read(secret) && entries(open_folder) == 0, name, "something was changed");
    snprintf(file, sizeof file, "%s/tmp", place);
    expect(entries(file) == 0, name, "something stays in TMPDIR");
}

static void deny_namespaces(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof f / sizeof *f, f };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In a process of its own, because a process asks only once which cage there is. */
static void judge_all_as(bool nobody, bool landlock)
{
    int how = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        static const int caught[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS };        /* cmocka would go on */
        for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) signal(caught[i], SIG_DFL);
        if (nobody && (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)) _exit(77);
        if (!can_read(secret)) _exit(77);               /* a folder of temporary files that nobody else may see */
        prctl(PR_SET_DUMPABLE, 1);
        if (landlock) deny_namespaces();
        if (cage_kind() == CAGE_NONE || (landlock && cage_kind() != CAGE_LANDLOCK)) _exit(77);
        hidden_from_all = cage_kind() == CAGE_NAMESPACES;
        const bool some = nobody || landlock || BUILT_WITH_SANITIZERS;
        const int upto = tier_now() != TIER_VERIFY ? ALWAYS : some ? VERIFY : ONCE;
        for (int i = 0; i < ATTACKS; i++)
            if ((int)attacks[i].when <= upto) judge_attack(&attacks[i], i);
        fflush(NULL);
        _exit(wrong > 0);
    }
    assert_true(waitpid(child, &how, 0) == child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77) skip();
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static void test_as_this_user(void **state) { (void)state; judge_all_as(false, false); }
static void test_by_landlock(void **state) { (void)state; judge_all_as(false, true); }

static void test_as_nobody(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    judge_all_as(true, false);
}

static void test_as_nobody_by_landlock(void **state)
{
    (void)state;
    if (geteuid() != 0 || tier_now() != TIER_VERIFY) skip();
    judge_all_as(true, true);
}

/* Outside of a cage the same attacks reach files. */
static void test_the_attacks_are_some(void **state)
{
    (void)state;
    assert_true(can_read(secret) && can_list(place));
    assert_true(can_write(open_folder));
    char path[400];
    snprintf(path, sizeof path, "%s/left", open_folder);
    assert_int_equal(unlink(path), 0);
}

static void make_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, 0644);
}

/* Words of a command have 79 bytes, so the path goes in four of them. */
static int set_up(void **state)
{
    char path[300];
    (void)state;
    snprintf(place, sizeof place, "%s/orrery-hostile-XXXXXX", temporary_folder());
    if (mkdtemp(place) == NULL) return -1;
    chmod(place, 0755);
    name_files(), make_file(secret, "a-secret\n");
    snprintf(path, sizeof path, "%s/text.txt", place), make_file(path, "a text\n");
    mkdir(open_folder, 0777), chmod(open_folder, 0777);
    snprintf(path, sizeof path, "%s/tmp", place);
    mkdir(path, 0777), chmod(path, 01777), setenv("TMPDIR", path, 1), setenv("GRADERS_TOKEN", "a-secret", 1);
    return 0;
}

static int clean_up(void **state)
{
    static const char *const names[] = { "secret", "text.txt", "open/left", "open", "tmp", "" };
    char path[300];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        snprintf(path, sizeof path, "%s/%s", place, names[i]), remove(path);
    return 0;
}

int main(int words, char **word)
{
    if (words > 8 && strcmp(word[1], "attack") == 0) return be_the_command(words, word);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_attacks_are_some), cmocka_unit_test(test_as_this_user),
        cmocka_unit_test(test_as_nobody), cmocka_unit_test(test_by_landlock),
        cmocka_unit_test(test_as_nobody_by_landlock),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
