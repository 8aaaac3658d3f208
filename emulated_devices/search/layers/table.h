/* table.h -- layers x strategies: what each layer takes with each strategy, the one input of all planners by layers.
 *
 * A strategy is a mesh and schemes on a number of devices.  A plan by layers cuts the layers into stages of the
 * pipeline, gives each stage devices, and each layer a strategy on as many devices.  Its time is
 *
 *     sum of all stages' times + hops between stages + (microbatches - 1) x the longest stage's time
 *
 * with a stage's time for one microbatch: its layers, and an edge wherever neighbours lay out the residual stream
 * differently.  What comes once a step counts with its part of a microbatch.  A stage keeps the state of its layers,
 * and activations of as many microbatches as 1F1B has there: stages from it to the end, or all if these are fewer.
 * A stage of n devices begins at a multiple of n, so that its neighbours share a node.
 *
 * All numbers are whole, so that a planner and brute force can be compared with ==.  table_make.c makes a table from
 * steps that are planned on the virtual clock; table_file.c reads and writes one.
 *
 * Callers: the planners of this folder, cli/train/layered.c, and verify/.  The functions are local.
 */
#ifndef ORRERY_SEARCH_TABLE_H
#define ORRERY_SEARCH_TABLE_H

#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/device/cluster.h"
#include "ref/error.h"

enum { LAYERS_MOST = 256, STAGES_MOST = 64, STRATEGIES_MOST = 1024, SIZES_MOST = 16 };

struct strategy {
    char name[192];                     /* "dp 2 tp 4 1d-sp zero3 recompute full" */
    int devices;                        /* of a stage whose layers have it */
    int layout;                         /* strategies that cut the residual stream alike have one number */
    int axis[AXIS_COUNT];               /* sizes of its mesh; all 0: a file's, which is no plan of a model */
    char tensor[32], attention[32], data[32], recompute[32];    /* schemes; "" likewise */
    int ep;                             /* parts of the experts over the devices; 0 or 1: each device has all */
    char dispatch[32];                  /* how rows travel to them; "" likewise */
};

/* A layer with a strategy, on each of its devices. */
struct layer_cost {
    bool there;                         /* false: the layer cannot have the strategy */
    picoseconds time;                   /* forward and backward of a microbatch, with all that is waited for */
    picoseconds once;                   /* besides, once a step: reduced gradients, the optimizer */
    picoseconds computing;              /* the part of `time` that is no waiting for messages */
    uint64_t state, activation;         /* bytes kept; bytes for each microbatch in flight */
    uint64_t sent[CLUSTER_LEVELS];      /* bytes that a device sends in a step, by the level of the link */
    uint64_t shared;                    /* of these, weights and gradients: to the copies of the layer */
};

/* A product of a layer, [rows, inner] x [inner, columns], of a microbatch. */
struct layer_product { int64_t rows, inner, columns; };
enum { LAYER_PRODUCTS_MOST = 8 };

/* An operator reads what another has computed. */
struct layer_link { int from, to; };

struct layer_table {
    char title[160];                    /* "llama3-8b on h100-node" */
    int devices, micros;                /* of a plan */
    int layers, kinds, *kind;           /* [layers] layers of a kind take the same */
    int strategies;                     /* entries of `strategy` */
    struct strategy *strategy;          /* [strategies] */
    struct layer_cost *cost;            /* [kinds * strategies] */
    int layouts;                        /* different ways to cut the residual stream */
    picoseconds *edge;                  /* [layouts * layouts] from one to the next, forward and backward */
    int sizes, size[SIZES_MOST];        /* different numbers of devices, ascending */
    uint64_t beside[SIZES_MOST];        /* bytes that a stage of this size needs besides its layers */
    picoseconds hop[SIZES_MOST][SIZES_MOST];    /* a microbatch's way from a stage of one size to the next, and back */
    int *percent;                       /* [devices] speed of each device; NULL: all have 100 */
    uint64_t stream;                    /* bytes of a microbatch's residual stream, whole */
    int levels;                         /* of links: neighbours share the first */
    struct { int devices; double rate; } level[CLUSTER_LEVELS];         /* of a unit, 0: all; 10^6 bytes a second */
    double *bandwidth;                  /* [devices * devices] measured rates from one device to another, likewise;
                                         * NULL: those of the levels */
    int products;                       /* entries of `product`; 0: the table does not say them */
    struct layer_product product[LAYER_PRODUCTS_MOST];  /* of every layer, each reading the one before: for rec_core */
    int links;                          /* entries of `link` */
    struct layer_link *link;            /* [links] a graph of operators; NULL: each layer reads the one before */
};

void layer_table_free(struct layer_table *);

/** Set sizes and layouts from the strategies, and check that numbers go together.  @param where  names the table in
 *  messages.  @return OK; ERR_FORMAT or ERR_PLAN. */
enum error_code layer_table_check(struct layer_table *, const char *where, struct error *);

/** A layer's costs with a strategy. */
static inline const struct layer_cost *layer_cost_of(const struct layer_table *table, int layer, int strategy)
{
    return &table->cost[table->kind[layer] * table->strategies + strategy];
}

