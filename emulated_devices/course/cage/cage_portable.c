/* cage_portable.c -- a cage where the system has none: time, files and sizes have limits, but nothing is hidden.
 * Callers and errors are those of cage.h.  `orrery grade` therefore asks for --own-code here. */
#include "emulated_devices/course/cage/cage.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#if !defined(SYSTEM_LINUX)
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum cage_kind cage_kind(void) { return CAGE_NONE; }
bool cage_rules_users(void) { return false; }
bool cage_refuse_calls(void) { return true; }
const char *cage_python_rules(void) { return ""; }
void cage_add_system(struct cage_files *files) { (void)files; }
void cage_add_path(struct cage_files *files, const char *path) { (void)files, (void)path; }

enum error_code cage_user(const char *name, int32_t *user, int32_t *group, struct error *err)
{
    *user = *group = -1;
    if (name == NULL) return OK;
    return fail(err, ERR_USAGE, "--user %s: this system has no cage for another user's code; without --user it is run "
                "as this user", printable(name).text);
}

/* Nothing is hidden, so nobody has to know a compiler's files. */
const struct cage_files *cage_program_files(const char *program)
{
    static const struct cage_files none;
    return (void)program, &none;
}

const struct cage_files *cage_files(const char *compiler, bool plus)
{
    return (void)plus, cage_program_files(compiler);
}

/* The group of processes is what cage_clear ends. */
enum error_code cage_enter(struct cage *cage, const struct cage_view *view, struct error *err)
{
    setpgid(0, 0);
    *cage = (struct cage){ .kind = CAGE_NONE, .rules = -1 };
    return cage_user(view->user, &cage->user, &cage->group, err);
}

static bool limit(int what, uint64_t most)
{
    struct rlimit now;
    if (most == 0) return true;
    if (getrlimit(what, &now) != 0) return false;
    if (now.rlim_max < most) most = now.rlim_max;
    return setrlimit(what, &(struct rlimit){ most, most }) == 0;
}

/* A limit of addresses or processes is left out: macOS has none of the first, and the second counts the user's other
 * programs. */
bool cage_become(const struct cage *cage, const struct cage_limits *most)
{
    const pid_t parent = getppid();
    const bool well = limit(RLIMIT_CPU, (uint64_t)most->seconds) && limit(RLIMIT_FSIZE, most->file) &&
                      setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) == 0;
    (void)cage;
    umask(022);
    child_ends_with(parent);
    return well;
}

void cage_close_at_exec(void)
{
    for (int i = 3; i < 256; i++) fcntl(i, F_SETFD, FD_CLOEXEC);
}

/* All of the group but this process are asked to end.  Who has left the group is beyond reach, and ends by its limit
 * of time. */
void cage_clear(void)
{
    struct sigaction before;
    sigaction(SIGTERM, &(struct sigaction){ .sa_handler = SIG_IGN }, &before);
    if (getpgrp() == getpid()) kill(0, SIGTERM);
    sigaction(SIGTERM, &before, NULL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) continue;
}
#endif
