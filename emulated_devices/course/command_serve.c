/* command_serve.c -- the judge runs a command of this program for a check, in the cage: a student chose its flags.
 * judge.c calls command_serve_check when a check of a text asks.  The check's process may have been taken over by its
 * text, so nothing that it wrote is trusted.  ERR_FILE: the command cannot be run at all. */
#include "emulated_devices/course/command_serve.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A command gets these seconds of a processor and MiB.  A run of lesson 18 and its reference take 440 MiB. */
enum { SECONDS = 26, MEMORY = 640, FILES = 32, FILE_MOST = 16, SAID = 1 << 20, PROCESSES = 4 };

static const char REPORT[] = "report.json";

/* End the texts of a request.  A check whose process was taken over may have written anything. */
static void end_texts(struct command_request *request)
{
    request->name[COMMAND_WORD - 1] = '\0';
    if (request->command.count < 0 || request->command.count > COMMAND_WORDS) request->command.count = 0;
    for (int i = 0; i < COMMAND_WORDS; i++) request->command.word[i][COMMAND_WORD - 1] = '\0';
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

/* Read the report from work/, which the command has written. */
static void take_report(const struct build *build, struct command_request *request)
{
    size_t bytes = 0;
    char *report = build_read(build, REPORT, COMMAND_REPORT, &bytes, NULL);
    request->bytes = report ? bytes : 0;
    if (report) memcpy(request->report, report, bytes), request->report[bytes] = '\0';
    free(report);
}

/* Give the command a variable of the grader's, if it is set.  All others are left out. */
static void add_setting(const char **environment, int *n, char *text, size_t size, const char *name)
{
    const char *value = getenv(name);
    if (value && snprintf(text, size, "%s=%s", name, value) < (int)size) environment[(*n)++] = text;
}

/* Run this program again, with the student's flags and --json. */
static int run_command(const struct build *build, const char *program, struct command_request *request, double left,
                       struct cage_end *end, struct error *err)
{
    char report[PATH_MAX], folder[PATH_MAX + 8], libraries[PATH_MAX], kernels[80];
    const char *word[COMMAND_WORDS + 8], *environment[12] = { "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8",
                                                              "OMP_NUM_THREADS=1", "ORRERY_ONE_PROCESS=1", SANITIZERS,
                                                              folder };
    int n = 0, set = 6;
    path_of(report, sizeof report, "../work", REPORT);
    snprintf(folder, sizeof folder, "TMPDIR=%s/work", build->folder);
    add_setting(environment, &set, libraries, sizeof libraries, "LD_LIBRARY_PATH");
    add_setting(environment, &set, kernels, sizeof kernels, "OPENBLAS_CORETYPE");
    environment[set] = NULL;
    word[n++] = program, word[n++] = request->name;
    for (int i = 0; i < request->command.count; i++) word[n++] = request->command.word[i];
    word[n++] = "--json", word[n++] = report, word[n] = NULL;
    /* The lesson may have less time left than a command gets. */
    const int seconds = left < SECONDS ? (int)left + 1 : SECONDS;
    const struct cage_command c = {
        .word = word, .environment = environment, .starts_in = "in", .errors_only = true,
        .view = { .files = cage_program_files(program), .processes = BUILT_WITH_SANITIZERS, .inside = build->folder,
                  .reads = { "in" }, .writes = "work", .user = build->user },
        .each = { seconds, 0, (uint64_t)FILE_MOST << 20, USER_PROCESSES },
        .all = { .seconds = seconds, .asleep = ASLEEP_SECONDS, .wall = COMMAND_SECONDS,
                 .memory = (uint64_t)MEMORY << (BUILT_WITH_SANITIZERS ? 22 : 20), .disk = (uint64_t)FILES << 20,
                 .said = SAID, .processes = PROCESSES } };
    return cage_run(&c, end, err);
}

/* Run one command of a check.  *left is what all commands and checks of the lesson may still take. */
/* The first folder on the way to a file that other users may not enter.  @return "" if they may enter all. */
static const char *closed_folder(const char *path, char *folder, size_t size)
{
    struct stat st;
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, size, "%.*s", (int)(slash - path), path);
        if (stat(folder, &st) == 0 && !(st.st_mode & S_IXOTH)) return folder;
    }
    return "";
}

enum error_code command_serve_check(const struct build *build, const char *program, struct command_request *request,
                                    double *left, struct error *err)
{
    struct cage_end end;
    end_texts(request);
    request->over[0] = request->said[0] = '\0', request->bytes = 0, request->status = -1;
    if (*left <= 0) return snprintf(request->over, sizeof request->over,
                                    "all runs together have computed for too long"), OK;
    enum error_code e = build_empty(build, err);
    if (!e) e = run_command(build, program, request, *left, &end, err);
    if (e) return e;
    *left -= end.seconds;
    request->status = WIFEXITED(end.how) ? WEXITSTATUS(end.how) : -1;
    if (!end.over && (end.unstarted || request->status == 126 || request->status == 127)) {
        char folder[PATH_MAX];
        const char *closed = closed_folder(program, folder, sizeof folder);
        return fail(err, ERR_FILE, "%s: it cannot be run in the cage for students' code: %.*s%s%s%s",
                    printable_path(program).text, (int)strcspn(end.said, "\n"), end.said,
                    *closed ? "; other users may not enter " : "", *closed ? printable_path(closed).text : "",
                    *closed ? " (chmod o+x)" : "");
    }
    /* A command that was killed is reported as one that takes too long. */
    const bool late = end.how == SIGXCPU || end.how == SIGKILL;
    if (end.over || late)
        snprintf(request->over, sizeof request->over, "%s", end.over ? end.over : "it takes too long");
    take_error(end.said, request->said, sizeof request->said);
    if (!end.over) take_report(build, request);
    return OK;
}
