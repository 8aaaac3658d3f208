/* replay.h -- our model's run of a golden file: every tensor the file has of the computation, from the file's start. */
#ifndef ORRERY_REPLAY_H
#define ORRERY_REPLAY_H

#include "ref/golden/golden.h"
#include "ref/model/perturb.h"

enum { RECORD_NAME = PARAM_NAME + 32 };

struct record { char name[RECORD_NAME]; struct tensor values; };

struct replay {
    const struct golden *golden;
    struct transformer model;
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    struct record *record;              /* [records] in order of execution, named as in the file */
    int records;
    struct perturbation disturbance;
    struct observer disturb;            /* see == NULL: an undisturbed run */
    enum error_code failed;             /* to remember a tensor */
};

/**
 * One pass over the first batch, then all steps of each optimizer, everything from the file's starting weights.
 * @param twin    0, or the seed of a disturbance of every tensor; the starting weights as well.
 * @param lambda  its size: see perturb.h.
 * @return OK; ERR_FORMAT if the file lacks what to start from; ERR_MEMORY.  On failure there is nothing to free.
 */
enum error_code replay_run(struct replay *, const struct golden *, enum dtype, uint64_t twin, double lambda, struct error *);

/** The same, disturbed in another way: as for a coarser format than the replay's own.  @param disturb  copied; NULL: not at all. */
enum error_code replay_disturbed(struct replay *, const struct golden *, enum dtype, const struct perturbation *disturb, struct error *);

/**
 * One pass over the batch of a golden file that has no file: config, seed and the first step's ids and labels are read.
 * @param dir  where the weights are: see weights.h; NULL: drawn from the seed.
 * @return as replay_run and weights_load; ERR_USAGE if a token is not in the vocabulary.
 */
enum error_code replay_batch(struct replay *, const struct golden *, enum dtype, const char *dir, struct error *);
void replay_free(struct replay *);

struct apart { double relative; int64_t worst; };       /* norm of the difference over norm of want; the element furthest off */

/** How far two tensors of the same size are apart; NaN if there is one in either. */
struct apart tensor_apart(struct tensor got, struct tensor want);

/** How far a record is from the file.  want: room for the file's tensor, which its data becomes; for free(). */
enum error_code replay_compare(const struct replay *, int record, struct apart *, struct tensor *want, struct error *);

/** Whether everything computed in the file was computed here, once.  @return OK, or ERR_CHECK with the first that was not. */
enum error_code replay_covers(const struct replay *, struct error *);

#endif
