/* workshop.c -- the folder in which a student's file becomes a program, and commands that run there in the cage.
 *
 * Whatever a command has left in work/ is the student's.  This process opens nothing there but a result, and that only
 * if it is a plain file.
 * build.c and build_kernels.c call it for each student's file.  A folder that cannot be made, or a compiler that does
 * not start, is an error; a text that does not compile is not.
 */
#define _DEFAULT_SOURCE                 /* chown, O_NOFOLLOW */
#include "emulated_devices/course/compile/build.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A command gets these seconds of a processor.  It is looked at every 20 ms, so that 30 seconds are never reached. */
enum { SECONDS = 26, EACH = 512, ALL = 560, FILES = 96, SAID = 1 << 20, PROCESSES = 64 };
enum { DEEP = 32, STOPPED = 100 };      /* STOPPED: bytes for what was over its limit */

/* Join a folder and a path.  An empty result means that the names are too long, and no file has such a name. */
void path_of(char *to, size_t size, const char *folder, const char *inside)
{
    const size_t n = strlen(folder), m = strlen(inside);
    to[0] = 0;
    if (n + m + 2 > size) return;               /* no file has the name "" */
    memcpy(to, folder, n);
    to[n] = '/';
    memcpy(to + n + 1, inside, m + 1);
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

/* Find the program that a word names, as an absolute path.  Its links stay, because some programs look at their own
 * name. */
static bool find_program(const char *word, char *to, size_t size)
{
    char here[PATH_MAX], copy[4 * PATH_MAX];
    if (strchr(word, '/') && word[0] != '/')
        return getcwd(here, sizeof here) && snprintf(to, size, "%s/%s", here, word) < (int)size &&
               access(to, F_OK) == 0;
    if (strchr(word, '/')) return snprintf(to, size, "%s", word) < (int)size && access(to, F_OK) == 0;
    snprintf(copy, sizeof copy, "%s", getenv("PATH") ? getenv("PATH") : "/usr/local/bin:/usr/bin:/bin");
    for (char *rest = NULL, *one = strtok_r(copy, ":", &rest); one; one = strtok_r(NULL, ":", &rest))
        if (one[0] == '/' && snprintf(to, size, "%s/%s", one, word) < (int)size && access(to, X_OK) == 0) return true;
    return false;
}

/* Find CC or CXX, with its first word as an absolute path. */
static enum error_code find_compiler(struct build *build, struct error *err)
{
    const char *asked = getenv(build->plus ? "CXX" : "CC");
    char word[400], path[PATH_MAX];
    if (asked == NULL || asked[0] == '\0') asked = build->plus ? "c++" : ORRERY_CC;
    const int n = (int)strcspn(asked, " ");
    snprintf(word, sizeof word, "%.*s", n, asked);
    if (find_program(word, path, sizeof path) &&
        snprintf(build->compiler, sizeof build->compiler, "%s%s", path, asked + n)
            < (int)sizeof build->compiler) return OK;
    if (build->plus) return fail(err, ERR_FILE, "kernels: %s", kernel_build_failure(10));
    return fail(err, ERR_FILE, "%s: there is no such compiler; CC names one", word);
}

/* Make a folder inside the build's folder. */
static enum error_code make_inside(const struct build *build, const char *name, mode_t mode, struct error *err)
{
    char path[PATH_MAX];
    path_of(path, sizeof path, build->folder, name);
    if (mkdir(path, mode) == 0 && chmod(path, mode) == 0) return OK;
    return fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
}

/* Make the folder that a command can write: it belongs to the command's user. */
static enum error_code make_work(const struct build *build, struct error *err)
{
    char path[PATH_MAX];
    int32_t user, group;
    enum error_code e = make_inside(build, "work", 0700, err);
    path_of(path, sizeof path, build->folder, "work");
    if (!e) e = cage_user(build->user, &user, &group, err);
    if (!e && user >= 0 && chown(path, (uid_t)user, (gid_t)group) != 0)
        return fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
    return e;
}

/* Make the build's folder with all that is in it; nobody else may list it. */
static enum error_code open_folder(struct build *build, struct error *err)
{
    enum error_code e = OK;
    snprintf(build->folder, sizeof build->folder, "%s/orrery-course-XXXXXX", temporary_folder());
    if (mkdtemp(build->folder) == NULL) {
        e = fail(err, ERR_FILE, "%s: %s", build->folder, strerror(errno));
        return build->folder[0] = 0, e;
    }
    if (chmod(build->folder, 0711) != 0) e = fail(err, ERR_FILE, "%s: %s", build->folder, strerror(errno));
    static const char *const ours[] = { "in", "with", "with/worker", "run", "root" };
    for (size_t i = 0; i < sizeof ours / sizeof *ours && !e; i++) e = make_inside(build, ours[i], 0755, err);
    return e ? e : make_work(build, err);
}

/* Open a build: its folder and its compiler. */
enum error_code build_open(struct build *build, bool kernels, const struct judging *how, struct error *err)
{
    int32_t user, group;
    *build = (struct build){ .plus = kernels, .user = how->user, .sanitize = how->sanitize };
    enum error_code e = cage_user(how->user, &user, &group, err);
    if (!e) e = find_compiler(build, err);
    return e ? e : open_folder(build, err);
}

/* A text needs a folder, and no compiler. */
enum error_code build_open_text(struct build *build, const struct judging *how, struct error *err)
{
    *build = (struct build){ .user = how->user };
    return open_folder(build, err);
}

/* Remove a folder with anything in it: links are removed, not followed. */
static void remove_tree(int in, const char *name, int depth)
{
    const int fd = depth < DEEP ? openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL && fd >= 0) close(fd);
    for (const struct dirent *one; d && (one = readdir(d)) != NULL;) {
        if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0) continue;
        if (unlinkat(fd, one->d_name, 0) != 0) remove_tree(fd, one->d_name, depth + 1);
    }
    if (d) closedir(d);
    unlinkat(in, name, AT_REMOVEDIR);
}

