/* features.c -- which features of compose.h a plan has, and which flag selects each.  compose.c asks for the
 * features of a clash, one function for each feature, with the feature's name in compose.h.  cli/list/ prints the
 * features' names.  A function that returns true has also written flag and value, unless typed is NULL.  No function
 * returns an error code. */
#include "emulated_devices/plan/compose.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/exact/grid.h"
#include "ref/exact/scalars.h"
#include "ref/model/attention_mask.h"
#include "ref/model/kinds.h"
#include "ref/model/loss_rule.h"
#include "ref/model/trained.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Write flag and value, as typed.  Returns true, so that a feature's function can end with it. */
static bool features_say(struct typed *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool features_say(struct typed *typed, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (typed) vsnprintf(typed->text, sizeof typed->text, fmt, ap);
    va_end(ap);
    return true;
}

/* Say the flag of the data scheme. */
static bool say_scheme(const struct facts *facts, struct typed *typed)
{
    return features_say(typed, "--data-parallel %s", facts->plan->data.scheme);
}
/* Say the data scheme with dp, where the number of devices decides. */
static bool say_shared(const struct facts *facts, struct typed *typed)
{
    return features_say(typed, "--data-parallel %s with --dp %d", facts->plan->data.scheme, facts->shards->P);
}
static bool say_optimizer(const struct facts *facts, struct typed *typed)
{
    return features_say(typed, "--optimizer %s", facts->plan->optimizer->name);
}
static bool say_schedule(const struct facts *facts, struct typed *typed)
{
    return features_say(typed, "--schedule %s", facts->plan->schedule);
}
static bool say_dtype(const struct facts *facts, struct typed *typed)
{
    return features_say(typed, "--dtype %s", dtype_name(facts->plan->dtype));
}
static bool say_model(const struct facts *facts, struct typed *typed)
{
    return features_say(typed, "--model %s", facts->plan->model.name);
}

/* ---- tp ----------------------------------------------------------------------------------------- */

/* A tp of 1 cuts nothing, so it clashes with nothing. */
static bool tp(const struct facts *facts, struct typed *typed)
{
    const int P = facts->plan->mesh.size[TP];
    return P > 1 && features_say(typed, "--tp %d", P);
}

static bool cp(const struct facts *facts, struct typed *typed)
{
    return facts->plan->mesh.size[CP] > 1 && features_say(typed, "--cp %d", facts->plan->mesh.size[CP]);
}

/* Schemes of two or three dimensions cut the columns of the residual stream. */
static bool tp_cuts_columns(const struct facts *facts, struct typed *typed)
{
    const struct tensor_scheme *s;
    return tp(facts, NULL) && !tensor_scheme_find(&s, facts->plan->tensor, NULL) && s->stream.columns &&
           features_say(typed, "--tensor %s", facts->plan->tensor);
}

/* Schemes with sequence parallelism cut the rows of the residual stream alone. */
static bool tp_cuts_rows(const struct facts *facts, struct typed *typed)
{
    const struct tensor_scheme *s;
    return tp(facts, NULL) && !tensor_scheme_find(&s, facts->plan->tensor, NULL) && s->stream.rows &&
           !s->stream.columns && features_say(typed, "--tensor %s", facts->plan->tensor);
}

/* Such a scheme keeps the gathered rows that matrices read, for the backward pass. */
static bool tp_keeps_inputs(const struct facts *facts, struct typed *typed)
{
    const struct tensor_scheme *s;
    return tp(facts, NULL) && !tensor_scheme_find(&s, facts->plan->tensor, NULL) && s->keeps_inputs &&
           features_say(typed, "--tensor %s", facts->plan->tensor);
}

/* In such a model matrices read the residual stream itself, not the results of norms. */
static bool norms_after(const struct facts *facts, struct typed *typed)
{
    return facts->plan->model.norms_at == NORMS_AFTER && features_say(typed, "--model %s", facts->plan->model.name);
}

/* Such a scheme cuts rows only between whole sequences, never inside a sequence. */
static bool tp_cuts_sequences(const struct facts *facts, struct typed *typed)
{
    const struct tensor_scheme *s;
    return tp(facts, NULL) && !tensor_scheme_find(&s, facts->plan->tensor, NULL) && !s->cuts_tokens &&
           (s->stream.rows | s->heads.rows | s->feed.rows | s->logits.rows)
               && features_say(typed, "--tensor %s", facts->plan->tensor);
}

/* A scheme that takes no tiles uses a matrix in several steps, or sends it. */
static bool tp_moves_weights(const struct facts *facts, struct typed *typed)
{
    const struct tensor_scheme *s;
    return tp(facts, NULL) && !tensor_scheme_find(&s, facts->plan->tensor, NULL) && !s->takes_tiles &&
           features_say(typed, "--tensor %s", facts->plan->tensor);
}

/* With fewer key/value heads than parts several devices have a copy of a head. */
static bool tp_copies_keys(const struct facts *facts, struct typed *typed)
{
    const struct tensor_parallel share = plan_tensor_share(facts->plan, facts->plan->mesh.first);
    const int64_t heads = facts->plan->model.K;
    return tp(facts, NULL) && axes_size(&share, share.scheme->heads.columns) > heads &&
           features_say(typed, "--tp %d with %lld key/value heads", facts->plan->mesh.size[TP], (long long)heads);
}

/* Only copied heads with biases need a sum of the biases' gradients. */
static bool tp_copies_biases(const struct facts *facts, struct typed *typed)
{
    return model_has_bias(&facts->plan->model, ROLE_QKV) && tp_copies_keys(facts, typed);
}

/* Copies in different places add in different orders: order.c. */
static bool tp_uneven(const struct facts *facts, struct typed *typed)
{
    return tp(facts, typed) && plan_copies_lie_apart(facts->plan);
}

/* ---- cp ----------------------------------------------------------------------------------------- */

static bool say_attention(const struct facts *facts, struct typed *typed)
{
    return features_say(typed, "--attention %s", facts->plan->attention);
}

/* Only a flag for the split counts: the defaults fit every scheme. */
static bool split_cp(const struct facts *facts, struct typed *typed)
{
    const struct context_split s = facts->plan->split;
    if (s.heads) return features_say(typed, "--head-parallel %d", s.heads);
    return s.context_first && features_say(typed, "--context-first");
}

static bool streams(const struct facts *facts, struct typed *typed)
{
    const long long P = STREAMS(&facts->plan->model);
    return P > 1 && features_say(typed, "--model %s with %lld parallel streams", facts->plan->model.name, P);
}

static bool packed(const struct facts *facts, struct typed *typed)
{
    return facts->plan->packed && features_say(typed, "--pack");
}

/* A causal mask is what every model has, so the flag then selects nothing. */
static bool mask(const struct facts *facts, struct typed *typed)
{
    const struct attention_mask *const m = &facts->plan->model.mask;
    return !attention_mask_is_causal(m) && features_say(typed, "--mask %s", attention_mask_text(m).text);
}

/* Such a scheme decides for each microbatch which device has which tokens. */
static bool context_plan(const struct facts *facts, struct typed *typed)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, facts->plan->attention, NULL) && s->plan && say_attention(facts, typed);
}

