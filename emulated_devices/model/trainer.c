/* trainer.c -- a training step: passes, reduction, norm, optimizer step.  zeroth.c and train/training.c call these
 * functions.  ERR_DIVERGED means that gradients overflow at the least loss scale; ERR_MEMORY.  After an error the
 * trainer can only be closed. */
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/apart.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/sections/sections_run.h"
#include "emulated_devices/model/zeroth.h"
#include "ref/exact/grid.h"
#include "ref/io/figures.h"
#include <math.h>

/* ---- an optimizer step, at the end of a step or inside it -------------------------------------------------------- */

enum error_code trainer_reduce(struct trainer *trainer, struct error *err)
{
    trainer->device->arena.doing = (struct doing){ .pass = "reduction of gradients", .micro = -1 };
    const enum error_code e = data_finish_gradients(&trainer->data, err);
    return e ? e : trainer_reduce_shared(trainer, err);
}

enum error_code trainer_step(struct trainer *trainer, double gradient_scale, struct error *err)
{
    /* The number of the optimizer step: skipped steps do not count in bias corrections. */
    const int64_t at = trainer->step * trainer->plan.updates + ++trainer->updated - trainer->skipped;
    trainer->device->arena.doing = (struct doing){ .pass = "optimizer step", .micro = -1 };
    return data_step(&trainer->data, at, gradient_scale, err);
}

/* Take an optimizer step inside the training step.  trainer_update takes the last one, with the norm. */
static enum error_code update_in_stream(struct trainer *trainer, int micro, struct error *err)
{
    /* The last one follows the list, when norm and loss are known. */
    if (micro == trainer->plan.micros - 1) return OK;
    enum error_code e = trainer_reduce(trainer, err);
    return e ? e : trainer_step(trainer, 1, err);
}

static enum error_code model_trainer_pass(struct trainer *trainer, enum action_kind kind, struct stage *stage,
                                          int micro, struct error *err)
{
    /* The loss is divided by the labels of its own optimizer step. */
    stage->counted = trainer->counted[batch_of(trainer, micro)];
    if (kind == FORWARD) return stage_forward(stage, micro, err);
    return stage_backward(stage, micro, kind != BACKWARD_WEIGHT, kind != BACKWARD_INPUT, err);
}

enum error_code trainer_compute(void *context, enum action_kind kind, int chunk, int micro, struct error *err)
{
    static const char *const name[] = { [FORWARD] = "forward", [BACKWARD] = "backward",
                                        [BACKWARD_INPUT] = "backward for inputs",
                                        [BACKWARD_WEIGHT] = "backward for weights" };
    struct trainer *t = context;
    struct doing *const doing = &t->device->arena.doing;
    if (kind == UPDATE) return update_in_stream(t, micro, err);
    *doing = (struct doing){ .pass = name[kind], .micro = micro };
    const enum error_code e = model_trainer_pass(t, kind, &t->stage[chunk], micro, err);
    /* Memory that is allocated from here on belongs to no pass. */
    *doing = (struct doing){ .pass = "messages after the passes", .micro = micro };
    return e;
}

#define PLACE(name)                                                                                             \
    static struct tensor name(void *context, int chunk, int micro)                                              \
    {                                                                                                           \
        return stage_##name(&((struct trainer *)context)->stage[chunk], micro);                                 \
    }
PLACE(input)
PLACE(output_gradient)
PLACE(take_output)
PLACE(take_input_gradient)
#undef PLACE

static struct stage_note trainer_note(void *context, int chunk, int micro, bool gradient)
{
    return stage_note(&((struct trainer *)context)->stage[chunk], micro, gradient);
}

static enum error_code backward_begins(void *context, struct error *err) { return routers_share(context, err); }

static const struct stage_operations stage_operations = {
    .compute = trainer_compute, .input = input, .output_gradient = output_gradient, .take_output = take_output,
    .take_input_gradient = take_input_gradient, .note = trainer_note, .backward_begins = backward_begins,
};

/* ---- a step, its two halves -------------------------------------------------------------------------------------- */

void trainer_begin_sums(struct trainer *trainer)
{
    struct trainer *part;
    for (int i = 0; (part = trainer_section(trainer, i)) != NULL; i++)
        for (int c = 0; c < part->stages_open; c++) stage_begin_sums(&part->stage[c]);
}

enum error_code trainer_pass(struct trainer *trainer, double *loss, struct error *err)
{
    for (int c = 0; c < trainer->plan.chunks; c++) trainer->stage[c].loss = 0;
    const enum error_code e = schedule_execute(&trainer->schedule, &trainer->pp, &stage_operations, trainer,
                                               trainer->times, err);
    *loss = 0;
    for (int c = 0; c < trainer->plan.chunks; c++)
        if (trainer->stage[c].last) *loss += trainer->stage[c].loss;
    return e;
}

