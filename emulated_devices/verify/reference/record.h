/* record.h -- every activation of the one-device model and its gradient, kept for one step, each with its bound.
 *
 * Serial; on the device that compares (rank 0).  The truth is recorded while it is computed.  Then the twin computes
 * the same tensors in the same order, once or several times with other errors; the largest distance of each from the
 * truth is that tensor's bound.
 *
 * Callers: reference.c records and measures, golden_truth.c keeps those of a file, compare.c and verify/dump/ read
 * them.
 */
#ifndef ORRERY_RECORD_H
#define ORRERY_RECORD_H

#include "ref/model/perturb.h"

struct recorded {
    char name[32];                      /* as the observer gets it: "attn.qkv" */
    int layer;                          /* -1 before the blocks, L after */
    bool gradient;                      /* the tensor is a gradient */
    struct tensor truth;                /* [B*S, columns] */
    struct tensor unrounded;            /* the sums that it was rounded from, EXACT, where these are kept; or none */
    double norm;                        /* of the truth */
    double distance;                    /* norm of twin - truth, the largest of all twins */
    double known;                       /* the bound of a golden file's tensor; 0: none */
    struct tensor file;                 /* that tensor, where the truth is not it: beside exact sums; or none */
};

struct recording {
    const struct model_config *model;   /* whose activations these are */
    struct recorded *all;               /* [count] in order of execution */
    int count, room;                    /* entries of `all`, and for how many there is memory */
    int next;                           /* the next one expected */
    struct error error;                 /* an error inside an observer, which cannot return it */
    struct observer disturb;            /* applied to the twin's tensors before they are measured */
};

/** An observer for the truth: records each tensor.  The recording must outlive it. */
struct observer recording_observer(struct recording *);

/** An observer for the twin: calls `disturb` on each tensor, then measures its distance. */
struct observer measuring_observer(struct recording *, struct observer disturb);

/** Call before each pass, of the truth or of a twin. */
static inline void record_rewind(struct recording *recording) { recording->next = 0; }

/** The bound of a tensor, norm over norm, with the rounding of what is stored. */
double recorded_bound(const struct recording *, const struct recorded *);

/** Its full name: "h.3.attn.qkv", "ln_f".  @return out. */
const char *activation_name(char *out, size_t size, const char *name, int layer, int layers);

void record_free(struct recording *);

#endif
