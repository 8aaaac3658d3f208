/* cluster.h -- the rates of devices and links of the machine that the virtual clock describes.
 *
 * A description is a small JSON file; docs/plans/virtual_clock.md explains each key.  device/clusters/ has the included
 * ones, which are part of the program.  Rates are integers, in millions per second, so a time in picoseconds is a
 * fraction of integers, rounded once.  Files of cli/, device/, bench/, run/ and other rooms call these functions.
 */
#ifndef ORRERY_CLUSTER_H
#define ORRERY_CLUSTER_H

#include "ref/error.h"
#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

typedef int64_t picoseconds;

enum { CLUSTER_LEVELS = 3 };            /* device pair, node, cluster */
enum { CLUSTER_MOST_PORTS = 8 };        /* of a device and direction, on all levels together */
enum { CLUSTER_MOST_SPEEDS = 64 };

#define ALWAYS_EAGER UINT64_MAX
#define CLUSTER_USUAL "toy"              /* what a device is part of unless another is named */

/* The link between two devices that share this level and no nearer one.
 * Every device has a port of its own for each direction, or several: separate links to others of the unit. */
struct link {
    char level[16];                     /* "pair", "node", "cluster": its name in traces */
    int devices;                        /* size of one unit: ranks 0 .. devices-1, and so on; 0: all devices */
    picoseconds latency;                /* of a message: alpha */
    picoseconds gap;                    /* a port is busy this long for each message, besides its bytes */
    int64_t rate;                       /* of a port, 10^6 bytes a second; 0: bytes take no time */
    int ports;                          /* of a device and direction; 0: 1 (link_port says which one a message uses) */
    uint64_t eager;                     /* longer messages wait until the receive is posted */
    bool reduces;                       /* its switches add what all members of a group send */
    char source[400];                   /* where its numbers come from: a data sheet, a measurement; "": not said */
};

/* Kinds of software that start kernels, each at its own pace; a set of kernels says of which kind it is. */
enum issue_kind { ISSUE_EAGER,          /* Python calls an operation, which starts a kernel */
                  ISSUE_COMPILED,       /* code that a compiler has made starts it */
                  ISSUE_GRAPH,          /* a graph of kernels starts as a whole */
                  ISSUE_KINDS };

/* How long a host takes to start kernels on its device (clock.h). */
struct issue {
    picoseconds kernel[ISSUE_KINDS];    /* for each kernel, by kinds of software; 0: kernels never wait for it */
    picoseconds step;                   /* for a step besides: batches, logs, the loop itself */
    char source[600];                   /* where its numbers come from; "": not said */
};

/* Each device's share of its host, which keeps and steps offloaded tensors (tier.h), and starts kernels. */
struct host {
    int64_t flop_rate[DTYPE_COUNT];     /* 10^6 operations a second; 0: they take no time */
    int64_t memory_rate, drive_rate;    /* 10^6 bytes a second: the host's memory; a drive, in each direction; 0: no
                                         * time */
    struct issue issue;                 /* its time to start kernels */
    char source[400];                   /* where the host's numbers come from; "": not said */
};

/* An operation, by its name in traces, reaches this share of the memory's rate. */
enum { CLUSTER_MOST_NAMED = 32 };
struct named_share { char name[32]; int64_t permille; };

struct kernel_table;
struct kernel_set;

/* How kernels fall short of the device's rates (kernel.h): by a table of measured kernels, or by some shares. */
struct kernels {
    const struct kernel_table *table;   /* measured kernels of such a device; NULL: the shares below, if any */
    const struct kernel_set *set;       /* with a table: which kernels a program runs */
    int64_t products_scale, memory_scale;       /* with a table: thousandths of its shares of the rates that a device
                                         * of another power reaches, for what computes and what moves bytes; 0: all */
    int64_t units, tile_rows, tile_columns;     /* units that compute a tile each; 0 units: all rates are reached */
    int64_t half_depth;                 /* a product this deep reaches half of the best rate */
    int64_t matrix_permille, memory_permille;   /* the best share of the rates */
    int64_t other_permille;             /* of the rate of operations, by what is not one product: attention */
    int64_t other_half_depth;           /* heads this wide reach half of that */
    int named;                          /* entries of `share` */
    struct named_share share[CLUSTER_MOST_NAMED];       /* of operations that are slower than memory_permille says */
    picoseconds launch;                 /* of a kernel on the device */
    char source[400];                   /* where these shares come from; "": not said */
};

