/* engine.c -- one device's part of serving: plans an iteration, runs it through the trainer's stage, draws tokens and
 * tells the replica.  cli/train/serve.c calls.  Before and after the iterations devices agree on errors (ERR_MEMORY,
 * those of weights' files); inside them a failure ends the job. */
#include "emulated_devices/serve/engine.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/trainer.h"
#include "emulated_devices/serve/drawing.h"
#include "emulated_devices/serve/pages.h"
#include "emulated_devices/serve/told.h"
#include "ref/model/past.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One device of a replica. */
struct engine {
    const struct serving_job *job;      /* the caller's */
    struct trainer *trainer;            /* of this device */
    struct scheduler scheduler;         /* the same on every device of the replica */
    struct pages pages;                 /* keys and values of this device */
    struct drawing drawing;             /* on the device that draws */
    struct answering answering;         /* what its stage asks of it */
    struct group replica;               /* the devices that answer the same requests */
    int root, number;                   /* the member that draws; the replica's number */
    bool draws;                         /* this device does */
    struct sequence **sequence;         /* [requests] of those that have come and not ended; NULL: others */
    int64_t next;                       /* the next request that has not come */
    int64_t now;                        /* virtual time of the last iteration, the same in the replica */
    int64_t seen;                       /* time up to which the next plan knows of requests */
    int32_t *id, *position, *asked;     /* [step_tokens] of an iteration */
    int32_t *told;                      /* told.h: the time, and the tokens of each piece that samples */
    struct taken_tokens *taken;         /* [running] the tokens in it */
    int64_t *before;                    /* [running] tokens that the pieces' sequences had before these */
    struct tensor message;              /* the same in the device's memory, for messages */
    struct serving_record record;       /* of this device */
};

static struct device *device_of(const struct engine *engine) { return engine->trainer->device; }
static const struct plan *engine_plan(const struct engine *engine) { return engine->job->plan; }
static int64_t vocabulary(const struct engine *engine) { return engine_plan(engine)->model.V; }
static int64_t most_proposals(const struct engine *engine) { return engine->job->speculation.most; }

/* ---- what is refused --------------------------------------------------------------------------------------------- */

enum error_code serving_takes(const struct plan *plan, const struct serving_limits *limits, struct error *err)
{
    const struct transformer model = { .config = plan->model };
    const struct { bool asked; const char *flag, *why; } refused[] = {
        { plan->mesh.size[CP] > 1, "--cp", "a request is whole on each device of a replica" },
        { plan->tensor && strcmp(plan->tensor, "1d") != 0 && plan->mesh.size[TP] > 1, "--tensor",
          "1d alone takes any number of tokens; the others cut rows or sequences" },
        { plan->sections != NULL, "--plan", "sections have layouts of their own" },
        { plan->chunks > 1, "--chunks", "an iteration goes through the stages once" },
        { plan->data.scheme && strcmp(plan->data.scheme, "ddp") != 0, "--data-parallel",
          "each replica has its weights" },
        { plan->data.offload != 0, "--offload", "weights stay on the devices" },
        { plan->encoders.kinds > 0, "--modalities", "requests are text" },
        { limits->whole_prompts && limits->chunk > 0, "--chunk", "--whole-prompts has none" },
        { !past_serves(&model, plan->S), "--model", "its tokens depend on more than those before them: parallel "
          "streams, a mask, experts with a capacity, or positions that turn with the length" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].asked) return fail(err, ERR_PLAN, "%s: is not served: %s", refused[i].flag, refused[i].why);
    return OK;
}

