/* placement.h -- which devices have which experts in a step, from the load that is expected.  Pure functions.
 *
 * Source   Y. Qing et al., "Hecate", arXiv:2502.02581: algorithm 1 (sparse materialisation), algorithm 2 (heterogeneous
 *          sharding), the order in which tokens look for a replica, and the moving average of loads
 * Errors   expert_loads_open returns false without memory
 *
 * Every expert has one owner, for good.  For a step some of a layer's experts get replicas on other devices, which have
 * so many slots for them.  Loads are whole numbers, equal on all devices, and so is all that follows from them.  What
 * the paper leaves open, and what is taken here:
 *
 *   how many slots are used        as many as make the busiest device least busy: expert_place
 *   slots in proportion to load    one after another, each to the expert with the most load for each device that has it
 *   equal loads                    the expert, the device with the lowest number
 *   a node's load in algorithm 2   of the layer, for each of its devices
 *
 * fssdp.c materialises and sends rows by it; model/mixture.c shards for --owners-out.  Every device gets the same
 * answers from the same loads, so none has to be sent.
 */
#ifndef ORRERY_EXPERT_PLACEMENT_H
#define ORRERY_EXPERT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

/* The devices along ep, and the experts of a layer. */
struct expert_room {
    int64_t E;                          /* experts of the layer */
    int devices, node;                  /* members on each node, neighbours; 0: nodes do not matter */
    int slots;                          /* m: replicas that a device has room for in a layer */
    int degree;                         /* t: experts whose weights arrive while other work goes on; -1: no limit */
};

/** Algorithm 1.  t <= m: the t experts with the most load on all devices.  Otherwise all slots in proportion to load,
 *  each on the node, then the device, with the most free ones.
 *  @param load, owner  [E].  @param[out] held  [E, devices] which devices have which experts; owners are among them.
 *  @return whether there was memory; without, `held` is not set. */
bool expert_materialise(const struct expert_room *, const int64_t load[], const int32_t owner[], bool held[]);

/** Rows of the busiest device, if those of each expert come from all devices alike and go as expert_rows_to says.
 *  @param[out] busy  [devices] rows that each computes, `devices` times.  @return the most of them. */
double expert_busiest(const struct expert_room *, const int64_t load[], const bool held[], double busy[]);

/** Copies that never make a load less even: algorithm 1 with 0 to `slots` copies on a device, or with 0 to `degree`
 *  experts on all; of these the one whose busiest device has the fewest rows, and of equals the one with fewest
 *  copies.  More room is thus never worse, and an even load has no copies.
 *  @param[out] held  as expert_materialise.  @return whether there was memory. */
bool expert_place(const struct expert_room *, const int64_t load[], const int32_t owner[], bool held[]);

/** Algorithm 2: owners for all layers at once.  A device has as many experts as any other (one more, if they do not
 *  divide), but maybe more of one layer and fewer of another.  Those that are not among their layer's t with the most
 *  load go by load to the node, then the device, with the least load in their layer; then the others where room is.
 *  @param load  [layers, E].  @param[out] owner  [layers, E].
 *  @return whether there was memory; without, `owner` is not set. */
bool expert_shard(const struct expert_room *, int64_t layers, const int64_t load[], int32_t owner[]);

/** How many of a member's rows for an expert go to another: all to itself if it has the expert; else evenly to the
 *  devices of its node that have it; else evenly to all that have it.
 *  @param held  [devices] of this expert. */
int64_t expert_rows_to(const struct expert_room *, const bool held[], int64_t expert, int64_t rows, int from, int to);

/* ---- the load that is expected ----------------------------------------------------------------------------------- */

enum { LOAD_WINDOW = 5 };               /* steps whose loads count alike */

/* The choices of a layer's experts, by step. */
struct expert_loads {
    int64_t E, steps;                   /* that have ended */
    int64_t *count;                     /* [LOAD_WINDOW + 1, E] of the last steps; last of the one that goes on */
    bool *held;                         /* the placement of this step, [E, devices], free()d when it ends; NULL: none
                                         * was made yet */
};

/** @return whether there was memory. */
bool expert_loads_open(struct expert_loads *, int64_t E);
void expert_loads_close(struct expert_loads *);
/** Add choices to those of this step. */
void expert_loads_add(struct expert_loads *, int64_t expert, int64_t choices);
/** End the step. */
void expert_loads_turn(struct expert_loads *);
/** The sum over the last LOAD_WINDOW steps, or as many as there were: that many times their mean.
 *  @param[out] load  [E]; 0 before the first step has ended. */
void expert_loads_predict(const struct expert_loads *, int64_t load[]);

#endif
