/* plugin.c -- --plugin FILE: compiles plug-ins, and loads them in every process of a job.  cli/main.c calls
 * load_plugins().  Errors: ERR_FILE or ERR_USAGE of the path, ERR_FORMAT if it does not compile or load;
 * ERR_MEMORY. */
#include "emulated_devices/course/compile/plugin.h"
#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/schemes/plugin.h"
#include "ref/io/output.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOADED "ORRERY_PLUGINS"         /* paths of shared objects, with colons between: what devices load */

static bool has_ending(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Compile a source to an object.  @return OK; ERR_FORMAT: the compiler has said why it does not compile. */
static enum error_code compile(const char *source, const char *object, struct error *err)
{
    enum { MOST = 32 };
    const char *asked = getenv("CC");
    char headers[PATH_MAX], compiler[1024], include[PATH_MAX + 2], *words[MOST + 16];
    int n = 0, status;
    enum error_code e = build_headers(headers, sizeof headers, err);
    if (e) return e;
    snprintf(compiler, sizeof compiler, "%s", asked && asked[0] ? asked : ORRERY_CC);
    snprintf(include, sizeof include, "-I%s", headers);
    for (char *rest = NULL, *w = strtok_r(compiler, " ", &rest); w && n < MOST; w = strtok_r(NULL, " ", &rest))
        words[n++] = w;
    const char *const rest[] = { "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-g", "-Wall", "-Wextra", "-fopenmp",
                                 "-fPIC", "-shared", include, "-o", object, source, "-lm", NULL };
    for (int i = 0; rest[i]; i++) words[n++] = (char *)rest[i];
    words[n] = NULL;
    e = build_aside(words, &status, err);
    if (!e && status == 127)
        e = fail(err, ERR_FILE, "cannot be compiled: there is no compiler; CC names one, or give a shared object");
    return e || status == 0 ? e : fail(err, ERR_FORMAT, "does not compile");
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Devices load the same list as this process. */
static enum error_code note_loaded(const char *object, struct error *err)
{
    const char *before = getenv(LOADED);
    char *list = malloc((before ? strlen(before) : 0) + strlen(object) + 2);
    if (list == NULL) return fail(err, ERR_MEMORY, "no memory for its name");
    sprintf(list, "%s%s%s", before ? before : "", before ? ":" : "", object);
    const bool set = setenv(LOADED, list, 1) == 0;
    free(list);
    return set ? OK : fail(err, ERR_MEMORY, "no memory for its name");
}

/* Devices may start in another folder, and dlopen looks elsewhere for a name without a slash. */
static enum error_code absolute(const char *word, char out[PATH_MAX], struct error *err)
{
    char here[PATH_MAX] = "";
    if (access(word, R_OK) != 0 || (word[0] != '/' && getcwd(here, sizeof here) == NULL))
        return fail(err, ERR_FILE, "%s", strerror(errno));
    const int n = snprintf(out, PATH_MAX, "%s%s%s", here, word[0] == '/' ? "" : "/", word);
    return n < PATH_MAX ? OK : fail(err, ERR_FILE, "%s", strerror(ENAMETOOLONG));
}

/* @param[out] object  the path of the shared object: `path`, or a temporary file. */
static enum error_code make_object(const char *word, char path[PATH_MAX], const char **object, struct error *err)
{
    enum error_code e = absolute(word, path, err);
    *object = path;
    if (e) return e;
    if (strchr(path, ':')) return fail(err, ERR_FILE, "a path with a colon cannot be passed on to devices");
    if (has_ending(path, ".so")) return OK;
    if (!has_ending(path, ".c")) return fail(err, ERR_USAGE, "is neither a .c file nor a .so");
    *object = temporary_file(err);
    return *object ? compile(path, *object, err) : ERR_FILE;
}

static enum error_code plugin_take(const char *word, struct error *err)
{
    char path[PATH_MAX];
    const char *object;
    enum error_code e = make_object(word, path, &object, err);
    if (!e) e = plugin_load(object, err);
    return e ? e : note_loaded(object, err);
}

enum error_code plugin_object(const char *word, char path[PATH_MAX], struct error *err)
{
    const char *object;
    enum error_code e = make_object(word, path, &object, err);
    if (!e && object != path) snprintf(path, PATH_MAX, "%s", object);
    return e ? e : note_loaded(object, err);
}

/* "--plugin my.c: cannot be loaded: ..." */
static enum error_code name_it(const char *flag, const char *path, enum error_code e, struct error *err)
{
    const struct error before = *err;
    return e ? fail(err, e, "%s %s: %s", flag, printable_path(path).text, before.text) : OK;
}

static enum error_code load_listed(struct error *err)
{
    const char *all = getenv(LOADED);
    char *list = all ? malloc(strlen(all) + 1) : NULL;
    enum error_code e = OK;
    if (all == NULL) return OK;
    if (list == NULL) return fail(err, ERR_MEMORY, "no memory for the names of plug-ins");
    strcpy(list, all);
    for (char *rest = NULL, *path = strtok_r(list, ":", &rest); path && !e; path = strtok_r(NULL, ":", &rest))
        e = name_it(LOADED, path, plugin_load(path, err), err);
    free(list);
    return e;
}

enum error_code load_plugins(int *argc, char **argv, struct error *err)
{
    enum error_code e = load_listed(err);
    int left = 0;
    for (int i = 0; i < *argc && !e; i++) {
        const bool alone = strcmp(argv[i], "--plugin") == 0;
        if (!alone && strncmp(argv[i], "--plugin=", 9) != 0) {
            argv[left++] = argv[i];
            continue;
        }
        if (alone && ++i == *argc) return fail(err, ERR_USAGE, "--plugin: needs FILE, a .c file or a .so");
        const char *word = alone ? argv[i] : argv[i] + 9;
        e = name_it("--plugin", word, plugin_take(word, err), err);
    }
    if (!e) argv[left] = NULL, *argc = left;
    return e;
}
