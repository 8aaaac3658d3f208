/* sections_run.c -- executes the list of a device's stage: passes through its sections, and boxings before, between and
 * after them.  model/trainer.c calls.  Errors: ERR_MEMORY, ERR_COMM, and those of a pass; the step cannot go on
 * then. */
#include "emulated_devices/model/sections/sections_run.h"
#include "emulated_devices/model/sections/tied.h"
#include "emulated_devices/device/trace.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/plan/sections.h"
#include "ref/model/mezo.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One execution of the list. */
struct walk {
    struct trainer *trainer;
    int first, last;                    /* the stage's sections */
    struct boxing_flight *flight;       /* [2 actions] what is on its way to other stages */
    int flights;
    bool shared;                        /* the counts of routers, in this step */
};

/* A message is named by its microbatch, the section that receives or sent it, and what crosses. */
static struct exchange exchange_between(struct trainer *trainer, int section, int micro, enum crossing crossing)
{
    const int count = trainer->plan.sections->count;
    return exchange_named(&trainer->between, POINT_TO_POINT,
                          ((uint32_t)micro * (uint32_t)count + (uint32_t)section) * CROSSINGS + crossing);
}

static struct stage *stage_of(const struct walk *walk, int section) { return walk->trainer->section[section].stage; }

/* The boxing of a microbatch before a section; NULL: nothing of the kind crosses. */
static const struct boxing *boxing_of(const struct walk *walk, int section, int micro, enum crossing crossing)
{
    const struct boundary *const boundary = &walk->trainer->boundary[section];
    return boundary->of[crossing] ? boundary_boxing(boundary, crossing, micro) : NULL;
}

static enum error_code no_stream(int micro, struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for the residual stream of microbatch %d", micro);
}

/* A stage's routers hand these numbers on beside its stream, or beside the gradient. */
static struct tensor sums_of(const struct stage *stage, int micro, bool gradient)
{
    const struct stage_note note = stage_note(stage, micro, gradient);
    return tensor_1d(note.numbers, F64, (int64_t)(note.bytes / sizeof(double)));
}

/* Sums go on from those of the section before, where this device begins with them, and from 0 elsewhere. */
static struct tensor sums_to(const struct stage *stage, int micro, bool gradient)
{
    const struct tensor to = sums_of(stage, micro, gradient);
    memset(to.data, 0, tensor_bytes(to));
    return to;
}

static enum crossing stream_crossing(bool gradient) { return gradient ? CROSSES_GRADIENT : CROSSES_STREAM; }
static enum crossing sums_crossing(bool gradient) { return gradient ? CROSSES_SLOPES : CROSSES_SUMS; }

/* ---- between the sections of a stage ----------------------------------------------------------------------------- */

/* Box the numbers of one section to another, which is on the same devices. */
static enum error_code box_numbers(struct walk *walk, int section, int micro, enum crossing crossing,
                                   struct tensor from, struct tensor to, struct error *err)
{
    struct exchange x = exchange_between(walk->trainer, section, micro, crossing);
    const struct boxing *const boxing = boxing_of(walk, section, micro, crossing);
    struct boxing_flight flight = { 0 };
    enum error_code e = boxing_send(boxing, &x, from, &flight, err);
    if (!e) e = boxing_receive(boxing, &x, from, to, err);
    return e ? e : boxing_arrive(walk->trainer->comm, &flight, err);
}

/* Box the output of a section to the input of the next one; or the gradient back. */
static enum error_code box_inside(struct walk *walk, int section, int micro, bool gradient, struct error *err)
{
    struct stage *const before = stage_of(walk, section - 1), *const after = stage_of(walk, section),
        *const source = gradient ? after : before, *const target = gradient ? before : after;
    const struct tensor from = gradient ? stage_take_input_gradient(after, micro) : stage_take_output(before, micro),
        to = gradient ? stage_output_gradient(before, micro) : stage_input(after, micro);
    if (to.data == NULL) return no_stream(micro, err);
    enum error_code e = box_numbers(walk, section, micro, stream_crossing(gradient), from, to, err);
    device_free(walk->trainer->device, from);
    if (!e && boxing_of(walk, section, micro, sums_crossing(gradient)))
        e = box_numbers(walk, section, micro, sums_crossing(gradient), sums_of(source, micro, gradient),
                        sums_to(target, micro, gradient), err);
    return e;
}

