/* elastic.h -- a run whose mesh changes between steps: devices leave and join, and the job's state moves to them.
 *
 * The file of --elastic has a line for each change: a step, and the mesh after it.
 *
 *     # after step  mesh
 *     4             --dp 4
 *     7             --dp 1 --tp 2
 *
 * As many devices are started as the largest mesh has; devices 0, 1, .. are those of the mesh, and the others wait.
 * The steps on one mesh are a phase: a session like any other (run/session.h), on a part of the devices.  Between two
 * phases the state of the job (model/collection/collection.h) goes from device to device with the fewest bytes there
 * can be, and groups, schemes and memory are made anew.  Steps, data and random numbers go on where they were.
 *
 * cli/train/elastic_words.c reads the file; session_start.c and cli/train/train.c call these functions.
 */
#ifndef ORRERY_ELASTIC_RUN_H
#define ORRERY_ELASTIC_RUN_H

#include "emulated_devices/model/collection/transfer.h"
#include "emulated_devices/run/elastic/losing.h"
#include "emulated_devices/run/run.h"

enum { ELASTIC_WORDS = 1000 };

struct elastic_change {
    int64_t step;                       /* steps of this run that are done on the mesh before */
    int line;                           /* of the file */
    char words[ELASTIC_WORDS];          /* the new mesh, as it was said */
    struct train_options *options;      /* of the run with the new mesh; owned by cli/train/ */
    struct loss loss;                   /* after which step + 1 is done again; devices.count 0: a change that was asked
                                         * for */
    int *process;                       /* [devices of the mesh] of the job, in the order of ranks; NULL: the first;
                                         * owned by cli/train/ */
    uint64_t moved, stays;              /* after the change: bytes of all devices */
    int boxes, messages;                /* likewise */
    int pairs[STRIDED_WAYS];            /* likewise: pairs of devices whose boxes went by each way */
    picoseconds time;                   /* likewise: of the slowest device */
    int raised, raised_most;            /* devices with a higher clock rate afterwards, and its most percent; 0: none */
};

struct elastic {
    bool snapshots;                     /* --lose: every step begins with one */
    int count;                          /* changes */
    struct elastic_change *change;      /* [count] by step */
    double *loss;                       /* [steps of the run] of all phases that have ended */
    int64_t losses;                     /* steps in it */
};

/** How often the mesh of a run changes, and how many devices the run needs: those of its largest mesh. */
int elastic_changes(const struct train_options *);
int elastic_devices(const struct train_options *);

/** Add the changes so far and the losses of the meshes before this one to a report; nothing where the mesh stays. */
void elastic_json(cJSON *root, const struct train_options *);

/** Say that an error is of a change.  @return e. */
enum error_code elastic_about(const struct train_options *, int change, enum error_code e, struct error *);

/**
 * Be one device of such a run.
 * Collective over all devices.
 * @param comm  as many devices as elastic_devices says.
 * @param[out] status  as for session_run.
 * @return as session_run; ERR_CHECK also if other bytes were moved than foreseen, or the weights have changed on the
 *         way.
 */
enum error_code elastic_run(struct comm *comm, const struct train_options *, const struct train_data *,
                            const char *overridden, int *status, struct error *);

#endif
