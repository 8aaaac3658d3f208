/* scheduler.h -- which tokens of which sequences a replica computes in its next iteration.
 *
 * There are no phases of prompts and of answers.  A sequence has tokens, of which some are computed: their keys and
 * values are in the cache.  An iteration computes more of them, at most `step_tokens` of all sequences together:
 *
 *   1. of each running sequence, in their order.  Without blocks for it, the last running one is preempted: its blocks
 *      are released, nothing of it is computed any more, and it is the first that waits.  Where the host has room, its
 *      keys and values are copied there first, and come back when it begins again.
 *   2. if nobody was preempted: of those that wait, first come first served, while there are tokens and blocks.  What
 *      the cache has of a prefix is not computed again.  The first without room stops the others.
 *
 * When all tokens of a sequence are computed, the last one's logits give its next token.  A sequence ends with a stop
 * token, or with as many tokens as it asked for; then its blocks are released.
 *
 * An iteration may be planned ahead, before the tokens of the one before it are known.  That a sequence has as many
 * tokens as it asked for is known all the same, but not that it has a stop token: it runs once more, and what this
 * gives is thrown away.
 *
 * Proposed tokens (proposal.h) stand behind a sequence's own, and are computed with them, if there is room: nobody is
 * preempted for them.  Each has logits too.  Those that were refused count as not computed.
 *
 * Source  the order of vLLM's v1 scheduler: V1 "Scheduler.schedule"; chunked prefills: A. Agrawal et al., "Taming
 *         throughput-latency tradeoff in LLM inference with Sarathi-Serve", arXiv:2403.02310; iterations: G. Yu et al.,
 *         "Orca", OSDI 2022.
 *
 * The code is pure: it knows neither devices nor time.  Equal calls give equal lists, so every device of a replica runs
 * a scheduler of its own, and a simulator may run it without devices.  engine.c calls these functions.
 */
#ifndef ORRERY_SCHEDULER_H
#define ORRERY_SCHEDULER_H

#include "emulated_devices/serve/blocks.h"

/* The bounds of an iteration, and of the cache. */
struct serving_limits {
    int64_t step_tokens;                /* tokens of an iteration */
    int64_t running;                    /* sequences that run at the same time */
    int64_t chunk;                      /* tokens of one sequence in an iteration; 0: all that there are */
    bool whole_prompts;                 /* a prompt is computed in one iteration, or waits */
    bool shares;                        /* prefixes that are in the cache are not computed again */
    bool ahead;                         /* an iteration is planned before the one before it has ended */
    int64_t blocks, block_tokens;       /* of the cache; tokens of each */
    int64_t host_blocks;                /* of the host's tier, for preempted sequences; 0: they are computed again */
};

/* Stop tokens and the most tokens of an answer. */
struct answer_end { int64_t most; const int32_t *stop; int stops; };

/* Why a sequence has ended. */
enum finish { NOT_FINISHED, FINISH_LENGTH, FINISH_STOP };

struct sequence {
    int64_t number;                     /* the caller's, for example of its request */
    int32_t *token;                     /* [prompt + end.most] the prompt, then the answer so far, then proposals;
                                         * owned */
    int64_t prompt, count;              /* tokens of the prompt; of both */
    int64_t proposals;                  /* behind them; 0 unless all but the last of the tokens are computed */
    struct answer_end end;              /* the caller's; outlives the sequence */
    int64_t computed;                   /* tokens whose keys and values are in the cache */
    int64_t *block, blocks;             /* [blocks] of the cache, in the order of its tokens; owned */
    struct sha256_digest *hash;           /* [hashes] of its full blocks; owned */
    int64_t hashes, registered;         /* known so far; blocks that can be found */
    int64_t shared;                     /* tokens found in the cache, over all of its starts */
    int64_t *away, aways, kept;         /* [aways] blocks of the host; the tokens that they hold; owned */
    bool handed;                        /* its prompt was computed elsewhere */
    int64_t preempted;                  /* how often */
    enum finish finish;                 /* whether it has ended, and why */
    bool ending;                        /* its last token is a stop token, which the plan does not know yet */
    struct sequence *next;              /* behind it, among those that wait */
};

/* Consecutive tokens of one sequence in an iteration. */
struct token_piece {
    struct sequence *of;                /* the sequence */
    int64_t first, count;               /* positions of its tokens */
    bool samples;                       /* the last one's logits give the next token */
    int64_t proposals;                  /* of these tokens, those at the end that were proposed: each has logits */
};

