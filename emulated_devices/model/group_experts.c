/* group_experts.c -- groups experts and tokens for speculative dispatch, from what routers choose for a text; writes
 * the model with its experts in that order, and the table of tokens.  cli/affinity.c calls.  Errors: ERR_USAGE for a
 * model that cannot be grouped, ERR_FILE of the folder that is written, ERR_MEMORY. */
#include "emulated_devices/model/group_experts.h"
#include "emulated_devices/schemes/experts/affinity_pairs.h"
#include "emulated_devices/schemes/experts/cocluster.h"
#include "ref/io/disk.h"
#include "ref/io/output.h"
#include "ref/io/text.h"
#include "ref/model/transformer.h"
#include "ref/model/weights.h"
#include "ref/model/params.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* Told of each choice of a text: the layer, the place in the batch ids [B*S], and the expert. */
typedef enum error_code choice_fn(void *context, int64_t layer, const int32_t *ids, int64_t at, int64_t expert,
                                  struct error *);

static enum error_code visit_batch(struct transformer *model, const struct text *text, const struct grouping *grouping,
                                   enum text_split split, int64_t step, choice_fn *visit, void *context,
                                   struct error *err)
{
    const struct model_config *c = &model->config;
    const int64_t N = (int64_t)grouping->batch * grouping->seq;
    int32_t *const ids = malloc((size_t)(2 * N) * sizeof *ids);
    double loss;
    if (ids == NULL) return fail(err, ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)N);
    text_batch(text, split, grouping->seed, step, grouping->seq, 0, grouping->batch, ids, ids + N);
    enum error_code e = transformer_forward(model, ids, ids + N, grouping->batch, grouping->seq, &loss, err);
    for (int64_t l = 0; l < c->L && !e; l++)
        for (int64_t i = 0; i < N * c->mixture.k && layer_mlp(c, l) == MLP_MIXTURE && !e; i++) {
            const int64_t expert = ((const int32_t *)model->block[l].experts.data)[i];
            if (expert >= 0 && expert < c->mixture.E)
                e = visit(context, l, ids, i / c->mixture.k, expert, err);
        }
    free(ids);
    return e;
}

static enum error_code visit_choices(struct transformer *model, const struct text *text,
                                     const struct grouping *grouping, enum text_split split, choice_fn *visit,
                                     void *context, struct error *err)
{
    /* Other text is for the check; a quarter of the batches is enough. */
    const int batches = split == TEXT_TRAIN ? grouping->batches : (grouping->batches + 3) / 4;
    enum error_code e = OK;
    for (int i = 0; i < batches && !e; i++) e = visit_batch(model, text, grouping, split, i, visit, context, err);
    return e;
}

static enum error_code count_choice(void *context, int64_t layer, const int32_t *ids, int64_t at, int64_t expert,
                                    struct error *err)
{
    struct activations *const seen = context;
    (void)err;
    seen->count[(layer * seen->V + ids[at]) * seen->E + expert]++;
    return OK;
}

static enum error_code affinity_count_choices(struct transformer *model, const struct text *text,
                                              const struct grouping *grouping,
                                              enum text_split split, struct activations *seen,
                                              struct error *err)
{
    const struct model_config *c = &model->config;
    *seen = (struct activations){ .L = c->L, .V = c->V, .E = c->mixture.E };
    seen->count = calloc((size_t)(c->L * c->V * c->mixture.E), sizeof *seen->count);
    if (seen->count == NULL)
        return fail(err, ERR_MEMORY, "no memory to count the choices of %lld tokens", (long long)c->V);
    return visit_choices(model, text, grouping, split, count_choice, seen, err);
}

/* ---- pairs of tokens --------------------------------------------------------------------------------------------- */

/* Choices of pairs in each part; and how many of other text are in the part that the tables predict. */
struct pairing {
    const struct clusters *clusters;
    int64_t E, S;
    struct pair_counts counts;
    const struct affinity *table;
    double local, all;
};

static enum error_code count_pair(void *context, int64_t layer, const int32_t *ids, int64_t at, int64_t expert,
                                  struct error *err)
{
    struct pairing *const p = context;
    if (at % p->S == 0) return OK;
    return pair_counts_add(&p->counts, ids[at - 1], ids[at], p->clusters->of_expert[layer * p->E + expert], err);
}

static enum error_code judge_choice(void *context, int64_t layer, const int32_t *ids, int64_t at, int64_t expert,
                                    struct error *err)
{
    struct pairing *const p = context;
    const int32_t part = affinity_part_at(p->table, ids, p->S, at);
    (void)err;
    p->all++;
    /* A token that is not known may be on any device. */
    p->local += part < 0 ? 1.0 / p->clusters->parts : part == p->clusters->of_expert[layer * p->E + expert];
    return OK;
}

