/* keeping.c -- locks what a run writes.  session.c, between.c, golden.c and cli/train/train.c call.  Errors are those of
 * ref/io/lock.h: ERR_FILE, ERR_MEMORY; each names the flag, and leaves nothing locked. */
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "ref/io/lock.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

enum { OUTPUTS = 5 };

/* What a run writes piece by piece.  Files that are written whole, such as that of --json, replace each other whole. */
struct kept { const char *flag, *path; bool folder; };

static void list_outputs(const struct train_options *options, struct kept out[OUTPUTS])
{
    const char *const dump = options->dump;
    const bool folder = dump && dump[0] && dump[strlen(dump) - 1] == '/';
    out[0] = (struct kept){ "--save", options->save, true };
    out[1] = (struct kept){ "--log", options->log, false };
    out[2] = (struct kept){ "--tensorboard", options->tensorboard, true };
    out[3] = (struct kept){ "--trace", options->trace, false };
    out[4] = (struct kept){ "--dump", dump, folder };
}

static enum error_code about(struct error *err, enum error_code e, const struct kept *kept)
{
    char argument[LOCK_PATH + 20];
    snprintf(argument, sizeof argument, "%s %s:", kept->flag, printable_path(kept->path).text);
    return fail_about(err, e, argument);
}

static struct lock locks[OUTPUTS];

/* Whom a user would stop: the process that has started the devices, if one has. */
static long shown_process(void)
{
    const char *launcher = getenv("ORRERY_LAUNCHED");
    return launcher != NULL ? atol(launcher) : 0;
}

enum error_code keeping_take(const struct train_options *options, struct error *err)
{
    const struct lock_owner owner = { origin_run(), shown_process() };
    struct kept out[OUTPUTS];
    char void_of[400];
    enum error_code e = OK;
    list_outputs(options, out);
    for (int i = 0; i < OUTPUTS && !e; i++) {
        if (out[i].path == NULL) continue;
        e = about(err, lock_take(&locks[i], out[i].path, out[i].folder, &owner, void_of, sizeof void_of, err),
                  &out[i]);
        if (!e && void_of[0])
            say(run_stream(options), 8, "lock    %s %s: taken over from %s, which has ended", out[i].flag,
                printable_path(out[i].path).text, void_of);
    }
    if (e) keeping_release();
    return e;
}

enum error_code keeping_look(const struct train_options *options, struct error *err)
{
    struct kept out[OUTPUTS];
    enum error_code e = OK;
    list_outputs(options, out);
    for (int i = 0; i < OUTPUTS && !e; i++)
        if (out[i].path != NULL) e = about(err, lock_look(out[i].path, out[i].folder, err), &out[i]);
    return e;
}

enum error_code keeping_stands(struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < OUTPUTS && !e; i++) e = lock_stands(&locks[i], err);
    return e;
}

void keeping_release(void)
{
    for (int i = 0; i < OUTPUTS; i++) lock_release(&locks[i]);
}
