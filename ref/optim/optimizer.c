#include "ref/optim/optimizer.h"
#include "ref/io/options.h"
#include "ref/optim/table.h"
#include <math.h>
#include <string.h>

static const struct optimizer adamw = {
    .name = "adamw", .description = "Adam with decoupled weight decay and bias correction",
    .source = "I. Loshchilov, F. Hutter, arXiv:1711.05101; D. Kingma, J. Ba, arXiv:1412.6980",
    .states = 2, .state_name = { "exp_avg", "exp_avg_sq" },
    .usual = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1 },
    .step_f32 = adamw_step_f32, .step_f64 = adamw_step_f64,
};

static const struct optimizer sgd = {
    .name = "sgd", .description = "stochastic gradient descent, plain",
    .source = "H. Robbins, S. Monro, doi:10.1214/aoms/1177729586",
    .usual = { .lr = 0.1 },
    .step_f32 = sgd_step_f32, .step_f64 = sgd_step_f64,
};

static const struct optimizer momentum = {
    .name = "momentum", .description = "stochastic gradient descent with heavy-ball momentum",
    .source = "B. Polyak, doi:10.1016/0041-5553(64)90137-5",
    .states = 1, .state_name = { "momentum_buffer" },
    .usual = { .lr = 0.05, .momentum = 0.9 },
    .step_f32 = momentum_step_f32, .step_f64 = momentum_step_f64,
};

const struct optimizer *const optimizers[] = { &adamw, &sgd, &momentum, NULL };

enum error_code optimizer_find(const struct optimizer **found, const char *name, struct error *err)
{
    const char *names[sizeof optimizers / sizeof *optimizers];
    size_t n = 0;
    for (; optimizers[n]; n++) {
        names[n] = optimizers[n]->name;
        if (strcmp(names[n], name) == 0) {
            *found = optimizers[n];
            return OK;
        }
    }
    return fail_unknown_name(err, "--optimizer", name, names, n);
}

double learning_rate(const struct hyperparameters *h, int64_t t)
{
    if (t <= h->warmup) return h->lr * (double)t / (double)h->warmup;
    if (h->steps <= h->warmup) return h->lr;
    double x = (double)(t - h->warmup) / (double)(h->steps - h->warmup);
    const double pi = 3.14159265358979323846;
    return h->min_lr + (h->lr - h->min_lr) * (1 + cos(pi * (x < 1 ? x : 1))) / 2;
}

double clip_scale(const struct hyperparameters *h, double norm)
{
    return h->clip > 0 && norm > h->clip ? h->clip / norm : 1;
}
