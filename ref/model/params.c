/* params.c -- makes the list of a model's parameters: their order, names, shapes and initial values.  Files of
 * verify/, ref/model/, model/, check/ and other rooms call these functions.  No function returns an error code. */
#include "ref/model/kinds.h"
#include "ref/model/naming.h"
#include "ref/model/adapters.h"
#include "ref/model/params.h"
#include "ref/optim/conventions.h"
#include <math.h>
#include <string.h>

/* ---- indices in the list ----------------------------------------------------------------------------------------- */

/* Properties of a layer; a parameter exists in layers that have all its `needs`. */
enum {
    LATENTS = 1, LATENT_QUERIES = 2, PLAIN_HEADS = 4, SECOND_BLOCK = 8, EXPERTS = 16, SHARED = 32, GATED_SHARED = 64,
    HEAD_NORMS = 128, STREAM_PREFIX = 256, LOGIT_SINKS = 512, NORMS_BEHIND = 1024, SECOND_NORM = 2048,
    NOT_IN_A_LAYER = 4096, ADAPTED_QKV = 8192, ADAPTED_PROJ = 16384, ADAPTED_FEED = 32768
};

static const struct { enum param_role role; bool bias; unsigned needs; } kinds[MODEL_PARAMS] = {
    [NO_PARAM] = { .needs = NOT_IN_A_LAYER },
    [LN1_W] = { ROLE_NORM, false, 0 },                  [LN1_B] = { ROLE_NORM, true, 0 },
    [Q_LATENT_W] = { ROLE_LATENT, false, LATENT_QUERIES },
    [Q_LATENT_B] = { ROLE_LATENT, true, LATENT_QUERIES }, [KV_LATENT_B] = { ROLE_LATENT, true, LATENTS },
    [Q_NORM_W] = { ROLE_LATENT_NORM, false, LATENT_QUERIES },
    [QUERIES_W] = { ROLE_QUERIES, false, LATENTS },     [KV_LATENT_W] = { ROLE_LATENT, false, LATENTS },
    [KV_NORM_W] = { ROLE_LATENT_NORM, false, LATENTS }, [KEYS_VALUES_W] = { ROLE_KEYS_VALUES, false, LATENTS },
    [QKV_W] = { ROLE_QKV, false, PLAIN_HEADS },         [QKV_B] = { ROLE_QKV, true, 0 },
    [HEAD_NORM_W] = { ROLE_HEAD_NORM, false, HEAD_NORMS }, [PREFIX] = { ROLE_PREFIX, false, STREAM_PREFIX },
    [SINKS] = { ROLE_SINKS, false, LOGIT_SINKS },
    [PROJ_W] = { ROLE_ATTENTION_OUT, false, 0 },        [PROJ_B] = { ROLE_ATTENTION_OUT, true, 0 },
    [LN2_W] = { ROLE_NORM, false, SECOND_NORM },        [LN2_B] = { ROLE_NORM, true, SECOND_NORM },
    [QKV_LOW_A] = { ROLE_LOW_IN, false, ADAPTED_QKV }, [QKV_LOW_B] = { ROLE_LOW_OUT, false, ADAPTED_QKV },
    [PROJ_LOW_A] = { ROLE_LOW_IN, false, ADAPTED_PROJ }, [PROJ_LOW_B] = { ROLE_LOW_OUT, false, ADAPTED_PROJ },
    [AFTER1_W] = { ROLE_NORM, false, NORMS_BEHIND },    [AFTER2_W] = { ROLE_NORM, false, NORMS_BEHIND },
    [DENSE_UP_W] = { ROLE_UP, false, SECOND_BLOCK },    [DENSE_DOWN_W] = { ROLE_DOWN, false, SECOND_BLOCK },
    [SECOND_LN1_W] = { ROLE_NORM, false, SECOND_BLOCK }, [SECOND_QKV_W] = { ROLE_QKV, false, SECOND_BLOCK },
    [SECOND_PROJ_W] = { ROLE_ATTENTION_OUT, false, SECOND_BLOCK },
    [SECOND_LN2_W] = { ROLE_NORM, false, SECOND_BLOCK },
    [SECOND_UP_W] = { ROLE_UP, false, SECOND_BLOCK },   [SECOND_DOWN_W] = { ROLE_DOWN, false, SECOND_BLOCK },
    [ROUTER_W] = { ROLE_ROUTER, false, EXPERTS },       [ROUTER_B] = { ROLE_ROUTER, true, EXPERTS },
    [SHARED_UP_W] = { ROLE_SHARED_UP, false, SHARED },  [SHARED_DOWN_W] = { ROLE_SHARED_DOWN, false, SHARED },
    [SHARED_GATE_W] = { ROLE_SHARED_GATE, false, GATED_SHARED },
    [UP_W] = { ROLE_UP, false, 0 },                     [UP_B] = { ROLE_UP, true, 0 },
    [DOWN_W] = { ROLE_DOWN, false, 0 },                 [DOWN_B] = { ROLE_DOWN, true, 0 },
    [UP_LOW_A] = { ROLE_LOW_IN, false, ADAPTED_FEED },  [UP_LOW_B] = { ROLE_LOW_OUT, false, ADAPTED_FEED },
    [DOWN_LOW_A] = { ROLE_LOW_IN, false, ADAPTED_FEED }, [DOWN_LOW_B] = { ROLE_LOW_OUT, false, ADAPTED_FEED },
    [TOKENS_W] = { .role = ROLE_TOKENS },               [POSITIONS_W] = { .role = ROLE_POSITIONS },
    [FINAL_NORM_W] = { .role = ROLE_NORM },             [FINAL_NORM_B] = { ROLE_NORM, true, 0 },
    [HEAD_W] = { .role = ROLE_HEAD },                   [HEAD_B] = { ROLE_HEAD, true, 0 },
    [STREAMS_UP_W] = { .role = ROLE_STREAMS_UP },       [STREAMS_UP_B] = { ROLE_STREAMS_UP, true, 0 },
    [STREAMS_DOWN_W] = { .role = ROLE_STREAMS_DOWN },   [STREAMS_DOWN_B] = { ROLE_STREAMS_DOWN, true, 0 },
};

