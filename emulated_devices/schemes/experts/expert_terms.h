/* expert_terms.h -- products of experts whose F is cut over devices, with sums that do not round (ref/exact/).
 *
 * The devices agree on the largest size of each row of both operands, for all their experts at once; then each
 * multiplies its part, and the finished sums round once.  model/run/run_experts.c calls these functions;
 * model/link/link_cost.c and model/run/run_mixture.c ask for the forecast.
 */
#ifndef ORRERY_EXPERT_TERMS_H
#define ORRERY_EXPERT_TERMS_H

#include "emulated_devices/schemes/experts/experts.h"

/* The devices with other columns of F of the same experts and the same rows, and what they multiply. */
struct expert_terms {
    struct group *group;                /**< Group of these devices. */
    struct device *device;              /**< This device. */
    const char *allreduce;              /* algorithm; NULL: the default */
    struct interval experts;            /* that are computed here */
    int64_t rows;                       /* of which sums are sent: at least as many as there are */
    bool clears;                        /* other devices count these sums: here they become 0 */
    const int32_t *counts;              /* [E] rows of each expert */
};

/* An expert's matrix, or its gradient, and its bias, or none.  Experts without rows have none. */
struct expert_matrix { struct tensor W, b; };

/** Y [R,D] = X [R,F'] W^T + b of each expert; dX [R,D] = dY [R,F'] W; dW += dY^T X, db += sums of dY's columns.  F' are
 *  this device's columns of what is cut: of X, of dY, or, for the weights, of dY if cuts_dY, else of X.  list: [E].
 *  Collective over the group.  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code expert_terms_forward(const struct expert_terms *, const struct expert_matrix *list, struct tensor Y,
                                     struct tensor X, struct error *);
enum error_code expert_terms_input(const struct expert_terms *, const struct expert_matrix *list, struct tensor dX,
                                   struct tensor dY, struct error *);
enum error_code expert_terms_weight(const struct expert_terms *, const struct expert_matrix *list, bool cuts_dY,
                                    struct tensor dY, struct tensor X, struct error *);

/** Enter what a pass through the experts sends on a group: of so many experts, and of so many rows. */
void forecast_expert_terms(struct forecast *, const struct group *, int64_t experts, int64_t rows, enum tensor_pass);

#endif
