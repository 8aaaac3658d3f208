#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/reference/counts.h"
#include "emulated_devices/verify/hash.h"
#include "emulated_devices/verify/reference/encoders.h"
#include "emulated_devices/verify/reference/replicas.h"
#include "ref/numeric/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 64, VOCABULARY = 61 };

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* H for up to 9 parts; D = 27, F = 50, V = 61 are rarely divisible by the number of parts. */
static const struct model_config nasty = {
    .name = "nasty", .S = 9, .D = 27, .H = 9, .K = 9, .A = 3, .F = 50, .L = 9, .V = VOCABULARY,
    .biases = BIASES_GPT2,
    .tied = true, .eps = 1e-5, .init_std = 0.2,
};

/* H=9 and K=3 for up to 9 parts: key/value heads, or with 4 or more parts their copies, are distributed unevenly except
 * over 3, 6 and 9; F is prime. */
void case_take_llama(struct plan *p)
{
    const int64_t L = p->model.L;
    p->model = (struct model_config){
        .name = "nasty llama", .S = 9, .D = 18, .H = 9, .K = 3, .A = 2, .F = 37, .L = L, .V = VOCABULARY,
        .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
        .mlp = MLP_SWIGLU, .rotary = { .theta = 100 }, .tied = p->model.tied, .eps = 1e-5, .init_std = 0.2,
    };
}