/* The first exact sum that this device's stages have lost. */
static struct lost_sum lost_here(struct trainer *trainer)
{
    struct lost_sum first = { .order = INFINITY };
    const struct trainer *part;
    for (int i = 0; (part = trainer_section(trainer, i)) != NULL; i++)
        for (int c = 0; c < part->stages_open; c++)
            if (part->stage[c].lost.order < first.order) first = part->stage[c].lost;
    return first;
}

/* Sums of gradients are added over devices after all passes. */
static void note_lost_gradients(struct trainer *trainer)
{
    struct trainer *part;
    for (int i = 0; (part = trainer_section(trainer, i)) != NULL; i++)
        if (part->stages_open > 0)
            stage_note_lost(&part->stage[0], NULL, LIST_WEIGHT, "a gradient, added over devices");
}

static enum error_code reduce_lost(struct trainer *trainer, double *number, int count, enum reduction how,
                                   struct error *err)
{
    account_add(&trainer->begun.of[TRAFFIC_RESULT], result_reduce_cost(trainer, count, how), 1);
    return result_reduce(trainer, number, count, how, err);
}

/* number = order, whether only a term is not finite, and the device: the smallest is the first loss.  Its device sends
 * the name, a number for each letter, and all others send zeros. */
static enum error_code name_lost(struct trainer *trainer, struct step_result *out, struct error *err)
{
    const struct lost_sum here = lost_here(trainer);
    const double devices = trainer->comm->size, own = (here.order * 2 + !here.beyond) * devices + trainer->comm->rank;
    double number = own, letter[LOST_NAME] = { 0 };
    enum error_code e = reduce_lost(trainer, &number, 1, MIN, err);
    if (e || isinf(number)) return e;
    for (int i = 0; i < LOST_NAME && number == own; i++) letter[i] = (unsigned char)here.name[i];
    e = reduce_lost(trainer, letter, LOST_NAME, SUM, err);
    out->lost = (struct lost_sum){ .order = here.order, .beyond = fmod(floor(number / devices), 2) == 0 };
    for (int i = 0; i < LOST_NAME - 1; i++) out->lost.name[i] = (char)letter[i];
    return e;
}

enum error_code trainer_share_lost(struct trainer *trainer, double losses, struct step_result *out, struct error *err)
{
    out->lost = (struct lost_sum){ .order = INFINITY };
    if (!trainer->device->exact) return OK;
    note_lost_gradients(trainer);
    /* Each device's sum is exact, since its losses are no less than 0; the whole may be beyond fp64's 53 bits. */
    if (losses >= LOSS_MOST) {
        out->loss = NAN;
        out->lost = (struct lost_sum){ .order = 0, .beyond = true, .name = "the losses of all tokens" };
        return OK;
    }
    return isfinite(out->loss) && isfinite(out->norm) ? OK : name_lost(trainer, out, err);
}

/* Reduce loss and norm, a few numbers.  Of the devices of a tp group with the same tokens, one contributes the
 * loss. */
static enum error_code share_result(struct trainer *trainer, double loss, struct step_result *out, struct error *err)
{
    double number[RESULT_NUMBERS] = { loss }, routers = 0;
    struct replica_sums sums;
    struct exact_sum squares;
    /* number = loss, then the limbs of an exact sum of squares: the norm does not depend on the order of devices. */
    data_norm_part(&trainer->data, &squares);
    encoders_norm_part(trainer, &squares);
    exact_to_numbers(&squares, number + 1);
    enum error_code e = result_reduce(trainer, number, RESULT_NUMBERS, SUM, err);
    exact_from_numbers(&squares, number + 1);
    sums = (struct replica_sums){ number[0], exact_value(&squares), INFINITY };
    out->loss_scale = trainer->loss_scale.scale;
    clock_host_waits(&trainer->device->clock, WAIT_NORM);
    /* Gradients have the loss scale as a factor; the norm does not. */
    trainer->norm = sqrt(sums.squares) / out->loss_scale;
    if (!e) e = routers_loss(trainer, &routers, err);
    if (trainer->routers.lost) sums.lost = *trainer->routers.lost;
    if (trainer->data.shards.apart) sums.loss += routers * (double)trainer_replica_labels(trainer), routers = 0;
    /* Replicas that train apart have a norm and a loss each; here they are combined for the report. */
    if (!e && trainer->data.shards.apart) e = apart_share(trainer, &sums, err);
    routers_name_lost(trainer, sums.lost, out);
    out->loss = sums.loss / (double)(trainer->labels ? trainer->labels : 1) + routers;
    out->norm = sqrt(sums.squares) / out->loss_scale;
    return e ? e : trainer_share_lost(trainer, sums.loss, out, err);
}

