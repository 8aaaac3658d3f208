/* build.c -- compiles a student's file in the cage (workshop.c), and links it with what calls it.
 * judge.c calls build_worker for a lesson in C, and takes the program in run/worker.  A file that does not compile is
 * the student's mistake, in `why`, without an error; ERR_FILE means that nothing can be compiled here.  Callers
 * remove the folder with build_remove.  Without memory the code is ERR_MEMORY. */
#define _DEFAULT_SOURCE                 /* mkstemp */
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/compile/object.h"
#include "emulated_devices/course/compile/source.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The folder of the lessons is ORRERY_TUTORIALS, or lies beside an installed program, or in the sources. */
enum error_code course_folder(char *to, size_t size, struct error *err)
{
    char self[PATH_MAX / 2], file[PATH_MAX];
    system_program(self, sizeof self);
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    for (int i = 0; i < 3; i++) {
        const char *folder = i == 0 ? getenv("ORRERY_TUTORIALS") : i == 1 ? self : ORRERY_SOURCES;
        static const char *const inside[] = { "", "/../share/orrery/tutorials", "/tutorials" };
        if (folder == NULL || folder[0] == 0) continue;
        if (snprintf(to, size, "%s%s", folder, inside[i]) >= (int)size) continue;
        path_of(file, sizeof file, to, "worker/worker.c");
        if (access(file, R_OK) == 0) return OK;
    }
    return fail(err, ERR_FILE, "the folder of the lessons is not found; ORRERY_TUTORIALS names it");
}

/* The folder of Orrery's headers is ORRERY_INCLUDE, include/orrery of an installed program, or that of the
 * sources. */
bool source_folder(char *out, size_t size)
{
    static const char some[] = "emulated_devices/schemes/plugin.h";
    char self[PATH_MAX], file[PATH_MAX + sizeof some + 32];
    system_program(self, sizeof self);
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    for (int i = 0; i < 3; i++) {
        const char *folder = i == 0 ? getenv("ORRERY_INCLUDE") : i == 1 ? self : ORRERY_SOURCES;
        if (folder == NULL || folder[0] == 0) continue;
        if (snprintf(out, size, "%s%s", folder, i == 1 ? "/../include/orrery" : "") >= (int)size) continue;
        if (snprintf(file, sizeof file, "%s/%s", out, some) < (int)sizeof file && access(file, R_OK) == 0) return true;
    }
    return false;
}

enum error_code build_headers(char *out, size_t size, struct error *err)
{
    return source_folder(out, size) ? OK : fail(err, ERR_FILE, "cannot be compiled: Orrery's headers are not found; "
                                                "ORRERY_INCLUDE names their folder");
}

