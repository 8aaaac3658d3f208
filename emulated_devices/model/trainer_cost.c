/* trainer_cost.c -- what one device's part of a step holds, sends and moves, by formula.  Files of bench/, model/,
 * run/, train/ and other rooms call these functions.  No function returns an error code. */
#include "emulated_devices/model/away.h"
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/model/sections/sections_run.h"
#include "emulated_devices/model/zeroth.h"

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static uint64_t activation_message(const void *context, int micro)
{
    const struct trainer *t = context;
    return stage_message_bytes(&t->stage[0], micro);
}

static uint64_t note_message(const void *context, int micro, bool gradient)
{
    const struct trainer *t = context;
    return stage_note(&t->stage[0], micro, gradient).bytes;
}

/* Walk the list of actions.  A received input is held from when its receive is posted, everything else from forward on;
 * both until the end of backward for the weights. */
struct held trainer_activations(const struct trainer *trainer)
{
    const struct schedule *s = &trainer->schedule;
    const int self = trainer->pp.rank;
    struct held h = { 0 };
    struct posting posting = { 0 };
    for (int i = 0; i < s->count[self]; i++) {
        const struct action *a = &s->actions[self][i];
        const struct stage *stage = &trainer->stage[a->chunk];
        const uint64_t input = activation_message(trainer, a->micro);
        for (int at; (at = posting_next(&posting, s, self, i)) >= 0; )
            if (s->actions[self][at].kind == RECEIVE_ACTIVATION)
                held_more(&h, activation_message(trainer, s->actions[self][at].micro));
        posting.open -= action_is_receive(a->kind);
        if (a->kind == FORWARD) stage_forward_held(stage, a->micro, &h);
        if (a->kind == FORWARD && place_after(s, a->micro, stage->index).device == self) held_more(&h, input);
        if (a->kind == BACKWARD) stage_backward_held(stage, a->micro, true, true, &h);
        if (a->kind == BACKWARD_INPUT) stage_backward_held(stage, a->micro, true, false, &h);
        if (a->kind == BACKWARD_WEIGHT) stage_backward_held(stage, a->micro, false, true, &h);
    }
    return h;
}

/* If the plan changes, experts' rows are known only after routing, or clips differ, the largest step counts. */
static struct held activations_held(const struct trainer *trainer)
{
    const bool noted = plan_changes(&trainer->plan) || plan_cuts_experts(&trainer->plan) ||
                       (trainer->plan.encoders.kinds > 0 && trainer->held.peak > 0);
    return noted ? trainer->held : trainer_activations(trainer);
}

/* The peak of a class: all that is kept, and the larger of what the model and what encoders need for a while. */
static uint64_t peak_of(uint64_t model, uint64_t model_peak, uint64_t encoders, uint64_t passing)
{
    return model + encoders + larger(model_peak - model, passing);
}

uint64_t trainer_peak(const struct trainer *trainer, enum arena_tag tag)
{
    if (trainer->section) return sections_peak(trainer, tag);
    const struct model_state peak = data_peak(&trainer->data), kept = data_resident(&trainer->data),
                             more = encoders_resident(trainer), passing = encoders_passing(trainer);
    switch (tag) {
    case PARAMETERS:
        if (trainer->data.shards.once) return peak.weights + more.weights + passing.weights;
        return peak_of(kept.weights, peak.weights, more.weights, passing.weights);
    case GRADIENTS: return peak_of(kept.gradients, peak.gradients, more.gradients, passing.gradients);
    case OPTIMIZER: return peak_of(kept.optimizer, peak.optimizer, more.optimizer, passing.optimizer);
    case ACTIVATIONS: return activations_held(trainer).peak;
    default: return 0;
    }
}