/* The folder is removed once; a second call does nothing. */
void build_remove(struct build *build)
{
    if (build->folder[0]) remove_tree(AT_FDCWD, build->folder, 0);
    build->folder[0] = 0;
}

/* ---- files in it ------------------------------------------------------------------------------------------------- */

/* Write a file with these bytes, for everybody to read. */
static enum error_code put_file(const struct build *build, const char *name, const char *bytes,
                                size_t count, mode_t mode, struct error *err)
{
    char path[PATH_MAX];
    path_of(path, sizeof path, build->folder, name);
    FILE *f = fopen(path, "wbe");
    const bool well = f && fwrite(bytes, 1, count, f) == count;
    if (f == NULL || fclose(f) != 0 || !well || chmod(path, mode) != 0)
        return fail(err, ERR_FILE, "%s: %s", path, strerror(errno));
    return OK;
}

enum error_code build_put(const struct build *build, const char *name, const char *text, size_t bytes,
                          struct error *err)
{
    return put_file(build, name, text, bytes, 0644, err);
}

/* Copy a file of the lesson into the build's folder. */
enum error_code build_copy(const struct build *build, const char *from, const char *name, struct error *err)
{
    char *text = NULL;
    size_t bytes;
    enum error_code e = file_read_all(from, RESULT_MOST, &text, &bytes, err);
    if (!e) e = build_put(build, name, text, bytes, err);
    free(text);
    return e;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* Copy all files with this ending; a folder of a lesson has few. */
enum error_code build_copy_all(const struct build *build, const char *from, const char *end, const char *name,
                               struct error *err)
{
    char path[PATH_MAX], to[PATH_MAX];
    enum error_code e = OK;
    DIR *d = opendir(from);
    if (d == NULL) return fail(err, ERR_FILE, "%s: %s", from, strerror(errno));
    for (const struct dirent *one; !e && (one = readdir(d)) != NULL;) {
        if (!ends_with(one->d_name, end)) continue;
        path_of(path, sizeof path, from, one->d_name), path_of(to, sizeof to, name, one->d_name);
        e = build_copy(build, path, to, err);
    }
    closedir(d);
    return e;
}

/* Read a file that the student's command has made: a plain file, of at most `most` bytes, and no link. */
static char *read_plain(const char *path, size_t most, size_t *count)
{
    struct stat st;
    char *bytes = NULL;
    size_t used = 0;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool well = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= most;
    if (well) bytes = malloc((size_t)st.st_size + 1);
    for (ssize_t n; bytes && used < (size_t)st.st_size; used += (size_t)n) {
        n = read(fd, bytes + used, (size_t)st.st_size - used);
        if (n <= 0) break;
    }
    if (fd >= 0) close(fd);
    if (bytes && used == (size_t)st.st_size) return *count = used, bytes;
    free(bytes);
    return NULL;
}

/* Read a file of work/, which belongs to the student. */
char *build_read(const struct build *build, const char *name, size_t most, size_t *count, struct error *err)
{
    char path[PATH_MAX], inside[PATH_MAX];
    path_of(inside, sizeof inside, "work", name);
    path_of(path, sizeof path, build->folder, inside);
    char *bytes = read_plain(path, most, count);
    if (bytes == NULL) fail(err, ERR_FILE, "the compiler has made no file, or none of at most %zu bytes", most);
    return bytes;
}

/* This empties work/ for the next command. */
enum error_code build_empty(const struct build *build, struct error *err)
{
    char path[PATH_MAX];
    path_of(path, sizeof path, build->folder, "work");
    remove_tree(AT_FDCWD, path, 0);
    return make_work(build, err);
}

/* Take a result of work/ into the build's folder, and empty work/: the student's user may write there. */
enum error_code build_take(const struct build *build, const char *name, const char *to, struct error *err)
{
    size_t count;
    char *bytes = build_read(build, name, RESULT_MOST, &count, err);
    const enum error_code e = bytes ? put_file(build, to, bytes, count, 0755, err) : ERR_FILE,
                          emptied = build_empty(build, e ? NULL : err);
    free(bytes);
    return e ? e : emptied;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* Add a word to a command line; a word that does not fit is left out. */
void add_word(struct words *words, const char *word)
{
    if (words->count < BUILD_WORDS - 1) words->word[words->count++] = word;
}

/* Add the compiler and its own words, such as "ccache gcc". */
void add_compiler(struct words *words, const char *compiler)
{
    snprintf(words->text, sizeof words->text, "%s", compiler);
    for (char *rest = NULL, *one = strtok_r(words->text, " ", &rest); one && words->count < 16;
         one = strtok_r(NULL, " ", &rest)) add_word(words, one);
}

/* This says what a command sees.  Sanitizers and the judge of kernels name lines of the text.  So they read
 * /proc/self and start a program for that. */
struct cage_view build_view(const struct build *build)
{
    const bool names_lines = build->sanitize || build->plus;
    return (struct cage_view){ .files = cage_files(build->compiler, build->plus), .inside = build->folder,
                              .reads = { "run" },
                               .build = names_lines, .processes = names_lines, .user = build->user };
}

/* Copy the compiler's messages without the folder's name, which differs from run to run. */
static void copy_without(const char *folder, const char *said, char *to, size_t size)
{
    const size_t n = strlen(folder);
    size_t used = 0;
    while (*said && used + 1 < size) {
        if (strncmp(said, folder, n) != 0 || said[n] != '/') {
            const bool plain = *said == '\n' || *said == '\t' || !iscntrl((unsigned char)*said);
            to[used++] = plain ? *said : '?', said++;
            continue;
        }
        said += n + 1;
        said += strncmp(said, "in/", 3) == 0 ? 3 : 0;
    }
    to[used] = 0;
}

/* Say how a compiler ended, if it did not compile: not there, or not allowed to run. */
static bool tell_end(const struct words *words, const struct build *build, const struct cage_end *end,
                     struct error *err)
{
    const bool exited = WIFEXITED(end->how);
    const int status = exited ? WEXITSTATUS(end->how) : -1;
    const char *by = build->user ? " by user " : "", *user = build->user ? build->user : "", *said = end->said;
    if (end->unstarted) return fail(err, ERR_FILE, "%.*s", (int)strcspn(said, "\n"), said), false;
    if (status == 127 && strstr(said, strerror(EACCES)))
        return fail(err, ERR_FILE, "%s: the compiler cannot be used%s%s: %s; %s names another",
                    words->word[0], by, user, strerror(EACCES), build->plus ? "CXX" : "CC"), false;
    if (status == 127)
        return fail(err, ERR_FILE, "%s: there is no such compiler; %s names one", words->word[0],
                    build->plus ? "CXX" : "CC"),
               false;
    return status == 0;
}

/* Run one command of a build.  @return whether it did its work; `why` has what it said. */
bool build_run(struct words *words, const struct build *build, bool linking,
               const char *const tree[CAGE_READS], char *why, size_t size, int *how, struct error *err)
{
    char temporary[PATH_MAX], home[PATH_MAX], compiler[PATH_MAX + 8];
    const char *const environment[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "CCACHE_DISABLE=1",
                                        temporary, home, compiler, NULL };     /* ccache wants a home, to do nothing */
    struct cage_command c = { .word = words->word, .environment = environment,
                              .each = { SECONDS, (uint64_t)EACH << 20, RESULT_MOST, USER_PROCESSES },
                              .all = { .seconds = SECONDS, .memory = (uint64_t)ALL << 20, .disk = (uint64_t)FILES << 20,
                                       .said = SAID, .processes = PROCESSES, .asleep = ASLEEP_SECONDS,
                                       .wall = COMMAND_SECONDS } };
    struct cage_end end;
    c.view = build_view(build);
    /* A compiler sees its own files and in/; only a linker sees with/, too. */
    c.view.build = true, c.view.processes = false, c.view.writes = "work", c.view.reads[0] = "in";
    if (linking) c.view.reads[1] = "with";
    for (int i = 0; tree && i < CAGE_READS; i++) c.view.tree[i] = tree[i];
    snprintf(temporary, sizeof temporary, "TMPDIR=%s/work", build->folder);
    snprintf(home, sizeof home, "HOME=%s/work", build->folder);
    snprintf(compiler, sizeof compiler, "CXX=%s", build->plus ? build->compiler : "c++");
    words->word[words->count] = NULL;
    why[0] = '\0', *how = 0;
    if (cage_run(&c, &end, err) != OK) return false;
    /* The beginning of the messages is kept, and the limit is said behind them. */
    const size_t room = end.over && size > STOPPED ? size - STOPPED : size;
    copy_without(build->folder, end.said, why, room);
    *how = end.how;
    if (end.over) {
        const size_t n = strlen(why);
        snprintf(why + n, size - n, "%sthe compiler was stopped: %s\n", n && why[n - 1] != '\n' ? "\n" : "", end.over);
        return false;
    }
    const bool well = tell_end(words, build, &end, err);
    if (!well && why[0] == '\0' && !(err && err->code))
        snprintf(why, size, "the compiler ended early: too long, or too much memory\n");
    return well;
}

bool build_runs(const struct build *build)
{
    char path[PATH_MAX];
    const char *const word[] = { path, NULL }, *const environment[] = { SANITIZERS, NULL };
    const struct cage_command c = { .word = word, .environment = environment,
                                    .view = build_view(build), .each = { SECONDS, 0, RESULT_MOST, USER_PROCESSES },
                                    .all = { .asleep = ASLEEP_SECONDS, .wall = COMMAND_SECONDS } };
    struct cage_end end;
    path_of(path, sizeof path, build->folder, "run/worker");
    return cage_run(&c, &end, NULL) == OK && WIFEXITED(end.how) && WEXITSTATUS(end.how) == 0;
}
