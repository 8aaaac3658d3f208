/* infer.c -- `orrery infer`: forward passes alone, with the options of `orrery train` that say what runs where. */
#include "emulated_devices/cli/train/train.h"

/* Options of training that a run without steps does not have. */
static const char *const of_training[] = {
    "--recompute", "--update-every", "--local-steps", "--outer-lr", "--outer-momentum", "--reshard-after-forward",
    "--bucket", "--reduce-scatter", "--quantize-gradients", "--offload-slice", "--offload-stride", "--grad-dtype",
    "--loss-scale", "--dropout", "--router-speed", "--optimizer", "--mezo-eps", "--perturb", "--lr", "--min-lr",
    "--warmup", "--lr-steps", "--lr-schedule", "--lr-decay",
    "--clip", "--weight-decay", "--as", "--rank", "--refresh", "--galore-scale", "--history",
    "--damping", "--timeline", "--dump", "--isolate", "--paranoid", "--save", "--save-every",
    "--keep", "--eval-every", "--owners-out", "--resume", "--override",
    "--sample", "--modalities", "--encoders", "--bridge-chunks", "--encoder-slack", "--pack",
    "--unfolded", "--dry-run", NULL
};

const struct run_kind run_infer = {
    .command = "infer", .without = of_training, .steps = 100, .infers = true,
    .what = "Run the forward passes of a model on a mesh of emulated devices, on held-out text.\n"
            "Its weights do not change; --model DIR says which they are.",
};