/* Such a scheme may put a sequence's tokens into several microbatches. */
static bool plans_steps(const struct facts *facts, struct typed *typed)
{
    return plan_plans_steps(facts->plan) && facts->plan->micros > 1 &&
           features_say(typed, "--attention %s with %d microbatches", facts->plan->attention, facts->plan->micros);
}

/* A window as long as a sequence is none. */
static bool windows(const struct facts *facts, struct typed *typed)
{
    const struct model_config *c = &facts->plan->model;
    return model_windowed_layers(c) > 0 && c->windows.size < facts->plan->S &&
           features_say(typed, "--model %s with windows of %lld tokens", c->name, (long long)c->windows.size);
}

static bool sinks(const struct facts *facts, struct typed *typed)
{
    return facts->plan->model.sinks && features_say(typed, "--model %s", facts->plan->model.name);
}

/* rsa alone stores whole rows of scores, instead of statistics of a row. */
static bool stored_scores(const struct facts *facts, struct typed *typed)
{
    return strcmp(facts->plan->attention, "rsa") == 0 && say_attention(facts, typed);
}

static bool biased_experts(const struct facts *facts, struct typed *typed)
{
    const struct model_config *c = &facts->plan->model;
    return c->mlp == MLP_MIXTURE && model_has_bias(c, ROLE_UP) && features_say(typed, "--model %s", c->name);
}

static bool long_rotary(const struct facts *facts, struct typed *typed)
{
    return rotary_by_length(&facts->plan->model.rotary, facts->plan->S) &&
           features_say(typed, "--seq %lld, beyond the original length of LongRoPE,", (long long)facts->plan->S);
}