/* The parameter of a second block that is p in the first. */
static enum block_param of_second(enum block_param param)
{
    static const enum block_param second[BLOCK_PARAMS] = {
        [LN1_W] = SECOND_LN1_W, [QKV_W] = SECOND_QKV_W, [PROJ_W] = SECOND_PROJ_W, [LN2_W] = SECOND_LN2_W,
        [DENSE_UP_W] = SECOND_UP_W, [DENSE_DOWN_W] = SECOND_DOWN_W,
    };
    return second[param] ? second[param] : param;
}

static bool is_mixture(const struct model_config *config, int64_t layer)
{
    return layer_mlp(config, layer) == MLP_MIXTURE;
}

static bool adapts(const struct model_config *config, enum adapted_set set)
{
    return config->adapters.rank > 0 && config->adapters.of & set;
}

static unsigned layer_has(const struct model_config *config, int64_t layer)
{
    const bool experts = is_mixture(config, layer), shared = experts && config->mixture.shared > 0;
    return (LATENT(config) ? LATENTS : PLAIN_HEADS) | (LATENT(config) && config->latent.q > 0 ? LATENT_QUERIES : 0) |
           (config->shortcut ? SECOND_BLOCK : 0) | (experts ? EXPERTS : 0) | (shared ? SHARED : 0) |
           (shared && config->mixture.shared_gate ? GATED_SHARED : 0) | (config->head_norms ? HEAD_NORMS : 0) |
           (STREAMS(config) > 1 ? STREAM_PREFIX : 0) | (config->sinks ? LOGIT_SINKS : 0) |
           (adapts(config, LOW_ON_ATTENTION) ? ADAPTED_PROJ | (LATENT(config) ? 0 : ADAPTED_QKV) : 0) |
           (adapts(config, experts ? LOW_ON_EXPERTS : LOW_ON_FEED) ? ADAPTED_FEED : 0) |
           (config->norms_at == NORMS_AROUND ? NORMS_BEHIND : 0)
               | (config->parallel && !config->two_norms ? 0 : SECOND_NORM);
}

