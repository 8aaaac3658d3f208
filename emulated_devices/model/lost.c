/* lost.c -- names the first exact sum of a step that does not exist, on whatever device that sum was.
 *
 * ref/exact/ notes in the process that a sum was lost (ref/numeric/fixed_sum.h).  Files of model/ say which node's.  In
 * a step whose numbers are all finite no message is sent.  Errors: ERR_COMM.
 */
#include "emulated_devices/model/lost.h"
#include "emulated_devices/model/result.h"
#include "emulated_devices/model/trainer.h"
#include "ref/exact/grid.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void lost_begin(struct stage *stage)
{
    stage->lost = (struct lost_sum){ .order = INFINITY };
    (void)fixed_loss_take();
}

/* The place of a part's list in a step: layers one after another, and back. */
static double order_of(const struct stage *stage, const struct model_part *part, enum list which)
{
    const double layers = (double)stage->plan->model.L + 2, at = part ? part->layer + 1 : layers;
    return which == LIST_FORWARD ? at : 2 * layers - at;
}

void lost_note(struct stage *stage, const struct model_part *part, enum list which, const char *name)
{
    static const char *const what[LIST_COUNT] = { "", "", "the gradient of what enters ",
                                                  "the gradient of the weights of " };
    struct lost_sum *const lost = &stage->lost;
    const enum fixed_loss why = fixed_loss_take();
    char layer[24] = "";
    if (why == FIXED_ALL_THERE || lost->order < (double)INFINITY) return;
    if (part && part->layer >= 0 && part->layer < stage->plan->model.L) snprintf(layer, sizeof layer, "h.%d.",
                                                                                 part->layer);
    *lost = (struct lost_sum){ .order = order_of(stage, part, which), .beyond = why == FIXED_BEYOND };
    snprintf(lost->name, sizeof lost->name, "%s%s%s", part ? what[which] : "", layer, name);
}

/* The first of this device's stages. */
static struct lost_sum lost_here(const struct trainer *trainer)
{
    struct lost_sum first = { .order = INFINITY };
    for (int c = 0; c < trainer->plan.chunks; c++)
        if (trainer->stage[c].lost.order < first.order) first = trainer->stage[c].lost;
    return first;
}

static enum error_code share_reduce(struct trainer *trainer, double *number, int count, enum reduction how,
                                    struct error *err)
{
    account_add(&trainer->begun.of[TRAFFIC_RESULT], result_reduce_cost(trainer, count, how), 1);
    return result_reduce(trainer, number, count, how, err);
}

/* number = order, whether it is only a term, and the device: the smallest is the first loss.  Its device then sends the
 * name, a number for each letter, and all others send zeros. */
static enum error_code name_first(struct trainer *trainer, struct step_result *out, struct error *err)
{
    const struct lost_sum here = lost_here(trainer);
    const double devices = trainer->comm->size, own = (here.order * 2 + !here.beyond) * devices + trainer->comm->rank;
    double number = own, letter[LOST_NAME] = { 0 };
    enum error_code e = share_reduce(trainer, &number, 1, MIN, err);
    if (e || isinf(number)) return e;
    for (int i = 0; i < LOST_NAME && number == own; i++) letter[i] = (unsigned char)here.name[i];
    e = share_reduce(trainer, letter, LOST_NAME, SUM, err);
    out->lost = (struct lost_sum){ .order = here.order, .beyond = fmod(floor(number / devices), 2) == 0 };
    for (int i = 0; i < LOST_NAME - 1; i++) out->lost.name[i] = (char)letter[i];
    return e;
}

enum error_code lost_share(struct trainer *trainer, double losses, struct step_result *out, struct error *err)
{
    out->lost = (struct lost_sum){ .order = INFINITY };
    if (!trainer->device->exact) return OK;
    lost_note(&trainer->stage[0], NULL, LIST_WEIGHT, "a gradient, added over devices");
    /* Each device's sum is exact, since its losses are no less than 0; the whole may be beyond fp64's 53 bits. */
    if (losses >= LOSS_MOST) {
        out->loss = NAN;
        out->lost = (struct lost_sum){ .order = 0, .beyond = true, .name = "the losses of all tokens" };
        return OK;
    }
    return isfinite(out->loss) && isfinite(out->norm) ? OK : name_first(trainer, out, err);
}
