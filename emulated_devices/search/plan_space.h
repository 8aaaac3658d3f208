/* plan_space.h -- the plans that a search chooses from: every way to train one model on so many devices.
 *
 * A plan is a value for each dimension: the mesh, the number of microbatches, what is recomputed, and a scheme for each
 * axis that has more than one device.  Schemes come from the registry (schemes/registry.c), so a new one takes part
 * with its line there.  Schemes that train another function (DIFFERS) do if a list names them.  plan_check says what a
 * plan may not be.
 *
 * A scheme of two dimensions over cp has several splits, and a data scheme may take any shards (arrange.h); these are
 * chosen where the caller asks for it.
 *
 * All microbatches have as many sequences: dp divides the batch, and the number of microbatches divides a copy's part.
 * A schedule whose number of stages on a device is free has as many as cut the layers evenly, or one.
 *
 * Callers: the planners beam.c and exhaustive.c, search.c, changes.c, and through these cli/train.
 */
#ifndef ORRERY_PLAN_SPACE_H
#define ORRERY_PLAN_SPACE_H

#include "emulated_devices/comm/mesh.h"
#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>

struct plan;

/* X(id, name of the option that limits its values) */
#define DIMENSIONS(X)                           \
    X(BY_MESH,      NULL)                       \
    X(BY_MICROS,    "--micro")                  \
    X(BY_RECOMPUTE, "--recompute")              \
    X(BY_TENSOR,    "--tensor")                 \
    X(BY_ATTENTION, "--attention")              \
    X(BY_SPLIT,     "--head-parallel")  /* of cp: heads, windows and placement of a scheme of two dimensions */ \
    X(BY_EXPERTS,   "--dispatch")               \
    X(BY_DATA,      "--data-parallel")          \
    X(BY_SHARDS,    "--shards")         /* of a data scheme that takes any: W,G,O */ \
    X(BY_SCHEDULE,  "--schedule")               \
    X(BY_STAGES,    "--stage-layers")   /* layers of the stages; only even ones unless its list says so */ \
    X(BY_CHUNKS,    "--chunks")                 \
    X(BY_OFFLOAD,   "--offload")    /* of optimizer state; only if its list says so */

enum dimension {
#define X(id, flag) id,
    DIMENSIONS(X)
#undef X
    DIMENSION_COUNT
};

/* Sizes of a mesh's axes; the experts' parts lie over the devices of a stage. */
struct arrangement { int size[AXIS_COUNT], ep; };

/* A choice has a value for each dimension. */
struct choice { int value[DIMENSION_COUNT]; };

struct plan_space {
    const struct plan *base;            /* what all plans have in common: model, batch, formats, optimizer, cluster */
    int devices;                        /**< Number of devices of each plan. */
    const char *only[DIMENSION_COUNT];  /* names with commas between, or NULL: all */
    const char *sizes[AXIS_COUNT];      /* numbers of devices along an axis, likewise; EP: parts of the experts */
    const char *windows;                /* numbers of devices of an inner ring, likewise */
    bool splits, shards;                /* whether splits of cp, and shards, are chosen; false: the base's, or the
                                         * defaults */
    bool context_first;                 /* only splits whose neighbours are on one ring */
    struct arrangement *mesh;           /* [meshes], set by plan_space_open */
    int meshes;                         /**< Entries of `mesh`. */
};

/** List the meshes.  @return OK; ERR_USAGE: a word of a list is no name or number; ERR_PLAN: there is no mesh;
 *  ERR_MEMORY. */
enum error_code plan_space_open(struct plan_space *, struct error *);
void plan_space_close(struct plan_space *);

/** Whether a list of numbers with commas between has a number; NULL has every number. */
bool plan_space_list_has(const char *list, int number);

/** The option that limits a dimension, "--tensor"; NULL: none does. */
const char *plan_space_flag(enum dimension);

/** How many values of a dimension there may be for a plan whose earlier dimensions are set. */
int plan_space_values(const struct plan_space *, enum dimension, const struct plan *);

/** Set a dimension of a plan.  @return whether the plan may have this value, as far as this dimension knows. */
bool plan_space_set(const struct plan_space *, enum dimension, struct plan *, int value);

/** Make the plan of a choice.  @return whether it can be trained. */
bool plan_space_make(const struct plan_space *, const struct choice *, struct plan *);

/** Call a function with every legal plan and its choice, always in the same order.  @return OK, or the first error of
 *  the function. */
typedef enum error_code plan_space_fn(const struct plan *, const struct choice *, void *context, struct error *);
enum error_code plan_space_each(const struct plan_space *, plan_space_fn *, void *context, struct error *);

/** Whether the plan can be trained: plan_check, and what it adds to the plan. */
bool plan_space_is_legal(struct plan *);

/** Say why a planner found no plan: what refuses most of the first thousands of choices, or that a legal one exists.
 * @return ERR_PLAN, with the reason in err. */
enum error_code plan_space_explain(const struct plan_space *, struct error *err);

enum { PLAN_WORDS = 400 };
/** The words of `orrery train` that choose this plan, beside those that all plans have in common.  @return text. */
const char *plan_space_words(const struct plan *, char *text, size_t size);

/** The words in which a plan differs from another one on the same mesh.  @return text. */
const char *plan_space_difference(const struct plan *from, const struct plan *to, char *text, size_t size);

/** How many of these words differ from those of a plan of the space's base. */
int plan_space_unusual(const struct plan *base, const struct plan *);

#endif
