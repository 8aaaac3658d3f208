/* kernel_file.c -- a file of kernels against the operations of the one-device model, on this machine's cores, each of
 * its accesses watched (docs/authors/backends.md, "A kernel of your own").  cli/kernel.c reads words and prints.
 *
 * The file is compiled with the CUDA backend, the emulator and the judge into a shared object, by judge/build.sh, which
 * adds a backend to this process.  Its operations run in a child: a kernel may crash, or never end.  Errors:
 * ERR_USAGE for another kind of file, ERR_FORMAT if it cannot be loaded, ERR_CHECK if it does not end, ERR_FILE,
 * ERR_DEVICE, ERR_MEMORY.
 */
#define _DEFAULT_SOURCE                 /* realpath */
#include "emulated_devices/course/compile/kernel_file.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/verify/conformance/conformance.h"
#include "ref/io/child.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINES_MOST = 3, WAITS = 10 };    /* WAITS: seconds on the clock for each of processor time */

/* Functions of kernels.h that serve operations of other names; the others are called cuda_OPERATION. */
static const struct { const char *function, *operations; } serves[] = {
    { "cuda_activation_forward", "gelu_forward silu_forward geglu_forward swiglu_forward" },
    { "cuda_activation_backward",
      "gelu_backward_input silu_backward_input geglu_backward_input swiglu_backward_input" },
    { "cuda_rotary", "rotary_forward rotary_backward_input" },
    { "cuda_streams_beside", "streams_beside_backward_input" },
};

/* Between the child, which runs the kernels, and this process. */
struct shared { int row, rows, wrong, faults; };

/* ---- what the file has ------------------------------------------------------------------------------------------- */

static size_t operation_length(int row) { return strcspn(conformance_row(row), ","); }

/* Whether a list of words has this one. */
static bool listed(const char *words, const char *word, size_t length)
{
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (n == length && strncmp(words, word, n) == 0) return true;
    }
    return false;
}

/* Whether the file defines a function, and not alone.c for it. */
static bool defines(const struct kernel_file *file, const char *function)
{
    void *found = dlsym(file->object, function);
    return found != NULL && found != dlsym(file->object, "alone_convert");
}

static bool is_here(const struct kernel_file *file, int row)
{
    const char *operation = conformance_row(row);
    const size_t length = operation_length(row);
    char name[80];
    snprintf(name, sizeof name, "cuda_%.*s", (int)length, operation);
    if (defines(file, name)) return true;
    for (size_t i = 0; i < sizeof serves / sizeof *serves; i++)
        if (listed(serves[i].operations, operation, length) && defines(file, serves[i].function)) return true;
    return false;
}