uint64_t trainer_least(const struct trainer *trainer)
{
    if (trainer->section) return sections_least(trainer);
    const struct model_state kept = data_resident(&trainer->data), peak = data_peak(&trainer->data);
    const uint64_t whole = larger(peak.weights - kept.weights, peak.gradients - kept.gradients);
    /* Passes and the optimizer's step hold their buffers at different times, so the larger one counts. */
    const uint64_t at_once = larger(activations_held(trainer).together,
                                    larger(whole, data_step_buffers(&trainer->data)));
    const struct model_state more = encoders_resident(trainer);
    return kept.weights + kept.gradients + kept.optimizer + more.weights + more.gradients + more.optimizer + at_once;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A unit's gradient is sent to every other place that holds the unit, and theirs are received. */
static void enter_shared(struct ledger *ledger, const struct trainer *trainer, const struct unit *unit)
{
    int place[MESH_MOST_LISTED];
    const int holders = holders_of(unit) > 1
        ? plan_holders(&trainer->plan, &trainer->schedule, &unit->parameter[0].spec, place) : 1;
    const struct tensor g = data_own_gradient(unit);
    for (int i = 0; i < holders && holders > 1; i++)
        if (place[i] != trainer->pp.rank)
            ledger_messages(ledger, &trainer->pp, ALLREDUCE, place[i], tensor_bytes(g), 1);
    ledger_additions(ledger, &trainer->pp, ALLREDUCE, (uint64_t)((holders - 1) * tensor_count(g)));
}

static struct account pipeline_cost(const struct trainer *trainer)
{
    struct account sum = { 0 };
    struct ledger shared = { 0 };
    const struct stage_sizes sizes = { activation_message, note_message };
    account_add(&sum, schedule_cost(&trainer->schedule, &trainer->pp, &sizes, trainer), plan_passes(&trainer->plan));
    for (int u = 0; u < trainer->data.units && !forward_only(trainer); u++)
        enter_shared(&shared, trainer, &trainer->data.unit[u]);
    account_add(&sum, shared.of[TRAFFIC_PIPELINE], trainer->plan.updates);
    return sum;
}

static struct account result_cost(const struct trainer *trainer)
{
    if (draws(trainer)) return zeroth_cost(trainer);
    struct account sum = result_reduce_cost(trainer, RESULT_NUMBERS, SUM);
    account_add(&sum, routers_cost(trainer), 1);
    return sum;
}

/* Whether a microbatch passes through this device's stage, or through another place that holds it. */
static bool runs_here(const struct trainer *trainer, int chunk, int micro)
{
    const struct place at = place_of(&trainer->schedule, micro, trainer->stage[chunk].index);
    return at.device == trainer->pp.rank && at.chunk == chunk;
}

static struct account stages_cost(const struct trainer *trainer,
                                  struct account (*cost)(const struct stage *, int micro))
{
    struct account sum = { 0 };
    for (int c = 0; c < trainer->plan.chunks; c++)
        for (int i = 0; i < trainer->plan.micros; i++)
            if (runs_here(trainer, c, i)) account_add(&sum, cost(&trainer->stage[c], i), plan_passes(&trainer->plan));
    return sum;
}

struct account trainer_cost(const struct trainer *trainer, enum traffic_kind kind)
{
    if (trainer->section) return sections_cost(trainer, kind);
    switch (kind) {
    case TRAFFIC_TENSOR: {
        struct account sum = stages_cost(trainer, stage_cost);
        account_add(&sum, data_adapters_cost(&trainer->data, false), 1);
        return sum;
    }
    case TRAFFIC_EXPERTS:   return data_adapters_cost(&trainer->data, true);
    case TRAFFIC_ATTENTION: return stages_cost(trainer, stage_attention_cost);
    case TRAFFIC_DATA:      return data_cost(&trainer->data);
    case TRAFFIC_PIPELINE:  return pipeline_cost(trainer);
    case TRAFFIC_RESULT:    return result_cost(trainer);
    default:                return (struct account){ 0 };
    }
}

void trainer_predict(const struct trainer *trainer, int64_t steps, struct ledger *ledger)
{
    const int64_t skipped = trainer->skipped - trainer->skipped_before, taken = steps * trainer->plan.updates - skipped;
    struct account *const data = &ledger->of[TRAFFIC_DATA];
    *ledger = trainer->begun;
    for (int i = 0; trainer->section && i < trainer->plan.sections->count; i++) sections_begun(trainer, i, ledger);
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT && !plan_changes(&trainer->plan); kind++)
        account_add(&ledger->of[kind], trainer_cost(trainer, kind), steps);
    for (int c = 0; c < trainer->stages_open; c++)
        account_add(&ledger->of[TRAFFIC_EXPERTS], trainer->stage[c].dispatched, 1);
    account_add(&ledger->of[TRAFFIC_ENCODERS], trainer->encoders.bridged, 1);
    account_add(&ledger->of[TRAFFIC_ENCODERS], encoders_cost(trainer, steps, skipped), 1);
    account_add(data, data_outer_cost(&trainer->data),
                outer_steps(&trainer->data.outer, trainer->step - steps, trainer->step));
    /* A skipped step sends no new weights, so its share is taken back. */
    account_add(data, data_renewal_cost(&trainer->data), -skipped);
    for (int i = 0; trainer->section && i < trainer->plan.sections->count; i++)
        account_add(data, data_renewal_cost(&trainer->section[i].data), -skipped);
    account_add(data, data_saved_by_projecting(&trainer->data, taken, skipped), -1);
    for (int i = 0; trainer->section && i < trainer->plan.sections->count; i++)
        account_add(data, data_saved_by_projecting(&trainer->section[i].data, taken, skipped), -1);
}

