/* weights.c -- brings weights from the devices that train to those that draw answers.  loop.c calls.  All errors are
 * agreed on by the devices of the job. */
#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/model/collection/transfer.h"
#include "emulated_devices/rl/role.h"
#include <stdlib.h>

/* The collections of two roles, with weights alone, which stand first. */
struct weight_lists { struct outlined from, to; bool from_open, to_open; };

static enum error_code list_weights(struct outlined *outlined, const struct role *role, struct error *err)
{
    const enum error_code e = outlined_open(outlined, &role->plan, FOR_FILES, 0, err);
    if (e) return e;
    struct collection *const c = &outlined->collection;
    int weights = 0;
    while (weights < c->count && c->tensor[weights].weights) weights++;
    c->count = weights, c->place = role->place;
    return OK;
}

static void weights_count(struct weight_moves *total, const struct moves *moves, const struct transferred *did)
{
    total->times++, total->moved += moves->bytes, total->stayed += moves->stays;
    total->messages += did->messages;
}

static enum error_code move_all(struct comm *whole, struct weight_lists *lists, struct role *from, struct role *to,
                                struct weight_moves *total, struct error *err)
{
    struct moves moves = { .count = 0 };
    struct group everyone = { .comm = NULL };
    struct carried old = { .count = 0 }, fresh = { .count = 0 };
    struct transferred did;
    enum error_code e = moves_open(&moves, whole->size, from->plan.cluster, err);
    if (!e) e = moves_between(&moves, &lists->from.collection, &lists->to.collection, err);
    if (!e) e = carried_take(&old, &lists->from.collection, whole->rank, from->here ? &from->trainer : NULL, err);
    e = comm_agree(whole, e, err);
    if (!e) e = comm_agree(whole, group_world(&everyone, whole, err), err);
    if (!e)
        e = transfer_run(&everyone, &moves, &lists->from.collection, &lists->to.collection, &old, &fresh, &did,
                         err);
    if (!e && to->here) e = carried_put(&fresh, &lists->to.collection, &to->trainer, err);
    if (!e) weights_count(total, &moves, &did);
    group_close(&everyone);
    carried_free(&old), carried_free(&fresh), moves_close(&moves);
    return comm_agree(whole, e, err);
}

enum error_code weights_move(struct comm *whole, struct role *from, struct role *to, struct weight_moves *total,
                             struct error *err)
{
    struct weight_lists *const lists = calloc(1, sizeof *lists);
    enum error_code e = lists ? OK : fail(err, ERR_MEMORY, "no memory for lists of weights");
    if (!e) lists->from_open = (e = list_weights(&lists->from, from, err)) == OK;
    if (!e) lists->to_open = (e = list_weights(&lists->to, to, err)) == OK;
    e = comm_agree(whole, e, err);
    if (!e) e = move_all(whole, lists, from, to, total, err);
    if (lists && lists->from_open) outlined_close(&lists->from);
    if (lists && lists->to_open) outlined_close(&lists->to);
    free(lists);
    return e;
}
