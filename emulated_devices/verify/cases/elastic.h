/* elastic.h -- a drawn chain of meshes for one job: it trains, its state moves to another mesh, and trains again.
 * In half of the steps before a move a device is lost, in the passes, in the update or after it.  The next mesh has an
 * empty device in its place, and the state comes from the others' snapshots.
 *
 * The model, the data and tensor schemes and the meshes are drawn from the registries.  verify/jobs/elastic.c and
 * tests/devices/test_transfer.c call case_elastic.
 */
#ifndef ORRERY_VERIFY_ELASTIC_H
#define ORRERY_VERIFY_ELASTIC_H

#include "emulated_devices/verify/cases/case.h"

enum { ELASTIC_CHANGES = 3 };           /* of a chain */

struct elastic_outcome {
    struct error verdict;               /* OK, or ERR_CHECK: the first change after which something differs */
    char text[600];                     /* the model, and the meshes in order */
    uint64_t moved;                     /* bytes of all changes, by formula and by count */
};

/**
 * Run a chain of drawn meshes of up to so many devices, and after each change compare on rank 0 every bit of weights,
 * masters, optimizer states and the job's numbers with those before; bytes with the fewest there can be.
 * Collective over all processes, with a comm of its own.
 * @param draw          which chain, from 0.
 * @param[out] outcome  the same on every device, but for the verdict, which is rank 0's.
 * @return OK with any verdict, or on every device the error that ended it.
 */
enum error_code case_elastic(int devices, int draw, struct elastic_outcome *outcome, struct error *);

#endif
