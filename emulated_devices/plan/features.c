/* features.c -- which features of compose.h a plan has, and which flag selects each. */
#include "emulated_devices/plan/compose.h"
#include "emulated_devices/schemes/data/tiles.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Write flag and value, as typed.  Returns true, so that a feature's function can end with it. */
static bool say(struct typed *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool say(struct typed *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (t) vsnprintf(t->text, sizeof t->text, fmt, ap);
    va_end(ap);
    return true;
}

static bool say_scheme(const struct facts *f, struct typed *t)
{
    return say(t, "--data-parallel %s", f->plan->data.scheme);
}
static bool say_shared(const struct facts *f, struct typed *t)
{
    return say(t, "--data-parallel %s with --dp %d", f->plan->data.scheme, f->shards->P);
}
static bool say_optimizer(const struct facts *f, struct typed *t)
{
    return say(t, "--optimizer %s", f->plan->optimizer->name);
}
static bool say_schedule(const struct facts *f, struct typed *t) { return say(t, "--schedule %s", f->plan->schedule); }
static bool say_dtype(const struct facts *f, struct typed *t)
{
    return say(t, "--dtype %s", dtype_name(f->plan->dtype));
}
static bool say_model(const struct facts *f, struct typed *t) { return say(t, "--model %s", f->plan->model.name); }

/* ---- tp ----------------------------------------------------------------------------------------- */

static bool tp(const struct facts *f, struct typed *t)
{
    const int P = f->plan->mesh.size[TP];
    return P > 1 && say(t, "--tp %d", P);
}

static bool cp(const struct facts *f, struct typed *t)
{
    return f->plan->mesh.size[CP] > 1 && say(t, "--cp %d", f->plan->mesh.size[CP]);
}

static bool tp_cuts_columns(const struct facts *f, struct typed *t)
{
    const struct tensor_scheme *s;
    return tp(f, NULL) && !tensor_scheme_find(&s, f->plan->tensor, NULL) && s->stream.columns &&
           say(t, "--tensor %s", f->plan->tensor);
}

static bool tp_cuts_rows(const struct facts *f, struct typed *t)
{
    const struct tensor_scheme *s;
    return tp(f, NULL) && !tensor_scheme_find(&s, f->plan->tensor, NULL) && s->stream.rows &&
           !s->stream.columns && say(t, "--tensor %s", f->plan->tensor);
}

static bool tp_keeps_inputs(const struct facts *f, struct typed *t)
{
    const struct tensor_scheme *s;
    return tp(f, NULL) && !tensor_scheme_find(&s, f->plan->tensor, NULL) && s->keeps_inputs &&
           say(t, "--tensor %s", f->plan->tensor);
}

static bool norms_after(const struct facts *f, struct typed *t)
{
    return f->plan->model.norms_at == NORMS_AFTER && say(t, "--model %s", f->plan->model.name);
}

static bool tp_cuts_sequences(const struct facts *f, struct typed *t)
{
    const struct tensor_scheme *s;
    return tp(f, NULL) && !tensor_scheme_find(&s, f->plan->tensor, NULL) && !s->cuts_tokens &&
           (s->stream.rows | s->heads.rows | s->feed.rows | s->logits.rows) && say(t, "--tensor %s", f->plan->tensor);
}

static bool tp_moves_weights(const struct facts *f, struct typed *t)
{
    const struct tensor_scheme *s;
    return tp(f, NULL) && !tensor_scheme_find(&s, f->plan->tensor, NULL) && !s->takes_tiles &&
           say(t, "--tensor %s", f->plan->tensor);
}

static bool tp_copies_keys(const struct facts *f, struct typed *t)
{
    const struct tensor_parallel share = plan_tensor_share(f->plan, 0);
    const int64_t heads = f->plan->model.K;
    return tp(f, NULL) && axes_size(&share, share.scheme->heads.columns) > heads &&
           say(t, "--tp %d with %lld key/value heads", f->plan->mesh.size[TP], (long long)heads);
}

static bool tp_copies_biases(const struct facts *f, struct typed *t)
{
    return model_has_bias(&f->plan->model, ROLE_QKV) && tp_copies_keys(f, t);
}

static bool tp_uneven(const struct facts *f, struct typed *t) { return tp(f, t) && plan_copies_lie_apart(f->plan); }

/* ---- cp ----------------------------------------------------------------------------------------- */

static bool say_attention(const struct facts *f, struct typed *t)
{
    return say(t, "--attention %s", f->plan->attention);
}

static bool split_cp(const struct facts *f, struct typed *t)
{
    const struct context_split s = f->plan->split;
    if (s.heads) return say(t, "--head-parallel %d", s.heads);
    return s.context_first && say(t, "--context-first");
}

static bool streams(const struct facts *f, struct typed *t)
{
    const long long P = STREAMS(&f->plan->model);
    return P > 1 && say(t, "--model %s with %lld parallel streams", f->plan->model.name, P);
}

static bool packed(const struct facts *f, struct typed *t) { return f->plan->packed && say(t, "--pack"); }

static bool context_plan(const struct facts *f, struct typed *t)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, f->plan->attention, NULL) && s->plan && say_attention(f, t);
}

