/* dump_ranks.h -- `orrery train --check GOLDEN --dump FOLDER/`: each device writes what it has, as its part of a dump
 * (docs/checking/dumps.md): every microbatch of its activations, the boxes and shards of its parameters.
 * run/golden.c calls these functions. */
#ifndef ORRERY_VERIFY_DUMP_RANKS_H
#define ORRERY_VERIFY_DUMP_RANKS_H

#include "emulated_devices/verify/reference/probes.h"
#include "ref/golden/replay.h"
#include "ref/io/json.h"

/* This device's tensors. */
struct dump_ranks {
    const char *folder;                 /* NULL: none is written */
    struct record *all;                 /* [count] under their keys, NAME or NAME#PIECE */
    int count, room;                    /* tensors so far, and for how many there is memory */
    cJSON *layout;                      /* the metadata of that name */
    double *loss, *norm;                /* [steps] */
    int64_t steps;                      /* entries of loss and norm */
    int64_t begins;                     /* steps before the dump begins */
    int files;                          /* that have been written */
};

/**
 * Begin a dump after the steps that the trainer has done, and create its folder.  If there are some, the dump has the
 * weights and states after them.
 * @return OK or, on every device, ERR_FILE, also if the folder has a dump already, or ERR_MEMORY.
 */
enum error_code dump_ranks_open(struct dump_ranks *, const char *folder, struct trainer *, struct error *);

/** A step's loss and norm; the activations of its pass behind a prefix, "" or "adamw/2/": those that expected_is_dumped
 *  with `only`, and all rows of experts, if probes have kept some.  Before the optimizer's step:
 *  the gradients of the weights as `kind`, "grad" or "adamw/2/grad".  Local; activations are collective, and their code
 *  is the same on every device.  @return OK or ERR_MEMORY. */
enum error_code dump_ranks_numbers(struct dump_ranks *, const struct step_result *, struct error *);
enum error_code dump_ranks_activations(struct dump_ranks *, struct probes *, const char *prefix, const char *only,
                                       const struct step_result *, struct error *);
enum error_code dump_ranks_gradients(struct dump_ranks *, const struct trainer *, const char *kind,
                                     const struct step_result *, struct error *);

/** Weights and states after an optimizer's step.  @param step  0: the last one, without a number in their names. */
enum error_code dump_ranks_weights(struct dump_ranks *, const struct trainer *, int64_t step, struct error *);

/** Write what there is as the file of a step, 1, 2, ..., with its loss and norm, and begin the next one.  Collective.
 *  @return as dump_ranks_write. */
enum error_code dump_ranks_write_step(struct dump_ranks *, struct trainer *, int64_t step, struct error *);

/** Write.  Collective.  @param ends  first add losses and norms of all steps, and what is there after the last.
 *  @return OK or, on every device, ERR_FILE, ERR_MEMORY; a failure leaves no file. */
enum error_code dump_ranks_write(struct dump_ranks *, struct trainer *, bool ends, struct error *);
void dump_ranks_free(struct dump_ranks *);

#endif
