/* engine.h -- devices answer requests: iteration by iteration, with real numbers, in virtual time.
 *
 * Requests are dealt to the replicas, dp of them, one after another in the order of their arrival, or as they are
 * placed (placing.h).  The tp pp devices
 * of a replica run the same scheduler.  An iteration is one forward pass of the planned tokens.  The first device of
 * the last stage gathers the logits, draws the tokens, and sends them to the others with its virtual time, so all plan
 * the next iteration alike.
 *
 * cli/train/ runs serve_requests; metrics.h and report.h read the record; tests/devices/ calls all.
 */
#ifndef ORRERY_ENGINE_H
#define ORRERY_ENGINE_H

#include "emulated_devices/serve/engine_nano.h"
#include "emulated_devices/serve/judge.h"
#include "emulated_devices/serve/proposer.h"
#include "emulated_devices/serve/requests.h"
#include "emulated_devices/serve/scheduler.h"
#include "emulated_devices/serve/watch.h"
#include "emulated_devices/device/tier.h"

struct checkpoint;
struct comm;
struct plan;
struct step_memo;

/* All that devices are asked for. */
struct serving_job {
    const struct plan *plan;            /* checked, with a sequence a replica */
    const struct checkpoint *saved;     /* the weights; NULL: drawn from the plan's seed */
    const struct requests *requests;    /* by arrival; the same on every device */
    struct serving_limits limits;       /* of each replica */
    struct speculation speculation;     /* whether tokens are proposed, and how */
    struct nano_asked nano;             /* whether iterations are cut into nano-batches, and how */
    bool check;                         /* compare each answer with the one-device model */
    const int32_t *placed;              /* [requests] the replica of each; NULL: they are dealt in turn */
    int prompt_replicas;                /* so many, the first, compute prompts, and others answers; 0: all both */
    bool streams;                       /* print each token of a trace as it comes */
    struct tokenizer *tokenizer;        /* for the texts of these; NULL: tokens are bytes */
    struct serving_watch watch;         /* sees iterations of replicas whose device that draws is in this process */
    struct step_memo *memo;             /* zeros or used before, for all replicas, whose devices are alike and in this
                                         * process; NULL: each has its own */
};

/* An answer, but for its tokens. */
struct answer {
    int64_t tokens;                     /* of its answer */
    int64_t preempted, shared;          /* how often it was preempted; tokens of prefixes found in the cache */
    enum finish finish;                 /* why it ended */
    struct verdict verdict;             /* with a check */
};

/* Weights on the slow tier, of which a window of parts is on the device: the most bytes that were there, and that the
 * formula says; what was read. */
struct window_counts { uint64_t most, predicted; struct tier_traffic read; };

/* The counts of a replica, as its device that draws has them. */
struct replica_counts {
    struct serving_counts counts;       /* of its scheduler */
    struct proposal_counts proposals;   /* of its proposer */
    int64_t end;                        /* virtual time of its last token, in picoseconds */
    int64_t free_blocks;                /* at the end */
    uint64_t cache_bytes;               /* of the blocks of this device */
    int64_t free_host;                  /* blocks of the host's tier at the end */
    struct tier_traffic host;           /* of this device with it */
    struct nano_counts nano;            /* of this device */
    struct window_counts window;        /* likewise; zeros without --offload */
    uint64_t dispatched;                /* bytes that this device has sent to experts of others, and back */
};

/* All answers, on rank 0. */
struct serving_record {
    int64_t requests, replicas;         /* how many */
    struct answer *answer;              /* [requests] */
    int64_t *first;                     /* [requests + 1] where each answer's tokens begin in the next two */
    int32_t *token;                     /* their tokens; room for the most */
    int64_t *time;                      /* when each was there: virtual time in picoseconds */
    struct replica_counts *replica;     /* [replicas] */
    uint64_t dispatched;                /* bytes of all devices to experts on others, and back */
};

/** Whether this engine serves a plan: what it does not do is refused by its flag.
 *  @return OK, or ERR_PLAN. */
enum error_code serving_takes(const struct plan *, const struct serving_limits *, struct error *);

/** The replica that has a request's answer. */
static inline int64_t replica_of_answer(const struct serving_job *job, int replicas, int64_t request)
{
    if (job->placed) return job->placed[request];
    return job->prompt_replicas + request % (replicas - job->prompt_replicas);
}

/** Whether the cache has room for each request alone.  @return OK, or ERR_USAGE naming the first that has not. */
enum error_code serving_fits(const struct requests *, const struct serving_limits *, struct error *);

/**
 * Answer all requests.
 * Collective over all devices of the plan.
 * @param[out] record  complete on rank 0, empty elsewhere; for serving_record_free on all.
 * @return OK; ERR_MEMORY; errors of reading weights.  A failure inside an iteration ends the job with one line.
 */
enum error_code serve_requests(struct comm *, const struct serving_job *, struct serving_record *record,
                               struct error *);
void serving_record_free(struct serving_record *);

#endif