/* The parameters of a layer, of one expert if it has several: a bit for each. */
static uint64_t params_of(const struct model_config *config, int64_t layer)
{
    const unsigned has = layer_has(config, layer);
    uint64_t set = 0;
    for (enum block_param p = 0; p < BLOCK_PARAMS; p++)
        if (!(kinds[p].needs & ~has) && (!kinds[p].bias || model_has_bias(config, kinds[p].role)))
            set |= (uint64_t)1 << p;
    return set;
}

static bool has(uint64_t set, enum block_param param) { return set >> param & 1; }

/* Number of those before p. */
static int params_before(uint64_t set, enum block_param param)
{
    return __builtin_popcountll(set & (((uint64_t)1 << param) - 1));
}

/* The parameters of an expert are neighbours at the end of the block. */
static int expert_params(uint64_t set) { return params_before(set, BLOCK_PARAMS) - params_before(set, UP_W); }

static int block_params(const struct model_config *config, int64_t layer)
{
    const uint64_t set = params_of(config, layer);
    return params_before(set, UP_W) + expert_params(set) * (is_mixture(config, layer) ? (int)config->mixture.E : 1);
}

/* A layer that is dense among those of a mixture, and one that is not; -1: there is none. */
static int64_t layer_of_kind(const struct model_config *config, bool dense)
{
    int64_t l = 0;
    while (l < config->L && l < LAYER_SET_MOST && layer_set_has(&config->dense.at, l) != dense) l++;
    return l < config->L && layer_set_has(&config->dense.at, l) == dense ? l : -1;
}

int param_positions(const struct model_config *config) { return config->positions == POSITIONS_LEARNED ? 1 : -1; }

static int first_block(const struct model_config *config) { return config->positions == POSITIONS_LEARNED ? 2 : 1; }

/* The parameters of each layer that is dense among those of a mixture, and of each other one. */
struct block_sizes { int dense, other; };

static struct block_sizes sizes_of_blocks(const struct model_config *config)
{
    const int64_t dense = layer_of_kind(config, true), other = layer_of_kind(config, false);
    return (struct block_sizes){ dense < 0 ? 0 : block_params(config, dense),
                                other < 0 ? 0 : block_params(config, other) };
}

/* The parameters of the layers before one; of layer L those of all. */
static int before_layer(const struct model_config *config, const struct block_sizes *each, int64_t layer)
{
    const int64_t dense = layer_set_count(&config->dense.at, layer);
    return (int)dense * each->dense + (int)(layer - dense) * each->other;
}

int param_of_layer(const struct model_config *config, int64_t layer)
{
    const struct block_sizes each = sizes_of_blocks(config);
    return layer < 0 ? 0 : layer > config->L ? model_param_count(config)
           : first_block(config) + before_layer(config, &each, layer);
}

int param_of_block(const struct model_config *config, int64_t layer, enum block_param param)
{
    if (layer > config->L) return param_of_block(config, layer - second_block(config, 0), of_second(param));
    const uint64_t set = params_of(config, layer);
    return has(set, param) ? param_of_layer(config, layer) + params_before(set, param) : -1;
}

int param_of_expert(const struct model_config *config, int64_t layer, int64_t expert, enum block_param param)
{
    const int first = param_of_block(config, layer, param);
    return first < 0 ? -1 : first + expert_params(params_of(config, layer)) * (int)expert;
}

int param_final_norm(const struct model_config *config) { return param_of_layer(config, config->L); }

enum { OF_MEAN = 4 };

int param_of_mean(const struct model_config *config, int i)
{
    return param_final_norm(config) + 1 + model_has_bias(config, ROLE_NORM) + i;
}

/* The index after the final norm and what weighs the streams. */
static int first_of_head(const struct model_config *config)
{
    return param_of_mean(config, STREAMS(config) > 1 ? OF_MEAN : 0);
}

