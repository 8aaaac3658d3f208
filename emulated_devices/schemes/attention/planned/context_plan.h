/* context_plan.h -- where the tokens of one microbatch are, and who computes which part of its attention.
 *
 * Schemes that plan per batch make such a plan from the lengths of the samples.  A planner is pure: every device makes
 * the same plan from the same numbers, and devices compare digests before they send anything.
 *
 * Tokens are numbered through all sequences of the microbatch.  A block is a few tokens of one sample on one device,
 * its home: their queries, keys and values, and later their results.  A work is attention of one block's queries with
 * one block's keys.  Blocks that a device needs and does not have are moved to it; work on queries of another device
 * sends its result to their home at the end.
 *
 * plan/context.c makes a load, calls a scheme's planner and keeps the plan; planned.c and flexsp.c run it.  The digests
 * of all members are compared by model/trainer_batch.c.
 */
#ifndef ORRERY_ATTENTION_CONTEXT_PLAN_H
#define ORRERY_ATTENTION_CONTEXT_PLAN_H

#include "emulated_devices/device/interval.h"
#include "ref/error.h"
#include "ref/io/sha256.h"
#include "ref/model/attention_mask.h"
#include <stdlib.h>

/* The facts from which a planner plans.  Samples lie one after another. */
struct context_load {
    const int64_t *length;              /* [samples] tokens, each at least 1 */
    int samples;                        /* samples of the microbatch, or of all `micros` */
    int64_t tokens;                     /* their sum */
    int micros, micro;                  /* the samples are those of so many microbatches, of which this one is planned,
                                         * with some of them; 0: of one */
    int devices;                        /* that share the microbatch */
    int node;                           /* devices of a node, which are neighbours */
    int64_t room;                       /* tokens of a microbatch that a device can hold; 0: not known */
    double per_pair, per_token;         /* operations of a layer's forward pass: for a pair of tokens that see each
                                         * other, and for a token */
    double per_element;                 /* operations in the time in which a link of the node sends a number */
    double per_far_element;             /* the same of a link to another node */
    double per_micro;                   /* operations in the time in which the kernels of a layer are started: no
                                         * microbatch takes less */
    int layers;                         /* of a stage of the pipeline */
    double per_kept;                    /* operations in the time in which what a layer keeps of a token is copied to
                                         * the slow tier; 0: activations stay on the device */
    int64_t heads;                      /* the fewest query heads of a device of tp */
    int64_t query_width, key_width;     /* numbers of a token: its queries, and as many results; its keys and values */
    unsigned without;                   /* a bit for each of the scheme's parts that the plan leaves out: attention.h */
    const int32_t *sees;                /* [tokens, ranges, 2] what each token sees of its sample, as the mask of struct
                                         * attention: first and end, ascending.  NULL: its sample up to itself */
    int ranges;                         /* ranges of a token in `sees` */
    int32_t *made;                      /* `sees`, if context_load_mask has made them; NULL: given, or causal */
};

struct context_block {
    struct interval tokens[2];          /* ascending; the second may be empty */
    int home;                           /* device that has the tokens */
};

enum context_data { CONTEXT_QUERIES, CONTEXT_KEYS };

/* `device` computes attention of block `query` to block `key` while division `division` runs. */
struct context_work { int query, key, device, division; };

/* Sent while the work of its division is computed, and there for the next one. */
struct context_move { enum context_data data; int block, from, to, division; };

/* Neighbours that exchange tokens for heads: all work on the samples of their blocks, with different heads.  A plan
 * with groups lists no work and no moves. */
struct context_group { int first, devices; };

/* Tokens whose rows a device has outside attention. */
struct context_rows { struct interval tokens; int device; };

struct context_index;

struct context_plan {
    int devices, divisions;             /* members of the cp group; rounds of work, between which blocks move */
    int proxies;                        /* neighbours, a node, who together carry what one of them sends to another
                                         * node: proxies.h; 0: it goes straight */
    int64_t tokens;                     /* of all samples of the plan */
    struct context_block *block;        /* by home, then by first token */
    struct context_work *work;          /* by device, division, query, key */
    struct context_move *move;          /* by division, block, data, to */
    struct context_group *group;        /* by first device; all devices are in one.  NULL: there are none */
    struct context_rows *row;           /* by device, then by token.  NULL: as in attention, those of its blocks */
    int blocks, works, moves, groups, rows, room[5];    /* entries of the five lists; for how many each has memory */
    bool lost;                          /* there was no memory for all */
    double *away;                       /* [devices] the part of a stage's layers, less two, whose activations leave for
                                         * the slow tier between forward and backward, if they may; NULL: all */
    double *pairs;                      /* [works], or [groups], of tokens that see each other; set by
                                         * context_plan_finish */
    struct sha256_text digest;          /* likewise */
    struct context_index *index;        /* likewise: what each device does of it (context_index.h) */
    int *users;                         /* plans that have these lists in common; NULL: this one alone */
};

