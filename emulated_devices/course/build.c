/* build.c -- compiles a student's file, in a folder of its own, with limits. */
#define _DEFAULT_SOURCE                 /* RLIMIT_AS, setgroups */
#include "emulated_devices/course/build.h"
#include "emulated_devices/course/object.h"
#include "emulated_devices/course/serve.h"
#include "emulated_devices/course/source.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 48 };

void path_of(char *to, size_t size, const char *folder, const char *inside)
{
    const size_t n = strlen(folder), m = strlen(inside);
    to[0] = 0;
    if (n + m + 2 > size) return;               /* no file has the name "" */
    memcpy(to, folder, n);
    to[n] = '/';
    memcpy(to + n + 1, inside, m + 1);
}

enum error_code course_folder(char *to, size_t size, struct error *err)
{
    char self[PATH_MAX / 2], file[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
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

bool source_folder(char *out, size_t size)
{
    static const char some[] = "emulated_devices/schemes/plugin.h";
    char self[PATH_MAX], file[PATH_MAX + sizeof some + 32];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
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

/* ---- running the compiler ---------------------------------------------------------------------------------------- */

struct words { const char *word[WORDS]; int count; };

static void add(struct words *w, const char *word) { if (w->count < WORDS - 1) w->word[w->count++] = word; }

static void limit(int what, rlim_t most) { setrlimit((__rlimit_resource_t)what, &(struct rlimit){ most, most }); }

/* The student's text decides what the compiler does, so it has as few rights as a worker. */
static void become_compiler(const struct words *w, const char *folder, const char *user)
{
    char log[PATH_MAX], *const clean[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL };
    int32_t number, group;
    const pid_t parent = getppid();
    path_of(log, sizeof log, folder, "log");
    const int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600), in = open("/dev/null", O_RDONLY);
    if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
    limit(RLIMIT_CPU, 30), limit(RLIMIT_AS, (rlim_t)3 << 30), limit(RLIMIT_FSIZE, 64 << 20), limit(RLIMIT_CORE, 0);
    alarm(COMPILE_SECONDS);
    if (serve_user(user, &number, &group) && geteuid() == 0 &&
        (setgroups(0, NULL) != 0 || setgid((gid_t)group) != 0 || setuid((uid_t)number) != 0)) _exit(126);
    child_ends_with(parent);
    extern char **environ;
    if (user) environ = (char **)(uintptr_t)clean;
    execvp(w->word[0], (char *const *)(uintptr_t)w->word);
    dprintf(STDERR_FILENO, "%s\n", strerror(errno));
    _exit(127);
}

/* What the compiler says, without the folder's name, which is another one each time. */
static void copy_without(const char *folder, const char *said, char *to, size_t size)
{
    const size_t n = strlen(folder);
    size_t used = 0;
    while (*said && used + 1 < size)
        if (strncmp(said, folder, n) == 0 && said[n] == '/') said += n + 1;
        else to[used++] = *said++;
    to[used] = 0;
}

/* @return whether it ends well; what it says is in `why`, which is empty if it has said nothing.  *how: as it ended. */
static bool run_words(struct words *w, const struct build *b, const char *user, char *why, size_t size, int *how,
                      struct error *err)
{
    char log[PATH_MAX], *said = NULL;
    struct child_end end;
    size_t bytes;
    w->word[w->count] = NULL;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) become_compiler(w, b->folder, user);
    if (child < 0) return fail(err, ERR_MEMORY, "the compiler does not start: %s", strerror(errno)), false;
    child_wait(child, 0, &end);                         /* the system stops it, by its limits */
    *how = end.how;
    path_of(log, sizeof log, b->folder, "log");
    if (file_read_all(log, 1 << 20, &said, &bytes, NULL) == OK) copy_without(b->folder, said, why, size);
    free(said);
    if (WIFEXITED(*how) && WEXITSTATUS(*how) == 127 && strstr(why, strerror(EACCES)))
        return fail(err, ERR_FILE, "%s: the compiler cannot be used%s%s: %s; CC names another", w->word[0],
                    user ? " by user " : "", user ? user : "", strerror(EACCES)), false;
    if (WIFEXITED(*how) && WEXITSTATUS(*how) == 127)
        return fail(err, ERR_FILE, "%s: there is no such compiler; CC names one", w->word[0]), false;
    if (WIFEXITED(*how) && WEXITSTATUS(*how) == 126)
        return fail(err, ERR_FILE, "%s: the compiler cannot start there", b->folder), false;
    return WIFEXITED(*how) && WEXITSTATUS(*how) == 0;
}

/* @return whether it compiles; what the compiler says is in `why`. */
static bool compile(struct words *w, const struct build *b, const char *user, char *why, size_t size, struct error *err)
{
    int how = 0;
    if (run_words(w, b, user, why, size, &how, err)) return true;
    if (WIFEXITED(how) && WEXITSTATUS(how) >= 10 && WEXITSTATUS(how) <= 13)       /* of KERNEL_BUILD alone */
        return fail(err, ERR_FILE, "kernels: %s", kernel_build_failure(WEXITSTATUS(how))), false;
    if (why[0] == 0) snprintf(why, size, "the compiler ended early: too long, or too much memory\n");
    return false;
}

/* Words of a text, cut at spaces. */
static void add_compiler(struct words *w, char *text)
{
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one && w->count < 16; one = strtok_r(NULL, " ", &rest))
        add(w, one);
}

