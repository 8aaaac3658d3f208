/* make.c -- makes a schedule by name, and refuses invalid requests. */
#include "emulated_devices/schemes/pipeline/schedules/generate.h"
#include <stdio.h>
#include <string.h>

const struct schedule_generator *schedule_generator(const char *name, struct error *err)
{
    const struct schedule_generator *g = NULL;
    (void)schedule_generator_find(&g, name, err);
    return g;
}

/* Refuse options that this schedule does not have. */
static enum error_code check_options(const struct schedule_generator *g, const struct schedule_request *q,
                                     struct error *err)
{
    if (q->skip > 0 && !g->skips)
        return fail(err, ERR_PLAN, "schedule %s: leaves no stages out; --skip %d is for skippipe", g->head.name,
                    q->skip);
    if (q->update_every > 0 && !g->streams)
        return fail(err, ERR_PLAN,
                    "schedule %s: steps the weights once, at the end; --update-every %d is for pipedream-2bw",
                    g->head.name, q->update_every);
    if (q->memory_limit > 0 && !g->searches)
        return fail(err, ERR_PLAN, "schedule %s: is not found by search; --limit %d is for zb-1p and zb-2p",
                    g->head.name, q->memory_limit);
    if (q->pairs && !g->pairs)
        return fail(err, ERR_PLAN, "schedule %s: has no passes side by side; --pairs is for dualpipe and dualpipev",
                    g->head.name);
    return OK;
}

struct advice { char text[80]; };

/* The most similar requests that would be accepted. */
static struct advice what_would_fit(const struct schedule_generator *g, const struct schedule_request *q)
{
    struct schedule_request fewer = *q, more = *q, plain = *q;
    struct advice a = { "" };
    fewer.devices--, more.devices++;
    plain.skip = plain.update_every = 0;
    if (q->skip > 0 && q->devices > 2 && g->refuses(&plain) == NULL)
        snprintf(a.text, sizeof a.text, "; skip=1..%d would fit", q->devices - 2);
    else if (q->update_every > 0 && g->refuses(&plain) == NULL)
        snprintf(a.text, sizeof a.text, "; %d or more would fit", q->devices);
    else if (fewer.devices > 0 && g->refuses(&fewer) == NULL && g->refuses(&more) == NULL)
        snprintf(a.text, sizeof a.text, "; P=%d or P=%d would fit", fewer.devices, more.devices);
    else if (g->refuses(&more) == NULL) snprintf(a.text, sizeof a.text, "; P=%d would fit", more.devices);
    return a;
}

enum error_code schedule_make(struct schedule *s, const char *name, const struct schedule_request *request,
                              struct error *err)
{
    struct schedule_request q = *request;
    struct error unused;
    if (err == NULL) err = &unused;             /* generators return err->code */
    memset(s, 0, sizeof *s);
    const struct schedule_generator *g = schedule_generator(name, err);
    if (g == NULL) return err->code;
    if (q.devices < 1 || q.micros < 1 || q.chunks < 0)
        return fail(err, ERR_PLAN, "schedule %s: devices=%d, micros=%d, chunks=%d: expected at least 1", name,
                    q.devices, q.micros, q.chunks);
    if (q.chunks == 0) q.chunks = g->chunks > 0 ? g->chunks : 1;
    if (g->chunks > 0 && q.chunks != g->chunks && q.chunks != 1)
        return fail(err, ERR_PLAN, "schedule %s: chunks=%d, but it holds %d on each device", name, q.chunks, g->chunks);
    enum error_code e = check_options(g, &q, err);
    if (e) return e;
    const char *refused = g->refuses != NULL ? g->refuses(&q) : NULL;
    if (refused != NULL)
        return fail(err, ERR_PLAN, "schedule %s: P=%d, M=%d, v=%d: %s%s", name, q.devices, q.micros, q.chunks, refused,
                    what_would_fit(g, &q).text);
    return g->make(s, &q, err);
}