enum error_code serving_fits(const struct requests *requests, const struct serving_limits *limits, struct error *err)
{
    for (int64_t i = 0; i < requests->count; i++) {
        const struct request *const r = &requests->at[i];
        const int64_t tokens = sequence_needs(r->prompt.count, r->most), has = limits->blocks * limits->block_tokens;
        if (tokens > has)
            return fail(err, ERR_USAGE, "--cache-blocks %lld: have room for %lld tokens; request %.60s needs %lld",
                        (long long)limits->blocks, (long long)has, r->name, (long long)tokens);
        if (limits->whole_prompts && r->prompt.count + r->most - 1 > limits->step_tokens)
            return fail(err, ERR_USAGE, "--whole-prompts: request %.60s may have %lld tokens to compute at once; "
                        "--step-tokens is %lld", r->name, (long long)tokens, (long long)limits->step_tokens);
    }
    return OK;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

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

/* Where there are numbers they come to the host first. */
static enum error_code draw_tokens(struct engine *engine, struct tensor parts, int64_t rows, const int64_t *columns,
                                   struct error *err)
{
    struct device *const d = device_of(engine);
    const int64_t V = vocabulary(engine);
    const bool numbers = d->backend->has_numbers;
    const uint64_t bytes = tensor_bytes(tensor_2d(NULL, d->dtype, rows, V));
    const void *const view = numbers ? host_read(d, parts.data, bytes) : NULL;
    char *const whole = numbers ? join_columns(engine, view, rows, columns) : NULL;
    if (numbers) host_done(d, view);
    device_charge(d, "draw tokens", elementwise_cost(rows * V, 2, 4, d->dtype));
    const enum error_code e = !numbers || whole
        ? drawing_draw(&engine->drawing, engine->pages.now, whole, engine->told, err)
        : fail(err, ERR_MEMORY, "no memory for the logits of an iteration");
    free(whole);
    return e;
}

/* The first device along tp gathers the columns of all, and draws. */
static enum error_code take_logits(void *context, struct tensor logits, struct error *err)
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
    if (!e && engine->draws) e = draw_tokens(engine, parts, rows, columns, err);
    if (parts.data != logits.data) device_free(d, parts);
    free(columns);
    return e;
}

static enum error_code attend(void *context, const struct answering_attention *call, struct error *err)
{
    struct engine *const engine = context;
    return pages_attend(&engine->pages, call, err);
}

/* ---- an iteration ------------------------------------------------------------------------------------------------ */

static void list_rows(struct engine *engine, const struct iteration *now)
{
    int64_t row = 0, asked = 0;
    for (int64_t i = 0; i < now->pieces; i++) {
        const struct token_piece *const p = &now->piece[i];
        for (int64_t at = p->first; at < p->first + p->count; at++, row++)
            engine->id[row] = p->of->token[at], engine->position[row] = (int32_t)at;
        for (int64_t back = p->samples ? p->proposals : -1; back >= 0; back--)
            engine->asked[asked++] = (int32_t)(row - 1 - back);
    }
    engine->answering.asked = tensor_1d(engine->asked, I32, asked);
}

/* The time of the device that draws goes to all, with the tokens. */
static enum error_code tell_replica(struct engine *engine, const struct iteration *now, struct error *err)
{
    struct device *const d = device_of(engine);
    const int64_t count = TOLD_TIME + now->samples * told_stride(most_proposals(engine));
    const size_t bytes = (size_t)count * sizeof *engine->told;
    enum error_code e = OK;
    told_time_write(engine->told, d->clock.now);
    if (engine->replica.size > 1) {
        device_copy(d, engine->message.data, engine->told, bytes);
        e = broadcast(&engine->replica, engine->message.data, count, I32, engine->root, err);
        device_copy(d, engine->told, engine->message.data, bytes);
    }
    engine->now = told_time_read(engine->told);
    return e;
}

/* With exact sums a sum may have no value. */
static enum error_code check_sums(const struct engine *engine, struct error *err)
{
    const struct lost_sum *const lost = &engine->trainer->stage[0].lost;
    if (!device_of(engine)->exact || isinf(lost->order)) return OK;
    return fail(err, ERR_DIVERGED, "a sum of %s %s", lost->name,
                lost->beyond ? "is beyond the bits there are" : "has a term that is not finite");
}

static enum error_code run_iteration(struct engine *engine, struct error *err)
{
    const struct iteration *const now = scheduler_plan(&engine->scheduler);
    double loss;
    if (now->tokens == 0)
        return fail(err, ERR_INTERNAL, "no sequence has room in the cache, and none runs");
    engine->pages.now = now;
    list_rows(engine, now);
    enum error_code e = answering_take(&engine->trainer->stage[0], engine->id, engine->position, now->tokens, err);
    if (!e) e = trainer_pass(engine->trainer, &loss, err);
    if (!e) e = check_sums(engine, err);
    const int64_t before = engine->now;
    if (!e) e = tell_replica(engine, now, err);
    /* The tokens decide what is computed next, unless that is planned already. */
    engine->seen = engine->job->limits.ahead ? before : engine->now;
    if (!engine->job->limits.ahead) clock_host_reads(&device_of(engine)->clock);
    messages_have_ended(engine->trainer->comm, "at the end of an iteration");
    return e;
}

