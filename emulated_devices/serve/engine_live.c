/* engine_live.c -- runs rounds of live requests on a device.  cli/train/ calls.  Errors: ERR_MEMORY, ERR_COMM, and
 * those of weights' files; a failure inside a round ends the job. */
#include "emulated_devices/serve/engine_parts.h"
#include "emulated_devices/serve/live.h"
#include <stdlib.h>
#include <string.h>

static char name_of_all[] = "of a client";

/* ---- news as numbers --------------------------------------------------------------------------------------------- */

/* The beginning of a request's numbers, or all of them of one that leaves. */
struct news_head {
    int64_t slot, prompt, most, stops;  /* prompt: tokens; 0: the request leaves */
    struct sampling how;                /* of a request that comes */
};
enum { HEAD_WORDS = (sizeof(struct news_head) + 7) / 8 };

static void news_add(struct live_news *news, const void *words, int64_t count)
{
    if (news->count + count > news->room) {
        const int64_t room = 2 * (news->count + count);
        int64_t *const more = realloc(news->word, (size_t)room * sizeof *more);
        if (more == NULL) { news->lost = true; return; }
        news->word = more, news->room = room;
    }
    memcpy(news->word + news->count, words, (size_t)count * sizeof *news->word);
    news->count += count;
}

static void news_add_head(struct live_news *news, const struct news_head *head)
{
    int64_t words[HEAD_WORDS] = { 0 };
    memcpy(words, head, sizeof *head);
    news_add(news, words, HEAD_WORDS);
}

void news_request(struct live_news *news, int64_t slot, const struct request *r)
{
    const struct news_head head = { slot, r->prompt.count, r->most, r->stop.count, r->how };
    news_add_head(news, &head);
    for (int64_t i = 0; i < r->prompt.count; i++) news_add(news, &(int64_t){ r->prompt.id[i] }, 1);
    for (int64_t i = 0; i < r->stop.count; i++) news_add(news, &(int64_t){ r->stop.id[i] }, 1);
}

void news_leaves(struct live_news *news, int64_t slot) { news_add_head(news, &(struct news_head){ .slot = slot }); }

/* ---- a round ----------------------------------------------------------------------------------------------------- */

/* All devices hear this of a round before its numbers. */
struct round { int64_t words, ends, lost; };

static enum error_code tell_news(struct comm *comm, const struct live_front *front, struct live_news *news,
                                 struct error *err)
{
    struct round round = { 0 };
    news->count = 0;
    if (comm->rank == 0) {
        front->listen(front->context, news);
        round = (struct round){ news->count, news->ends, news->lost };
    }
    enum error_code e = comm_tell(comm, &round, sizeof round, err);
    if (!e && round.lost) e = fail(err, ERR_MEMORY, "no memory for requests that come");
    if (!e && round.words > news->room) {
        int64_t *const more = realloc(news->word, (size_t)round.words * sizeof *more);
        if (more) news->word = more, news->room = round.words;
        else e = fail(err, ERR_MEMORY, "no memory for requests that come");
    }
    news->count = round.words, news->ends = round.ends;
    return e || round.words == 0 ? e : comm_tell(comm, news->word, (uint64_t)round.words * sizeof *news->word, err);
}

static void forget_request(struct request *r)
{
    token_ids_free(&r->prompt), token_ids_free(&r->stop);
    *r = (struct request){ .name = r->name };
}

static void drop_request(struct engine *engine, int64_t slot)
{
    struct sequence *const s = engine->sequence[slot];
    if (s == NULL) return;
    scheduler_drop(&engine->scheduler, s);
    sequence_free(s);
    engine->sequence[slot] = NULL;
    if (engine->draws) drawing_forget(&engine->drawing, slot);
}

static enum error_code take_request(struct engine *engine, struct request *r, const struct news_head *head,
                                    const int64_t *word, struct error *err)
{
    bool kept = true;
    forget_request(r);
    r->most = head->most, r->how = head->how;
    for (int64_t i = 0; i < head->prompt && kept; i++) kept = token_ids_add(&r->prompt, (int32_t)word[i]);
    for (int64_t i = 0; i < head->stops && kept; i++) kept = token_ids_add(&r->stop, (int32_t)word[head->prompt + i]);
    return kept ? engine_admit(engine, head->slot, err) : fail(err, ERR_MEMORY, "no memory for a request");
}

static enum error_code take_news(struct engine *engine, struct request *table, const struct live_news *news,
                                 struct error *err)
{
    enum error_code e = OK;
    for (int64_t at = 0; at < news->count && !e;) {
        struct news_head head;
        memcpy(&head, news->word + at, sizeof head);
        at += HEAD_WORDS;
        const bool mine = head.slot % engine_plan(engine)->mesh.size[DP] == engine->number;
        if (mine && head.prompt == 0) drop_request(engine, head.slot);
        else if (mine) e = take_request(engine, &table[head.slot], &head, news->word + at, err);
        at += head.prompt + head.stops;
    }
    return e;
}