int param_final_bias(const struct model_config *config)
{
    return model_has_bias(config, ROLE_NORM) ? param_final_norm(config) + 1 : -1;
}
int param_head(const struct model_config *config) { return config->tied ? PARAM_WTE : first_of_head(config); }
int param_head_bias(const struct model_config *config)
{
    return model_has_bias(config, ROLE_HEAD) ? first_of_head(config) + !config->tied : -1;
}
int model_param_count(const struct model_config *config)
{
    return first_of_head(config) + !config->tied + model_has_bias(config, ROLE_HEAD);
}

int param_of_model(const struct model_config *config, int64_t layer, enum block_param param)
{
    switch (param) {
    case NO_PARAM:       return -1;
    case TOKENS_W:       return PARAM_WTE;
    case POSITIONS_W:    return param_positions(config);
    case FINAL_NORM_W:   return param_final_norm(config);
    case FINAL_NORM_B:   return param_final_bias(config);
    case HEAD_W:         return param_head(config);
    case HEAD_B:         return param_head_bias(config);
    case STREAMS_UP_W: case STREAMS_UP_B: case STREAMS_DOWN_W: case STREAMS_DOWN_B:
        return param_of_mean(config, (int)(param - STREAMS_UP_W));
    default:             return param_of_block(config, layer, param);
    }
}

int param_bias(const struct model_config *config, int64_t layer, enum block_param param)
{
    return param != NO_PARAM && param + 1 < MODEL_PARAMS && kinds[param + 1].bias
           ? param_of_model(config, layer, param + 1) : -1;
}

/* ---- names and parts --------------------------------------------------------------------------------------------- */

/* Add text to what ends at `to`, as much as fits before `end`.  @return its new end.
 * Specs are made wherever a parameter is sought; with printf their names took most of that time. */
static char *params_append(char *to, const char *end, const char *text)
{
    while (*text && to + 1 < end) *to++ = *text++;
    *to = 0;
    return to;
}

/* Append a text in which n stands for "%d". */
static char *append_numbered(char *to, const char *end, const char *text, int n)
{
    char digits[12], *d = digits + sizeof digits;
    *--d = 0;
    do *--d = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    for (; *text; text++) {
        const char one[] = { *text, 0 };
        const bool number = text[0] == '%' && text[1] == 'd';
        to = params_append(to, end, number ? d : one);
        text += number;
    }
    return to;
}

/* The prefix of a block's names. */
struct prefix { char text[64]; };

static struct prefix block_prefix(const struct naming *in, int layer, int expert)
{
    struct prefix p;
    char *to = append_numbered(p.text, p.text + sizeof p.text, in->block, layer);
    if (expert >= 0) append_numbered(to, p.text + sizeof p.text, in->expert, expert);
    return p;
}

static void params_join(char *to, size_t size, const char *a, const char *b, const char *c)
{
    params_append(params_append(params_append(to, to + size, a), to + size, b), to + size, c);
}

static void params_add_part(struct param_spec *spec, const char *in_files, const char *before, const char *name,
                            int64_t rows)
{
    struct param_part *p = &spec->part[spec->parts++];
    p->rows = rows, p->rows_apart = 1;
    params_join(p->name, sizeof p->name, in_files, before, name);
}

/* An expert's parameter that files stack: of a swiglu's first matrix rows of both halves in turn. */
static void add_stacked(struct param_spec *spec, const struct model_config *config, const struct naming *in,
                        const char *name, enum block_param param)
{
    const int halves = kinds[param].role == ROLE_UP ? 2 : 1;
    char before[PARAM_NAME];
    params_join(before, sizeof before, block_prefix(in, spec->layer, -1).text, in->stack, "");
    for (int i = 0; i < halves; i++) {
        params_add_part(spec, in->in_files, before, name, spec->dim[0] / halves);
        spec->part[i].items = config->mixture.E, spec->part[i].item = spec->expert;
        spec->part[i].rows_apart = halves, spec->part[i].first = i;
    }
    spec->file_transposed = spec->ndim == 2;
}

