/* prune.c -- `orrery prune`: trains groups of a model's weights to zero, and saves the model without them.
 *
 * main.c calls command_prune().  Training is on one device; the smaller model trains on every mesh.  The groups come
 * from the model's table (zero_groups.h), the steps from half_space.h.  Errors: ERR_USAGE; those of reading and
 * writing; ERR_PLAN of a model without groups; ERR_CHECK if groups are not zero at the end, or the smaller model
 * computes something else.
 */
#include "emulated_devices/cli/cli.h"
#include "ref/exact/rule.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/text.h"
#include "ref/io/terminal.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include "emulated_devices/model/zero_groups.h"
#include "ref/optim/half_space.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct prune_options {
    const char *model, *data, *save, *groups, *dtype;
    int steps, warmup, batch;
    double keep, rate, pull, epsilon;
    uint64_t seed;
};

/* A training to zero. */
struct pruning {
    const struct prune_options *options;
    struct transformer model, smaller;
    bool has_model, has_smaller;
    struct zero_groups groups;
    struct text text;
    int64_t size, S, B;                 /* numbers of a group; a batch */
    int64_t pulled, chosen;             /* groups of a layer that shall be 0; that are pulled, some more */
    double *first, *second, *way;       /* [all parameters] Adam's moments, and the direction that is subtracted */
    int64_t *at;                        /* [params] where a parameter begins in them */
    struct tensor *ways;                /* [params] the directions as tensors of doubles */
    bool *is_pulled;                    /* [L][count] */
    double *x, *d, *score;              /* [count][size] of a layer, twice; [count] */
    int32_t *ids, *labels;
};

