/* engine.c -- one device's part of serving: plans an iteration, runs it through the trainer's stage, draws tokens and
 * tells the replica.  cli/train/serve.c calls.  Before and after the iterations devices agree on errors (ERR_MEMORY,
 * those of weights' files); inside them a failure ends the job. */
#include "emulated_devices/serve/engine_parts.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/serve/told.h"
#include "ref/model/past.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is refused --------------------------------------------------------------------------------------------- */

enum error_code serving_takes(const struct plan *plan, const struct serving_limits *limits, struct error *err)
{
    const struct transformer model = { .config = plan->model };
    const struct { bool asked; const char *flag, *why; } refused[] = {
        { plan->tensor && strcmp(plan->tensor, "1d") != 0 && plan->mesh.size[TP] > 1, "--tensor",
          "1d alone takes any number of tokens; the others cut rows or sequences" },
        { plan->sections != NULL, "--plan", "sections have layouts of their own" },
        { plan->chunks > 1, "--chunks", "an iteration goes through the stages once" },
        { plan->data.scheme && strcmp(plan->data.scheme, "ddp") != 0, "--data-parallel",
          "each replica has its weights" },
        { (plan->data.offload & ~(1u << PARAMETERS)) != 0 || plan->data.offload_experts, "--offload",
          "weights alone, of all parts of the model, can lie on the slow tier" },
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

/* ---- an iteration ------------------------------------------------------------------------------------------------ */

static enum error_code attend(void *context, const struct answering_attention *call, struct error *err)
{
    struct engine *const engine = context;
    const struct iteration *const now = engine->pages.now;
    const int64_t rows = tensor_rows(call->qkv);
    if (engine->answering.cuts == NULL || rows == now->tokens) return pages_attend(&engine->pages, call, err);
    pages_begin(&engine->pages, nano_rows(engine, now, call->first_row, rows));
    const enum error_code e = pages_attend(&engine->pages, call, err);
    pages_begin(&engine->pages, now);
    return e;
}

static enum error_code read_stream(void *context, struct tensor stream, struct error *err)
{
    struct engine *const engine = context;
    return proposer_read_stream(&engine->drawing.proposer, engine->pages.now, stream, err);
}

/* Along cp the rows are dealt in turn.  A device without rows computes one that nobody reads: all devices of a stage
 * take part in its messages.  @return the rows of this device. */
static int64_t list_rows(struct engine *engine, const struct iteration *now)
{
    const struct pages *const pages = &engine->pages;
    int64_t row = 0, own = 0, asked = 0, sampled = 0;
    for (int64_t i = 0; i < now->pieces; i++) {
        const struct token_piece *const p = &now->piece[i];
        for (int64_t at = p->first; at < p->first + p->count; at++, row++) {
            if (row % pages->parts != pages->part) continue;
            engine->id[own] = p->of->token[at], engine->position[own] = (int32_t)at;
            own++;
        }
        for (int64_t back = p->samples ? p->proposals : -1; back >= 0; back--) {
            const int64_t of_logits = row - 1 - back;
            engine->sampled[sampled++] = of_logits;
            if (of_logits % pages->parts == pages->part) engine->asked[asked++] = (int32_t)(of_logits / pages->parts);
        }
    }
    engine->answering.asked = tensor_1d(engine->asked, I32, asked);
    if (own == 0) engine->id[own] = engine->position[own] = 0, own++;
    return own;
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

/* With cp a device may have no row whose logits are asked for, while others have: its stage computes none, and the
 * others wait for its part. */
static bool lacks_logits(const struct engine *engine, const struct iteration *now)
{
    const struct mesh *const m = &engine_plan(engine)->mesh;
    return now->samples > 0 && tensor_count(engine->answering.asked) == 0 &&
           mesh_coordinate(m, engine->trainer->comm->rank, PP) == m->size[PP] - 1;
}

/* With exact sums a sum may have no value. */
static enum error_code check_sums(const struct engine *engine, struct error *err)
{
    const struct lost_sum *const lost = &engine->trainer->stage[0].lost;
    if (!device_of(engine)->exact || isinf(lost->order)) return OK;
    return fail(err, ERR_DIVERGED, "a sum of %s %s", lost->name,
                lost->beyond ? "is beyond the bits there are" : "has a term that is not finite");
}

/* Compute the rows of an iteration, whose blocks are here, up to its tokens. */
static enum error_code compute_rows(struct engine *engine, const struct iteration *now, struct error *err)
{
    double loss;
    const int64_t rows = list_rows(engine, now);
    enum error_code e = answering_take(&engine->trainer->stage[0], engine->id, engine->position, rows, err);
    engine->passes++;
    trainer_begin_sums(engine->trainer);
    if (!e) e = trainer_pass(engine->trainer, &loss, err);
    if (!e && lacks_logits(engine, now))
        e = engine_take_logits(engine, tensor_2d(NULL, device_of(engine)->dtype, 0, vocabulary(engine)), err);
    return e ? e : check_sums(engine, err);
}

static enum error_code compute_iteration(struct engine *engine, const struct iteration *now, struct error *err)
{
    const enum error_code e = pages_swap(&engine->pages, now, err);
    if (e) return e;
    return engine->job->nano.cuts && now->tokens > 0 ? nano_compute(engine, now, compute_rows, err)
                                                     : compute_rows(engine, now, err);
}

/* The times of iterations follow from each other where one device, which starts with nothing under way, is asked for
 * nothing but time. */
static bool times_follow(struct engine *engine, const struct iteration *now, struct step_key *key)
{
    const struct clock *const clock = &device_of(engine)->clock;
    if (engine->memo == NULL || now->tokens == 0 || now->outs + now->ins > 0) return false;
    if (clock->starts.done > clock->now && clock->starts.pace > 0) return false;
    if (clock->trace || clock->events) return false;
    *key = (struct step_key){ .rows = now->tokens, .asked = now->samples };
    return pages_time(&engine->pages, &key->kernel, &key->room);
}

/* Compute the same iteration with a longer kernel, and forget all but its time. */
static enum error_code try_longer(struct engine *engine, const struct iteration *now, struct step_key key,
                                  struct error *err)
{
    struct clock *const clock = &device_of(engine)->clock;
    const int64_t longer = step_memo_try(engine->memo, &key);
    if (longer == 0) return OK;
    const picoseconds end = clock->now, done = clock->starts.done, shorter = key.kernel;
    clock_host_reads(clock);
    pages_begin(&engine->pages, now);
    pages_stretch(&engine->pages, (double)longer / (double)key.kernel);
    (void)pages_time(&engine->pages, &key.kernel, &key.room);
    const picoseconds began = clock->now;
    const enum error_code e = compute_iteration(engine, now, err);
    if (!e && key.kernel > shorter) step_memo_tried(engine->memo, &key, clock->now - began);
    clock->now = end, clock->starts.done = clock->starts.told = done;
    return e;
}

/* Compute an iteration, or have its time without that. */
static enum error_code compute_or_recall(struct engine *engine, const struct iteration *now, struct error *err)
{
    struct clock *const clock = &device_of(engine)->clock;
    const picoseconds began = clock->now;
    picoseconds takes;
    struct step_key key;
    const bool follows = times_follow(engine, now, &key);
    if (follows && step_memo_find(engine->memo, &key, &takes)) {
        clock_wait(clock, began + takes);
        return drawing_draw(&engine->drawing, now, NULL, engine->told, err);
    }
    const enum error_code e = compute_iteration(engine, now, err);
    if (e || !follows || engine->pages.mixed) return e;
    step_memo_note(engine->memo, &key, engine->pages.charges, clock->now - began);
    return try_longer(engine, now, key, err);
}

static enum error_code run_iteration(struct engine *engine, const struct iteration *now, struct error *err)
{
    pages_begin(&engine->pages, now);
    enum error_code e = compute_or_recall(engine, now, err);
    const int64_t before = engine->now;
    if (!e) e = tell_replica(engine, now, err);
    if (!e && engine->draws && now->tokens > 0)
        watch_iteration(&engine->job->watch, engine->number, now, before, engine->now);
    /* The tokens decide what is computed next, unless that is planned already. */
    engine->seen = engine->job->limits.ahead ? before : engine->now;
    if (!engine->job->limits.ahead) clock_host_reads(&device_of(engine)->clock);
    if (engine->apart == NULL) messages_have_ended(engine->trainer->comm, "at the end of an iteration");
    return e;
}

/* ---- what an iteration gives ------------------------------------------------------------------------------------- */

enum error_code engine_end_sequence(struct engine *engine, struct sequence *sequence, struct error *err)
{
    const int64_t n = sequence->number;
    struct answer *const a = &engine->record.answer[n];
    enum error_code e = OK;
    *a = (struct answer){ .tokens = sequence->count - sequence->prompt, .preempted = sequence->preempted,
                          .shared = sequence->shared, .finish = sequence->finish,
                          .verdict = { .first_wrong = -1 } };
    if (!engine->came)
        memcpy(engine->record.token + engine->record.first[n], sequence->token + sequence->prompt,
               (size_t)a->tokens * sizeof *sequence->token);
    if (engine->draws) e = drawing_end(&engine->drawing, sequence, &a->verdict, err);
    if (engine->came) verdict_add(&engine->verdict, &a->verdict, engine->job->requests->at[n].name);
    sequence_free(sequence);
    engine->sequence[n] = NULL;
    return e;
}

/* Whoever talks to clients hears each token of a live request.  The last one says that the answer has ended. */
static void note_came(struct engine *engine, const struct sequence *sequence, int64_t before)
{
    struct came_token *const came = engine->came;
    for (int64_t i = before; i < sequence->count; i++)
        came[++came[0].slot] = (struct came_token){ sequence->number, sequence->token[i], i + 1 < sequence->count
                                                    ? NOT_FINISHED : (int32_t)sequence->finish };
}

/* Tokens are there at the iteration's time. */
static void note_times(struct engine *engine, const struct sequence *sequence, int64_t before)
{
    int64_t *const time = engine->record.time + engine->record.first[sequence->number] - sequence->prompt;
    for (int64_t i = before; i < sequence->count; i++) time[i] = engine->now;
}

/* The tokens of a piece are known: those that a sequence did not have before. */
static enum error_code note_tokens(struct engine *engine, const struct sequence *sequence, int64_t before,
                                   struct error *err)
{
    enum error_code e = OK;
    if (engine->came) return note_came(engine, sequence, before), OK;
    note_times(engine, sequence, before);
    if (engine->spoken == NULL || (engine->apart && apart_prompts(engine))) return OK;
    for (int64_t at = before; at < sequence->count && !e; at++) e = engine_say(engine, sequence, at, err);
    return e;
}

/* A replica for prompts hands each request over that has a token, also one that has ended. */
static enum error_code end_or_hand_over(struct engine *engine, struct error *err)
{
    const struct iteration *const now = engine->pages.now;
    const bool prompts = engine->apart && apart_prompts(engine);
    enum error_code e = OK;
    for (int64_t i = 0; i < now->pieces && prompts && !e; i++)
        if (now->piece[i].samples) e = apart_hand_over(engine, now->piece[i].of, err);
    for (int64_t i = 0; i < now->ends && !prompts && !e; i++) e = engine_end_sequence(engine, now->ended[i], err);
    return e;
}

static enum error_code take_tokens(struct engine *engine, struct error *err)
{
    const struct iteration *const now = engine->pages.now;
    struct taken_tokens *const taken = engine->taken;
    for (int64_t i = 0; i < now->samples; i++)
        taken[i] = told_read(told_piece(engine->told, most_proposals(engine), i), most_proposals(engine));
    for (int64_t i = 0; i < now->pieces; i++) engine->before[i] = now->piece[i].of->count;
    enum error_code e = scheduler_take_proposed(&engine->scheduler, taken, err);
    for (int64_t i = 0; i < now->pieces && !e; i++)
        if (now->piece[i].samples) e = note_tokens(engine, now->piece[i].of, engine->before[i], err);
    return e ? e : end_or_hand_over(engine, err);
}

enum error_code engine_iterate(struct engine *engine, struct error *err)
{
    const struct iteration *const now = scheduler_plan(&engine->scheduler);
    if (now->tokens == 0) return fail(err, ERR_INTERNAL, "no sequence has room in the cache, and none runs");
    const enum error_code e = run_iteration(engine, now, err);
    return e ? e : take_tokens(engine, err);
}

enum error_code engine_attend_others(struct engine *engine, struct error *err)
{
    static const struct iteration nothing = { .pieces = 0 };
    return run_iteration(engine, &nothing, err);
}

/* ---- arrivals ---------------------------------------------------------------------------------------------------- */

/* Requests are dealt in turn, or have been placed. */
static int64_t next_of_replica(const struct engine *engine, int64_t from)
{
    const int32_t *const placed = engine->job->placed;
    while (placed && from < engine->job->requests->count && placed[from] != engine->number) from++;
    if (placed) return from;
    const int64_t replicas = engine->apart ? engine->job->prompt_replicas : engine_plan(engine)->mesh.size[DP];
    return from + (engine->number - from % replicas + replicas) % replicas;
}

enum error_code engine_admit(struct engine *engine, int64_t request, struct error *err)
{
    const struct request *const r = &engine->job->requests->at[request];
    const struct answer_end end = { r->most, r->stop.id, (int)r->stop.count };
    struct sequence *const s = sequence_new(request, r->prompt.id, r->prompt.count, &end,
                                            engine->job->limits.block_tokens);
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for the tokens of request %.60s", r->name);
    engine->sequence[request] = s;
    scheduler_add(&engine->scheduler, s);
    return OK;
}

static enum error_code admit(struct engine *engine, struct error *err)
{
    const struct requests *const all = engine->job->requests;
    enum error_code e = OK;
    for (; engine->next < all->count && all->at[engine->next].arrival <= engine->seen && !e;
         engine->next = next_of_replica(engine, engine->next + 1))
        e = engine_admit(engine, engine->next, err);
    return e;
}

/* Nobody runs or waits: the devices wait for the next request. */
void engine_wait(struct engine *engine, int64_t until)
{
    if (until > engine->now) engine->now = until;
    engine->seen = engine->now;
    if (until > device_of(engine)->clock.now) clock_wait(&device_of(engine)->clock, until);
}

/* Replicas that share experts tell each other whether they have work, and when the next request of any comes. */
struct engine_outlook { int64_t works, next; };

static enum error_code look_out(struct engine *engine, struct engine_outlook *all, struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct requests *const r = engine->job->requests;
    const struct engine_outlook own = { !scheduler_idle(&engine->scheduler),
                                        engine->next < r->count ? r->at[engine->next].arrival : INT64_MAX };
    struct engine_outlook *const each = calloc((size_t)comm->size, sizeof *each);
    enum error_code e = each ? comm_bring(comm, &own, sizeof own, each, err)
                             : fail(err, ERR_MEMORY, "no memory for a list of devices");
    *all = (struct engine_outlook){ 0, INT64_MAX };
    for (int i = 0; i < comm->size && !e && comm->rank == 0; i++) {
        all->works |= each[i].works;
        if (each[i].next < all->next) all->next = each[i].next;
    }
    free(each);
    return e ? e : comm_tell(comm, all, sizeof *all, err);
}

static enum error_code answer_in_step(struct engine *engine, struct error *err)
{
    struct engine_outlook all;
    enum error_code e = OK;
    engine->next = next_of_replica(engine, 0);
    while (!e) {
        e = admit(engine, err);
        if (!e) e = look_out(engine, &all, err);
        if (e || (!all.works && all.next == INT64_MAX)) break;
        if (!all.works) {
            engine_wait(engine, all.next);
        } else if (scheduler_idle(&engine->scheduler)) e = engine_attend_others(engine, err);
        else e = engine_iterate(engine, err);
    }
    return e;
}

static enum error_code answer_all(struct engine *engine, struct error *err)
{
    if (engine_in_step(engine)) return answer_in_step(engine, err);
    if (engine->apart && !apart_prompts(engine)) return apart_answer(engine, err);
    enum error_code e = OK;
    engine->next = next_of_replica(engine, 0);
    while (!e) {
        e = admit(engine, err);
        if (!e && !scheduler_idle(&engine->scheduler)) {
            e = engine_iterate(engine, err);
        } else if (!e && engine->next < engine->job->requests->count)
            engine_wait(engine, engine->job->requests->at[engine->next].arrival);
        else break;
    }
    return e || engine->apart == NULL ? e : apart_end(engine, err);
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static enum error_code make_lists(struct engine *engine, struct error *err)
{
    const struct serving_limits *const l = &engine->job->limits;
    const size_t n = (size_t)engine->job->requests->count, rows = (size_t)l->step_tokens;
    const int64_t told = TOLD_TIME + l->running * told_stride(most_proposals(engine));
    engine->sequence = calloc(n + 1, sizeof *engine->sequence);
    engine->id = malloc(rows * sizeof *engine->id), engine->position = malloc(rows * sizeof *engine->position);
    engine->asked = malloc(rows * sizeof *engine->asked), engine->sampled = malloc(rows * sizeof *engine->sampled);
    engine->told = calloc((size_t)told, sizeof *engine->told);
    engine->taken = calloc((size_t)l->running, sizeof *engine->taken);
    engine->before = calloc((size_t)l->running, sizeof *engine->before);
    engine->message = device_list(device_of(engine), told);
    const bool speaks = engine->job->streams && engine->draws;
    if (speaks) engine->spoken = calloc(n + 1, sizeof *engine->spoken);
    const bool ok = engine->sequence && engine->id && engine->position && engine->asked && engine->sampled &&
                    engine->told && engine->taken && engine->before && engine->message.data &&
                    (engine->spoken || !speaks);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for iterations of %zu tokens", rows);
}

/* All replicas may have one memo. */
static enum error_code open_memo(struct engine *engine, struct error *err)
{
    engine->memo = engine->job->memo ? engine->job->memo : &engine->own_memo;
    if (engine->memo->entry || step_memo_open(engine->memo)) return OK;
    return fail(err, ERR_MEMORY, "no memory for the times of iterations");
}

/* Without a batch: the device's stage gets its tokens from here. */
enum error_code engine_open(struct engine *engine, struct error *err)
{
    const struct mesh *const m = &engine_plan(engine)->mesh;
    const struct comm *const comm = engine->trainer->comm;
    const int first = mesh_neighbour(m, mesh_neighbour(m, comm->rank, TP, 0), CP, 0),
              last = mesh_neighbour(m, first, PP, m->size[PP] - 1);
    engine->number = mesh_coordinate(m, comm->rank, DP), engine->draws = comm->rank == last;
    enum error_code e = group_along(&engine->replica, engine->trainer->comm, m, TRAFFIC_OTHER,
                                    AXIS_BIT(TP) | AXIS_BIT(CP) | AXIS_BIT(PP), err);
    for (int i = 0; i < engine->replica.size && !e; i++)
        if (engine->replica.member[i] == last) engine->root = i;
    if (!e) e = group_along(&engine->last, engine->trainer->comm, m, TRAFFIC_TENSOR, AXIS_BIT(TP) | AXIS_BIT(CP), err);
    if (!e) e = apart_open(engine, err);
    if (!e) e = record_open(&engine->record, engine->job->requests, err);
    if (!e) e = make_lists(engine, err);
    if (!e) e = nano_open(engine, err);
    if (!e) e = scheduler_open(&engine->scheduler, &engine->job->limits, err);
    if (!e) e = pages_open(&engine->pages, engine->trainer->comm, &engine->trainer->stage[0], &engine->job->limits,
                           err);
    if (!e && engine->draws)
        e = drawing_open(&engine->drawing, engine->job, device_of(engine), engine->came ? engine_plan(engine)->S : 1,
                         err);
    engine->drawing.proposes = engine->apart == NULL || !apart_prompts(engine);
    if (!e && !device_of(engine)->backend->has_numbers && engine->replica.size == 1 && engine_plan(engine)->ep == 1 &&
        !engine->job->limits.ahead && !engine->job->nano.cuts && engine_plan(engine)->data.offload == 0)
        e = open_memo(engine, err);
    engine->answering = (struct answering){ .context = engine, .attend = attend, .take_logits = engine_take_logits };
    if (engine->draws && engine->job->speculation.module) engine->answering.read_stream = read_stream;
    if (!e) routers_begin(engine->trainer), engine->trainer->stage[0].answering = &engine->answering;
    return comm_agree(engine->trainer->comm, e, err);
}

void engine_close(struct engine *engine)
{
    engine->trainer->stage[0].answering = NULL;
    for (int64_t i = 0; i < engine->job->requests->count && engine->sequence; i++) sequence_free(engine->sequence[i]);
    for (int64_t i = 0; i < engine->job->requests->count && engine->spoken; i++) text_stream_free(&engine->spoken[i]);
    if (engine->pages.kv) pages_close(&engine->pages);
    if (engine->scheduler.running) scheduler_close(&engine->scheduler);
    drawing_close(&engine->drawing);
    step_memo_close(&engine->own_memo);
    if (engine->message.data) device_free(device_of(engine), engine->message);
    free(engine->sequence), free(engine->id), free(engine->position), free(engine->asked), free(engine->sampled);
    free(engine->told), free(engine->taken), free(engine->before), free(engine->spoken), free(engine->came);
    apart_close(engine), nano_close(engine);
    group_close(&engine->replica), group_close(&engine->last);
    serving_record_free(&engine->record);
}

/* ---- serving ----------------------------------------------------------------------------------------------------- */

enum error_code engine_start(struct engine *engine, struct comm *comm, struct error *err)
{
    struct trainer *const t = engine->trainer;
    const struct serving_job *const job = engine->job;
    enum error_code e = trainer_open(t, job->plan, comm, (struct batch_source){ .fill = NULL }, err);
    if (e) return e;
    if (job->saved) e = fail_about(err, checkpoint_load_weights(t, job->saved, err), "--model");
    if (!e) clock_reset(&t->device->clock);
    else trainer_close(t);
    return e;
}

enum error_code serve_requests(struct comm *comm, const struct serving_job *job, struct serving_record *record,
                               struct error *err)
{
    struct trainer trainer;
    struct engine engine = { .job = job, .trainer = &trainer };
    *record = (struct serving_record){ 0 };
    enum error_code e = engine_start(&engine, comm, err);
    if (e) return e;
    e = engine_open(&engine, err);
    if (!e) {
        e = answer_all(&engine, err);
        /* Inside iterations devices cannot agree on an error: others wait for messages. */
        if (e) comm_give_up(comm, err);
        e = bring_record(&engine, record, err);
    }
    engine_close(&engine);
    trainer_close(&trainer);
    return e;
}
