/* commands.c -- commands of the library, in processes of their own.
 * Other programs call these functions through orrery.h; tutorials/python loads the library.  The child inherits the
 * caller's streams, environment and folder.  An error is a status: 127 if the program cannot be started, 128 plus the
 * signal that ended it. */
#define _GNU_SOURCE                     /* dladdr */
#include "emulated_devices/library/orrery.h"
#include "ref/io/child.h"
#include "ref/machine/system.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* In the child: add `--json -` if `out` is a pipe, and become the program.  It never returns. */
static void become_command(const char *program, char *const words[], int out)
{
    int n = 0;
    while (words[n]) n++;
    char **all = calloc((size_t)n + 4, sizeof *all);
    if (all == NULL) _exit(127);
    all[0] = (char *)(uintptr_t)program;
    for (int i = 0; i < n; i++) all[1 + i] = words[i];
    if (out >= 0) all[n + 1] = (char *)"--json", all[n + 2] = (char *)"-";
    /* The pipe takes the place of standard output, so the document alone goes there. */
    if (out >= 0 && dup2(out, STDOUT_FILENO) < 0) _exit(127);
    execvp(program, all);
    _exit(127);
}

/* Read everything until the end of a pipe.  @return NULL: nothing came, or there was no memory for it. */
static char *read_all(int from)
{
    size_t room = 0, used = 0;
    char *text = NULL;
    for (;;) {
        if (used + 1 >= room) {
            char *more = realloc(text, room = room ? 2 * room : 1 << 14);
            if (more == NULL) return free(text), NULL;
            text = more;
        }
        const ssize_t n = read(from, text + used, room - used - 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        used += (size_t)n;
    }
    text[used] = '\0';
    if (used > 0) return text;
    free(text);
    return NULL;
}

/* Start the program, read its document to the end, then wait.  Reading first avoids a child that waits for room in
 * the pipe. */
static int commands_run(char *const words[], char **json)
{
    char path[PATH_MAX];
    const char *program = find_program(path);
    int ends[2] = { -1, -1 };
    struct child_end end;
    /* Another thread of the caller may start a child meanwhile: that child must not keep the writing end open. */
    if (json && !system_pipe(ends)) return 127;
    /* Text that the caller has not printed yet would be printed by the child, too. */
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) {
        if (json) close(ends[0]);
        become_command(program, words, ends[1]);
    }
    /* The reader sees an end only when nobody has the writing end any more. */
    if (json) close(ends[1]);
    if (json && child > 0) *json = read_all(ends[0]);
    if (json) close(ends[0]);
    if (child < 0) return 127;
    child_wait(child, 0, &end);
    return WIFEXITED(end.how) ? WEXITSTATUS(end.how) : 128 + WTERMSIG(end.how);
}

int orrery_run(char *const words[]) { return commands_run(words, NULL); }

int orrery_json(char *const words[], char **json)
{
    *json = NULL;
    return commands_run(words, json);
}

void orrery_free(char *text) { free(text); }
