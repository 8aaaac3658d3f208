/* child.c -- judges a variant in a process of its own, with limits, and reads from its end which law it broke.
 *
 * cli/verify_plugin.c calls laws_list() and laws_try(); judges call law_trains().  The parent never loads a plug-in.
 * A child that crashes, hangs, prints or takes too much breaks one of the laws of all kinds.  Errors are ERR_MEMORY
 * without room for a process, ERR_FILE and ERR_FORMAT for what is no plug-in.
 */
#define _DEFAULT_SOURCE                 /* MAP_ANONYMOUS */
#include "emulated_devices/verify/plugins/laws.h"
#include "ref/io/child.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PRINTS_MOST = 1 << 20 };         /* bytes that a child may write before the system stops it */
enum { WORDS_MOST = 40 };
enum { ASLEEP_SECONDS = 30 };           /* in which a child does not even want to compute */
enum { CHILDREN_MOST = 8 };             /* of a child that are looked at */

struct book *book_open(void)
{
    void *const memory = mmap(NULL, sizeof(struct book), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void book_close(struct book *book) { munmap(book, sizeof *book); }

/* ---- in the child ------------------------------------------------------------------------------------------------ */

static void limit_to(int resource, rlim_t most)
{
    const struct rlimit limit = { most, most };
    setrlimit(resource, &limit);
}

/* Addresses that are only reserved do not count.  A program with sanitizers has as many as there are. */
static void take_limits(const struct law_request *request)
{
#if !defined __SANITIZE_ADDRESS__
    const uint64_t now = system_addresses();
    if (now > 0) limit_to(RLIMIT_DATA, (rlim_t)(now + request->memory));
#endif
    limit_to(RLIMIT_CPU, (rlim_t)(request->seconds + 1));
    limit_to(RLIMIT_FSIZE, PRINTS_MOST);
    limit_to(RLIMIT_CORE, 0);
    signal(SIGXFSZ, SIG_DFL);                           /* this program ignores the signal */
}

/* Text that the parent has buffered is dropped here: `freopen` would write it. */
static void print_into(FILE *out, FILE *err)
{
    fflush(NULL);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
}

static int child_kind_of(const struct plugin_item *item)
{
    int k = 0;
    while (law_kinds[k] && !law_kinds[k]->is(item)) k++;
    return law_kinds[k] ? k : -1;
}

static enum error_code book_failed(struct book *book, enum error_code e, const struct error *err)
{
    book->code = e;
    snprintf(book->text, sizeof book->text, "%s", err->text);
    return e;
}

/* Add one variant to the registries and to the book. */
static bool enter_item(struct book *book, const struct plugin_item *item, bool is_new)
{
    struct error err;
    const int kind = child_kind_of(item);
    if (kind < 0 || book->variants == VARIANTS_MOST) return true;
    struct law_variant *const v = &book->variant[book->variants++];
    v->kind = kind;
    law_kinds[kind]->names(item, v->name);
    if (!is_new || plugin_add(item, &err) == OK) return true;
    struct verdict *const complete = law_verdict(book, LAW_COMPLETE);
    *complete = (struct verdict){ .judged = 1, .broken = true };
    snprintf(complete->why, sizeof complete->why, "%s", err.text);
    return false;
}

/* List the variants; an item that lacks something is the last. @param[out] wanted  the item of a place. */
static bool enter_all(const struct law_request *request, struct book *book, int place, struct plugin_item *wanted)
{
    struct error err;
    struct plugin_item item;
    book->variants = 0;
    law_now(book, "loading");
    if (request->object) {
        const struct plugin *plugin;
        const enum error_code e = plugin_open(&plugin, request->object, &err);
        if (e) return book_failed(book, e, &err) == OK;
        for (const struct plugin_item *i = plugin->item; plugin_is_item(i); i++) {
            if (book->variants == place) *wanted = *i;
            if (!enter_item(book, i, true)) return false;
        }
    } else
        for (int k = 0; law_kinds[k]; k++)
            for (int i = 0; law_kinds[k]->built_in(i, &item); i++) {
                if (book->variants == place) *wanted = item;
                enter_item(book, &item, false);
            }
    return true;
}

/* The child's life.  Standard output is flushed here, so that what a plug-in left in a buffer is seen. */
static void be_judge(const struct law_request *request, struct book *book, int place)
{
    struct plugin_item item = { 0 };
    struct error err;
    const bool entered = enter_all(request, book, place, &item);
    if (entered && place >= 0 && place < book->variants) {
        book->began = true;
        const int kind = book->variant[place].kind;
        const enum error_code e = law_kinds[kind]->judge(book, &item, &err);
        if (e) book_failed(book, e, &err);
    }
    fflush(NULL);
    book->done = true;
    _exit(0);
}

/* ---- how a child ended ------------------------------------------------------------------------------------------- */

/* The last line of a file that a child wrote; "" if it wrote none. */
static void last_line_of(FILE *file, char *text, size_t size)
{
    char line[LAW_TEXT / 2];
    text[0] = '\0';
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        const char *const words = strncmp(line, "orrery: ", 8) == 0 ? line + 8 : line;
        if (words[0]) snprintf(text, size, "%.*s", (int)size - 1, words);
    }
}

static bool has_text(FILE *file) { return fseek(file, 0, SEEK_END) == 0 && ftell(file) > 0; }

/* How the child ended, if it did not come to its end. @return NULL: it did. */
static const char *end_of(const struct law_request *request, const struct book *book, bool in_time,
                          const struct child_end *end, char *text, size_t size)
{
    const uint64_t used = (uint64_t)end->used.ru_maxrss * 1024;
    if (!in_time || (WIFSIGNALED(end->how) && (WTERMSIG(end->how) == SIGXCPU || WTERMSIG(end->how) == SIGKILL)))
        snprintf(text, size, "has not ended within %g s of a processor, or sleeps", request->seconds);
    else if (WIFSIGNALED(end->how) && WTERMSIG(end->how) == SIGXFSZ)
        snprintf(text, size, "prints without end");
    else if (!book->done && used > request->memory / 4 * 3)
        snprintf(text, size, "takes more than %llu MiB of memory", (unsigned long long)(request->memory >> 20));
    else if (WIFSIGNALED(end->how))
        snprintf(text, size, "crashes with signal %d (%s)", WTERMSIG(end->how), strsignal(WTERMSIG(end->how)));
    else if (!book->done) snprintf(text, size, "ends the program with status %d", WEXITSTATUS(end->how));
    else return NULL;
    return text;
}

/* Judge the laws of all kinds by what the child left. */
static void judge_end(const struct law_request *request, struct book *book, const struct law_kind *kind, bool in_time,
                      const struct child_end *end, FILE *out, FILE *err)
{
    char how[LAW_TEXT / 4], said[LAW_TEXT / 2];
    const char *const ended = end_of(request, book, in_time, end, how, sizeof how);
    last_line_of(err, said, sizeof said);
    if (ended && strstr(ended, "prints")) law_judge(book, LAW_QUIET, false, "%s", ended);
    else if (ended && kind && kind->overruns && strncmp(said, "arena: ", 7) == 0)
        law_judge(book, kind->overruns, false, "%s: %s", book->now, said);
    else if (ended)
        law_judge(book, LAW_ENDS, false, "%s, in: %s%s%s", ended, book->now, said[0] ? ": " : "", said);
    else law_judge(book, LAW_ENDS, true, " ");
    if (ended) return;
    const bool to_err = has_text(err) && !(kind && kind->prints);
    if (!to_err) last_line_of(out, said, sizeof said);
    law_judge(book, LAW_QUIET, !to_err && !has_text(out), "prints \"%.100s\"", said);
    law_judge(book, LAW_COMPLETE, true, " ");
}

/* Add up the processor time of a process and its children, in seconds.
 * @param[out] wants  whether one of them could compute. */
static double processor_time(pid_t child, bool *wants)
{
    long below[CHILDREN_MOST];
    struct system_process process;
    const int count = system_children(child, below, CHILDREN_MOST);
    double all = 0;
    *wants = false;
    for (int i = -1; i < count; i++) {
        if (!system_process(i < 0 ? child : below[i], &process)) continue;
        all += process.seconds, *wants = *wants || process.state == 'R' || process.state == 'D';
    }
    return all;
}

/* Wait for a child.  On a busy machine one that wants to compute may take long; one that sleeps is not waited for. */
static bool wait_within(pid_t child, double seconds, struct child_end *end)
{
    double before = -1;
    int asleep = 0;
    for (double waited = 0; waited < seconds && asleep < ASLEEP_SECONDS; waited++) {
        bool wants;
        if (child_wait(child, 1, end)) return true;
        const double now = processor_time(child, &wants);
        asleep = wants || now != before || !system_tells_processes() ? 0 : asleep + 1;
        before = now;
    }
    return false;
}

/* Run a child to its end. */
static enum error_code run_child(const struct law_request *request, struct book *book, int place,
                                 const struct law_kind *kind, struct error *err)
{
    FILE *const out = tmpfile(), *const said = tmpfile();
    struct child_end end = { 0 };
    fflush(NULL);
    book->is_short = request->is_short, book->done = book->began = false, book->code = OK;
    const pid_t child = out && said ? child_start() : -1;
    if (child == 0) {
        print_into(out, said);
        take_limits(request);
        be_judge(request, book, place);
    }
    if (child > 0) {
        const bool in_time = wait_within(child, request->seconds * LAW_PATIENCE, &end);
        if (!in_time) child_stop(child, &end);
        judge_end(request, book, kind, in_time, &end, out, said);
    }
    const int why = errno;
    if (out) fclose(out);
    if (said) fclose(said);
    return child > 0 ? OK : fail(err, ERR_MEMORY, "a plug-in cannot be judged: %s", strerror(why));
}

enum error_code laws_list(const struct law_request *request, struct book *book, struct error *err)
{
    memset(book, 0, sizeof *book);
    const enum error_code e = run_child(request, book, -1, NULL, err);
    if (e || book->code == OK) return e;
    return fail(err, book->code, "%s", book->text);
}

enum error_code laws_try(const struct law_request *request, int variant, struct book *book, struct error *err)
{
    const struct law_kind *const kind = law_kinds[book->variant[variant].kind];
    memset(book->verdict, 0, sizeof book->verdict);
    const enum error_code e = run_child(request, book, variant, kind, err);
    if (e || book->code == OK) return e;
    return fail(err, book->code, "%s", book->text);
}

/* ---- training, from a judge -------------------------------------------------------------------------------------- */

/* The words of a command, which ends with NULL. */
static void be_training(char *program, const char *const *words)
{
    const char *all[WORDS_MOST] = { program, "train", "--steps", "2", "--check", "ref" };
    int n = 6;
    for (int i = 0; words[i] && n < WORDS_MOST - 1; i++) all[n++] = words[i];
    setenv("ORRERY_ONE_PROCESS", "1", 1);
    execv(program, (char **)(uintptr_t)all);
    _exit(127);
}

enum error_code law_trains(struct book *book, int law, const char *const *words, struct error *err)
{
    char program[4096], line[LAW_TEXT / 2] = "", text[LAW_TEXT / 2];
    FILE *const said = tmpfile();
    struct child_end end = { 0 };
    size_t used = 0;
    for (int i = 0; words[i] && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %s", words[i]);
    law_now(book, "train%s", line);
    if (said == NULL || !system_program(program, sizeof program))
        return fail(err, ERR_MEMORY, "a plug-in cannot train: %s", strerror(errno));
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) print_into(said, said), be_training(program, words);
    if (child > 0) child_wait(child, 0, &end);
    last_line_of(said, text, sizeof text);
    fclose(said);
    if (child < 0) return fail(err, ERR_MEMORY, "a plug-in cannot train: %s", strerror(errno));
    law_judge(book, law, WIFEXITED(end.how) && WEXITSTATUS(end.how) == 0, "train%s: %s%s", line,
              WIFSIGNALED(end.how) ? "crashes: " : "", text);
    return OK;
}
