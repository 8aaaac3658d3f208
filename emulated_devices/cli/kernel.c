/* kernel.c -- `orrery kernel FILE.cu`: a file of kernels against the operations of the one-device model, on this
 * machine's cores, each of its accesses watched (docs/authors/backends.md, "A kernel of your own").
 *
 * The file is compiled with the CUDA backend, the emulator and the judge into a shared object, by judge/build.sh, which
 * adds a backend to this process.  Its operations run in a child: a kernel may crash, or never end.
 */
#define _DEFAULT_SOURCE                 /* realpath, MAP_ANONYMOUS */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/build.h"
#include "emulated_devices/verify/conformance/conformance.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
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

/* This holds what the shared object has. */
struct built {
    void *object;
    const struct backend *backend;
    int (*reports)(void);
    const char *(*report)(int);
    void (*print)(bool);
    void (*look_for_leaks)(void);
};

/* Between the child, which runs the kernels, and this process. */
struct shared { int row, rows, wrong, faults; };

struct kernel_options { const char *file, *only; bool check, count; int limit; };

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
static bool defines(const struct built *built, const char *function)
{
    void *found = dlsym(built->object, function);
    return found != NULL && found != dlsym(built->object, "alone_convert");
}

static bool is_here(const struct built *built, int row)
{
    const char *operation = conformance_row(row);
    const size_t length = operation_length(row);
    char name[80];
    snprintf(name, sizeof name, "cuda_%.*s", (int)length, operation);
    if (defines(built, name)) return true;
    for (size_t i = 0; i < sizeof serves / sizeof *serves; i++)
        if (listed(serves[i].operations, operation, length) && defines(built, serves[i].function)) return true;
    return false;
}

static bool is_asked(const struct built *built, const struct kernel_options *options, int row)
{
    return is_here(built, row) && (options->only == NULL || strstr(conformance_row(row), options->only) != NULL);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static enum error_code run_build(const char *tree, const char *kernel, const char *object, struct error *err)
{
    char script[PATH_MAX + sizeof KERNEL_BUILD];
    struct child_end end;
    snprintf(script, sizeof script, "%s/%s", tree, KERNEL_BUILD);
    if (access(script, R_OK) != 0)
        return fail(err, ERR_FILE, "cannot be compiled: %s is not there; ORRERY_INCLUDE names the folder that has it",
                    KERNEL_BUILD);
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) {
        execl("/bin/sh", "sh", script, tree, kernel, object, (char *)NULL);
        _exit(127);
    }
    if (child < 0) return fail(err, ERR_MEMORY, "cannot be compiled: %s", strerror(errno));
    if (!child_wait(child, COMPILE_SECONDS, &end)) {
        child_stop(child, &end);
        return fail(err, ERR_FILE, "cannot be compiled: the compiler had not ended after %d s", COMPILE_SECONDS);
    }
    const int status = WIFEXITED(end.how) ? WEXITSTATUS(end.how) : -1;
    return status == 0 ? OK : fail(err, status == 1 ? ERR_FORMAT : ERR_FILE, "%s", kernel_build_failure(status));
}