bool kernel_file_has(const struct kernel_file *file, const struct kernel_request *request, int row)
{
    return is_here(file, row) && (request->only == NULL || strstr(conformance_row(row), request->only) != NULL);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static enum error_code run_build(const char *tree, const char *kernel, const char *object, struct error *err)
{
    char script[PATH_MAX + sizeof KERNEL_BUILD];
    int status;
    snprintf(script, sizeof script, "%s/%s", tree, KERNEL_BUILD);
    if (access(script, R_OK) != 0)
        return fail(err, ERR_FILE, "cannot be compiled: %s is not there; ORRERY_INCLUDE names the folder that has it",
                    KERNEL_BUILD);
    const enum error_code e = build_aside((char *[]){ (char *)"sh", script, (char *)tree, (char *)kernel,
                                                      (char *)object, NULL }, &status, err);
    if (e || status == 0) return e;
    return fail(err, status == 1 ? ERR_FORMAT : ERR_FILE, "%s", kernel_build_failure(status));
}

/* A pointer to a function has the size of one to data where there is dlsym. */
static bool find_function(void *object, const char *name, void *to)
{
    void *found = dlsym(object, name);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

static enum error_code kernel_load(struct kernel_file *file, const char *object, struct error *err)
{
    file->object = dlopen(object, RTLD_LAZY | RTLD_LOCAL);
    if (file->object == NULL) return fail(err, ERR_FORMAT, "cannot be loaded: %s", dlerror());
    file->backend = backend_find("kernel");
    const bool all = find_function(file->object, "judge_reports", &file->reports)
                     && find_function(file->object, "judge_report", &file->report)
                     && find_function(file->object, "judge_print", &file->print)
                     && find_function(file->object, "judge_look_for_leaks", &file->look_for_leaks);
    if (!all || file->backend == NULL) return fail(err, ERR_FORMAT, "cannot be loaded: it has no judge");
    return file->print(false), OK;
}

enum error_code kernel_file_open(struct kernel_file *file, const char *path, struct error *err)
{
    char tree[PATH_MAX], kernel[PATH_MAX];
    const size_t n = strlen(path);
    if (n < 4 || strcmp(path + n - 3, ".cu") != 0) return fail(err, ERR_USAGE, "is not a .cu file");
    if (realpath(path, kernel) == NULL) return fail(err, ERR_FILE, "%s", strerror(errno));
    enum error_code e = build_headers(tree, sizeof tree, err);
    const char *object = e ? NULL : temporary_file(err);
    if (!e) e = object ? run_build(tree, kernel, object, err) : ERR_FILE;
    return e ? e : kernel_load(file, object, err);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The first lines about a row. */
struct about { const struct kernel_request *request; int lines; };

static void tell_line(void *to, const char *line)
{
    struct about *a = to;
    if (a->lines++ < LINES_MOST) a->request->line(line);
}

/* @return how many there are by now. */
static int tell_reports(const struct kernel_file *file, const struct kernel_request *request, int from)
{
    const int end = file->reports(), shown = end - from > LINES_MOST ? from + LINES_MOST : end;
    char more[40];
    for (int i = from; i < shown; i++) request->line(file->report(i));
    snprintf(more, sizeof more, "and %d more", end - shown);
    if (shown < end) request->line(more);
    return end;
}

/* The time of all threads, so that a busy machine stops no kernel that is right; and a far longer one on the clock, for
 * one that waits. */
static void limit_row(int seconds)
{
    struct rusage used;
    struct rlimit most;
    getrusage(RUSAGE_SELF, &used);
    getrlimit(RLIMIT_CPU, &most);
    const rlim_t now = (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1;      /* whole seconds are counted */
    most.rlim_cur = now + (rlim_t)seconds < most.rlim_max ? now + (rlim_t)seconds : most.rlim_max;
    setrlimit(RLIMIT_CPU, &most);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    alarm((unsigned)(WAITS * seconds));
}

static enum error_code run_row(const struct kernel_file *file, const struct kernel_request *request, int row,
                               struct shared *shared, struct error *err)
{
    struct conforms c;
    struct about about = { request, 0 };
    const int before = file->reports();
    shared->row = row;
    limit_row(request->limit);
    const enum error_code e = conformance_try(&c, file->backend, row, CONFORMANCE_SIZES, tell_line, &about, err);
    alarm(0);
    if (e) return e;
    const int faults = tell_reports(file, request, before) - before;
    request->row(conformance_row(row), c.cases, c.worst, c.wrong ? "WRONG" : faults ? "FAULT" : "ok");
    shared->rows++, shared->wrong += c.wrong > 0, shared->faults += faults;
    return OK;
}

static enum error_code run_rows(const struct kernel_file *file, const struct kernel_request *request,
                                struct shared *shared, struct error *err)
{
    enum error_code e = OK;
    for (int row = 0; row < conformance_rows() && !e; row++)
        if (kernel_file_has(file, request, row)) e = run_row(file, request, row, shared, err);
    const int before = file->reports();
    if (!e) file->look_for_leaks();
    shared->faults += tell_reports(file, request, before) - before;
    fflush(stdout);
    return e;
}

static enum error_code kernel_verdict(int how, int limit, const struct shared *shared, struct error *err)
{
    const char *row = shared->row >= 0 ? conformance_row(shared->row) : "it";
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGXCPU)
        return fail(err, ERR_CHECK, "%s: has not ended in %d s of processor time (--limit)", row, limit);
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM)
        return fail(err, ERR_CHECK, "%s: has not ended in %d s, though it did not compute for %d s (--limit)", row,
                    WAITS * limit, limit);
    if (WIFSIGNALED(how)) return fail(err, ERR_CHECK, "%s: ends with signal %d", row, WTERMSIG(how));
    if (WEXITSTATUS(how) == 3) return fail(err, ERR_CHECK, "%s: no thread can go on", row);
    if (WEXITSTATUS(how) != 0) return fail(err, ERR_DEVICE, "%s: cannot be run", row);
    if (shared->wrong == 0 && shared->faults == 0) return OK;
    return fail(err, ERR_CHECK, "%d of %d rows wrong, %d fault%s of kernels", shared->wrong, shared->rows,
                shared->faults, plural(shared->faults));
}

enum error_code kernel_file_check(const struct kernel_file *file, const struct kernel_request *request,
                                  struct error *err)
{
    struct shared *s = system_pages(sizeof *s, true);
    struct child_end end = { 0 };
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory");
    s->row = -1;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) {
        const enum error_code e = run_rows(file, request, s, err);
        if (e) fprintf(stderr, "orrery: %s\n", err->text);
        if (request->count) exit(e != OK);            /* which prints what the judge counted */
        _exit(e != OK);
    }
    if (child > 0) child_wait(child, 0, &end);          /* each row has a limit */
    const enum error_code e = child < 0 ? fail(err, ERR_MEMORY, "%s", strerror(errno))
                                        : kernel_verdict(end.how, request->limit, s, err);
    munmap(s, sizeof *s);
    return e;
}
