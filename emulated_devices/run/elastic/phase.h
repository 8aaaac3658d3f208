/* phase.h -- one phase of a run whose mesh changes, or that goes on after a kill: what its session begins with and what
 * it leaves.
 *
 * session.c calls these functions at the beginning and the end of a session; elastic.c and run/survive/surviving.c make
 * the phases.  With a phase
 * of NULL the session is a whole run.
 */
#ifndef ORRERY_PHASE_H
#define ORRERY_PHASE_H

#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/model/collection/transfer.h"
#include "emulated_devices/run/elastic/elastic.h"
#include "emulated_devices/run/elastic/losing.h"

struct surviving;

struct phase {
    const struct outlined *plan;        /* this phase's collection */
    const struct carried *comes;        /* this device's numbers at its beginning; NULL: it begins as any run does */
    struct carried goes;                /* this device's numbers at its end */
    bool last;                          /* no further mesh follows */
    bool stopped;                       /* set at its end: a signal, or numbers that are not finite, end the run */
    uint64_t before, after;             /* rank 0: fingerprints of all weights at its beginning and its end */
    struct elastic *run;                /* where losses are kept; NULL: nowhere */
    struct losing *losing;              /* of a run that takes snapshots; NULL: it does not */
    struct surviving *surviving;        /* of a run that survives kills; NULL: it does not */
};

/** Whether a session goes on with the state of an earlier phase. */
static inline bool phase_continues(const struct phase *phase) { return phase && phase->comes; }

/** Whether another mesh follows. */
static inline bool phase_ends_early(const struct phase *phase) { return phase && !phase->last; }

/** Whether a device was lost in the last step of a session. */
static inline bool phase_has_lost(const struct phase *phase) { return phase && phase->losing && phase->losing->lost; }

/** Put the state of the earlier phase into the trainer.  Collective over the phase's devices.
 *  @return OK, or the same error everywhere. */
enum error_code phase_put(struct phase *, struct trainer *, struct error *);

/** Take the state out of the trainer, if another mesh follows, and note the losses.  Collective over the phase's
 *  devices.  @param stopped  the run ends here.  @return OK, or the same error everywhere. */
enum error_code phase_take(struct phase *, struct trainer *, const struct train_record *, bool stopped,
                           struct error *);

#endif