static bool plans_steps(const struct facts *f, struct typed *t)
{
    return plan_plans_steps(f->plan) && f->plan->micros > 1 &&
           say(t, "--attention %s with %d microbatches", f->plan->attention, f->plan->micros);
}

static bool windows(const struct facts *f, struct typed *t)
{
    const struct model_config *c = &f->plan->model;
    return model_windowed_layers(c) > 0 && c->windows.size < f->plan->S &&
           say(t, "--model %s with windows of %lld tokens", c->name, (long long)c->windows.size);
}

static bool sinks(const struct facts *f, struct typed *t)
{
    return f->plan->model.sinks && say(t, "--model %s", f->plan->model.name);
}

static bool stored_scores(const struct facts *f, struct typed *t)
{
    return strcmp(f->plan->attention, "rsa") == 0 && say_attention(f, t);
}

static bool biased_experts(const struct facts *f, struct typed *t)
{
    const struct model_config *c = &f->plan->model;
    return c->mlp == MLP_MIXTURE && model_has_bias(c, ROLE_UP) && say(t, "--model %s", c->name);
}

static bool long_rotary(const struct facts *f, struct typed *t)
{
    return rotary_by_length(&f->plan->model.rotary, f->plan->S) &&
           say(t, "--seq %lld, beyond the original length of LongRoPE,", (long long)f->plan->S);
}

static bool ring_window(const struct facts *f, struct typed *t)
{
    return f->plan->split.window && say(t, "--ring-window %d", f->plan->split.window);
}

static bool one_dimension(const struct facts *f, struct typed *t)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, f->plan->attention, NULL) && !s->splits && say_attention(f, t);
}

static bool one_ring(const struct facts *f, struct typed *t)
{
    const struct attention_scheme *s;
    return !attention_scheme_find(&s, f->plan->attention, NULL) && !s->windows && say_attention(f, t);
}

/* ---- how weights, gradients and optimizer state move -------------------------------------------- */

static bool tiles(const struct facts *f, struct typed *t)
{
    return uses_tiles(&f->plan->data) && say(t, "--tiles %d", f->plan->data.tiles);
}

static bool quantized_weights(const struct facts *f, struct typed *t)
{
    const int bits = f->plan->data.quantise_weights.bits;
    return bits > 0 && say(t, "--quantize-weights int%d", bits);
}

static bool quantized_gradients(const struct facts *f, struct typed *t)
{
    const int bits = f->plan->data.quantise_gradients.bits;
    return bits > 0 && say(t, "--quantize-gradients int%d", bits);
}

static bool offload(const struct facts *f, struct typed *t)
{
    return f->plan->data.offload != 0 && say(t, "--offload");
}

static bool offload_activations(const struct facts *f, struct typed *t)
{
    return f->plan->offload_activations && say(t, "--offload activations");
}

static bool offload_experts(const struct facts *f, struct typed *t)
{
    return f->plan->data.offload_experts && say(t, "--offload experts");
}

/* No stage has a layer more than the two that stay. */
static bool few_layers(const struct facts *f, struct typed *t)
{
    const int64_t L = f->plan->model.L, stages = f->schedule->stages;
    return L <= 2 * stages && say(t, "%lld layers on %d stages", (long long)L, (int)stages);
}

static bool chosen_experts(const struct facts *f, struct typed *t)
{
    return f->plan->data.chosen && say(t, "--chosen-experts");
}

static bool trains(const struct facts *f, struct typed *t)
{
    return !f->plan->optimizer->infers && say_optimizer(f, t);
}

