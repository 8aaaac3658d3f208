/* steal.c -- starts processes that keep cores busy, and ends them.  bench/step_measure.c calls around the measured
 * steps.  Too few cores, or a core that refuses a process, are ERR_USAGE.  After an error no process is left. */
#include "emulated_devices/bench/steal.h"
#include "ref/machine/cores.h"
#include "ref/machine/system.h"
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child.  Stopped until it is asked to begin, so that its parent hears whether it has its core. */
static void keep_busy(int core, pid_t parent)
{
    system_end_with_parent();
    if (getppid() != parent || !system_bind(core)) _exit(1);
    raise(SIGSTOP);
    for (volatile unsigned turns = 0;;) turns++;
}

static bool steal_start(struct thieves *thieves, int core)
{
    const pid_t parent = getpid(), child = fork();
    int status;
    if (child == 0) keep_busy(core, parent);
    if (child < 0 || waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) return false;
    thieves->process[thieves->count++] = child;
    kill(child, SIGCONT);
    return true;
}

enum error_code steal_cores(struct thieves *thieves, int cores, struct error *err)
{
    struct cores own;
    cores_bound(&own);
    *thieves = (struct thieves){ 0 };
    for (int core = CORES_MOST - 1; core >= 0 && thieves->count < cores; core--) {
        if (!cores_has(&own, core) || steal_start(thieves, core)) continue;
        steal_end(thieves);
        return fail(err, ERR_USAGE, "--steal %d: no process can be tied to core %d", cores, core);
    }
    const int had = thieves->count;
    if (had == cores) return OK;
    steal_end(thieves);
    return fail(err, ERR_USAGE, "--steal %d: this process may use %d core%s", cores, had, had == 1 ? "" : "s");
}

void steal_end(struct thieves *thieves)
{
    for (int i = 0; i < thieves->count; i++) {
        kill(thieves->process[i], SIGKILL);
        waitpid(thieves->process[i], NULL, 0);
    }
    thieves->count = 0;
}
