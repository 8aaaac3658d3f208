/* proposer.h -- proposes the next tokens of an answer, for the model to take or to refuse (proposal.h).
 *
 *   n-gram       the tokens that followed the last time that the sequence had the same last tokens: the longest run of
 *                up to `longest` tokens that was there before, and of its places the last.
 *   draft model  a smaller model with the same vocabulary, on the device that draws.  Each of its tokens is drawn as
 *                the request's are, from its own distribution.  It keeps keys and values of a sequence; those of
 *                proposals that were refused are forgotten.  Its kernels are charged to the device's clock, a pass for
 *                the first proposals of all sequences, then one for the second, and its memory to the device.
 *   module       the model's own layer that predicts a further token (predictor.h), as a draft model.  It reads the
 *                model's stream behind the last layer, which is kept for each token of the cache (hidden.h).  Keys and
 *                values of proposals are forgotten, also if the proposals were taken: they come from its own stream.
 *
 * Source  A. Saxena, "Prompt lookup decoding"; the n-gram proposer of vLLM.  engine.c calls these
 *         functions, on devices that draw alone.
 */
#ifndef ORRERY_PROPOSER_H
#define ORRERY_PROPOSER_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/serve/proposal.h"
#include "emulated_devices/serve/requests.h"
#include "emulated_devices/serve/scheduler.h"

struct checkpoint;
struct model_config;

enum { PROPOSALS_MOST = 64 };           /* at a time */

/* How tokens are proposed; the same on every device. */
struct speculation {
    int64_t most;                       /* proposals of a sequence in an iteration; 0: none */
    enum proposal_rule rule;            /* who is taken */
    int64_t longest;                    /* n-gram: tokens that are compared */
    const struct model_config *config;  /* of the draft model, or of the model that has the module; NULL: n-gram */
    const struct checkpoint *saved;     /* its weights; NULL: drawn from the seed */
    bool module;                        /* the module of `config` proposes */
    uint64_t seed;                      /* of them */
};

/* The device that draws counts its proposals, and how many of them were taken. */
struct proposal_counts {
    int64_t proposed, tested, taken;    /* tested: those that the model has judged; the others came behind them */
    double expected, variance;          /* of the number taken, by the formulas: sums over those tested */
    int64_t tokens;                     /* that passes over sequences with proposals have given */
    int64_t passes[PROPOSALS_MOST + 1]; /* how many passes had this number of proposals */
};

struct draft;                           /* the draft model, with its sequences */

struct proposer {
    const struct speculation *how;      /* the caller's */
    struct device *device;              /* likewise */
    int64_t V;                          /* the vocabulary */
    struct draft *draft;                /* NULL: n-gram */
    struct proposal_counts counts;      /* so far */
};

/** @param requests  how many sequences there may be, by their numbers.
 *  @param limits    of the cache, for a module.
 *  @return OK; ERR_MEMORY; ERR_USAGE if the draft model cannot propose for this one; those of reading weights.  For
 *  proposer_close also after a failure. */
enum error_code proposer_open(struct proposer *, const struct speculation *, struct device *,
                              const struct model_config *model, int64_t requests, const struct serving_limits *limits,
                              struct error *);
void proposer_close(struct proposer *);

/** Whether a draft model can propose for a model, for sequences of so many tokens.  @return OK, or ERR_USAGE. */
enum error_code proposer_takes(const struct model_config *draft, const struct model_config *model, int64_t tokens,
                               struct error *);

/**
 * Propose tokens behind the first `count` of a sequence; fewer than the most where its answer ends.
 * @param[out] token  [most]
 * @param[out] tokens how many; 0: none.
 * @return OK; ERR_MEMORY; ERR_DIVERGED of the draft model.
 */
enum error_code proposer_propose(struct proposer *, const struct request *, const struct sequence *, int64_t count,
                                 int32_t *token, int64_t *tokens, struct error *);

/** A module reads the model's stream behind the last layer, of an iteration's rows.  @return OK or ERR_INTERNAL. */
enum error_code proposer_read_stream(struct proposer *, const struct iteration *, struct tensor stream,
                                     struct error *);

/** The distribution that proposal i of a sequence was drawn from: valid until its next proposals. */
const double *proposer_distribution(const struct proposer *, int64_t number, int64_t i);

/** Charge the device's clock with the proposals since the last call. */
void proposer_charge(struct proposer *);

/** A sequence has ended. */
void proposer_forget(struct proposer *, int64_t number);

/** The tokens behind the last place where a sequence had its last tokens before.  Pure.
 *  @param token  [count]  @param longest  tokens that are compared, at most.
 *  @param[out] place  where they begin.  @return how many there are up to the end; 0: its last token is new. */
int64_t ngram_find(const int32_t *token, int64_t count, int64_t longest, int64_t *place);

#endif