/* The tokens that a piece has given, and proposals behind them. */
struct taken_tokens { const int32_t *token; int64_t tokens; const int32_t *proposal; int64_t proposals; };
/* A block that is copied between the cache and the host, before an iteration computes. */
struct block_copy { int64_t from, to; };

struct iteration {
    struct token_piece *piece;                /* [pieces], at most one for each running sequence; the scheduler's */
    int64_t pieces, tokens, samples;    /* pieces; their tokens together; pieces that sample */
    int64_t proposals;                  /* of these tokens, that were proposed */
    struct sequence **ended;            /* [ends] sequences that ended with it, after its tokens were taken */
    int64_t ends;                       /* how many */
    int64_t preempted, started;         /* sequences that lost their blocks, and that began or began again */
    struct block_copy *out, *in;        /* [outs], [ins]: all that leave are copied before any comes back */
    int64_t outs, ins;                  /* blocks to the host, and back */
};

/* Sums over all iterations so far. */
struct serving_counts {
    int64_t iterations, tokens;         /* tokens: computed, those again after a preemption too */
    int64_t prompt_tokens, shared_tokens;       /* of prompts when they begin; of these in the cache */
    int64_t preemptions, most_blocks;   /* blocks: used at the same time */
    int64_t wasted;                     /* tokens that were thrown away: each behind a stop token */
    int64_t outs, ins;                  /* blocks copied to the host, and back */
    double used_blocks;                 /* sum over iterations, for their mean */
};

struct scheduler {
    struct serving_limits limits;       /* a copy */
    struct block_pool pool, host;       /* of the cache; of the host's tier */
    struct sequence **running;          /* [active] in the order in which they began */
    int64_t active;                     /* sequences that run */
    struct sequence *waiting, *latest;  /* the first and the last that wait */
    struct iteration now;               /* the last one planned */
    struct serving_counts counts;       /* so far */
};

/** A scheduler without sequences.  @return OK, or ERR_MEMORY with nothing to close. */
enum error_code scheduler_open(struct scheduler *, const struct serving_limits *, struct error *);
/** Close it; sequences are the caller's. */
void scheduler_close(struct scheduler *);

/** A sequence for a prompt, of which nothing is computed.
 *  @param block  tokens of a block of the cache.  @return NULL without memory; else for sequence_free. */
struct sequence *sequence_new(int64_t number, const int32_t *prompt, int64_t count, const struct answer_end *,
                              int64_t block);
void sequence_free(struct sequence *);

/* The token that stands for the one at a place of an answer, counted from 0, where nothing is computed: each answer has
 * tokens of its own, which no prefix shares. */
static inline int32_t sequence_unseen(const struct sequence *sequence, int64_t place)
{
    return (int32_t)-(sequence->number * sequence->end.most + place + 1);
}

/** Tokens that the cache must hold for a prompt and its whole answer: all but the last, which nobody reads. */
static inline int64_t sequence_needs(int64_t prompt, int64_t most) { return prompt + most - 1; }

/** A sequence has come: it waits behind the others.  The cache must have room for it alone. */
void scheduler_add(struct scheduler *, struct sequence *);

/** A sequence is wanted no more: its blocks are released, and it neither runs nor waits.  Between scheduler_take and
 *  scheduler_plan. */
void scheduler_drop(struct scheduler *, struct sequence *);

/** A sequence has come whose first tokens were computed elsewhere: the host gets their keys and values, in its blocks
 *  `away`, and the sequence waits.  @return false: the host has no room, and nothing has changed. */
bool scheduler_add_kept(struct scheduler *, struct sequence *, int64_t kept);

/** Whether no sequence runs or waits. */
bool scheduler_idle(const struct scheduler *);

/** Plan the next iteration.  From now on its tokens count as computed.  @return valid until the next call. */
const struct iteration *scheduler_plan(struct scheduler *);

/** Take the tokens that the iteration has sampled, in the order of its pieces that sample.
 *  @param token  [samples]
 *  @return OK, or ERR_INTERNAL if the blocks of sequences and the cache's counts do not fit together. */
enum error_code scheduler_take(struct scheduler *, const int32_t *token, struct error *);

/** Take tokens where some were proposed: a piece has given one more than proposals that were taken.  A sequence ends
 *  with the first of its tokens that ends it.
 *  @param taken  [samples] in the order of the pieces that sample.
 *  @return as scheduler_take. */
enum error_code scheduler_take_proposed(struct scheduler *, const struct taken_tokens *taken, struct error *);

/** Whether every block is in as many lists as it has users, and the pool's counts fit.  @return OK or ERR_INTERNAL. */
enum error_code scheduler_check(struct scheduler *, struct error *);

#endif
