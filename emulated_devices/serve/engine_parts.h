/* engine_parts.h -- one device's engine, for the files that are it: engine.c (iterations), engine_tokens.c (logits to
 * tokens), engine_record.c (answers of all devices).  No other file includes this one. */
#ifndef ORRERY_ENGINE_PARTS_H
#define ORRERY_ENGINE_PARTS_H

#include "emulated_devices/serve/engine.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/trainer.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/drawing.h"
#include "emulated_devices/serve/engine_nano.h"
#include "emulated_devices/serve/pages.h"
#include "emulated_devices/serve/step_memo.h"
#include "ref/text/generate.h"

/* A token of a live request, as rank 0 gets it. */
struct came_token { int64_t slot; int32_t token, finish; };

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
    struct text_stream *spoken;         /* [requests] texts of answers that are printed as they come; else NULL */
    int64_t next;                       /* the next request that has not come */
    int64_t now;                        /* virtual time of the last iteration, the same in the replica */
    int64_t seen;                       /* time up to which the next plan knows of requests */
    int32_t *id, *position, *asked;     /* [step_tokens] of an iteration's rows that this device computes */
    int64_t *sampled;                   /* [step_tokens] rows of the iteration whose logits are asked for */
    struct group last;                  /* with cp: the devices of this stage, which have parts of rows and columns */
    int32_t *told;                      /* told.h: the time, and the tokens of each piece that samples */
    struct taken_tokens *taken;         /* [running] the tokens in it */
    int64_t *before;                    /* [running] tokens that the pieces' sequences had before these */
    struct tensor message;              /* the same in the device's memory, for messages */
    struct serving_record record;       /* of this device */
    struct came_token *came;            /* [came_room] of live requests: the first's slot is how many there are */
    struct step_memo *memo, own_memo;   /* times of iterations, where nothing but time is computed; else NULL */
    int64_t passes;                     /* through the model's parts */
    struct nano_engine nano;            /* iterations in nano-batches */
    struct apart *apart;                /* with replicas for prompts alone; else NULL */
    struct verdict verdict;             /* of live requests that have ended, with a check */
};

/* Entries of `came`: each running request may get a token, and one for each of its proposals. */
static inline int64_t came_room(const struct serving_job *job)
{
    return 1 + job->limits.running * (1 + job->speculation.most);
}

static inline struct device *device_of(const struct engine *engine) { return engine->trainer->device; }
static inline const struct plan *engine_plan(const struct engine *engine) { return engine->job->plan; }
static inline int64_t most_proposals(const struct engine *engine) { return engine->job->speculation.most; }
static inline int64_t vocabulary(const struct engine *engine) { return engine_plan(engine)->model.V; }

/** Open the trainer, with its weights.  Collective.  @return OK, or errors of weights with nothing to close. */
enum error_code engine_start(struct engine *, struct comm *, struct error *);

/** Have all that a device needs to answer requests.  Collective.  @return OK or ERR_MEMORY. */
enum error_code engine_open(struct engine *, struct error *);
void engine_close(struct engine *);

/** A request has come: it waits for the replica's scheduler.  @return OK or ERR_MEMORY. */
enum error_code engine_admit(struct engine *, int64_t request, struct error *);

/** Take part in an iteration in which this replica has nothing to compute, because others send tokens to its experts.
 *  Collective over the replica.  @return as engine_iterate. */
enum error_code engine_attend_others(struct engine *, struct error *);

/** Have what replicas need of which some compute prompts alone.  Collective; makes no messages.
 *  @return OK or ERR_MEMORY. */
enum error_code apart_open(struct engine *, struct error *);
void apart_close(struct engine *);

/** A sequence of a replica for prompts has its first token: hand it over, and forget it.  @return as engine_iterate. */
enum error_code apart_hand_over(struct engine *, struct sequence *, struct error *);

/** Answer all requests whose prompts other replicas compute.  Collective over the replica.
 *  @return as engine_iterate. */
enum error_code apart_answer(struct engine *, struct error *);

/** Tell the other replicas that no request follows, and wait until they have taken all.  @return OK or ERR_COMM. */
enum error_code apart_end(struct engine *, struct error *);

/** Whether this replica computes prompts alone. */
static inline bool apart_prompts(const struct engine *engine)
{
    return engine->number < engine->job->prompt_replicas;
}

/** A sequence has ended: it is recorded, judged and freed.  @return OK, ERR_MEMORY, or errors of the judge. */
enum error_code engine_end_sequence(struct engine *, struct sequence *, struct error *);

/** Nobody runs or waits: the devices wait until a time. */
void engine_wait(struct engine *, int64_t until);

/** Whether replicas wait for each other in each iteration, since they share experts. */
static inline bool engine_in_step(const struct engine *engine) { return engine_plan(engine)->ep > 1; }

/** Compute an iteration, and take its tokens.  Collective over the replica; it must have work.
 *  @return OK, or an error after which the devices cannot agree any more. */
enum error_code engine_iterate(struct engine *, struct error *);

/** The device that draws the tokens of a replica. */
int device_that_draws(const struct plan *, int64_t replica);

/** Bring counts of all replicas to rank 0.  Collective.  @return as bring_record. */
enum error_code bring_counts(struct engine *, struct serving_record *to, struct error *);

/** Print a token of a sequence's answer as a line of JSON, with its text and its virtual time.
 *  @param place  of the token, counted from the prompt's first.
 *  @return OK; ERR_MEMORY; ERR_USAGE: the tokenizer lacks the token. */
enum error_code engine_say(struct engine *, const struct sequence *, int64_t place, struct error *);

/** Take the logits of an iteration, and draw its tokens, on the device that draws.  For struct answering. */
enum error_code engine_take_logits(void *engine, struct tensor logits, struct error *);

/** Room for all answers.  @return OK or ERR_MEMORY. */
enum error_code record_open(struct serving_record *, const struct requests *, struct error *);

/** Bring the answers of all devices to rank 0.  Collective.
 *  @return OK; ERR_MEMORY; ERR_CHECK if messages are not those of the formulas. */
enum error_code bring_record(struct engine *, struct serving_record *to, struct error *);

#endif
