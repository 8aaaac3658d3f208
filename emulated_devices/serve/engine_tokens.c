/* engine_tokens.c -- gathers the logits of an iteration on one device of a replica, and draws tokens from them.
 * engine.c calls.  Errors: ERR_MEMORY, ERR_COMM, ERR_DIVERGED of logits without a value. */
#include "emulated_devices/serve/engine_parts.h"
#include "ref/numeric/philox.h"
#include <stdlib.h>
#include <string.h>

/* A member of the devices that have logits: its share of the vocabulary, and of the rows that are asked for. */
struct logits_part { int64_t columns, rows, first; int row_part; };

/* The logits are with the devices of the last stage.  Along tp each has some columns, along cp some rows.
 * @return the numbers of each member before it; [members] of all for free(); NULL without memory. */
static struct logits_part *parts_of_logits(const struct engine *engine, const struct group *members)
{
    const struct plan *const p = engine_plan(engine);
    const int parts = p->mesh.size[CP];
    struct logits_part *const part = calloc((size_t)members->size, sizeof *part);
    int64_t first = 0;
    for (int m = 0; m < members->size && part; m++) {
        struct logits_part *const one = &part[m];
        one->row_part = mesh_coordinate(&p->mesh, members->member[m], CP);
        one->columns = plan_tensor_share(p, members->member[m]).tokens.count;
        for (int64_t i = 0; i < engine->pages.now->samples; i++)
            one->rows += engine->sampled[i] % parts == one->row_part;
        one->first = first, first += one->rows * one->columns;
    }
    return part;
}

/* The columns of all devices side by side, row by row, in the host's memory; for free(). */
static char *join_columns(const struct engine *engine, const char *all, const struct logits_part *part, int members)
{
    const size_t each = dtype_size(device_of(engine)->dtype);
    const int64_t V = vocabulary(engine), rows = engine->pages.now->samples;
    const int parts = engine_plan(engine)->mesh.size[CP];
    char *const whole = malloc((size_t)(rows * V) * each + 1);
    for (int64_t r = 0; r < rows && whole; r++) {
        int64_t before = 0, own = 0;
        /* The row is the own-th of its part. */
        for (int64_t i = 0; i < r; i++) own += engine->sampled[i] % parts == engine->sampled[r] % parts;
        for (int m = 0; m < members; m++) {
            if (part[m].row_part != engine->sampled[r] % parts) continue;
            memcpy(whole + (size_t)(r * V + before) * each,
                   all + (size_t)(part[m].first + own * part[m].columns) * each, (size_t)part[m].columns * each);
            before += part[m].columns;
        }
    }
    return whole;
}

enum error_code engine_keep_row(struct engine *engine, int64_t request, const char *row, struct error *err)
{
    struct kept_logits *const kept = &engine->kept[request];
    const size_t bytes = (size_t)vocabulary(engine) * dtype_size(device_of(engine)->dtype);
    if (kept->rows == kept->room) {
        const int64_t room = kept->room > 0 ? 2 * kept->room : 8;
        void *const grown = realloc(kept->data, (size_t)room * bytes);
        if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for the logits of an answer");
        kept->data = grown, kept->room = room;
    }
    memcpy((char *)kept->data + (size_t)kept->rows++ * bytes, row, bytes);
    return OK;
}

/* The draws of an answer are numbered from 0 with the request's own seed: neither the batch nor a preemption has a
 * part in them. */
static enum error_code draw_token(struct engine *engine, const struct sequence *sequence, struct tensor logits,
                                  int64_t row, int32_t *token, struct error *err)
{
    const struct request *const r = &engine->job->requests->at[sequence->number];
    const uint64_t draw = (uint64_t)(sequence->count - sequence->prompt);
    const enum error_code e = sampling_distribution(&r->how, logits, row, engine->p, err);
    if (e) return fail_about(err, e, r->name);
    *token = sampling_draw(engine->p, vocabulary(engine),
                           random_uniform(r->how.seed, random_stream("sample"), draw));
    return OK;
}

static enum error_code draw_tokens(struct engine *engine, const char *logits, int32_t *token, struct error *err)
{
    const struct iteration *const now = engine->pages.now;
    const enum dtype dtype = device_of(engine)->dtype;
    const size_t bytes = (size_t)vocabulary(engine) * dtype_size(dtype);
    const struct tensor all = tensor_2d((void *)logits, dtype, now->samples, vocabulary(engine));
    enum error_code e = OK;
    for (int64_t i = 0, row = 0; i < now->pieces && !e; i++) {
        if (!now->piece[i].samples) continue;
        e = draw_token(engine, now->piece[i].of, all, row, &token[row], err);
        if (!e && engine->job->check)
            e = engine_keep_row(engine, now->piece[i].of->number, logits + (size_t)row * bytes, err);
        row++;
    }
    return e;
}

/* The parts of all devices come to the one that draws. */
static enum error_code bring_logits(struct group *members, const struct logits_part *part, struct tensor logits,
                                    struct tensor all, struct error *err)
{
    int64_t *const counts = malloc((size_t)members->size * sizeof *counts);
    if (counts == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d devices", members->size);
    for (int m = 0; m < members->size; m++) counts[m] = part[m].rows * part[m].columns;
    const enum error_code e = collective_run(members, GATHER, NULL,
                                             &(struct collective){ .in = logits.data, .out = all.data, .counts = counts,
                                                                   .dtype = logits.dtype }, err);
    free(counts);
    return e;
}

/* Draw from logits that are all here. */
static enum error_code draw_from(struct engine *engine, struct tensor all, const struct logits_part *part, int members,
                                 struct error *err)
{
    struct device *const d = device_of(engine);
    const void *const view = host_read(d, all.data, tensor_bytes(all));
    char *const whole = join_columns(engine, view, part, members);
    host_done(d, view);
    const enum error_code e = whole ? draw_tokens(engine, whole, engine->told + 2, err)
                              : fail(err, ERR_MEMORY, "no memory for the logits of an iteration");
    free(whole);
    device_charge(d, "draw tokens", elementwise_cost(tensor_count(all), 2, 4, d->dtype));
    return e;
}

/* The first device along tp and cp gathers the logits of all, and draws. */
enum error_code engine_take_logits(void *context, struct tensor logits, struct error *err)
{
    struct engine *const engine = context;
    struct device *const d = device_of(engine);
    struct group *const members = engine_plan(engine)->mesh.size[CP] > 1 ? &engine->last : &engine->trainer->tp;
    const int64_t rows = engine->pages.now->samples;
    struct logits_part *const part = parts_of_logits(engine, members);
    struct tensor all = logits;
    enum error_code e = part ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d devices", members->size);
    if (!e && members->size > 1) {
        all = tensor_none;
        if (engine->draws) all = device_tensor_2d(d, BUFFERS, rows, vocabulary(engine));
        if (engine->draws && all.data == NULL) e = fail(err, ERR_MEMORY, "no memory for the logits of an iteration");
        if (!e) e = bring_logits(members, part, logits, all, err);
    }
    if (!e && engine->draws && rows > 0) e = draw_from(engine, all, part, members->size, err);
    if (all.data && all.data != logits.data) device_free(d, all);
    free(part);
    return e;
}
