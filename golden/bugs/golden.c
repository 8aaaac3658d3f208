/* golden.c -- reads what a run needs of a golden file: shape, start, batches, the optimizer's numbers. */
#include "program.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *header;
static FILE *file;
static long data_at;

struct shape m;
struct param param[MOST_PARAMS];
int params;

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "buggy: %s %s\n", what, name);
    exit(1);
}

/* Go to a tensor.  dim[3], 1 beyond its own. */
static bool seek(const char *name, int dim[3])
{
    char key[128];
    long begin;
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *at = strstr(header, key);
    if (at == NULL) return false;
    dim[0] = dim[1] = dim[2] = 1;
    sscanf(strstr(at, "\"shape\":[") + 9, "%d,%d,%d", &dim[0], &dim[1], &dim[2]);
    sscanf(strstr(at, "\"data_offsets\":[") + 16, "%ld", &begin);
    return fseek(file, data_at + begin, SEEK_SET) == 0;
}

static void must_seek(const char *name, int dim[3])
{
    if (!seek(name, dim)) fail("the golden file has no", name);
}

void golden_numbers(const char *name, double *x, int n)
{
    int dim[3];
    must_seek(name, dim);
    if (fread(x, sizeof *x, (size_t)n, file) != (size_t)n) fail("cannot read", name);
}

/* A number of the metadata, or of the config in it, whose quotes are escaped. */
double golden_number_or(const char *key, double otherwise)
{
    char text[64];
    snprintf(text, sizeof text, "\"%s\":\"", key);
    const char *at = strstr(header, text);
    if (at == NULL) snprintf(text, sizeof text, "\\\"%s\\\":", key), at = strstr(header, text);
    return at ? atof(at + strlen(text)) : otherwise;
}

double golden_number(const char *key)
{
    const double x = golden_number_or(key, NAN);
    if (x != x) fail("the golden file does not say", key);
    return x;
}

int *golden_tokens(const char *name)
{
    int dim[3];
    must_seek(name, dim);
    const size_t n = (size_t)dim[0] * dim[1] * dim[2];
    int *x = malloc(n * sizeof *x);
    if (x == NULL || fread(x, sizeof *x, n, file) != n) fail("cannot read", name);
    return x;
}

