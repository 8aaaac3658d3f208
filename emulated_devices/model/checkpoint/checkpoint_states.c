/* checkpoint_states.c -- lists the tensors that a checkpoint has for each parameter, and adds up the fingerprint.
 * model/checkpoint/checkpoint.c and model/checkpoint/checkpoint_write.c call.  Without a list to fill,
 * checkpoint_states only counts.  Errors: ERR_MEMORY, ERR_COMM of the fingerprint. */
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include <stdio.h>
#include <stdlib.h>

static int checkpoint_states_put(struct state_tensor *list, int at, enum tensor_kind kind, int replica,
                                 const char *whose, const char *dot, const char *what)
{
    if (list == NULL) return at + 1;
    list[at] = (struct state_tensor){ .kind = kind, .replica = replica };
    snprintf(list[at].suffix, sizeof list[at].suffix, "%s%s%s", whose, dot, what);
    return at + 1;
}

static int put_states(const struct optimizer *optimizer, struct state_tensor *list, int at, int replica,
                      const char *whose)
{
    for (int s = 0; s < optimizer->states; s++)
        at = checkpoint_states_put(list, at, KIND_STATE + (enum tensor_kind)s, replica, whose, ".",
                                   optimizer->state_name[s]);
    return at;
}

struct state_tensor checkpoint_weights(const struct trainer *trainer)
{
    return (struct state_tensor){ .kind = trainer->data.shards.apart ? KIND_ANCHOR : KIND_MASTER };
}

int checkpoint_states(const struct trainer *trainer, int replicas, struct state_tensor *list)
{
    int n = 0;
    if (replicas == 0) return put_states(trainer->plan.optimizer, list, n, 0, "");
    if (outer_has_momentum(&trainer->data.outer))
        n = checkpoint_states_put(list, n, KIND_MOMENTUM, 0, "", ".", "outer_momentum");
    for (int r = 0; r < replicas; r++) {
        char whose[24];
        snprintf(whose, sizeof whose, ".replica%d", r);
        n = checkpoint_states_put(list, n, KIND_MASTER, r, whose, "", "");
        n = put_states(trainer->plan.optimizer, list, n, r, whose);
    }
    return n;
}

void checkpoint_print(uint64_t fingerprint, char text[CHECKPOINT_PRINT])
{
    snprintf(text, CHECKPOINT_PRINT, "%016llx", (unsigned long long)fingerprint);
}

enum error_code checkpoint_fingerprint(struct trainer *trainer, uint64_t *sum, struct error *err)
{
    uint64_t own = 0;
    struct trainer *part;
    for (int n = 0; (part = trainer_section(trainer, n)) != NULL; n++) own += data_fingerprint_part(&part->data);
    own += encoders_fingerprint_part(trainer);
    const bool first = trainer->comm->rank == 0;
    uint64_t *const all = first ? malloc((size_t)trainer->comm->size * sizeof *all) : NULL;
    enum error_code e = first && all == NULL ? fail(err, ERR_MEMORY, "no memory for fingerprints") : OK;
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = comm_bring(trainer->comm, &own, sizeof own, all, err);
    *sum = 0;
    for (int n = 0; n < trainer->comm->size && first && !e; n++) *sum += all[n];
    free(all);
    return e;
}
