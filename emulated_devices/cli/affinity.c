/* affinity.c -- `orrery affinity`: from what routers choose for a text, groups experts and tokens for speculative
 * dispatch; writes the model with its experts in that order, and the table of tokens. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/schemes/experts/affinity.h"
#include "emulated_devices/schemes/experts/cocluster.h"
#include "ref/io/disk.h"
#include "ref/io/output.h"
#include "ref/io/text.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct asked {
    const char *model, *data, *out;
    int ep, batch, seq, batches;
    uint64_t seed;
};

static enum error_code affinity_parse(struct asked *asked, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "OUT", NULL, OPTION_STRING, &asked->out, .required = true, .help = "the folder to write" },
        { "--ep", "N", OPTION_INT, &asked->ep, .required = true, .min = 1, .max = 4096,
         .help = "parts of the experts" },
        { "--model", "NAME|DIR", OPTION_STRING, &asked->model,
          .help = "a mixture: a preset of `orrery list`, or a Hugging Face folder with weights" },
        { "--data", "FILE", OPTION_STRING, &asked->data,
          .help = "text, or a folder of sources and documents; default: two plays of Shakespeare" },
        { "--batches", "N", OPTION_INT, &asked->batches, .min = 1, .max = 1e6,
          .help = "how many batches to look at; a quarter as many, of the text for validation, are for the check" },
        { "--batch", "N", OPTION_INT, &asked->batch, .min = 1, .max = 1e6, .help = "sequences of a batch" },
        { "--seq", "N", OPTION_INT, &asked->seq, .min = 0, .max = 1e6, .help = "tokens of a sequence; 0: the model's" },
        { "--seed", "N", OPTION_UINT64, &asked->seed, .help = "seed of the batches, and of a preset's weights" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command("affinity", "OUT --ep N [options]",
                         "Find which experts the tokens of a text choose, and group both into N parts, so that most\n"
                         "choices are inside a part. Write a folder with the same model, its experts in the order of\n"
                         "the parts, and affinity.json, the part of each token, for orrery train --model OUT\n"
                         "--dispatch speculative --affinity OUT/affinity.json.",
                         argc - 2, argv + 2, table, help, err);
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static enum error_code count_batch(struct transformer *model, const struct text *text, const struct asked *asked,
                                   enum text_split split, int64_t step, struct activations *seen, struct error *err)
{
    const struct model_config *c = &model->config;
    const int64_t N = (int64_t)asked->batch * asked->seq;
    int32_t *const ids = malloc((size_t)(2 * N) * sizeof *ids);
    double loss;
    if (ids == NULL) return fail(err, ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)N);
    text_batch(text, split, asked->seed, step, asked->seq, 0, asked->batch, ids, ids + N);
    const enum error_code e = transformer_forward(model, ids, ids + N, asked->batch, asked->seq, &loss, err);
    for (int64_t l = 0; l < c->L && !e; l++)
        for (int64_t i = 0; i < N * c->mixture.k && layer_mlp(c, l) == MLP_MIXTURE; i++) {
            const int64_t expert = ((const int32_t *)model->block[l].experts.data)[i];
            if (expert >= 0 && expert < c->mixture.E)
                seen->count[(l * c->V + ids[i / c->mixture.k]) * c->mixture.E + expert]++;
        }
    free(ids);
    return e;
}

static enum error_code affinity_count_choices(struct transformer *model, const struct text *text,
                                              const struct asked *asked,
                                              enum text_split split, int batches, struct activations *seen,
                                              struct error *err)
{
    const struct model_config *c = &model->config;
    *seen = (struct activations){ .L = c->L, .V = c->V, .E = c->mixture.E };
    seen->count = calloc((size_t)(c->L * c->V * c->mixture.E), sizeof *seen->count);
    enum error_code e = seen->count ? OK : fail(err, ERR_MEMORY, "no memory to count the choices of %lld tokens",
                                                (long long)c->V);
    for (int i = 0; i < batches && !e; i++) e = count_batch(model, text, asked, split, i, seen, err);
    return e;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Put matrices, or rows of one, in another order: number i was number old[i]. */
