/* stages.c -- the stages, one line each, and the chain of those that a plan has.
 *
 * open.c makes and frees the chain.  data.c and the stages themselves call all stages of the chain, in this order.
 * The order matters within a call: gathering.c makes weights whole before direction.c moves weights.  The only error
 * of its own is ERR_MEMORY; a stage's opening may report more.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include <stdlib.h>

/* In the order of calls. */
static const struct data_stage *const all[] = {
    &stage_versions,            /* two versions of the weights */
    &stage_late,                /* new weights of the last step, before their first use */
    &stage_chosen,              /* experts that are read by choice */
    &stage_gathering,           /* whole weights from shards, before each pass */
    &stage_tier,                /* tensors on the slow tier */
    &stage_direction,           /* weights moved along a direction, without gradients */
    &stage_adapters,            /* ... or merged with adapters, whose gradients are folded from merged ones */
    &stage_gradient_block,      /* memory for all gradients, whole */
    &stage_allreduce,           /* ... all-reduced in buckets */
    &stage_projection,          /* ... projected before the all-reduce */
    &stage_scattering,          /* gradients reduced unit by unit to the devices that keep them */
    &stage_adapter_sums,        /* adapters' gradients summed over devices with other pieces of the matrices */
    &stage_masters,             /* fp32 copies of the weights */
    &stage_states,              /* the optimizer's state, element by element */
    &stage_step,                /* the optimizer's step */
    &stage_slices,              /* ... in slices of what is on the slow tier */
    &stage_renewal,             /* new weights sent to the devices that keep them */
    &stage_outer,               /* the outer step of replicas that train apart */
};

enum { STAGES = sizeof all / sizeof *all };

enum error_code chain_make(struct data_parallel *dp, struct error *err)
{
    int n = 0;
    /* The last link stays zero and ends the chain. */
    dp->chain = calloc(STAGES + 1, sizeof *dp->chain);
    for (int i = 0; i < STAGES && dp->chain; i++) {
        if (!all[i]->takes_part(dp) || (all[i]->of_the_step && dp->request.infers)) continue;
        /* With one byte more a stage without state has a pointer, too, so NULL always means no memory. */
        dp->chain[n] = (struct data_link){ all[i], calloc(1, all[i]->state + 1) };
        if (dp->chain[n++].state == NULL) return fail(err, ERR_MEMORY, "no memory for the stage %s", all[i]->name);
    }
    return dp->chain ? OK : fail(err, ERR_MEMORY, "no memory for %d stages", STAGES);
}

void chain_free(struct data_parallel *dp)
{
    for (struct data_link *l = dp->chain; l != NULL && l->stage != NULL; l++) free(l->state);
    free(dp->chain);
    dp->chain = NULL;
}

void *chain_state(const struct data_parallel *dp, const struct data_stage *stage)
{
    for EACH_LINK(dp, l)
        if (l->stage == stage) return l->state;
    return NULL;
}

/* ---- calls to all stages ----------------------------------------------------------------------------------------- */

/* These four calls go to all stages in order and stop at the first error. */
enum error_code fetch_weights(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    enum error_code e = OK;
    CALL(e, dp, fetch, unit, err);
    return e;
}

enum error_code take_sum(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    enum error_code e = OK;
    CALL(e, dp, take_sum, unit, err);
    return e;
}

enum error_code put_sum(struct data_parallel *dp, struct unit *unit, bool finished, struct error *err)
{
    enum error_code e = OK;
    CALL(e, dp, put_sum, unit, finished, err);
    return e;
}

enum error_code share_weights(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    enum error_code e = OK;
    CALL(e, dp, share, unit, err);
    return e;
}