static bool ring_window(const struct facts *facts, struct typed *typed)
{
    return facts->plan->split.window && features_say(typed, "--ring-window %d", facts->plan->split.window);
}

/* Schemes of one dimension have no split to set. */
static bool one_dimension(const struct facts *facts, struct typed *typed)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, facts->plan->attention, NULL) && !s->splits && say_attention(facts, typed);
}

/* Schemes without inner rings have no window to set. */
static bool one_ring(const struct facts *facts, struct typed *typed)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, facts->plan->attention, NULL) && !s->windows && say_attention(facts, typed);
}

/* ---- how weights, gradients and optimizer state move -------------------------------------------- */

static bool tiles(const struct facts *facts, struct typed *typed)
{
    return uses_tiles(&facts->plan->data) && features_say(typed, "--tiles %d", facts->plan->data.tiles);
}

static bool quantized_weights(const struct facts *facts, struct typed *typed)
{
    const int bits = facts->plan->data.quantise_weights.bits;
    return bits > 0 && features_say(typed, "--quantize-weights int%d", bits);
}

static bool quantized_gradients(const struct facts *facts, struct typed *typed)
{
    const int bits = facts->plan->data.quantise_gradients.bits;
    return bits > 0 && features_say(typed, "--quantize-gradients int%d", bits);
}

/* Any class of numbers may be on the slow tier. */
static bool offload(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.offload != 0 && features_say(typed, "--offload");
}

static bool offload_activations(const struct facts *facts, struct typed *typed)
{
    return facts->plan->offload_activations && features_say(typed, "--offload activations");
}

static bool offload_experts(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.offload_experts && features_say(typed, "--offload experts");
}

/* No stage has a layer more than the two that stay.  Of sections some may be as short. */
static bool few_layers(const struct facts *facts, struct typed *typed)
{
    const int64_t L = facts->plan->model.L, stages = facts->schedule->stages;
    return facts->plan->layers.count == 0 && L <= 2 * stages
           && features_say(typed, "%lld layers on %d stages", (long long)L, (int)stages);
}

static bool chosen_experts(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.chosen && features_say(typed, "--chosen-experts");
}

static bool trains(const struct facts *facts, struct typed *typed)
{
    return !facts->plan->optimizer->infers && say_optimizer(facts, typed);
}

/* Whether several devices have parts of the weights of the same experts. */
static bool experts_in_shards(const struct facts *facts, struct typed *typed)
{
    struct shards s;
    return !plan_shards(&s, facts->plan, 0, plan_cuts_experts(facts->plan), NULL) && s.weights > 1
           && say_scheme(facts, typed);
}

/* A scheme with its own `compute` sends matrices of experts to their rows. */
static bool moves_experts(const struct facts *facts, struct typed *typed)
{
    const struct expert_scheme *s;
    return !expert_scheme_find(&s, facts->plan->dispatch, NULL) && s->compute
           && features_say(typed, "--dispatch %s", s->head.name);
}

static bool offload_weights(const struct facts *facts, struct typed *typed)
{
    return offloads(&facts->plan->data, PARAMETERS) && features_say(typed, "--offload weights");
}

static bool offload_gradients(const struct facts *facts, struct typed *typed)
{
    return offloads(&facts->plan->data, GRADIENTS) && features_say(typed, "--offload gradients");
}

/* Optimizer state alone leaves the device; weights and gradients stay. */
static bool offload_state_alone(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.offload == 1u << OPTIMIZER && features_say(typed, "--offload optimizer");
}

/* From a stride of 2 on, the host steps some of the slices. */
static bool host_steps(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.offload_stride > 1
           && features_say(typed, "--offload-stride %d", facts->plan->data.offload_stride);
}

static bool offload_to_folder(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.offload_to && features_say(typed, "--offload-to %s", facts->plan->data.offload_to);
}

/* Masters are fp32 copies of weights, which the optimizer steps. */
static bool has_masters(const struct facts *facts)
{
    return data_keeps_masters(facts->plan->dtype, &facts->plan->data, facts->shards);
}

/* With masters a step reads gradients and optimizer state: both must be in the host's memory. */
static bool step_needs_gradients(const struct facts *facts, struct typed *typed)
{
    const struct data_request *q = &facts->plan->data;
    return has_masters(facts) && !(offloads(q, OPTIMIZER) && offloads(q, GRADIENTS))
           && features_say(typed, "--offload");
}