static enum error_code section_forward(struct walk *walk, int micro, struct error *err)
{
    enum error_code e = OK;
    for (int s = walk->first; s <= walk->last && !e; s++) {
        if (s > walk->first) e = box_inside(walk, s, micro, false, err);
        if (!e) e = trainer_compute(&walk->trainer->section[s], FORWARD, 0, micro, err);
    }
    return e;
}

static enum error_code section_backward(struct walk *walk, enum action_kind kind, int micro, struct error *err)
{
    enum error_code e = OK;
    for (int s = walk->last; s >= walk->first && !e; s--) {
        if (s < walk->last && kind != BACKWARD_WEIGHT) e = box_inside(walk, s + 1, micro, true, err);
        if (!e) e = trainer_compute(&walk->trainer->section[s], kind, 0, micro, err);
    }
    return e;
}

/* ---- between stages ---------------------------------------------------------------------------------------------- */

/* Devices do not wait for what they send before the end of the list. */
static enum error_code send_numbers(struct walk *walk, int section, int micro, enum crossing crossing,
                                    struct tensor from, struct error *err)
{
    struct exchange x = exchange_between(walk->trainer, section, micro, crossing);
    return boxing_send(boxing_of(walk, section, micro, crossing), &x, from, &walk->flight[walk->flights++], err);
}

static enum error_code send_on(struct walk *walk, int micro, bool gradient, struct error *err)
{
    const int section = gradient ? walk->first : walk->last + 1;
    struct stage *const stage = stage_of(walk, gradient ? walk->first : walk->last);
    const struct tensor from = gradient ? stage_take_input_gradient(stage, micro) : stage_take_output(stage, micro);
    enum error_code e = send_numbers(walk, section, micro, stream_crossing(gradient), from, err);
    device_free(walk->trainer->device, from);
    if (!e && boxing_of(walk, section, micro, sums_crossing(gradient)))
        e = send_numbers(walk, section, micro, sums_crossing(gradient), sums_of(stage, micro, gradient), err);
    return e;
}

static enum error_code receive_next(struct walk *walk, int micro, bool gradient, struct error *err)
{
    const int section = gradient ? walk->last + 1 : walk->first;
    const struct stage *const stage = stage_of(walk, gradient ? walk->last : walk->first);
    struct exchange x = exchange_between(walk->trainer, section, micro, stream_crossing(gradient)),
        y = exchange_between(walk->trainer, section, micro, sums_crossing(gradient));
    const struct boxing *const sums = boxing_of(walk, section, micro, sums_crossing(gradient));
    const struct tensor to = gradient ? stage_output_gradient(stage_of(walk, walk->last), micro)
        : stage_input(stage_of(walk, walk->first), micro);
    if (to.data == NULL) return no_stream(micro, err);
    enum error_code e = boxing_receive(boxing_of(walk, section, micro, stream_crossing(gradient)), &x, tensor_none, to,
                                       err);
    if (!e && sums) e = boxing_receive(sums, &y, tensor_none, sums_to(stage, micro, gradient), err);
    clock_host_waits(&walk->trainer->device->clock, WAIT_RECEIVES);
    clock_host_waits(&walk->trainer->device->clock, WAIT_PLAIN_RECEIVES);
    return e;
}

static enum error_code walk_action(struct walk *walk, const struct action *action, struct error *err)
{
    switch (action->kind) {
    case SEND_ACTIVATION: return send_on(walk, action->micro, false, err);
    case SEND_GRADIENT: return send_on(walk, action->micro, true, err);
    case RECEIVE_ACTIVATION: return receive_next(walk, action->micro, false, err);
    case RECEIVE_GRADIENT: return receive_next(walk, action->micro, true, err);
    case FORWARD: return section_forward(walk, action->micro, err);
    default: return section_backward(walk, action->kind, action->micro, err);
    }
}

/* Before the first backward pass all devices share the counts of routers. */
static enum error_code share_routers(struct walk *walk, struct error *err)
{
    const bool shared = walk->shared;
    walk->shared = true;
    return shared ? OK : routers_share(walk->trainer, err);
}

