/* keeping.c -- locks what a run writes.  session.c, between.c, golden.c, and cli/sweep.c, dump.c and affinity.c call.
 * Errors are those of ref/io/lock.h, ERR_FILE and ERR_MEMORY; each names the flag, and leaves nothing locked. */
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "ref/io/lock.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <stdlib.h>

static enum error_code keeping_about(struct error *err, enum error_code e, const struct kept *kept)
{
    char argument[sizeof(struct printable) + 20];
    snprintf(argument, sizeof argument, "%s %s:", kept->flag, printable_path(kept->path).text);
    return fail_about(err, e, argument);
}

static struct lock locks[KEPT_MOST];

/* The process that a user would stop: the one that has started the devices, if there is one. */
static long shown_process(void)
{
    const char *launcher = getenv("ORRERY_LAUNCHED");
    return launcher != NULL ? atol(launcher) : 0;
}

enum error_code keeping_take(const struct kept *kept, int count, FILE *told, struct error *err)
{
    const struct lock_owner owner = { origin_run(), shown_process() };
    char void_of[400];
    enum error_code e = OK;
    for (int i = 0; i < count && !e; i++) {
        if (kept[i].path == NULL) continue;
        e = keeping_about(err, lock_take(&locks[i], kept[i].path, kept[i].folder, &owner, void_of, sizeof void_of, err),
                          &kept[i]);
        if (!e && void_of[0])
            say(told, 8, "lock    %s %s: taken over from %s, which has ended", kept[i].flag,
                printable_path(kept[i].path).text, void_of);
    }
    if (e) keeping_release();
    return e;
}

enum error_code keeping_look(const struct kept *kept, int count, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < count && !e; i++)
        if (kept[i].path != NULL) e = keeping_about(err, lock_look(kept[i].path, kept[i].folder, err), &kept[i]);
    return e;
}

enum error_code keeping_stands(struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < KEPT_MOST && !e; i++) e = lock_stands(&locks[i], err);
    return e;
}

void keeping_release(void)
{
    for (int i = 0; i < KEPT_MOST; i++) lock_release(&locks[i]);
}