enum error_code build_aside(char *const words[], int *status, struct error *err)
{
    struct child_end end;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) {
        execvp(words[0], words);
        fprintf(stderr, "%s: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    if (child < 0) return fail(err, ERR_MEMORY, "cannot be compiled: %s", strerror(errno));
    if (!child_wait(child, COMPILE_SECONDS, &end)) {
        child_stop(child, &end);
        return fail(err, ERR_FILE, "cannot be compiled: the compiler had not ended after %d s", COMPILE_SECONDS);
    }
    *status = WIFEXITED(end.how) ? WEXITSTATUS(end.how) : -1;
    return OK;
}

/* ---- what a compiler is called with ------------------------------------------------------------------------------ */

/* Add the words that give every machine the same bits: no fused multiply-add, no special processor.  Without
 * optimization at link time the linked code is that of the object that was checked. */
static void add_how(struct words *words, bool sanitize)
{
    static const char *const always[] = { "-std=c11", "-O2", "-g", "-ffp-contract=off", "-fno-stack-protector",
                                          "-fno-lto", NULL };
    for (int i = 0; always[i]; i++) add_word(words, always[i]);
    if (sanitize) add_word(words, "-fsanitize=address,undefined"), add_word(words, "-fno-sanitize-recover=all");
}

/* Add warnings.  Large arrays are errors, since they belong into allocate(), where they are counted. */
static void add_warnings(struct words *words)
{
    static const char *const all[] = { "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function",
                                       "-Wno-unknown-pragmas", "-fdiagnostics-color=never", "-Werror=vla",
                                       "-Werror=alloca", "-Werror=implicit-function-declaration",
                                       "-Wframe-larger-than=2048", "-Werror=return-type", NULL };
    for (int i = 0; all[i]; i++) add_word(words, all[i]);
}

/* Add how a worker is compiled, but for the student's object, which has its own flags.  -O1 takes half the time. */
static void add_worker(struct words *words, const char *compiler, bool sanitize)
{
    add_compiler(words, compiler), add_how(words, sanitize);
    add_word(words, "-O1"), add_word(words, sanitize ? "-g1" : "-g0");
}

/* These are paths in the folder, as options and as words of a command line. */
struct paths {
    char in[PATH_MAX], with[PATH_MAX], object[PATH_MAX], calls[PATH_MAX], common[PATH_MAX], made[PATH_MAX];
};

/* Name the files of a build by their paths in the folder. */
static void name_paths(const struct build *build, struct paths *paths)
{
    snprintf(paths->in, sizeof paths->in, "-I%s/in", build->folder),
        snprintf(paths->with, sizeof paths->with, "-I%s/with", build->folder);
    path_of(paths->object, sizeof paths->object, build->folder, "with/student.o");
    path_of(paths->calls, sizeof paths->calls, build->folder, "with/calls.c");
    path_of(paths->common, sizeof paths->common, build->folder, "with/worker.o");
    path_of(paths->made, sizeof paths->made, build->folder, "work/made");
}

/* ---- whether anything can be compiled ---------------------------------------------------------------------------- */

/* Compile and link an empty program, as a student's file is: an object, which caches keep, and then a program. */
static bool makes_program(const struct build *build, char *said, size_t size, struct error *err)
{
    struct paths p;
    bool well = true;
    name_paths(build, &p);
    for (int linking = 0; linking < 2 && well; linking++) {
        struct words w = { 0 };
        int how;
        add_compiler(&w, build->compiler);
        if (!build->plus) add_how(&w, build->sanitize);
        if (build->plus && !linking) add_word(&w, "-x"), add_word(&w, "c++");
        if (linking) add_word(&w, p.object);
        else add_word(&w, "-c"), add_word(&w, build->source);
        add_word(&w, "-o"), add_word(&w, p.made);
        well = build_run(&w, build, linking, NULL, said, size, &how, err) &&
               build_take(build, "made", linking ? "run/worker" : "with/student.o", NULL) == OK;
    }
    if (said[0] == 0) snprintf(said, size, "it makes no program");
    return well;
}

/* Ask whether anything can be compiled here.  A course's compiler that does not work must never cost points. */
enum error_code check_compiler(bool kernels, const struct judging *how, struct error *err)
{
    static const char empty[] = "int main(void) { return 0; }\n";
    const char *by = how->user ? " by user " : "", *user = how->user ? how->user : "";
    char said[1000] = "", name[PATH_MAX];
    struct error ours = { OK, "" };
    struct build b;
    enum error_code e = build_open(&b, kernels, how, err);
    path_of(b.source, sizeof b.source, b.folder, "in/empty.c");
    if (!e) e = build_put(&b, "in/empty.c", empty, sizeof empty - 1, err);
    const bool well = !e && makes_program(&b, said, sizeof said, &ours);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(b.compiler, " "), b.compiler);
    /* An error of the cage itself comes before an error of the compiler. */
    if (!e && ours.code) e = fail(err, ours.code, "%s", ours.text);
    else if (!e && !well)
        e = fail(err, ERR_FILE, "%s: the compiler cannot be used%s%s: %.*s; %s names another", name, by, user,
                 (int)strcspn(said, "\n"), said, kernels ? "CXX" : "CC");
    if (!e && !build_runs(&b))
        e = fail(err, ERR_FILE, "%s: programs cannot be run there%s%s; TMPDIR names another folder", temporary_folder(),
                 by, user);
    build_remove(&b);
    return e;
}

/* Append hints to a compiler's messages. */
static void advise(char *why, size_t size, const char *text)
{
    const size_t said = strlen(why);
    snprintf(why + said, size - said, "%s", text);
}

/* Whether the compiler names this function: gcc writes it in typographic quotes, clang in plain ones. */
static bool names(const char *said, const char *function)
{
    char gcc[40], clang[40];
    snprintf(gcc, sizeof gcc, "\u2018%s\u2019", function), snprintf(clang, sizeof clang, "'%s'", function);
    return strstr(said, gcc) || strstr(said, clang);
}

