/* step.c -- masters, states, and the step, unit by unit: each device steps the elements whose optimizer state it
 * keeps.
 *
 * The chain calls step_units in data_step (stage.h).  Nothing is sent here, except through share_weights.  With the
 * same gradients every copy of an element steps to the same bits.  Errors are those of sending new weights
 * (renewal.c): ERR_MEMORY, ERR_COMM.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include "emulated_devices/device/compute.h"

/* ---- one range --------------------------------------------------------------------------------------------------- */

void step_by_gradient(const struct stretch *stretch)
{
    device_optimizer_step(stretch->dp->device, stretch->dp->optimizer, stretch->master, stretch->gradient,
                          stretch->state, stretch->step);
}

/* The operands are views of the kept tensors, for a range of what this device steps. */
struct operands unit_operands(const struct data_parallel *dp, const struct unit *unit, struct interval own)
{
    struct operands o = { .gradient = slice(data_own_gradient(unit), own),
                          .master = slice(data_kept_tensor(dp, unit, KIND_MASTER), own),
                          .weight = slice(stepped_weights(unit), own) };
    for (int i = 0; i < dp->optimizer->states; i++) o.state[i] = slice(unit->state[i], own);
    return o;
}

struct kernel { const struct data_parallel *dp; const struct operands *o; struct step step; int64_t first; };

/* unit_each_stretch calls step_portion for each piece of a parameter within the range. */
static void step_portion(void *context, struct portion portion)
{
    const struct kernel *k = context;
    /* A range lies in one parameter, since weight decay depends on the parameter. */
    const struct interval here = { portion.row - k->first, portion.length };
    struct stretch x = { .dp = k->dp, .at = portion, .master = slice(k->o->master, here),
                         .gradient = slice(k->o->gradient, here), .step = k->step };
    for (int i = 0; i < k->dp->optimizer->states; i++) x.state[i] = slice(k->o->state[i], here);
    x.step.weight_decay = weight_decay_of(k->dp->hyper, portion.parameter->spec.decay);
    k->dp->step_stretch(&x);
}

/* Padding is not stepped. */
void step_operands(const struct data_parallel *dp, const struct unit *unit, struct interval own,
                   const struct operands *operands, struct step step)
{
    const int64_t first = shards_range(&unit->over->shards, BY_OPTIMIZER, unit->padded).first + own.first;
    struct kernel k = { .dp = dp, .o = operands, .step = step, .first = first };
    unit_each_stretch(unit, (struct interval){ first, own.count }, step_portion, &k);
    /* 16-bit weights = rounded masters. */
    if (data_has_masters(dp)) device_convert(dp->device, operands->weight, operands->master);
}

struct op_cost optimizer_cost(const struct optimizer *optimizer, enum dtype master, uint64_t gradient_bytes, int64_t n)
{
    /* Weights and states are read and written, gradients read. */
    const double each = (double)dtype_size(master) * (2 + 2 * optimizer->states) + (double)gradient_bytes;
    return (struct op_cost){ .flops = (double)optimizer->operations * (double)n, .bytes = each * (double)n };
}

/* Without gradients the direction is drawn again, so no gradient is read. */
struct op_cost step_cost(const struct data_parallel *dp, int64_t n)
{
    return optimizer_cost(dp->optimizer, data_format(dp, KIND_MASTER),
                          has_gradients(dp) ? dtype_size(data_format(dp, KIND_GRADIENT)) : 0, n);
}

struct op_cost round_cost(const struct data_parallel *dp, int64_t n)
{
    const struct op_cost nothing = { .flops = 0 };
    return data_has_masters(dp) ? elementwise_cost(n, 2, 1, data_format(dp, KIND_MASTER)) : nothing;
}

/* ---- unit by unit ------------------------------------------------------------------------------------------------ */

static enum error_code stages_step_step_unit(struct data_parallel *dp, struct unit *unit, struct step step, bool share,
                                             struct error *err)
{
    const struct interval own = { 0, kept_elements(unit, BY_OPTIMIZER) };
    const struct operands o = unit_operands(dp, unit, own);
    /* Parts are equal on all devices, so the unit is empty everywhere, and no device shares the unit. */
    if (own.count == 0) return OK;
    step_operands(dp, unit, own, &o, step);
    device_charge(dp->device, "optimizer step", step_cost(dp, own.count));
    if (data_has_masters(dp)) device_charge(dp->device, "round weights", round_cost(dp, own.count));
    return share ? share_weights(dp, unit, err) : OK;
}

/* Units on the slow tier are left to slices.c; what does not train is not stepped. */
static enum error_code step_units(struct data_parallel *dp, struct step step, bool share, struct error *err)
{
    enum error_code e = OK;
    const int units = dp->stops_half ? (dp->units + 1) / 2 : dp->units;
    for (int i = 0; i < units && !e; i++) {
        struct unit *const u = &dp->unit[i];
        if (u->frozen || unit_is_away(dp, u)) continue;
        e = stages_step_step_unit(dp, u, step, share, err);
    }
    return e;
}

/* Units on the slow tier are stepped in slices. */
static bool steps_here(const struct data_parallel *dp)
{
    return !dp->optimizer->low_rank && (dp->request.offload == 0 || dp->request.offload_experts);
}

const struct data_stage stage_step = {
    .name = "step", .of_the_step = true, .takes_part = steps_here, .step = step_units
};

/* ---- masters and states ------------------------------------------------------------------------------------------ */

const struct data_stage stage_masters = {
    .name = "masters", .takes_part = data_has_masters, .keeps = { { offsetof(struct unit, master), OPTIMIZER,
                                                                    KIND_MASTER, NULL } }, .kept = 1,
};

/* low_rank.c calls renew_weights after a unit's masters are stepped. */
enum error_code renew_weights(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    if (data_has_masters(dp)) {
        device_convert(dp->device, stepped_weights(unit), unit->master);
        dev_charge(dp->device, "round weights", unit->master, 2, 1);
    }
    return share_weights(dp, unit, err);
}

static bool by_element(const struct data_parallel *dp) { return !dp->optimizer->low_rank; }

/* States beyond those of the optimizer do not exist (-1). */
static int64_t state_elements(const struct data_parallel *dp, const struct unit *unit, enum tensor_kind kind)
{
    return (int)(kind - KIND_STATE) < dp->optimizer->states ? kept_elements(unit, BY_OPTIMIZER) : -1;
}

const struct data_stage stage_states = {
    .name = "states", .takes_part = by_element, .keeps = KEEPS_STATES(state_elements), .kept = OPTIMIZER_MAX_STATES,
};
