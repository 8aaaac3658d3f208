/* attention.h -- attention of one layer over sequences that are cut, without a model: for drawings, measurements and
 * tests.  attention_layer_open also returns ERR_PLAN, if the plan's devices are not those of the comm.
 * bench/schemes/attention_device.c and draw/attention/ call these functions. */
#ifndef ORRERY_VERIFY_ATTENTION_H
#define ORRERY_VERIFY_ATTENTION_H

#include "emulated_devices/plan/plan.h"

/* B sequences of S tokens; H query heads and K key/value heads of width A. */
struct attention_shape { int64_t B, S, H, K, A; };

struct attention_layer {
    struct plan plan;                   /* mesh, batch and model of the layer */
    struct tensor_parallel tp;          /* one device: all heads */
    struct group one, along, part[ATTENTION_GROUPS];
    struct context_parallel cp;         /* this device's share */
    struct context_plan placed;         /* from a scheme that makes plans: each sequence is one sample */
    int32_t *sees;                      /* [B*S, 2] the usual mask, with such a plan and without another one */
    struct attention_call call;         /* with this device's rows of queries, keys, values and gradients */
};

/**
 * A plan in which P devices share each sequence; for attention_layer_open.
 * @param attention  a scheme's name.
 * @param split      as in a plan: 0 means the default.
 * @param cluster    whose nodes decide which collectives fit; NULL: all distances are equal.
 * @return OK, or plan_check's error.
 */
enum error_code attention_layer_plan(struct plan *, struct attention_shape, enum dtype, const char *attention,
                                     struct context_split split, int P, const struct cluster *cluster, struct error *);

/**
 * Create one device's groups and tensors: those of the call, undefined, and as ACTIVATIONS those that the scheme keeps.
 * Local; an outline of a comm suffices for attention_layer_cost.
 * @param mask  for a scheme that makes plans: as in plan_context, of all sequences; the layer keeps it.
 * @return OK or ERR_MEMORY; call attention_layer_close after both.
 */
enum error_code attention_layer_open(struct attention_layer *, const struct plan *, struct comm *, struct tensor mask,
                                     struct error *);
void attention_layer_close(struct attention_layer *);

/** Compute out, or d_qkv; call with FORWARD_PASS first.  Collective over all devices.
 *  @return OK, or the scheme's error: the other devices still wait; call comm_give_up. */
enum error_code attention_layer_pass(struct attention_layer *, enum tensor_pass, struct error *);

/** Traffic of this device in a pass, by the scheme's cost function: in all, and over each level of links. */
struct traffic attention_layer_cost(const struct attention_layer *, enum tensor_pass);

#endif
