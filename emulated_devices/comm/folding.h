/* folding.h -- devices of a mesh that do the same: one of them runs, and stands for its class.
 *
 * Along an axis of n devices, device c does what device c modulo `every` does, with all partners moved along by as
 * much.  If every device's program is so, the times and messages of a class are equal, whatever the program is: by
 * induction over its events.  `every` divides n; if it is n, nothing is folded.
 *
 * The stages of a model with sections have meshes of different sizes.  Each stage of n devices is a ring in the order
 * of ranks, and is cut into as many equal parts; turning all stages by one part moves all partners along.  The devices
 * of the first part of each stage run.  Files of train/, run/, bench/, comm/
 * and other rooms call these functions.  No function returns an error code.
 */
#ifndef ORRERY_FOLDING_H
#define ORRERY_FOLDING_H

#include "emulated_devices/comm/mesh.h"
#include <stdbool.h>

/* The whole mesh, and for each axis how many of its devices run. */
struct folding {
    struct mesh mesh;                   /* the whole one; devices of sections are a line along dp */
    int every[AXIS_COUNT];              /* with stages: all along dp */
    const int *first;                   /* [stages + 1] the first device of each stage, and the number of devices; NULL:
                                         * axes are folded */
    int stages;
};

struct folding folding_none(const struct mesh *);

/** Stages of different sizes, each in so many equal parts, of which the first runs.
 *  @param first  as in struct folding; it must outlive the folding.  @param parts  divides each stage's devices. */
struct folding folding_of_stages(const struct mesh *, const int *first, int stages, int parts);

bool folding_is_none(const struct folding *);

/** The device that stands for this one. */
int folding_stands_for(const struct folding *, int rank);

/** The devices that run. */
int folding_lives(const struct folding *);

/** The number of a device's class, 0 <= result < folding_lives, and the device that runs for class n: in the order of
 *  these devices. */
int folding_class(const struct folding *, int rank);
int folding_first(const struct folding *, int n);

/** For how many devices each one that runs stands. */
int folding_share(const struct folding *);

/** A device, moved as `from` has to be moved to become the one that stands for it. */
int folding_move(const struct folding *, int rank, int from);

/** A device, moved along one axis to the next of its class.  Stages are turned along dp, and along no other axis. */
int folding_next(const struct folding *, int rank, enum axis);

/** Text such as "dp 64 -> 1, tp 8 -> 1", "16 equal parts of each stage"; "nothing" if nothing is.  @return out. */
const char *folding_describe(const struct folding *, char *out, int size);

#endif
