/* affinity.c -- `orrery affinity`: from what routers choose for a text, groups experts and tokens for speculative
 * dispatch; writes the model with its experts in that order, and the table of tokens. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/schemes/experts/affinity.h"
#include "emulated_devices/schemes/experts/cocluster.h"
#include "ref/io/disk.h"
#include "ref/io/output.h"
#include "ref/io/text.h"
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

static enum error_code parse(struct asked *a, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "OUT", NULL, OPTION_STRING, &a->out, .required = true, .help = "the folder to write" },
        { "--ep", "N", OPTION_INT, &a->ep, .required = true, .min = 1, .max = 4096, .help = "parts of the experts" },
        { "--model", "NAME|DIR", OPTION_STRING, &a->model,
          .help = "a mixture: a preset of `orrery list`, or a Hugging Face folder with weights" },
        { "--data", "FILE", OPTION_STRING, &a->data,
          .help = "text, or a folder of sources and documents; default: two plays of Shakespeare" },
        { "--batches", "N", OPTION_INT, &a->batches, .min = 1, .max = 1e6,
          .help = "how many batches to look at; a quarter as many, of the text for validation, are for the check" },
        { "--batch", "N", OPTION_INT, &a->batch, .min = 1, .max = 1e6, .help = "sequences of a batch" },
        { "--seq", "N", OPTION_INT, &a->seq, .min = 0, .max = 1e6, .help = "tokens of a sequence; 0: the model's" },
        { "--seed", "N", OPTION_UINT64, &a->seed, .help = "seed of the batches, and of a preset's weights" },
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

static enum error_code count_batch(struct transformer *m, const struct text *text, const struct asked *a,
                                   enum text_split split, int64_t step, struct activations *seen, struct error *err)
{
    const struct model_config *c = &m->config;
    const int64_t N = (int64_t)a->batch * a->seq;
    int32_t *const ids = malloc((size_t)(2 * N) * sizeof *ids);
    double loss;
    if (ids == NULL) return fail(err, ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)N);
    text_batch(text, split, a->seed, step, a->seq, 0, a->batch, ids, ids + N);
    const enum error_code e = transformer_forward(m, ids, ids + N, a->batch, a->seq, &loss, err);
    for (int64_t l = 0; l < c->L && !e; l++)
        for (int64_t i = 0; i < N * c->mixture.k && layer_mlp(c, l) == MLP_MIXTURE; i++) {
            const int64_t expert = ((const int32_t *)m->block[l].experts.data)[i];
            if (expert >= 0 && expert < c->mixture.E)
                seen->count[(l * c->V + ids[i / c->mixture.k]) * c->mixture.E + expert]++;
        }
    free(ids);
    return e;
}

static enum error_code count_choices(struct transformer *m, const struct text *text, const struct asked *a,
                                     enum text_split split, int batches, struct activations *seen, struct error *err)
{
    const struct model_config *c = &m->config;
    *seen = (struct activations){ .L = c->L, .V = c->V, .E = c->mixture.E };
    seen->count = calloc((size_t)(c->L * c->V * c->mixture.E), sizeof *seen->count);
    enum error_code e = seen->count ? OK : fail(err, ERR_MEMORY, "no memory to count the choices of %lld tokens",
                                                (long long)c->V);
    for (int i = 0; i < batches && !e; i++) e = count_batch(m, text, a, split, i, seen, err);
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

/* The same model, whose experts have other numbers: also rows of its router. */
static enum error_code order_layer(struct transformer *m, int layer, const int32_t old[], char *at[], struct error *err)
{
    const int64_t E = m->config.mixture.E;
    enum error_code e = OK;
    for (int which = 0; which < 3 && !e; which++) {
        const enum block_param p = which == 0 ? ROUTER_W : which == 1 ? UP_W : DOWN_W;
        size_t bytes = 0;
        for (int64_t i = 0; i < E; i++) {
            const struct tensor w = m->w[p == ROUTER_W ? param_of_block(&m->config, layer, p)
                                                       : param_of_expert(&m->config, layer, i, p)];
            bytes = tensor_bytes(w) / (size_t)(p == ROUTER_W ? mixture_columns(&m->config.mixture) : 1);
            at[i] = (char *)w.data + (p == ROUTER_W ? bytes * (size_t)i : 0);
        }
        e = put_in_order(at, bytes, old, E, err);
    }
    return e;
}