/* A pointer to a function has the size of one to data where there is dlsym. */
static bool find_function(void *object, const char *name, void *to)
{
    void *found = dlsym(object, name);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

static enum error_code kernel_load(struct built *built, const char *object, struct error *err)
{
    built->object = dlopen(object, RTLD_LAZY | RTLD_LOCAL);
    if (built->object == NULL) return fail(err, ERR_FORMAT, "cannot be loaded: %s", dlerror());
    built->backend = backend_find("kernel");
    const bool all = find_function(built->object, "judge_reports", &built->reports)
                     && find_function(built->object, "judge_report", &built->report)
                     && find_function(built->object, "judge_print", &built->print)
                     && find_function(built->object, "judge_look_for_leaks", &built->look_for_leaks);
    if (!all || built->backend == NULL) return fail(err, ERR_FORMAT, "cannot be loaded: it has no judge");
    return built->print(false), OK;
}

static enum error_code build(struct built *built, const char *file, struct error *err)
{
    char tree[PATH_MAX], kernel[PATH_MAX];
    const size_t n = strlen(file);
    if (n < 4 || strcmp(file + n - 3, ".cu") != 0) return fail(err, ERR_USAGE, "is not a .cu file");
    if (realpath(file, kernel) == NULL) return fail(err, ERR_FILE, "%s", strerror(errno));
    if (!source_folder(tree, sizeof tree))
        return fail(err, ERR_FILE, "cannot be compiled: Orrery's headers are not found; ORRERY_INCLUDE names their "
                                   "folder");
    const char *object = temporary_file(err);
    enum error_code e = object ? run_build(tree, kernel, object, err) : ERR_FILE;
    return e ? e : kernel_load(built, object, err);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The first lines about a row. */
struct about { int lines; };

static void say_line(void *to, const char *line)
{
    struct about *a = to;
    if (a->lines++ < LINES_MOST) say(stdout, 6, "      %s", line);
}

/* @return how many there are by now. */
static int say_reports(const struct built *built, int from)
{
    const int end = built->reports(), shown = end - from > LINES_MOST ? from + LINES_MOST : end;
    for (int i = from; i < shown; i++) say(stdout, 6, "      %s", built->report(i));
    if (shown < end) printf("      and %d more\n", end - shown);
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

static enum error_code run_row(const struct built *built, int row, int limit, struct shared *shared, struct error *err)
{
    struct conforms c;
    struct about about = { 0 };
    const int before = built->reports();
    shared->row = row;
    limit_row(limit);
    const enum error_code e = conformance_try(&c, built->backend, row, CONFORMANCE_SIZES, say_line, &about, err);
    alarm(0);
    if (e) return e;
    const int faults = say_reports(built, before) - before;
    printf("  %-48s %3d cases  %8.2g  %s\n", conformance_row(row), c.cases, c.worst,
           c.wrong ? "WRONG" : faults ? "FAULT" : "ok");
    fflush(stdout);
    shared->rows++, shared->wrong += c.wrong > 0, shared->faults += faults;
    return OK;
}

static enum error_code run_rows(const struct built *built, const struct kernel_options *options, struct shared *shared,
                                struct error *err)
{
    enum error_code e = OK;
    printf("  %-48s %9s  %8s\n", "operation", "", "of bound");
    for (int row = 0; row < conformance_rows() && !e; row++)
        if (is_asked(built, options, row)) e = run_row(built, row, options->limit, shared, err);
    const int before = built->reports();
    if (!e) built->look_for_leaks();
    shared->faults += say_reports(built, before) - before;
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

static enum error_code kernel_check(const struct built *built, const struct kernel_options *options, struct error *err)
{
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct child_end end = { 0 };
    if (s == MAP_FAILED) return fail(err, ERR_MEMORY, "no memory");
    s->row = -1;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) {
        const enum error_code e = run_rows(built, options, s, err);
        if (e) fprintf(stderr, "orrery: %s\n", err->text);
        if (options->count) exit(e != OK);            /* which prints what the judge counted */
        _exit(e != OK);
    }
    if (child > 0) child_wait(child, 0, &end);          /* each row has a limit */
    const enum error_code e = child < 0 ? fail(err, ERR_MEMORY, "%s", strerror(errno))
                                        : kernel_verdict(end.how, options->limit, s, err);
    if (!e) say_verdict(stdout, GOOD_NEWS, "OK: within the bounds of fp64, and nothing that the judge sees");
    munmap(s, sizeof *s);
    return e;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code list_operations(const struct built *built, const struct kernel_options *options,
                                       struct error *err)
{
    int found = 0;
    for (int row = 0; row < conformance_rows(); row++)
        if (is_asked(built, options, row) && found++ >= 0 && !options->check) printf("%s\n", conformance_row(row));
    if (found > 0) return OK;
    return fail(err, ERR_USAGE, options->only ? "defines no operation with %s in its name"
                                        : "defines no operation: no function cuda_OPERATION%s of kernels.h",
                options->only ? options->only : "");
}

enum error_code command_kernel(int argc, char **argv, int *status, struct error *err)
{
    struct kernel_options o = { .limit = 60 };
    struct built b = { 0 };
    bool help;
    (void)status;
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &o.file, .help = "kernels, as those of device/cuda/kernels/" },
        { "--check", NULL, OPTION_SWITCH, &o.check, .help = "run its operations; default: list them" },
        { "--only", "WORD", OPTION_STRING, &o.only, .help = "operations with this word in their names" },
        { "--count", NULL, OPTION_SWITCH, &o.count,
          .help = "also print sectors and bank conflicts of each line, as ORRERY_JUDGE_COUNT=1" },
        { "--limit", "SECONDS", OPTION_INT, &o.limit, .min = 1, .max = 1e6,
          .help = "processor time of an operation; on the clock it has ten times as long" },
        { 0 }
    };
    enum error_code e = parse_command(
        "kernel", "FILE.cu [options]",
        "A file of CUDA kernels, without a GPU: each operation that it defines runs on this machine's cores\n"
        "in four formats at odd sizes, and is held to the one-device model in fp64. Each access is watched:\n"
        "races, bounds, numbers that nobody wrote, barriers and masks are named with line, block and thread.",
        argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    if (o.file == NULL) return fail(err, ERR_USAGE, "kernel: needs FILE.cu, a file of kernels");
    if (o.count) setenv("ORRERY_JUDGE_COUNT", "1", 1);
    e = build(&b, o.file, err);
    if (!e) e = list_operations(&b, &o, err);
    if (!e && o.check) e = kernel_check(&b, &o, err);
    const struct error said = *err;
    return e ? fail(err, e, "%s: %s", printable_path(o.file).text, said.text) : OK;
}
