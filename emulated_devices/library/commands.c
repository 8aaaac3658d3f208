/* commands.c -- commands of the library, in processes of their own.
 * Other programs call these functions through orrery.h.  The child inherits the caller's streams, environment and
 * folder; it ends with the caller and tells its status (ref/io/caller.h).  An error is a status: 127 if the program
 * cannot be started, 128 plus the signal that ended it. */
#define _GNU_SOURCE                     /* dladdr */
#include "emulated_devices/library/orrery.h"
#include "ref/io/caller.h"
#include "ref/machine/system.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Find the program: $ORRERY, else ../bin/orrery of the folder that has this library, else orrery in PATH.  @return
 * a path that lives as long as `path`. */
static const char *find_program(char path[PATH_MAX])
{
    const char *told = getenv("ORRERY");
    Dl_info self;
    if (told && told[0]) return told;
    /* The address of a function of this library leads to the library's own file. */
    if (dladdr((void *)(uintptr_t)orrery_version, &self) == 0 || self.dli_fname == NULL) return "orrery";
    const char *slash = strrchr(self.dli_fname, '/');
    const int folder = slash ? (int)(slash - self.dli_fname) : 0;
    for (int up = 1; up <= 2; up++) {                   /* lib/ or lib/x86_64-linux-gnu/ */
        const int n = snprintf(path, PATH_MAX, "%.*s%s%s/bin/orrery", folder, self.dli_fname, folder ? "/.." : "..",
                               up == 2 ? "/.." : "");
        if (n < PATH_MAX && access(path, X_OK) == 0) return path;
    }
    return "orrery";
}

/* ---- what is given to the child ---------------------------------------------------------------------------------- */

/* The words of a command with its program before and `--json -` behind. @return a list for free(); NULL: no memory. */
static char **all_words(const char *program, orrery_word *words, bool wants_json)
{
    size_t n = 0;
    while (words[n]) n++;
    char **const all = calloc(n + 4, sizeof *all);
    if (all == NULL) return NULL;
    all[0] = (char *)(uintptr_t)program;
    for (size_t i = 0; i < n; i++) all[1 + i] = (char *)(uintptr_t)words[i];
    if (wants_json) all[n + 1] = (char *)(uintptr_t)"--json", all[n + 2] = (char *)(uintptr_t)"-";
    return all;
}

/* The caller's environment, in which `caller` stands in place of what it had. @return as all_words. */
static char **all_variables(char *caller)
{
    size_t n = 0, used = 0;
    while (environ[n]) n++;
    char **const all = calloc(n + 2, sizeof *all);
    if (all == NULL) return NULL;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], CALLER "=", sizeof CALLER) != 0) all[used++] = environ[i];
    all[used] = caller;
    return all;
}

/* ---- pipes ------------------------------------------------------------------------------------------------------- */

/* A pipe from the child.  `child` is the number that the writing end has there. */
struct stream { int from, to, child; char *text; size_t room, used; };

/* A number above those of standard streams, which a caller may have closed. @return -1: there is none. */
static int above_streams(int descriptor)
{
    if (descriptor > STDERR_FILENO || descriptor < 0) return descriptor;
    const int higher = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(descriptor);
    return higher;
}

static void close_end(int *descriptor)
{
    if (*descriptor >= 0) close(*descriptor);
    *descriptor = -1;
}

