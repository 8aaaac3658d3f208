/* options_training.c -- options of the model, its text and its training.  options.c calls training_options().  No
 * function returns an error code. */
#include "emulated_devices/cli/train/options/options.h"
#include "ref/optim/rates.h"

static const char *const convolution_forms[] = { "scattered", "halo", NULL };

void training_options(struct option_list *to, struct train_options *options, struct train_words *words)
{
    const struct option own[] = {
        { .kind = OPTION_HEADING, .help = "Model and text" },
        { "--model", "NAME|DIR", OPTION_STRING, &words->model,
          .help = "a preset, a preset with other sizes, such as llama3-8b:L=16,D=2048 (letters of docs/words.md), or a "
                  "folder with config.json and model.safetensors; fourcastnet-tiny has fields in place of text" },
        { "--data", "FILE[:WIDTH][:WEIGHT],..", OPTION_STRING, &options->data,
          .help = "a text to learn, or a folder of sources and documents, or files of tokens, NAME.bin or NAME.npy; "
                  "several of one kind, all with a weight or all without; WIDTH says how wide the tokens of a file "
                  "without a head or an index are, u16, i32 or u32 (docs/using/text.md); default: two plays of "
                  "Shakespeare" },
        { "--eval-data", "FILE[:WIDTH],..", OPTION_STRING, &options->eval_data,
          .help = "text or tokens that are held out; default: the last tenth of --data" },
        { "--tokenizer", "PATH", OPTION_STRING, &options->tokenizer,
          .help = "read texts as tokens, by a tokenizer.json or the folder of a model that has one; a preset gets its "
                  "vocabulary" },
        { "--vocabulary", "N", OPTION_INT, &words->vocabulary, .min = 2, .max = MOST_VOCABULARY,
          .help = "number of tokens of a preset; default: the preset's, or that of --tokenizer" },
        { "--pad-vocabulary", "N", OPTION_INT, &words->pad_vocabulary, .min = 1, .max = 1 << 16,
          .help = "rows of no token are added to a preset's vocabulary, up to a multiple of N times tp; N is 128 in "
                  "Megatron-LM, and they are trained as there (docs/plans/virtual_clock.md)" },
        { "--pack", "FILE|lognormal[:M,D]", OPTION_STRING, &options->pack,
          .help = "cut the text into samples with the lengths in FILE, one on each line, and pack them into "
                  "sequences; lognormal draws lengths with a long tail, of a median M, by default an eighth of a "
                  "sequence, and a deviation D, by default 1 (docs/parallelism/packing.md)" },
        { "--dtype", "NAME", OPTION_CHOICE, &words->dtype, .choices = number_formats,
          .help = "number format of weights and activations; for 16-bit formats the optimizer steps fp32 master "
                  "weights" },
        { "--grad-dtype", "NAME", OPTION_CHOICE, &words->grad_dtype, .choices = number_formats,
          .help = "format in which weight gradients of a 16-bit model are kept and reduced: fp32 or the model's "
                  "own; default: fp32" },
        { "--arithmetic", "NAME", OPTION_CHOICE, &words->arithmetic, .choices = exact_rule_names,
          .help = "exact: sums round once, when they are finished, so that every layout has the same bits; exact2: "
                  "with smaller errors (docs/checking/exact.md); default: ordinary" },
        { "--loss-scale", "S", OPTION_DOUBLE, &options->plan.loss_scale, .min = 0, .max = 0x1p127,
          .help = "fp16: initial loss scale, a power of two; default: 65536" },
        { "--dropout", "P", OPTION_DOUBLE, &words->dropout, .min = 0, .max = 0.999,
          .help = "dropout of embeddings, attention and residuals; default: the model's" },
        { "--streams", "P", OPTION_INT, &words->changed.streams, .min = 1, .max = 1024,
          .help = "parallel streams of a Qwen2 (ParScale), which --cp can distribute; default: the model's" },
        { "--prefix", "T", OPTION_INT, &words->changed.prefix, .min = 1, .max = 65536,
          .help = "learned keys and values of each stream in every layer; default: the model's, or 8" },
        { "--router", "NAME", OPTION_STRING, &words->changed.router,
          .help = "rule by which a mixture's router chooses experts and weighs them: orrery list routers; "
                  "default: the model's" },
        { "--router-speed", "U", OPTION_DOUBLE, &words->changed.speed, .min = 0, .max = 1e6,
          .help = "how far a step moves the correction bias of a router that has one; default: the rule's" },
        { "--z-loss", "C", OPTION_DOUBLE, &words->changed.z_loss, .min = 0, .max = 1e6,
          .help = "add C times the z loss of a mixture's routers, which transformers' classes do not compute; default: "
                  "the model's" },
        { "--top-p", "P", OPTION_DOUBLE, &words->changed.top_p, .min = 1e-6, .max = 1,
          .help = "each token goes to the fewest experts whose probabilities add up to P; default: the router's" },
        { "--zero-experts", "Z", OPTION_INT, &words->changed.zero, .min = 1, .max = 65536,
          .help = "add Z experts without computation to the router's choice" },
        { "--shared-experts", "N", OPTION_INT, &words->changed.shared, .min = 0, .max = 1024,
          .help = "for mixtures: N experts that every token goes through, beside the chosen experts; default: "
                  "the model's" },
        { "--shared-gate", NULL, OPTION_SWITCH, &words->changed.shared_gate,
          .help = "multiply the result of shared experts by a sigmoid that is computed from the token, as "
                  "Qwen2-MoE does" },
        { "--lora", "RANK", OPTION_INT, &words->changed.rank, .min = 1, .max = 1 << 16,
          .help = "add low-rank adapters to matrices, and train these alone, if --train-only says no more "
                  "(docs/parallelism/trained.md)" },
        { "--lora-alpha", "A", OPTION_DOUBLE, &words->changed.alpha, .min = 1e-9, .max = 1e9,
          .help = "an adapter is multiplied by A / RANK; default: twice the rank" },
        { "--lora-of", "LIST", OPTION_STRING, &words->changed.adapted,
          .help = "matrices that get adapters: attention, feed, experts, with commas between; default: all there "
                  "are" },
        { "--train-only", "LIST", OPTION_STRING, &words->changed.trained,
          .help = "classes of parameters that train, with commas between: embeddings, norms, attention, feed, "
                  "experts, routers, head, adapters, encoders; the others keep their bits and have no gradients" },
        { "--untied", NULL, OPTION_SWITCH, &words->untied,
         .help = "the output matrix is not tied to the token embedding" },
        { .kind = OPTION_HEADING, .help = "Training" },
        { "--steps", "N", OPTION_INT, &words->steps, .min = 0, .max = 1e9,
          .help = "number of steps; default: 100; for a resumed run, those left of --lr-steps" },
        { "--batch", "N", OPTION_INT, &words->batch, .min = 1, .max = 1e9,
          .help = "sequences in the global batch; default: the model's" },
        { "--batches", "FILE", OPTION_STRING, &words->batches,
          .help = "a file with the number of sequences of every microbatch of each copy, step by step, instead "
                  "of --batch and --micro (docs/parallelism/batches.md)" },
        { "--seq", "N", OPTION_INT, &words->seq, .min = 1, .max = 1e9,
          .help = "tokens in a sequence; default: the model's; a preset gets as many positions" },
        { "--mask", "MASK", OPTION_STRING, &words->mask,
          .help = "which tokens of its sample a token sees: causal, lambda:SINKS,WINDOW, shared-question:ANSWERS,PART "
                  "or blockwise:TOKENS,BLOCKS; without numbers DCP's (docs/parallelism/packing.md); default: causal" },
        { "--micro", "N", OPTION_INT, &words->micro, .min = 1, .max = 1e6,
          .help = "microbatches per copy; default: pp, if the batch allows" },
        { "--micro-tokens", "N", OPTION_COUNT, &options->plan.micro_tokens, .min = 1, .max = 1e12,
          .help = "for --attention flexsp: at most N tokens of a microbatch are on a device, and a step of a copy has "
                  "as many microbatches as take the least time; --micro is the most (docs/parallelism/packing.md)" },
        { "--optimizer", "NAME", OPTION_STRING, &words->optimizer,
          .help = "rule of the step: orrery list optimizers; mezo needs no backward pass" },
        { "--mezo-eps", "EPS", OPTION_DOUBLE, &words->distance, .min = 0, .max = 1e6,
          .help = "for mezo: losses are taken at this distance from the weights, along a random direction; "
                  "default: 1e-3" },
        { "--perturb", "SIDES", OPTION_INT, &options->plan.perturb, .min = 1, .max = 2,
          .help = "for mezo: 2 lets one half of the copies compute the loss at + eps, the other half at - eps; "
                  "default: 1, each copy computes both" },
        { "--lr", "RATE", OPTION_DOUBLE, &words->lr, .min = 0, .max = 1e6,
          .help = "learning rate; default: the optimizer's" },
        { "--lr-schedule", "NAME", OPTION_CHOICE, &words->rates, .choices = rate_schedule_names,
          .help = "course of the learning rate after the warm-up; wsd keeps the rate, and lowers it in the last "
                  "steps" },
        { "--lr-decay", "N", OPTION_INT, &words->lr_decay, .min = 1, .max = 1e9,
          .help = "for wsd: the last steps, in which the rate falls; default: a fifth of --lr-steps" },
        { "--min-lr", "RATE", OPTION_DOUBLE, &words->min_lr, .min = 0, .max = 1e6,
          .help = "learning rate at the end; default: a tenth of --lr" },
        { "--warmup", "N", OPTION_INT, &words->warmup, .min = 0, .max = 1e9,
          .help = "steps of linear warm-up; default: a tenth of --lr-steps" },
        { "--lr-steps", "N", OPTION_INT, &words->lr_steps, .min = 1, .max = 1e9,
          .help = "step at which the learning rate's schedule ends, counted from the very first; default: the "
                  "last step" },
        { "--clip", "NORM", OPTION_DOUBLE, &words->clip, .min = 0, .max = 1e30,
          .help = "largest global gradient norm, 0: none; default: the optimizer's" },
        { "--weight-decay", "RATE", OPTION_DOUBLE, &words->decay, .min = 0, .max = 1e6,
          .help = "weight decay of matrices; default: the optimizer's, with --as the package's" },
        MOMENT_OPTIONS(words->moments),
        { "--as", "PROFILE", OPTION_STRING, &words->as,
          .help = "conventions of a package: torch, megatron, deepspeed, galore-torch; or "
                  "PROFILE,CONVENTION=VALUE,...: orrery list profiles, docs/checking/profiles.md" },
        { "--balance-over", "TOKENS", OPTION_CHOICE, &words->balance_over,
         .choices = convention_rows[BALANCE_OVER].choices,
          .help = "tokens that one balance loss of a mixture counts; default: the profile's, microbatch" },
        { "--seed", "N", OPTION_UINT64, &options->plan.seed, .help = "seed of initial weights, batches and dropout" },
        { .kind = OPTION_HEADING, .help = "Models with fields on a globe (docs/parallelism/spatial.md)" },
        { "--polar", "N", OPTION_INT, &words->fields.polar, .min = 1, .max = 4096,
          .help = "the latitudes of every field, and the degrees of its spectrum, are cut over N devices" },
        { "--azimuth", "N", OPTION_INT, &words->fields.azimuth, .min = 1, .max = 4096,
          .help = "likewise longitudes and orders" },
        { "--ensemble", "N", OPTION_INT, &words->fields.ensemble, .min = 1, .max = 4096,
          .help = "the members of the ensemble are cut over N devices; --dp cuts the samples of the batch" },
        { "--members", "E", OPTION_INT, &words->fields.members, .min = 1, .max = 1024,
          .help = "members of the ensemble, each with noise of its own; default: 2" },
        { "--fairness", "A", OPTION_DOUBLE, &words->fields.fairness, .min = 0, .max = 1,
          .help = "of the score that is the loss: 1, the fair score, or 0, that of the ensemble as a distribution" },
        { "--convolution", "NAME", OPTION_CHOICE, &words->fields.convolution, .choices = convolution_forms,
          .help = "what local convolutions send along polar: sums of rows (scattered), as the released code does, or "
                  "the rows within reach (halo)" },
        { .kind = OPTION_HEADING, .help = "Low-rank optimizers: galore, natural-galore" },
        { "--rank", "R", OPTION_INT, &words->low_rank.rank, .min = 1, .max = 1e6,
          .help = "rank of the projection of each matrix's gradient; default: a quarter of the model's width" },
        { "--refresh", "T", OPTION_INT, &words->low_rank.refresh, .min = 1, .max = 1e9,
          .help = "steps until the projection is computed again, from whole gradients; default: 200" },
        { "--galore-scale", "A", OPTION_DOUBLE, &words->low_rank.scale, .min = 0, .max = 1e6,
          .help = "factor on the steps of projected matrices; default: 0.25" },
        { "--history", "N", OPTION_INT, &words->low_rank.history, .min = 1, .max = 64,
          .help = "for natural-galore: number of projected gradients that make up the Fisher matrix; default: 20" },
        { "--damping", "X", OPTION_DOUBLE, &words->low_rank.damping, .min = 0, .max = 1e6,
          .help = "natural-galore: damping, added to the diagonal of the Fisher matrix; default: 0.001" },
    };
    option_list_add(to, own, sizeof own / sizeof *own);
}