static enum error_code put_in_order(char *const at[], size_t bytes, const int32_t old[], int64_t n, struct error *err)
{
    char *const copy = malloc(bytes * (size_t)n + 1);
    if (copy == NULL) return fail(err, ERR_MEMORY, "no memory to order %lld experts", (long long)n);
    for (int64_t i = 0; i < n; i++) memcpy(copy + bytes * (size_t)i, at[old[i]], bytes);
    for (int64_t i = 0; i < n; i++) memcpy(at[i], copy + bytes * (size_t)i, bytes);
    free(copy);
    return OK;
}

/* Give the experts of a layer other numbers in the same model, and so the rows and biases of its router. */
static enum error_code order_layer(struct transformer *model, int layer, const int32_t old[], char *at[],
                                   struct error *err)
{
    static const struct { enum block_param param; bool in_rows; } list[] = {
        { ROUTER_W, true }, { ROUTER_B, true }, { UP_W, false }, { UP_B, false }, { DOWN_W, false }, { DOWN_B, false },
    };
    const int64_t E = model->config.mixture.E;
    enum error_code e = OK;
    for (size_t which = 0; which < sizeof list / sizeof *list && !e; which++) {
        /* An expert has a tensor of its own, or a row of the router's. */
        const bool in_rows = list[which].in_rows;
        size_t bytes = 0;
        if (param_of_block(&model->config, layer, list[which].param) < 0) continue;
        for (int64_t i = 0; i < E; i++) {
            const struct tensor w = model->w[in_rows ? param_of_block(&model->config, layer, list[which].param)
                                                     : param_of_expert(&model->config, layer, i, list[which].param)];
            bytes = tensor_bytes(w) / (size_t)(in_rows ? mixture_columns(&model->config.mixture) : 1);
            at[i] = (char *)w.data + (in_rows ? bytes * (size_t)i : 0);
        }
        e = put_in_order(at, bytes, old, E, err);
    }
    if (e || !model->config.mixture.router.biased) return e;
    /* Correction biases are no parameters of the list. */
    for (int64_t i = 0; i < E; i++) at[i] = (char *)(transformer_router_bias(model, layer) + i);
    return put_in_order(at, sizeof(double), old, E, err);
}

static enum error_code order_experts(struct transformer *model, const struct clusters *clusters, struct error *err)
{
    const int64_t E = model->config.mixture.E;
    int32_t *const old = malloc((size_t)E * sizeof *old);
    char **const at = malloc((size_t)E * sizeof *at);
    enum error_code e = old && at ? OK : fail(err, ERR_MEMORY, "no memory to order %lld experts", (long long)E);
    for (int l = 0; l < model->config.L && !e; l++) {
        if (layer_mlp(&model->config, l) != MLP_MIXTURE) continue;
        clusters_order(clusters, E, l, old), e = order_layer(model, l, old, at, err);
    }
    free(old), free(at);
    return e;
}

