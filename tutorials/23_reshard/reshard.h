/* reshard.h -- lesson 23: what reshard.c defines.  README.md explains it.
 *
 * A matrix of R x C numbers lies on the devices of a mesh, row after row of
 * each device's box.  The judge calls these functions through calls.c
 * (`orrery learn`).
 */
#ifndef RESHARD_H
#define RESHARD_H

#include "course.h"

enum { MOST_DEVICES = 8 };

/* Rows row .. row + rows - 1 of the matrix, and columns likewise.  The empty
 * box has 0 everywhere. */
struct box { int64_t row, rows, column, columns; };

/* `copies` copies of the matrix.  Each is cut by rows into `down` pieces, and
 * each piece by columns into `across` boxes.  There are at most MOST_DEVICES
 * devices. */
struct mesh { int copies, down, across; };

/** The box of a device.  Piece i has the rows block_of(R, down, i), box j of
 *  it the columns block_of(C, across, j).  Box j of piece i of copy c is that
 *  of device number
 *  {ORDER: (c * down + i) * across + j|(i * across + j) * copies + c}.
 *  A device that the mesh has not, and one without numbers, has the empty
 *  box. */
struct box box_of(const struct mesh *, int64_t R, int64_t C, int device);

/** What two boxes have in common; without common numbers the empty box. */
struct box box_common(struct box a, struct box b);

/* The mesh changes from `then` to `now`.  Device n stays device n: it has its
 * box of `then`, and wants its box of `now`.  But a device that was lost has
 * nothing: a new one has taken its number. */
struct change {
    struct mesh then, now;
    int64_t R, C;
    int lost;                           /* -1: none */
};

/** The least count of numbers that a device must get from others. */
int64_t least_numbers(const struct change *, int device);

/* A device gets these numbers from device `from`, which may be itself. */
struct move { int64_t from; struct box box; };

/**
 * All moves by which a device gets what it wants: each number of its box once,
 * from a device that has it.  What it has itself comes from itself.  All else
 * comes from copy (device mod copies) of `then`; if that device was lost, from
 * the {NEXT: next|previous} copy, where
 * {NEXT: copy 0 follows the last|the last copy comes before copy 0}.
 * No move is empty, and no two are from the same device.
 * @param moves has room for MOST_DEVICES.
 * @return how many there are; -1: a wanted number is on no device.
 */
int plan_moves(const struct change *, int device, struct move *moves);

/**
 * Make the change.  All devices of both meshes call it.
 *
 * A device that has something for another one sends one message to it, with
 * the numbers of the box row after row, and no others.
 * @param have  this device's box of `then`; of the lost device it has no
 *              meaning
 * @param want  becomes its box of `now`
 * @return 0; -1 on all devices: a number that somebody wants is on no device.
 * Then nobody sends.
 */
int reshard(const struct group *, const struct change *, const float *have,
            float *want);

#endif