/* ---- what an iteration gives ------------------------------------------------------------------------------------- */

static enum error_code end_sequence(struct engine *engine, struct sequence *sequence, struct error *err)
{
    const int64_t n = sequence->number;
    struct answer *const a = &engine->record.answer[n];
    *a = (struct answer){ .tokens = sequence->count - sequence->prompt, .preempted = sequence->preempted,
                          .shared = sequence->shared, .finish = sequence->finish,
                          .verdict = { .first_wrong = -1 } };
    memcpy(engine->record.token + engine->record.first[n], sequence->token + sequence->prompt,
           (size_t)a->tokens * sizeof *sequence->token);
    const enum error_code e = engine->draws ? drawing_end(&engine->drawing, sequence, &a->verdict, err) : OK;
    sequence_free(sequence);
    engine->sequence[n] = NULL;
    return e;
}

/* Tokens are there at the iteration's time. */
static void note_times(struct engine *engine, const struct sequence *sequence, int64_t before)
{
    int64_t *const time = engine->record.time + engine->record.first[sequence->number] - sequence->prompt;
    for (int64_t i = before; i < sequence->count; i++) time[i] = engine->now;
}

static enum error_code take_tokens(struct engine *engine, struct error *err)
{
    const struct iteration *const now = engine->pages.now;
    struct taken_tokens *const taken = engine->taken;
    for (int64_t i = 0; i < now->samples; i++)
        taken[i] = told_read(told_piece(engine->told, most_proposals(engine), i), most_proposals(engine));
    for (int64_t i = 0; i < now->pieces; i++) engine->before[i] = now->piece[i].of->count;
    enum error_code e = scheduler_take_proposed(&engine->scheduler, taken, err);
    for (int64_t i = 0; i < now->pieces; i++) note_times(engine, now->piece[i].of, engine->before[i]);
    for (int64_t i = 0; i < now->ends && !e; i++) e = end_sequence(engine, now->ended[i], err);
    return e;
}

/* ---- arrivals ---------------------------------------------------------------------------------------------------- */

/* Requests are dealt in turn. */
static int64_t next_of_replica(const struct engine *engine, int64_t from)
{
    const int64_t replicas = engine_plan(engine)->mesh.size[DP];
    return from + (engine->number - from % replicas + replicas) % replicas;
}

static enum error_code admit(struct engine *engine, struct error *err)
{
    const struct requests *const all = engine->job->requests;
    for (; engine->next < all->count && all->at[engine->next].arrival <= engine->seen;
         engine->next = next_of_replica(engine, engine->next + 1)) {
        const struct request *const r = &all->at[engine->next];
        const struct answer_end end = { r->most, r->stop.id, (int)r->stop.count };
        struct sequence *const s = sequence_new(engine->next, r->prompt.id, r->prompt.count, &end,
                                                engine->job->limits.block_tokens);
        if (s == NULL) return fail(err, ERR_MEMORY, "no memory for the tokens of request %.60s", r->name);
        engine->sequence[engine->next] = s;
        scheduler_add(&engine->scheduler, s);
    }
    return OK;
}

/* Nobody runs or waits: the devices wait for the next request. */
static void wait_for_next(struct engine *engine)
{
    const int64_t arrival = engine->job->requests->at[engine->next].arrival;
    if (arrival > engine->now) engine->now = arrival;
    engine->seen = engine->now;
    if (arrival > device_of(engine)->clock.now) clock_wait(&device_of(engine)->clock, arrival);
}