static enum error_code gradients(struct trainer *trainer, struct step_result *out, struct error *err)
{
    double loss = 0;
    enum error_code e = encoders_forward(trainer, err);
    if (!e) e = trainer_pass(trainer, &loss, err);
    /* The model's gradients are where they are stepped before encoders need memory for theirs. */
    if (!e) e = trainer_reduce(trainer, err);
    if (!e) e = encoders_backward(trainer, err);
    if (!e) e = share_result(trainer, loss, out, err);
    return e;
}

static enum error_code only_loss(struct trainer *trainer, struct step_result *out, struct error *err)
{
    double loss = 0;
    enum error_code e = trainer_pass(trainer, &loss, err);
    return e ? e : share_result(trainer, loss, out, err);
}

/* Messages of a step are waited for in it. */
static void end_messages(struct trainer *trainer, const char *part)
{
    char when[80];
    snprintf(when, sizeof when, "at the end of %sstep %lld", part, (long long)trainer->step + 1);
    messages_have_ended(trainer->comm, when);
}

enum error_code trainer_gradients(struct trainer *trainer, struct step_result *out, struct error *err)
{
    enum error_code e = trainer->section ? sections_gradients(trainer, out, err) : trainer_take_batch(trainer, err);
    if (trainer->section) return e;
    trainer_begin_sums(trainer);
    if (!e) e = draws(trainer) ? zeroth_losses(trainer, out, err) : infers(trainer) ? only_loss(trainer, out, err)
        : gradients(trainer, out, err);
    /* Inside a step devices cannot agree on an error: others wait for messages. */
    if (e) comm_give_up(trainer->comm, err);
    end_messages(trainer, "the passes of ");
    if (plan_cuts_experts(&trainer->plan)) trainer_note_held(trainer);      /* now the routings are known */
    return OK;
}

/* Each device checks its own budget; then all agree on one message.  The memory needed is known only after a whole
 * step. */
static enum error_code check_budget(struct trainer *trainer, struct error *err)
{
    const struct arena *a = &trainer->device->arena;
    char where[64];
    enum error_code e = OK;
    if (arena_over(a))
        e = fail(err, ERR_MEMORY, "device %d (%s) needs %s of memory; its budget is %s", trainer->comm->rank,
                 mesh_describe(&trainer->plan.mesh, trainer->comm->rank, where, sizeof where),
                 size_format(a->peak.total).text,
                 memory_format(a->budget).text);
    return comm_agree(trainer->comm, e, err);
}

/* The factor of all gradients, or of the drawn direction. */
static double step_scale(const struct trainer *trainer, const struct step_result *out)
{
    return draws(trainer) ? out->slope : clip_scale(&trainer->plan.hyper, trainer->norm) / out->loss_scale;
}

enum error_code trainer_update(struct trainer *trainer, struct step_result *out, struct error *err)
{
    enum error_code e = OK;
    if (infers(trainer)) {
        clock_end_step(&trainer->device->clock);
        trainer->step++;
        return check_budget(trainer, err);
    }
    /* Every device has the same norm, so all skip the step or none does. */
    out->skipped = !loss_scale_update(&trainer->loss_scale, !isfinite(out->norm));
    if (trainer->loss_scale.exhausted)
        e = fail(err, ERR_DIVERGED, "step %lld: gradients overflow at loss scale %g, the least that --as %s allows",
                 (long long)trainer->step + 1, trainer->loss_scale.scale, trainer->plan.hyper.as.text);
    if (e) return comm_agree(trainer->comm, e, err);
    if (out->skipped) {
        if (trainer->section) sections_skip_step(trainer);
        else data_skip_step(&trainer->data);
        encoders_skip(trainer);
        trainer->skipped++;
    } else if (trainer->section)
        e = sections_step(trainer, step_scale(trainer, out), err);
    else e = trainer_step(trainer, step_scale(trainer, out), err);
    if (!out->skipped) routers_update(trainer);
    if (!e && !out->skipped) e = encoders_update(trainer, step_scale(trainer, out), err);
    if (trainer->section) sections_adapt(trainer);
    else if (trainer->seams.ep.scheme->step) trainer->seams.ep.scheme->step(&trainer->seams.ep);
    if (e) comm_give_up(trainer->comm, err);
    end_messages(trainer, "");
    clock_end_step(&trainer->device->clock);
    trainer->step++;
    out->lr = learning_rate(&trainer->plan.hyper, trainer->step * trainer->plan.updates - trainer->skipped);
    return check_budget(trainer, err);
}