/* Without masters a step reads the weights, too. */
static bool step_needs_weights(const struct facts *facts, struct typed *typed)
{
    const unsigned all = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER;
    return !has_masters(facts) && facts->plan->data.offload != all && features_say(typed, "--offload");
}

static bool keep_gathered(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.keep && features_say(typed, "--reshard-after-forward no");
}

/* ---- collectives -------------------------------------------------------------------------------- */

static bool reduce_scatter(const struct facts *facts, struct typed *typed)
{
    const char *name = facts->plan->data.reduce_scatter;
    return name && features_say(typed, "--reduce-scatter %s", name);
}

/* Whether the order of additions depends on an element's place.  "auto" is no algorithm (a is NULL): it chooses by
 * length. */
static bool adds_by_place(enum operation op, const char *name)
{
    const struct algorithm *a = algorithm_find(op, name);
    return a == NULL || a->order == BY_POSITION;
}

/* Not for groups of two: a sum of two numbers does not depend on their order. */
static bool scattered_by_place(const struct facts *facts, struct typed *typed)
{
    int most = 1;
    for (enum shard_level l = BY_WEIGHTS; l < BY_COPIES; l++)
        if (shards_size(facts->shards, l) > most) most = shards_size(facts->shards, l);
    const char *name = facts->plan->data.reduce_scatter;
    return !facts->plan->optimizer->forward_only && most > 2 && adds_by_place(REDUCE_SCATTER, name) &&
           features_say(typed, "--reduce-scatter %s", name ? name : algorithm_find(REDUCE_SCATTER, NULL)->name);
}

/* An all-reduce over copies has an order, too, from three devices on. */
static bool reduced_by_place(const struct facts *facts, struct typed *typed)
{
    const struct plan *p = facts->plan;
    const bool many = !p->optimizer->forward_only && shards_size(facts->shards, BY_COPIES) > 2;
    return many && adds_by_place(ALLREDUCE, p->allreduce) && features_say(typed, "--allreduce %s", p->allreduce);
}

/* Such an algorithm adds within nodes first, so the order depends on where devices are. */
static bool reduced_by_nodes(const struct facts *facts, struct typed *typed)
{
    const struct algorithm *a = algorithm_find(ALLREDUCE, facts->plan->allreduce);
    return (a == NULL || a->by_nodes) && features_say(typed, "--allreduce %s", facts->plan->allreduce);
}

/* ---- data schemes ------------------------------------------------------------------------------- */

static bool weights_shared(const struct facts *facts, struct typed *typed)
{
    return facts->shards->weights > 1 && say_scheme(facts, typed);
}

/* Nothing is gathered where every device has whole weights and none are on the slow tier. */
static bool weights_whole(const struct facts *facts, struct typed *typed)
{
    return facts->shards->weights == 1 && !offloads(&facts->plan->data, PARAMETERS) && say_shared(facts, typed);
}

static bool state_shared(const struct facts *facts, struct typed *typed)
{
    return facts->shards->optimizer > 1 && say_scheme(facts, typed);
}
/* Either the scheme shares nothing, or there is one device to share with. */
static bool nothing_shared(const struct facts *facts, struct typed *typed)
{
    return facts->shards->optimizer == 1 && say_shared(facts, typed);
}

/* More devices share optimizer state than weights, as with zero1 and zero2. */
static bool state_shared_further(const struct facts *facts, struct typed *typed)
{
    return facts->shards->optimizer > facts->shards->weights && say_scheme(facts, typed);
}

/* Whether whole weights are old from an update until they are gathered. */
static bool weights_late(const struct facts *facts, struct typed *typed)
{
    return facts->shards->late && facts->shards->optimizer > facts->shards->weights && say_scheme(facts, typed);
}

/* Whether gathered weights and whole gradients stay for all microbatches. */
static bool gathers_once(const struct facts *facts, struct typed *typed)
{
    return facts->shards->once && facts->shards->weights > 1 && say_scheme(facts, typed);
}

/* Several copies without any shards all-reduce whole gradients. */
static bool allreduces_whole(const struct facts *facts, struct typed *typed)
{
    return facts->shards->optimizer == 1 && facts->shards->P > 1 && !facts->shards->apart && say_scheme(facts, typed);
}

