/* engine_apart.c -- replicas that compute prompts hand requests over to those that write answers: the first token, and
 * the pages of the prompt, layer by layer.  engine.c calls.  Errors: ERR_MEMORY, ERR_COMM.
 *
 * Each device has counterparts in the other replicas, with the same part of the model.  A replica for prompts never
 * waits for the others, so they may hear of its next request before they go on: with every one's next time known, no
 * request is taken too late.  Pages stay with the sender until the host of the receiver has room.
 *
 * Source  Y. Zhong et al., "DistServe", arXiv:2401.09670
 */
#include "emulated_devices/serve/engine_parts.h"
#include "emulated_devices/device/arena_list.h"
#include <stdlib.h>
#include <string.h>

/* A request that is handed over.  After it come its pages, and with a check its first row of logits. */
struct handed {
    int64_t request;                    /* NO_REQUEST: none follows */
    int64_t token, time;                /* its first token, and when it was there, in picoseconds */
    int64_t finish, preempted, shared;  /* of its sequence so far */
};
enum { NO_REQUEST = -1, HANDED = sizeof(struct handed) };

/* A message that is on its way, and its memory. */
struct leaving { struct message message; struct tensor data; };

struct apart {
    struct group *pair;                 /* [others] with the counterpart in each replica of the other kind */
    int others;
    struct handed *next;                /* [others] for answers: what each replica for prompts hands over next */
    bool *known, *over;                 /* [others] whether it is known; whether none follows */
    struct leaving *leaving;            /* [count] */
    int64_t count, room;
};

static struct comm *comm_of(const struct engine *engine) { return engine->trainer->comm; }

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

enum error_code apart_open(struct engine *engine, struct error *err)
{
    const struct mesh *const m = &engine_plan(engine)->mesh;
    const int prompts = engine->job->prompt_replicas, all = m->size[DP];
    if (prompts == 0) return OK;
    struct apart *const apart = calloc(1, sizeof *apart);
    engine->apart = apart;
    if (apart == NULL) return fail(err, ERR_MEMORY, "no memory for replicas apart");
    const int others = apart_prompts(engine) ? all - prompts : prompts, first = apart_prompts(engine) ? prompts : 0;
    apart->pair = calloc((size_t)others, sizeof *apart->pair);
    apart->next = calloc((size_t)others, sizeof *apart->next);
    apart->known = calloc((size_t)others, sizeof *apart->known);
    apart->over = calloc((size_t)others, sizeof *apart->over);
    enum error_code e = apart->pair && apart->next && apart->known && apart->over ? OK
                        : fail(err, ERR_MEMORY, "no memory for %d replicas apart", others);
    for (int i = 0; i < others && !e; i++) {
        const int rank = comm_of(engine)->rank, other = mesh_neighbour(m, rank, DP, first + i);
        const int members[2] = { rank < other ? rank : other, rank < other ? other : rank };
        e = group_of(&apart->pair[i], comm_of(engine), members, 2, TRAFFIC_ATTENTION, AXIS_BIT(DP), err);
        if (!e) apart->others++;
    }
    return e;
}

void apart_close(struct engine *engine)
{
    struct apart *const apart = engine->apart;
    if (apart == NULL) return;
    for (int i = 0; i < apart->others; i++) group_close(&apart->pair[i]);
    free(apart->pair), free(apart->next), free(apart->known), free(apart->over), free(apart->leaving), free(apart);
    engine->apart = NULL;
}

/* ---- handing over ------------------------------------------------------------------------------------------------ */