/* Queries, keys and values that files have head by head in one tensor. */
static void add_by_heads(struct param_spec *spec, const struct model_config *config, const char *in_files,
                         const char *before, const char *name)
{
    for (int i = 0; i < 3; i++) {
        params_add_part(spec, in_files, before, name, spec->dim[0] / 3);
        spec->part[i].rows_apart = 3, spec->part[i].first = i, spec->part[i].together = config->A;
    }
}

/* ---- shapes and initial values ----------------------------------------------------------------------------------- */

static struct param_spec params_make(const char *before, const char *name, enum param_role role, int layer,
                                     int64_t rows, int64_t cols, double std)
{
    struct param_spec s = { .role = role,
                            .layer = layer,
                            .expert = -1,
                            .ndim = cols ? 2 : 1,
                            .dim = { rows, cols },
                            .std = std,
                            .decay = cols != 0 };
    params_join(s.name, sizeof s.name, before, name, "");
    return s;
}

/* Rows of one part of a fused parameter. */
static int64_t part_rows(const struct model_config *config, int layer, enum block_param param, int part)
{
    if (kinds[param].role == ROLE_QKV) return (part == 0 ? config->H : config->K) * config->A;
    if (param == SINKS) return config->H;
    if (kinds[param].role == ROLE_HEAD_NORM)
        return !config->normed_together ? config->A : (part == 0 ? config->H : config->K) * config->A;
    return param == SHARED_UP_W ? config->mixture.shared : layer_set_has(&config->dense.at, layer)
           ? config->dense.F : config->F;
}

/* The feed-forward of a dense layer among those of a mixture has a width, and so roles, of its own. */
enum param_role param_role_of(enum block_param param, bool dense)
{
    const enum param_role role = kinds[param].role;
    return !dense ? role : role == ROLE_UP ? ROLE_DENSE_UP : role == ROLE_DOWN ? ROLE_DENSE_DOWN : role;
}

static const struct names *names_of(const struct model_config *config, const struct naming *naming, int expert,
                                    enum block_param param)
{
    if (param == QUERIES_W && config->latent.q == 0) return &naming->stream_queries;
    if (expert < 0) return &naming->of_block[param];
    return param == UP_W ? &naming->expert_up : param == UP_B ? &naming->expert_up_bias : param == DOWN_W
           ? &naming->expert_down
                                                                                   : &naming->expert_down_bias;
}

static const enum block_param adapted[BLOCK_PARAMS] = {
    [QKV_LOW_A] = QKV_W, [QKV_LOW_B] = QKV_W, [PROJ_LOW_A] = PROJ_W, [PROJ_LOW_B] = PROJ_W,
    [UP_LOW_A] = UP_W, [UP_LOW_B] = UP_W, [DOWN_LOW_A] = DOWN_W, [DOWN_LOW_B] = DOWN_W,
};

static struct param_spec block_param(const struct model_config *config, int layer, int expert, enum block_param param);

/* A matrix of an adapter has its matrix's name, with lora_A or lora_B as in peft, and peft's initial values: A is
 * uniform, B is 0. */
static struct param_spec adapter_param(const struct model_config *config, int layer, int expert,
                                       enum block_param param)
{
    const struct param_spec of = block_param(config, layer, expert, adapted[param]);
    const bool in = kinds[param].role == ROLE_LOW_IN;
    const int64_t rank = config->adapters.rank;
    char before[PARAM_NAME];
    params_join(before, sizeof before, of.name, "", "");
    before[strlen(before) - strlen(".weight")] = 0;
    struct param_spec s = params_make(before, in ? ".lora_A.weight" : ".lora_B.weight", kinds[param].role, layer,
                                      in ? rank : of.dim[0], in ? of.dim[1] : rank,
                                      in ? 1 / sqrt((double)of.dim[1]) : 0);
    s.uniform = in, s.expert = expert;
    params_add_part(&s, "", "", s.name, s.dim[0]);
    return s;
}