/* The same bits on every machine: no contraction to fused multiply-add, nothing of this processor alone. */
static void add_how(struct words *w, const struct judging *how, const char *include[2])
{
    static const char *const always[] = { "-std=c11", "-O2", "-g", "-ffp-contract=off", "-fno-stack-protector", NULL };
    for (int i = 0; always[i]; i++) add(w, always[i]);
    for (int i = 0; i < 2 && include[i]; i++) add(w, include[i]);
    if (how->sanitize) add(w, "-fsanitize=address,undefined"), add(w, "-fno-sanitize-recover=all");
}

/* Large arrays belong into allocate(), where they are counted. */
static void add_warnings(struct words *w)
{
    static const char *const all[] = { "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function",
                                       "-Wno-unknown-pragmas", "-fdiagnostics-color=never", "-Werror=vla",
                                       "-Werror=alloca", "-Werror=implicit-function-declaration",
                                       "-Wframe-larger-than=2048", "-Werror=return-type", NULL };
    for (int i = 0; all[i]; i++) add(w, all[i]);
}

/* ---- a worker ---------------------------------------------------------------------------------------------------- */

static enum error_code open_folder(struct build *b, const char *user, struct error *err)
{
    int32_t number, group;
    b->worker[0] = 0;
    snprintf(b->folder, sizeof b->folder, "%s/orrery-course-XXXXXX", temporary_folder());
    if (mkdtemp(b->folder) == NULL) {
        enum error_code e = fail(err, ERR_FILE, "%s: %s", b->folder, strerror(errno));
        b->folder[0] = 0;
        return e;
    }
    if (serve_user(user, &number, &group) && geteuid() == 0 && chown(b->folder, (uid_t)number, (gid_t)group) != 0)
        return fail(err, ERR_FILE, "%s: %s", b->folder, strerror(errno));
    return OK;
}

static enum error_code write_text(const char *path, const char *text, size_t bytes, struct error *err)
{
    FILE *f = fopen(path, "wb");
    const bool well = f && fwrite(text, 1, bytes, f) == bytes;
    if (f == NULL || fclose(f) != 0 || !well) return fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
    return chmod(path, 0644) == 0 ? OK : fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
}

/* ---- whether anything can be compiled ---------------------------------------------------------------------------- */

