/* engine_tokens.c -- gathers the logits of an iteration on one device of a replica, and draws tokens from them.
 * engine.c calls.  Errors: ERR_MEMORY, ERR_COMM, ERR_DIVERGED of logits without a value. */
#include "emulated_devices/serve/engine_parts.h"
#include "ref/numeric/philox.h"
#include <stdlib.h>
#include <string.h>

/* The columns of all devices side by side, row by row, in the host's memory; for free(). */
static char *join_columns(const struct engine *engine, const char *parts, int64_t rows, const int64_t *columns)
{
    const size_t each = dtype_size(device_of(engine)->dtype);
    const int64_t V = vocabulary(engine);
    char *const whole = malloc((size_t)(rows * V) * each + 1);
    int64_t before = 0;
    for (int d = 0; d < engine_plan(engine)->mesh.size[TP] && whole; before += columns[d++])
        for (int64_t r = 0; r < rows; r++)
            memcpy(whole + (size_t)(r * V + before) * each,
                   parts + (size_t)(rows * before + r * columns[d]) * each, (size_t)columns[d] * each);
    return whole;
}

/* The vocabulary's columns that each device along tp has. */
static void columns_of_all(const struct engine *engine, int64_t *columns)
{
    const struct plan *const p = engine_plan(engine);
    for (int d = 0; d < p->mesh.size[TP]; d++)
        columns[d] = plan_tensor_share(p, mesh_neighbour(&p->mesh, engine->trainer->comm->rank, TP, d)).tokens.count;
}

/* Room for one more row of a sequence's logits. */
static enum error_code keep_row(struct engine *engine, const struct sequence *sequence, const char *row,
                                struct error *err)
{
    struct kept_logits *const kept = &engine->kept[sequence->number];
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
        if (!e && engine->job->check) e = keep_row(engine, now->piece[i].of, logits + (size_t)row * bytes, err);
        row++;
    }
    return e;
}

/* The first device along tp gathers the columns of all, and draws. */
enum error_code engine_take_logits(void *context, struct tensor logits, struct error *err)
{
    struct engine *const engine = context;
    struct device *const d = device_of(engine);
    const int tp = engine_plan(engine)->mesh.size[TP];
    const int64_t rows = tensor_rows(logits);
    int64_t *const columns = malloc((size_t)tp * 2 * sizeof *columns), *const counts = columns + tp;
    struct tensor parts = logits;
    enum error_code e = columns ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d devices", tp);
    if (!e) columns_of_all(engine, columns);
    for (int i = 0; i < tp && !e; i++) counts[i] = rows * columns[i];
    if (!e && tp > 1) {
        if (engine->draws) parts = device_tensor_2d(d, BUFFERS, rows, vocabulary(engine));
        if (engine->draws && parts.data == NULL) e = fail(err, ERR_MEMORY, "no memory for the logits of an iteration");
        if (!e) e = collective_run(&engine->trainer->tp, GATHER, NULL,
                                   &(struct collective){ .in = logits.data, .out = parts.data, .counts = counts,
                                                         .dtype = d->dtype }, err);
    }
    if (!e && engine->draws) {
        const void *const view = host_read(d, parts.data, tensor_bytes(tensor_2d(NULL, d->dtype, rows,
                                                                                vocabulary(engine))));
        char *const whole = join_columns(engine, view, rows, columns);
        host_done(d, view);
        e = whole ? draw_tokens(engine, whole, engine->told + 2, err)
                  : fail(err, ERR_MEMORY, "no memory for the logits of an iteration");
        free(whole);
        device_charge(d, "draw tokens", elementwise_cost(rows * vocabulary(engine), 2, 4, d->dtype));
    }
    if (parts.data != logits.data) device_free(d, parts);
    free(columns);
    return e;
}