enum { CLUSTER_MOST_SHARED = 8, TORUS_MOST_DIMENSIONS = 4 };

/* A link that several devices share, on the way of messages besides the ports of their devices (network.h).  Who its
 * members are follows from the place: a unit is `devices` consecutive places or, with a stride, every stride-th of
 * them. */
struct shared_link {
    char name[32];                      /* in tables of links and in messages: "network card" */
    enum { SHARED_LEAVING,              /* that leave or enter a unit: a network card, an up-link */
           SHARED_INSIDE,               /* between devices of a unit: a switch, a bus */
           SHARED_PAIRS,                /* from one device of a unit to another: a full mesh */
           SHARED_TORUS,                /* between units that are a torus: a link up and down in each dimension */
           SHARED_KINDS } kind;
    int of_level;                       /* 1 more than the level whose messages use it; 0: those of all levels */
    int devices, stride;                /* of a unit; 0: as stride 1, all of the consecutive ranks */
    int64_t rate, entering;             /* 10^6 bytes a second, in each direction; of what enters a unit, 0: the
                                         * same */
    bool half_duplex;                   /* both directions together */
    int paths;                          /* links beside each other, of which a message takes one; 0: one link */
    bool by_receiver;                   /* the receiver's rank chooses it, not the hash of both (shared_path) */
    int dimensions, size[TORUS_MOST_DIMENSIONS];        /* of a torus, in units; the first varies fastest */
    picoseconds hop;                    /* more latency of a message that passes; of a torus, of every hop after the
                                         * first */
    char source[400];                   /* where its rate comes from; "": not said */
};

/* How much messages slow computing down (contention.h). */
struct contention {
    int64_t compute_percent;            /* of its time that the compute stream's work takes while a message is on the
                                         * device's ports, 100 to 1000; 0: not stated */
    char source[400];                   /* where the percentage comes from; "": not said */
};

/* How much slower the compute stream works while a collective of its device runs on another stream: a collective's
 * kernel occupies multiprocessors and memory.  Each clock knows this for itself, so that no replay is needed. */
enum { OVERLAP_MOST = 8 };
struct overlap {
    int collectives;                    /* entries of `collective` */
    struct { char name[16]; int64_t percent; } collective[OVERLAP_MOST];        /* work takes so many percent of its
                                         * time beside it, 100 to 1000 */
    char source[400];                   /* where the percentages come from; "": not said */
};

/* A device draws and costs this, with its share of the machine around it (run/report/report_budget.c). */
struct costs {
    int64_t watts;                      /* at most; 0: not stated */
    int64_t cents;                      /* US cents for an hour; 0: not stated */
    char source[400];                   /* where both come from; "": not said */
};

struct cluster {
    char name[48], description[160], source[400];       /* in reports, and for --cluster if built in; one line for
                                         * lists; where the device's rates come from */
    int64_t flop_rate[DTYPE_COUNT];     /* 10^6 operations a second; 0: they take no time; -1: the description does not
                                         * say */
    int64_t memory_rate, copy_rate;     /* 10^6 bytes a second: device memory; copy engine, to the host's memory */
    int64_t stated_memory_rate;         /* of a device whose rates are part of it: the description's; 0: the same */
    uint64_t memory;                    /* bytes of a device; for information */
    struct host host;                   /* rates of the host's share, for tensors that are offloaded */
    struct kernels kernels;             /* how far a kernel stays below the rates */
    int speeds, percent[CLUSTER_MOST_SPEEDS];   /* of these rates, by rank, beginning again after the last; 0 speeds:
                                                 * all 100 */
    int levels;                         /* entries of `link` */
    struct link link[CLUSTER_LEVELS];   /* nearest first */
    int shares;                         /* entries of `shared` */
    struct shared_link shared[CLUSTER_MOST_SHARED];     /* links that several devices use together; none: only ports
                                         * limit messages */
    const int *slot;                    /* [devices of the job] the place in the machine of each rank's device, a
                                         * permutation; NULL: rank r is at r */
    bool in_order;                      /* messages have shared links in turn, not each a part (network.h) */
    struct contention contention;       /* how messages slow computations of the same device */
    struct overlap overlap;             /* how collectives of other streams slow them */
    struct costs costs;                 /* for budgets of a whole training */
    bool no_progress;                   /* what waits for its receiver moves only while neither device computes */
};