static enum error_code affinity_write_all(struct transformer *model, const struct clusters *clusters,
                                          const struct asked *asked, struct error *err)
{
    const struct affinity table = { .V = model->config.V, .parts = clusters->parts, .part = clusters->of_token };
    struct stat st;
    char path[4096];
    if (disk_make_folder(asked->out) != 0 && !(stat(asked->out, &st) == 0 && S_ISDIR(st.st_mode)))
        return fail(err, ERR_FILE, "%s: this folder cannot be made", printable_path(asked->out).text);
    snprintf(path, sizeof path, "%s/affinity.json", asked->out);
    enum error_code e = order_experts(model, clusters, err);
    if (!e) e = weights_save(model, asked->out, err);
    return e ? e : affinity_write(&table, path, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void print_result(const struct transformer *model, const struct asked *asked, const struct activations *seen,
                         const struct activations *unseen, const struct clusters *clusters)
{
    const double nothing = 1.0 / clusters->parts, local = clusters_local(seen, clusters),
        checked = clusters_local(unseen, clusters);
    printf("model   %s: %lld layers of %lld experts, %lld for each token; %d parts\n"
           "text    %d batches of %d sequences of %d tokens\n\n"
           "choices inside a part                  of this text   of other text   sent less\n"
           "  nothing known: 1 / %-4d                   %6.1f %%        %6.1f %%\n"
           "  experts and tokens grouped               %6.1f %%        %6.1f %%     %6.1f %%\n"
           "experts of the part with most choices, over the mean: %.2f\n\n"
           "wrote   %s: config.json, model.safetensors, affinity.json\n",
           model->config.name, (long long)model->config.L, (long long)model->config.mixture.E,
           (long long)model->config.mixture.k,
           clusters->parts, asked->batches, asked->batch, asked->seq, clusters->parts, 100 * nothing, 100 * nothing,
           100 * local, 100 * checked,
           clusters->parts > 1 ? 100 * (1 - (1 - checked) / (1 - nothing)) : 0, clusters_imbalance(seen, clusters),
           printable_path(asked->out).text);
    if (model->config.mixture.balance_coefficient > 0)
        printf("note    the balance loss counts an expert's number over all layers, so it changes with the numbers\n");
}

static enum error_code group(struct transformer *model, const struct text *text, const struct asked *asked,
                             struct error *err)
{
    struct activations seen, unseen = { 0 };
    struct clusters c = { 0 };
    enum error_code e = affinity_count_choices(model, text, asked, TEXT_TRAIN, asked->batches, &seen, err);
    if (!e) e = affinity_count_choices(model, text, asked, TEXT_VALIDATION, (asked->batches + 3) / 4, &unseen, err);
    if (!e) e = cocluster(&seen, asked->ep, &c, err);
    if (!e) e = affinity_write_all(model, &c, asked, err);
    if (!e) print_result(model, asked, &seen, &unseen, &c);
    free(seen.count), free(unseen.count), clusters_free(&c);
    return e;
}

static enum error_code check_model(const struct model_config *config, struct asked *asked, struct error *err)
{
    if (asked->seq == 0) asked->seq = (int)config->S;
    if (config->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--model %s: has no experts; mixtral-tiny is a mixture", config->name);
    if (config->mixture.router.groups > 1)
        return fail(err, ERR_USAGE, "--model %s: its router chooses in groups of neighbouring experts, which another "
                    "order of experts would change", config->name);
    if (config->V < TEXT_VOCABULARY)
        return fail(err, ERR_USAGE, "--model %s: has V=%lld tokens; text needs %d, one for each byte", config->name,
                    (long long)config->V, TEXT_VOCABULARY);
    if (asked->seq > config->S)
        return fail(err, ERR_USAGE, "--seq %d: model %s has S=%lld positions", asked->seq, config->name,
                    (long long)config->S);
    return OK;
}

enum error_code command_affinity(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .model = "mixtral-tiny", .batch = 8, .batches = 32, .seed = 42 };
    struct model_config config;
    struct transformer m;
    struct text text = { 0 };
    const char *dir;
    bool help;
    (void)status;
    enum error_code e = affinity_parse(&a, argc, argv, &help, err);
    if (e || help) return e;
    e = find_model(&config, a.model, &dir, err);
    if (!e) e = check_model(&config, &a, err);
    if (!e) e = text_load_named(&text, a.data, err);
    if (!e) e = fail_about(err, text_check_length(&text, a.seq, err), "--data");
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
    if (!e) e = transformer_open(&m, &config, F32, a.seed, err);
    if (!e) {
        e = dir ? weights_load(&m, dir, err) : OK;
        if (!e) e = group(&m, &text, &a, err);
        transformer_close(&m);
    }
    text_free(&text);
    return e;
}