/* Say what to call instead of a function whose header cannot be included. */
static void advise_calls(char *why, size_t size)
{
    static const struct { const char *function, *instead; } calls[] = {
        { "printf", "printf: say()" }, { "puts", "puts: say()" }, { "malloc", "malloc: allocate()" },
        { "calloc", "calloc: allocate() and memset()" }, { "free", "free: release()" }, { "abs", "abs: fabs()" },
        { "exit", "exit: return" },
    };
    char text[240] = "";
    if (!strstr(why, "declar")) return;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const size_t n = strlen(text);
        if (names(why, calls[i].function)) snprintf(text + n, sizeof text - n, "%s%s", n ? "; " : "", calls[i].instead);
    }
    if (text[0] == '\0') return;
    advise(why, size, "instead of these functions (no header is needed):\n    ");
    advise(why, size, text);
    advise(why, size, "\n");
}

/* Look for words of the text that are not allowed, and append advice.  The text is looked at only for words that
 * help: other files decide what may be done. */
void build_advise(char *why, size_t size, const char *text, const char *contract)
{
    char found[300];
    if (source_is_fine(text, contract, found, sizeof found)) return;
    advise(why, size, found);
    if (strstr(found, "includes stdio.h")) advise(why, size, "say() of course.h prints a line\n");
    if (strstr(found, "includes stdlib.h"))
        advise(why, size, "allocate() and release() of course.h give and take memory; for abs() use fabs()\n");
}

/* ---- what is the same in all workers ----------------------------------------------------------------------------- */

/* Whether an object that `make` compiled can be used.  A key lies beside the object: the compiler's words, and all
 * texts that were compiled.  With another compiler or another text the object is not used. */
static bool is_ready(const char *object, const char *tutorials, const char *words)
{
    static const char *const of[] = { "worker/worker.c", "worker/cage.h", "worker/calls.h", "worker/protocol.h",
                                      "worker/streams.h", "course.h" };
    char path[PATH_MAX + 8], *key = NULL, *text;
    size_t left = 0, bytes;
    snprintf(path, sizeof path, "%s.key", object);
    bool same = access(object, R_OK) == 0 && file_read_all(path, 1 << 20, &key, &left, NULL) == OK;
    const char *at = key;
    /* The key begins with the compiler's words; the texts follow, byte by byte. */
    const size_t n = strlen(words);
    same = same && left > n && memcmp(at, words, n) == 0 && at[n] == '\n';
    if (same) at += n + 1, left -= n + 1;
    for (size_t i = 0; same && i < sizeof of / sizeof *of; i++) {
        path_of(path, sizeof path, tutorials, of[i]);
        same = file_read_all(path, 1 << 20, &text, &bytes, NULL) == OK;
        if (!same) break;
        same = left >= bytes && memcmp(at, text, bytes) == 0;
        at += bytes, left -= bytes;
        free(text);
    }
    free(key);
    return same && left == 0;
}

/* Find the object that make has compiled: in lib/ of an installed program, else in the folder of the build. */
static void ready_worker(const char *tutorials, char *to, size_t size)
{
    static const char installed[] = "/share/orrery/tutorials", sources[] = "/tutorials";
    const size_t n = strlen(tutorials), m = sizeof installed - 1, k = sizeof sources - 1;
    if (n > m && strcmp(tutorials + n - m, installed) == 0)
        snprintf(to, size, "%.*s/lib/orrery/course/worker.o", (int)(n - m), tutorials);
    else snprintf(to, size, "%.*s/build/course/worker.o", (int)(n > k ? n - k : 0), tutorials);
}

/* The object of worker.c is compiled once for all files that this process judges.  [1]: with sanitizers.  ours: the
 * process removes it. */
static struct { char path[PATH_MAX]; bool done, ours; } worker_object[2];         /* ours: to be removed */

static void remove_workers(void)
{
    for (int i = 0; i < 2; i++) if (worker_object[i].ours) unlink(worker_object[i].path);
}

/* Make the key's words, and take the object that make compiled if they agree.  The words do not depend on the
 * place. */