/* Whether several devices have parts of the weights of the same experts. */
static bool experts_in_shards(const struct facts *f, struct typed *t)
{
    struct shards s;
    return !plan_shards(&s, f->plan, 0, plan_cuts_experts(f->plan), NULL) && s.weights > 1 && say_scheme(f, t);
}

static bool moves_experts(const struct facts *f, struct typed *t)
{
    const struct expert_scheme *s;
    return !expert_scheme_find(&s, f->plan->dispatch, NULL) && s->compute && say(t, "--dispatch %s", s->head.name);
}

static bool offload_weights(const struct facts *f, struct typed *t)
{
    return offloads(&f->plan->data, PARAMETERS) && say(t, "--offload weights");
}

static bool offload_gradients(const struct facts *f, struct typed *t)
{
    return offloads(&f->plan->data, GRADIENTS) && say(t, "--offload gradients");
}

static bool offload_state_alone(const struct facts *f, struct typed *t)
{
    return f->plan->data.offload == 1u << OPTIMIZER && say(t, "--offload optimizer");
}

static bool host_steps(const struct facts *f, struct typed *t)
{
    return f->plan->data.offload_stride > 1 && say(t, "--offload-stride %d", f->plan->data.offload_stride);
}

static bool offload_to_folder(const struct facts *f, struct typed *t)
{
    return f->plan->data.offload_to && say(t, "--offload-to %s", f->plan->data.offload_to);
}

static bool has_masters(const struct facts *f)
{
    return data_keeps_masters(f->plan->dtype, &f->plan->data, f->shards);
}

static bool step_needs_gradients(const struct facts *f, struct typed *t)
{
    const struct data_request *q = &f->plan->data;
    return has_masters(f) && !(offloads(q, OPTIMIZER) && offloads(q, GRADIENTS)) && say(t, "--offload");
}

static bool step_needs_weights(const struct facts *f, struct typed *t)
{
    const unsigned all = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER;
    return !has_masters(f) && f->plan->data.offload != all && say(t, "--offload");
}

static bool keep_gathered(const struct facts *f, struct typed *t)
{
    return f->plan->data.keep && say(t, "--reshard-after-forward no");
}

/* ---- collectives -------------------------------------------------------------------------------- */

static bool reduce_scatter(const struct facts *f, struct typed *t)
{
    const char *name = f->plan->data.reduce_scatter;
    return name && say(t, "--reduce-scatter %s", name);
}

/* Whether the order of additions depends on an element's place.  "auto" is no algorithm (a is NULL): it chooses by
 * length. */
static bool adds_by_place(enum operation op, const char *name)
{
    const struct algorithm *a = algorithm_find(op, name);
    return a == NULL || a->order == BY_POSITION;
}

/* Not for groups of two: a sum of two numbers does not depend on their order. */
static bool scattered_by_place(const struct facts *f, struct typed *t)
{
    int most = 1;
    for (enum shard_level l = BY_WEIGHTS; l < BY_COPIES; l++)
        if (shards_size(f->shards, l) > most) most = shards_size(f->shards, l);
    const char *name = f->plan->data.reduce_scatter;
    return !f->plan->optimizer->forward_only && most > 2 && adds_by_place(REDUCE_SCATTER, name) &&
           say(t, "--reduce-scatter %s", name ? name : algorithm_find(REDUCE_SCATTER, NULL)->name);
}

static bool reduced_by_place(const struct facts *f, struct typed *t)
{
    const struct plan *p = f->plan;
    const bool many = !p->optimizer->forward_only && shards_size(f->shards, BY_COPIES) > 2;
    return many && adds_by_place(ALLREDUCE, p->allreduce) && say(t, "--allreduce %s", p->allreduce);
}

static bool reduced_by_nodes(const struct facts *f, struct typed *t)
{
    const struct algorithm *a = algorithm_find(ALLREDUCE, f->plan->allreduce);
    return (a == NULL || a->by_nodes) && say(t, "--allreduce %s", f->plan->allreduce);
}

/* ---- data schemes ------------------------------------------------------------------------------- */

static bool weights_shared(const struct facts *f, struct typed *t)
{
    return f->shards->weights > 1 && say_scheme(f, t);
}

static bool weights_whole(const struct facts *f, struct typed *t)
{
    return f->shards->weights == 1 && !offloads(&f->plan->data, PARAMETERS) && say_shared(f, t);
}

