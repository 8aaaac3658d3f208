/* engine_tokens.c -- gathers the logits of an iteration on the device of a replica that draws (drawing.c).
 * engine.c calls.  Errors: ERR_MEMORY, ERR_COMM, ERR_DIVERGED of logits without a value. */
#include "emulated_devices/serve/engine_parts.h"
#include <stdlib.h>
#include <string.h>

/* A member of the devices that have logits: its share of the vocabulary, and of the rows that are asked for. */
struct logits_part { int64_t columns, rows, first; int row_part; };

/* Each piece that samples has a row, and one more for each of its proposals. */
static int64_t rows_of_logits(const struct engine *engine)
{
    return engine->pages.now->samples + engine->pages.now->proposals;
}

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
        for (int64_t i = 0; i < rows_of_logits(engine); i++)
            one->rows += engine->sampled[i] % parts == one->row_part;
        one->first = first, first += one->rows * one->columns;
    }
    return part;
}

/* The columns of all devices side by side, row by row, in the host's memory; for free(). */
static char *join_columns(const struct engine *engine, const char *all, const struct logits_part *part, int members)
{
    const size_t each = dtype_size(device_of(engine)->dtype);
    const int64_t V = vocabulary(engine), rows = rows_of_logits(engine);
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

/* Draw from logits that are all here.  Where there are numbers they come to the host first; those of one device are in
 * order already. */
static enum error_code draw_from(struct engine *engine, struct tensor all, const struct logits_part *part, int members,
                                 struct error *err)
{
    struct device *const d = device_of(engine);
    const bool numbers = d->backend->has_numbers, joins = numbers && members > 1;
    const void *const view = numbers ? host_read(d, all.data, tensor_bytes(all)) : NULL;
    char *const whole = joins ? join_columns(engine, view, part, members) : NULL;
    device_charge(d, "draw tokens", elementwise_cost(tensor_count(all), 2, 4, d->dtype));
    const enum error_code e = joins && whole == NULL
        ? fail(err, ERR_MEMORY, "no memory for the logits of an iteration")
        : drawing_draw(&engine->drawing, engine->pages.now, joins ? whole : view, engine->told, err);
    if (numbers) host_done(d, view);
    free(whole);
    return e;
}

/* The first device along tp and cp gathers the logits of all, and draws. */
enum error_code engine_take_logits(void *context, struct tensor logits, struct error *err)
{
    struct engine *const engine = context;
    struct device *const d = device_of(engine);
    struct group *const members = engine_plan(engine)->mesh.size[CP] > 1 ? &engine->last : &engine->trainer->tp;
    const int64_t rows = rows_of_logits(engine);
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
