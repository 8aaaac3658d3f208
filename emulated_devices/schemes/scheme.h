/* scheme.h -- the head that schemes of every kind begin with, and the registry of all schemes.
 *
 * A scheme is one way to split one part of the work over one axis of the mesh.  Its kind defines the part and the
 * interface that the model calls:
 *
 *     kind       axis  part of the work                                called through
 *     TENSOR     tp    matrices, norms, embeddings, the loss           tensor/tensor.h
 *     ATTENTION  cp    attention over a sequence                       attention/attention.h
 *     EXPERTS    ep    the experts of a mixture                        experts/experts.h
 *     DATA       dp    weights, gradients, optimizer state             data/data.h
 *     PIPELINE   pp    layers                                          pipeline/schedule.h
 *     SPATIAL    -     fields on the sphere: no model's, no plan's     spatial/spatial.h
 *
 * The list, the command line, verification and counters need only the head.  A new scheme is a file and a line in
 * registry.c.  One that plans or adapts has invariants as well: right results do not show that it does so.
 */
#ifndef ORRERY_SCHEME_H
#define ORRERY_SCHEME_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

enum scheme_kind {
    TENSOR_SCHEME, ATTENTION_SCHEME, EXPERT_SCHEME, DATA_SCHEME, PIPELINE_SCHEME,
    PLAN_KINDS,                         /* those before it are chosen by a plan, by a flag of training */
    SPATIAL_SCHEME = PLAN_KINDS, SCHEME_KINDS
};

/* How results compare with those of one device, from the closest to the most distant. */
enum equality {
    PERMUTES,                           /* data only moves: the same bits */
    REASSOCIATES,                       /* sums in another order: a bound is derived from the data */
    DIFFERS,                            /* another function by design; the one-device run computes the same one */
};

/* An invariant names one thing that a scheme which plans or adapts must do, besides right results.  An example: the
 * scheme moves, copies or chooses the least.  `orrery verify` holds every microbatch of its cases to the invariant. */
struct invariant {
    const char *name, *sentence;        /* the sentence says what holds */
    /* Compare what was done with what holds, which is computed without the scheme's own code.  Local.
     * @param seen              of the scheme's kind: struct context_seen, struct expert_seen.
     * @param[in,out] checked   grows by what was compared; it stays where nothing was to be decided.
     * @return OK; ERR_CHECK with both numbers; ERR_MEMORY. */
    enum error_code (*holds)(const void *seen, int64_t *checked, struct error *);
};
enum { INVARIANTS_MOST = 6 };           /* of a scheme */

struct scheme {
    enum scheme_kind kind;              /* the registry that it is in */
    enum equality equality;             /* how near its results are to those of one device */
    const char *name;                   /* as typed */
    const char *description, *source;   /* one line; the paper or program that defines it */
    const char *volume, *memory;        /* formulas: what a device sends, and what it holds */
    const char *needs;                  /* the required group, as text; NULL: any group */
    const struct invariant *invariants; /* at most INVARIANTS_MOST, then one without a name; NULL: it decides nothing */
};

/* The names of a kind of schemes. */
struct scheme_kind_info {
    const char *name;                   /* in commands: `orrery list tensor` */
    const char *title;                  /* in the list */
    const char *flag;                   /* the flag that chooses a scheme; NULL: none does */
    const char *family;                 /* the family of cases: `orrery verify tensor` */
    const char *prefix;                 /* of names that `make` makes schemes of; NULL: none */
    enum error_code (*make)(const struct scheme **, const char *name, struct error *);
};
const struct scheme_kind_info *scheme_kind_info(enum scheme_kind);

enum { SCHEMES_MOST = 128 };            /* of all kinds, with those of plug-ins, and one for the end of the list */

/** The scheme at this place among those of its kind, from 0; the first is the default.
 *  @return NULL after the last. */
const struct scheme *scheme_at(enum scheme_kind, int place);

/** Find a scheme by name, or make and add it, if the name has the prefix for that: then before a plan is made.
 *  @return OK; ERR_USAGE naming the flag and the most similar name; the errors of making. */
enum error_code scheme_find(const struct scheme **, enum scheme_kind, const char *name, struct error *);

/** Add one to the list, as the last: before a plan is made, and in the same order on every device.  It must live as
 *  long as the program.  @return OK; ERR_FORMAT: its head lacks something, or the name is taken; ERR_MEMORY: the list
 *  is full. */
enum error_code scheme_add(const struct scheme *, struct error *);

/** The promise of a class of equality, as text. */
const char *equality_meaning(enum equality);

/* Each kind's own type begins with the head, so pointers to the two can be cast into each other. */
#define SCHEME_CASTS(kind_, type)                                                                                     \
    static inline const struct type *type##_at(int place) { return (const struct type *)scheme_at(kind_, place); }    \
    static inline enum error_code type##_find(const struct type **found, const char *name, struct error *err)         \
    {                                                                                                                 \
        const struct scheme *s = NULL;                                                                                \
        const enum error_code e = scheme_find(&s, kind_, name, err);                                                  \
        *found = (const struct type *)s;                                                                              \
        return e;                                                                                                     \
    }

#endif
