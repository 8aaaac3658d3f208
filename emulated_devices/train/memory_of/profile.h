/* profile.h -- a memory profile: which tensors a framework's training program allocates for each operation of a model.
 *
 * A profile is a table.  A rule says for one operation what its forward pass saves for its backward pass, and which
 * tensors both passes allocate, in their order.  An operation without a rule allocates its output forward and the
 * gradients of its inputs backward; it saves its input, and what the emulated devices themselves keep for it.  The rest
 * of a profile says in which formats weights, gradients and optimizer states are kept and reduced.
 *
 * replay.c walks a plan's schedule with these rules.  Files of train/memory_of/, cli/ and run/ use this header.
 * memory_profile_find reports ERR_USAGE for a name that does not exist.
 */
#ifndef ORRERY_MEMORY_PROFILE_H
#define ORRERY_MEMORY_PROFILE_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

struct memory_rule;                     /* rules.h */

/* When a gradient that the backward pass of a matrix writes is freed. */
enum gradient_life {
    ADDED_AT_ONCE,                      /* into the kept buffer, before the next operation */
    UNTIL_PART_ENDS,                    /* with its layer's reduce-scatter */
    UNTIL_PASS_ENDS                     /* when the microbatch's backward pass ends */
};

/* Bytes of an element. */
struct memory_formats {
    int weight;                         /* kept from step to step, by the data scheme's shards of weights */
    int gathered;                       /* of weights gathered for use, or cast for it; 0: the kept ones are used */
    int made;                           /* of a gradient as the backward pass writes it; 0: it adds to the kept one */
    int gradient;                       /* of the gradients that the optimizer reads, by shards of gradients */
    int reduced;                        /* of the buffer of a reduce-scatter */
    int master;                         /* beside each weight that the device steps; 0: none */
    int state;                          /* of each state of the optimizer */
    int step;                           /* of what the optimizer's step allocates for all that it steps */
};

struct memory_profile {
    const char *name, *title;           /* of --memory-of; of the list */
    const char *source;                 /* released code that the rules restate */
    const char *prints;                 /* the number that such programs print */
    const struct memory_rule *rules;    /* of all operations */
    const struct memory_rule *last_rules, *cut_loss;    /* of the part with the loss, before those of all; of the loss
                                                         * over a cut vocabulary; NULL: none */
    struct memory_formats formats;      /* formats of weights, gradients and states */
    enum gradient_life life;            /* how long gradients live */
    bool expandable;                    /* the programs run with expandable segments */
    bool fused;                         /* queries, keys and values are one matrix, gate and up another */
    bool saves_gathered;                /* gathered rows of sequence parallelism are saved; else only under
                                         * --tensor 1d-sp-keep, and gathered again under others */
    bool copies_gathered;               /* rows are gathered, and scattered, through one more copy in their order */
    bool saves_matrices;                /* --recompute selective keeps every second product, and attention's */
    bool root_stays;                    /* embedding, last norm and head stay gathered for the whole step */
    bool keeps_gradients;               /* a buffer of all gradients exists all the time */
    bool keeps_sent;                    /* a pipeline stage keeps its outputs until their backward pass */
    bool receives_apart;                /* each microbatch has its own receive buffers, all the time */
    int64_t bucket;                     /* elements of a bucket of gradients; 0: none */
};

/** The profile at a place of the registry.  @return NULL behind the last one. */
const struct memory_profile *memory_profile_at(int place);

/** Find a profile.  @return OK, or ERR_USAGE listing the names. */
enum error_code memory_profile_find(const struct memory_profile **, const char *name, struct error *);

#endif
