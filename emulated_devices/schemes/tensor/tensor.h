/* tensor.h -- the seam for tensor parallelism: every linear layer, embedding and loss of the model goes through it.
 *
 * A scheme says how each parameter is cut over the devices of the tp group and computes with the pieces.  The model
 * calls it with the same shapes whatever the scheme: activations of width D are whole on every device, those between a
 * layer's two matrices (heads, F) are the device's share, and so are logits (V).
 */
#ifndef ORRERY_TENSOR_SCHEME_H
#define ORRERY_TENSOR_SCHEME_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/layout.h"
#include "ref/model/config.h"

struct tensor_parallel {
    const struct tensor_scheme *scheme;
    const struct model_config *config;
    struct device *device;
    struct group *group;                        /* along tp */
    const char *allreduce;                      /* algorithm; NULL: the default */
    int64_t head, heads;                        /* this device's attention heads: the first, and how many */
    int64_t column, columns;                    /* of the feed-forward width */
    int64_t token, tokens;                      /* of the vocabulary */
};

/* What one pass over N tokens of one stage costs a device in traffic. */
struct tensor_cost_request {
    int64_t N;
    int layers;
    bool embedding, head;                       /* whether the stage has them */
};

struct tensor_scheme {
    const char *name, *description, *source;
    const char *volume, *memory;                /* formulas, for the list */

    /* OK, or ERR_PLAN in words that name the number that does not fit. */
    enum error_code (*check)(const struct model_config *, int P, struct error *);
    /* This device's share of heads, columns and tokens. */
    void (*share)(struct tensor_parallel *);
    struct layout (*layout)(const struct tensor_parallel *, const struct param_spec *);
    /* Whether the devices of the group hold the same copy of a parameter (else each holds a part). */
    bool (*replicated)(enum param_role, int ndim);

    /* role tells which linear layer it is, and so whether X or Y is the part that is cut. */
    enum error_code (*linear_forward)(struct tensor_parallel *, enum param_role, struct tensor Y, struct tensor X,
                                      struct tensor W, struct tensor b, struct error *);
    enum error_code (*linear_backward_input)(struct tensor_parallel *, enum param_role, struct tensor dX, struct tensor dY,
                                             struct tensor W, struct error *);
    void (*linear_backward_weight)(struct tensor_parallel *, enum param_role, struct tensor dW, struct tensor db,
                                   struct tensor dY, struct tensor X);
    enum error_code (*embedding_forward)(struct tensor_parallel *, struct tensor Y, struct tensor ids, struct tensor W, struct error *);
    void (*embedding_backward_weight)(struct tensor_parallel *, struct tensor dW, struct tensor dY, struct tensor ids);
    /* top, total and hit of the whole vocabulary from the device's logits; sum of the losses of all tokens. */
    enum error_code (*cross_entropy_forward)(struct tensor_parallel *, double *loss, struct tensor top, struct tensor total,
                                             struct tensor hit, struct tensor logits, struct tensor labels, struct error *);
    void (*cross_entropy_backward)(struct tensor_parallel *, struct tensor dlogits, struct tensor logits, struct tensor total,
                                   struct tensor top, struct tensor labels, double scale);

    /* Messages, bytes and additions of this device on the tp group, forward and backward, exactly. */
    struct collective_cost (*cost)(const struct tensor_parallel *, struct tensor_cost_request);
};

extern const struct tensor_scheme *const tensor_schemes[];      /* ends with NULL; [0] is the default */

/** A scheme by name.  @return OK, or ERR_USAGE naming the nearest. */
enum error_code tensor_scheme_find(const struct tensor_scheme **, const char *name, struct error *);

#endif
