/* role.c -- opens and closes the devices of a task.  loop.c calls.  Errors are agreed on by all devices of the job. */
#include "emulated_devices/rl/role.h"
#include <stdlib.h>

enum error_code role_infers(struct plan *plan, const struct plan *trains, const int size[AXIS_COUNT], int64_t B,
                            const char *name, struct error *err)
{
    *plan = *trains;
    plan->optimizer = &no_optimizer, plan->hyper = no_optimizer.usual, plan->hyper.as = trains->hyper.as;
    plan->data = (struct data_request){ .scheme = data_scheme_at(0)->head.name, .bucket = trains->data.bucket };
    plan->schedule = schedule_generator_at(0)->head.name;
    plan->B = B, plan->micros = 1, plan->chunks = 1, plan->stage_layers = NULL, plan->recompute = NULL;
    plan->update_every = plan->skip = plan->perturb = 0, plan->offload_activations = false;
    enum error_code e = mesh_make(&plan->mesh, size, err);
    if (!e) e = plan_check(plan, err);
    return e ? fail_about(err, e, name) : OK;
}

static enum error_code list_devices(struct role *role, int devices, int rank, struct error *err)
{
    const int own = role->plan.mesh.devices;
    role->process = malloc((size_t)own * sizeof *role->process);
    role->place = malloc((size_t)devices * sizeof *role->place);
    if (role->process == NULL || role->place == NULL)
        return fail(err, ERR_MEMORY, "no memory for a list of %d devices", devices);
    for (int d = 0; d < devices; d++) role->place[d] = d >= role->first && d < role->first + own ? d - role->first : -1;
    for (int r = 0; r < own; r++) role->process[r] = role->first + r;
    role->here = role->place[rank] >= 0;
    return OK;
}

enum error_code role_open(struct role *role, struct comm *whole, struct batch_source source, struct error *err)
{
    enum error_code e = list_devices(role, whole->size, whole->rank, err);
    bool apart = false, opened = false;
    if (!e && role->here) {
        e = comm_part(&role->comm, whole, role->plan.mesh.devices, role->process, err);
        apart = e == OK;
        if (!e) e = trainer_open(&role->trainer, &role->plan, &role->comm, source, err);
        opened = e == OK;
    }
    /* A device of the role that fails leaves nothing open. */
    if (e && apart && !opened) comm_part_close(&role->comm, whole);
    role->here = role->here && opened;
    return comm_agree(whole, e, err);
}

void role_close(struct role *role, struct comm *whole)
{
    if (role->here) trainer_close(&role->trainer), comm_part_close(&role->comm, whole);
    free(role->process), free(role->place);
    *role = (struct role){ .name = role->name };
}
