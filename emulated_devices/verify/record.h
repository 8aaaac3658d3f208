/* record.h -- every activation of the one-device model and its gradient, kept for a step, each with its bound.
 *
 * Serial; on the device that compares (rank 0).  The truth is recorded as it is computed; then the twin computes the
 * same tensors in the same order, and how far each of its is from the truth is that tensor's bound.
 */
#ifndef ORRERY_RECORD_H
#define ORRERY_RECORD_H

#include "ref/model/perturb.h"

struct recorded {
    char name[32];                      /* as announced: "attn.qkv" */
    int layer;                          /* -1 before the blocks, L after */
    bool gradient;
    struct tensor truth;                /* [B*S, columns] */
    double norm;                        /* of the truth */
    double distance;                    /* norm of twin - truth */
    double known;                       /* where bounds are known: its own, 0 if unknown */
};

struct recording {
    const struct model_config *model;   /* whose activations these are */
    struct recorded *all;               /* [count] in order of execution */
    int count, room;
    int next;                           /* the one that is announced next */
    struct error error;                 /* an error within an observer, which cannot return it */
    bool bounds_known;                  /* from elsewhere: the twin's are not used */
    struct observer disturb;            /* of the twin, before it is measured */
};

/** For the truth: records.  context: the record, which must outlive it. */
struct observer recording_observer(struct recording *);

/** For the twin: lets `disturb` change each tensor, then measures it. */
struct observer measuring_observer(struct recording *, struct observer disturb);

/** Before each of the two passes of a step. */
static inline void record_rewind(struct recording *r) { r->next = 0; }

/** The bound of a tensor, norm over norm; + 2u.  0 if it is not to be compared. */
double recorded_bound(const struct recording *, const struct recorded *);

/** Its full name: "h.3.attn.qkv", "ln_f".  @return out. */
const char *activation_name(char *out, size_t size, const char *name, int layer, int layers);

void record_free(struct recording *);

#endif