/** The shipped descriptions, as JSON; ends with NULL.  Generated from device/clusters/ by the Makefile. */
extern const char *const cluster_texts[];

/**
 * Find a cluster: a shipped one by its name, or a file if the word contains '/' or ends in ".json".
 * @return OK; ERR_USAGE for an unknown name; ERR_FILE, ERR_FORMAT (naming file, key and value), ERR_MEMORY.
 */
enum error_code cluster_find(struct cluster *, const char *name_or_file, struct error *);

/** Read a description from memory, with a NUL after its last byte.  @param where  names it in messages. */
enum error_code cluster_parse(struct cluster *, const char *text, const char *where, struct error *);

/** Check that the cluster has enough devices, and a rate for this format.  @return OK or ERR_PLAN. */
enum error_code cluster_check(const struct cluster *, int devices, enum dtype, struct error *);

/** Whether its times need all devices in one order of time, which only a replay has (contention.h). */
bool cluster_replays(const struct cluster *);

/** A copy of the machine without what needs a replay: each device goes by its own clock. */
struct cluster cluster_without_replay(const struct cluster *);

/** The unit of a shared link that a rank belongs to, and the rank's place in it. */
static inline int shared_unit(const struct shared_link *shared_link, int rank)
{
    const int stride = shared_link->stride > 1 ? shared_link->stride : 1;
    return rank / shared_link->devices * stride + rank % stride;
}

static inline int shared_place(const struct shared_link *shared_link, int rank)
{
    return rank % shared_link->devices / (shared_link->stride > 1 ? shared_link->stride : 1);
}

/** The path, of so many, that the messages of a pair take: always the same one, as of a flow of ECMP.  The hash is the
 *  finalizer of splitmix64 (S. Vigna) of from * 2^32 + to. */
static inline int shared_path(int from, int to, int paths)
{
    uint64_t x = ((uint64_t)(uint32_t)from << 32) + (uint32_t)to + UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (int)((x ^ (x >> 31)) % (uint64_t)paths);
}

/** The time that work takes beside a collective of this name, in percent of its usual time; 100: the same. */
int64_t cluster_overlap(const struct cluster *, const char *collective);

/** The place of a rank's device in the machine: it decides which links are near, and which rates it has. */
static inline int cluster_slot(const struct cluster *cluster, int rank)
{
    return cluster->slot ? cluster->slot[rank] : rank;
}

/** How fast this rank's device is, in percent of the description's rates. */
int cluster_percent(const struct cluster *, int rank);

/** The cluster for this rank's clock: with the rates of its own device, rounded down once to a whole million. */
struct cluster cluster_of_rank(const struct cluster *, int rank);

/** The time of units at a rate in millions per second, in picoseconds, rounded up once; 0 at rate 0.  Exact below 100
 *  days. */
static inline picoseconds time_at_rate(uint64_t units, int64_t rate)
{
    if (rate <= 0) return 0;
    const uint64_t r = (uint64_t)rate;
    if (units < UINT64_C(1) << 43) return (picoseconds)((units * 1000000 + r - 1) / r);  /* the same, in one division */
    return (picoseconds)(units / r * 1000000 + (units % r * 1000000 + r - 1) / r);
}

/** How many ports a device has for each direction on the levels before this one. */
static inline int link_first_port(const struct link *link, int level)
{
    int n = 0;
    for (int l = 0; l < level; l++) n += link[l].ports > 1 ? link[l].ports : 1;
    return n;
}

/** The port of a message, on the sender and on the receiver: it goes by how far the receiver's rank is up from the
 *  sender's, around the unit.  As many ports as other devices are a mesh, two are the two directions of a ring. */
int link_port(const struct link *, int level, int from, int to);

/** The nearest level that two places of the machine share. */
static inline int link_between(const struct link *link, int levels, int a, int b)
{
    int l = 0;
    while (l < levels - 1 && link[l].devices > 0 && a / link[l].devices != b / link[l].devices) l++;
    return l;
}

/** The nearest level that the devices of two ranks share. */
static inline int cluster_level(const struct cluster *cluster, int rank, int other)
{
    return link_between(cluster->link, cluster->levels, cluster_slot(cluster, rank), cluster_slot(cluster, other));
}

#endif
