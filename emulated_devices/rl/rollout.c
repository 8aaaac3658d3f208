/* rollout.c -- draws answers iteration by iteration.  loop.c calls.  Errors: ERR_MEMORY, ERR_COMM, ERR_DIVERGED of
 * logits without a value. */
#include "emulated_devices/rl/rollout.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/rl/task.h"
#include "emulated_devices/serve/proposal.h"
#include "ref/model/row_loss.h"
#include "ref/ops/ops.h"
#include "ref/text/sampling.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As vLLM's engine has them, but for the block: prompts are shorter here. */
enum { ROLLOUT_TOKENS = 2048, ROLLOUT_RUNNING = 256, ROLLOUT_BLOCK = 4 };

/* A replica is told a token and its log-probability, as three numbers of 32 bits. */
enum { TOLD_NUMBERS = 3 };

static struct device *device_of(const struct rollout *rollout) { return rollout->role->trainer.device; }
static int64_t vocabulary(const struct rollout *rollout) { return rollout->role->plan.model.V; }

struct sampling rollout_sampling(uint64_t seed, int64_t number)
{
    return (struct sampling){ .temperature = 1, .top_p = 1, .seed = seed + (uint64_t)number };
}

/* ---- an iteration ------------------------------------------------------------------------------------------------ */

static enum error_code rollout_attend(void *context, const struct answering_attention *call, struct error *err)
{
    struct rollout *const rollout = context;
    return pages_attend(&rollout->pages, call, err);
}

/* The rows of an iteration, and those whose logits give a token. */
static int64_t rollout_list_rows(struct rollout *rollout, const struct iteration *now)
{
    int64_t row = 0, asked = 0;
    for (int64_t i = 0; i < now->pieces; i++) {
        const struct token_piece *const piece = &now->piece[i];
        for (int64_t at = piece->first; at < piece->first + piece->count; at++, row++)
            rollout->id[row] = piece->of->token[at], rollout->position[row] = (int32_t)at;
        if (piece->samples) rollout->asked[asked++] = (int32_t)(row - 1);
    }
    rollout->answering.asked = tensor_1d(rollout->asked, I32, asked);
    return row;
}

double rollout_logp(enum exact_rule exact, struct tensor logits, int32_t token)
{
    const struct ops *const ops = ops_of(logits.dtype, exact);
    const struct row_loss of_probability = { .of_logit = false };
    const enum dtype kept = exact ? F64 : logits.dtype;
    double top, total, hit;
    const struct row_sums sums = { tensor_1d(&top, logits.dtype, 1), tensor_1d(&total, kept, 1),
                                   tensor_1d(&hit, kept, 1) };
    ops->cross_entropy_max(sums.top, logits);
    ops->cross_entropy_sums(sums.total, sums.hit, logits, sums.top, tensor_1d(&token, I32, 1), 0);
    return row_number(&of_probability, &sums, 0);
}

/* Draw a row's token, and find its log-probability by the operations of training. */
static enum error_code draw_row(struct rollout *rollout, const struct sequence *sequence, struct tensor logits,
                                int32_t *told, struct error *err)
{
    const struct samples *const samples = rollout->samples;
    const int64_t place = sequence->count - sequence->prompt, V = vocabulary(rollout);
    const struct sampling how = rollout_sampling(rollout->seed, samples->first + sequence->number);
    const enum error_code e = sampling_distribution(&how, logits, 0, rollout->p, err);
    if (e) return e;
    const int32_t token = sampling_draw(rollout->p, V, place_numbers_of(how.seed, place).draw);
    const double logp = rollout_logp(rollout->role->plan.model.exact, logits, token);
    told[0] = token;
    memcpy(told + 1, &logp, sizeof logp);
    for (int64_t v = 0; v < V && rollout->keeps; v++)
        rollout->logits[(sequence->number * samples->most + place) * V + v] = tensor_get(logits, v);
    return OK;
}

