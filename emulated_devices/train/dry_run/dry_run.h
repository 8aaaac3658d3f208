/* dry_run.h -- training steps of a plan without numbers, on all its devices in this process.  Files of cli/, bench/,
 * search/ and run/ call these functions. */
#ifndef ORRERY_DRY_RUN_H
#define ORRERY_DRY_RUN_H

#include "emulated_devices/comm/crew.h"
#include "emulated_devices/model/trainer.h"

struct events;

/* Lists of events: of [devices] is NULL for a device that has not run.  left: how many events all lists together may
 * still have room for; NULL: no limit. */
struct dry_events { struct events **of; int64_t *left; };

/* This says which devices stood for others; why not for more along dp and tp, empty: for all; and what it took. */
struct dry_run { struct folding folding; char why[200]; struct crew_outcome crew; };

/* Called on each device that ran, before its steps or after them, with its trainer open.  A device that stands for
 * others is asked once; what it says is true of all of them. */
typedef enum error_code dry_run_fn(struct trainer *, void *context, struct error *);

/**
 * Run the steps of a plan in a crew with the backend `count`, folded as far as that is exact.  Local.
 * @param plan      checked, with a cluster, without a batch plan; all its tokens are 0.  With lengths: packed samples
 *                  of these, drawn as in a run.
 * @param unfolded  run every device.
 * @param events    where each device that runs gets a list, and notes its events; if the cluster needs a replay
 *                  (contention.h), every device is run.  NULL: none are noted.  dry_events_close frees them, also after
 *                  an error.
 * @param before    called before the steps, such as to watch them; NULL: nothing is.
 * @param after     may be called for runs that are then found inexact; the last call for a device counts.
 * @return OK, or the first error.
 */
enum error_code dry_run(const struct plan *plan, int64_t steps, bool unfolded, struct dry_events *events,
                        dry_run_fn *before, dry_run_fn *after, void *context, struct dry_run *, struct error *);

/** Run one step in the same way, folded, which ends early if it is asked to.
 *  @param stop  asked every few messages; its function may be NULL.
 *  @return as dry_run; ERR_STOPPED: it was asked to end, and nothing that `after` was told is true. */
enum error_code dry_run_step(const struct plan *, const struct crew_stop *stop, struct dry_events *, dry_run_fn *after,
                             void *context, struct dry_run *, struct error *);

/** Make room for the lists of so many devices.  @return OK or ERR_MEMORY. */
enum error_code dry_events_open(struct dry_events *, int devices, int64_t *left, struct error *);
void dry_events_close(struct dry_events *, int devices);

#endif