static struct param_spec block_param(const struct model_config *config, int layer, int expert, enum block_param param)
{
    if (adapted[param]) return adapter_param(config, layer, expert, param);
    const double std = config->init_std, layers = config->initial == INITIAL_SCALED ? (double)config->L : 0.5;
    /* GPT-2 draws matrices into the residual stream with std / sqrt(2 L); 0.5 makes the divisor 1. */
    const double into_residual = std / sqrt(2 * layers);
    const bool dense = layer_set_has(&config->dense.at, layer);
    const int64_t D = config->D, F = dense ? config->dense.F : config->F, up = dense ? 2 * F : up_width(config),
        heads = values_width(config),
                  shared = config->mixture.shared;
    const struct { int64_t rows, cols; double std; } shape[BLOCK_PARAMS] = {
        [LN1_W] = { D, 0, 0 },                 [LN1_B] = { D, 0, 0 },
        [Q_LATENT_W] = { config->latent.q, D, std }, [Q_NORM_W] = { config->latent.q, 0, 0 },
        [Q_LATENT_B] = { config->latent.q, 0, 0 },  [KV_LATENT_B] = { kv_latent_width(config), 0, 0 },
        [QUERIES_W] = { heads_width(config), config->latent.q ? config->latent.q : D, std },
        [KV_LATENT_W] = { kv_latent_width(config), D, std }, [KV_NORM_W] = { config->latent.kv, 0, 0 },
        [KEYS_VALUES_W] = { config->H * expanded_width(config), config->latent.kv, std },
        [QKV_W] = { qkv_width(config), D, std },    [QKV_B] = { qkv_width(config), 0, 0 },
        [SINKS] = { config->H, 0, std },
        [PREFIX] = { STREAMS(config) * config->streams.prefix, 2 * config->K * config->A, std },
        [HEAD_NORM_W] = { config->normed_together ? (config->H + config->K) * config->A : 2 * config->A, 0, 0 },
        [PROJ_W] = { D, heads, into_residual },  [PROJ_B] = { D, 0, 0 },
        [LN2_W] = { D, 0, 0 },                 [LN2_B] = { D, 0, 0 },
        [AFTER1_W] = { D, 0, 0 },              [AFTER2_W] = { D, 0, 0 },
        [ROUTER_W] = { mixture_columns(&config->mixture), D, std },
        [ROUTER_B] = { mixture_columns(&config->mixture), 0, std },
        [DENSE_UP_W] = { up, D, std },         [DENSE_DOWN_W] = { D, F, into_residual },
        [SECOND_LN1_W] = { D, 0, 0 },          [SECOND_QKV_W] = { qkv_width(config), D, std },
        [SECOND_PROJ_W] = { D, heads, into_residual }, [SECOND_LN2_W] = { D, 0, 0 },
        [SECOND_UP_W] = { up, D, std },        [SECOND_DOWN_W] = { D, F, into_residual },
        [SHARED_UP_W] = { 2 * shared, D, std }, [SHARED_DOWN_W] = { D, shared, into_residual },
        [SHARED_GATE_W] = { 1, D, std },
        [UP_W] = { up, D, std },               [UP_B] = { up, 0, 0 },
        [DOWN_W] = { D, F, into_residual },    [DOWN_B] = { D, 0, 0 },
    };
    const struct naming *const in = naming_of(config);
    const struct names *n = names_of(config, in, expert, param);
    const struct prefix at = block_prefix(in, layer, expert);
    struct param_spec s = params_make(at.text, n->whole, param_role_of(param, dense), layer, shape[param].rows,
                                      shape[param].cols, shape[param].std);
    s.expert = expert;
    s.mean = (s.role == ROLE_NORM || s.role == ROLE_HEAD_NORM || s.role == ROLE_LATENT_NORM) && !kinds[param].bias
             && !config->norms_from_one;
    s.file_transposed = in->transposed && s.ndim == 2;
    if (expert >= 0 && in->stack) return add_stacked(&s, config, in, n->part[0], param), s;
    if (in->heads_together && kinds[param].role == ROLE_QKV) add_by_heads(&s, config, in->in_files, at.text, n->whole);
    for (int i = 0; i < PARAM_MOST_PARTS && n->part[i]; i++)
        params_add_part(&s, in->in_files, at.text, n->part[i], part_rows(config, layer, param, i));
    return s;
}