/* Rank 0 hears the tokens of all replicas. */
static enum error_code bring_tokens(struct engine *engine, const struct live_front *front, struct came_token *all,
                                    struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    const int64_t each = came_room(engine->job);
    const enum error_code e = comm_bring(comm, engine->came, (uint64_t)each * sizeof *all, all, err);
    for (int64_t r = 0; r < p->mesh.size[DP] && !e && comm->rank == 0; r++) {
        const struct came_token *const came = all + device_that_draws(p, r) * each;
        for (int64_t i = 1; i <= came[0].slot; i++)
            front->token(front->context, came[i].slot, came[i].token, (enum finish)came[i].finish);
    }
    return e;
}

/* Replicas that share experts compute together, if one of them has work. */
static enum error_code somebody_works(struct engine *engine, bool *works, struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    int64_t own = *works, any = 0, *const each = calloc((size_t)comm->size, sizeof *each);
    enum error_code e = each ? comm_bring(comm, &own, sizeof own, each, err)
                             : fail(err, ERR_MEMORY, "no memory for a list of devices");
    for (int i = 0; i < comm->size && !e && comm->rank == 0; i++) any |= each[i];
    free(each);
    if (!e) e = comm_tell(comm, &any, sizeof any, err);
    *works = any;
    return e;
}

static enum error_code run_rounds(struct engine *engine, struct request *table, const struct live_front *front,
                                  struct came_token *all, struct error *err)
{
    struct live_news news = { 0 };
    enum error_code e = OK;
    while (!e) {
        e = tell_news(engine->trainer->comm, front, &news, err);
        if (e || news.ends) break;
        e = take_news(engine, table, &news, err);
        engine->came[0].slot = 0;
        const bool idle = scheduler_idle(&engine->scheduler);
        bool anybody = !idle;
        if (!e && engine_in_step(engine)) e = somebody_works(engine, &anybody, err);
        if (!e && !idle) e = engine_iterate(engine, err);
        else if (!e && anybody) e = engine_attend_others(engine, err);
        if (!e) e = bring_tokens(engine, front, all, err);
    }
    free(news.word);
    return e;
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

static enum error_code bring_verdicts(struct engine *engine, struct verdict *to, struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    struct verdict *const all = calloc((size_t)comm->size, sizeof *all);
    enum error_code e = comm_agree(comm, all ? OK : fail(err, ERR_MEMORY, "no memory for verdicts"), err);
    if (!e) e = comm_bring(comm, &engine->verdict, sizeof engine->verdict, all, err);
    *to = (struct verdict){ .first_wrong = -1 };
    for (int64_t r = 0; r < p->mesh.size[DP] && !e && comm->rank == 0; r++) {
        const struct verdict *const one = &all[device_that_draws(p, r)];
        verdict_add(to, one, name_of_all);
    }
    free(all);
    return e;
}

static enum error_code answer_live(struct engine *engine, struct request *table, const struct live_front *front,
                                   struct error *err)
{
    const int64_t each = came_room(engine->job);
    struct comm *const comm = engine->trainer->comm;
    struct came_token *const all = calloc((size_t)(comm->size * each), sizeof *all);
    enum error_code e = comm_agree(comm, all ? OK : fail(err, ERR_MEMORY, "no memory for tokens of clients"), err);
    if (!e) e = run_rounds(engine, table, front, all, err);
    /* Inside rounds devices cannot agree on an error: others wait for messages. */
    if (e) comm_give_up(comm, err);
    free(all);
    return e;
}

enum error_code serve_live(struct comm *comm, const struct serving_job *job, int64_t slots,
                           const struct live_front *front, struct serving_record *record, struct verdict *verdict,
                           struct error *err)
{
    struct request *const table = calloc((size_t)slots, sizeof *table);
    const struct requests requests = { table, slots };
    struct serving_job own = *job;
    struct trainer trainer;
    struct engine engine = { .job = &own, .trainer = &trainer, .verdict = { .first_wrong = -1 } };
    own.requests = &requests;
    *record = (struct serving_record){ 0 };
    engine.came = calloc((size_t)came_room(job), sizeof *engine.came);
    enum error_code e = table && engine.came ? OK : fail(err, ERR_MEMORY, "no memory for %lld requests",
                                                         (long long)slots);
    for (int64_t i = 0; i < slots && !e; i++) table[i].name = name_of_all;
    e = comm_agree(comm, e, err);
    if (!e) e = engine_start(&engine, comm, err);
    if (!e) {
        e = engine_open(&engine, err);
        if (!e) e = answer_live(&engine, table, front, err);
        if (!e) e = bring_counts(&engine, record, err);
        if (!e) e = bring_verdicts(&engine, verdict, err);
        engine_close(&engine);
        trainer_close(&trainer);
    } else free(engine.came);
    for (int64_t i = 0; i < slots && table; i++) table[i].name = NULL, forget_request(&table[i]);
    free(table);
    return e;
}
