/* phase.c -- hands the state of a job from one session to the next.  session.c calls.  Errors are agreed on by the
 * phase's devices: ERR_MEMORY, ERR_COMM. */
#include "emulated_devices/run/elastic/phase.h"
#include "emulated_devices/model/checkpoint/checkpoint_states.h"

enum error_code phase_put(struct phase *phase, struct trainer *trainer, struct error *err)
{
    enum error_code e = comm_agree(trainer->comm, carried_put(phase->comes, &phase->plan->collection, trainer, err),
                                   err);
    return e ? e : checkpoint_fingerprint(trainer, &phase->before, err);
}

enum error_code phase_take(struct phase *phase, struct trainer *trainer, const struct train_record *record,
                           bool stopped, struct error *err)
{
    struct elastic *const run = phase->run;
    enum error_code e = OK;
    phase->stopped = stopped;
    for (int64_t i = 0; run && trainer->comm->rank == 0 && i < record->steps; i++)
        run->loss[run->losses++] = record->step[i].loss;
    if (phase->last || stopped) return OK;
    const int device = comm_process(trainer->comm, trainer->comm->rank);
    if (phase_has_lost(phase)) {
        phase->after = phase->losing->print;
        return comm_agree(trainer->comm, losing_give(phase->losing, trainer, device, &phase->goes, err), err);
    }
    e = carried_take(&phase->goes, &phase->plan->collection, device, trainer, err);
    e = comm_agree(trainer->comm, e, err);
    return e ? e : checkpoint_fingerprint(trainer, &phase->after, err);
}
