/* experts.h -- one call of an expert scheme without a model: for drawings and measurements.
 *
 * An expert multiplies by its number + 1, so each result is known.  Every device has equally many tokens, and all
 * experts get equally many if E divides tokens x k; or the load follows Zipf's law: the first expert gets most.
 * bench/schemes/dispatch_count.c, bench/schemes/dispatch_load.c, draw/dispatch/ and drawn.c call these functions.
 */
#ifndef ORRERY_VERIFY_EXPERTS_H
#define ORRERY_VERIFY_EXPERTS_H

#include "emulated_devices/schemes/experts/experts.h"
#include "ref/model/config.h"

/* E experts of width F, k choices of each token, tokens of each device, D numbers of a row; devices = ep x etp. */
struct expert_shape {
    int64_t E, k, tokens, D, F;         /* as above */
    int ep, etp;                        /* parts of the experts; parts of each expert's F */
    int local;                          /* so many of 100 choices are of the device's own experts, with E = k ep; 0: as
                                         * many as an even load gives */
    bool zipf;                          /* expert e gets a share of the choices like 1/(e+1) */
    struct expert_copying copying;      /* of schemes that copy experts */
    int parts;                          /* in which rows travel, of schemes that have parts; -1: they choose */
};

struct expert_layer {
    struct expert_shape shape;          /* as given */
    struct model_config config;         /* of a model with one such mixture */
    struct tensor_parallel tp;          /* gives device and model to the scheme */
    struct group along_ep, along_etp, part[EXPERT_GROUPS];
    struct expert_parallel ep;          /* this device's share */
    struct expert_routing routing;      /* of the call */
    struct mixture_call call;           /* its tensors are this device's rows */
    struct tensor piece[2];             /* stands for each expert's matrices and their gradients, all 0 */
};

/** The choice i, from 0 to k-1, of token `t` of a device: choices of a token are different experts.  Pure. */
int32_t expert_layer_choice(const struct expert_shape *, int device, int64_t t, int64_t i);

/** Create one device's groups and rows.  Local.
 *  @return OK; ERR_PLAN if the scheme does not take these devices; ERR_MEMORY.  Call expert_layer_close after all. */
enum error_code expert_layer_open(struct expert_layer *, struct comm *, const struct expert_scheme *,
                                  struct expert_shape, struct error *);
void expert_layer_close(struct expert_layer *);

/** Announce what the call's tokens choose.  Collective over all devices.  @return the scheme's error. */
enum error_code expert_call_announce(const struct mixture_call *, struct error *);

/** For schemes that expect loads: a step with these choices has been.  Collective over all devices.
 *  @return as expert_layer_announce. */
enum error_code expert_layer_learn(struct expert_layer *, struct error *);

/** Announce the rows, and run the passes of the call: forward; then backward.  Collective over all devices.
 *  @return OK, or the scheme's error: the other devices still wait; call comm_give_up. */
enum error_code expert_layer_announce(struct expert_layer *, struct error *);
enum error_code expert_layer_run(struct expert_layer *, struct error *);

/** Traffic of this device in these, by the scheme's formulas of the routing. */
struct traffic expert_layer_cost(const struct expert_layer *);

/** Whether the results and all gradients are those of one device. */
bool expert_layer_right(const struct expert_layer *);

#endif
