/* sections_cost.c -- what one device's part of a plan with sections sends and holds, by formula.
 * model/trainer_cost.c calls.  No function returns an error code. */
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/sections/sections_run.h"
#include "emulated_devices/model/sections/tied.h"
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/plan/sections.h"

/* Without gradients nothing crosses back; both losses of a step without gradients have a pass. */
static int passes_of(const struct trainer *trainer, enum crossing crossing)
{
    const bool back = crossing == CROSSES_GRADIENT || crossing == CROSSES_SLOPES;
    return forward_only(trainer) && back ? 0 : plan_passes(&trainer->plan);
}

/* Every microbatch is boxed once in each direction at each boundary, in a pass. */
static struct account boxings_cost(const struct trainer *trainer)
{
    struct ledger ledger = { 0 };
    for (int s = 1; s < trainer->plan.sections->count; s++)
        for (enum crossing c = 0; c < CROSSINGS; c++)
            for (int m = 0; m < trainer->plan.micros && trainer->boundary[s].of[c]; m++)
                for (int pass = 0; pass < passes_of(trainer, c); pass++)
                    boxing_cost(boundary_boxing(&trainer->boundary[s], c, m), &trainer->between,
                                crossing_dtype(&trainer->plan, c), &ledger);
    if (trainer->tied && !forward_only(trainer)) tied_cost(trainer->tied, trainer, &ledger);
    return ledger.of[TRAFFIC_PIPELINE];
}

static struct account result_cost(const struct trainer *trainer)
{
    if (draws(trainer)) return result_reduce_cost(trainer, 2, SUM);
    struct account sum = result_reduce_cost(trainer, RESULT_NUMBERS, SUM);
    account_add(&sum, routers_cost(trainer), 1);
    return sum;
}

struct account sections_cost(const struct trainer *trainer, enum traffic_kind kind)
{
    struct account sum = { 0 };
    if (kind == TRAFFIC_RESULT) return result_cost(trainer);
    if (kind == TRAFFIC_PIPELINE) return boxings_cost(trainer);
    for (int i = 0; i < trainer->plan.sections->count; i++)
        if (trainer_takes_part(&trainer->section[i])) account_add(&sum, trainer_cost(&trainer->section[i], kind), 1);
    return sum;
}

