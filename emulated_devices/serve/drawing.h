/* drawing.h -- the device of a replica that draws its tokens.
 *
 * The first device of the last stage draws each token from the logits of its row, with the request's own settings and
 * seed.  Where tokens are proposed, it settles which are taken, and proposes the next.  With a check it keeps the
 * logits of each answer, and judges the answer when it ends.
 *
 * engine.c calls these functions.  They are local.
 */
#ifndef ORRERY_DRAWING_H
#define ORRERY_DRAWING_H

#include "emulated_devices/serve/engine.h"
#include "ref/model/transformer.h"

struct kept_logits;

struct drawing {
    const struct serving_job *job;      /* the caller's; NULL: not open */
    struct device *device;              /* likewise */
    int64_t V;                          /* the vocabulary */
    struct proposer proposer;           /* of next tokens */
    bool proposes;                      /* false: another replica goes on with each answer after its first token */
    struct kept_logits *kept;           /* [requests] with a check: of answers that have not ended */
    double *p;                          /* [2V] probabilities, and scratch */
    struct transformer model;           /* with a check: the reference */
    struct judge judge;                 /* likewise */
};

/** @param most  tokens of a prompt with its answer: the requests of the job may have more, those that come later not.
 *  @return OK; ERR_MEMORY; those of reading weights.  For drawing_close also after a failure. */
enum error_code drawing_open(struct drawing *, const struct serving_job *, struct device *, int64_t most,
                             struct error *);
void drawing_close(struct drawing *);

/**
 * Draw the tokens of an iteration.
 * @param logits     [samples + proposals, V] in the model's format, in the host's memory; NULL on a backend without
 *                   numbers, where each answer has tokens of its own that mean nothing.
 * @param[out] told  the tokens of its pieces, with proposals for the next iteration (told.h).
 * @return OK; ERR_MEMORY; ERR_DIVERGED naming the request whose logits have no value.
 */
enum error_code drawing_draw(struct drawing *, const struct iteration *, const void *logits, int32_t *told,
                             struct error *);

/** A sequence has ended; with a check, judge its answer.  @return as judge_answer. */
enum error_code drawing_end(struct drawing *, const struct sequence *, struct verdict *, struct error *);

/** A sequence leaves without an end here: forget what is kept of its answer. */
void drawing_forget(struct drawing *, int64_t request);

/** With a check: the row of logits [V] that chose the first token of a request.  Another replica keeps the row. */
const void *drawing_row(const struct drawing *, int64_t request);
/** @return OK or ERR_MEMORY. */
enum error_code drawing_keep(struct drawing *, int64_t request, const void *row, struct error *);

#endif
