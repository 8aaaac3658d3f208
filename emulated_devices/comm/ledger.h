/* ledger.h -- what one device sends and adds up: by kind of scheme, by operation, and by the level of the link.
 *
 * A device has the same book three times, and all three must be equal:
 *
 *     counted     message by message, as they leave
 *     expected    call by call: each call enters what its formula says of the sizes that it was given
 *     predicted   before the run, from the table of the model, the plan and its schedule
 *
 * The kind says which schemes use a group: with dp = 1 the groups of two kinds can have the same members.  Files of
 * schemes/, model/, collectives/, comm/ and other rooms call these functions.  No function returns an error code.
 */
#ifndef ORRERY_LEDGER_H
#define ORRERY_LEDGER_H

#include "emulated_devices/device/cluster.h"
#include <stdbool.h>

#define OPERATIONS(X)                        \
    X(POINT_TO_POINT, "send")                \
    X(BROADCAST,      "broadcast")           \
    X(REDUCE,         "reduce")              \
    X(ALLREDUCE,      "allreduce")           \
    X(REDUCE_SCATTER, "reduce-scatter")      \
    X(ALLGATHER,      "allgather")           \
    X(ALLTOALL,       "alltoall")            \
    X(GATHER,         "gather")              \
    X(SCATTER,        "scatter")             \
    X(BARRIER,        "barrier")             \
    X(SCAN,           "scan")                \
    X(SPARSE_ALLGATHER,      "sparse-allgather")       \
    X(SPARSE_REDUCE_SCATTER, "sparse-reduce-scatter")  \
    X(CONTROL,        "control")    /* agreement, reports, comparison: what the emulation itself says, not the model */

enum operation {
#define X(id, name) id,
    OPERATIONS(X)
#undef X
    OPERATION_COUNT
};
const char *operation_name(enum operation);

/* Whose messages they are.  A new kind of schemes adds a line. */
#define TRAFFIC_KINDS(X)                                                                                             \
    X(TRAFFIC_OTHER,     "other")       /* groups without a scheme: tests, benchmarks, messages of the emulation */  \
    X(TRAFFIC_TENSOR,    "tensor")      /* parts of layers */                                                        \
    X(TRAFFIC_ATTENTION, "attention")   /* parts of sequences */                                                     \
    X(TRAFFIC_EXPERTS,   "experts")     /* tokens to experts and back */                                             \
    X(TRAFFIC_DATA,      "data")        /* weights, gradients */                                                     \
    X(TRAFFIC_PIPELINE,  "pipeline")    /* activations between stages; gradients of weights on several stages */     \
    X(TRAFFIC_SPATIAL,   "spatial")     /* tiles of a grid */                                                        \
    X(TRAFFIC_ENCODERS,  "encoders")    /* embeddings of what is not text, and their encoders' gradients */          \
    X(TRAFFIC_RESULT,    "result")      /* losses, norms, sums over routers */

enum traffic_kind {
#define X(id, name) id,
    TRAFFIC_KINDS(X)
#undef X
    TRAFFIC_KIND_COUNT
};
const char *traffic_kind_name(enum traffic_kind);

/* Messages and their payload. */
struct sent { uint64_t messages, bytes; };

/* A device did this, or is to do this.  Exact: compared by ==. */
struct traffic {
    uint64_t messages_sent, bytes_sent;         /* payload bytes; zero-byte messages count as messages */
    uint64_t messages_received, bytes_received; /* counted only */
    uint64_t additions;                         /* element-wise reductions performed, one an element */
    struct sent level[CLUSTER_LEVELS];          /* of what is sent, by the level of the link; CONTROL has none */
};

struct account { struct traffic of[OPERATION_COUNT]; };         /* of one kind */
struct ledger { struct account of[TRAFFIC_KIND_COUNT]; };

/** One more message, or several of the same size, over a link of this level. */
void traffic_send(struct traffic *, int level, uint64_t bytes, uint64_t times);

/** sum += t. */
void traffic_add(struct traffic *sum, const struct traffic *traffic);

/** sum += times c.  times < 0 takes out again what was entered. */
void account_add(struct account *sum, struct account account, int64_t times);

/** All operations together, but CONTROL. */
struct traffic account_total(const struct account *);
static inline struct traffic ledger_kind(const struct ledger *ledger, enum traffic_kind kind)
{
    return account_total(&ledger->of[kind]);
}

/** Return what was sent over links of one level, all kinds and operations together. */
struct sent ledger_level(const struct ledger *, int level);

/** Whether two say the same of what is sent and added up; of one level alone if level >= 0.  What is received is not
 * compared. */
bool traffic_equal(const struct traffic *, const struct traffic *, int level);

#endif
