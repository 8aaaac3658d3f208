/* plan_path.h -- what the time of a planned step consists of, and what its devices hold at their peaks. */
#ifndef ORRERY_PLAN_PATH_H
#define ORRERY_PLAN_PATH_H

#include "emulated_devices/model/trainer.h"
#include "emulated_devices/train/dry_run/step_path.h"

/* Pieces of the path of one sort: work of one name, or messages of one kind over one level of links. */
struct path_row { struct path_piece like; int level, pieces, devices; picoseconds takes; };

enum { PATH_ROWS = 128 };
struct plan_path {
    picoseconds total;                  /* of all rows: the time of the steps; -1: the path is not known */
    struct path_row row[PATH_ROWS];     /* what takes longest first; what has no room is added to the last one */
    int rows;                           /* entries of `row` */
    struct step_share share;            /* the mean of all devices */
    picoseconds least, most;            /* that a device computes */
};

/* Memory of a device at its peak. */
struct plan_peak { struct arena_use use; struct doing doing; uint32_t blocks[ARENA_TAG_COUNT]; };

/* All that a plan says besides. */
struct plan_findings {
    struct plan_path path;              /* which work and messages the step's time consists of */
    struct plan_peak *peak;             /* [devices], of those that ran */
    int fullest;                        /* the device that needs most */
};

/** Add up the path and the waits of a plan that has run.  @return OK or ERR_MEMORY. */
enum error_code plan_path_of(struct plan_path *, const struct cluster *, const struct folding *,
                             struct events *const *events, struct error *);

struct plan_peak plan_peak_of(const struct trainer *);

#endif
