/* cage_files.c -- a compiler is asked which files it reads; the answers are paths that the cage shows.
 * cage.c shows these paths, cage_run.c starts the compiler.  The compiler is asked once for each set of words,
 * outside of a cage.  A path that does not exist, or that is a folder of everybody's, is not shown.  command_serve.c
 * and workshop.c call these functions.  No function returns an error code. */
#define _DEFAULT_SOURCE                 /* realpath */
#include "emulated_devices/course/cage/cage.h"
#include "ref/machine/system.h"
#if defined(SYSTEM_LINUX)
#include "ref/io/child.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANSWER = 1 << 16, WORDS = 24 };

/* These are the answers for one compiler; another compiler asks again. */
static struct { char compiler[400]; bool plus; struct cage_files files; } known;

/* Whether a path is a folder, or below it. */
static bool is_within(const char *path, const char *folder)
{
    const size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Whether a folder holds a whole system, or everybody's files: such a folder is no compiler's. */
static bool is_too_wide(const char *path)
{
    static const char *const compilers[] = { "/usr/local", "/usr" };
    int parts = 0;
    for (const char *at = path; *at; at++) parts += *at == '/' && at[1] != '\0';
    for (int i = 0; i < 2; i++) if (strcmp(path, compilers[i]) == 0) return true;
    return parts < 2 && strncmp(path, "/lib", 4) != 0 && strncmp(path, "/bin", 4) != 0;
}

/* Add a path that the cage shows, with its real place.  A path inside a path that is already there is left out. */
static void add_path(struct cage_files *files, const char *path, bool library)
{
    char real[PATH_MAX];
    if (path[0] != '/' || files->count == CAGE_PATHS || strlen(path) >= sizeof files->path[0]) return;
    struct stat st;
    if (realpath(path, real) == NULL || stat(real, &st) != 0 || (S_ISDIR(st.st_mode) && is_too_wide(real))) return;
    for (int i = 0; i < files->count; i++)
        if (is_within(path, files->path[i]) && files->library[i] >= library) return;
    snprintf(files->path[files->count], sizeof files->path[0], "%s", path);
    files->library[files->count++] = library;
}

/* Add a folder as the compiler says it, with ".." in it: its real path. */
static void add_real(struct cage_files *files, const char *path, bool library)
{
    char real[PATH_MAX];
    if (path[0] == '/' && realpath(path, real) != NULL) add_path(files, real, library);
}

/* Add the loader and libraries of the system. */
static void add_system(struct cage_files *files)
{
    static const char *const always[] = { "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache" };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) add_path(files, always[i], true);
}

/* For programs that say themselves what they read (python.c): the path, and its real place. */
void cage_add_path(struct cage_files *files, const char *path)
{
    add_path(files, path, true), add_real(files, path, true);
}

void cage_add_system(struct cage_files *files) { add_system(files); }

/* ---- this program ------------------------------------------------------------------------------------------------ */

/* These are the files of this program, which the check of a text starts again. */
static struct cage_files own;

/* List the libraries that this process has loaded: they may lie anywhere, and links to them in /etc/alternatives. */
const struct cage_files *cage_program_files(const char *program)
{
    char line[PATH_MAX + 200];
    own = (struct cage_files){ 0 };
    add_system(&own);
    add_path(&own, "/etc/alternatives", true);
    add_path(&own, program, true);
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        if (path && strstr(line, " r-xp ")) add_path(&own, path, true);
    }
    if (f) fclose(f);
    return &own;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* Read the compiler's answer to these further words.  The compiler runs without variables of the grader. */
static void cage_files_ask(const char *compiler, const char *const *more, char *answer)
{
    char text[400], *words[WORDS], *const environment[] = { (char *)"PATH=/usr/local/bin:/usr/bin:/bin",
                                                            (char *)"LC_ALL=C", (char *)"CCACHE_DISABLE=1",
                                                            (char *)"HOME=/", NULL };
    int ends[2], n = 0;
    size_t used = 0;
    struct child_end end;
    answer[0] = '\0';
    snprintf(text, sizeof text, "%s", compiler);
    for (char *rest = NULL, *one = strtok_r(text, " ", &rest); one && n < WORDS / 2; one = strtok_r(NULL, " ", &rest))
        words[n++] = one;
    while (*more && n < WORDS - 1) words[n++] = (char *)(uintptr_t)*more++;
    words[n] = NULL;
    if (pipe(ends) != 0) return;
    const pid_t child = child_start();
    if (child == 0) {
        const int in = open("/dev/null", O_RDONLY);
        if (in < 0 || dup2(in, 0) < 0 || dup2(ends[1], 1) < 0 || dup2(ends[1], 2) < 0) _exit(126);
        cage_close_at_exec();
        execve(words[0], words, environment);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t got; used < ANSWER - 1; used += (size_t)got) {
        got = read(ends[0], answer + used, ANSWER - 1 - used);
        if (got <= 0) break;
    }
    answer[used] = '\0';
    close(ends[0]);
    if (child > 0) child_wait(child, 0, &end);
}

/* Add folders behind a word at the beginning of a line, between colons. */
static void add_list(struct cage_files *files, const char *answer, const char *word)
{
    char path[PATH_MAX];
    const char *at = strstr(answer, word);
    if (at == NULL) return;
    for (at += strlen(word); *at && *at != '\n'; at += *at == ':') {
        const size_t n = strcspn(at, ":\n");
        if (n < sizeof path) snprintf(path, sizeof path, "%.*s", (int)n, at), add_real(files, path, true);
        at += n;
    }
}

/* Add lines of one folder each, between two others: folders of headers. */
static void add_headers(struct cage_files *files, const char *answer)
{
    char path[PATH_MAX];
    const char *at = strstr(answer, "#include <...> search starts here:"), *end = at ? strstr(at, "End of search") : 0;
    while (end && (at = strchr(at, '\n')) != NULL && ++at < end) {
        while (*at == ' ') at++;
        const size_t n = strcspn(at, "\n");
        if (n < sizeof path) snprintf(path, sizeof path, "%.*s", (int)n, at), add_real(files, path, false);
    }
}

const struct cage_files *cage_files(const char *compiler, bool plus)
{
    static const char *const folders[] = { "-print-search-dirs", NULL };
    static const char *const c[] = { "-v", "-E", "-x", "c", "/dev/null", NULL };
    static const char *const cpp[] = { "-v", "-E", "-x", "c++", "/dev/null", NULL };
    struct cage_files *f = &known.files;
    char program[400], *answer = malloc(ANSWER);
    if (answer == NULL) abort();
    if (f->count > 0 && strcmp(known.compiler, compiler) == 0 && known.plus == plus) return free(answer), f;
    *f = (struct cage_files){ 0 };
    snprintf(known.compiler, sizeof known.compiler, "%s", compiler), known.plus = plus;
    /* The compiler also starts the loader and the system's shells, assemblers and linkers. */
    static const char *const programs[] = { "/bin", "/usr/bin", "/etc/alternatives" };
    add_system(f);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) add_path(f, programs[i], false);
    snprintf(program, sizeof program, "%.*s", (int)strcspn(compiler, " "), compiler);
    add_path(f, program, false), add_real(f, program, false);
    cage_files_ask(compiler, folders, answer);
    add_list(f, answer, "install: "), add_list(f, answer, "programs: ="), add_list(f, answer, "libraries: =");
    cage_files_ask(compiler, plus ? cpp : c, answer);
    add_headers(f, answer);
    free(answer);
    return f;
}
#endif
