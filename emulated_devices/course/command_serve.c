/* command_serve.c -- the judge runs a command of this program for a check, in the cage: a student chose its flags. */
#include "emulated_devices/course/command_serve.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A command gets these seconds of a processor and MiB.  A run of lesson 18 and its reference take 440 MiB. */
enum { SECONDS = 26, MEMORY = 640, FILES = 32, FILE_MOST = 16, SAID = 1 << 20, PROCESSES = 4 };

static const char REPORT[] = "report.json";

/* A check whose process was taken over may have written anything. */
static void end_texts(struct command_request *q)
{
    q->name[COMMAND_WORD - 1] = '\0';
    if (q->command.count < 0 || q->command.count > COMMAND_WORDS) q->command.count = 0;
    for (int i = 0; i < COMMAND_WORDS; i++) q->command.word[i][COMMAND_WORD - 1] = '\0';
}

/* Take the first error of a command, which begins with "orrery: ". */
static void take_error(const char *said, char *to, size_t size)
{
    const char *at = strncmp(said, "orrery: ", 8) == 0 ? said : strstr(said, "\norrery: ");
    to[0] = '\0';
    if (at == NULL) return;
    at = strstr(at, "orrery: ") + 8;
    snprintf(to, size, "%.*s", (int)strcspn(at, "\n"), at);
    for (; *to; to++) if ((unsigned char)*to < ' ' || *to == 127) *to = '?';
}

static void take_report(const struct build *b, struct command_request *q)
{
    size_t bytes = 0;
    char *report = build_read(b, REPORT, COMMAND_REPORT, &bytes, NULL);
    q->bytes = report ? bytes : 0;
    if (report) memcpy(q->report, report, bytes), q->report[bytes] = '\0';
    free(report);
}

/* The command gets the grader's variables of libraries, and no others. */
static void add_setting(const char **environment, int *n, char *text, size_t size, const char *name)
{
    const char *value = getenv(name);
    if (value && snprintf(text, size, "%s=%s", name, value) < (int)size) environment[(*n)++] = text;
}

static int run_command(const struct build *b, const char *program, struct command_request *q, double left,
                       struct cage_end *end, struct error *err)
{
    char report[PATH_MAX], folder[PATH_MAX + 8], libraries[PATH_MAX], kernels[80];
    const char *word[COMMAND_WORDS + 8], *environment[12] = { "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8",
                                                              "OMP_NUM_THREADS=1", "ORRERY_ONE_PROCESS=1", SANITIZERS,
                                                              folder };
    int n = 0, set = 6;
    path_of(report, sizeof report, "../work", REPORT);
    snprintf(folder, sizeof folder, "TMPDIR=%s/work", b->folder);
    add_setting(environment, &set, libraries, sizeof libraries, "LD_LIBRARY_PATH");
    add_setting(environment, &set, kernels, sizeof kernels, "OPENBLAS_CORETYPE");
    environment[set] = NULL;
    word[n++] = program, word[n++] = q->name;
    for (int i = 0; i < q->command.count; i++) word[n++] = q->command.word[i];
    word[n++] = "--json", word[n++] = report, word[n] = NULL;
    const int seconds = left < SECONDS ? (int)left + 1 : SECONDS;
    const struct cage_command c = {
        .word = word, .environment = environment, .starts_in = "in", .errors_only = true,
        .view = { .files = cage_program_files(program), .processes = BUILT_WITH_SANITIZERS, .inside = b->folder,
                  .reads = { "in" }, .writes = "work", .user = b->user },
        .each = { seconds, 0, (uint64_t)FILE_MOST << 20, USER_PROCESSES },
        .all = { .seconds = seconds, .asleep = ASLEEP_SECONDS, .wall = COMMAND_SECONDS,
                 .memory = (uint64_t)MEMORY << (BUILT_WITH_SANITIZERS ? 22 : 20), .disk = (uint64_t)FILES << 20,
                 .said = SAID, .processes = PROCESSES } };
    return cage_run(&c, end, err);
}

enum error_code command_serve(const struct build *b, const char *program, struct command_request *q, double *left,
                              struct error *err)
{
    struct cage_end end;
    end_texts(q);
    q->over[0] = q->said[0] = '\0', q->bytes = 0, q->status = -1;
    if (*left <= 0) return snprintf(q->over, sizeof q->over, "all runs together have computed for too long"), OK;
    enum error_code e = build_empty(b, err);
    if (!e) e = run_command(b, program, q, *left, &end, err);
    if (e) return e;
    *left -= end.seconds;
    q->status = WIFEXITED(end.how) ? WEXITSTATUS(end.how) : -1;
    if (!end.over && (end.unstarted || q->status == 126 || q->status == 127))
        return fail(err, ERR_FILE, "%s: it cannot be run in the cage for students' code: %.*s",
                    printable_path(program).text, (int)strcspn(end.said, "\n"), end.said);
    const bool late = end.how == SIGXCPU || end.how == SIGKILL;
    if (end.over || late) snprintf(q->over, sizeof q->over, "%s", end.over ? end.over : "it takes too long");
    take_error(end.said, q->said, sizeof q->said);
    if (!end.over) take_report(b, q);
    return OK;
}