/* Send device memory, which is freed when it has been taken.  The formula of a request's messages is entered here. */
static enum error_code send_tensor(struct engine *engine, struct group *pair, enum operation operation,
                                   struct tensor data, struct error *err)
{
    struct apart *const apart = engine->apart;
    struct exchange x = exchange_begin(pair, operation);
    if (apart->count == apart->room) {
        const int64_t room = apart->room > 0 ? 2 * apart->room : 64;
        struct leaving *const more = realloc(apart->leaving, (size_t)room * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for messages");
        apart->leaving = more, apart->room = room;
    }
    const struct message m = message_send(&x, 1 - pair->rank, data.data, tensor_bytes(data));
    apart->leaving[apart->count++] = (struct leaving){ m, data };
    return OK;
}

static enum error_code send_head(struct engine *engine, struct group *pair, const struct handed *head,
                                 struct error *err)
{
    const struct tensor data = device_list(device_of(engine), HANDED / 4);
    if (data.data == NULL) return fail(err, ERR_MEMORY, "no memory for a message");
    device_copy(device_of(engine), data.data, head, HANDED);
    ledger_messages(&comm_of(engine)->expected, pair, POINT_TO_POINT, 1 - pair->rank, HANDED, 1);
    return send_tensor(engine, pair, POINT_TO_POINT, data, err);
}

static enum error_code send_pages(struct engine *engine, struct group *pair, const struct sequence *sequence,
                                  struct error *err)
{
    const struct pages *const pages = &engine->pages;
    const int64_t blocks = blocks_for(&engine->scheduler.pool, sequence->prompt), numbers = blocks * pages_block(pages);
    enum error_code e = OK;
    for (int64_t l = 0; l < pages->layers && !e; l++) {
        if (!tensor_present(pages->kv[l])) continue;
        const enum dtype dtype = pages->kv[l].dtype;
        struct tensor list = device_tensor_2d(device_of(engine), BUFFERS, 1, numbers);
        if (list.data == NULL) return fail(err, ERR_MEMORY, "no memory for the pages of a request");
        list = tensor_1d(list.data, dtype, numbers);
        pages_gather(pages, l, sequence->block, blocks, list);
        ledger_messages(&comm_of(engine)->expected, pair, POINT_TO_POINT, 1 - pair->rank,
                        (uint64_t)numbers * dtype_size(dtype), 1);
        e = send_tensor(engine, pair, POINT_TO_POINT, list, err);
    }
    return e;
}

/* The row that chose the first token is judged with the others: this takes no virtual time. */
static enum error_code send_row(struct engine *engine, struct group *pair, const struct sequence *sequence,
                                struct error *err)
{
    const uint64_t bytes = (uint64_t)vocabulary(engine) * dtype_size(device_of(engine)->dtype);
    const struct tensor data = device_tensor_2d(device_of(engine), BUFFERS, 1, vocabulary(engine));
    if (data.data == NULL) return fail(err, ERR_MEMORY, "no memory for a row of logits");
    device_copy(device_of(engine), data.data, drawing_row(&engine->drawing, sequence->number), bytes);
    drawing_forget(&engine->drawing, sequence->number);
    return send_tensor(engine, pair, CONTROL, data, err);
}

enum error_code apart_hand_over(struct engine *engine, struct sequence *sequence, struct error *err)
{
    const int64_t n = sequence->number;
    const struct serving_job *const job = engine->job;
    const int64_t to = replica_of_answer(job, engine_plan(engine)->mesh.size[DP], n) - job->prompt_replicas;
    struct group *const pair = &engine->apart->pair[to];
    const struct handed head = { n, sequence->token[sequence->count - 1], engine->now, (int64_t)sequence->finish,
                                 sequence->preempted, sequence->shared };
    enum error_code e = send_head(engine, pair, &head, err);
    if (!e && job->check && engine->draws) e = send_row(engine, pair, sequence, err);
    if (!e && sequence->finish == NOT_FINISHED) {
        e = send_pages(engine, pair, sequence, err);
        scheduler_drop(&engine->scheduler, sequence);
    }
    sequence_free(sequence);
    engine->sequence[n] = NULL;
    return e;
}

enum error_code apart_end(struct engine *engine, struct error *err)
{
    struct apart *const apart = engine->apart;
    const struct handed nothing = { .request = NO_REQUEST };
    enum error_code e = OK;
    for (int i = 0; i < apart->others && !e; i++) e = send_head(engine, &apart->pair[i], &nothing, err);
    for (int64_t i = 0; i < apart->count && !e; i++) {
        e = message_wait(comm_of(engine), apart->leaving[i].message, err);
        device_free(device_of(engine), apart->leaving[i].data);
    }
    apart->count = 0;
    return e;
}

/* ---- taking over ------------------------------------------------------------------------------------------------- */

static enum error_code hear_next(struct engine *engine, int other, struct error *err)
{
    struct apart *const apart = engine->apart;
    struct group *const pair = &apart->pair[other];
    const struct tensor data = device_list(device_of(engine), HANDED / 4);
    if (data.data == NULL) return fail(err, ERR_MEMORY, "no memory for a message");
    struct exchange x = exchange_begin(pair, POINT_TO_POINT);
    enum error_code e = message_wait(comm_of(engine), message_receive(&x, 1 - pair->rank, data.data, HANDED), err);
    device_copy(device_of(engine), &apart->next[other], data.data, HANDED);
    device_free(device_of(engine), data);
    apart->known[other] = true, apart->over[other] = apart->next[other].request == NO_REQUEST;
    if (e || apart->over[other] || !engine->job->check || !engine->draws) return e;
    const uint64_t bytes = (uint64_t)vocabulary(engine) * dtype_size(device_of(engine)->dtype);
    const struct tensor row = device_tensor_2d(device_of(engine), BUFFERS, 1, vocabulary(engine));
    if (row.data == NULL) return fail(err, ERR_MEMORY, "no memory for a row of logits");
    x = exchange_begin(pair, CONTROL);
    e = exchange_both(&x, -1, NULL, 0, 1 - pair->rank, row.data, bytes, err);
    const void *const view = host_read(device_of(engine), row.data, bytes);
    if (!e) e = drawing_keep(&engine->drawing, apart->next[other].request, view, err);
    host_done(device_of(engine), view);
    device_free(device_of(engine), row);
    return e;
}

static enum error_code take_pages(struct engine *engine, struct group *pair, const struct sequence *sequence,
                                  struct error *err)
{
    struct pages *const pages = &engine->pages;
    const int64_t numbers = sequence->aways * pages_block(pages);
    enum error_code e = OK;
    for (int64_t l = 0; l < pages->layers && !e; l++) {
        if (!tensor_present(pages->kv[l])) continue;
        struct tensor list = device_tensor_2d(device_of(engine), BUFFERS, 1, numbers);
        if (list.data == NULL) return fail(err, ERR_MEMORY, "no memory for the pages of a request");
        list = tensor_1d(list.data, pages->kv[l].dtype, numbers);
        struct exchange x = exchange_begin(pair, POINT_TO_POINT);
        e = message_wait(comm_of(engine), message_receive(&x, 1 - pair->rank, list.data, tensor_bytes(list)), err);
        if (!e) e = pages_put_away(pages, l, sequence->away, sequence->aways, list, err);
        device_free(device_of(engine), list);
    }
    return e;
}

/* @param[out] taken  false: the host has no room yet. */
static enum error_code take_over(struct engine *engine, int other, bool *taken, struct error *err)
{
    struct apart *const apart = engine->apart;
    const struct handed *const head = &apart->next[other];
    const struct request *const r = &engine->job->requests->at[head->request];
    const struct answer_end end = { r->most, r->stop.id, (int)r->stop.count };
    struct sequence *const s = sequence_new(head->request, r->prompt.id, r->prompt.count, &end,
                                            engine->job->limits.block_tokens);
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for the tokens of request %.60s", r->name);
    s->token[s->count++] = (int32_t)head->token;
    s->finish = (enum finish)head->finish, s->preempted = head->preempted, s->shared = head->shared;
    *taken = s->finish != NOT_FINISHED || scheduler_add_kept(&engine->scheduler, s, r->prompt.count);
    if (!*taken) return sequence_free(s), OK;
    apart->known[other] = false;
    engine->sequence[head->request] = s;
    engine->record.time[engine->record.first[head->request]] = head->time;
    enum error_code e = engine->spoken ? engine_say(engine, s, s->prompt, err) : OK;
    if (!e && s->finish != NOT_FINISHED) return engine_end_sequence(engine, s, err);
    return e ? e : take_pages(engine, &apart->pair[other], s, err);
}

/* The replica whose next request comes first; -1: none has one. */
static int earliest(const struct apart *apart)
{
    int best = -1;
    for (int i = 0; i < apart->others; i++)
        if (!apart->over[i] && (best < 0 || apart->next[i].time < apart->next[best].time)) best = i;
    return best;
}

enum error_code apart_answer(struct engine *engine, struct error *err)
{
    struct apart *const apart = engine->apart;
    enum error_code e = OK;
    while (!e) {
        bool taken = false;
        for (int i = 0; i < apart->others && !e; i++)
            if (!apart->known[i] && !apart->over[i]) e = hear_next(engine, i, err);
        const int first = e ? -1 : earliest(apart);
        if (!e && first >= 0 && apart->next[first].time <= engine->now) e = take_over(engine, first, &taken, err);
        if (e || taken) continue;
        if (!scheduler_idle(&engine->scheduler)) e = engine_iterate(engine, err);
        else if (first >= 0) engine_wait(engine, apart->next[first].time);
        else break;
    }
    return e;
}