static enum error_code order_experts(struct transformer *m, const struct clusters *c, struct error *err)
{
    const int64_t E = m->config.mixture.E;
    int32_t *const old = malloc((size_t)E * sizeof *old);
    char **const at = malloc((size_t)E * sizeof *at);
    enum error_code e = old && at ? OK : fail(err, ERR_MEMORY, "no memory to order %lld experts", (long long)E);
    for (int l = 0; l < m->config.L && !e; l++) {
        if (layer_mlp(&m->config, l) != MLP_MIXTURE) continue;
        clusters_order(c, E, l, old), e = order_layer(m, l, old, at, err);
    }
    free(old), free(at);
    return e;
}

static enum error_code write_all(struct transformer *m, const struct clusters *c, const struct asked *a,
                                 struct error *err)
{
    const struct affinity table = { .V = m->config.V, .parts = c->parts, .part = c->of_token };
    struct stat st;
    char path[4096];
    if (disk_make_folder(a->out) != 0 && !(stat(a->out, &st) == 0 && S_ISDIR(st.st_mode)))
        return fail(err, ERR_FILE, "%s: this folder cannot be made", printable_path(a->out).text);
    snprintf(path, sizeof path, "%s/affinity.json", a->out);
    enum error_code e = order_experts(m, c, err);
    if (!e) e = weights_save(m, a->out, err);
    return e ? e : affinity_write(&table, path, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void print_result(const struct transformer *m, const struct asked *a, const struct activations *seen,
                         const struct activations *unseen, const struct clusters *c)
{
    const double nothing = 1.0 / c->parts, local = clusters_local(seen, c), checked = clusters_local(unseen, c);
    printf("model   %s: %lld layers of %lld experts, %lld for each token; %d parts\n"
           "text    %d batches of %d sequences of %d tokens\n\n"
           "choices inside a part                  of this text   of other text   sent less\n"
           "  nothing known: 1 / %-4d                   %6.1f %%        %6.1f %%\n"
           "  experts and tokens grouped               %6.1f %%        %6.1f %%     %6.1f %%\n"
           "experts of the part with most choices, over the mean: %.2f\n\n"
           "wrote   %s: config.json, model.safetensors, affinity.json\n",
           m->config.name, (long long)m->config.L, (long long)m->config.mixture.E, (long long)m->config.mixture.k,
           c->parts, a->batches, a->batch, a->seq, c->parts, 100 * nothing, 100 * nothing, 100 * local, 100 * checked,
           c->parts > 1 ? 100 * (1 - (1 - checked) / (1 - nothing)) : 0, clusters_imbalance(seen, c),
           printable_path(a->out).text);
    if (m->config.mixture.balance_coefficient > 0)
        printf("note    the balance loss counts an expert's number over all layers, so it changes with the numbers\n");
}

static enum error_code group(struct transformer *m, const struct text *text, const struct asked *a, struct error *err)
{
    struct activations seen, unseen = { 0 };
    struct clusters c = { 0 };
    enum error_code e = count_choices(m, text, a, TEXT_TRAIN, a->batches, &seen, err);
    if (!e) e = count_choices(m, text, a, TEXT_VALIDATION, (a->batches + 3) / 4, &unseen, err);
    if (!e) e = cocluster(&seen, a->ep, &c, err);
    if (!e) e = write_all(m, &c, a, err);
    if (!e) print_result(m, a, &seen, &unseen, &c);
    free(seen.count), free(unseen.count), clusters_free(&c);
    return e;
}

static enum error_code check_model(const struct model_config *c, struct asked *a, struct error *err)
{
    if (a->seq == 0) a->seq = (int)c->S;
    if (c->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--model %s: has no experts; mixtral-tiny is a mixture", c->name);
    if (c->mixture.router.groups > 1)
        return fail(err, ERR_USAGE, "--model %s: its router chooses in groups of neighbouring experts, which another "
                    "order of experts would change", c->name);
    if (c->V < TEXT_VOCABULARY)
        return fail(err, ERR_USAGE, "--model %s: has V=%lld tokens; text needs %d, one for each byte", c->name,
                    (long long)c->V, TEXT_VOCABULARY);
    if (a->seq > c->S)
        return fail(err, ERR_USAGE, "--seq %d: model %s has S=%lld positions", a->seq, c->name, (long long)c->S);
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
    enum error_code e = parse(&a, argc, argv, &help, err);
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
