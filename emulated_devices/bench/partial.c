/* partial.c -- trains a model on one device, with layers left out as a schedule says.  cli/bench/partial.c calls
 * partial_train.  Errors: ERR_PLAN of the schedule, ERR_USAGE of the model's inputs, ERR_MEMORY. */
#include "emulated_devices/bench/partial.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include "ref/model/transformer.h"
#include "ref/optim/optimizer.h"
#include <stdlib.h>

static const uint64_t SEED = 1;                         /* of weights and batches, the same in every training */

/* Layers are divided among stages as evenly as a plan divides them: stage s begins at layer s L/P. */
static int64_t partial_first_layer(int64_t layers, int stages, int stage) { return layers * stage / stages; }

void partial_rule(const struct schedule *schedule, int64_t layers, int64_t batch, bool *passes_by)
{
    for (int64_t b = 0; b < batch; b++) {
        const int micro = (int)(b * schedule->micros / batch);
        for (int stage = 0; stage < schedule->stages; stage++) {
            const bool out = place_of(schedule, micro, stage).device < 0;
            for (int64_t l = partial_first_layer(layers, schedule->stages, stage);
                 l < partial_first_layer(layers, schedule->stages, stage + 1); l++)
                passes_by[l * batch + b] = out;
        }
    }
}

/* The first stage and the last one are never skipped.  Layer number i of those that are left out stands in the middle
 * of the i-th part of the others. */
void partial_half(int stages, int64_t layers, int64_t batch, bool *passes_by)
{
    const int64_t first = partial_first_layer(layers, stages, 1),
                  middle = partial_first_layer(layers, stages, stages - 1) - first;
    const int64_t out = layers / 2 < middle ? layers / 2 : middle;
    for (int64_t i = 0; i < layers * batch; i++) passes_by[i] = false;
    for (int64_t i = 0; i < out; i++)
        for (int64_t b = 0; b < batch; b++) passes_by[(first + (2 * i + 1) * middle / (2 * out)) * batch + b] = true;
}

/* ---- one training ------------------------------------------------------------------------------------------------ */

/* A model that learns, and the rule by which its sequences leave layers out. */
struct learner {
    const struct partial_setting *setting;
    struct transformer model;
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    struct hyperparameters hyper;
    int32_t *ids, *labels;              /* [batch S] */
    bool *rule, *half;                  /* [L batch] */
};

static void learner_close(struct learner *learner)
{
    for (int i = 0; learner->state && i < learner->model.params * OPTIMIZER_MAX_STATES; i++)
        free(learner->state[i].data);
    free(learner->state), free(learner->ids), free(learner->labels), free(learner->rule), free(learner->half);
    if (learner->model.params) transformer_close(&learner->model);
}

static enum error_code learner_open(struct learner *learner, const struct partial_setting *setting, struct error *err)
{
    const int64_t N = setting->batch * setting->model.S, marks = setting->batch * setting->model.L;
    *learner = (struct learner){ .setting = setting, .hyper = optimizers[0]->usual };
    learner->hyper.lr = setting->lr;
    enum error_code e = transformer_open(&learner->model, &setting->model, F32, SEED, err);
    if (e) return e;
    const int states = learner->model.params * OPTIMIZER_MAX_STATES;
    learner->state = calloc((size_t)states, sizeof *learner->state);
    learner->ids = malloc(sizeof *learner->ids * (size_t)N), learner->labels = malloc(sizeof *learner->ids * (size_t)N);
    learner->rule = calloc((size_t)marks, sizeof (bool)), learner->half = calloc((size_t)marks, sizeof (bool));
    bool ok = learner->state && learner->ids && learner->labels && learner->rule && learner->half;
    for (int i = 0; ok && i < states; i++) {
        learner->state[i] = learner->model.w[i / OPTIMIZER_MAX_STATES];
        learner->state[i].data = calloc(1, tensor_bytes(learner->state[i]));
        ok = learner->state[i].data != NULL;
    }
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to train model %s", setting->model.name);
}