static bool apart(const struct facts *facts, struct typed *typed)
{
    return facts->shards->apart && say_scheme(facts, typed);
}
static bool reduces_every_step(const struct facts *facts, struct typed *typed)
{
    return !facts->shards->apart && say_scheme(facts, typed);
}

/* Two places of the pipeline then hold a parameter and must add up replicas in the same order.  A sum of two replicas
 * does not depend on it. */
static bool apart_in_two_stages(const struct facts *facts, struct typed *typed)
{
    const struct schedule *s = facts->schedule;
    const bool twice = facts->plan->model.tied || s->stages < s->devices * s->chunks;
    return twice && facts->plan->mesh.size[PP] > 1 && shards_replicas(facts->shards) > 2 && say_scheme(facts, typed);
}

/* Replicas train apart, and the outer step has no momentum. */
static bool averages(const struct facts *facts, struct typed *typed)
{
    const struct outer o = data_outer(&facts->plan->data);
    return facts->shards->apart && !outer_has_momentum(&o) && say_scheme(facts, typed);
}

static bool outer_momentum(const struct facts *facts, struct typed *typed)
{
    const double momentum = facts->plan->data.outer.momentum;
    return momentum != 0 && features_say(typed, "--outer-momentum %g", momentum);
}

/* Say the first number of an outer step that was given. */
static bool outer_numbers(const struct facts *facts, struct typed *typed)
{
    const struct outer *o = &facts->plan->data.outer;
    if (o->every) return features_say(typed, "--local-steps %lld", (long long)o->every);
    if (o->lr != 0) return features_say(typed, "--outer-lr %g", o->lr);
    return outer_momentum(facts, typed);
}

/* ---- schedules ---------------------------------------------------------------------------------- */

static bool two_versions(const struct facts *facts, struct typed *typed)
{
    return facts->schedule->weight_versions > 1 && say_schedule(facts, typed);
}
/* The schedule keeps two versions of the weights, or steps before the last microbatch. */
static bool mid_stream(const struct facts *facts, struct typed *typed)
{
    return (facts->schedule->weight_versions > 1 || facts->plan->updates > 1) && say_schedule(facts, typed);
}

/* There are more microbatches than the schedule has between two optimizer steps. */
static bool several_steps(const struct facts *facts, struct typed *typed)
{
    return facts->plan->updates > 1 &&
           features_say(typed, "--schedule %s with more than --micro %d", facts->plan->schedule,
                        facts->schedule->update_every);
}

static bool batches(const struct facts *facts, struct typed *typed)
{
    return facts->plan->batches && features_say(typed, "--batches");
}

static bool several_stages(const struct facts *facts, struct typed *typed)
{
    return facts->schedule->chunks > 1 && features_say(typed, "%d stages on a device", facts->schedule->chunks);
}

/* Whether every device has all its forward passes before its first backward one, as in gpipe. */
static bool forwards_come_first(const struct schedule *schedule)
{
    for (int d = 0; d < schedule->devices; d++) {
        bool backward = false;
        for (int i = 0; i < schedule->count[d]; i++) {
            const enum action_kind kind = schedule->actions[d][i].kind;
            if (kind == FORWARD && backward) return false;
            backward = backward || kind == BACKWARD || kind == BACKWARD_INPUT;
        }
    }
    return true;
}

static bool backward_before_last(const struct facts *facts, struct typed *typed)
{
    return !facts->plan->optimizer->forward_only && !forwards_come_first(facts->schedule) &&
           features_say(typed, "--schedule %s with %d microbatches", facts->plan->schedule, facts->plan->micros);
}

/* ---- optimizers --------------------------------------------------------------------------------- */

static bool skips_stages(const struct facts *facts, struct typed *typed)
{
    return schedule_is_partial(facts->schedule) && say_schedule(facts, typed);
}

static bool low_rank(const struct facts *facts, struct typed *typed)
{
    return facts->plan->optimizer->low_rank && say_optimizer(facts, typed);
}
/* Inference has no backward pass either, and is named by its command. */
static bool forward_only(const struct facts *facts, struct typed *typed)
{
    if (facts->plan->optimizer->infers) return features_say(typed, "orrery infer");
    return facts->plan->optimizer->forward_only && say_optimizer(facts, typed);
}
static bool draws(const struct facts *facts, struct typed *typed)
{
    return optimizer_draws(facts->plan->optimizer) && say_optimizer(facts, typed);
}
static bool has_gradients(const struct facts *facts, struct typed *typed)
{
    return !facts->plan->optimizer->forward_only && say_optimizer(facts, typed);
}

