/* options_data.c -- options of data parallelism: which device keeps what.  options.c calls data_options().  No
 * function returns an error code. */
#include "emulated_devices/cli/train/options/options.h"

static const char *const codes[] = { "int8", "int4", NULL };

void data_options(struct option_list *to, struct train_options *options, struct train_words *words)
{
    const struct option own[] = {
        { .kind = OPTION_HEADING,
          .help = "Data parallelism: which device keeps which weights, gradients and optimizer state" },
        { "--data-parallel", "NAME", OPTION_STRING, &words->data.scheme,
          .help = "the scheme, by its name in `orrery list data`; default: ddp" },
        { "--zero", "STAGE", OPTION_INT, &words->data.zero, .min = 0, .max = 3,
          .help = "short for --data-parallel: 0 is ddp, 1 to 3 are zero1 to zero3; default: --data-parallel decides" },
        { "--shard-group", "N", OPTION_INT, &options->plan.data.group, .min = 1, .max = 4096,
          .help = "N neighbours along dp share what the scheme shards; default: all devices along dp, for buff "
                  "those along cp" },
        { "--shards", "W,G,O", OPTION_STRING, &words->data.shards,
          .help = "for chain, buff, and copies that train apart: how many devices share weights, gradients, "
                  "optimizer state" },
        { "--local-steps", "H", OPTION_INT, &words->data.local_steps, .min = 1, .max = 1e9,
          .help = "for copies that train apart: steps between two outer steps; default: the scheme's, as in "
                  "`orrery list data`" },
        { "--outer-lr", "RATE", OPTION_DOUBLE, &options->plan.data.outer.lr, .min = 1e-9, .max = 1e6,
          .help = "learning rate of the outer step; default: the scheme's" },
        { "--outer-momentum", "M", OPTION_DOUBLE, &options->plan.data.outer.momentum, .min = 0, .max = 0.999,
          .given = &words->data.momentum_given,
          .help = "momentum of the outer step, where the scheme's has one; default: the scheme's" },
        { "--reshard-after-forward", "yes|no", OPTION_BOOL, &words->data.reshard,
          .help = "drop gathered weights after forward, and gather them again for backward" },
        { "--prefetch", "yes|no", OPTION_BOOL, &words->data.prefetch,
          .help = "gather the weights of the next part while the current part computes" },
        { "--tiles", "T", OPTION_INT, &options->plan.data.tiles, .min = 1, .max = 1e6,
          .help = "cut each matrix into T ranges of outputs, and gather, use and reduce one range after the "
                  "other; default: 1, whole layers" },
        { "--bucket", "SIZE", OPTION_SIZE, &words->bucket, .min = 1, .max = 1e15,
          .help = "for ddp, zero1, zero2, and chain with whole weights: size of a bucket of gradients to "
                  "reduce, or of weights to gather after the step. A larger unit (a layer, the token embedding) "
                  "has its own bucket, only ddp cuts it. Schemes that gather weights before use, such as zero3, "
                  "reduce unit by unit" },
        { "--reduce-scatter", "NAME", OPTION_STRING, &options->plan.data.reduce_scatter,
          .help = "algorithm for gradients in shards; default: direct, which adds in the order of ranks" },
        { "--allgather", "NAME", OPTION_STRING, &options->plan.data.allgather,
          .help = "algorithm for weights in shards; default: ring; two_level for mics" },
        { "--quantize-weights", "CODE", OPTION_CHOICE, &words->data.weights, .choices = codes,
          .help = "gather weights as codes with a scale for each block; default: not quantised" },
        { "--quantize-gradients", "CODE", OPTION_CHOICE, &words->data.gradients, .choices = codes,
          .help = "reduce-scatter gradients as codes, by all-to-alls inside nodes, then between nodes; default: "
                  "not quantised" },
        { "--quantize-block", "N", OPTION_INT, &words->data.block, .min = 1, .max = 1e9,
         .given = &words->data.block_given,
          .help = "elements that share a scale" },
        { "--offload", "WHAT", OPTION_STRING, &words->offload.classes,
          .help = "what lies on a slow tier instead of the device's memory: optimizer, gradients, weights, "
                  "activations, or a list such as optimizer,weights. With experts in the list only the experts "
                  "of a mixture leave" },
        { "--offload-to", "host|DIR", OPTION_STRING, &words->offload.to,
          .help = "the tier: the host's memory, or one file per device in a folder; default: host" },
        { "--host-cache", "SIZE", OPTION_SIZE, &words->offload.cache,
          .help = "with a folder: the host of each device keeps SIZE bytes of the file in its memory, those "
                  "that are used most; default: 0" },
        { "--ring", "K", OPTION_INT, &options->plan.data.ring, .min = 2, .max = 100000,
          .help = "K parts of the model (layers, embedding, loss) have their offloaded weights on the device: "
                  "the part that computes, the next part, and copies of later parts; default: 3" },
        { "--chosen-experts", NULL, OPTION_SWITCH, &words->offload.chosen,
          .help = "with `orrery infer --offload experts`: read an expert when a router has chosen it; unchosen "
                  "experts are not read" },
        { "--offload-slice", "N", OPTION_INT, &words->offload.slice, .min = 1, .max = 2e9,
          .help = "elements of optimizer state that a step moves at a time; default: 65536" },
        { "--offload-stride", "K", OPTION_INT, &words->offload.stride, .min = 1, .max = 1e6,
          .help = "the device steps every Kth slice, the host the other slices; default: 1, the device steps all" },
    };
    option_list_add(to, own, sizeof own / sizeof *own);
}
