/* judge.h -- holds answers to the one-device model: each request alone, in ref/.
 *
 * The reference computes the prompt and the answer in one pass, on one device, without a cache.  Row by row it says
 * which token follows.  With an answer's own tokens in front, each token is judged by itself; if all are right, the
 * reference alone would have written the same answer.
 *
 *   - The engine's logits of a token are compared with the reference's.  With exact sums bits must be equal.  Otherwise
 *     no logit may differ by more than a bound, which twins of the reference have measured (ref/model/perturb.h).
 *   - The token must be the one that the engine's own logits, the request's settings and its seed choose.  With rule
 *     `ratio` the proposal that stood there is part of the choice (proposal.h).
 *   - Where a difference within the bound could choose another token, the token cannot be judged: it counts apart, even
 *     if it is the reference's.
 *   - A token of a mixture whose router could choose other experts, for it or for a token before it, may have other
 *     logits; then these cannot be judged.
 *
 * engine.c and tests call these functions.
 */
#ifndef ORRERY_JUDGE_H
#define ORRERY_JUDGE_H

#include "emulated_devices/serve/proposal.h"
#include "emulated_devices/serve/requests.h"

struct transformer;

/* The judgements of the tokens of one answer, or of many. */
struct verdict {
    int64_t tokens, right, open, wrong; /* all; those the reference has; that cannot be judged; that it has not */
    int64_t open_equal;                 /* of those that cannot be judged, how many the reference has, too */
    double farthest, bound;             /* of a logit from the reference's; the largest bound */
    int64_t first_wrong;                /* number of the first wrong token in its answer; -1: none */
    char why[120];                      /* about it; empty: none is wrong */
};

/* Tokens that were proposed in the places of an answer. */
struct judged_proposals {
    enum proposal_rule rule;            /* by which tokens were chosen */
    const int32_t *token;               /* [answer] NULL: none was proposed, or the choice does not depend on it */
    const double *q;                    /* [answer, V] NULL: proposers are certain */
};

enum { JUDGE_TWINS = 3 };               /* of the reference, whose distances are the bounds */

struct judge {
    struct transformer *model;          /* the caller's, with its weights */
    uint64_t seed;                      /* of the twins */
    int parts;                          /* sums of how many devices a result is stored as, for 16-bit formats */
    struct judged_proposals proposals;  /* of the answer that is judged next; the caller's */
    int64_t rows;                       /* [rows] for which there is room */
    double *logits;                     /* [rows, V] of the reference */
    double *bound;                      /* [rows] of each row's logits */
    bool *loose;                        /* [rows] a router could choose other experts, here or before */
    int32_t *route;                     /* [L, rows, k] of a mixture: the reference's experts */
    double *router;                     /* [L, rows, E] of a mixture: its routers' logits */
};

/** Have room for prompts with their answers of so many tokens.  Local.  @return OK or ERR_MEMORY. */
enum error_code judge_open(struct judge *, struct transformer *, int64_t most, uint64_t seed, int parts,
                           struct error *);
void judge_close(struct judge *);

/**
 * Judge an answer.
 * @param token   [count] the prompt, then the answer.
 * @param logits  [answer, V] the engine's, in the model's format: row i chose token i of the answer.
 * @return OK, whatever was found; ERR_MEMORY; ERR_DIVERGED if the reference has no logits.
 */
enum error_code judge_answer(struct judge *, const struct request *, const int32_t *token, int64_t count,
                             struct tensor logits, struct verdict *, struct error *);

/** Add what was found of one answer to that of others.  @param name  of the request, for `why`. */
void verdict_add(struct verdict *sum, const struct verdict *one, const char *name);

/** Whether logits that differ from these by at most `bound` choose the same token.  Pure.
 *  @param logits  [V]  @param u  the number that draws.  @param p  [V] scratch.
 *  @return whether they do; *token: the choice.  ERR_MEMORY and ERR_DIVERGED as sampling_distribution, in *code. */
bool choice_is_clear(const struct sampling *, struct tensor logits, double u, double bound, double *p, int32_t *token,
                     enum error_code *code, struct error *);

#endif
