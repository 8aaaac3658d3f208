#include "emulated_devices/verify/reference.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum error_code serial_open(struct serial_run *r, const struct plan *p, struct error *err)
{
    enum error_code e = transformer_open(&r->model, &p->model, p->dtype, p->seed, err);
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
    if (r->model.params) transformer_close(&r->model);
}

enum error_code reference_open(struct reference *r, const struct plan *plan, struct batch_source source, struct error *err)
{
    *r = (struct reference){ .plan = plan, .source = source, .perturbation = { .seed = ~plan->seed } };
    const size_t tokens = (size_t)(plan->B * plan->S);
    r->ids = calloc(tokens, sizeof *r->ids);
    r->labels = calloc(tokens, sizeof *r->labels);
    r->response = calloc((size_t)model_param_count(&plan->model), sizeof *r->response);
    enum error_code e = r->ids && r->labels && r->response ? OK : fail(err, ERR_MEMORY, "no memory for a batch of %zu tokens", tokens);
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
    free(r->ids), free(r->labels), free(r->response);
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
    enum error_code e = transformer_forward(&run->model, r->ids, r->labels, r->plan->B, r->plan->S, &run->loss, err);
    if (e) return e;
    transformer_backward(&run->model);
    run->norm = transformer_gradient_norm(&run->model);
    return OK;
}

enum error_code reference_gradients(struct reference *r, struct error *err)
{
    r->source.fill(r->source.context, r->step, 0, r->plan->B, r->ids, r->labels);
    enum error_code e = gradients(r, &r->truth, err);
    return e ? e : gradients(r, &r->twin, err);
}

static struct step step_of(const struct reference *r, const struct serial_run *run, int i)
{
    const struct hyperparameters *h = &r->plan->hyper;
    return (struct step){ .lr = learning_rate(h, r->step), .t = r->step, .gradient_scale = clip_scale(h, run->norm), .hyper = h,
                          .weight_decay = run->model.spec[i].decay ? h->weight_decay : 0 };
}

/* Norm of a - b; largest element of |a - b|. */
static double distance(struct tensor a, struct tensor b)
{
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) sum += (tensor_get(a, i) - tensor_get(b, i)) * (tensor_get(a, i) - tensor_get(b, i));
    return sqrt(sum);
}

static double largest_distance(struct tensor a, struct tensor b)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) most = fmax(most, fabs(tensor_get(a, i) - tensor_get(b, i)));
    return most;
}

/* One parameter's weights, gradient and state, copied so that a step can be tried: KINDS tensors one after another. */
enum { KINDS = 2 + OPTIMIZER_MAX_STATES };

static void copy_parameter(const struct reference *r, int i, char *memory, struct tensor copy[KINDS])
{
    const struct transformer *m = &r->truth.model;
    const struct tensor from[KINDS] = { m->w[i], m->g[i], r->truth.state[i * OPTIMIZER_MAX_STATES], r->truth.state[i * OPTIMIZER_MAX_STATES + 1] };
    for (int k = 0; k < 2 + r->plan->optimizer->states; k++) {
        copy[k] = from[k];
        copy[k].data = memory + (size_t)k * tensor_bytes(from[0]);
        memcpy(copy[k].data, from[k].data, tensor_bytes(from[k]));
    }
}

/* The truth's step has not been taken yet: what it would be with each gradient higher and lower by `off`. */
static double response(const struct reference *r, int i, double off, char *memory)
{
    const size_t one = tensor_bytes(r->truth.model.w[i]) * KINDS;
    struct tensor plain[KINDS], up[KINDS], down[KINDS];
    const struct step s = step_of(r, &r->truth, i);
    double sum = 0;
    copy_parameter(r, i, memory, plain), copy_parameter(r, i, memory + one, up), copy_parameter(r, i, memory + 2 * one, down);
    for (int64_t n = 0; n < tensor_count(plain[1]); n++) {
        tensor_set(up[1], n, tensor_get(plain[1], n) + off);
        tensor_set(down[1], n, tensor_get(plain[1], n) - off);
    }
    struct tensor *const tried[] = { plain, up, down };
    for (int k = 0; k < 3; k++) optimizer_step(r->plan->optimizer, tried[k][0], tried[k][1], &tried[k][2], s);
    for (int64_t n = 0; n < tensor_count(plain[0]); n++) {
        const double w = tensor_get(plain[0], n), far = fmax(fabs(tensor_get(up[0], n) - w), fabs(tensor_get(down[0], n) - w));
        sum += far * far;
    }
    return sqrt(sum);
}

static void update(struct reference *r, struct serial_run *run, int i)
{
    optimizer_step(r->plan->optimizer, run->model.w[i], run->model.g[i], &run->state[i * OPTIMIZER_MAX_STATES], step_of(r, run, i));
}

enum error_code reference_update(struct reference *r, struct error *err)
{
    r->step++;
    for (int i = 0; i < r->truth.model.params; i++) {
        char *memory = malloc(3 * KINDS * tensor_bytes(r->truth.model.w[i]));
        if (memory == NULL) return fail(err, ERR_MEMORY, "no memory to try the optimizer on %s", r->truth.model.spec[i].name);
        const double off = largest_distance(r->twin.model.g[i], r->truth.model.g[i]);
        update(r, &r->twin, i);
        r->response[i] = response(r, i, off, memory);
        update(r, &r->truth, i);
        free(memory);
    }
    transformer_zero_gradients(&r->truth.model);
    transformer_zero_gradients(&r->twin.model);
    return OK;
}

static double norm(const struct reference *r, struct tensor t) { return sqrt(r->truth.model.ops->sum_of_squares(t)); }

/* However close two numbers are, a rounding boundary can lie between them, and then they are stored 2u apart. */
static double relative(double far, double size, enum dtype t) { return (far == 0 ? 0 : far / size) + 2 * dtype_unit(t); }

double reference_weight_bound(const struct reference *r, int i)
{
    const struct tensor w = r->truth.model.w[i];
    return relative(distance(r->twin.model.w[i], w) + r->response[i], norm(r, w), w.dtype);
}

double reference_gradient_bound(const struct reference *r, int i)
{
    const struct tensor g = r->truth.model.g[i];
    return relative(distance(r->twin.model.g[i], g), norm(r, g), g.dtype);
}

static double token_loss(const struct transformer *m, int64_t n)
{
    return log(tensor_get(m->total, n)) + tensor_get(m->top, n) - tensor_get(m->hit, n);
}

double reference_loss_bound(const struct reference *r)
{
    const struct transformer *a = &r->truth.model, *b = &r->twin.model;
    const int64_t N = a->B * a->S;
    double sum = 0;
    for (int64_t n = 0; n < N; n++)
        if (((const int32_t *)a->labels.data)[n] != IGNORE_LABEL) sum += fabs(token_loss(b, n) - token_loss(a, n));
    return sum / (double)(a->counted ? a->counted : 1) + PERTURB_LAMBDA * sqrt((double)N) * dtype_unit(F64) * fabs(r->truth.loss);
}
