/* make.c -- makes a schedule by name, and refuses invalid requests.
 *
 * load.c calls schedule_make for every name that is no file.  cli/bench/schedules.c calls schedule_make
 * directly.  The errors are ERR_USAGE for an unknown name, ERR_PLAN for a refused request, and
 * ERR_MEMORY.
 */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <stdio.h>
#include <string.h>

/* The list of generators is in schemes/registry.c; this call only searches the list. */
const struct schedule_generator *schedule_generator(const char *name, struct error *err)
{
    const struct schedule_generator *g = NULL;
    (void)schedule_generator_find(&g, name, err);
    return g;
}

/* Refuse options that this schedule does not have. */
static enum error_code check_options(const struct schedule_generator *generator, const struct schedule_request *request,
                                     struct error *err)
{
    if (request->skip > 0 && !generator->skips)
        return fail(err, ERR_PLAN, "schedule %s: leaves no stages out; --skip %d is for skippipe", generator->head.name,
                    request->skip);
    if (request->update_every > 0 && !generator->streams)
        return fail(err, ERR_PLAN,
                    "schedule %s: steps the weights once, at the end; --update-every %d is for pipedream-2bw",
                    generator->head.name, request->update_every);
    if (request->memory_limit > 0 && !generator->searches)
        return fail(err, ERR_PLAN, "schedule %s: is not found by search; --limit %d is for zb-1p and zb-2p",
                    generator->head.name, request->memory_limit);
    if (request->pairs && !generator->pairs)
        return fail(err, ERR_PLAN, "schedule %s: has no passes side by side; --pairs is for dualpipe and dualpipev",
                    generator->head.name);
    return OK;
}

struct advice { char text[80]; };

/* The most similar requests that would be accepted. */
static struct advice what_would_fit(const struct schedule_generator *generator, const struct schedule_request *request)
{
    /* The advice tries P - 1, P + 1 and the request without its options.  The text names the first that the generator
     * accepts. */
    struct schedule_request fewer = *request, more = *request, plain = *request;
    struct advice a = { "" };
    fewer.devices--, more.devices++;
    plain.skip = plain.update_every = 0;
    if (request->skip > 0 && request->devices > 2 && generator->refuses(&plain) == NULL)
        snprintf(a.text, sizeof a.text, "; skip=1..%d would fit", request->devices - 2);
    else if (request->update_every > 0 && generator->refuses(&plain) == NULL)
        snprintf(a.text, sizeof a.text, "; %d or more would fit", request->devices);
    else if (fewer.devices > 0 && generator->refuses(&fewer) == NULL && generator->refuses(&more) == NULL)
        snprintf(a.text, sizeof a.text, "; P=%d or P=%d would fit", fewer.devices, more.devices);
    else if (generator->refuses(&more) == NULL) snprintf(a.text, sizeof a.text, "; P=%d would fit", more.devices);
    return a;
}

enum error_code schedule_make(struct schedule *schedule, const char *name, const struct schedule_request *request,
                              struct error *err)
{
    struct schedule_request q = *request;
    struct error unused;
    if (err == NULL) err = &unused;             /* generators return err->code */
    memset(schedule, 0, sizeof *schedule);
    const struct schedule_generator *g = schedule_generator(name, err);
    if (g == NULL) return err->code;
    if (q.devices < 1 || q.micros < 1 || q.chunks < 0)
        return fail(err, ERR_PLAN, "schedule %s: devices=%d, micros=%d, chunks=%d: expected at least 1", name,
                    q.devices, q.micros, q.chunks);
    /* chunks=0 means the number that the schedule fixes, else one stage on each device. */
    if (q.chunks == 0) q.chunks = g->chunks > 0 ? g->chunks : 1;
    /* chunks=1 is accepted, too, because 1 is the default of --chunks.  The generator then uses its own number. */
    if (g->chunks > 0 && q.chunks != g->chunks && q.chunks != 1)
        return fail(err, ERR_PLAN, "schedule %s: chunks=%d, but it holds %d on each device", name, q.chunks, g->chunks);
    enum error_code e = check_options(g, &q, err);
    if (e) return e;
    /* Each generator says in words what its algorithm needs, such as an even P. */
    const char *refused = g->refuses != NULL ? g->refuses(&q) : NULL;
    if (refused != NULL)
        return fail(err, ERR_PLAN, "schedule %s: P=%d, M=%d, v=%d: %s%s", name, q.devices, q.micros, q.chunks, refused,
                    what_would_fit(g, &q).text);
    return g->make(schedule, &q, err);
}
