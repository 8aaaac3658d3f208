/* engine_nano.h -- nano-batches in the engine: each operation of a layer is done on some rows of an iteration at a
 * time, so that one engine of the device computes while another reads memory and a third is on the network (overlap.h).
 *
 * The numbers are computed operation by operation, part by part.  Each part's time alone on the device is noted:
 * kernels by what they wait for, arithmetic or memory, and what lies between them, messages.  The device's clock then
 * has the time of these items on three engines, in place of one item after another.
 *
 * How a plan is searched: iterations are classed by the power of two in their tokens.  The first one of a class is
 * computed with every number of parts and every size of the first ones, and forgotten but for its times, which do not
 * depend on the numbers.  The device that draws takes the fastest of them, with the best order and shares.
 *
 * Source  NanoFlow: bench/serving/nano.h.  engine.c calls these functions.
 */
#ifndef ORRERY_ENGINE_NANO_H
#define ORRERY_ENGINE_NANO_H

#include "emulated_devices/device/clock.h"
#include "emulated_devices/model/answering.h"
#include "emulated_devices/serve/overlap.h"
#include "emulated_devices/serve/scheduler.h"

struct device;
struct engine;
struct serving_job;

/* A job asks for parts of the operations up to attention, and of those behind it; 0: they are searched. */
struct nano_asked { bool cuts; int batches[2]; };

/* How iterations of a class are cut. */
struct nano_cut {
    int batches[2];                     /* as row_cuts has them */
    int first;                          /* rows in front of the middle cut, in eighths */
    struct overlap_rule rule;           /* order and shares */
};

enum { NANO_CLASSES = 32 };             /* of iterations: class c has from 2^c tokens on */

/* Sums over iterations of the device that draws, of all operations of layers; in picoseconds. */
struct nano_counts {
    double engine[OVERLAP_ENGINES];     /* each engine's work alone */
    double passed;                      /* the time that the engines took together */
    int64_t iterations[NANO_CLASSES];   /* of each class */
    struct nano_cut cut[NANO_CLASSES];  /* that they had */
};

struct nano_engine {
    struct row_cuts rows;               /* of the iteration */
    struct overlap_item *item;          /* [items] of the iteration; room for more */
    int items, room, number;            /* number: of the next operation */
    bool lost;                          /* an item had no memory */
    struct { picoseconds now, computing, held; double flops, bytes; } begun;    /* when a part began */
    struct overlap_item sent[ROW_PARTS];        /* [sends] messages of an operation's parts */
    int sends;
    bool known[NANO_CLASSES];           /* classes that have been searched */
    struct nano_counts counts;          /* of the classes that are known */
    struct token_piece *piece;          /* [running] the pieces of some rows of an iteration */
    struct iteration part;              /* of them */
};

/** Whether iterations of a job can be cut, if that is asked for.  @return OK or ERR_PLAN. */
enum error_code nano_takes(const struct serving_job *, struct error *);

/** Have room for pieces.  @return OK or ERR_MEMORY. */
enum error_code nano_open(struct engine *, struct error *);
void nano_close(struct engine *);

/** Compute the rows of an iteration, whose blocks are here, in nano-batches; the device's clock has their time on three
 *  engines.  Collective over the replica.
 *  @param pass  computes the iteration as the engine's answering says.
 *  @return OK; ERR_MEMORY; errors of the pass. */
enum error_code nano_compute(struct engine *, const struct iteration *,
                             enum error_code (*pass)(struct engine *, const struct iteration *, struct error *),
                             struct error *);

/** The pieces of an iteration that have these of its rows.  @return valid until the next call. */
const struct iteration *nano_rows(struct engine *, const struct iteration *, int64_t first, int64_t count);

#endif