static void name_compiler(bool kernels, const char *user, char *to, size_t size)
{
    const char *asked = getenv(kernels ? "CXX" : "CC");
    if (kernels && user) asked = NULL;          /* a script asks for it, which has nothing of our environment then */
    snprintf(to, size, "%s", asked && asked[0] ? asked : kernels ? "c++" : ORRERY_CC);
}

/* As a student's file: an object, which caches keep, and then a program. */
static bool makes_program(const struct build *b, bool kernels, const struct judging *how, const char *name,
                          const char *program, char *said, size_t size, struct error *err)
{
    char object[PATH_MAX], text[200];
    const char *nowhere[2] = { NULL, NULL };
    bool well = true;
    path_of(object, sizeof object, b->folder, "student.o");
    for (int linking = 0; linking < 2 && well; linking++) {
        struct words w = { 0 };
        int ended;
        snprintf(text, sizeof text, "%s", name);
        add_compiler(&w, text);
        if (!kernels) add_how(&w, how, nowhere);
        if (kernels && !linking) add(&w, "-x"), add(&w, "c++");
        if (linking) add(&w, object);
        else add(&w, "-c"), add(&w, b->source);
        add(&w, "-o"), add(&w, linking ? program : object);
        well = run_words(&w, b, how->user, said, size, &ended, err) &&
               access(linking ? program : object, F_OK) == 0;
    }
    if (said[0] == 0) snprintf(said, size, "it makes no program");
    return well;
}

enum error_code check_compiler(bool kernels, const struct judging *how, struct error *err)
{
    static const char empty[] = "int main(void) { return 0; }\n";
    const char *by = how->user ? " by user " : "", *user = how->user ? how->user : "";
    char name[200], program[PATH_MAX], said[1000] = "";
    struct words own = { .word = { program }, .count = 1 };
    struct error ours = { OK, "" };
    struct build b = { 0 };
    int32_t number, group, ended;
    if (how->user && !serve_user(how->user, &number, &group))
        return fail(err, ERR_USAGE, "--user %s: there is no such user", printable(how->user).text);
    enum error_code e = open_folder(&b, how->user, err);
    path_of(b.source, sizeof b.source, b.folder, "empty.c");
    path_of(program, sizeof program, b.folder, "worker");
    name_compiler(kernels, how->user, name, sizeof name);
    if (!e) e = write_text(b.source, empty, sizeof empty - 1, err);
    const bool well = !e && makes_program(&b, kernels, how, name, program, said, sizeof said, &ours);
    if (!e && !well && kernels && strstr(ours.text, "there is no such compiler"))
        e = fail(err, ERR_FILE, "kernels: %s", kernel_build_failure(10));
    else if (!e && ours.code) e = fail(err, ours.code, "%s", ours.text);
    else if (!e && !well)
        e = fail(err, ERR_FILE, "%s: the compiler cannot be used%s%s: %.*s; %s names another", name, by, user,
                 (int)strcspn(said, "\n"), said, kernels ? "CXX" : "CC");
    /* Sanitizers need more memory than a compiler may have. */
    if (!e && !how->sanitize && !run_words(&own, &b, how->user, said, sizeof said, &ended, &ours))
        e = fail(err, ERR_FILE, "%s: programs cannot be run there%s%s; TMPDIR names another folder", temporary_folder(),
                 by, user);
    build_remove(&b);
    return e;
}

/* What helps, behind what a compiler says. */
static void advise(char *why, size_t size, const char *text)
{
    const size_t said = strlen(why);
    snprintf(why + said, size - said, "%s", text);
}

/* Whether the compiler names this function: gcc as ‘abs’, clang as 'abs'. */
static bool names(const char *said, const char *function)
{
    char gcc[40], clang[40];
    snprintf(gcc, sizeof gcc, "\u2018%s\u2019", function), snprintf(clang, sizeof clang, "'%s'", function);
    return strstr(said, gcc) || strstr(said, clang);
}

/* Compilers advise to include headers that cannot be included: what to call instead. */
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