static enum error_code learner_forward(struct learner *learner, enum text_split split, int64_t step,
                                       const bool *passes_by, double *loss, struct error *err)
{
    const struct partial_setting *const s = learner->setting;
    text_batch(s->text, split, SEED, step, s->model.S, 0, s->batch, learner->ids, learner->labels);
    learner->model.passes_by = passes_by;
    return transformer_forward(&learner->model, learner->ids, learner->labels, s->batch, s->model.S, loss, err);
}

static enum error_code learner_step(struct learner *learner, int64_t t, struct error *err)
{
    struct transformer *const m = &learner->model;
    double loss;
    const enum error_code e = learner_forward(learner, TEXT_TRAIN, t - 1, learner->rule, &loss, err);
    if (e) return e;
    transformer_backward(m);
    const double scale = clip_scale(&learner->hyper, transformer_gradient_norm(m));
    for (int i = 0; i < m->params; i++)
        optimizer_step(optimizers[0], m->w[i], m->g[i], &learner->state[i * OPTIMIZER_MAX_STATES],
                       (struct step){ .lr = learning_rate(&learner->hyper, t), .t = t, .gradient_scale = scale,
                                      .hyper = &learner->hyper,
                                      .weight_decay = weight_decay_of(&learner->hyper, m->spec[i].decay) });
    transformer_zero_gradients(m);
    return OK;
}

/* The mean loss of all batches that are held out. */
static enum error_code learner_held(struct learner *learner, const bool *passes_by, double *mean, struct error *err)
{
    double sum = 0, loss = 0;
    enum error_code e = OK;
    for (int64_t i = 0; i < learner->setting->held && !e; i++) {
        e = learner_forward(learner, TEXT_VALIDATION, i, passes_by, &loss, err);
        sum += loss;
    }
    *mean = sum / (double)learner->setting->held;
    return e;
}

static enum error_code learner_run(struct learner *learner, struct partial_found *found, struct error *err)
{
    enum error_code e = OK;
    for (int64_t t = 1; t <= learner->setting->steps && !e; t++) e = learner_step(learner, t, err);
    if (!e) e = learner_held(learner, NULL, &found->loss, err);
    if (!e) e = learner_held(learner, learner->half, &found->half, err);
    return e;
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

/* A stage's F, I and W take 1 each, and messages take no time. */
static const struct even_times each_takes_one = { 1, 1, 1, 0, 0 };

static enum error_code schedule_of(const struct partial_setting *setting, int skip, struct schedule *schedule,
                                   int64_t *span, struct error *err)
{
    const struct schedule_request request = { .devices = setting->pp, .micros = setting->micro, .skip = skip };
    struct timing timing;
    enum error_code e = schedule_make(schedule, skip > 0 ? "skippipe" : "1f1b", &request, err);
    if (e) return e;
    e = schedule_time_evenly(&timing, schedule, each_takes_one, err);
    if (e) return schedule_free(schedule), e;
    *span = timing.makespan;
    timing_free(&timing);
    return OK;
}

static double share_of_layers(const struct partial_setting *setting, const bool *rule)
{
    const int64_t marks = setting->model.L * setting->batch;
    int64_t computed = 0;
    for (int64_t i = 0; i < marks; i++) computed += !rule[i];
    return (double)computed / (double)marks;
}

enum error_code partial_train(const struct partial_setting *setting, int skip, struct partial_found *found,
                              struct error *err)
{
    struct schedule whole, partial;
    struct learner learner;
    int64_t longest = 0, span = 0;
    enum error_code e = schedule_of(setting, 0, &whole, &longest, err);
    if (e) return e;
    schedule_free(&whole);
    e = schedule_of(setting, skip, &partial, &span, err);
    if (e) return e;
    e = learner_open(&learner, setting, err);
    if (!e) {
        partial_rule(&partial, setting->model.L, setting->batch, learner.rule);
        partial_half(setting->pp, setting->model.L, setting->batch, learner.half);
        found->span = (double)span / (double)longest;
        found->layers = share_of_layers(setting, learner.rule);
        e = learner_run(&learner, found, err);
    }
    learner_close(&learner);
    schedule_free(&partial);
    return e;
}