static bool state_shared(const struct facts *f, struct typed *t)
{
    return f->shards->optimizer > 1 && say_scheme(f, t);
}
static bool nothing_shared(const struct facts *f, struct typed *t)
{
    return f->shards->optimizer == 1 && say_shared(f, t);
}

static bool state_shared_further(const struct facts *f, struct typed *t)
{
    return f->shards->optimizer > f->shards->weights && say_scheme(f, t);
}

static bool allreduces_whole(const struct facts *f, struct typed *t)
{
    return f->shards->optimizer == 1 && f->shards->P > 1 && !f->shards->apart && say_scheme(f, t);
}

static bool apart(const struct facts *f, struct typed *t) { return f->shards->apart && say_scheme(f, t); }
static bool reduces_every_step(const struct facts *f, struct typed *t) { return !f->shards->apart && say_scheme(f, t); }

/* Two places of the pipeline then hold a parameter and must add up replicas in the same order.  A sum of two replicas
 * does not depend on it. */
static bool apart_in_two_stages(const struct facts *f, struct typed *t)
{
    const struct schedule *s = f->schedule;
    const bool twice = f->plan->model.tied || s->stages < s->devices * s->chunks;
    return twice && f->plan->mesh.size[PP] > 1 && shards_replicas(f->shards) > 2 && say_scheme(f, t);
}

static bool averages(const struct facts *f, struct typed *t)
{
    const struct outer o = data_outer(&f->plan->data);
    return f->shards->apart && !outer_has_momentum(&o) && say_scheme(f, t);
}

static bool outer_momentum(const struct facts *f, struct typed *t)
{
    const double momentum = f->plan->data.outer.momentum;
    return momentum != 0 && say(t, "--outer-momentum %g", momentum);
}

static bool outer_numbers(const struct facts *f, struct typed *t)
{
    const struct outer *o = &f->plan->data.outer;
    if (o->every) return say(t, "--local-steps %lld", (long long)o->every);
    if (o->lr != 0) return say(t, "--outer-lr %g", o->lr);
    return outer_momentum(f, t);
}

/* ---- schedules ---------------------------------------------------------------------------------- */

static bool two_versions(const struct facts *f, struct typed *t)
{
    return f->schedule->weight_versions > 1 && say_schedule(f, t);
}
static bool mid_stream(const struct facts *f, struct typed *t)
{
    return (f->schedule->weight_versions > 1 || f->plan->updates > 1) && say_schedule(f, t);
}

static bool several_steps(const struct facts *f, struct typed *t)
{
    return f->plan->updates > 1 &&
           say(t, "--schedule %s with more than --micro %d", f->plan->schedule, f->schedule->update_every);
}

static bool batches(const struct facts *f, struct typed *t) { return f->plan->batches && say(t, "--batches"); }

static bool several_stages(const struct facts *f, struct typed *t)
{
    return f->schedule->chunks > 1 && say(t, "%d stages on a device", f->schedule->chunks);
}

static bool forwards_come_first(const struct schedule *s)
{
    for (int d = 0; d < s->devices; d++) {
        bool backward = false;
        for (int i = 0; i < s->count[d]; i++) {
            const enum action_kind kind = s->actions[d][i].kind;
            if (kind == FORWARD && backward) return false;
            backward = backward || kind == BACKWARD || kind == BACKWARD_INPUT;
        }
    }
    return true;
}

static bool backward_before_last(const struct facts *f, struct typed *t)
{
    return !f->plan->optimizer->forward_only && !forwards_come_first(f->schedule) &&
           say(t, "--schedule %s with %d microbatches", f->plan->schedule, f->plan->micros);
}

/* ---- optimizers --------------------------------------------------------------------------------- */

static bool skips_stages(const struct facts *f, struct typed *t)
{
    return schedule_is_partial(f->schedule) && say_schedule(f, t);
}

static bool low_rank(const struct facts *f, struct typed *t)
{
    return f->plan->optimizer->low_rank && say_optimizer(f, t);
}
static bool forward_only(const struct facts *f, struct typed *t)
{
    if (f->plan->optimizer->infers) return say(t, "orrery infer");
    return f->plan->optimizer->forward_only && say_optimizer(f, t);
}
static bool draws(const struct facts *f, struct typed *t)
{
    return optimizer_draws(f->plan->optimizer) && say_optimizer(f, t);
}
static bool has_gradients(const struct facts *f, struct typed *t)
{
    return !f->plan->optimizer->forward_only && say_optimizer(f, t);
}

