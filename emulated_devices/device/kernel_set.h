/* kernel_set.h -- which kernels a program runs for an operation: those of eager PyTorch, of its compiler, of others.
 *
 * A set is a file of device/kernels/sets/ (--kernels-of).  It says by which kernels attention is computed, and how long
 * an operation takes that moves bytes: in percent of a copy of the bytes that Orrery counts for it, since unfused
 * kernels read and write more; and how many kernels it starts.  A product may have kernels beside it, such as the sum
 * of a bias or of a gradient.  The device's own rates are in kernel_table.h.
 *
 * `unfused` attention has two products of stored scores forward and five backward, and moves the scores as often as
 * the set says.  kernel.c asks for the time of an operation; run/words/, cli/list/ and run/report/ find sets.
 */
#ifndef ORRERY_KERNEL_SET_H
#define ORRERY_KERNEL_SET_H

#include "emulated_devices/device/cluster.h"
#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SET_MOST_OPERATIONS = 64, SET_MOST_ATTENTION = 3 };
#define ATTENTION_UNFUSED "unfused"

/* The time in percent of a copy's, and the kernels that are started; 0 kernels: part of a neighbour's kernel. */
struct set_cost { int64_t percent, kernels; };

/* Costs by the names that operations have in traces. */
struct set_costs {
    int count;                          /* of `entry` */
    struct { char name[40]; struct set_cost cost; } entry[SET_MOST_OPERATIONS];
};

/* Where a program's host waits until its device has done all that it was given. */
enum host_wait { WAIT_RECEIVES,         /* at each receive of a pipeline */
                 WAIT_PLAIN_RECEIVES,   /* the same, if a device has one stage alone */
                 WAIT_PASSES,           /* at the end of each pass of a microbatch, whose time the host measures */
                 WAIT_NORM,             /* when the host reads the norm of gradients */
                 WAIT_STEP,             /* at the end of a step, when the host reads the loss */
                 HOST_WAITS };

struct kernel_set {
    char name[32], description[160], source[600], assumed[600]; /* texts of the file */
    int attentions;                     /* entries of `attention` */
    char attention[SET_MOST_ATTENTION][16];     /* by names of tables, the first that a device has; "unfused" */
    bool graphs;                        /* kernels start as parts of a graph */
    enum issue_kind issued;             /* what kind of software starts them */
    int64_t host_percent;               /* a start takes its host so many percent of the cluster's time for one */
    int64_t collective_kernels;         /* a collective takes the host as long as so many kernels */
    bool waits[HOST_WAITS];             /* where its host waits for the device */
    struct set_cost scores[2];          /* of unfused attention, forward and backward: of one pass over all scores */
    struct set_cost other;              /* of operations that are not named */
    struct set_costs operations;        /* of those that move bytes */
    struct set_costs products;          /* beside a product: percent of a copy of its result; kernels of both */
};

/** The sets that are part of the program, as JSON; ends with NULL.  Made from device/kernels/sets/ by make. */
extern const char *const kernel_set_texts[];

/** A set of the program.  @param i  from 0.  @return NULL behind the last, or if a text is wrong. */
const struct kernel_set *kernel_set_at(int i);

/** Find a set by its name.  @param flag  names it in messages.  @return OK, ERR_USAGE or ERR_FORMAT. */
enum error_code kernel_set_find(const struct kernel_set **, const char *flag, const char *name, struct error *);

struct kernel_table;

/** Check that a table has attention of the set.  @param flag  names the set in messages.  @return OK or ERR_USAGE. */
enum error_code kernel_set_check(const struct kernel_set *, const struct kernel_table *, const char *flag,
                                 struct error *);

/** Choose whose kernels programs run on a cluster, by the name that --kernels-of has.
 *  @return OK; ERR_USAGE, with the cluster as it was: an unknown name, no table of measured kernels, or none of the
 *  set's attention in the table; ERR_FORMAT. */
enum error_code kernel_set_choose(struct cluster *, const char *set, struct error *);

/** Read a set from memory, with a NUL after its last byte.  @param where  names it in messages. */
enum error_code kernel_set_parse(struct kernel_set *, const char *text, const char *where, struct error *);

/** The kinds of software that start kernels, as files name them. */
extern const char *const issue_kind_names[ISSUE_KINDS];

/** Whether scores of attention are stored. */
static inline bool kernel_set_is_unfused(const struct kernel_set *set)
{
    return strcmp(set->attention[0], ATTENTION_UNFUSED) == 0;
}

/** The cost of an operation that moves bytes, by its name in traces. */
struct set_cost kernel_set_cost(const struct kernel_set *, const char *what);

/** The cost beside a product of this name: its time in percent of a copy of the result, and the starts of both
 *  together; 0 and 1 if the set does not name the product. */
struct set_cost kernel_set_beside(const struct kernel_set *, const char *what);

/** How long the host of a program takes to start a kernel; 0 without a set, and on a cluster without such times. */
picoseconds kernel_set_pace(const struct kernel_set *, const struct cluster *);

#endif