/* The same with biases of queries, keys and values. */
void case_take_qwen2(struct plan *p)
{
    case_take_llama(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty qwen2");
    p->model.biases = BIASES_QWEN2;
}

/* A Llama with biases of all matrices of its blocks. */
void case_take_biased(struct plan *p)
{
    case_take_llama(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty biased llama");
    p->model.biases = BIASES_GPT2;
}

/* Norms of heads, which are wider than D/H. */
void case_take_qwen3(struct plan *p)
{
    case_take_llama(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty qwen3");
    p->model.head_norms = true, p->model.A = 4;
}

/* Every other layer has a window, which is shorter than a device's part of a sequence, and longer. */
void case_take_windows(struct plan *p)
{
    case_take_qwen2(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty windowed qwen2");
    p->model.windows.size = 3;
    for (int64_t l = 0; l < p->model.L; l += 2) windows_add(&p->model.windows, l, l + 1);
}

/* Four of the six numbers of a head are turned, by LongRoPE, in sequences beyond its original length. */
void case_take_phi3(struct plan *p)
{
    case_take_llama(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty phi3");
    p->model.alike = FAMILY_PHI3, p->model.A = 6;
    p->model.rotary = (struct rotary){ .theta = 50, .scaling = SCALING_LONG, .original_positions = 5, .enlarged = 1.2,
                                       .shorter = { 1.1, 1.3 }, .longer = { 1.7, 3.1 }, .turned = 4 };
}

/* Heads are wider than D/H. */
void case_take_gemma(struct plan *p)
{
    case_take_llama(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty gemma");
    p->model.mlp = MLP_GEGLU, p->model.norms_from_one = p->model.scaled_embedding = true, p->model.A = 4;
}

/* Norms around each branch, caps that scores and logits reach, and windows in every other layer.  Steps are small: with
 * larger ones, rounding errors of such a deep model grow from step to step, beyond what fp64 may have. */
void case_take_gemma2(struct plan *p)
{
    case_take_gemma(p);
    p->hyper.lr = 0.004;
    snprintf(p->model.name, sizeof p->model.name, "nasty gemma2");
    p->model.norms_at = NORMS_AROUND;
    p->model.score_width = 3, p->model.score_cap = 0.5, p->model.logit_cap = 0.7;
    p->model.windows.size = 3;
    for (int64_t l = 0; l < p->model.L; l += 2) windows_add(&p->model.windows, l, l + 1);
}

/* The same with norms of queries and keys and without caps; layers with a window have a theta of their own. */
void case_take_gemma3(struct plan *p)
{
    case_take_gemma2(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty gemma3");
    p->model.head_norms = true, p->model.score_cap = p->model.logit_cap = 0;
    p->model.local_theta = 3;
}

/* Norms of all queries and of all keys, and of what the branches give; heads wider than D/H. */
void case_take_olmo2(struct plan *p)
{
    case_take_qwen3(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty olmo2");
    p->model.normed_together = true, p->model.norms_at = NORMS_AFTER;
}

/* A Qwen2 with three parallel streams; a prefix is shorter than a sequence. */
void case_take_streams(struct plan *p)
{
    case_take_qwen2(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty parscale");
    p->model.streams = (struct streams_config){ .P = 3, .prefix = 4, .smoothing = 0.1 };
}

/* H=9 for up to 9 parts; four of a head's five numbers are rotated; F, V and D are rarely divisible. */
void case_take_gptj(struct plan *p)
{
    const int64_t L = p->model.L;
    p->model = (struct model_config){
        .name = "nasty gptj", .S = 9, .D = 45, .H = 9, .K = 9, .A = 5, .F = 37, .L = L, .V = VOCABULARY,
        .positions = POSITIONS_ROTARY,
        .rotary = { .theta = 100, .turned = 4, .neighbours = true }, .parallel = true, .biases = BIASES_GPTJ,
        .tied = p->model.tied,
        .eps = 1e-5, .init_std = 0.2,
    };
}

/* Coefficients large enough that an error in these losses is detected. */
void case_take_mixtral(struct plan *p)
{
    case_take_llama(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty mixtral");
    p->model.F = 13, p->model.mlp = MLP_MIXTURE;
    p->model.mixture = (struct mixture_config){ .E = 5, .k = 2, .router = { .normalized = true, .scale = 1 },
                                                .balance_coefficient = 0.5, .z_coefficient = 0.1 };
    p->schedule = "gpipe";
}

/* Norms of heads; with three layers the second is dense, and with one none. */
void case_take_qwen3_moe(struct plan *p)
{
    case_take_mixtral(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty qwen3-moe");
    p->model.head_norms = true, p->model.A = 4, p->model.mixture.router.normalized = false;
    if (p->model.L > 1) p->model.dense.F = 19, layer_set_add(&p->model.dense.at, 1);
}

/* Sinks, windows in the first and third layer, biases; heads wider than D/H.  The clamp of the experts is out of reach:
 * rounding to 16 bits may take a number beside it to the other side, where it has no gradient. */
void case_take_gpt_oss(struct plan *p)
{
    case_take_mixtral(p);
    struct model_config *m = &p->model;
    snprintf(m->name, sizeof m->name, "nasty gpt-oss");
    m->sinks = true, m->A = 4, m->mixture.clamped = (struct clamped){ 1.702, 7 };
    m->biases = BIASES_GPT_OSS | HAS_BIAS(ROLE_QKV) | HAS_BIAS(ROLE_ATTENTION_OUT);
    m->windows.size = 4;
    for (int64_t l = 0; l < m->L; l += 2) windows_add(&m->windows, l, l + 1);
}

/* Latent attention, experts in groups beside shared ones; with three layers the first is dense. */
void case_take_deepseek(struct plan *p)
{
    case_take_mixtral(p);
    struct model_config *m = &p->model;
    snprintf(m->name, sizeof m->name, "nasty deepseek-v2");
    m->K = m->H, m->A = 6, m->rotary.turned = 4, m->rotary.neighbours = true;
    m->latent = (struct latent_config){ .q = 7, .kv = 5, .v = 3 };
    m->mixture = (struct mixture_config){ .E = 6, .k = 2, .router = { .scale = 2.5, .groups = 3, .kept = 2 },
                                          .sequence_coefficient = 0.2, .shared = 22 };
    if (m->L > 1) m->dense.F = 19, layer_set_add(&m->dense.at, 0);
}

/* Sigmoids, and a bias that moves so fast that it changes choices in the second step. */
void case_take_deepseek_v3(struct plan *p)
{
    case_take_deepseek(p);
    struct model_config *m = &p->model;
    snprintf(m->name, sizeof m->name, "nasty deepseek-v3");
    m->alike = FAMILY_DEEPSEEK_V3;
    m->mixture.router = (struct router_rule){ .scores = SCORES_SIGMOID, .normalized = true, .scale = 2.5,
                                              .biased = true, .groups = 3, .kept = 2, .sums_two = true,
                                              .bias_update = BIAS_BY_SIGN, .bias_speed = 0.05 };
}

/* The same with its mixture on a shortcut past dense blocks. */
void case_take_scmoe(struct plan *p)
{
    case_take_mixtral(p);
    snprintf(p->model.name, sizeof p->model.name, "nasty scmoe");
    p->model.shortcut = true;
}

/* Three groups of two experts, of which two are kept.  A larger scale would enlarge rounding from layer to layer.
 * Biases move so fast that they change choices in the second step. */
void case_take_router(struct plan *p, const struct router *r)
{
    struct mixture_config *m = &p->model.mixture;
    if (p->model.mlp != MLP_MIXTURE) return;
    m->E = 6;
    m->router = router_fit(r, m->E, m->k);
    if (m->router.scale > 2.5) m->router.scale = 2.5;
    if (m->router.biased) m->router.bias_speed = m->router.bias_update == BIAS_BY_SHARE ? 0.3 : 0.05;
    if (m->router.biased && m->router.groups <= 1) m->zero = 3, m->router.active = 1.4;
    if (m->router.top_p > 0) m->zero = 2, m->k = 3;
    m->zero_is_null = r->zero_is_null;
    m->sequence_coefficient = 0.2;
    m->capacity_factor = r->rule.scores == SCORES_SIGMOID ? 0.8 : r->rule.groups > 1 ? 1.1 : m->zero > 0 ? 1.2 : 0;
    m->drops_by_weight = r->rule.biased;
}

static void take_gpt2(struct plan *p) { (void)p; }

/* Shared experts whose width no number of devices divides, and which is not that of an expert. */
static void take_shared(struct plan *p)
{
    case_take_mixtral(p);
    p->model.mixture.shared = 17, p->model.mixture.shared_gate = true;
}

static const struct case_model models[] = { { "gpt2", take_gpt2 }, { "llama", case_take_llama },
                                            { "gptj", case_take_gptj }, { "qwen2", case_take_qwen2 },
                                            { "parscale", case_take_streams }, { "qwen3", case_take_qwen3 },
                                            { "biased", case_take_biased }, { "windows", case_take_windows },
                                            { "phi3", case_take_phi3 }, { "gemma", case_take_gemma },
                                            { "gemma2", case_take_gemma2 }, { "gemma3", case_take_gemma3 },
                                            { "olmo2", case_take_olmo2 },
                                            { "mixtral", case_take_mixtral }, { "qwen3-moe", case_take_qwen3_moe },
                                            { "deepseek", case_take_deepseek }, { "gpt-oss", case_take_gpt_oss },
                                            { "deepseek-v3", case_take_deepseek_v3 },
                                            { "shared", take_shared } };

const struct case_model *case_model_at(int place)
{
    return place < (int)(sizeof models / sizeof *models) ? &models[place] : NULL;
}

void case_take_dropout(struct plan *p)
{
    p->model.tied = false;
    p->model.dropout_embedding = 0.1, p->model.dropout_residual = 0.2, p->model.dropout_attention = 0.3;
}

struct plan case_plan(int dp, int tp, int pp)
{
    struct plan p = {
        .model = nasty, .B = CASE_BATCH, .S = CASE_TOKENS, .micros = CASE_BATCH / dp >= 2 ? 2 : 1, .chunks = 1,
        .ep = 1, .etp = 1, .degree = -1, .dtype = F64, .seed = 7,
        .tensor = tensor_scheme_at(0)->head.name, .attention = attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name,
        .data = { .scheme = data_scheme_at(0)->head.name, .bucket = 1000 },
        .schedule = schedule_generator_at(0)->head.name,
        .allreduce = algorithm_find(ALLREDUCE, NULL)->name, .hyper = { .lr = 0.05 },
    };
    const int size[AXIS_COUNT] = { [DP] = dp, [TP] = tp, [PP] = pp, [CP] = 1, [EP] = 1 };
    (void)optimizer_find(&p.optimizer, "sgd", NULL);
    (void)mesh_make(&p.mesh, size, NULL);
    p.model.L = 2 * pp + 1;
    return p;
}

void case_take_context(struct plan *p, int cp, const char *attention)
{
    int size[AXIS_COUNT];
    memcpy(size, p->mesh.size, sizeof size);
    size[CP] = cp;
    (void)mesh_make(&p->mesh, size, NULL);
    p->attention = attention;
}

/* A prediction that is right for some tokens: nothing depends on it but what is sent. */
static const struct affinity *guess(int parts)
{
    static int32_t part[MOST_PARTS + 1][VOCABULARY];
    static struct affinity all[MOST_PARTS + 1];
    if (parts > MOST_PARTS) return NULL;
    for (int v = 0; v < VOCABULARY; v++) part[parts][v] = v * 7 % (parts + 1) - 1;
    all[parts] = (struct affinity){ .V = VOCABULARY, .parts = parts, .part = part[parts] };
    return &all[parts];
}

void case_take_experts(struct plan *p, int ep, const char *dispatch)
{
    const struct expert_scheme *s;
    p->ep = ep;
    p->dispatch = dispatch;
    if (!expert_scheme_find(&s, dispatch, NULL) && s->predicts) p->affinity = guess(ep);
}

/* Four microbatches if the batch allows, so that schedules with the same order of additions can be compared by bits. */
enum error_code case_take_schedule(struct plan *p, const char *schedule, struct error *err)
{
    static const int micros[] = { 4, 2, 1 }, chunks[] = { 2, 1 };
    const struct schedule_generator *g = schedule_generator(schedule, err);
    if (g == NULL) return err->code;
    p->schedule = g->head.name;
    for (int m = 0; m < 3; m++)
        for (int c = 0; c < 2; c++) {
            p->micros = micros[m];
            p->chunks = g->chunks ? g->chunks : chunks[c];
            if (plan_check(p, err) == OK) return OK;
        }
    return err->code;
}

/* The gradient of key biases is only rounding noise; with its default eps Adam would turn it into full steps. */
void case_take_low_rank(struct plan *p, const struct optimizer *o)
{
    p->optimizer = o;
    p->hyper = o->usual;
    p->hyper.clip = 0, p->hyper.eps = 1e-4;
    p->hyper.rank = 4, p->hyper.refresh = 2, p->hyper.history = 2;
}

/* eps is large enough that the slope's rounding error is small compared with the slope; lr is small enough that three
 * steps do not diverge, whichever model and initial weights a case has. */
void case_take_mezo(struct plan *p, int sides)
{
    (void)optimizer_find(&p->optimizer, "mezo", NULL);
    p->hyper = (struct hyperparameters){ .lr = 0.002, .distance = 0.01 };
    p->perturb = sides;
}

void case_take_optimizer(struct plan *p, const struct optimizer *o, int sides)
{
    if (o->low_rank) case_take_low_rank(p, o);
    else if (optimizer_draws(o)) case_take_mezo(p, sides);
    else {
        p->optimizer = o;
        p->hyper = o->usual;
        p->hyper.clip = 0, p->hyper.eps = 1e-4;
    }
}

/* The norm of the first gradients is 2 to 10.  Whether two singular values of a gradient are near each other depends on
 * the weights: cases of low-rank optimizers keep theirs. */
void case_take_profile(struct plan *p, int profile)
{
    (void)conventions_parse(&p->hyper.as, profile_names[profile], NULL);
    if (!p->optimizer->low_rank) p->model.initial = (int)convention(&p->hyper.as, INITIAL);
    if (!p->optimizer->forward_only) p->hyper.weight_decay = 0.1, p->hyper.clip = 1;
}

void case_take_data(struct plan *p, const struct data_scheme *s)
{
    p->data.scheme = s->head.name;
    p->data.outer = (struct outer){ .every = s->outer.every > 0 ? CASE_LOCAL_STEPS : 0 };
}

int case_steps(const struct plan *p) { return data_outer(&p->data).every > 0 ? CASE_STEPS_APART : CASE_STEPS; }

void case_take_speeds(struct plan *p)
{
    const int P = p->mesh.size[PP];
    for (int d = 0; d < P; d++) p->speed[d] = d < (P + 1) / 2 ? 5 : 2;
}

/* Random tokens; about one label in eight is ignored. */
/* Packed samples have random lengths. */
static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    const struct plan *p = context;
    for (int64_t i = 0; i < count * p->S; i++) {
        const uint64_t at = (uint64_t)(first * p->S + i);
        ids[i] = (int32_t)(random_uniform((uint64_t)step, 1, at) * (double)p->model.V);
        labels[i] = random_uniform((uint64_t)step, 2, at) < 0.125
                        ? IGNORE_LABEL
                        : (int32_t)(random_uniform((uint64_t)step, 3, at) * (double)p->model.V);
        const bool begins = i % p->S == 0 || random_uniform((uint64_t)step, 4, at) < 0.3;
        if (within != NULL) within[i] = begins ? 0 : within[i - 1] + 1;
    }
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

#define ADD(h, x) ((h) = hash_bytes((h), &(x), sizeof(x)))

static void add_text(uint64_t *h, const char *text)
{
    *h = hash_bytes(*h, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_skips(uint64_t *h, const struct schedule *s)
{
    for (int m = 0; m < s->micros; m++)
        for (int t = 0; t < s->stages; t++) {
            const int skip[] = { m, t, s->stages };
            if (place_of(s, m, t).device < 0) ADD(*h, skip);
        }
}

/* Whether one place computes both gradients of a tied embedding: it adds them in the order in which they are
 * computed. */
static bool adds_both_uses(const struct plan *p, const struct schedule *s)
{
    struct param_spec tokens = model_param(&p->model, 0);
    return p->model.tied && s->stages > 1 && plan_holders(p, s, &tokens, NULL) == 1;
}

static void hash_layers(uint64_t *h, const struct plan *p)
{
    for (int i = 0; i <= p->stages; i++) ADD(*h, p->first_layer[i]);
}

/* All schedules that add weight gradients in the order of the microbatches, on one copy of each stage, compute the same
 * sums. */
static void add_schedule(uint64_t *h, const struct plan *p, const struct schedule *s)
{
    struct place place[2];
    const int rule[] = { s->micros, s->update_every, s->weight_versions };
    ADD(*h, rule);
    add_skips(h, s);
    if (schedule_is_partial(s)) hash_layers(h, p);      /* which layers a skipped stage has */
    if (schedule_adds_in_order(s) && schedule_holders(s, 0, place, 2) == 1 && !adds_both_uses(p, s)) return;
    add_text(h, p->schedule);
    ADD(*h, s->chunks);
}

/* Over dp, sums are computed level by level, each in the order of ranks; with sharded gradients for every
 * microbatch. */
static void add_levels(uint64_t *h, const struct plan *p, const struct shards *s)
{
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS; l++) {
        const int level[] = { shards_size(s, l), l < BY_OPTIMIZER && p->micros > 1 };
        if (level[0] > 1) ADD(*h, level);
    }
    const struct data_request *q = &p->data;
    const int64_t number[] = { q->tiles, q->narrow_gradients, q->quantise_weights.bits, q->quantise_gradients.bits,
                               q->quantise_weights.block };
    ADD(*h, number);
    add_text(h, q->reduce_scatter), add_text(h, q->allgather);
    if (!data_quantises(q) && !s->apart) return;
    add_text(h, q->scheme);
    /* experts alone on the tier are units, and so blocks of codes, of their own */
    const int64_t exact[] = { s->weights, s->gradients, s->optimizer, q->bucket, q->outer.every, q->offload_experts };
    ADD(*h, exact);
}

static void add_model(uint64_t *h, const struct plan *p)
{
    const struct model_config *c = &p->model;
    const int64_t shape[] = { c->tied, c->L, p->B, p->S, p->dtype, p->perturb, (int64_t)p->seed, p->packed };
    const double number[] = { c->dropout_embedding, c->dropout_residual, c->dropout_attention, p->loss_scale };
    struct model_number of[MODEL_NUMBERS];
    const int n = model_config_numbers(c, of);
    for (int i = 0; i < n; i++) ADD(*h, of[i].value);
    add_text(h, c->name), add_text(h, p->batches ? p->batches->digest.text : NULL);
    ADD(*h, shape), ADD(*h, number);
}

enum error_code case_bits_key(const struct plan *p, uint64_t *key, struct error *err)
{
    struct schedule s;
    struct shards shards, experts;              /* the second of experts that only some devices have */
    enum error_code e = data_shards(&shards, &p->data, plan_copies(p), 0, err);
    if (!e) e = data_shards(&experts, &p->data, plan_expert_copies(p), 0, err);
    if (!e) e = plan_schedule(p, &s, err);
    if (e) return e;
    *key = HASH_START;
    const int slots = p->copying.slots + !p->copying.slots;
    ADD(*key, p->mesh.size), ADD(*key, p->ep), ADD(*key, p->etp), ADD(*key, p->degree), ADD(*key, p->hyper);
    ADD(*key, slots), ADD(*key, p->copying.top);
    ADD(*key, p->split.heads), ADD(*key, p->split.window), ADD(*key, p->split.context_first);
    add_text(key, p->tensor), add_text(key, p->attention), add_text(key, p->dispatch);
    add_text(key, p->allreduce), add_text(key, p->optimizer->name);
    add_model(key, p);
    add_levels(key, p, &shards);
    if (plan_cuts_experts(p)) add_levels(key, p, &experts);
    add_schedule(key, p, &s);
    schedule_free(&s);
    return OK;
}

static uint64_t hash_own(const struct trainer *t)
{
    uint64_t h = HASH_START;
    for (int u = 0; u < t->data.units; u++) {
        struct views v = views_of(t->comm->device);
        const struct tensor own = view_read(&v, t->data.unit[u].own_w);
        h = hash_bytes(h, own.data, tensor_bytes(own));
        views_end(&v);
    }
    return h;
}

static enum error_code hash_one(struct trainer *t, int param, int64_t n, enum tensor_kind kind, uint64_t *h,
                                struct error *err)
{
    const enum dtype format = data_format(&t->data, kind);
    struct tensor whole = tensor_1d(calloc((size_t)n, dtype_size(format)), format, n);
    enum error_code e = whole.data ? OK : fail(err, ERR_MEMORY, "no memory to collect %s", t->spec[param].name);
    e = comm_agree(t->comm, e, err);
    if (!e) collect_whole(t, param, kind, whole);
    if (!e) *h = hash_bytes(*h, whole.data, tensor_bytes(whole));
    free(whole.data);
    return e;
}

/* Hash the whole model's weights and masters, tensor by tensor in the model's order.  Collective; the result is on
 * rank 0. */
static enum error_code hash_whole(struct trainer *t, uint64_t *h, struct error *err)
{
    enum error_code e = OK;
    *h = HASH_START;
    for (int i = 0; i < model_param_count(&t->plan.model) && !e; i++) {
        const struct param_spec s = t->spec[i];
        const int64_t n = s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1);
        e = hash_one(t, i, n, KIND_WEIGHT, h, err);
        if (!e && data_has_masters(&t->data)) e = hash_one(t, i, n, KIND_MASTER, h, err);
    }
    return e;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

/* Without a backward pass the slope, and so weights that were zero before the first step, have each loss's error times
 * 1 / (2 eps).  (Losses themselves are still within 1e-12.) */
static double fp64_error(const struct plan *p)
{
    return optimizer_draws(p->optimizer) ? CASE_FP64_ERROR / p->hyper.distance : CASE_FP64_ERROR;
}

static enum error_code judge_numbers(const struct outcome *o, const struct plan *p, struct error *err)
{
    char text[sizeof err->text];
    const struct comparison *c = &o->comparison;
    if (!o->initial_equal)
        return fail(err, ERR_CHECK, "initial weights differ from the reference's: %s on device %d", c->weight.tensor,
                    c->weight.rank);
    if (c->failed) return fail(err, ERR_CHECK, "%s", comparison_describe(text, sizeof text, c, p));
    if (c->diverged)
        return fail(err, ERR_CHECK,
                    "the one-device run diverges, first in %s at step %lld: there is nothing to compare with",
                    spread_name(text, sizeof text, &c->divergence), (long long)c->divergence.step);
    if (p->dtype == F64 && optimizer_draws(p->optimizer) && !(c->loss.error <= CASE_FP64_ERROR))
        return fail(err, ERR_CHECK, "error %.3g of %s", c->loss.error, c->loss.tensor);
    if (p->dtype == F64 && !(c->largest.error <= fp64_error(p)))
        return fail(err, ERR_CHECK, "error %.3g of %s %s on device %d, step %lld: within its bound of %.3g, but more "
                    "than the %.3g that fp64 may have", c->largest.error, c->largest_kind, c->largest.tensor,
                    c->largest.rank, (long long)c->largest.step, c->largest.bound, fp64_error(p));
    return OK;
}

/* Agree on the checks that each device makes by itself. */
static void judge(struct outcome *o, const struct trainer *t)
{
    enum error_code e = OK;
    const int64_t done = case_steps(&t->plan);
    o->traffic.code = comm_agree(t->comm, traffic_check(t, done, &o->traffic), &o->traffic);
    o->memory.code = comm_agree(t->comm, memory_check(t, done, &o->memory), &o->memory);
    if (t->comm->rank == 0 && o->encoders.code == OK) e = judge_numbers(o, &t->plan, &o->verdict);
    if (t->comm->rank == 0 && o->encoders.code != OK) o->verdict = o->encoders, e = ERR_CHECK;
    o->verdict.code = comm_agree(t->comm, e, &o->verdict);
    if (o->verdict.code == OK)
        o->verdict = o->copies.code != OK ? o->copies : o->traffic.code != OK ? o->traffic : o->memory;
}

/* Copies that differ are a verdict, not an error.  The first is kept; later checks are skipped. */
static enum error_code check_copies(struct trainer *t, enum replicas_when when, struct outcome *o, struct error *err)
{
    if (o->copies.code) return OK;
    const enum error_code e = replicas_check(t, when, &o->copies_compared, &o->copies);
    if (!e || e == ERR_CHECK) return OK;
    *err = o->copies;
    return e;
}

/* Encoders that differ are a verdict, too. */
static enum error_code check_encoders(struct trainer *t, const struct reference *ref, bool gradients, struct outcome *o,
                                      struct error *err)
{
    struct error differs;
    if (t->plan.encoders.kinds == 0) return OK;
    const enum error_code e = encoders_compare(t, ref, gradients, &differs);
    if (e == ERR_CHECK && !o->comparison.failed && !o->encoders.code) o->encoders = differs;    /* the first of all */
    if (e == ERR_CHECK) return OK;
    if (e) *err = differs;
    return e;
}

static enum error_code steps(struct trainer *t, struct reference *ref, struct outcome *o, struct error *err)
{
    const bool here = t->comm->rank == 0;
    struct step_result result = { 0 };
    struct probes probes;
    enum error_code e = compare_weights(t, ref, &o->comparison, err);
    o->initial_equal = o->comparison.largest.error == 0;
    probes_open(&probes, t, false);
    for (int s = 0; s < case_steps(&t->plan) && !e; s++) {
        e = compare_begin(&probes, ref, err);
        if (!e) e = trainer_gradients(t, &result, err);
        if (!e) e = check_copies(t, BEFORE_OPTIMIZER, o, err);
        if (!e) e = compare_gradients(&probes, ref, &result, &o->comparison, err);
        if (!e) e = check_encoders(t, ref, true, o, err);
        if (!e) e = trainer_update(t, &result, err);
        if (!e) e = check_copies(t, AFTER_OPTIMIZER, o, err);
        if (here && !e) e = reference_update(ref, err);
        if (!e) e = compare_weights(t, ref, &o->comparison, err);
        if (!e) e = check_encoders(t, ref, false, o, err);
        if (!e && data_quantises(&t->plan.data)) reference_follow(ref, t);
    }
    probes_close(&probes);
    o->loss = result.loss;
    o->skipped = t->skipped;
    return e;
}

static enum error_code add_bridged(struct trainer *t, struct outcome *o, struct error *err)
{
    uint64_t all[MESH_MOST_DEVICES] = { 0 };
    const uint64_t own = t->comm->counted.of[TRAFFIC_ENCODERS].of[ALLTOALL].bytes_sent;
    const enum error_code e = comm_bring(t->comm, &own, sizeof own, all, err);
    for (int d = 0; d < t->comm->size && t->comm->rank == 0; d++) o->bridged += all[d];
    return e;
}

static enum error_code train(struct trainer *t, const struct batch_source source, struct outcome *o, struct error *err)
{
    struct reference ref;
    enum error_code e = OK;
    if (t->comm->rank == 0) e = reference_open(&ref, &t->plan, source, err);
    const bool opened = t->comm->rank == 0 && !e;
    e = comm_agree(t->comm, e, err);
    if (!e) e = comm_agree(t->comm, data_track(&t->data, err), err);
    if (!e) e = comm_agree(t->comm, steps(t, &ref, o, err), err);
    if (!e) judge(o, t);
    o->flops = t->device->clock.flops;
    o->time = t->device->clock.now;
    o->bridge = t->encoders.peak;
    if (!e) e = add_bridged(t, o, err);
    o->hash = hash_own(t);
    o->activations = t->device->arena.peak.tag[ACTIVATIONS];
    for (int tag = PARAMETERS; tag <= OPTIMIZER; tag++) o->model_state += t->device->arena.peak.tag[tag];
    if (!e) e = hash_whole(t, &o->whole_hash, err);
    if (opened) reference_close(&ref);
    return e;
}

/* The work to do with an open trainer. */
struct work {
    enum error_code (*run)(struct trainer *, struct batch_source, struct work *, struct error *);
    struct outcome *outcome;
    int steps;
    uint64_t *whole_hash;
    struct step_result last;
};

static enum error_code beside_reference(struct trainer *t, struct batch_source source, struct work *w,
                                        struct error *err)
{
    return train(t, source, w->outcome, err);
}

static enum error_code alone(struct trainer *t, struct batch_source source, struct work *w, struct error *err)
{
    enum error_code e = OK;
    (void)source;
    for (int i = 0; i < w->steps && !e; i++) {
        e = trainer_gradients(t, &w->last, err);
        if (!e) e = trainer_update(t, &w->last, err);
    }
    return e ? e : hash_whole(t, w->whole_hash, err);
}

static enum error_code with_trainer(const struct plan *plan, struct work *w, struct error *err)
{
    struct device device;
    struct comm comm;
    struct trainer t;
    const struct batch_source source = { fill, plan };
    enum error_code e = device_open(&device, NULL, plan->dtype, 0, err);
    if (e) return e;
    if (plan->cluster) clock_open(&device.clock, plan->cluster, plan->dtype);
    e = comm_open(&comm, &device, err);
    if (!e) {
        e = trainer_open(&t, plan, &comm, source, err);
        if (!e) {
            e = w->run(&t, source, w, err);
            trainer_close(&t);
        }
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

enum error_code case_run(const struct plan *plan, struct outcome *o, struct error *err)
{
    struct work w = { .run = beside_reference, .outcome = o };
    *o = (struct outcome){ 0 };
    return with_trainer(plan, &w, err);
}

enum error_code case_train(const struct plan *plan, int steps, uint64_t *whole_hash, struct step_result *last,
                           struct error *err)
{
    struct work w = { .run = alone, .steps = steps, .whole_hash = whole_hash };
    const enum error_code e = with_trainer(plan, &w, err);
    if (last) *last = w.last;
    return e;
}
