/* infer.c -- `orrery infer`: forward passes alone, with the options of `orrery train` that say what runs where. */
#include "emulated_devices/cli/train/train.h"

/* Options of training that a run without steps does not have. */
static const char *const of_training[] = {
    "--recompute", "--update-every", "--local-steps", "--outer-lr", "--outer-momentum", "--reshard-after-forward",
    "--bucket", "--reduce-scatter", "--quantize-gradients", "--offload-slice", "--offload-stride", "--grad-dtype",
    "--loss-scale", "--dropout", "--router-speed", "--optimizer", "--mezo-eps", "--perturb", "--lr", "--min-lr",
    "--warmup", "--lr-steps", "--lr-schedule", "--lr-decay",
    "--clip", "--weight-decay", "--as", "--rank", "--refresh", "--galore-scale", "--history",
    "--damping", "--timeline", "--dump", "--dump-passes", "--isolate", "--paranoid", "--save", "--save-every",
    "--keep", "--eval-every", "--owners-out", "--resume", "--override",
    "--sample", "--modalities", "--encoders", "--bridge-chunks", "--encoder-slack", "--pack",
    "--unfolded", "--dry-run", NULL
};

static enum error_code infer_take(struct train_options *options, struct error *err)
{
    struct model_config *c = &options->plan.model;
    if (options->golden)
        return fail(err, ERR_USAGE, "--check %s: golden files are of training; --check ref compares forward passes",
                    options->check);
    options->infers = true;
    options->plan.optimizer = &no_optimizer;
    options->plan.hyper = no_optimizer.usual;
    c->dropout_embedding = c->dropout_residual = c->dropout_attention = 0;
    return OK;
}

const struct run_kind run_infer = {
    .command = "infer", .without = of_training, .steps = 100, .take = infer_take,
    .what = "Run the forward passes of a model on a mesh of emulated devices, on held-out text.\n"
            "Its weights do not change; --model DIR says which they are.",
};