/** The time of a microbatch, with its part of what comes once a step. */
static inline picoseconds layer_time(const struct layer_table *table, int layer, int strategy)
{
    const struct layer_cost *const cost = layer_cost_of(table, layer, strategy);
    return cost->time + (cost->once + table->micros - 1) / table->micros;
}

/** Bytes of a layer with so many microbatches in flight. */
static inline uint64_t layer_memory(const struct layer_table *table, int layer, int strategy, int flight)
{
    const struct layer_cost *const cost = layer_cost_of(table, layer, strategy);
    return cost->state + (uint64_t)flight * cost->activation;
}

/** The time between two layers of a stage. */
static inline picoseconds layer_edge(const struct layer_table *table, int from, int to)
{
    return table->edge[table->strategy[from].layout * table->layouts + table->strategy[to].layout];
}

/** The place of a number of devices among the sizes; -1: no strategy has as many. */
int layer_size_find(const struct layer_table *, int devices);

/** A stage's time on these devices: by the slowest of them. */
picoseconds layer_slowed(const struct layer_table *, picoseconds time, int first_device, int devices);

/** The rate from one device to another, 10^6 bytes a second; 0: the table says none. */
double layer_bandwidth(const struct layer_table *, int from, int to);

/** Microbatches in flight in a stage: `after` counts it and all stages behind it. */
static inline int layer_flight(const struct layer_table *table, int after)
{
    return after < table->micros ? after : table->micros;
}

/** The least memory of a stage with the layer that needs most, one microbatch in flight: no plan needs less. */
uint64_t layer_table_least(const struct layer_table *);

/* ---- plans ------------------------------------------------------------------------------------------------------- */

struct layer_plan {
    int stages;                         /* of the pipeline */
    int first[STAGES_MOST + 1];         /* layer of each stage, then the number of layers */
    int devices[STAGES_MOST];           /* of each stage */
    int strategy[LAYERS_MOST];          /* of each layer */
};

/* The table says this of a plan. */
struct layer_verdict {
    picoseconds time;                   /* of a step */
    picoseconds stages, hops, longest;  /* sums over stages and hops; the longest stage, all of one microbatch */
    uint64_t memory;                    /* of the fullest device */
    int slowest, fullest;               /* stages */
};

/** Judge a plan by the table.  @return whether the space has it: every layer's strategy is there and has the stage's
 *  devices, stages begin where they may, and all devices have work. */
bool layer_plan_judge(const struct layer_table *, const struct layer_plan *, struct layer_verdict *);

/** The sum of times of a stage's layers and edges, on devices of full speed; of a graph all its links. */
picoseconds layer_stage_time(const struct layer_table *, const struct layer_plan *, int stage);

/** Whether stage `s` may begin after so many devices. */
static inline bool layer_stage_begins(int before, int devices) { return before % devices == 0; }

enum { LAYER_PLAN_WORDS = 4000 };
/** The plan as text: "layers 0-3 on devices 0-1: dp 2 zero1 | ..".  @return text. */
const char *layer_plan_describe(const struct layer_table *, const struct layer_plan *, char *text, size_t size);

/** The layers that follow each other in a stage with one strategy: where the run that begins at a layer ends. */
int layer_plan_run_end(const struct layer_plan *, int layer);

/* ---- of a model: table_make.c ------------------------------------------------------------------------------------ */

struct plan_space;
struct crew_stop;

/**
 * Make the table of a space's model on its devices, from planned steps of few layers: with one and two layers, one and
 * two microbatches, in one stage and in two.
 * @param space   its lists say which meshes and schemes there are; a dimension without a list has a few usual ones.
 * @param micros  microbatches of a step.
 * @param stop    when it shall end; its function may be NULL.
 * @return OK, for layer_table_free; ERR_PLAN: no strategy can be trained; ERR_STOPPED; ERR_MEMORY.
 */
enum error_code layer_table_make(struct layer_table *, const struct plan_space *space, int micros,
                                 const struct crew_stop *stop, struct error *);

/** Make the plan of a model that a plan by layers is: sections, whose names point into the table.
 *  @param base  model, batch, formats.  @return OK, for sections_free; ERR_PLAN or ERR_MEMORY with nothing to free. */
struct plan;
struct sections;
enum error_code layer_plan_sections(const struct layer_table *, const struct layer_plan *, const struct plan *base,
                                    struct plan *, struct sections *, struct error *);

/** Fill the sections of a plan by layers, also of one that the model cannot be trained with: of a table from a file.
 *  @return OK, for sections_free; ERR_MEMORY or ERR_PLAN with nothing to free. */
enum error_code layer_plan_fill(const struct layer_table *, const struct layer_plan *, const struct plan *base,
                                struct plan *, struct sections *, struct error *);

/* ---- files: table_file.c ----------------------------------------------------------------------------------------- */

/** Read a table.  @return OK, for layer_table_free; ERR_FILE, ERR_FORMAT, ERR_PLAN or ERR_MEMORY, with nothing to
 *  free. */
enum error_code layer_table_read(struct layer_table *, const char *path, struct error *);

/** Write it; "-" is the standard output.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code layer_table_write(const struct layer_table *, const char *path, struct error *);

#endif