static enum error_code answer_all(struct engine *engine, struct error *err)
{
    enum error_code e = OK;
    engine->next = next_of_replica(engine, 0);
    while (!e) {
        e = admit(engine, err);
        if (!e && !scheduler_idle(&engine->scheduler)) {
            e = run_iteration(engine, err);
            if (!e) e = take_tokens(engine, err);
        } else if (!e && engine->next < engine->job->requests->count) wait_for_next(engine);
        else break;
    }
    return e;
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

/* Every device has room for all answers, so that rank 0 can take each from the device that has drawn it. */
static enum error_code record_open(struct serving_record *record, const struct requests *requests, struct error *err)
{
    const size_t n = (size_t)requests->count;
    *record = (struct serving_record){ .requests = requests->count };
    record->first = calloc(n + 1, sizeof *record->first);
    record->answer = calloc(n + 1, sizeof *record->answer);
    for (size_t i = 0; i < n && record->first; i++) record->first[i + 1] = record->first[i] + requests->at[i].most;
    const size_t tokens = record->first ? (size_t)record->first[n] : 0;
    record->token = calloc(tokens + 1, sizeof *record->token);
    record->time = calloc(tokens + 1, sizeof *record->time);
    if (record->first && record->answer && record->token && record->time) return OK;
    return fail(err, ERR_MEMORY, "no memory for the answers of %zu requests", n);
}

void serving_record_free(struct serving_record *record)
{
    free(record->answer), free(record->first), free(record->token), free(record->time), free(record->replica);
    *record = (struct serving_record){ 0 };
}

static enum error_code make_lists(struct engine *engine, struct error *err)
{
    const struct serving_limits *const l = &engine->job->limits;
    const size_t n = (size_t)engine->job->requests->count, rows = (size_t)l->step_tokens;
    engine->sequence = calloc(n + 1, sizeof *engine->sequence);
    engine->id = malloc(rows * sizeof *engine->id), engine->position = malloc(rows * sizeof *engine->position);
    engine->asked = malloc(rows * sizeof *engine->asked);
    const int64_t told = TOLD_TIME + l->running * told_stride(most_proposals(engine));
    engine->told = calloc((size_t)told, sizeof *engine->told);
    engine->taken = calloc((size_t)l->running, sizeof *engine->taken);
    engine->before = calloc((size_t)l->running, sizeof *engine->before);
    engine->message = device_list(device_of(engine), told);
    const bool ok = engine->sequence && engine->id && engine->position && engine->asked && engine->told &&
                    engine->taken && engine->before && engine->message.data;
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for iterations of %zu tokens", rows);
}

/* Without a batch: the device's stage gets its tokens from here. */
static enum error_code engine_open(struct engine *engine, struct error *err)
{
    const struct mesh *const m = &engine_plan(engine)->mesh;
    const struct comm *const comm = engine->trainer->comm;
    const int last = mesh_neighbour(m, mesh_neighbour(m, comm->rank, TP, 0), PP, m->size[PP] - 1);
    engine->number = mesh_coordinate(m, comm->rank, DP), engine->draws = comm->rank == last;
    enum error_code e = group_along(&engine->replica, engine->trainer->comm, m, TRAFFIC_OTHER,
                                    AXIS_BIT(TP) | AXIS_BIT(PP), err);
    for (int i = 0; i < engine->replica.size && !e; i++)
        if (engine->replica.member[i] == last) engine->root = i;
    if (!e) e = record_open(&engine->record, engine->job->requests, err);
    if (!e) e = make_lists(engine, err);
    if (!e) e = scheduler_open(&engine->scheduler, &engine->job->limits, err);
    if (!e) e = pages_open(&engine->pages, &engine->trainer->stage[0], &engine->job->limits, err);
    if (!e && engine->draws) e = drawing_open(&engine->drawing, engine->job, device_of(engine), err);
    engine->answering = (struct answering){ .context = engine, .attend = attend, .take_logits = take_logits };
    if (!e) routers_begin(engine->trainer), engine->trainer->stage[0].answering = &engine->answering;
    return comm_agree(engine->trainer->comm, e, err);
}

static void engine_close(struct engine *engine)
{
    engine->trainer->stage[0].answering = NULL;
    for (int64_t i = 0; i < engine->job->requests->count && engine->sequence; i++) sequence_free(engine->sequence[i]);
    if (engine->pages.kv) pages_close(&engine->pages);
    if (engine->scheduler.running) scheduler_close(&engine->scheduler);
    drawing_close(&engine->drawing);
    if (engine->message.data) device_free(device_of(engine), engine->message);
    free(engine->sequence), free(engine->id), free(engine->position), free(engine->asked);
    free(engine->told), free(engine->taken), free(engine->before);
    group_close(&engine->replica);
    serving_record_free(&engine->record);
}

/* ---- the record of all devices ----------------------------------------------------------------------------------- */

/* The place where rank 0 collects entries, and the lists of all devices one after another. */
struct taken { void *to; const char *all; size_t each, own; };

static void take_entries(const struct taken *taken, int device, int64_t from, int64_t to)
{
    const size_t at = (size_t)from * taken->each;
    memcpy((char *)taken->to + at, taken->all + (size_t)device * taken->own + at, (size_t)(to - from) * taken->each);
}

static int device_that_draws(const struct plan *plan, int64_t replica)
{
    return mesh_neighbour(&plan->mesh, mesh_neighbour(&plan->mesh, 0, DP, (int)replica), PP, plan->mesh.size[PP] - 1);
}

/* Bring a list of every device to rank 0, and take each request's part.  by_token: a token has an entry of it. */
static enum error_code bring_list(struct engine *engine, void *own, size_t each, bool by_token, void *to,
                                  struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    const int64_t n = engine->record.requests, *const first = engine->record.first;
    const size_t bytes = each * (size_t)(by_token ? first[n] : n);
    char *const all = comm->rank == 0 ? malloc(bytes * (size_t)comm->size + 1) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for the answers of all "
                                                              "devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, own, bytes, all, err);
    const struct taken taken = { to, all, each, bytes };
    for (int64_t i = 0; i < n && !e && comm->rank == 0; i++)
        take_entries(&taken, device_that_draws(p, i % p->mesh.size[DP]), by_token ? first[i] : i,
                     by_token ? first[i + 1] : i + 1);
    free(all);
    return e;
}

static enum error_code bring_counts(struct engine *engine, struct serving_record *to, struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    const struct replica_counts own = { .counts = engine->scheduler.counts, .end = engine->now,
                                        .proposals = engine->drawing.proposer.counts,
                                        .free_blocks = engine->scheduler.pool.free,
                                        .cache_bytes = pages_bytes(&engine->pages) };
    struct replica_counts *const all = calloc((size_t)comm->size, sizeof *all);
    to->replicas = p->mesh.size[DP];
    to->replica = calloc((size_t)to->replicas, sizeof *to->replica);
    enum error_code e = all && to->replica ? OK : fail(err, ERR_MEMORY, "no memory for the counts of all devices");
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, &own, sizeof own, all, err);
    for (int64_t r = 0; r < to->replicas && !e && comm->rank == 0; r++) to->replica[r] = all[device_that_draws(p, r)];
    free(all);
    return e;
}

