/* live.h -- requests that come while the devices run, and may be taken back.
 *
 * Devices go in rounds.  Rank 0 asks a *front* (front.h), which talks to clients, for news: requests, and those that
 * nobody wants any more.  All devices hear them, each replica computes an iteration, and rank 0 tells the front the
 * tokens.  A request has a slot while it is open; slot s belongs to replica s modulo dp.
 *
 * cli/train/serve.c calls serve_live; engine_live.c runs the rounds.
 */
#ifndef ORRERY_LIVE_H
#define ORRERY_LIVE_H

#include "emulated_devices/serve/engine.h"

/* These numbers say to all devices what has happened since the last round. */
struct live_news {
    int64_t *word, count, room;         /* [count] of all requests; owned */
    bool ends;                          /* devices shall end: nothing is open */
    bool lost;                          /* there was no memory for some */
};

/** A request has come.  Its prompt, lengths, stop tokens and sampling count; its name does not. */
void news_request(struct live_news *, int64_t slot, const struct request *);
/** Nobody wants a request any more. */
void news_leaves(struct live_news *, int64_t slot);

/* Whoever talks to clients, on rank 0.  Both functions are called by the thread of the devices. */
struct live_front {
    void *context;                      /* the first argument */
    /* Fill in what has happened.  While nothing is open, wait for it, at most NEWS_WAIT. */
    void (*listen)(void *context, struct live_news *);
    /* A request has its next token; after a finish none follows. */
    void (*token)(void *context, int64_t slot, int32_t token, enum finish);
};

#define NEWS_WAIT 0.5                   /* seconds: devices that wait must hear something before their limit */

/**
 * Answer live requests until the front ends.
 * Collective over all devices of the plan.
 * @param job    `requests` are not read.
 * @param slots  requests that are open at the same time, at most.
 * @param front  on rank 0.
 * @param[out] record   counts of replicas on rank 0, without answers; for serving_record_free on all.
 * @param[out] verdict  of all answers that have come to their end, with a check, on rank 0.
 * @return as serve_requests.
 */
enum error_code serve_live(struct comm *, const struct serving_job *job, int64_t slots, const struct live_front *front,
                           struct serving_record *record, struct verdict *verdict, struct error *);

#endif