/* An index of a block stands for a parameter, perhaps of an expert; -1: of none. */
struct in_block { enum block_param param; int expert; };

static struct in_block params_in_block(const struct model_config *config, int layer, int place)
{
    const uint64_t set = params_of(config, layer);
    const int first = params_before(set, UP_W), each = expert_params(set);
    const bool of_expert = is_mixture(config, layer) && place >= first;
    const int at = of_expert ? first + (place - first) % each : place;
    enum block_param p = 0;
    while (!has(set, p) || params_before(set, p) != at) p++;
    return (struct in_block){ p, of_expert ? (place - first) / each : -1 };
}

/* The parameter at this index of a block. */
static struct param_spec param_in_block(const struct model_config *config, int layer, int place)
{
    const struct in_block at = params_in_block(config, layer, place);
    return block_param(config, layer, at.expert, at.param);
}

struct param_spec model_router_bias(const struct model_config *config, int64_t layer)
{
    const struct naming *n = naming_of(config);
    if (!is_mixture(config, layer) || !config->mixture.router.biased || n->router_bias == NULL)
        return (struct param_spec){ 0 };
    const struct prefix at = block_prefix(n, (int)layer, -1);
    struct param_spec s = params_make(at.text, n->router_bias, ROLE_ROUTER, (int)layer,
                                      mixture_columns(&config->mixture), 0, 0);
    params_add_part(&s, n->in_files, at.text, n->router_bias, s.dim[0]);
    return s;
}

/* The name of a weight outside of blocks, without ".weight". */
static const char *outside_name(const struct naming *naming, enum block_param param)
{
    return param == TOKENS_W         ? naming->tokens
           : param == POSITIONS_W    ? naming->positions
           : param == FINAL_NORM_W   ? naming->norm
           : param == HEAD_W         ? "lm_head"
           : param == STREAMS_UP_W   ? "model.aggregate_layer.0"
           : param == STREAMS_DOWN_W ? "model.aggregate_layer.2"
                                 : NULL;
}

struct param_text param_text_of(const struct model_config *config, enum block_param param, bool experts)
{
    const struct naming *n = naming_of(config);
    const char *outside = outside_name(n, param), *whole = outside ? outside : names_of(config, n, -1, param)->whole;
    struct param_text t = { "" };
    params_append(t.text, t.text + sizeof t.text, experts ? n->expert : whole ? whole : "");
    char *end = strstr(t.text, experts ? ".%d." : ".weight");
    if (end) *end = 0;
    return t;
}

/* The layers that weigh the streams. */
static struct param_spec param_in_mean(const struct model_config *config, int i)
{
    static const char *const name[OF_MEAN] = { "0.weight", "0.bias", "2.weight", "2.bias" };
    const int64_t P = config->streams.P, D = config->D, rows[OF_MEAN] = { D, D, P, P },
        cols[OF_MEAN] = { D * P, 0, D, 0 };
    const double std = cols[i] > 0 ? config->init_std : 0;
    const enum param_role role = i < 2 ? ROLE_STREAMS_UP : ROLE_STREAMS_DOWN;
    return params_make("model.aggregate_layer.", name[i], role, (int)config->L, rows[i], cols[i], std);
}

