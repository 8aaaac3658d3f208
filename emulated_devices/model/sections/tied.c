/* tied.c -- exchanges the gradients of a tied embedding between its two sections.
 * sections_open.c, sections_run.c and sections_cost.c call.  Errors: ERR_MEMORY and ERR_COMM; the step cannot go on
 * then. */
#include "emulated_devices/model/sections/tied.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/model/collect.h"
#include "emulated_devices/model/collection/holding.h"
#include "emulated_devices/plan/sections.h"
#include "ref/model/params.h"
#include <stdlib.h>

/* ---- who has which elements -------------------------------------------------------------------------------------- */

static void tied_add_run(void *context, struct run run)
{
    intervals_add(context, (struct interval){ run.whole, run.length });
}

/* The elements of the matrix that each device of a section steps, as rows of one column. */
static enum error_code open_side(struct boxing_side *side, const struct trainer *section, int index, struct error *err)
{
    const struct param_spec spec = trainer_spec(section, index);
    enum error_code e = boxing_side_open(side, &section->plan, err);
    for (int i = 0; i < section->plan.mesh.devices && !e; i++) {
        struct holding held;
        side->part[i] = (struct part){ .dim = { spec.dim[0] * spec.dim[1], 1 } };
        e = holding_of(section, section->plan.mesh.first + i, index, 0, KIND_GRADIENT, &held, err);
        if (!e)
            layout_each_run_within(&held.layout, held.kept.first, held.kept.count, tied_add_run, &side->part[i].rows);
        intervals_add(&side->part[i].cols, (struct interval){ 0, 1 });
        if (!e && !part_made(&side->part[i])) e = fail(err, ERR_MEMORY, "no memory for parts of %s", spec.name);
    }
    return e;
}

static enum error_code make_boxing(struct boxing *boxing, const struct trainer *from, const struct trainer *to,
                                   int index, struct error *err)
{
    struct boxing_side before = { 0 }, after = { 0 };
    enum error_code e = open_side(&before, from, index, err);
    if (!e) e = open_side(&after, to, index, err);
    const int parts = comm_folded_parts(from->comm);
    if (!e && parts > 1 && !boxing_sides_alike(&before, &after, parts))
        comm_uneven(from->comm, "parts of the tied embedding are not alike");
    if (!e) e = boxing_between(boxing, &before, &after, from->comm->rank, err);
    boxing_side_close(&before), boxing_side_close(&after);
    return e;
}

/* The first section has the embedding, the last the loss. */
static struct trainer *tied_first(struct trainer *trainer) { return &trainer->section[0]; }
static struct trainer *tied_last(struct trainer *trainer)
{
    return &trainer->section[trainer->plan.sections->count - 1];
}

static int tied_index(const struct model_config *config)
{
    int i = 0;
    while (model_param(config, i).role != ROLE_TOKENS) i++;
    return i;
}

enum error_code tied_open(struct tied **out, struct trainer *trainer, struct error *err)
{
    *out = NULL;
    if (!trainer->plan.model.tied || trainer->plan.sections->count == 1) return OK;
    struct tied *const tied = calloc(1, sizeof *tied);
    if (tied == NULL) return fail(err, ERR_MEMORY, "no memory for a tied embedding");
    tied->index = tied_index(&trainer->plan.model);
    enum error_code e = make_boxing(&tied->there, tied_first(trainer), tied_last(trainer), tied->index, err);
    if (!e) e = make_boxing(&tied->back, tied_last(trainer), tied_first(trainer), tied->index, err);
    *out = tied;
    return e;
}

void tied_close(struct tied *tied)
{
    if (tied) boxing_free(&tied->there), boxing_free(&tied->back);
    free(tied);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* A section's gradient of the elements that this device steps, its own and the other section's. */
struct tied_side {
    struct trainer *section;            /* NULL: this device has no part in it */
    const struct parameter *parameter;
    struct tensor own, other;           /* in BUFFERS */
};

static enum error_code take_side(struct tied_side *side, struct trainer *section, int index, struct error *err)
{
    struct interval kept;
    *side = (struct tied_side){ .section = NULL };
    if (!trainer_takes_part(section)) return OK;
    struct device *const device = section->comm->device;
    side->section = section, side->parameter = parameter_find(&section->parameters, index);
    struct tensor own = tensor_none;
    enum error_code e = collect_own(section, side->parameter, KIND_GRADIENT, &kept, &own, err);
    if (e) return e;
    side->own = device_tensor_in(device, BUFFERS, own.dtype, kept.count);
    side->other = device_tensor_in(device, BUFFERS, own.dtype, kept.count);
    if (side->own.data && side->other.data) device_copy(device, side->own.data, own.data, tensor_bytes(own));
    else if (kept.count > 0) e = fail(err, ERR_MEMORY, "no memory for the gradient of a tied embedding");
    free(own.data);
    return e;
}

/* own += other, and the sum goes back to where the section keeps it. */
static void put_side(struct tied_side *side, struct exchange *exchange)
{
    if (side->section == NULL) return;
    struct device *const device = side->section->comm->device;
    const int64_t n = tensor_count(side->own);
    reduce_local(exchange, SUM, side->own.dtype, side->own.data, side->other.data, n);
    ledger_additions(&exchange->group->comm->expected, exchange->group, POINT_TO_POINT, (uint64_t)n);
    collect_put_own(side->section, side->parameter, KIND_GRADIENT, side->own);
    device_free(device, side->own), device_free(device, side->other);
}

enum error_code tied_reduce(struct tied *tied, struct trainer *trainer, struct error *err)
{
    struct tied_side first, last;
    struct boxing_flight there = { 0 }, back = { 0 };
    struct exchange x = exchange_begin(&trainer->between, POINT_TO_POINT),
        y = exchange_begin(&trainer->between, POINT_TO_POINT);
    enum error_code e = take_side(&first, tied_first(trainer), tied->index, err);
    if (!e) e = take_side(&last, tied_last(trainer), tied->index, err);
    if (!e && first.section) e = boxing_send(&tied->there, &x, first.own, &there, err);
    if (!e && last.section) e = boxing_send(&tied->back, &y, last.own, &back, err);
    if (!e && last.section) e = boxing_receive(&tied->there, &x, first.own, last.other, err);
    if (!e && first.section) e = boxing_receive(&tied->back, &y, last.own, first.other, err);
    if (!e) e = boxing_arrive(trainer->comm, &there, err);
    if (!e) e = boxing_arrive(trainer->comm, &back, err);
    if (!e) put_side(&first, &x), put_side(&last, &y);
    return e;
}

static void add_side(const struct trainer *trainer, const struct trainer *section,
                     const struct boxing *sent, const struct part *kept, struct ledger *ledger)
{

    if (!trainer_takes_part(section)) return;
    boxing_cost(sent, &trainer->between, data_format(&section->data, KIND_GRADIENT), ledger);
    ledger_additions(ledger, &trainer->between, POINT_TO_POINT, (uint64_t)part_count(kept));
}

void tied_cost(const struct tied *tied, const struct trainer *trainer, struct ledger *ledger)
{
    const struct trainer *const first = &trainer->section[0],
        *const last = &trainer->section[trainer->plan.sections->count - 1];
    add_side(trainer, first, &tied->there, &tied->there.from, ledger);
    add_side(trainer, last, &tied->back, &tied->back.from, ledger);
}