/* With sanitizers the object that is looked at is one without, which has no more than the student's text. */
static bool compile_and_look(const struct build *b, const struct lesson *l, const struct judging *how, char *compiler,
                             const char *include[2], const char *source, char *why, size_t size, struct error *err)
{
    char object[PATH_MAX], text[200];
    const struct judging plain = { .user = how->user };
    struct words w = { 0 };
    snprintf(text, sizeof text, "%s", compiler);
    path_of(object, sizeof object, b->folder, "student.o");
    add_compiler(&w, text), add_how(&w, &plain, include), add_warnings(&w);
    add(&w, "-c"), add(&w, source), add(&w, "-o"), add(&w, object);
    const bool well = compile(&w, b, how->user, why, size, err);
    const bool large = strstr(why, "frame-larger-than");        /* an error; compilers differ in how to call it one */
    if (large || strstr(why, "-Werror=vla") || strstr(why, "-Werror,-Wvla"))
        advise(why, size, "memory for an array that is long, or as long as a variable says: allocate()\n");
    if (!well) advise_calls(why, size);
    if (!well || large) return false;
    char found[1000];
    if (object_is_fine(object, l->functions, found, sizeof found)) return true;
    snprintf(why, size, "%s", found);
    return false;
}

/* ---- what is the same in all workers ----------------------------------------------------------------------------- */

/* A file of this process, in which a compiler with few rights leaves something for other compilations. */
static enum error_code open_kept(char *path, size_t size, const char *name, const char *user, struct error *err)
{
    int32_t number, group;
    snprintf(path, size, "%s/orrery-%s-XXXXXX", temporary_folder(), name);
    const int fd = mkstemp(path);
    if (fd < 0) {
        const enum error_code e = fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
        path[0] = 0;
        return e;
    }
    close(fd);
    if (serve_user(user, &number, &group) && geteuid() == 0 && chown(path, (uid_t)number, (gid_t)group) != 0)
        return fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
    return OK;
}

/* What `make` has compiled and `make install` put into lib/orrery/course: beside it lies a key, the compiler's words, a
 * line, and all texts that were compiled.  Another compiler, or another text, and it is of no use. */
