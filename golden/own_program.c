/* own_program.c -- somebody's own program, in one file: a GPT-2 in fp32, forward and backward, that writes what it computes.
 *
 *     cc -O2 golden/own_program.c -lm -o own_program
 *     ./own_program GOLDEN DUMP [BUG]      BUG: eps, scale, mask, gelu, bias, residual
 *
 * It shares nothing with Orrery: it reads the start and the first batch of a golden file and writes a safetensors file
 * with the same names, for `orrery check`.  docs/checking/backend_authors.md uses it.  The file it reads is trusted.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct named { char name[96]; int rows, cols; float *x; };
static struct named all[2048];          /* what is dumped, in no order that matters */
static int count;
static char *header;                    /* of the golden file */
static FILE *golden;
static long data_at;
static const char *bug = "";
static int B, S, N, D, H, A, F, V, L;

/* ---- writing: the whole format ----------------------------------------------------------------------------------- */

static float *tensor(int rows, int cols, const char *kind, int layer, const char *name)
{
    struct named *t = &all[count++];
    if (layer < 0) snprintf(t->name, sizeof t->name, "%s/%s", kind, name);
    else snprintf(t->name, sizeof t->name, "%s/h.%d.%s", kind, layer, name);
    t->rows = rows, t->cols = cols, t->x = calloc((size_t)rows * cols, sizeof *t->x);
    return t->x;
}

