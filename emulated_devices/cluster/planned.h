/* planned.h -- prices of jobs by this program's own plans: `orrery plan` says what a step takes and holds, and the
 * collection of a job's tensors says what a change of its devices moves.
 *
 * A clock rate of f percent is a device with f percent of the operations a second; its memory and links keep their
 * rates.  The time of a move is that of the busiest device, at the rate of the slowest link on the way: in a node that
 * of the nearest links, else that of the farthest.
 *
 * cli/cluster/ and claims make such sources; price.c keeps what they say.
 */
#ifndef ORRERY_CLUSTER_PLANNED_H
#define ORRERY_CLUSTER_PLANNED_H

#include "emulated_devices/cluster/price.h"

struct train_options;

/* Reads words of `orrery plan`, and frees what it has read: both are of cli/train/, which is above. */
typedef enum error_code planned_parse_fn(struct train_options *, int words, const char *const word[], struct error *);
typedef void planned_free_fn(struct train_options *);

struct planned_source {
    const char *cluster;                /* name or file of its description */
    struct cluster description;         /* read from there */
    uint64_t memory;                    /* bytes of a device; 0: any number */
    planned_parse_fn *parse;            /**< Reads the words of a plan. */
    planned_free_fn *free;              /**< Frees a parsed plan. */
};

/** Read the description.  @return OK or as cluster_find; ERR_PLAN: a node has no power of two of devices. */
enum error_code planned_open(struct planned_source *, const char *cluster, planned_parse_fn *, planned_free_fn *,
                             struct error *);

/** The source, as long as the planned one stays. */
struct price_source planned_prices(struct planned_source *);

/** Devices of a node: those that share the nearest level which is not a pair.  Of a machine without nodes: all. */
int planned_node(const struct planned_source *, int devices);

#endif