/* share [V, parts]: of each token's choices those in a part. */
static double *shares_of(const struct activations *seen, const struct clusters *clusters)
{
    const int P = clusters->parts;
    double *const share = calloc((size_t)(seen->V * P) + 1, sizeof *share);
    for (int64_t v = 0; v < seen->V && share; v++) {
        double all = 0;
        for (int64_t l = 0; l < seen->L; l++)
            for (int64_t e = 0; e < seen->E; e++) {
                const double n = seen->count[(l * seen->V + v) * seen->E + e];
                share[v * P + clusters->of_expert[l * seen->E + e]] += n, all += n;
            }
        for (int p = 0; p < P && all > 0; p++) share[v * P + p] /= all;
    }
    return share;
}

/* List the pairs that say more than a token, and check the tables on other text. */
static enum error_code list_pairs(struct transformer *model, const struct text *text, struct grouping *grouping,
                                  const struct activations *seen, const struct clusters *clusters,
                                  struct affinity *table, struct error *err)
{
    struct pairing p = { .clusters = clusters, .E = seen->E, .S = grouping->seq, .table = table,
                         .counts = { .V = seen->V, .parts = clusters->parts } };
    double *const share = shares_of(seen, clusters);
    enum error_code e = share ? OK : fail(err, ERR_MEMORY, "no memory for the shares of %lld tokens",
                                          (long long)seen->V);
    if (!e) e = visit_choices(model, text, grouping, TEXT_TRAIN, count_pair, &p, err);
    if (!e) e = pair_counts_list(&p.counts, share, table, err);
    if (!e) e = visit_choices(model, text, grouping, TEXT_VALIDATION, judge_choice, &p, err);
    grouping->pairs = table->pairs, grouping->checked_pairs = p.all > 0 ? p.local / p.all : 0;
    pair_counts_free(&p.counts);
    free(share);
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
                                          const struct grouping *grouping, const struct affinity *table,
                                          struct error *err)
{
    struct stat st;
    char path[4096];
    if (disk_make_folder(grouping->out) != 0 && !(stat(grouping->out, &st) == 0 && S_ISDIR(st.st_mode)))
        return fail(err, ERR_FILE, "%s: this folder cannot be made", printable_path(grouping->out).text);
    snprintf(path, sizeof path, "%s/affinity.json", grouping->out);
    enum error_code e = order_experts(model, clusters, err);
    if (!e) e = weights_save(model, grouping->out, err);
    return e ? e : affinity_write(table, path, err);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static enum error_code group_model(struct transformer *model, const struct text *text, struct grouping *grouping,
                                   struct error *err)
{
    struct activations seen, unseen = { 0 };
    struct clusters c = { 0 };
    struct affinity table = { .V = model->config.V };
    enum error_code e = affinity_count_choices(model, text, grouping, TEXT_TRAIN, &seen, err);
    if (!e) e = affinity_count_choices(model, text, grouping, TEXT_VALIDATION, &unseen, err);
    if (!e) e = cocluster(&seen, grouping->ep, &c, err);
    table.parts = c.parts, table.part = c.of_token;
    if (!e) e = list_pairs(model, text, grouping, &seen, &c, &table, err);
    if (!e) e = affinity_write_all(model, &c, grouping, &table, err);
    if (!e)
        grouping->parts = c.parts, grouping->local = clusters_local(&seen, &c),
            grouping->checked = clusters_local(&unseen, &c), grouping->imbalance = clusters_imbalance(&seen, &c);
    free(seen.count), free(unseen.count), free(table.pair), clusters_free(&c);
    return e;
}

enum error_code group_experts(const struct model_config *config, const char *dir, const struct text *text,
                              struct grouping *grouping, struct error *err)
{
    struct transformer m;
    struct model_config dry = *config;
    dry.dropout_embedding = dry.dropout_residual = dry.dropout_attention = 0;
    enum error_code e = transformer_open(&m, &dry, F32, grouping->seed, err);
    if (e) return e;
    if (dir) e = weights_load(&m, dir, err);
    if (!e) e = group_model(&m, text, grouping, err);
    transformer_close(&m);
    return e;
}

enum error_code group_check(const struct model_config *config, struct grouping *grouping, struct error *err)
{
    if (grouping->seq == 0) grouping->seq = (int)config->S;
    if (config->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--model %s: has no experts; mixtral-tiny is a mixture", config->name);
    if (config->mixture.router.groups > 1)
        return fail(err, ERR_USAGE, "--model %s: its router chooses in groups of neighbouring experts, which another "
                    "order of experts would change", config->name);
    if (config->V < TEXT_VOCABULARY)
        return fail(err, ERR_USAGE, "--model %s: has V=%lld tokens; text needs %d, one for each byte", config->name,
                    (long long)config->V, TEXT_VOCABULARY);
    if (grouping->seq > config->S)
        return fail(err, ERR_USAGE, "--seq %d: model %s has S=%lld positions", grouping->seq, config->name,
                    (long long)config->S);
    return OK;
}
