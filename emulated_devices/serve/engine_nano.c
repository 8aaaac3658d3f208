/* engine_nano.c -- computes iterations in nano-batches, and searches how to cut them.  engine.c calls.  Errors:
 * ERR_MEMORY, and those of a pass. */
#include "emulated_devices/serve/engine_parts.h"
#include "emulated_devices/device/take_back.h"
#include <math.h>
#include <stdlib.h>

enum { EIGHTHS = 8 };
#define NANO_GAIN 1e-6                  /* of an iteration's time: less is no reason to cut */

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void add_item(struct nano_engine *nano, struct overlap_item item)
{
    if (nano->items == nano->room) {
        const int room = 2 * nano->room + 64;
        struct overlap_item *const more = realloc(nano->item, (size_t)room * sizeof *more);
        nano->lost |= more == NULL;
        if (more == NULL) return;
        nano->item = more, nano->room = room;
    }
    nano->item[nano->items++] = item;
}

static void begin_part(void *context)
{
    const struct engine *const engine = context;
    const struct device *const d = engine->trainer->device;
    struct nano_engine *const nano = &((struct engine *)context)->nano;
    nano->begun.now = d->clock.now, nano->begun.computing = d->clock.computing, nano->begun.held = d->clock.starts.held;
    nano->begun.flops = d->done.flops, nano->begun.bytes = d->done.bytes;
}

/* Kernels of so many operations and bytes wait for the slower of both.  Rates of 0 take no time. */
static enum overlap_engine engine_of(const struct device *d, double flops, double bytes)
{
    const struct cluster *const c = &d->clock.cluster;
    const double arithmetic = c->flop_rate[d->dtype] > 0 ? flops / (double)c->flop_rate[d->dtype] : 0,
                 memory = c->memory_rate > 0 ? bytes / (double)c->memory_rate : 0;
    return arithmetic >= memory ? OVERLAP_COMPUTE : OVERLAP_MEMORY;
}