static bool take_ready(const struct build *build, const char *tutorials)
{
    char words[400], *path = worker_object[0].path;
    const char *asked = getenv("CC");
    struct words w = { 0 };
    if (build->sanitize) return false;
    add_worker(&w, asked && asked[0] ? asked : ORRERY_CC, build->sanitize);
    words[0] = 0;
    for (int i = 0; i < w.count; i++) {
        const size_t n = strlen(words);
        snprintf(words + n, sizeof words - n, "%s%s", n ? " " : "", w.word[i]);
    }
    ready_worker(tutorials, path, sizeof worker_object->path);
    worker_object[0].done = is_ready(path, tutorials, words);
    if (!worker_object[0].done) path[0] = 0;
    return worker_object[0].done;
}

/* Copy a result of a build out of its folder, so that later builds of this process use it. */
enum error_code build_keep(const struct build *build, const char *made, char *path, size_t size, struct error *err)
{
    char from[PATH_MAX], *bytes = NULL;
    size_t count;
    path_of(from, sizeof from, build->folder, made);
    enum error_code e = file_read_all(from, RESULT_MOST, &bytes, &count, err);
    if (e) return e;
    snprintf(path, size, "%s/orrery-object-XXXXXX", temporary_folder());
    const int fd = mkstemp(path);
    const bool well = fd >= 0 && write(fd, bytes, count) == (ssize_t)count;
    if (fd < 0 || close(fd) != 0 || !well) {
        e = fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
        if (fd < 0) path[0] = '\0';
    }
    free(bytes);
    return e;
}

/* Compile the worker before the student's file is there.  A failure is then never the student's mistake. */
static enum error_code compile_common(const struct build *build, const char *tutorials, struct error *err)
{
    char source[PATH_MAX], said[1000] = "", *path = worker_object[build->sanitize].path;
    struct words w = { 0 };
    struct paths p;
    int how;
    if (worker_object[build->sanitize].done || take_ready(build, tutorials)) return OK;
    name_paths(build, &p);
    path_of(source, sizeof source, build->folder, "with/worker/worker.c");
    add_worker(&w, build->compiler, build->sanitize), add_word(&w, p.in), add_word(&w, p.with);
    add_word(&w, "-c"), add_word(&w, source), add_word(&w, "-o"), add_word(&w, p.made);
    if (!build_run(&w, build, true, NULL, said, sizeof said, &how, err)) {
        if (err->code) return err->code;
        return fail(err, ERR_FILE, "worker.c does not compile: %.*s", (int)strcspn(said, "\n"), said);
    }
    enum error_code e = build_take(build, "made", "with/made", err);
    if (!e) e = build_keep(build, "with/made", path, sizeof worker_object->path, err);
    if (path[0]) worker_object[build->sanitize].ours = true;
    /* The file is removed when this process ends, and only once. */
    if (path[0] && !worker_object[!build->sanitize].ours) atexit(remove_workers);
    worker_object[build->sanitize].done = !e;
    return e;
}

/* ---- a worker ---------------------------------------------------------------------------------------------------- */

/* Lay out the folder: the headers that the student's file may include, and the files it is linked with. */
static enum error_code build_lay_out(struct build *build, const struct lesson *lesson, const char *tutorials,
                                     struct error *err)
{
    char from[PATH_MAX], folder[PATH_MAX];
    path_of(folder, sizeof folder, tutorials, lesson->folder);
    path_of(from, sizeof from, tutorials, "course.h");
    enum error_code e = build_copy(build, from, "in/course.h", err);
    if (!e) e = build_copy_all(build, folder, ".h", "in", err);
    path_of(from, sizeof from, folder, "calls.c");
    if (!e && lesson->calls) e = build_put(build, "with/calls.c", lesson->calls, strlen(lesson->calls), err);
    else if (!e) e = build_copy(build, from, "with/calls.c", err);
    path_of(from, sizeof from, tutorials, "worker");
    if (!e) e = build_copy_all(build, from, ".h", "with/worker", err);
    if (!e) e = build_copy_all(build, from, ".c", "with/worker", err);
    if (!e) e = compile_common(build, tutorials, err);
    return e ? e : build_copy(build, worker_object[build->sanitize].path, "with/worker.o", err);
}

/* Compile the student's file.  With sanitizers the object that is looked at is one without, which has no more than
 * the student's text. */
