/* strided_way.h -- how strided bytes are sent to another device: one message, segments, or piece by piece; what each
 * way takes, and which one is fastest.
 *
 * A device packs with a kernel: it reads whole sectors of its memory, and writes the bytes side by side.  What a kernel
 * and a message take is what the cluster's file says, and its table of measured kernels if there is one.  The choice is
 * TEMPI's (C. Pearson et al., HPDC 2021).  comm/strided_transfer.c and cli/bench/packing.c call these functions, which
 * never fail.
 */
#ifndef ORRERY_STRIDED_WAY_H
#define ORRERY_STRIDED_WAY_H

#include "emulated_devices/device/cluster.h"
#include "emulated_devices/device/strided.h"
#include "ref/ops/ops.h"

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* Strided bytes of one device that become strided bytes of another: as many on both sides, in the same order. */
struct strided_pair {
    struct strided from;                /* the sender's */
    struct strided to;                  /* the receiver's */
};

/* Bytes that lie side by side on both sides. */
struct strided_piece {
    int pair;                           /* of the list */
    int64_t from, to;                   /* offsets from the two addresses of the pair */
    int64_t bytes;                      /* length */
};

/* On the way through the pieces of a list of pairs. */
struct strided_walk {
    const struct strided_pair *pair;    /* [pairs] */
    int pairs, at;                      /* entries of the list; the pair at work, -1 before the first */
    struct strided_cursor from, to;     /* in its two forms */
    int64_t left;                       /* bytes of the pair */
};
struct strided_walk strided_walk_begin(const struct strided_pair *, int pairs);

/** The next piece, in the order of the bytes.  @return whether there is one. */
bool strided_next(struct strided_walk *, struct strided_piece *);

/* ---- how strided bytes are sent: strided_way.c ------------------------------------------------------------------- */

/*
 *     ONE_SHOT   a kernel packs all, one message goes, a kernel unpacks all
 *     STAGED     a kernel packs each segment, while those before it are on their way; each is unpacked when it has come
 *     DIRECT     a message for each piece; nothing is packed
 */
enum strided_way { ONE_SHOT, STAGED, DIRECT, STRIDED_WAYS };

/* Messages that one transfer may have on their way. */
enum { STRIDED_MESSAGES = 1024 };

#define STRIDED_PACK "pack"             /* a kernel that packs or unpacks, in traces */

/** "one-shot", "staged", "direct". */
const char *strided_way_name(enum strided_way);

/* The time depends on these, besides the pieces.  Side 0 is the sender, side 1 the receiver. */
struct strided_size {
    int64_t bytes;                      /* of all pairs */
    int64_t touched[2];                 /* bytes of memory that packing reads, or unpacking writes, by whole sectors */
    bool apart[2];                      /* this side's bytes are not side by side, and so are packed */
    int pieces;                         /* of the list; STRIDED_MESSAGES + 1: there are more than STRIDED_MESSAGES */
};
struct strided_size strided_size_of(const struct strided_pair *, int pairs);

/** Bytes of segment i of so many. */
int64_t strided_segment(const struct strided_size *, int messages, int i);

/** The work of a kernel that packs, or on side 1 unpacks, some of the bytes. */
struct op_cost strided_cost(const struct strided_size *, int side, int64_t bytes);

/* A link between two devices of a cluster. */
struct strided_road {
    const struct cluster *cluster;      /* of either device's clock */
    enum dtype dtype;                   /* of the clock */
    int level;                          /* of the link */
};

/** When the last byte is where it belongs, if both devices begin at 0 and do nothing else: exactly what the receiver's
 *  clock then says.  @param messages  1; of STAGED the segments; of DIRECT the pieces. */
picoseconds strided_time(const struct strided_road *, const struct strided_pair *, int pairs,
                         const struct strided_size *, enum strided_way, int messages);

/* A way, its messages, and its predicted time. */
struct strided_choice {
    enum strided_way way;               /* the fastest */
    int messages;                       /* that it sends */
    picoseconds time;                   /* as strided_time says */
};

/** The way with the least predicted time; sender and receiver choose alike. */
struct strided_choice strided_choose(const struct strided_road *, const struct strided_pair *, int pairs,
                                     const struct strided_size *);

#endif