/** Add to a plan, which begins as zeros with its devices and tokens set.  @return the block's number, until
 *  context_plan_finish sorts them. */
int context_add_block(struct context_plan *, struct interval, struct interval, int home);
void context_add_work(struct context_plan *, struct context_work);
void context_add_move(struct context_plan *, struct context_move);
void context_add_group(struct context_plan *, int first, int devices);
void context_add_rows(struct context_plan *, struct interval, int device);

/** Add a sample of at least D tokens on D devices, which have equal work under a causal mask: it is cut into 2D parts,
 *  of which the m-th device has parts m and 2D-1-m, and keys travel around a ring of the D, from one division to the
 *  next.  Under another mask work without pairs is left out; keys travel all the same. */
void context_add_ring(struct context_plan *, const struct context_load *, struct interval sample, const int device[],
                      int D, int division);

/** The samples from the longest to the shortest, equal ones in their order.  Pure.
 *  @return [samples], for free, or NULL without memory. */
struct interval *context_samples(const struct context_load *);

/**
 * Sort, check and digest a plan: every token is in one block, or no token of a sample, if there are other microbatches;
 * a device's blocks do not interleave; every pair of tokens of a sample that see each other is computed once, and no
 * work is empty; each block sees something; data is there when it is sent and when work needs it; nothing is sent to a
 * device that has it; rows outside attention are those of the blocks.
 * Local.
 * @return OK; ERR_PLAN naming what is wrong, or ERR_MEMORY; the plan is freed after an error.
 */
enum error_code context_plan_finish(struct context_plan *, const struct context_load *, struct error *);
void context_plan_free(struct context_plan *);

/** Make one more plan with the lists of a finished one, which nobody changes any more; they are freed with the last.
 *  @return OK, for context_plan_free; or ERR_MEMORY, with nothing to free. */
enum error_code context_plan_share(struct context_plan *, struct context_plan *from, struct error *);

/** Make the ranges that tokens see under a mask of each sample; none if the mask is causal.  Local.
 *  @return OK, or ERR_MEMORY with nothing made. */
enum error_code context_load_mask(struct context_load *, const struct attention_mask *, struct error *);

/** Free the lengths, if they are memory of their own, and the ranges that were made. */
static inline void context_load_free(struct context_load *load)
{
    free((void *)(uintptr_t)load->length), free(load->made);
    load->length = NULL, load->sees = load->made = NULL;
}

/** Whether planners know the same of both, so that they make the same plan; never of loads with given ranges. */
bool context_load_same(const struct context_load *, const struct context_load *);

/** The checks of context_plan_finish, of a sorted plan.  Local.  @return as there; the plan stays as it is. */
enum error_code context_plan_check(const struct context_plan *, const struct context_load *, struct error *);

/** The token after the last one of a block. */
int64_t context_block_end(const struct context_block *);

/** The number of tokens of a block; the tokens of all blocks of a device, which are added to a list; those that it has
 *  outside attention. */
int64_t context_block_tokens(const struct context_block *);
void context_plan_attended(struct intervals *, const struct context_plan *, int device);
void context_plan_tokens(struct intervals *, const struct context_plan *, int device);

/** Whether a device computes with a block's queries, or with its keys; of a finished plan. */
bool context_works_with(const struct context_plan *, enum context_data, int block, int device);

/** The group that a device is in; the plan has groups. */
int context_group_of(const struct context_plan *, int device);

/** Pairs of a token of one block and one of another, of the same sample, that it sees. */
double context_pairs(const struct context_load *, const struct context_block *query, const struct context_block *key);

/** Pairs in a work and in all work of a device, of a finished plan. */
double context_work_pairs(const struct context_plan *, const struct context_work *);
double context_device_pairs(const struct context_plan *, int device);

#endif