/* Plain SGD without masters and without an outer step keeps nothing from step to step. */
static bool stateless(const struct facts *facts, struct typed *typed)
{
    if (facts->plan->optimizer->infers) return features_say(typed, "orrery infer");
    return facts->plan->optimizer->states == 0 && !has_masters(facts) && !facts->shards->apart &&
           features_say(typed, "--optimizer %s with --dtype %s", facts->plan->optimizer->name,
                        dtype_name(facts->plan->dtype));
}

static bool both_sides(const struct facts *facts, struct typed *typed)
{
    return facts->plan->perturb == 2 && features_say(typed, "--perturb 2");
}
static bool clip(const struct facts *facts, struct typed *typed)
{
    return facts->plan->hyper.clip > 0 && features_say(typed, "--clip %g", facts->plan->hyper.clip);
}

/* The choice "none" is the default, so it clashes with nothing. */
static bool recompute(const struct facts *facts, struct typed *typed)
{
    const char *choice = facts->plan->recompute;
    return choice && strcmp(choice, "none") != 0 && features_say(typed, "--recompute %.80s", choice);
}

/* ---- formats ------------------------------------------------------------------------------------ */

static bool loss_scale(const struct facts *facts, struct typed *typed)
{
    return facts->plan->loss_scale != 0 && features_say(typed, "--loss-scale %g", facts->plan->loss_scale);
}

static bool needs_loss_scale(const struct facts *facts, struct typed *typed)
{
    return dtype_is_scaled(facts->plan->dtype) && say_dtype(facts, typed);
}

/* Every format needs no loss scale but those of dtype_is_scaled. */
static bool needs_no_loss_scale(const struct facts *facts, struct typed *typed)
{
    return !needs_loss_scale(facts, NULL) && say_dtype(facts, typed);
}

static bool narrow_gradients(const struct facts *facts, struct typed *typed)
{
    return facts->plan->data.narrow_gradients && features_say(typed, "--grad-dtype %s", dtype_name(facts->plan->dtype));
}

/* ---- models ------------------------------------------------------------------------------------- */

/* Each device has only some of the experts, so rows are sent. */
static bool experts_apart(const struct facts *facts, struct typed *typed)
{
    return plan_cuts_experts(facts->plan) && features_say(typed, "--dispatch %s", facts->plan->dispatch);
}

/* Such a scheme orders the rows of a microbatch by a table of tokens. */
static bool experts_predicted(const struct facts *facts, struct typed *typed)
{
    const struct expert_scheme *s;
    return plan_cuts_experts(facts->plan) && !expert_scheme_find(&s, facts->plan->dispatch, NULL) && s->predicts &&
           features_say(typed, "--dispatch %s", facts->plan->dispatch);
}

/* Every device has all experts, and rows stay. */
static bool experts_here(const struct facts *facts, struct typed *typed)
{
    return facts->plan->model.mlp == MLP_MIXTURE && !plan_cuts_experts(facts->plan) &&
           features_say(typed, "--dispatch %s", facts->plan->dispatch);
}

static bool mixture(const struct facts *facts, struct typed *typed)
{
    return facts->plan->model.mlp == MLP_MIXTURE && say_model(facts, typed);
}

static bool biased_router(const struct facts *facts, struct typed *typed)
{
    return mixture(facts, NULL) && facts->plan->model.mixture.router.biased && say_model(facts, typed);
}

static bool no_mixture(const struct facts *facts, struct typed *typed)
{
    return !mixture(facts, NULL) && say_model(facts, typed);
}

/* Whether a mixture has a balance loss over this scope. */
static bool balances_over(const struct facts *facts, int over)
{
    const struct mixture_config *m = &facts->plan->model.mixture;
    return facts->plan->model.mlp == MLP_MIXTURE && m->balance_coefficient > 0 && m->balance.over == over;
}

static bool balance_of_batch(const struct facts *facts, struct typed *typed)
{
    return balances_over(facts, OVER_BATCH) && features_say(typed, "--balance-over batch");
}

static bool balance_of_sequence(const struct facts *facts, struct typed *typed)
{
    return balances_over(facts, OVER_SEQUENCE) && features_say(typed, "--balance-over sequence");
}