/* The slow tiers of all sections are one device's. */
static struct tier_traffic over_sections(const struct trainer *trainer,
                                         struct tier_traffic (*of)(const struct trainer *))
{
    struct tier_traffic sum = { 0 };
    for (int i = 0; i < trainer->plan.sections->count; i++) tier_traffic_add(&sum, of(&trainer->section[i]), 1);
    return sum;
}

struct tier_traffic trainer_tier_traffic_so_far(const struct trainer *trainer, int64_t steps)
{
    const int64_t skipped = trainer->skipped - trainer->skipped_before;
    struct tier_traffic sum = trainer->moved;
    for (int i = 0; trainer->section && i < trainer->plan.sections->count; i++)
        tier_traffic_add(&sum, trainer_tier_traffic_so_far(&trainer->section[i], steps), 1);
    if (trainer->section) return sum;
    if (!plan_changes(&trainer->plan)) tier_traffic_add(&sum, trainer_activation_moves(trainer), (uint64_t)steps);
    tier_traffic_add(&sum, data_tier_traffic(&trainer->data), (uint64_t)steps);
    for (int c = 0; c < trainer->stages_open; c++) tier_traffic_add(&sum, trainer->stage[c].chosen, 1);
    tier_traffic_add(&sum, data_tier_update_traffic(&trainer->data), (uint64_t)-skipped);
    tier_traffic_add(&sum, data_outer_moves(&trainer->data),
                     (uint64_t)outer_steps(&trainer->data.outer, trainer->step - steps, trainer->step));
    return sum;
}

struct tier_traffic trainer_tier_traffic_counted(const struct trainer *trainer)
{
    if (trainer->section) return over_sections(trainer, trainer_tier_traffic_counted);
    struct tier_traffic sum = data_tier_traffic_so_far(&trainer->data);
    for (int c = 0; c < trainer->stages_open; c++) tier_traffic_add(&sum, trainer->stage[c].tier.traffic, 1);
    return sum;
}

struct tier_traffic trainer_activation_moves(const struct trainer *trainer)
{
    if (trainer->section) return over_sections(trainer, trainer_activation_moves);
    struct tier_traffic sum = { 0 };
    for (int c = 0; c < trainer->stages_open; c++)
        for (int i = 0; i < trainer->plan.micros; i++)
            if (runs_here(trainer, c, i)) tier_traffic_add(&sum, away_moves(&trainer->stage[c], i), 1);
    return sum;
}
