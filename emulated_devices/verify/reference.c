#include "emulated_devices/verify/reference.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum error_code serial_open(struct serial_run *r, const struct plan *p, struct error *err)
{
    enum error_code e = gpt2_open(&r->model, &p->model, p->dtype, p->seed, err);
    if (e) return e;
    r->state = calloc((size_t)r->model.params * OPTIMIZER_MAX_STATES, sizeof *r->state);
    bool ok = r->state != NULL;
    for (int i = 0; ok && i < r->model.params; i++)
        for (int s = 0; ok && s < p->optimizer->states; s++) {
            struct tensor *t = &r->state[i * OPTIMIZER_MAX_STATES + s];
            *t = r->model.w[i];
            t->data = calloc(1, tensor_bytes(*t));
            ok = t->data != NULL;
        }
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for the one-device run's optimizer state");
}

static void serial_close(struct serial_run *r)
{
    for (int i = 0; r->state && i < r->model.params * OPTIMIZER_MAX_STATES; i++) free(r->state[i].data);
    free(r->state);
    if (r->model.params) gpt2_close(&r->model);
}

enum error_code reference_open(struct reference *r, const struct plan *plan, struct batch_source source, struct error *err)
{
    *r = (struct reference){ .plan = plan, .source = source, .perturbation = { .seed = ~plan->seed } };
    const size_t tokens = (size_t)(plan->B * plan->S);
    r->ids = calloc(tokens, sizeof *r->ids);
    r->labels = calloc(tokens, sizeof *r->labels);
    enum error_code e = r->ids && r->labels ? OK : fail(err, ERR_MEMORY, "no memory for a batch of %zu tokens", tokens);
    if (!e) e = serial_open(&r->truth, plan, err);
    if (!e) e = serial_open(&r->twin, plan, err);
    if (e) reference_close(r);
    else r->twin.model.observer = perturbing_observer(&r->perturbation);
    return e;
}

void reference_close(struct reference *r)
{
    serial_close(&r->truth);
    serial_close(&r->twin);
    free(r->ids), free(r->labels);
    *r = (struct reference){ 0 };
}

enum error_code reference_follow(struct reference *r, struct trainer *t, struct error *err)
{
    const int n = model_param_count(&t->plan.model), kinds = 1 + t->plan.optimizer->states;
    const bool here = t->comm->rank == 0;
    enum error_code e = OK;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < kinds && !e; k++) {
            struct tensor truth = tensor_none, twin = tensor_none;
            if (here) {
                const int state = i * OPTIMIZER_MAX_STATES + k - 1;
                truth = k == 0 ? r->truth.model.w[i] : r->truth.state[state];
                twin = k == 0 ? r->twin.model.w[i] : r->twin.state[state];
            }
            e = collect_whole(t, i, k == 0 ? KIND_WEIGHT : KIND_STATE + (enum tensor_kind)(k - 1), truth, err);
            if (here && !e) memcpy(twin.data, truth.data, tensor_bytes(truth));
        }
    r->step = t->step;
    return e;
}

static enum error_code gradients(struct reference *r, struct serial_run *run, struct error *err)
{
    run->model.seed = dropout_seed(r->plan->seed, r->step);
    enum error_code e = gpt2_forward(&run->model, r->ids, r->labels, r->plan->B, r->plan->S, &run->loss, err);
    if (e) return e;
    gpt2_backward(&run->model);
    run->norm = gpt2_gradient_norm(&run->model);
    return OK;
}

enum error_code reference_gradients(struct reference *r, struct error *err)
{
    r->source.fill(r->source.context, r->step, 0, r->plan->B, r->ids, r->labels);
    enum error_code e = gradients(r, &r->truth, err);
    return e ? e : gradients(r, &r->twin, err);
}

static void update(struct reference *r, struct serial_run *run)
{
    const struct hyperparameters *h = &r->plan->hyper;
    for (int i = 0; i < run->model.params; i++) {
        const struct step s = { .lr = learning_rate(h, r->step), .t = r->step, .gradient_scale = clip_scale(h, run->norm), .hyper = h,
                                .weight_decay = run->model.spec[i].decay ? h->weight_decay : 0 };
        optimizer_step(r->plan->optimizer, run->model.w[i], run->model.g[i], &run->state[i * OPTIMIZER_MAX_STATES], s);
    }
    gpt2_zero_gradients(&run->model);
}

void reference_update(struct reference *r)
{
    r->step++;
    update(r, &r->truth);
    update(r, &r->twin);
}

static double token_loss(const struct gpt2 *m, int64_t n)
{
    return log(tensor_get(m->total, n)) + tensor_get(m->top, n) - tensor_get(m->hit, n);
}

double reference_loss_bound(const struct reference *r)
{
    const struct gpt2 *a = &r->truth.model, *b = &r->twin.model;
    const int64_t N = a->B * a->S;
    double sum = 0;
    for (int64_t n = 0; n < N; n++)
        if (((const int32_t *)a->labels.data)[n] != IGNORE_LABEL) sum += fabs(token_loss(b, n) - token_loss(a, n));
    return sum / (double)(a->counted ? a->counted : 1) + PERTURB_LAMBDA * sqrt((double)N) * dtype_unit(F64) * fabs(r->truth.loss);
}

double relative_difference(struct tensor a, struct tensor b)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) {
        const double x = tensor_get(a, i), y = tensor_get(b, i);
        difference += (x - y) * (x - y);
        size += y * y;
    }
    return difference == 0 ? 0 : sqrt(difference / size);
}