unsigned char *golden_bytes(const char *name)
{
    int dim[3];
    must_seek(name, dim);
    const size_t n = (size_t)dim[0] * dim[1] * dim[2];
    unsigned char *x = malloc(n);
    if (x == NULL || fread(x, 1, n, file) != n) fail("cannot read", name);
    return x;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static void add(int layer, const char *text, enum axis row_axis, enum axis col_axis)
{
    struct param *p = &param[params++];
    char full[96];
    int dim[3];
    if (layer < 0) snprintf(p->name, sizeof p->name, "%s", text);
    else snprintf(p->name, sizeof p->name, m.llama ? "model.layers.%d.%s" : "h.%d.%s", layer, text);
    snprintf(full, sizeof full, "start/%s", p->name);
    must_seek(full, dim);
    p->rows = dim[0], p->cols = dim[1], p->matrix = dim[1] > 1;
    p->row_axis = row_axis, p->col_axis = col_axis;
    const size_t n = (size_t)p->rows * p->cols;
    float **const all[] = { &p->start, &p->w, &p->old, &p->first, &p->second, &p->most, &p->g, &p->g_before };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = calloc(n, sizeof(float));
    double *wide = malloc(n * sizeof *wide);
    golden_numbers(full, wide, (int)n);
    for (size_t i = 0; i < n; i++) p->start[i] = (float)wide[i], p->w[i] = p->old[i] = stored(p->start[i]);
    free(wide);
}

int param_of(int layer, const char *text)
{
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s", text);
    else snprintf(name, sizeof name, m.llama ? "model.layers.%d.%s" : "h.%d.%s", layer, text);
    for (int i = 0; i < params; i++)
        if (strcmp(param[i].name, name) == 0) return i;
    return -1;
}

static void gpt2_params(void)
{
    add(-1, "wte.weight", WHOLE, WHOLE), add(-1, "wpe.weight", WHOLE, WHOLE);
    for (int l = 0; l < m.L; l++) {
        add(l, "ln_1.weight", WHOLE, WHOLE), add(l, "ln_1.bias", WHOLE, WHOLE);
        add(l, "attn.c_attn.weight", OF_QKV, WHOLE), add(l, "attn.c_attn.bias", OF_QKV, WHOLE);
        add(l, "attn.c_proj.weight", WHOLE, OF_HEADS), add(l, "attn.c_proj.bias", WHOLE, WHOLE);
        add(l, "ln_2.weight", WHOLE, WHOLE), add(l, "ln_2.bias", WHOLE, WHOLE);
        add(l, "mlp.c_fc.weight", OF_UP, WHOLE), add(l, "mlp.c_fc.bias", OF_UP, WHOLE);
        add(l, "mlp.c_proj.weight", WHOLE, OF_F), add(l, "mlp.c_proj.bias", WHOLE, WHOLE);
    }
    add(-1, "ln_f.weight", WHOLE, WHOLE), add(-1, "ln_f.bias", WHOLE, WHOLE);
}

static void mixture_params(int l)
{
    char name[64];
    add(l, "self_attn.qk_norm.weight", WHOLE, WHOLE), add(l, "mlp.gate.weight", WHOLE, WHOLE);
    for (int e = 0; e < m.E; e++) {
        snprintf(name, sizeof name, "mlp.experts.%d.gate_up_proj.weight", e), add(l, name, OF_UP, WHOLE);
        snprintf(name, sizeof name, "mlp.experts.%d.down_proj.weight", e), add(l, name, WHOLE, OF_F);
    }
}

static void llama_params(void)
{
    add(-1, "model.embed_tokens.weight", WHOLE, WHOLE);
    for (int l = 0; l < m.L; l++) {
        add(l, "input_layernorm.weight", WHOLE, WHOLE), add(l, "self_attn.qkv_proj.weight", OF_QKV, WHOLE);
        add(l, "self_attn.o_proj.weight", WHOLE, OF_HEADS), add(l, "post_attention_layernorm.weight", WHOLE, WHOLE);
        if (m.moe) mixture_params(l);
        else add(l, "mlp.gate_up_proj.weight", OF_UP, WHOLE), add(l, "mlp.down_proj.weight", WHOLE, OF_F);
    }
    add(-1, "model.norm.weight", WHOLE, WHOLE), add(-1, "lm_head.weight", WHOLE, WHOLE);
}

void golden_open(const char *path)
{
    unsigned long long n;
    int dim[3];
    file = fopen(path, "rb");
    if (file == NULL || fread(&n, 8, 1, file) != 1) fail("cannot read", path);
    header = calloc(1, n + 1);
    if (header == NULL || fread(header, 1, n, file) != n) fail("cannot read", path);
    data_at = 8 + (long)n;
    must_seek("ids", dim), m.steps = dim[0], m.B = dim[1], m.S = dim[2], m.N = m.B * m.S;
    m.llama = seek("start/lm_head.weight", dim);
    must_seek(m.llama ? "start/model.embed_tokens.weight" : "start/wte.weight", dim), m.V = dim[0], m.D = dim[1];
    m.moe = seek("start/model.layers.0.mlp.gate.weight", dim), m.E = dim[0];
    must_seek(m.moe ? "start/model.layers.0.mlp.experts.0.down_proj.weight"
                    : m.llama ? "start/model.layers.0.mlp.down_proj.weight" : "start/h.0.mlp.c_proj.weight", dim), m.F = dim[1];
    m.k = m.moe ? (int)golden_number("num_experts_per_tok") : 1;
    m.balance = m.moe ? (float)golden_number("router_aux_loss_coef") : 0;
    m.H = (int)golden_number(m.llama ? "num_attention_heads" : "n_head");
    m.K = m.llama ? (int)golden_number("num_key_value_heads") : m.H;
    m.L = (int)golden_number(m.llama ? "num_hidden_layers" : "n_layer");
    m.P = (int)golden_number(m.llama ? "max_position_embeddings" : "n_positions");
    m.eps = (float)golden_number(m.llama ? "rms_norm_eps" : "layer_norm_epsilon");
    m.theta = m.llama ? (float)golden_number("rope_theta") : 0;
    m.rate = m.llama ? 0 : (float)golden_number_or("attn_pdrop", 0);        /* the same everywhere */
    m.A = m.D / m.H;
    if (m.llama) llama_params();
    else gpt2_params();
}

/* A tensor after a step, which may be the last one or the start. */
static void after(int step, const char *what, const struct param *p, float *to)
{
    char name[160];
    const size_t n = (size_t)p->rows * p->cols;
    double *wide = malloc(n * sizeof *wide);
    if (wide == NULL) exit(1);
    if (step == 0) snprintf(name, sizeof name, "start/%s", p->name);
    else snprintf(name, sizeof name, "%.20s/%d/%s/%s", set.optimizer, step, what, p->name);
    golden_numbers(name, wide, (int)n);
    for (size_t i = 0; i < n; i++) to[i] = (float)(wide[i] * (set.own ? 1 + 0.05 * sin((double)i) : 1));
    free(wide);
}

void golden_resume(int step)
{
    for (int i = 0; i < params; i++) {
        struct param *p = &param[i];
        const int n = p->rows * p->cols;
        after(IS(RESUME_STEP_BEFORE) ? step - 1 : IS(RESUME_START) ? 0 : step, "weight", p, p->start);
        for (int k = 0; k < n && IS(RESUME_MASTERS); k++) p->start[k] = round_to(set.format == FP16 ? FP16 : BF16, p->start[k]);
        for (int k = 0; k < n; k++) p->w[k] = p->old[k] = stored(p->start[k]);
        if (strcmp(set.optimizer, "adamw") != 0 || IS(RESUME_COLD)) continue;
        after(step, "exp_avg", p, p->first);
        if (!IS(RESUME_SECOND_LOST)) after(step, "exp_avg_sq", p, p->second);
    }
}