static enum error_code prune_parse(struct prune_options *options, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "--model", "NAME|DIR", OPTION_STRING, &options->model,
          .help = "a preset of `orrery list models`, or a Hugging Face folder with weights" },
        { "--data", "FILE", OPTION_STRING, &options->data,
          .help = "a text, or a folder of sources, whose bytes are tokens; default: the program's own" },
        { "--groups", "KIND", OPTION_CHOICE, &options->groups, .choices = zero_group_names,
          .help = "units of feed-forwards, or heads with the keys and values that they share" },
        { "--keep", "SHARE", OPTION_DOUBLE, &options->keep, .min = 0, .max = 1,
          .help = "the share of the groups that each layer keeps" },
        { "--steps", "N", OPTION_INT, &options->steps, .min = 2, .max = 1e6, .help = "training steps" },
        { "--warmup", "N", OPTION_INT, &options->warmup, .min = 1, .max = 1e6,
          .help = "steps before groups are chosen; default: a quarter" },
        { "--batch", "N", OPTION_INT, &options->batch, .min = 1, .max = 4096, .help = "sequences of a step" },
        { "--lr", "X", OPTION_DOUBLE, &options->rate, .min = 0, .max = 10, .help = "learning rate, of AdamW" },
        { "--pull", "X", OPTION_DOUBLE, &options->pull, .min = 0, .max = 1e6,
          .help = "lambda: how strongly a chosen group is pulled towards zero" },
        { "--epsilon", "X", OPTION_DOUBLE, &options->epsilon, .min = 0, .max = 0.999,
          .help = "of the half space: a chosen group becomes zero if a step leaves it less of its length than this" },
        { "--save", "DIR", OPTION_STRING, &options->save, .required = true,
          .help = "write the smaller model there, as a Hugging Face folder" },
        { "--dtype", "NAME", OPTION_CHOICE, &options->dtype, .choices = (const char *const[]){ "fp32", "fp64", NULL },
          .help = "number format" },
        { "--seed", "N", OPTION_UINT64, &options->seed, .help = "seed of a preset's weights, and of the batches" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command("prune", "--save DIR [options]",
                         "Train a model so that whole groups of its weights become zero, and save it without them.\n"
                         "A group that is zero changes nothing that the model computes, so the smaller model computes\n"
                         "the same: this is checked with exact sums, bit by bit. It trains on every mesh\n"
                         "(docs/using/pruning.md).",
                         argc - 2, argv + 2, table, help, err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void prune_close(struct pruning *pruning)
{
    if (pruning->has_model) transformer_close(&pruning->model);
    if (pruning->has_smaller) transformer_close(&pruning->smaller);
    if (pruning->text.bytes) text_free(&pruning->text);
    free(pruning->first), free(pruning->second), free(pruning->way), free(pruning->at), free(pruning->ways);
    free(pruning->is_pulled), free(pruning->x), free(pruning->d), free(pruning->score);
    free(pruning->ids), free(pruning->labels);
}

static enum error_code prune_memory(struct pruning *pruning, struct error *err)
{
    const struct transformer *const model = &pruning->model;
    const size_t all = (size_t)model_elements(&model->config), groups = (size_t)pruning->groups.count;
    const size_t layer = groups * (size_t)pruning->size, tokens = (size_t)(pruning->B * pruning->S);
    pruning->first = calloc(all, sizeof(double)), pruning->second = calloc(all, sizeof(double));
    pruning->way = calloc(all, sizeof(double)), pruning->at = calloc((size_t)model->params, sizeof *pruning->at);
    pruning->ways = calloc((size_t)model->params, sizeof *pruning->ways);
    pruning->is_pulled = calloc(groups * (size_t)model->config.L, sizeof *pruning->is_pulled);
    pruning->x = calloc(layer, sizeof(double)), pruning->d = calloc(layer, sizeof(double));
    pruning->score = calloc(groups, sizeof(double));
    pruning->ids = calloc(tokens, sizeof *pruning->ids), pruning->labels = calloc(tokens, sizeof *pruning->labels);
    if (!pruning->first || !pruning->second || !pruning->way || !pruning->at || !pruning->ways || !pruning->is_pulled ||
        !pruning->x || !pruning->d || !pruning->score || !pruning->ids || !pruning->labels)
        return fail(err, ERR_MEMORY, "no memory for the states of %zu weights", all);
    int64_t at = 0;
    for (int i = 0; i < model->params; i++) {
        const struct param_spec *const spec = &model->spec[i];
        pruning->at[i] = at, pruning->ways[i] = model->w[i];
        pruning->ways[i].dtype = F64, pruning->ways[i].data = pruning->way + at;
        at += spec->dim[0] * (spec->ndim == 2 ? spec->dim[1] : 1);
    }
    return OK;
}

/* So many of the groups are pulled besides those that shall be 0, as in the released code. */
static const double PULL_MORE = 0.05;

static enum error_code prune_open(struct pruning *pruning, struct error *err)
{
    const struct prune_options *const options = pruning->options;
    struct model_config config;
    const char *dir;
    enum error_code e = find_model(&config, options->model, &dir, err);
    if (e) return e;
    if (config.V < TEXT_VOCABULARY)
        return fail(err, ERR_USAGE, "--model: %s has %lld tokens, and the bytes of a text are %d", config.name,
                    (long long)config.V, TEXT_VOCABULARY);
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
    const int kind = strcmp(options->groups, zero_group_names[ZERO_HEADS]) == 0 ? ZERO_HEADS : ZERO_FEED_FORWARD;
    e = fail_about(err, zero_groups_find(&pruning->groups, &config, (enum zero_group_kind)kind, err), "--groups");
    if (!e) e = fail_about(err, text_load_named(&pruning->text, options->data, err), "--data");
    pruning->S = config.S < 64 ? config.S : 64, pruning->B = options->batch;
    if (!e) e = fail_about(err, text_check_length(&pruning->text, pruning->S, err), "--data");
    if (!e) e = transformer_open(&pruning->model, &config, dtype_by_name(options->dtype), options->seed, err);
    if (e) return e;
    pruning->has_model = true;
    if (dir) e = weights_load(&pruning->model, dir, err);
    pruning->size = zero_groups_size(&pruning->groups, &config);
    pruning->pulled = pruning->groups.count - (int64_t)llround(options->keep * (double)pruning->groups.count);
    if (!e && (pruning->pulled < 1 || pruning->pulled >= pruning->groups.count))
        e = fail(err, ERR_USAGE, "--keep %g: of %lld groups a layer at least one is kept and one is left out",
                 options->keep, (long long)pruning->groups.count);
    if (!e) {
        config = zero_groups_config(&pruning->groups, &config, pruning->groups.count - pruning->pulled);
        e = fail_about(err, model_config_check(&config, err), "--keep");
    }
    pruning->chosen = pruning->pulled + (int64_t)ceil(PULL_MORE * (double)pruning->groups.count);
    if (pruning->chosen >= pruning->groups.count) pruning->chosen = pruning->groups.count - 1;
    return e ? e : prune_memory(pruning, err);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* These are numbers of the released optimizer's variant "adam", and its limits of lambda. */
static const double ADAM_FIRST = 0.9, ADAM_SECOND = 0.999, ADAM_EPS = 1e-8, PULL_AMPLIFY = 20, PULL_MOST = 1e3;

/* Adam's direction of step t, counted from 1. */
static void prune_directions(struct pruning *pruning, int t)
{
    const double first = 1 - pow(ADAM_FIRST, t), second = 1 - pow(ADAM_SECOND, t);
    for (int i = 0; i < pruning->model.params; i++) {
        const int64_t end = i + 1 < pruning->model.params ? pruning->at[i + 1] : model_elements(&pruning->model.config);
        for (int64_t k = pruning->at[i]; k < end; k++) {
            const double g = tensor_get(pruning->model.g[i], k - pruning->at[i]);
            pruning->first[k] = ADAM_FIRST * pruning->first[k] + (1 - ADAM_FIRST) * g;
            pruning->second[k] = ADAM_SECOND * pruning->second[k] + (1 - ADAM_SECOND) * g * g;
            pruning->way[k] = pruning->first[k] / first / (sqrt(pruning->second[k] / second) + ADAM_EPS);
        }
    }
}

/* The groups' numbers step by themselves; all others by the plain rule, and the groups' with them, which is undone. */
static void prune_step(struct pruning *pruning, int t)
{
    struct transformer *const model = &pruning->model;
    const struct zero_groups *const groups = &pruning->groups;
    const struct prune_options *const options = pruning->options;
    const struct half_space rule = { .lr = options->rate, .pull = options->pull, .amplify = PULL_AMPLIFY,
                                     .most = PULL_MOST, .eps = options->epsilon };
    const int64_t n = groups->count;
    double *stepped = pruning->x;
    for (int64_t l = 0; l < model->config.L; l++) {
        bool *const pulled = pruning->is_pulled + l * n;
        zero_groups_take(groups, model, model->w, l, stepped);
        zero_groups_take(groups, model, pruning->ways, l, pruning->d);
        if (t == options->warmup + 1) {
            half_space_scores(stepped, pruning->d, n, pruning->size, pruning->score);
            half_space_choose(pruning->score, n, pruning->chosen, pulled);
        }
        const int64_t room = pruning->pulled - half_space_zeros(stepped, n, pruning->size);
        half_space_step(&rule, stepped, pruning->d, pulled, n, pruning->size, room);
        zero_groups_give(groups, model, l, stepped);
        /* They have stepped: the plain rule below leaves them where they are. */
        memset(pruning->d, 0, (size_t)(n * pruning->size) * sizeof *pruning->d);
        struct transformer ways = *model;
        ways.w = pruning->ways;
        zero_groups_give(groups, &ways, l, pruning->d);
    }
    for (int i = 0; i < model->params; i++) {
        const int64_t end = i + 1 < model->params ? pruning->at[i + 1] : model_elements(&model->config);
        for (int64_t k = pruning->at[i]; k < end; k++) {
            const int64_t at = k - pruning->at[i];
            if (pruning->way[k] != 0)
                tensor_set(model->w[i], at, tensor_get(model->w[i], at) - options->rate * pruning->way[k]);
        }
    }
}

static enum error_code prune_loss(struct pruning *pruning, enum text_split split, int step, double *loss,
                                  struct error *err)
{
    text_batch(&pruning->text, split, pruning->options->seed, step, pruning->S, 0, pruning->B, pruning->ids,
               pruning->labels);
    return transformer_forward(&pruning->model, pruning->ids, pruning->labels, pruning->B, pruning->S, loss, err);
}

static int64_t prune_zeros(struct pruning *pruning)
{
    int64_t zeros = 0;
    for (int64_t l = 0; l < pruning->model.config.L; l++) {
        zero_groups_take(&pruning->groups, &pruning->model, pruning->model.w, l, pruning->x);
        zeros += half_space_zeros(pruning->x, pruning->groups.count, pruning->size);
    }
    return zeros;
}

static enum error_code prune_train(struct pruning *pruning, double *begun, double *ended, struct error *err)
{
    const struct prune_options *const options = pruning->options;
    const int shown = options->steps < 10 ? 1 : options->steps / 10;
    enum error_code e = prune_loss(pruning, TEXT_VALIDATION, 0, begun, err);
    printf("%6s %9s %22s\n", "step", "loss", "groups that are zero");
    for (int t = 1; t <= options->steps && !e; t++) {
        double loss;
        transformer_zero_gradients(&pruning->model);
        e = prune_loss(pruning, TEXT_TRAIN, t, &loss, err);
        if (e) break;
        if (!isfinite(loss)) return fail(err, ERR_CHECK, "the loss of step %d is not finite: a smaller --lr", t);
        transformer_backward(&pruning->model);
        prune_directions(pruning, t), prune_step(pruning, t);
        if (t % shown == 0 || t == options->steps)
            printf("%6d %9.4f %10lld of %lld\n", t, loss, (long long)prune_zeros(pruning),
                   (long long)(pruning->groups.count * pruning->model.config.L));
    }
    return e ? e : prune_loss(pruning, TEXT_VALIDATION, 0, ended, err);
}

/* ---- the smaller model ------------------------------------------------------------------------------------------- */

/* Hold the smaller model's logits to those of the whole one.  @return how many bits differ with exact sums, or -1; the
 * farthest is in *apart. */
static enum error_code prune_compare(struct pruning *pruning, int64_t *numbers, int64_t *differ, double *apart,
                                     double *loss, struct error *err)
{
    struct transformer *const both[2] = { &pruning->model, &pruning->smaller };
    enum error_code e = OK;
    double of[2];
    *differ = 0, *apart = 0;
    for (int k = 0; k < 2 && !e; k++)
        e = transformer_forward(both[k], pruning->ids, pruning->labels, pruning->B, pruning->S, &of[k], err);
    if (e) return e;
    const struct tensor whole = both[0]->logits, less = both[1]->logits;
    *numbers = whole.dim[0] * whole.dim[1], *loss = of[1];
    for (int64_t i = 0; i < *numbers; i++) {
        const double a = tensor_get(whole, i), b = tensor_get(less, i);
        *differ += a != b, *apart = fmax(*apart, fabs(a - b));
        if (isnan(a) || isnan(b)) *apart = INFINITY;
    }
    return OK;
}

static enum error_code prune_finish(struct pruning *pruning, double begun, double ended, struct error *err)
{
    const struct prune_options *const options = pruning->options;
    const int64_t wanted = pruning->pulled * pruning->model.config.L, zeros = prune_zeros(pruning);
    int64_t numbers, differ, rounded;
    double apart, loss, exact_loss, exact_apart;
    if (zeros != wanted)
        return fail(err, ERR_CHECK, "%lld of the %lld groups that shall be zero are not: more --steps, or a stronger "
                    "--pull", (long long)(wanted - zeros), (long long)wanted);
    enum error_code e = zero_groups_leave_out(&pruning->groups, &pruning->model, &pruning->smaller, err);
    if (e) return e;
    pruning->has_smaller = true;
    e = prune_compare(pruning, &numbers, &rounded, &apart, &loss, err);
    pruning->model.config.exact = pruning->smaller.config.exact = SUMS_EXACT;
    if (!e) e = prune_compare(pruning, &numbers, &differ, &exact_apart, &exact_loss, err);
    pruning->model.config.exact = pruning->smaller.config.exact = SUMS_ROUND;
    if (e) return e;
    if (differ > 0)
        return fail(err, ERR_CHECK, "%lld of %lld logits of the smaller model differ from the whole one's with exact "
                    "sums, by %.3g at most", (long long)differ, (long long)numbers, exact_apart);
    e = dump_save_weights(&pruning->smaller, pruning->options->save, err);
    if (e) return e;
    const int64_t before = model_elements(&pruning->model.config), after = model_elements(&pruning->smaller.config);
    printf("\nloss of held-out text  %.4f before, %.4f at the end, %.4f of the smaller model\n", begun, ended, loss);
    printf("numbers                %lld, and %lld in the smaller model: %.1f %%\n", (long long)before, (long long)after,
           100.0 * (double)after / (double)before);
    printf("logits                 %.3g apart at most with sums that round\n", apart);
    char line[200];
    snprintf(line, sizeof line, "all %lld logits have the bits of the whole model's with exact sums",
             (long long)numbers);
    say_verdict(stdout, GOOD_NEWS, line);
    json_add(document_data(), "model %s groups %s groups_of_layer %g zero_of_layer %g parameters %g parameters_left %g "
             "loss_before %g loss_after %g loss_smaller %g logits %g apart %g differ_exact %g",
             pruning->model.config.name, options->groups, (double)pruning->groups.count,
             (double)pruning->pulled, (double)before, (double)after, begun, ended, loss, (double)numbers, apart,
             (double)differ);
    return OK;
}

enum error_code command_prune(int argc, char **argv, int *status, struct error *err)
{
    struct prune_options options = { .model = "llama-tiny", .groups = "feed-forward", .dtype = "fp32", .steps = 300,
                                     .batch = 8, .keep = 0.5, .rate = 2e-3, .pull = 10, .seed = 42 };
    struct pruning pruning = { .options = &options };
    double begun, ended;
    bool help;
    (void)status;
    enum error_code e = prune_parse(&options, argc, argv, &help, err);
    if (e || help) return e;
    if (options.warmup == 0) options.warmup = options.steps / 4 > 0 ? options.steps / 4 : 1;
    if (options.warmup >= options.steps)
        return fail(err, ERR_USAGE, "--warmup %d: --steps is %d", options.warmup, options.steps);
    e = prune_open(&pruning, err);
    if (!e) e = prune_train(&pruning, &begun, &ended, err);
    if (!e) e = prune_finish(&pruning, begun, ended, err);
    prune_close(&pruning);
    return e;
}
