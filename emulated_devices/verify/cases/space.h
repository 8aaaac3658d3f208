/* space.h -- the dimensions of all cases on a number of devices, and their values from the registries.
 *
 * A new scheme, optimizer or model becomes a value of its dimension when it is registered.  plan_check decides which
 * values can be combined (plan/compose.c).  cases.c and jobs/schemes.c call these functions.
 */
#ifndef ORRERY_SPACE_H
#define ORRERY_SPACE_H

#include "emulated_devices/plan/batch_plan.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/verify/cases/covering.h"

enum dimension {
    DIM_MESH, DIM_MODEL, DIM_EMBEDDING, DIM_ROUTER, DIM_BALANCE, DIM_TENSOR, DIM_ATTENTION, DIM_SPLIT, DIM_EXPERTS,
    DIM_DATA, DIM_SCHEDULE,
    DIM_MICROS, DIM_BATCHES, DIM_SAMPLES, DIM_CLIPS, DIM_MASK, DIM_CHUNKS, DIM_PLACEMENT, DIM_OPTIMIZER,
    DIM_PROFILE, DIM_FORMAT, DIM_RECOMPUTE,
    DIM_CODES, DIM_OFFLOAD, DIM_TILES, DIM_GATHERING, DIM_BUCKET, DIMENSIONS
};

/* A form is an expert scheme, the parts of the experts, the slices of each expert, a degree (-1: the scheme's
 * choice), and what is copied. */
struct expert_form { const struct expert_scheme *scheme; int ep, etp, degree, parts; struct expert_copying copying; };

/* A form is a data scheme with its group sizes. */
struct data_form { const struct data_scheme *scheme; int group, shards[3]; };

enum {
    SPACE_MOST_MESHES = 512, SPACE_MOST_FORMS = 512, SPACE_MOST_SPLITS = 128, SPACE_MOST_EXPERTS = 512, SPACE_MICROS = 3
};

struct space {
    int devices;                        /* of every plan */
    enum exact_rule exact;              /* only plans with sums by this rule; SUMS_ROUND: all plans */
    const char *full;                   /* the table that has no room for all its values; NULL: none */
    enum scheme_kind kind;              /* of the current cases */
    int values[DIMENSIONS];             /* numbers of values of each dimension */
    int meshes, mesh[SPACE_MOST_MESHES][AXIS_COUNT];    /* ways to factor the devices into axes */
    int forms;                          /* entries of `form` */
    struct data_form form[SPACE_MOST_FORMS];    /* data schemes with their shards */
    int splits;                         /* entries of `split` */
    struct context_split split[SPACE_MOST_SPLITS];      /* of attention schemes of two dimensions */
    int expert_forms;                   /* entries of `expert_form` */
    struct expert_form expert_form[SPACE_MOST_EXPERTS]; /* ways to divide the experts */
    struct batch_plan *batches;         /* [devices][SPACE_MICROS]: uneven, for each size of dp and number of
                                         * microbatches; steps 0 where dp cannot have that size */
};

/** Set all dimensions for a number of devices.  exact: only formats with exact sums.  Local.
 *  @return OK, ERR_MEMORY, or ERR_PLAN: a table is too small for its values; call space_close in every case. */
enum error_code space_open(struct space *, int devices, enum exact_rule, struct error *);
void space_close(struct space *);

/** The dimension of a kind's schemes. */
enum dimension space_of_kind(enum scheme_kind);

/** Whether a dimension varies in the cases of a kind.  One that concerns only other kinds stays at its default. */
bool space_varies(enum scheme_kind, enum dimension);

/** The plan of a choice, before plan_check. */
struct plan space_plan(const struct space *, const struct choice *);

/** The check of a covering.  context: a space.  @return OK; ERR_PLAN from plan_check; ERR_USAGE if the mesh does not
 *  split the axis of the kind's schemes. */
enum error_code space_check(const void *context, const struct choice *, struct error *);

/* A value's name as text, returned by value. */
struct value_name { char text[40]; };

/** A value's name in the table and in messages, such as "zero3 /2" or "offload /3". */
struct value_name space_value(const struct space *, enum dimension, int value);
const char *dimension_name(enum dimension);

/**
 * The choice with the most default values whose plan must end with the same bits: every dimension that changes no bits
 * is set to its default.
 * @return whether it is another choice.
 */
bool space_plain(const struct space *, const struct choice *, struct choice *plain);

#endif