static bool compile_student(const struct build *build, bool sanitize, char *why, size_t size, struct error *err)
{
    struct words w = { 0 };
    struct paths p;
    int how;
    name_paths(build, &p);
    add_compiler(&w, build->compiler), add_how(&w, sanitize), add_warnings(&w), add_word(&w, p.in);
    if (sanitize) add_word(&w, "-DCOURSE_NAMES_LINES");
    add_word(&w, "-c"), add_word(&w, build->source), add_word(&w, "-o"), add_word(&w, p.made);
    const bool well = build_run(&w, build, false, NULL, why, size, &how, err);
    const bool large = strstr(why, "frame-larger-than");        /* an error; compilers differ in how to call it one */
    if (large || strstr(why, "-Werror=vla") || strstr(why, "-Werror,-Wvla"))
        advise(why, size, "memory for an array that is long, or as long as a variable says: allocate()\n");
    if (!well) advise_calls(why, size);
    return well && !large;
}

static bool take_object(const struct build *build, char *why, size_t size)
{
    struct error err = { OK, "" };
    if (build_take(build, "made", "with/student.o", &err) == OK) return true;
    snprintf(why, size, "%s\n", err.text);
    return false;
}

/* Look at the object before it is linked: what it defines and what it calls.  With sanitizers it is compiled once
 * more for the run. */
static bool compile_and_look(const struct build *build, const struct lesson *lesson, char *why, size_t size,
                             struct error *err)
{
    struct paths p;
    char found[1000], more[4000];
    name_paths(build, &p);
    if (!compile_student(build, false, why, size, err) || !take_object(build, why, size)) return false;
    if (!object_is_fine(p.object, lesson->functions, found, sizeof found))
        return snprintf(why, size, "%s", found), false;
    return !build->sanitize || (compile_student(build, true, more, sizeof more, err) && take_object(build, why, size));
}

/* Link the student's object with the calls of the lesson and the common worker. */
static bool link_worker(struct build *build, char *why, size_t size, struct error *err)
{
    char said[4000] = "";
    struct words w = { 0 };
    struct paths p;
    int how;
    name_paths(build, &p);
    add_worker(&w, build->compiler, build->sanitize), add_word(&w, p.in), add_word(&w, p.with);
    add_word(&w, p.object), add_word(&w, p.calls), add_word(&w, p.common);
    add_word(&w, "-lm"), add_word(&w, "-o"), add_word(&w, p.made);
    if (!build_run(&w, build, true, NULL, said, sizeof said, &how, err)) return snprintf(why, size, "%s", said), false;
    if (build_take(build, "made", "run/worker", err) != OK) return false;
    /* `why` keeps warnings about the text */
    path_of(build->worker, sizeof build->worker, build->folder, "run/worker");
    return true;
}

/* Build a lesson's program from the student's text.  @param why what the student did wrong, with the compiler's
 * messages; empty: nothing. */
enum error_code build_worker(struct build *build, const struct lesson *lesson, const char *text, size_t bytes,
                             const struct judging *how, char *why, size_t size, struct error *err)
{
    char tutorials[PATH_MAX / 2], name[PATH_MAX], contract[80];
    struct error broken = { OK, "" };
    *build = (struct build){ 0 };
    why[0] = 0;
    if (err) err->code = OK;
    /* A text with a NUL character would be cut off somewhere else by every tool. */
    if (strlen(text) != bytes) return snprintf(why, size, "it has a NUL character\n"), OK;
    enum error_code e = course_folder(tutorials, sizeof tutorials, err);
    if (!e) e = build_open(build, false, how, err);
    if (!e) e = build_lay_out(build, lesson, tutorials, err);
    if (e) return check_compiler(false, how, &broken) ? fail(err, broken.code, "%s", broken.text) : e;
    path_of(name, sizeof name, "in", lesson->file), path_of(build->source, sizeof build->source, build->folder, name);
    if (!e) e = build_put(build, name, text, bytes, err);
    if (e) return e;
    if (compile_and_look(build, lesson, why, size, err)) link_worker(build, why, size, err);
    if (build->worker[0] || err->code) return err->code;
    snprintf(contract, sizeof contract, "%.*sh", (int)strlen(lesson->file) - 1, lesson->file);
    build_advise(why, size, text, contract);
    /* Whether nothing can be compiled here decides if this is the student's mistake. */
    return check_compiler(false, how, err);             /* is it the student's mistake? */
}