static bool is_backward(const struct action *action)
{
    return action->kind == BACKWARD || action->kind == BACKWARD_INPUT || action->kind == RECEIVE_GRADIENT;
}

static enum error_code sections_pass(struct trainer *trainer, struct error *err)
{
    const int place = plan_place(&trainer->plan, trainer->comm->rank), n = trainer->schedule.count[place];
    struct walk walk = { .trainer = trainer, .flight = calloc(2 * (size_t)n + 1, sizeof *walk.flight) };
    while (trainer->plan.sections->stage[walk.first] != place) walk.first++;
    walk.last = walk.first;
    while (walk.last + 1 < trainer->plan.sections->count && trainer->plan.sections->stage[walk.last + 1] == place)
        walk.last++;
    enum error_code e = walk.flight ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d messages", n);
    for (int i = 0; i < n && !e; i++) {
        const struct action *const a = &trainer->schedule.actions[place][i];
        const int64_t start = trainer->device->clock.now;
        trace_enter_action(trainer->device->clock.trace, action_letter(a->kind), a->micro);
        if (is_backward(a)) e = share_routers(&walk, err);
        if (!e) e = walk_action(&walk, a, err);
        trainer->times[i] = (struct action_time){ start, trainer->device->clock.now };
    }
    trace_enter_action(trainer->device->clock.trace, NULL, 0);
    for (int i = 0; i < walk.flights && !e; i++) e = boxing_arrive(trainer->comm, &walk.flight[i], err);
    free(walk.flight);
    return e;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* All passes of a step's microbatches.  loss: of the tokens whose loss this device counts. */
static enum error_code sections_passes(struct trainer *trainer, double *loss, struct error *err)
{
    const int count = trainer->plan.sections->count;
    for (int i = 0; i < count; i++)
        if (trainer_takes_part(&trainer->section[i]))
            trainer->section[i].stage->loss = 0;
    const enum error_code e = sections_pass(trainer, err);
    *loss = 0;
    for (int i = 0; i < count; i++)
        if (trainer_takes_part(&trainer->section[i]) && trainer->section[i].stage->last)
            *loss += trainer->section[i].stage->loss;
    return e;
}

/* Without gradients: the losses with weights w + eps z, then w - eps z. */
static enum error_code sections_losses(struct trainer *trainer, struct step_result *out, struct error *err)
{
    const double eps = trainer->plan.hyper.distance,
        counted = (double)(trainer->counted[0] ? trainer->counted[0] : 1);
    double sums[2] = { 0 };
    enum error_code e = OK;
    for (int side = 0; side < 2 && !e; side++) {
        for (int i = 0; i < trainer->plan.sections->count; i++)
            if (trainer_takes_part(&trainer->section[i]))
                data_set_direction(&trainer->section[i].data, mezo_key(trainer->plan.seed, trainer->step),
                                   side == 0 ? eps : -eps);
        e = sections_passes(trainer, &sums[side], err);
    }
    if (!e) e = result_reduce(trainer, sums, 2, SUM, err);
    for (int side = 0; side < 2; side++) out->side[side] = sums[side] / counted;
    out->loss = (out->side[0] + out->side[1]) / 2, out->slope = mezo_slope(out->side, eps), out->loss_scale = 1;
    return e ? e : trainer_share_lost(trainer, fmax(sums[0], sums[1]), out, err);
}

/* Sum loss and norm over all devices: each loss, and each element of a gradient, is counted on one. */
static enum error_code sections_share(struct trainer *trainer, double loss, struct step_result *out,
                                      struct error *err)
{
    double number[RESULT_NUMBERS] = { loss }, routers = 0;
    struct exact_sum squares = { 0 };
    for (int i = 0; i < trainer->plan.sections->count; i++) {
        struct trainer *const part = &trainer->section[i];
        struct exact_sum own;
        double own_numbers[EXACT_LIMBS];
        if (!trainer_takes_part(part)) continue;
        data_norm_part(&part->data, &own);
        exact_to_numbers(&own, own_numbers);
        for (int k = 0; k < EXACT_LIMBS; k++) number[1 + k] += own_numbers[k];
    }
    exact_from_numbers(&squares, number + 1);
    encoders_norm_part(trainer, &squares);
    exact_to_numbers(&squares, number + 1);
    enum error_code e = result_reduce(trainer, number, RESULT_NUMBERS, SUM, err);
    if (!e) e = routers_loss(trainer, &routers, err);
    exact_from_numbers(&squares, number + 1);
    clock_host_waits(&trainer->device->clock, WAIT_NORM);
    out->loss_scale = trainer->loss_scale.scale;
    trainer->norm = out->norm = sqrt(exact_value(&squares)) / out->loss_scale;
    routers_name_lost(trainer, trainer->routers.lost ? *trainer->routers.lost : INFINITY, out);
    out->loss = number[0] / (double)(trainer->labels ? trainer->labels : 1) + routers;
    return e ? e : trainer_share_lost(trainer, number[0], out, err);
}

/* Read the batch, and hand every section its tokens. */
static enum error_code sections_take_batch(struct trainer *trainer, struct error *err)
{
    trainer_read_batch(trainer);
    encoders_drop_batch(trainer);
    enum error_code e = OK;
    for (int i = 0; i < trainer->plan.sections->count && !e; i++) {
        struct trainer *const part = &trainer->section[i];
        part->skipped = trainer->skipped, part->loss_scale = trainer->loss_scale;
        e = trainer_take_step(part, err);
    }
    if (!e && plan_changes(&trainer->plan)) e = sections_box(trainer, err);
    if (!e && plan_changes(&trainer->plan)) trainer_note_begun(trainer);
    if (!e) e = trainer_take_clips(trainer, err);
    for (int i = 0; i < trainer->plan.sections->count && !e; i++) {
        struct trainer *const part = &trainer->section[i];
        if (!trainer_takes_part(part)) continue;
        e = trainer_hand_batch(part, err);
        trainer->labels = part->labels, trainer->counted[0] = part->counted[0];
    }
    return e;
}

/* The passes of a step with gradients, and their reduction. */
static enum error_code sections_reduced_passes(struct trainer *trainer, double *loss, struct error *err)
{
    enum error_code e = encoders_forward(trainer, err);
    if (!e) e = sections_passes(trainer, loss, err);
    for (int i = trainer->plan.sections->count - 1; i >= 0 && !e && !forward_only(trainer); i--)
        if (trainer_takes_part(&trainer->section[i])) e = trainer_reduce(&trainer->section[i], err);
    if (!e && trainer->tied && !forward_only(trainer)) e = tied_reduce(trainer->tied, trainer, err);
    return e ? e : encoders_backward(trainer, err);
}

enum error_code sections_gradients(struct trainer *trainer, struct step_result *out, struct error *err)
{
    double loss = 0;
    enum error_code e = sections_take_batch(trainer, err);
    routers_begin(trainer);
    for (int i = 0; i < trainer->plan.sections->count; i++)
        if (trainer_takes_part(&trainer->section[i])) routers_lend(trainer, &trainer->section[i]);
    trainer->updated = 0;
    trainer_begin_sums(trainer);
    if (!e) e = draws(trainer) ? sections_losses(trainer, out, err) : sections_reduced_passes(trainer, &loss, err);
    if (!e && !draws(trainer)) e = sections_share(trainer, loss, out, err);
    if (e) comm_give_up(trainer->comm, err);
    messages_have_ended(trainer->comm, "at the end of a step's passes");
    /* Now routings and clips are known. */
    if (sections_differ_by_step(&trainer->plan)) sections_note_held(trainer);
    return OK;
}

enum error_code sections_step(struct trainer *trainer, double gradient_scale, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < trainer->plan.sections->count && !e; i++)
        if (trainer_takes_part(&trainer->section[i])) e = trainer_step(&trainer->section[i], gradient_scale, err);
    trainer->updated++;
    return e;
}

void sections_adapt(struct trainer *trainer)
{
    for (int i = 0; i < trainer->plan.sections->count; i++) {
        struct expert_parallel *const ep = &trainer->section[i].seams.ep;
        if (trainer_takes_part(&trainer->section[i]) && ep->scheme->step) ep->scheme->step(ep);
    }
}

void sections_skip_step(struct trainer *trainer)
{
    for (int i = 0; i < trainer->plan.sections->count; i++)
        if (trainer_takes_part(&trainer->section[i])) data_skip_step(&trainer->section[i].data);
}