static void write_dump(const char *path)
{
    char *text = malloc(256 * (size_t)count);
    size_t n = 0, at = 0;
    n += sprintf(text + n, "{");
    for (int i = 0; i < count; i++) {
        const size_t bytes = sizeof(float) * all[i].rows * all[i].cols;
        n += sprintf(text + n, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i ? "," : "", all[i].name);
        n += all[i].cols > 1 ? sprintf(text + n, "%d,%d", all[i].rows, all[i].cols) : sprintf(text + n, "%d", all[i].rows);
        n += sprintf(text + n, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
        at += bytes;
    }
    n += sprintf(text + n, "}");
    FILE *f = fopen(path, "wb");
    if (f == NULL) exit(1);
    const unsigned long long length = n;                /* eight bytes, little-endian */
    fwrite(&length, 8, 1, f), fwrite(text, 1, n, f);
    for (int i = 0; i < count; i++) fwrite(all[i].x, sizeof(float), (size_t)all[i].rows * all[i].cols, f);
    fclose(f), free(text);
}

/* ---- reading a golden file --------------------------------------------------------------------------------------- */

/* Where a tensor is.  dim[3], 1 beyond its own. */
static long find(const char *name, int dim[3])
{
    char key[128];
    long begin, end;
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *at = strstr(header, key);
    if (at == NULL) fprintf(stderr, "own_program: there is no %s\n", name), exit(1);
    dim[1] = dim[2] = 1;
    sscanf(strstr(at, "\"shape\":[") + 9, "%d,%d,%d", &dim[0], &dim[1], &dim[2]);
    sscanf(strstr(at, "\"data_offsets\":[") + 16, "%ld,%ld", &begin, &end);
    return data_at + begin;
}

static float *start(int layer, const char *name)
{
    char full[96];
    int dim[3];
    if (layer < 0) snprintf(full, sizeof full, "start/%s", name);
    else snprintf(full, sizeof full, "start/h.%d.%s", layer, name);
    fseek(golden, find(full, dim), SEEK_SET);
    const size_t n = (size_t)dim[0] * dim[1];
    double *wide = malloc(n * sizeof *wide);
    float *x = malloc(n * sizeof *x);
    if (fread(wide, sizeof *wide, n, golden) != n) exit(1);
    for (size_t i = 0; i < n; i++) x[i] = (float)wide[i];
    free(wide);
    return x;
}

static int *tokens(const char *name)
{
    int dim[3], *x = malloc((size_t)N * sizeof *x);
    fseek(golden, find(name, dim), SEEK_SET);           /* of the first step */
    if (fread(x, sizeof *x, (size_t)N, golden) != (size_t)N) exit(1);
    return x;
}

static int number(const char *key) { return atoi(strstr(header, key) + strlen(key)); }

static void open_golden(const char *path)
{
    unsigned long long n;
    int dim[3];
    golden = fopen(path, "rb");
    if (golden == NULL || fread(&n, 8, 1, golden) != 1) fprintf(stderr, "own_program: %s\n", path), exit(1);
    header = calloc(1, n + 1);
    if (fread(header, 1, n, golden) != n) exit(1);
    data_at = 8 + (long)n;
    find("ids", dim), B = dim[1], S = dim[2], N = B * S;
    find("start/wte.weight", dim), V = dim[0], D = dim[1];
    find("start/h.0.mlp.c_fc.weight", dim), F = dim[0];
    H = number("n_head\\\":"), L = number("n_layer\\\":"), A = D / H;
}

/* ---- operations: X [N,in], W [out,in]; d is "gradient of" -------------------------------------------------------- */

static void linear(float *Y, const float *X, const float *W, const float *b, int in, int out)
{
    for (int n = 0; n < N; n++)
        for (int o = 0; o < out; o++) {
            float sum = b ? b[o] : 0;
            for (int i = 0; i < in; i++) sum += X[n * in + i] * W[o * in + i];
            Y[n * out + o] = sum;
        }
}

static void linear_backward(float *dX, float *dW, float *db, const float *dY, const float *X, const float *W, int in,
                            int out)
{
    for (int n = 0; n < N; n++)
        for (int o = 0; o < out; o++) {
            const float d = dY[n * out + o];
            if (db) db[o] += strcmp(bug, "bias") == 0 ? d / 2 : d;
            for (int i = 0; i < in; i++) dX[n * in + i] += d * W[o * in + i], dW[o * in + i] += d * X[n * in + i];
        }
}

static void moments(const float *x, float *mean, float *scale)
{
    float sum = 0, squares = 0;
    for (int i = 0; i < D; i++) sum += x[i];
    *mean = sum / D;
    for (int i = 0; i < D; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *scale = 1 / sqrtf(squares / D + (strcmp(bug, "eps") == 0 ? 1e-3f : 1e-5f));
}

static void norm(float *Y, const float *X, const float *w, const float *b)
{
    for (int n = 0; n < N; n++) {
        float mean, scale;
        moments(X + n * D, &mean, &scale);
        for (int i = 0; i < D; i++) Y[n * D + i] = (X[n * D + i] - mean) * scale * w[i] + b[i];
    }
}

/* Adds to dX. */
static void norm_backward(float *dX, float *dw, float *db, const float *dY, const float *X, const float *w)
{
    for (int n = 0; n < N; n++) {
        const float *x = X + n * D, *dy = dY + n * D;
        float mean, scale, sum = 0, dot = 0;
        moments(x, &mean, &scale);
        for (int i = 0; i < D; i++) sum += dy[i] * w[i], dot += dy[i] * w[i] * (x[i] - mean) * scale;
        for (int i = 0; i < D; i++) {
            const float h = (x[i] - mean) * scale;
            dX[n * D + i] += scale * (dy[i] * w[i] - sum / D - h * dot / D);
            dw[i] += dy[i] * h, db[i] += dy[i];
        }
    }
}

/* Probabilities of query s of head h: p[0..s]. */
static void probabilities(float *p, const float *qkv, int b, int h, int s)
{
    float top = -INFINITY, total = 0;
    const int see = strcmp(bug, "mask") == 0 && s > 0 ? s - 1 : s;
    for (int t = 0; t <= s; t++) {
        p[t] = 0;
        for (int a = 0; a < A; a++)
            p[t] += qkv[(b * S + s) * 3 * D + h * A + a] * qkv[(b * S + t) * 3 * D + D + h * A + a];
        p[t] /= sqrtf((float)(strcmp(bug, "scale") == 0 ? D : A));
        if (t <= see && p[t] > top) top = p[t];
    }
    for (int t = 0; t <= s; t++) total += p[t] = t <= see ? expf(p[t] - top) : 0;
    for (int t = 0; t <= s; t++) p[t] /= total;
}

static void attention(float *Y, float *dqkv, const float *dY, const float *qkv)
{
    float *p = malloc(2 * (size_t)S * sizeof *p), *dp = p + S;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int s = 0; s < S; s++) {
                const int row = b * S + s;
                float mean = 0;
                probabilities(p, qkv, b, h, s);
                for (int t = 0; t <= s && Y; t++)
                    for (int a = 0; a < A; a++) Y[row * D + h * A + a] += p[t] * qkv[(b * S + t) * 3 * D + 2 * D + h * A + a];
                for (int t = 0; t <= s && dqkv; t++) {
                    dp[t] = 0;
                    for (int a = 0; a < A; a++) {
                        const int v = (b * S + t) * 3 * D + 2 * D + h * A + a;
                        dp[t] += dY[row * D + h * A + a] * qkv[v];
                        dqkv[v] += dY[row * D + h * A + a] * p[t];
                    }
                    mean += p[t] * dp[t];
                }
                for (int t = 0; t <= s && dqkv; t++)
                    for (int a = 0; a < A; a++) {
                        const int q = row * 3 * D + h * A + a, k = (b * S + t) * 3 * D + D + h * A + a;
                        const float ds = p[t] * (dp[t] - mean) / sqrtf((float)A);
                        dqkv[q] += ds * qkv[k], dqkv[k] += ds * qkv[q];
                    }
            }
    free(p);
}

static float gelu(float x, float *slope)
{
    const float c = 0.7978845608f, u = c * (x + 0.044715f * x * x * x), t = tanhf(u);
    *slope = (1 + t) / 2 + x * (1 - t * t) / 2 * c * (1 + 3 * 0.044715f * x * x);
    if (strcmp(bug, "gelu") == 0) return x / 2 * (1 + erff(x / sqrtf(2)));
    return x / 2 * (1 + t);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static float *X[64], *norm1[64], *qkv[64], *heads[64], *mid[64], *norm2[64], *up[64], *act[64];

static void block(int l)
{
    float *out = tensor(N, D, "act", l, "attn.out"), *mlp, slope;
    norm(norm1[l] = tensor(N, D, "act", l, "ln_1"), X[l], start(l, "ln_1.weight"), start(l, "ln_1.bias"));
    linear(qkv[l] = tensor(N, 3 * D, "act", l, "attn.qkv"), norm1[l], start(l, "attn.c_attn.weight"), start(l, "attn.c_attn.bias"), D, 3 * D);
    attention(heads[l] = tensor(N, D, "act", l, "attn.heads"), NULL, NULL, qkv[l]);
    linear(out, heads[l], start(l, "attn.c_proj.weight"), start(l, "attn.c_proj.bias"), D, D);
    mid[l] = tensor(N, D, "act", l, "mid");
    for (int i = 0; i < N * D; i++) mid[l][i] = X[l][i] + out[i];
    norm(norm2[l] = tensor(N, D, "act", l, "ln_2"), mid[l], start(l, "ln_2.weight"), start(l, "ln_2.bias"));
    linear(up[l] = tensor(N, F, "act", l, "mlp.up"), norm2[l], start(l, "mlp.c_fc.weight"), start(l, "mlp.c_fc.bias"), D, F);
    act[l] = tensor(N, F, "act", l, "mlp.act");
    for (int i = 0; i < N * F; i++) act[l][i] = gelu(up[l][i], &slope);
    linear(mlp = tensor(N, D, "act", l, "mlp.out"), act[l], start(l, "mlp.c_proj.weight"), start(l, "mlp.c_proj.bias"), F, D);
    X[l + 1] = tensor(N, D, "act", l, "out");
    for (int i = 0; i < N * D; i++) X[l + 1][i] = mid[l][i] + mlp[i];
}

/* d: on entry the gradient of the block's output, on return of its input. */
static void block_backward(int l, float *d)
{
    float slope, *d_out = tensor(N, D, "grad", l, "out"), *d_mlp = tensor(N, D, "grad", l, "mlp.out"),
          *d_act = tensor(N, F, "grad", l, "mlp.act"), *d_up = tensor(N, F, "grad", l, "mlp.up"),
          *d_norm2 = tensor(N, D, "grad", l, "ln_2"), *d_mid = tensor(N, D, "grad", l, "mid"),
          *d_attn = tensor(N, D, "grad", l, "attn.out"), *d_heads = tensor(N, D, "grad", l, "attn.heads"),
          *d_qkv = tensor(N, 3 * D, "grad", l, "attn.qkv"), *d_norm1 = tensor(N, D, "grad", l, "ln_1");
    memcpy(d_out, d, sizeof(float) * N * D), memcpy(d_mlp, d, sizeof(float) * N * D);
    linear_backward(d_act, tensor(D, F, "grad", l, "mlp.c_proj.weight"), tensor(D, 1, "grad", l, "mlp.c_proj.bias"), d, act[l], start(l, "mlp.c_proj.weight"), F, D);
    for (int i = 0; i < N * F; i++) gelu(up[l][i], &slope), d_up[i] = d_act[i] * slope;
    linear_backward(d_norm2, tensor(F, D, "grad", l, "mlp.c_fc.weight"), tensor(F, 1, "grad", l, "mlp.c_fc.bias"), d_up, norm2[l], start(l, "mlp.c_fc.weight"), D, F);
    norm_backward(d, tensor(D, 1, "grad", l, "ln_2.weight"), tensor(D, 1, "grad", l, "ln_2.bias"), d_norm2, mid[l], start(l, "ln_2.weight"));
    memcpy(d_mid, d, sizeof(float) * N * D), memcpy(d_attn, d, sizeof(float) * N * D);
    linear_backward(d_heads, tensor(D, D, "grad", l, "attn.c_proj.weight"), tensor(D, 1, "grad", l, "attn.c_proj.bias"), d, heads[l], start(l, "attn.c_proj.weight"), D, D);
    attention(NULL, d_qkv, d_heads, qkv[l]);
    linear_backward(d_norm1, tensor(3 * D, D, "grad", l, "attn.c_attn.weight"), tensor(3 * D, 1, "grad", l, "attn.c_attn.bias"), d_qkv, norm1[l], start(l, "attn.c_attn.weight"), D, 3 * D);
    if (strcmp(bug, "residual") == 0) memset(d, 0, sizeof(float) * N * D);
    norm_backward(d, tensor(D, 1, "grad", l, "ln_1.weight"), tensor(D, 1, "grad", l, "ln_1.bias"), d_norm1, X[l], start(l, "ln_1.weight"));
}

int main(int argc, char **argv)
{
    if (argc < 3) return fprintf(stderr, "usage: own_program GOLDEN DUMP [BUG]\n"), 2;
    if (argc > 3) bug = argv[3];
    open_golden(argv[1]);
    const int *ids = tokens("ids"), *labels = tokens("labels");
    const float *wte = start(-1, "wte.weight"), *wpe = start(-1, "wpe.weight");
    X[0] = tensor(N, D, "act", -1, "embedding");
    for (int i = 0; i < N * D; i++) X[0][i] = wte[ids[i / D] * D + i % D] + wpe[i / D % S * D + i % D];
    for (int l = 0; l < L; l++) block(l);
    float *last = tensor(N, D, "act", -1, "ln_f"), *logits = tensor(N, V, "act", -1, "logits");
    norm(last, X[L], start(-1, "ln_f.weight"), start(-1, "ln_f.bias"));
    linear(logits, last, wte, NULL, D, V);

    /* The mean over the labels that count; the output matrix is the embedding. */
    float *d_logits = tensor(N, V, "grad", -1, "logits"), *d_last = tensor(N, D, "grad", -1, "ln_f"), *d_wte = tensor(V, D, "grad", -1, "wte.weight");
    int counted = 0;
    double loss = 0;
    for (int n = 0; n < N; n++) counted += labels[n] >= 0;
    for (int n = 0; n < N; n++) {
        double total = 0;
        for (int v = 0; v < V; v++) total += exp(logits[n * V + v]);
        if (labels[n] >= 0) loss += (log(total) - logits[n * V + labels[n]]) / counted;
        for (int v = 0; v < V && labels[n] >= 0; v++)
            d_logits[n * V + v] = (float)((exp(logits[n * V + v]) / total - (v == labels[n])) / counted);
    }
    all[count] = (struct named){ "loss", 1, 1, malloc(sizeof(float)) };
    all[count++].x[0] = (float)loss;

    float *d = calloc((size_t)N * D, sizeof *d), *d_wpe = tensor(number("n_positions\\\":"), D, "grad", -1, "wpe.weight");
    linear_backward(d_last, d_wte, NULL, d_logits, last, wte, D, V);
    norm_backward(d, tensor(D, 1, "grad", -1, "ln_f.weight"), tensor(D, 1, "grad", -1, "ln_f.bias"), d_last, X[L], start(-1, "ln_f.weight"));
    for (int l = L - 1; l >= 0; l--) block_backward(l, d);
    memcpy(tensor(N, D, "grad", -1, "embedding"), d, sizeof(float) * N * D);
    for (int i = 0; i < N * D; i++) d_wte[ids[i / D] * D + i % D] += d[i], d_wpe[i / D % S * D + i % D] += d[i];
    write_dump(argv[2]);
    return 0;
}
