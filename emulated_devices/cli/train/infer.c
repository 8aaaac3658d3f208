/* infer.c -- `orrery infer`: forward passes alone, with the options of `orrery train` that say what runs where. */
#include "emulated_devices/cli/train/train.h"
#include <stdlib.h>
#include <string.h>

/* Options of training that a run without steps does not have. */
static const char *const of_training[] = {
    "--recompute", "--update-every", "--local-steps", "--outer-lr", "--outer-momentum", "--reshard-after-forward",
    "--bucket", "--reduce-scatter", "--quantize-gradients", "--offload-slice", "--offload-stride", "--grad-dtype",
    "--loss-scale", "--dropout", "--router-speed", "--optimizer", "--mezo-eps", "--perturb", "--lr", "--min-lr",
    "--warmup", "--lr-steps", "--clip", "--weight-decay", "--as", "--rank", "--refresh", "--galore-scale", "--history",
    "--damping", "--timeline", "--dump", "--isolate", "--paranoid", "--save", "--owners-out", "--resume", "--override",
    "--sample", "--modalities", "--encoders", "--bridge-chunks", "--encoder-slack", "--pack",
};

static bool is_of_training(const struct option *o)
{
    for (size_t i = 0; i < sizeof of_training / sizeof *of_training && o->name; i++)
        if (strcmp(o->name, of_training[i]) == 0) return true;
    return false;
}

struct option *infer_options(const struct option *of_train, struct error *err)
{
    size_t n = 0, kept = 0;
    while (of_train[n].kind != OPTION_END) n++;
    struct option *table = calloc(n + 1, sizeof *table);
    if (table == NULL) {
        fail(err, ERR_MEMORY, "no memory for a table of %zu options", n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (is_of_training(&of_train[i])) continue;
        if (of_train[i].kind == OPTION_HEADING && kept > 0 && table[kept - 1].kind == OPTION_HEADING) kept--;
        table[kept++] = of_train[i];
    }
    return table;
}

enum error_code infer_take(struct train_options *o, struct error *err)
{
    struct model_config *c = &o->plan.model;
    if (o->golden)
        return fail(err, ERR_USAGE, "--check %s: golden files are of training; --check ref compares forward passes",
                    o->check);
    o->plan.optimizer = &no_optimizer;
    o->plan.hyper = no_optimizer.usual;
    c->dropout_embedding = c->dropout_residual = c->dropout_attention = 0;
    return OK;
}
