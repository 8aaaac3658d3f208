/* context_index.h -- what each device does of a plan, as lists, so that a device of a thousand need not read the whole
 * plan in every pass.
 *
 * context_plan_finish makes the index of a finished plan; planned_pass.c, planned_cost.c and remap.c read it.  A device
 * does something of a message if it sends, receives or carries it: with proxies, any device of either node.
 */
#ifndef ORRERY_ATTENTION_CONTEXT_INDEX_H
#define ORRERY_ATTENTION_CONTEXT_INDEX_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"
#include "emulated_devices/schemes/attention/planned/remap.h"

/* Numbers of entries of a list of the plan, ascending, device after device. */
struct context_list {
    int64_t *first;                     /* [devices + 1] where each device's begin in `at` */
    int *at;                            /* [first[devices]] */
};

/* A device that works with a block's data, and is not its home. */
struct context_guest { int block, device; };

struct context_index {
    int *first_work;                    /* [devices + 1] the plan's works are sorted by device */
    int *first_block;                   /* [devices + 1] its blocks are sorted by home */
    int64_t *row;                       /* [blocks] of a block's first token, among those of its home */
    int64_t longest;                    /* tokens of the longest block */
    struct context_list here;           /* blocks of which a device has, sends, receives or carries something */
    struct context_list moves;          /* of the plan's moves */
    struct context_guest *guest[2];     /* of each enum context_data: by block, then by device */
    int guests_in_all[2];               /* entries of both */
    struct context_list guests[2];      /* of their entries */
    struct remap_run *run;              /* rows that move, or stay, between attention and the rest */
    int runs, room;                     /* entries of `run`; for how many there is memory */
    struct context_list remapped;       /* of them */
    int32_t *position;                  /* tokens of all devices in attention, device after device */
    int64_t *start;                     /* [devices + 1] where each device's begin */
};

/** Make the index of a sorted plan.  Local.  @return the index, or NULL without memory. */
struct context_index *context_index_make(const struct context_plan *);
void context_index_free(struct context_index *);

/** Where a block is in a device's list `here`; the block is there. */
int context_index_here(const struct context_index *, int device, int block);

/** Whether a device that is not a block's home works with the block's data. */
bool context_index_has_guest(const struct context_index *, enum context_data, int block, int device);

/** The entries of a device. */
static inline int64_t context_list_count(const struct context_list *list, int device)
{
    return list->first[device + 1] - list->first[device];
}
static inline const int *context_list_of(const struct context_list *list, int device)
{
    return list->at + list->first[device];
}

#endif