static void end_part(void *context, int first, int parts)
{
    struct engine *const engine = context;
    const struct device *const d = device_of(engine);
    struct nano_engine *const nano = &engine->nano;
    const picoseconds kernels = d->clock.computing - nano->begun.computing,
                      sent = d->clock.now - nano->begun.now - kernels - (d->clock.starts.held - nano->begun.held);
    add_item(nano, (struct overlap_item){
        nano->number, engine_of(d, d->done.flops - nano->begun.flops, d->done.bytes - nano->begun.bytes), first, parts,
        (double)kernels });
    nano->sent[nano->sends++] = (struct overlap_item){ nano->number + 1, OVERLAP_NETWORK, first, parts,
                                                       sent > 0 ? (double)sent : 0 };
    if (first + parts < ROW_PARTS) return;
    double all = 0;
    for (int i = 0; i < nano->sends; i++) all += nano->sent[i].work;
    for (int i = 0; i < nano->sends && all > 0; i++) add_item(nano, nano->sent[i]);
    nano->number += all > 0 ? 2 : 1, nano->sends = 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void cut_rows(struct nano_engine *nano, const struct nano_cut *cut, int64_t rows)
{
    const int64_t middle = rows * cut->first / EIGHTHS;
    nano->rows = (struct row_cuts){ { 0, middle / 2, middle, (rows + middle) / 2, rows },
                                    { cut->batches[0], cut->batches[1] } };
    nano->items = nano->number = nano->sends = 0;
}

const struct iteration *nano_rows(struct engine *engine, const struct iteration *now, int64_t first, int64_t count)
{
    struct nano_engine *const nano = &engine->nano;
    nano->part = (struct iteration){ .piece = nano->piece, .tokens = count };
    for (int64_t i = 0, row = 0; i < now->pieces; row += now->piece[i++].count) {
        const struct token_piece *const p = &now->piece[i];
        const int64_t from = first > row ? first : row,
                      to = first + count < row + p->count ? first + count : row + p->count;
        if (to <= from) continue;
        nano->piece[nano->part.pieces++] = (struct token_piece){ .of = p->of, .first = p->first + from - row,
                                                                 .count = to - from };
    }
    return &nano->part;
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

typedef enum error_code pass_fn(struct engine *, const struct iteration *, struct error *);

/* Compute the iteration in parts. */
static enum error_code run_cut(struct engine *engine, const struct iteration *now, const struct nano_cut *cut,
                               pass_fn *pass, struct error *err)
{
    struct answering *const answering = &engine->answering;
    cut_rows(&engine->nano, cut, now->tokens);
    answering->cuts = &engine->nano.rows, answering->begin_part = begin_part, answering->end_part = end_part;
    const enum error_code e = pass(engine, now, err);
    answering->cuts = NULL;
    if (!e && engine->nano.lost) return fail(err, ERR_MEMORY, "no memory for a list of nano-batches");
    return e;
}

static double work_of(const struct nano_engine *nano, enum overlap_engine engine)
{
    double sum = 0;
    for (int i = 0; i < nano->items; i++) sum += nano->item[i].engine == engine ? nano->item[i].work : 0;
    return sum;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* An index names a cut of the grid; the first one cuts nothing.  @return false: it is none, or not what is asked. */
static bool cut_at(const struct nano_asked *asked, int index, struct nano_cut *cut)
{
    static const int batches[] = { 1, 2, 4 }, first[] = { 4, 3, 2 };
    *cut = (struct nano_cut){ { batches[index % 3], batches[index / 3 % 3] }, first[index / 9],
                              { .interference = true } };
    if (cut->batches[0] * cut->batches[1] == 1 && index > 0) return false;
    for (int i = 0; i < 2; i++)
        if (asked->batches[i] > 0 && asked->batches[i] != cut->batches[i]) return false;
    return true;
}

/* A trial has no tokens. */
static enum error_code forget_logits(void *context, struct tensor logits, struct error *err)
{
    (void)context, (void)logits, (void)err;
    return OK;
}

/* All devices of the replica take the cut of the one that draws. */
static enum error_code agree_on_cut(struct engine *engine, struct nano_cut *cut, struct error *err)
{
    struct device *const d = device_of(engine);
    int32_t *const told = engine->told;
    if (engine->replica.size == 1) return OK;
    told[0] = cut->batches[0] | cut->batches[1] << 4 | cut->first << 8 | cut->rule.by_rows << 12;
    told[1] = (int32_t)lrint(10 * cut->rule.share[0]) | (int32_t)lrint(10 * cut->rule.share[1]) << 4;
    device_copy(d, engine->message.data, told, 2 * sizeof *told);
    const enum error_code e = broadcast(&engine->replica, engine->message.data, 2, I32, engine->root, err);
    device_copy(d, told, engine->message.data, 2 * sizeof *told);
    const int compute = told[1] & 15, memory = told[1] >> 4;
    *cut = (struct nano_cut){ { told[0] & 15, told[0] >> 4 & 15 }, told[0] >> 8 & 15,
                              { told[0] >> 12, true, { compute / 10., memory / 10., (10 - compute - memory) / 10. } } };
    return e;
}

static enum error_code search_cut(struct engine *engine, const struct iteration *now, pass_fn *pass,
                                  struct nano_cut *best, struct error *err)
{
    enum { GRID = 27 };
    struct clock *const clock = &device_of(engine)->clock;
    const struct clock before = *clock;
    double fastest = INFINITY;
    enum error_code e = OK;
    engine->answering.take_logits = forget_logits;
    for (int i = 0; i < GRID && !e; i++) {
        struct nano_cut cut;
        if (!cut_at(&engine->job->nano, i, &cut)) continue;
        /* All trials begin alike, with a host that is as far ahead. */
        *clock = before;
        const picoseconds began = clock->now;
        e = run_cut(engine, now, &cut, pass, err);
        double seconds = (double)(clock->now - began);
        for (enum overlap_engine of = 0; of < OVERLAP_ENGINES; of++) seconds -= work_of(&engine->nano, of);
        seconds += overlap_search(engine->nano.item, engine->nano.items, &cut.rule);
        /* More parts are more kernels for the host to start. */
        if (clock->starts.pace > 0) seconds = fmax(seconds, (double)(clock->starts.done - began));
        if (seconds < fastest * (1 - NANO_GAIN)) fastest = seconds, *best = cut;
    }
    engine->answering.take_logits = engine_take_logits;
    if (!e) e = agree_on_cut(engine, best, err);
    /* Times and ports are those from before, on all devices; no message is on its way. */
    *clock = before;
    return e;
}

/* ---- iterations -------------------------------------------------------------------------------------------------- */

static int class_of(int64_t tokens)
{
    int c = 0;
    while (tokens >> (c + 1) > 0) c++;
    return c < NANO_CLASSES ? c : NANO_CLASSES - 1;
}

enum error_code nano_compute(struct engine *engine, const struct iteration *now, pass_fn *pass, struct error *err)
{
    struct nano_engine *const nano = &engine->nano;
    struct clock *const clock = &device_of(engine)->clock;
    const int class = class_of(now->tokens);
    struct nano_cut *const cut = &nano->counts.cut[class];
    enum error_code e = OK;
    if (!nano->known[class]) e = search_cut(engine, now, pass, cut, err), nano->known[class] = true;
    if (!e) e = run_cut(engine, now, cut, pass, err);
    if (e) return e;
    const double passed = overlap_time(nano->item, nano->items, &cut->rule);
    double sum = 0, most = 0;
    for (enum overlap_engine of = 0; of < OVERLAP_ENGINES; of++) {
        const double work = work_of(nano, of);
        nano->counts.engine[of] += work, sum += work, most = fmax(most, work);
    }
    nano->counts.passed += passed, nano->counts.iterations[class]++;
    if (passed < most * (1 - 1e-9) || passed > sum * (1 + 1e-9))
        return fail(err, ERR_INTERNAL, "engines take %g ps together, and %g to %g ps by themselves", passed, most, sum);
    clock_take_back(clock, (picoseconds)(sum - passed));
    return OK;
}

enum error_code nano_takes(const struct serving_job *job, struct error *err)
{
    const struct mesh *const m = &job->plan->mesh;
    if (!job->nano.cuts) return OK;
    if (m->size[PP] > 1 || m->size[CP] > 1 || job->plan->ep > 1)
        return fail(err, ERR_PLAN, "--nano: is not served with --%s: parts of an iteration would be on several devices",
                    m->size[PP] > 1 ? "pp" : m->size[CP] > 1 ? "cp" : "ep");
    if (job->plan->data.offload != 0)
        return fail(err, ERR_PLAN, "--nano: is not served with --offload, whose weights come part by part");
    if (job->prompt_replicas == 0) return OK;
    return fail(err, ERR_PLAN, "--nano: is not served with --prompt-replicas, which send pages layer by layer");
}

enum error_code nano_open(struct engine *engine, struct error *err)
{
    if (!engine->job->nano.cuts) return OK;
    engine->nano.piece = calloc((size_t)engine->job->limits.running, sizeof *engine->nano.piece);
    return engine->nano.piece ? OK : fail(err, ERR_MEMORY, "no memory for the pieces of nano-batches");
}

void nano_close(struct engine *engine) { free(engine->nano.piece), free(engine->nano.item); }