void sections_begun(const struct trainer *trainer, int section, struct ledger *ledger)
{
    const struct trainer *const part = &trainer->section[section];
    account_add(&ledger->of[TRAFFIC_DATA], part->begun.of[TRAFFIC_DATA], 1);
    account_add(&ledger->of[TRAFFIC_RESULT], part->begun.of[TRAFFIC_RESULT], 1);
    if (trainer_takes_part(part)) account_add(&ledger->of[TRAFFIC_EXPERTS], part->stage->dispatched, 1);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Walk the list of actions: a section's input is held from when it is received or boxed. */
static struct held activations(const struct trainer *trainer)
{
    const int place = plan_place(&trainer->plan, trainer->comm->rank), count = trainer->plan.sections->count;
    struct held h = { 0 };
    for (int i = 0; i < trainer->schedule.count[place]; i++) {
        const struct action *const a = &trainer->schedule.actions[place][i];
        if (action_is_message(a->kind)) continue;
        const bool forward = a->kind == FORWARD;
        for (int k = 0; k < count; k++) {
            const struct trainer *const part = &trainer->section[forward ? k : count - 1 - k];
            if (!trainer_takes_part(part)) continue;
            const struct stage *const stage = part->stage;
            if (forward && !stage->first) held_more(&h, stage_message_bytes(stage, a->micro));
            if (forward) stage_forward_held(stage, a->micro, &h);
            else stage_backward_held(stage, a->micro, a->kind != BACKWARD_WEIGHT, a->kind != BACKWARD_INPUT, &h);
        }
    }
    return h;
}

void sections_note_held(struct trainer *trainer)
{
    const struct encoders_held beside = encoders_activations(trainer);
    struct held h = activations(trainer);
    h.peak = larger(h.peak + beside.during, beside.most);
    h.together = larger(h.together + beside.during, beside.most);
    trainer->held = (struct held){ .peak = larger(trainer->held.peak, h.peak),
                                   .together = larger(trainer->held.together, h.together) };
}

/* If rows, routings or clips are known only in a step, the largest step counts. */
static struct held activations_held(const struct trainer *trainer)
{
    const bool noted = plan_routes_rows(&trainer->plan) || trainer->held.peak > 0;
    return noted && sections_differ_by_step(&trainer->plan) ? trainer->held : activations(trainer);
}

/* ---- weights and gradients that exist for a while ---------------------------------------------------------------- */

/* Elements of one kind that exist in a use. */
static struct passing weights_in(const struct use *use) { return use->weights; }
static struct passing gradients_in(const struct use *use) { return use->gradients; }

/* The walk keeps what each section of this device has left when it last computed, and the most of all together. */
struct passing_walk {
    const struct trainer *trainer;
    struct passing (*in)(const struct use *);
    int64_t left[SECTIONS_MOST], all, most;
    int done[SECTIONS_MOST];       /* passes of each section's list */
};

/* One section's next pass: what other sections have left stays meanwhile. */
static void walk_section(struct passing_walk *walk, int own, const struct trainer *section)
{
    const struct data_parallel *const data = &section->data;
    const int pass = walk->done[own]++;
    for (int u = section->use_end[pass]; u < section->use_end[pass + 1]; u++) {
        const struct passing now = walk->in(&data->use[u]);
        const int64_t others = walk->all - walk->left[own];
        walk->most = others + now.during > walk->most ? others + now.during : walk->most;
        walk->all += now.after - walk->left[own], walk->left[own] = now.after;
    }
}

/* The most elements that exist for a while on the device, over all sections, in the order of its list. */
static int64_t most_passing(const struct trainer *trainer, struct passing (*in)(const struct use *))
{
    const int place = plan_place(&trainer->plan, trainer->comm->rank), count = trainer->plan.sections->count;
    struct passing_walk walk = { .trainer = trainer, .in = in };
    for (int i = 0; i < trainer->schedule.count[place]; i++) {
        const struct action *const a = &trainer->schedule.actions[place][i];
        for (int k = 0; k < count && !action_is_message(a->kind); k++) {
            const int s = a->kind == FORWARD ? k : count - 1 - k;
            if (trainer_takes_part(&trainer->section[s])) walk_section(&walk, s, &trainer->section[s]);
        }
    }
    return walk.most;
}

/* Sections keep this all the time; it adds up. */
static struct model_state kept_by_all(const struct trainer *trainer)
{
    struct model_state all = { 0 };
    for (int i = 0; i < trainer->plan.sections->count; i++) {
        const struct model_state own = data_resident(&trainer->section[i].data);
        all.weights += own.weights, all.gradients += own.gradients, all.optimizer += own.optimizer;
    }
    return all;
}

/* Sections step one after another: the most that one of them holds beside what is kept, in passes or in its step. */
static struct model_state most_beside(const struct trainer *trainer)
{
    const struct data_parallel *const any = &trainer->data;
    struct model_state most = {
        .weights = (uint64_t)most_passing(trainer, weights_in) * dtype_size(data_format(any, KIND_WEIGHT)),
        .gradients = (uint64_t)most_passing(trainer, gradients_in) * dtype_size(data_format(any, KIND_GRADIENT))
    };
    for (int i = 0; i < trainer->plan.sections->count; i++) {
        const struct data_parallel *const data = &trainer->section[i].data;
        const struct model_state kept = data_resident(data), peak = data_peak(data);
        most.weights = larger(most.weights, peak.weights - kept.weights);
        most.gradients = larger(most.gradients, peak.gradients - kept.gradients);
        most.optimizer = larger(most.optimizer, peak.optimizer - kept.optimizer);
    }
    return most;
}

/* Encoders and the model need memory for a while at different times; but weights that are gathered once for forward
 * and backward stay through the passes of the model. */
uint64_t sections_peak(const struct trainer *trainer, enum arena_tag tag)
{
    const struct model_state kept = kept_by_all(trainer), beside = most_beside(trainer),
        more = encoders_resident(trainer), passing = encoders_passing(trainer);
    const bool once = trainer->data.shards.once;
    switch (tag) {
    case PARAMETERS:
        return kept.weights + more.weights
            + (once ? beside.weights + passing.weights : larger(beside.weights, passing.weights));
    case GRADIENTS: return kept.gradients + more.gradients + larger(beside.gradients, passing.gradients);
    case OPTIMIZER: return kept.optimizer + more.optimizer + larger(beside.optimizer, passing.optimizer);
    case ACTIVATIONS: return activations_held(trainer).peak;
    default: return 0;
    }
}

/* Passes and the steps of sections hold their buffers at different times, so the largest one counts. */
uint64_t sections_least(const struct trainer *trainer)
{
    const struct model_state kept = kept_by_all(trainer), beside = most_beside(trainer);
    uint64_t at_once = larger(activations_held(trainer).together, larger(beside.weights, beside.gradients));
    for (int i = 0; i < trainer->plan.sections->count; i++)
        at_once = larger(at_once, data_step_buffers(&trainer->section[i].data));
    const struct model_state more = encoders_resident(trainer);
    return kept.weights + kept.gradients + kept.optimizer + more.weights + more.gradients + more.optimizer + at_once;
}