/* Columns of all devices of the stage, one device's after another's, as rows in the host's memory. */
static enum error_code draw_from(struct rollout *rollout, struct tensor all, const int64_t *columns, struct error *err)
{
    const struct iteration *const now = rollout->pages.now;
    struct device *const d = device_of(rollout);
    const size_t each = dtype_size(all.dtype);
    const int64_t V = vocabulary(rollout), rows = now->samples;
    char *const row = malloc((size_t)V * each);
    const char *const view = host_read(d, all.data, tensor_bytes(all));
    enum error_code e = row ? OK : fail(err, ERR_MEMORY, "no memory for the logits of an answer");
    for (int64_t i = 0, r = 0; i < now->pieces && !e; i++) {
        if (!now->piece[i].samples) continue;
        for (int64_t m = 0, before = 0; before < V; before += columns[m++])
            memcpy(row + (size_t)before * each, view + (size_t)(before * rows + r * columns[m]) * each,
                   (size_t)columns[m] * each);
        e = draw_row(rollout, now->piece[i].of, tensor_2d(row, all.dtype, 1, V), rollout->told + TOLD_NUMBERS * r++,
                     err);
    }
    host_done(d, view);
    device_charge(d, "draw tokens", elementwise_cost(tensor_count(all), 2, 4, d->dtype));
    free(row);
    return e;
}