static bool stateless(const struct facts *f, struct typed *t)
{
    if (f->plan->optimizer->infers) return say(t, "orrery infer");
    return f->plan->optimizer->states == 0 && !has_masters(f) && !f->shards->apart &&
           say(t, "--optimizer %s with --dtype %s", f->plan->optimizer->name, dtype_name(f->plan->dtype));
}

static bool both_sides(const struct facts *f, struct typed *t)
{
    return f->plan->perturb == 2 && say(t, "--perturb 2");
}
static bool clip(const struct facts *f, struct typed *t)
{
    return f->plan->hyper.clip > 0 && say(t, "--clip %g", f->plan->hyper.clip);
}

static bool recompute(const struct facts *f, struct typed *t)
{
    const char *choice = f->plan->recompute;
    return choice && strcmp(choice, "none") != 0 && say(t, "--recompute %.80s", choice);
}

/* ---- formats ------------------------------------------------------------------------------------ */

static bool loss_scale(const struct facts *f, struct typed *t)
{
    return f->plan->loss_scale != 0 && say(t, "--loss-scale %g", f->plan->loss_scale);
}

static bool needs_loss_scale(const struct facts *f, struct typed *t)
{
    return dtype_is_scaled(f->plan->dtype) && say_dtype(f, t);
}

static bool needs_no_loss_scale(const struct facts *f, struct typed *t)
{
    return !needs_loss_scale(f, NULL) && say_dtype(f, t);
}

static bool narrow_gradients(const struct facts *f, struct typed *t)
{
    return f->plan->data.narrow_gradients && say(t, "--grad-dtype %s", dtype_name(f->plan->dtype));
}

/* ---- models ------------------------------------------------------------------------------------- */

static bool experts_apart(const struct facts *f, struct typed *t)
{
    return plan_cuts_experts(f->plan) && say(t, "--dispatch %s", f->plan->dispatch);
}

static bool experts_predicted(const struct facts *f, struct typed *t)
{
    const struct expert_scheme *s;
    return plan_cuts_experts(f->plan) && !expert_scheme_find(&s, f->plan->dispatch, NULL) && s->predicts &&
           say(t, "--dispatch %s", f->plan->dispatch);
}

static bool experts_here(const struct facts *f, struct typed *t)
{
    return f->plan->model.mlp == MLP_MIXTURE && !plan_cuts_experts(f->plan) &&
           say(t, "--dispatch %s", f->plan->dispatch);
}

static bool mixture(const struct facts *f, struct typed *t)
{
    return f->plan->model.mlp == MLP_MIXTURE && say_model(f, t);
}

static bool biased_router(const struct facts *f, struct typed *t)
{
    return mixture(f, NULL) && f->plan->model.mixture.router.biased && say_model(f, t);
}

static bool no_mixture(const struct facts *f, struct typed *t) { return !mixture(f, NULL) && say_model(f, t); }

static bool balances_over(const struct facts *f, int over)
{
    const struct mixture_config *m = &f->plan->model.mixture;
    return f->plan->model.mlp == MLP_MIXTURE && m->balance_coefficient > 0 && m->balance.over == over;
}

static bool balance_of_batch(const struct facts *f, struct typed *t)
{
    return balances_over(f, OVER_BATCH) && say(t, "--balance-over batch");
}

static bool balance_of_sequence(const struct facts *f, struct typed *t)
{
    return balances_over(f, OVER_SEQUENCE) && say(t, "--balance-over sequence");
}

static bool by_sequence(const struct facts *f, struct typed *t)
{
    const struct mixture_config *m = &f->plan->model.mixture;
    return f->plan->model.mlp == MLP_MIXTURE && (m->sequence_coefficient > 0 || m->capacity_factor > 0) &&
           say_model(f, t);
}

/* ---- all ---------------------------------------------------------------------------------------- */

static const struct { const char *name; bool (*has)(const struct facts *, struct typed *); } features[FEATURE_COUNT] = {
#define X(id, name) { name, id },
    FEATURES(X)
#undef X
};

bool feature_of(const struct facts *f, enum feature which, struct typed *t) { return features[which].has(f, t); }
const char *feature_name(enum feature which) { return features[which].name; }
