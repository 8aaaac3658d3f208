/* routing.h -- the choices of a mixture's router, from the program's own logits.  Inside check/ only.
 * route.c, routed.c and choice.c implement it; experts.c, places.c, loss.c and mistakes/ use it. */
#ifndef ORRERY_SINGLE_ROUTING_H
#define ORRERY_SINGLE_ROUTING_H

#include "emulated_devices/check/recompute/parts.h"

struct routing {
    int layer;                          /**< Layer of the router. */
    int64_t E, k;                       /* experts that compute; choices of a token */
    int64_t rows;                       /* choices that an expert computes */
    struct tensor logits, weights;      /* [N, E + those without computation], [N,k]: recomputed, dropped ones 0 */
    struct tensor experts;              /* I32 [N,k]: as in ref/ops */
    struct tensor order, counts;        /* I32 [rows], [E] */
    int64_t *start;                     /* [E] of a tile: the whole's row that an expert's first row here is */
    int64_t whole;                      /* of a tile: the whole's rows */
};

/* Find the choices by logits of this slot.  Where two experts have equal logits, the program's rows show which it
 * took; if they are not there, what follows from the choice may be in doubt (single.doubt). */
struct routing routing_of(struct single *, int logits);
struct routing routing_of_all(struct single *, int logits);

/* Inside: make room for the choices of the tile's tokens; rows from these choices. */
void routing_room(struct single *, struct routing *);
void routing_sort(struct single *, struct routing *);

/* Read a tile's rows of a tensor with a row for each choice (routed.c). */
struct tensor routing_input(struct single *, struct single_name, const struct routing *, int64_t cols,
                            enum single_found *);
struct single_sizes routing_sizes(struct single *, struct single_name, const struct routing *, struct tensor x);
/* The current result has these rows of the whole: single.row_of. */
void routing_note_rows(struct single *, const struct routing *);
/* Free what is kept of a layer's choices. */
void routing_forget(struct single *);

/* Find the choices of tokens that are open [N], `count` of them; rows are sorted as if the first was taken.
 * @return whether all are known. */
bool routing_settle(struct single *, struct routing *, int logits, const bool *open, int64_t count);
/* Put a token's chosen experts with equal logits in the order that the gradients of its weights show. */
void routing_order(struct single *, struct routing *, int logits);

/* How many rows a slot has: a row for each choice that an expert computes. */
int64_t routing_rows(struct single *, const struct single_slot *);

static inline int64_t routing_token(const struct routing *routing, int64_t row)
{
    return ((const int32_t *)routing->order.data)[row] / routing->k;
}

static inline double routing_weight(const struct routing *routing, int64_t row, struct tensor weights)
{
    return numbers(weights)[((const int32_t *)routing->order.data)[row]];
}

static inline int64_t routing_count(const struct routing *routing, int64_t expert)
{
    return ((const int32_t *)routing->counts.data)[expert];
}

/* A score's error is multiplied by this in a weight: weights may be divided by their sum, which is at least that
 * share of all scores if they are a softmax. */
double routing_times(const struct single *, const struct routing *);

/* Whether there is one balance loss, of the whole batch and all layers together, as transformers has it. */
bool router_balances_all(const struct single *);

/* The routers' losses, of all layers, and how far they may be off. */
struct router_losses { double balance, z, sequence, off_balance, off_z, off_sequence; };
struct router_losses router_losses_of(struct single *);

/* The weights of choices, and these losses, add this to the gradient of a layer's logits. */
struct single_value router_weights_input(struct single *, const struct single_node *, const struct routing *);
struct single_value router_losses_input(struct single *, const struct routing *);
bool router_has_losses(const struct single *);

#endif