/* Both ends close when a program starts, also one that another thread of the caller starts meanwhile. */
static bool stream_open(struct stream *stream, int child)
{
    int ends[2];
    *stream = (struct stream){ .from = -1, .to = -1, .child = child };
    if (!system_pipe(ends)) return false;
    stream->from = above_streams(ends[0]), stream->to = above_streams(ends[1]);
    /* A number that the child has for itself: an end that keeps its number would be closed there. */
    if (child < 0 && stream->to >= 0) stream->child = fcntl(stream->to, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return stream->from >= 0 && stream->to >= 0 && stream->child >= 0;
}

/* Read what is there. @return false: it has ended, or there is no memory for more. */
static bool stream_read(struct stream *stream)
{
    if (stream->used + 1 >= stream->room) {
        const size_t room = stream->room ? 2 * stream->room : 1 << 14;
        char *const more = realloc(stream->text, room);
        if (more == NULL) return false;
        stream->text = more, stream->room = room;
    }
    const ssize_t n = read(stream->from, stream->text + stream->used, stream->room - stream->used - 1);
    if (n < 0) return errno == EINTR;
    stream->used += (size_t)n;
    stream->text[stream->used] = '\0';
    return n > 0;
}

/* Who hears the lines of a child, and up to where they have been heard. */
struct hearing { orrery_hear *hear; void *context; size_t heard; bool stopped; };

/* Tell the lines of a pipe that have become complete, or all that is left; a child that is to stop gets SIGTERM
 * once. */
static void tell_lines(struct hearing *hearing, const struct stream *stream, bool all, pid_t child)
{
    while (hearing->hear && hearing->heard < stream->used) {
        char *const line = stream->text + hearing->heard, *const end = strchr(line, '\n');
        if (end == NULL && !all) return;
        const size_t n = end ? (size_t)(end - line) : strlen(line);
        line[n] = '\0';
        hearing->heard += n + 1;
        const bool stop = hearing->hear(hearing->context, line) != 0;
        if (end) *end = '\n';
        if (stop && !hearing->stopped) kill(child, SIGTERM);
        hearing->stopped = hearing->stopped || stop;
    }
}

/* Read all pipes until the child has closed the last: a child that nobody reads would wait for room in one of them.
 * `lines`, of these pipes or NULL, has the lines that are heard. */
static void read_all(struct stream *const streams[], int count, const struct stream *lines, struct hearing *hearing,
                     pid_t child)
{
    for (;;) {
        struct pollfd wait[3];
        int open = 0;
        for (int i = 0; i < count; i++) {
            wait[i] = (struct pollfd){ .fd = streams[i]->from, .events = POLLIN };
            open += streams[i]->from >= 0;
        }
        if (open == 0) return;
        if (poll(wait, (nfds_t)count, -1) < 0 && errno != EINTR) return;
        for (int i = 0; i < count; i++)
            if (streams[i]->from >= 0 && wait[i].revents && !stream_read(streams[i])) close_end(&streams[i]->from);
        if (lines) tell_lines(hearing, lines, lines->from < 0, child);
    }
}

/* The text of a pipe, which the caller frees; NULL: nothing came. */
static char *stream_take(struct stream *stream)
{
    char *const text = stream->used > 0 ? stream->text : NULL;
    if (text == NULL) free(stream->text);
    stream->text = NULL;
    return text;
}

/* ---- one command ------------------------------------------------------------------------------------------------- */

/* Start a program with these pipes.  Its signals are not ignored, and none is blocked.  @return -1: it cannot. */
static pid_t start(const char *program, char *const words[], char *const variables[], struct stream *const streams[],
                   int count)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t usual, none;
    pid_t child = -1;
    sigemptyset(&none), sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE), sigaddset(&usual, SIGCHLD);
    if (posix_spawn_file_actions_init(&files) != 0) return -1;
    if (posix_spawnattr_init(&how) != 0) return posix_spawn_file_actions_destroy(&files), -1;
    int failed = posix_spawnattr_setsigdefault(&how, &usual) | posix_spawnattr_setsigmask(&how, &none)
        | posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    for (int i = 0; i < count; i++)
        failed |= posix_spawn_file_actions_adddup2(&files, streams[i]->to, streams[i]->child);
    if (failed || posix_spawnp(&child, program, &files, &how, words, variables) != 0) child = -1;
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return child;
}

/* The exit status, as the child told it: a caller who ignores SIGCHLD cannot wait for the child. */
static int status_of(pid_t child, const struct stream *told)
{
    int how;
    pid_t got;
    while ((got = waitpid(child, &how, 0)) < 0 && errno == EINTR) continue;
    if (got == child) return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    return told->used > 0 ? (unsigned char)told->text[0] : 128;
}

static int commands_run(orrery_word *words, struct hearing hearing, char **json, char **message)
{
    const bool wants_lines = message || hearing.hear;
    char path[PATH_MAX], caller[64];
    const char *const program = find_program(path);
    struct stream told, out, err;
    struct stream *streams[3] = { &told };
    int count = 1, status = 127;
    bool open = stream_open(&told, -1);
    if (json && open) open = stream_open(streams[count++] = &out, STDOUT_FILENO);
    if (wants_lines && open) open = stream_open(streams[count++] = &err, STDERR_FILENO);
    snprintf(caller, sizeof caller, CALLER "=%ld:%d", (long)getpid(), told.child);
    char **const all = all_words(program, words, json != NULL), **const variables = all_variables(caller);
    fflush(stdout);                                     /* what the caller has printed comes before the command's */
    const pid_t child = open && all && variables ? start(program, all, variables, streams, count) : -1;
    for (int i = 0; i < count; i++) close_end(&streams[i]->to);
    close_end(&told.child);
    const bool has_lines = wants_lines && count > 1 + (json != NULL);
    if (child > 0) {
        read_all(streams, count, has_lines ? &err : NULL, &hearing, child);
        status = status_of(child, &told);
    }
    for (int i = 0; i < count; i++) close_end(&streams[i]->from);
    free(told.text);
    if (json) *json = count > 1 ? stream_take(&out) : NULL;
    char *const lines = has_lines ? stream_take(&err) : NULL;
    if (message) *message = lines;
    else free(lines);
    free(all), free(variables);
    return status;
}

static const struct hearing nobody;

int orrery_run(orrery_word *words) { return commands_run(words, nobody, NULL, NULL); }

int orrery_json(orrery_word *words, char **json) { return commands_run(words, nobody, json, NULL); }

int orrery_call(orrery_word *words, char **json, char **message) { return commands_run(words, nobody, json, message); }

int orrery_watch(orrery_word *words, orrery_hear *hear, void *context, char **json, char **message)
{
    return commands_run(words, (struct hearing){ .hear = hear, .context = context }, json, message);
}

void orrery_free(char *text) { free(text); }