/* The messages that were sent must be those that the formulas of their senders say. */
static enum error_code check_messages(const struct comm *comm, struct error *err)
{
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (enum operation op = 0; op < CONTROL; op++)
            for (int level = -1; level < CLUSTER_LEVELS; level++)
                if (!traffic_equal(&comm->counted.of[kind].of[op], &comm->expected.of[kind].of[op], level))
                    return fail(err, ERR_CHECK, "device %d: its %s %s messages are not those that the formulas say",
                                comm->rank, traffic_kind_name(kind), operation_name(op));
    return OK;
}

static enum error_code bring_record(struct engine *engine, struct serving_record *to, struct error *err)
{
    struct serving_record *const own = &engine->record;
    struct comm *const comm = engine->trainer->comm;
    enum error_code e = comm_agree(comm, check_messages(comm, err), err);
    if (!e) e = comm_agree(comm, record_open(to, engine->job->requests, err), err);
    if (!e) e = bring_list(engine, own->answer, sizeof *own->answer, false, to->answer, err);
    if (!e) e = bring_list(engine, own->token, sizeof *own->token, true, to->token, err);
    if (!e) e = bring_list(engine, own->time, sizeof *own->time, true, to->time, err);
    return e ? e : bring_counts(engine, to, err);
}

enum error_code serve_requests(struct comm *comm, const struct serving_job *job, struct serving_record *record,
                               struct error *err)
{
    struct trainer trainer;
    struct engine engine = { .job = job, .trainer = &trainer };
    *record = (struct serving_record){ 0 };
    enum error_code e = trainer_open(&trainer, job->plan, comm, (struct batch_source){ .fill = NULL }, err);
    if (e) return e;
    if (job->saved) e = fail_about(err, checkpoint_load_weights(&trainer, job->saved, err), "--model");
    if (!e) {
        clock_reset(&trainer.device->clock);
        e = engine_open(&engine, err);
        if (!e) {
            e = answer_all(&engine, err);
            /* Inside iterations devices cannot agree on an error: others wait for messages. */
            if (e) comm_give_up(comm, err);
            e = bring_record(&engine, record, err);
        }
        engine_close(&engine);
    }
    trainer_close(&trainer);
    return e;
}