/* The first device along tp gathers the columns of all. */
static enum error_code take_logits(void *context, struct tensor logits, struct error *err)
{
    struct rollout *const rollout = context;
    struct trainer *const t = &rollout->role->trainer;
    struct group *const tp = &t->tp;
    int64_t *const columns = malloc(2 * (size_t)tp->size * sizeof *columns), *const counts = columns + tp->size;
    struct tensor all = logits;
    if (columns == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d devices", tp->size);
    for (int m = 0; m < tp->size; m++) {
        columns[m] = plan_tensor_share(&t->plan, tp->member[m]).tokens.count;
        counts[m] = columns[m] * tensor_rows(logits);
    }
    enum error_code e = OK;
    if (tp->size > 1) {
        all = rollout->draws ? device_tensor_2d(t->device, BUFFERS, tensor_rows(logits), vocabulary(rollout))
                             : tensor_none;
        if (rollout->draws && all.data == NULL) e = fail(err, ERR_MEMORY, "no memory for the logits of an iteration");
        if (!e) e = collective_run(tp, GATHER, NULL, &(struct collective){ .in = logits.data, .out = all.data,
                                   .counts = counts, .dtype = logits.dtype }, err);
    }
    if (!e && rollout->draws) e = draw_from(rollout, all, columns, err);
    if (all.data && all.data != logits.data) device_free(t->device, all);
    free(columns);
    return e;
}

static enum error_code tell_replica(struct rollout *rollout, int64_t samples, struct error *err)
{
    const int64_t count = TOLD_NUMBERS * samples;
    const size_t bytes = (size_t)count * sizeof *rollout->told;
    if (rollout->replica.size == 1 || samples == 0) return OK;
    device_copy(device_of(rollout), rollout->message.data, rollout->told, bytes);
    const enum error_code e = broadcast(&rollout->replica, rollout->message.data, count, I32, rollout->root, err);
    device_copy(device_of(rollout), rollout->told, rollout->message.data, bytes);
    return e;
}

/* A replica's samples take what it has been told, on all its devices alike. */
static enum error_code rollout_take(struct rollout *rollout, const struct iteration *now, struct error *err)
{
    struct samples *const samples = rollout->samples;
    int32_t token[ROLLOUT_RUNNING];
    for (int64_t i = 0, n = 0; i < now->pieces; i++) {
        const struct sequence *const s = now->piece[i].of;
        if (!now->piece[i].samples) continue;
        token[n] = rollout->told[TOLD_NUMBERS * n];
        memcpy(&samples->old[s->number * samples->most + s->count - s->prompt], &rollout->told[TOLD_NUMBERS * n + 1],
               sizeof *samples->old);
        samples_at(samples, s->number)[s->count] = token[n++];
    }
    const enum error_code e = scheduler_take(&rollout->scheduler, token, err);
    for (int64_t i = 0; i < now->ends && !e; i++) {
        const struct sequence *const s = now->ended[i];
        samples->tokens[s->number] = s->count - s->prompt;
        rollout->end[s->number] = device_of(rollout)->clock.now;
    }
    return e;
}

static enum error_code rollout_iterate(struct rollout *rollout, struct error *err)
{
    struct trainer *const t = &rollout->role->trainer;
    const struct iteration *const now = scheduler_plan(&rollout->scheduler);
    double loss;
    if (now->tokens == 0) return fail(err, ERR_INTERNAL, "no answer has room in the cache, and none is drawn");
    pages_begin(&rollout->pages, now);
    const int64_t rows = rollout_list_rows(rollout, now);
    enum error_code e = answering_take(&t->stage[0], rollout->id, rollout->position, rows, err);
    trainer_begin_sums(t);
    if (!e) e = trainer_pass(t, &loss, err);
    if (!e) e = tell_replica(rollout, now->samples, err);
    if (!e && t->device->exact && !isinf(t->stage[0].lost.order))
        e = fail(err, ERR_DIVERGED, "a sum of %s does not exist", t->stage[0].lost.name);
    return e ? e : rollout_take(rollout, now, err);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void forget(struct rollout *rollout)
{
    struct samples *const s = rollout->samples;
    for (int64_t i = 0; i < s->count * s->most; i++) s->old[i] = NAN;
    for (int64_t i = 0; i < s->count * s->most * vocabulary(rollout) && rollout->keeps; i++) rollout->logits[i] = NAN;
    for (int64_t i = 0; i < s->count; i++) s->tokens[i] = 0, rollout->end[i] = -1;
    for (int64_t i = 0; i < s->count; i++)
        memset(samples_at(s, i) + s->prompt, 0, (size_t)s->most * sizeof(int32_t));
}

/* A replica's own samples, from the first to the last answer. */
static enum error_code answer_own(struct rollout *rollout, struct error *err)
{
    static const int32_t stop[] = { TASK_END };
    struct samples *const samples = rollout->samples;
    const struct answer_end end = { samples->most, stop, 1 };
    const int replicas = rollout->role->plan.mesh.size[DP];
    struct sequence **const own = calloc((size_t)samples->count + 1, sizeof *own);
    enum error_code e = own ? scheduler_open(&rollout->scheduler, &rollout->limits, err)
                            : fail(err, ERR_MEMORY, "no memory for a list of samples");
    const bool open = own && !e;
    for (int64_t i = rollout->number; i < samples->count && !e; i += replicas) {
        own[i] = sequence_new(i, samples_at(samples, i), samples->prompt, &end, rollout->limits.block_tokens);
        if (own[i]) scheduler_add(&rollout->scheduler, own[i]);
        else e = fail(err, ERR_MEMORY, "no memory for the tokens of a sample");
    }
    while (!e && !scheduler_idle(&rollout->scheduler)) e = rollout_iterate(rollout, err);
    for (int64_t i = 0; own && i < samples->count; i++) sequence_free(own[i]);
    free(own);
    if (open) scheduler_close(&rollout->scheduler);
    return e;
}

/* Numbers of 32 bits travel as doubles, which hold them exactly. */
static enum error_code share_answers(struct rollout *rollout, struct comm *whole, struct error *err)
{
    struct samples *const s = rollout->samples;
    const int64_t each = s->most + 2, count = s->count * each;
    double *const x = malloc((size_t)count * sizeof *x);
    enum error_code e = x ? OK : fail(err, ERR_MEMORY, "no memory to share the answers of %lld samples",
                                      (long long)s->count);
    e = comm_agree(whole, e, err);
    for (int64_t i = 0; i < s->count && !e; i++) {
        const bool own = s->tokens[i] > 0;
        for (int64_t t = 0; t < s->most; t++) x[i * each + t] = own ? samples_at(s, i)[s->prompt + t] : (double)NAN;
        x[i * each + s->most] = own ? (double)s->tokens[i] : (double)NAN;
        x[i * each + s->most + 1] = own ? (double)rollout->end[i] : (double)NAN;
    }
    if (!e) e = samples_share(whole, x, count, "an answer", err);
    for (int64_t i = 0; i < s->count && !e; i++) {
        for (int64_t t = 0; t < s->most; t++) samples_at(s, i)[s->prompt + t] = (int32_t)x[i * each + t];
        s->tokens[i] = (int64_t)x[i * each + s->most];
        rollout->end[i] = (picoseconds)x[i * each + s->most + 1];
        /* Behind an answer's end nobody has a number. */
        for (int64_t t = s->tokens[i]; t < s->most; t++) s->old[i * s->most + t] = 0;
    }
    free(x);
    return e ? e : samples_share(whole, s->old, s->count * s->most, "log-probability", err);
}

enum error_code rollout_run(struct rollout *rollout, struct comm *whole, struct samples *samples, struct error *err)
{
    rollout->samples = samples;
    forget(rollout);
    if (rollout->role->here) {
        struct trainer *const t = &rollout->role->trainer;
        t->stage[0].answering = &rollout->answering;
        const enum error_code e = answer_own(rollout, err);
        t->stage[0].answering = NULL;
        /* Inside iterations devices cannot agree on an error: others wait for messages. */
        if (e) comm_give_up(&rollout->role->comm, err);
        messages_have_ended(&rollout->role->comm, "at the end of a rollout");
    }
    return share_answers(rollout, whole, err);
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static bool make_lists(struct rollout *rollout, const struct samples *samples)
{
    const size_t rows = (size_t)rollout->limits.step_tokens, told = TOLD_NUMBERS * ROLLOUT_RUNNING;
    const size_t logits = (size_t)(samples->count * samples->most * vocabulary(rollout));
    rollout->end = malloc((size_t)samples->count * sizeof *rollout->end);
    rollout->logits = malloc(rollout->keeps ? logits * sizeof *rollout->logits : 1);
    if (!rollout->role->here) return rollout->end && rollout->logits;
    rollout->id = malloc(rows * sizeof *rollout->id), rollout->position = malloc(rows * sizeof *rollout->position);
    rollout->asked = malloc(rows * sizeof *rollout->asked), rollout->told = calloc(told, sizeof *rollout->told);
    rollout->p = malloc((size_t)vocabulary(rollout) * sizeof *rollout->p);
    rollout->message = device_list(device_of(rollout), (int64_t)told);
    return rollout->end && rollout->logits && rollout->id && rollout->position && rollout->asked && rollout->told &&
           rollout->p && rollout->message.data;
}

static enum error_code open_here(struct rollout *rollout, struct error *err)
{
    struct trainer *const t = &rollout->role->trainer;
    struct comm *const comm = &rollout->role->comm;
    const struct mesh *const m = &t->plan.mesh;
    const int first = mesh_neighbour(m, comm->rank, TP, 0), last = mesh_neighbour(m, first, PP, m->size[PP] - 1);
    rollout->number = mesh_coordinate(m, comm->rank, DP), rollout->draws = comm->rank == last;
    enum error_code e = group_along(&rollout->replica, comm, m, TRAFFIC_OTHER, AXIS_BIT(TP) | AXIS_BIT(PP), err);
    for (int i = 0; i < rollout->replica.size && !e; i++)
        if (rollout->replica.member[i] == last) rollout->root = i;
    if (!e) e = pages_open(&rollout->pages, comm, &t->stage[0], &rollout->limits, err);
    rollout->answering = (struct answering){ .context = rollout, .attend = rollout_attend,
                                             .take_logits = take_logits };
    if (!e) routers_begin(t);
    return e;
}

enum error_code rollout_open(struct rollout *rollout, struct comm *whole, struct role *role,
                             const struct samples *samples, uint64_t seed, bool keeps, struct error *err)
{
    const int64_t length = samples_length(samples), blocks = (length + ROLLOUT_BLOCK - 1) / ROLLOUT_BLOCK;
    *rollout = (struct rollout){ .role = role, .seed = seed, .keeps = keeps, .limits = {
        .step_tokens = ROLLOUT_TOKENS, .running = ROLLOUT_RUNNING, .shares = true,
        .blocks = blocks * ROLLOUT_RUNNING, .block_tokens = ROLLOUT_BLOCK } };
    enum error_code e = make_lists(rollout, samples) ? OK : fail(err, ERR_MEMORY, "no memory to draw answers");
    if (!e && role->here) e = open_here(rollout, err);
    return comm_agree(whole, e, err);
}

void rollout_close(struct rollout *rollout)
{
    if (rollout->pages.kv) pages_close(&rollout->pages);
    if (rollout->replica.comm) group_close(&rollout->replica);
    if (rollout->message.data) device_free(device_of(rollout), rollout->message);
    free(rollout->id), free(rollout->position), free(rollout->asked), free(rollout->told), free(rollout->p);
    free(rollout->end), free(rollout->logits);
    *rollout = (struct rollout){ .role = NULL };
}