static bool balance_of_microbatch(const struct facts *facts, struct typed *typed)
{
    return balances_over(facts, OVER_MICROBATCH) && features_say(typed, "--balance-over microbatch");
}

/* A loss or a capacity counts the choices of a whole sequence. */
static bool by_sequence(const struct facts *facts, struct typed *typed)
{
    const struct mixture_config *m = &facts->plan->model.mixture;
    return facts->plan->model.mlp == MLP_MIXTURE && (m->sequence_coefficient > 0 || m->capacity_factor > 0) &&
           say_model(facts, typed);
}

/* ---- exact sums --------------------------------------------------------------------------------- */

static bool exact(const struct facts *facts, struct typed *typed)
{
    const enum exact_rule rule = facts->plan->model.exact;
    return rule != SUMS_ROUND && features_say(typed, "--arithmetic %s", exact_rule_names[rule]);
}

/* Such a scheme rounds partial sums before they are added. */
static bool adds_by_layout(const struct facts *facts, struct typed *typed)
{
    const struct tensor_scheme *s;
    return tp(facts, NULL) && !tensor_scheme_find(&s, facts->plan->tensor, NULL) && !s->exact &&
           features_say(typed, "--tensor %s", facts->plan->tensor);
}

/* Such a scheme returns rows of several choices of a token as their sum. */
static bool adds_choices(const struct facts *facts, struct typed *typed)
{
    const struct expert_scheme *s;
    return plan_cuts_experts(facts->plan) && !expert_scheme_find(&s, facts->plan->dispatch, NULL) && !s->exact &&
           features_say(typed, "--dispatch %s", facts->plan->dispatch);
}

/* Results of a query are merged from several devices after they are rounded, or in another order on one. */
static bool cuts_attention(const struct facts *facts, struct typed *typed)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, facts->plan->attention, NULL) &&
           !s->exact && (cp(facts, NULL) || s->head.equality != PERMUTES) &&
           features_say(typed, "--attention %s", facts->plan->attention);
}

static bool loss_by_rule(const struct facts *facts, struct typed *typed)
{
    return !loss_rule_is_usual(&facts->plan->model.loss) && features_say(typed, "the loss of --as");
}

static bool fp64(const struct facts *facts, struct typed *typed)
{
    return facts->plan->dtype == F64 && say_dtype(facts, typed);
}

static bool sections(const struct facts *facts, struct typed *typed)
{
    return facts->plan->layers.count > 0 && features_say(typed, "--plan with sections");
}

/* Exponentials of a row of logits add up in fp64, as integers of which the largest is 1 / KEY_GRID. */
static bool wide_vocabulary(const struct facts *facts, struct typed *typed)
{
    const int64_t V = facts->plan->model.V;
    return (double)V > 0x1p53 / KEY_GRID && features_say(typed, "a vocabulary of %lld", (long long)V);
}

/* A model that has learnt nothing has a loss of log V for each token. */
static bool many_tokens(const struct facts *facts, struct typed *typed)
{
    const double tokens = (double)plan_most_sequences(facts->plan) * (double)facts->plan->S;
    return tokens * scalar_log((double)facts->plan->model.V) >= LOSS_MOST &&
           features_say(typed, "a step of %.0f tokens", tokens);
}

/* Some parameters do not train. */
static bool freezes(const struct facts *facts, struct typed *typed)
{
    const struct model_config *c = &facts->plan->model;
    if (c->trains == 0 || facts->plan->optimizer->infers) return false;
    if (c->adapters.rank > 0) return features_say(typed, "--lora %lld", (long long)c->adapters.rank);
    return features_say(typed, "--train-only %s", trained_text(c->trains).text);
}

static bool adapters(const struct facts *facts, struct typed *typed)
{
    return facts->plan->model.adapters.rank > 0 &&
           features_say(typed, "--lora %lld", (long long)facts->plan->model.adapters.rank);
}

static bool narrow(const struct facts *facts, struct typed *typed)
{
    return dtype_is_narrow(facts->plan->dtype) && say_dtype(facts, typed);
}

/* ---- all ---------------------------------------------------------------------------------------- */

static const struct { const char *name; bool (*has)(const struct facts *, struct typed *); } features[FEATURE_COUNT] = {
#define X(id, name) { name, id },
    FEATURES(X)
#undef X
};

bool feature_of(const struct facts *facts, enum feature which,
                struct typed *typed) { return features[which].has(facts, typed); }
const char *feature_name(enum feature which) { return features[which].name; }