static struct param_spec param_outside(const struct model_config *config, int i)
{
    const struct naming *n = naming_of(config);
    const int L = (int)config->L, final = param_final_norm(config);
    if (i == PARAM_WTE) return params_make(n->tokens, ".weight", ROLE_TOKENS, -1, config->V, config->D,
                                           config->init_std);
    if (i == param_positions(config))
        return params_make(n->positions, ".weight", ROLE_POSITIONS, -1, config->S, config->D, config->init_std);
    if (i == param_head(config))
        return params_make("lm_head", ".weight", ROLE_HEAD, L, config->V, config->D, config->init_std);
    if (i == param_head_bias(config)) return params_make("lm_head", ".bias", ROLE_HEAD, L, config->V, 0, 0);
    for (int k = 0; STREAMS(config) > 1 && k < OF_MEAN; k++)
        if (i == param_of_mean(config, k)) return param_in_mean(config, k);
    struct param_spec s = params_make(n->norm, i == final ? ".weight" : ".bias", ROLE_NORM, L, config->D, 0, 0);
    s.mean = i == final && !config->norms_from_one;
    return s;
}

/* The last layer whose parameters begin at this place or before. */
static int layer_at(const struct model_config *config, const struct block_sizes *each, int place)
{
    int64_t first = 0, end = config->L;
    while (end - first > 1) {
        const int64_t middle = first + (end - first) / 2;
        if (before_layer(config, each, middle) <= place) first = middle;
        else end = middle;
    }
    return (int)first;
}

int param_adapted(const struct model_config *config, int index)
{
    const struct block_sizes each = sizes_of_blocks(config);
    const int place = index - first_block(config), layer = layer_at(config, &each, place);
    if (config->adapters.rank == 0 || place < 0 || place >= before_layer(config, &each, config->L)) return -1;
    const struct in_block at = params_in_block(config, layer, place - before_layer(config, &each, layer));
    if (!adapted[at.param]) return -1;
    return at.expert < 0 ? param_of_block(config, layer, adapted[at.param])
                         : param_of_expert(config, layer, at.expert, adapted[at.param]);
}

/* Inputs of the layer whose weight or bias this is; 0: no layer's. */
static int64_t inputs_of(const struct model_config *config, const struct param_spec *spec)
{
    if (spec->role == ROLE_PREFIX || spec->role == ROLE_LOW_IN || spec->role == ROLE_LOW_OUT) return 0;
    if (spec->ndim == 2) return spec->dim[1];
    switch (spec->role) {
    case ROLE_QKV: case ROLE_UP: case ROLE_HEAD: case ROLE_ROUTER: case ROLE_LATENT: case ROLE_STREAMS_DOWN:
        return config->D;
    case ROLE_ATTENTION_OUT: return values_width(config);
    case ROLE_DOWN: return config->F;
    case ROLE_STREAMS_UP: return config->D * config->streams.P;
    default: return 0;                  /* of a norm */
    }
}

/* Initial weights of torch.nn's layers: Linear, also its bias, uniform; Embedding normal. */
static void begin_as_layer(const struct model_config *config, struct param_spec *spec)
{
    const int64_t inputs = inputs_of(config, spec);
    if (spec->role == ROLE_TOKENS || spec->role == ROLE_POSITIONS) spec->std = 1;
    else if (inputs > 0) spec->std = 1 / sqrt((double)inputs), spec->uniform = true;
}

struct param_spec model_param(const struct model_config *config, int i)
{
    const struct block_sizes each = sizes_of_blocks(config);
    const int place = i - first_block(config), layer = layer_at(config, &each, place);
    struct param_spec s = place >= 0 && place < before_layer(config, &each, config->L)
                              ? param_in_block(config, layer, place - before_layer(config, &each, layer))
                                  : param_outside(config, i);
    if (config->initial == INITIAL_LAYERS) begin_as_layer(config, &s);
    if (s.parts > 0) return s;
    const struct param_spec whole = s;
    const struct naming *n = naming_of(config);
    if (s.role == ROLE_HEAD && s.ndim == 2 && n->head_in_files)
        params_add_part(&s, "", n->head_in_files, ".weight", s.dim[0]);
    else params_add_part(&s, s.role == ROLE_HEAD ? "" : n->in_files, "", whole.name, s.dim[0]);
    return s;
}

int64_t model_elements(const struct model_config *config)
{
    int64_t n = 0;
    for (int i = 0; i < model_param_count(config); i++) {
        struct param_spec s = model_param(config, i);
        n += s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
    }
    return n;
}