static bool is_ready(const char *object, const char *tutorials, const char *words)
{
    static const char *const of[] = { "worker/worker.c", "worker/cage.h", "worker/calls.h", "worker/protocol.h",
                                      "worker/streams.h", "course.h" };
    char path[PATH_MAX + 8], *key = NULL, *text;
    size_t left = 0, bytes;
    snprintf(path, sizeof path, "%s.key", object);
    bool same = access(object, R_OK) == 0 && file_read_all(path, 1 << 20, &key, &left, NULL) == OK;
    const char *at = key;
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

/* Of an installed program in lib/, else in the folder of the build. */
static void ready_worker(const char *tutorials, char *to, size_t size)
{
    static const char installed[] = "/share/orrery/tutorials", sources[] = "/tutorials";
    const size_t n = strlen(tutorials), m = sizeof installed - 1, k = sizeof sources - 1;
    if (n > m && strcmp(tutorials + n - m, installed) == 0)
        snprintf(to, size, "%.*s/lib/orrery/course/worker.o", (int)(n - m), tutorials);
    else snprintf(to, size, "%.*s/build/course/worker.o", (int)(n > k ? n - k : 0), tutorials);
}

/* worker.c, compiled once for all files that this process judges; [1]: with sanitizers. */
static struct { char path[PATH_MAX]; bool done, ours; } worker_object[2];         /* ours: to be removed */

static void remove_workers(void)
{
    for (int i = 0; i < 2; i++) if (worker_object[i].ours) unlink(worker_object[i].path);
}

/* How a worker is compiled but for the student's object, which has its own flags.  -O1: half the time. */
static void add_worker(struct words *w, const struct judging *how, char *compiler, const char *include[2])
{
    add_compiler(w, compiler), add_how(w, how, include);
    add(w, "-O1"), add(w, how->sanitize ? "-g1" : "-g0");
}

/* The words of the key: the compiler and what of its options does not depend on the place. */
static bool take_ready(const struct judging *how, const char *compiler, const char *tutorials)
{
    char text[200], words[400], *path = worker_object[0].path;
    const char *nowhere[2] = { NULL, NULL };
    struct words w = { 0 };
    if (how->sanitize) return false;
    snprintf(text, sizeof text, "%s", compiler);
    add_worker(&w, how, text, nowhere);
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

/* Nobody else may change it afterwards.  That it does not compile is never the student's mistake. */
static bool compile_common(const struct build *b, const struct judging *how, const char *compiler,
                           const char *include[2], const char *tutorials, struct error *err)
{
    char source[PATH_MAX], text[200], said[1000] = "", *path = worker_object[how->sanitize].path;
    struct words w = { 0 };
    if (worker_object[how->sanitize].done || take_ready(how, compiler, tutorials)) return true;
    if (path[0] == 0 && open_kept(path, sizeof worker_object->path, "worker", how->user, err) != OK) return false;
    worker_object[how->sanitize].ours = true;
    if (!worker_object[!how->sanitize].ours) atexit(remove_workers);
    snprintf(text, sizeof text, "%s", compiler);
    path_of(source, sizeof source, tutorials, "worker/worker.c");
    add_worker(&w, how, text, include);
    add(&w, "-c"), add(&w, source), add(&w, "-o"), add(&w, path);
    if (!compile(&w, b, how->user, said, sizeof said, err)) {
        if (!err->code) fail(err, ERR_FILE, "%s does not compile: %.*s", source, (int)strcspn(said, "\n"), said);
        return false;
    }
    if ((geteuid() == 0 && chown(path, 0, 0) != 0) || chmod(path, 0644) != 0)
        return fail(err, ERR_FILE, "%s: %s", path, strerror(errno)), false;
    return worker_object[how->sanitize].done = true;
}

static bool link_worker(struct build *b, const struct lesson *l, const struct judging *how, char *compiler,
                        const char *include[2], const char *tutorials, const char *source, char *why, size_t size,
                        struct error *err)
{
    char object[PATH_MAX], calls[PATH_MAX], to[PATH_MAX], text[200], said[4000] = "";
    struct words w = { 0 };
    if (!compile_common(b, how, compiler, include, tutorials, err)) return false;
    snprintf(text, sizeof text, "%s", compiler);
    path_of(object, sizeof object, b->folder, "student.o");
    snprintf(calls, sizeof calls, "%s/%s/calls.c", tutorials, l->folder);
    path_of(to, sizeof to, b->folder, "worker");
    add_worker(&w, how, text, include);
    add(&w, how->sanitize ? source : object), add(&w, calls), add(&w, worker_object[how->sanitize].path);
    add(&w, "-lm"), add(&w, "-o"), add(&w, to);
    if (!compile(&w, b, how->user, said, sizeof said, err)) return snprintf(why, size, "%s", said), false;
    snprintf(b->worker, sizeof b->worker, "%s", to);            /* `why` keeps the warnings about the student's text */
    return true;
}

enum error_code build_worker(struct build *b, const struct lesson *l, const char *text, size_t bytes,
                             const struct judging *how, char *why, size_t size, struct error *err)
{
    char tutorials[PATH_MAX / 2], folder[PATH_MAX], own[PATH_MAX], compiler[200], contract[80];
    *b = (struct build){ 0 };
    why[0] = 0;
    if (err) err->code = OK;
    snprintf(contract, sizeof contract, "%.*sh", (int)strlen(l->file) - 1, l->file);
    if (strlen(text) != bytes) snprintf(why, size, "it has a NUL character\n");
    if (strlen(text) != bytes || !source_is_fine(text, contract, why, size)) {
        if (strstr(why, "includes stdio.h")) advise(why, size, "say() of course.h prints a line\n");
        if (strstr(why, "includes stdlib.h"))
            advise(why, size, "allocate() and release() of course.h give and take memory; for abs() use fabs()\n");
        return OK;
    }
    enum error_code e = course_folder(tutorials, sizeof tutorials, err);
    if (!e) e = open_folder(b, how->user, err);
    path_of(b->source, sizeof b->source, b->folder, l->file);
    if (!e) e = write_text(b->source, text, bytes, err);
    if (e) return e;
    name_compiler(false, how->user, compiler, sizeof compiler);
    snprintf(folder, sizeof folder, "-I%s", tutorials);
    snprintf(own, sizeof own, "-I%s/%s", tutorials, l->folder);
    const char *include[] = { folder, own };
    if (compile_and_look(b, l, how, compiler, include, b->source, why, size, err))
        link_worker(b, l, how, compiler, include, tutorials, b->source, why, size, err);
    if (b->worker[0] == 0 && !err->code) check_compiler(false, how, err);       /* is it the student's mistake? */
    return err->code;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

const char *kernel_build_failure(int status)
{
    switch (status) {
    case 1: return "does not compile";
    case 10: return "cannot be compiled: there is no C++ compiler; CXX names one";
    case 11: return "cannot be compiled: there is no C compiler; CC names one";
    case 12: return "cannot be compiled: there is no awk";
    default: return "cannot be compiled: the emulator around it does not compile here";
    }
}

/* The compiled emulator and judge, for all files that this process judges. */
static char judge_object[PATH_MAX];

static void remove_judge(void) { unlink(judge_object); }

static enum error_code open_judge(const char *user, struct error *err)
{
    if (judge_object[0]) return OK;
    const enum error_code e = open_kept(judge_object, sizeof judge_object, "judge", user, err);
    if (judge_object[0]) atexit(remove_judge);
    return e;
}

enum error_code build_kernels(struct build *b, const struct lesson *l, const char *text, size_t bytes,
                              const struct judging *how, char *why, size_t size, struct error *err)
{
    char tree[PATH_MAX / 2], tutorials[PATH_MAX / 2], script[PATH_MAX], calls[PATH_MAX], program[PATH_MAX];
    char contract[80];
    *b = (struct build){ 0 };
    why[0] = 0;
    if (err) err->code = OK;
    snprintf(contract, sizeof contract, "%.*sh", (int)strlen(l->file) - 2, l->file);
    if (strlen(text) != bytes) snprintf(why, size, "it has a NUL character\n");
    if (strlen(text) != bytes || !source_is_fine(text, contract, why, size)) return OK;
    if (!source_folder(tree, sizeof tree)) return fail(err, ERR_FILE, "Orrery's sources are not found");
    enum error_code e = course_folder(tutorials, sizeof tutorials, err);
    if (!e) e = open_folder(b, how->user, err);
    if (!e) e = open_judge(how->user, err);
    path_of(b->source, sizeof b->source, b->folder, l->file);
    if (!e) e = write_text(b->source, text, bytes, err);
    if (e) return e;
    path_of(script, sizeof script, tree, KERNEL_BUILD);
    snprintf(calls, sizeof calls, "%s/%s/calls.cu", tutorials, l->folder);
    path_of(program, sizeof program, b->folder, "worker");
    struct words w = { .word = { "sh", script, tree, b->source, program, calls, judge_object }, .count = 7 };
    if (compile(&w, b, how->user, why, size, err)) snprintf(b->worker, sizeof b->worker, "%s", program);
    else if (!err->code) check_compiler(true, how, err);
    return err->code;
}

void build_remove(struct build *b)
{
    static const char *const names[] = { "student.o", "worker", "log" };
    char path[PATH_MAX];
    if (b->folder[0] == 0) return;
    for (int i = 0; i < 3; i++) {
        path_of(path, sizeof path, b->folder, names[i]);
        unlink(path);
    }
    if (b->source[0]) unlink(b->source);
    rmdir(b->folder);
    b->folder[0] = 0;
}
