/* ops.c -- operations: X [rows,in], W [out,in]; dX is the gradient of X.  `at` is the layer that bugs are in. */
#include "program.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TERMS = 4096 };

/* Operands of a product, if they are rounded on the way in: to 10 bits, as in tensor cores. */
static float operand(float x)
{
    if (!IS(PRODUCTS_ROUNDED)) return x;
    int exponent;
    const float f = frexpf(x, &exponent);
    const int bits = set.format == FP32 ? 11 : set.format == FP16 ? 8 : 4;
    return ldexpf(nearbyintf(ldexpf(f, bits)), exponent - bits);
}

/* A sum in which each addition is rounded. */
static float narrow_sum(const float *term, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum = round_to(set.format == FP32 ? BF16 : set.format, sum + term[i]);
    return sum;
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

struct cuts { const struct cut *out, *in; };

static struct cuts cuts_of(struct linear a)
{
    const struct param *p = &param[a.w];
    return (struct cuts){ cut_of(p->row_axis, p->rows, a.tp), cut_of(p->col_axis, p->cols, a.tp) };
}

static bool named(int p, const char *text) { return strstr(param[p].name, text) != NULL; }

void linear(float *Y, const float *X, struct linear a, int rows, bool bias)
{
    const struct cuts c = cuts_of(a);
    const struct param *w = &param[a.w];
    const bool is_down = w->col_axis == OF_F;
    float term[MOST_TERMS];
    if (IS(BIAS_MISSING) && w->row_axis == OF_QKV) bias = false;
    for (int n = 0; n < rows; n++)
        for (int o = 0; o < c.out->count; o++) {
            int k = 0;
            for (int i = 0; i < c.in->count; i++) {
                const int col = c.in->at[i] - (IS(OTHER_PIECE) && is_down && a.tp == 1 ? c.in->at[0] : 0);
                term[k++] = operand(X[n * c.in->count + i]) * operand(w->w[c.out->at[o] * w->cols + col]);
            }
            if (bias && set.steps) {
                Y[n * c.out->count + o] = stored(stored(add_up(term, k)) + param[a.b].w[c.out->at[o]]);
                continue;
            }
            if (bias && set.parts > 1) {
                Y[n * c.out->count + o] = stored(add_up(term, k) + param[a.b].w[c.out->at[o]]);
                continue;
            }
            if (bias) term[k++] = param[a.b].w[c.out->at[o]];
            Y[n * c.out->count + o] = stored(IS(NARROW_SUMS) && is_down ? narrow_sum(term, k) : add_up(term, k));
        }
}

void linear_input(float *dX, const float *dY, struct linear a, int rows)
{
    const struct cuts c = cuts_of(a);
    const struct param *w = &param[a.w];
    float term[MOST_TERMS];
    for (int n = 0; n < rows; n++)
        for (int i = 0; i < c.in->count; i++) {
            for (int o = 0; o < c.out->count; o++)
                term[o] = dY[n * c.out->count + o] * w->w[c.out->at[o] * w->cols + c.in->at[i]];
            dX[n * c.in->count + i] = stored(add_up(term, c.out->count));
        }
}

/* Adds to dW and db, in fp32. */
void linear_weight(float *dW, float *db, const float *dY, const float *X, struct linear a, int rows)
{
    const struct cuts c = cuts_of(a);
    float term[MOST_TERMS];
    const int in = c.in->count, out = c.out->count;
    const bool is_up = param[a.w].row_axis == OF_UP, copies = IS(LAST_MICRO_ONLY) && is_up;
    for (int o = 0; o < out; o++) {
        for (int i = 0; i < in; i++) {
            for (int n = 0; n < rows; n++) term[n] = dY[n * out + o] * X[n * in + i];
            float sum = IS(NARROW_GRADIENT) && is_up ? narrow_sum(term, rows) : add_up(term, rows);
            float *to = &dW[o * in + i];
            if (IS(GRADIENT_TRANSPOSED) && named(a.w, "o_proj")) to = &dW[i * in + o];
            if (IS(GRADIENT_TRANSPOSED) && named(a.w, "attn.c_proj")) to = &dW[i * in + o];
            *to = copies ? sum : *to + sum;
        }
        for (int n = 0; n < rows && db; n++) term[n] = dY[n * out + o];
        if (db) db[o] += (IS(BIAS_HALF) && param[a.w].row_axis == OF_QKV ? 0.5f : 1) * add_up(term, rows);
    }
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

struct row { float mean, r; };

static float statistic(float x) { return IS(NORM_STATISTICS_ROUNDED) ? stored(x) : between(x); }

static struct row row_of(const float *x)
{
    float term[MOST_WIDE], mean = 0;
    const int count = IS(NORM_SAMPLE) ? m.D - 1 : m.D;
    for (int i = 0; i < m.D; i++) term[i] = x[i];
    if (!m.llama && !IS(NORM_NO_MEAN)) mean = statistic(add_up(term, m.D) / m.D);
    for (int i = 0; i < m.D; i++) term[i] = (x[i] - mean) * (x[i] - mean);
    const float v = statistic(add_up(term, m.D) / count), eps = IS(NORM_EPS) ? 1e-3f : m.eps;
    if (IS(NORM_NO_ROOT)) return (struct row){ mean, 1 / (v + eps) };
    return (struct row){ mean, statistic(IS(NORM_EPS_OUTSIDE) || IS(RMS_EPS_OUTSIDE) ? 1 / (sqrtf(v) + eps) : 1 / sqrtf(statistic(v + eps))) };
}

/* Statistics in the backward pass are the right ones. */
static struct row right_row_of(const float *x)
{
    const enum bug was = bug;
    bug = NO_BUG;
    const struct row r = row_of(x);
    bug = was;
    return r;
}

void norm(float *Y, const float *X, int w, int b, int rows)
{
    const int parts = set.parts;
    set.parts = 1;
    for (int n = 0; n < rows; n++) {
        const struct row r = row_of(X + n * m.D);
        for (int i = 0; i < m.D; i++) {
            const float x = between((X[n * m.D + i] - r.mean) * r.r), scaled = between(x * param[w].w[i]);
            Y[n * m.D + i] = stored(scaled + (b < 0 || IS(NORM_BIAS_MISSING) ? 0 : param[b].w[i]));
        }
    }
    set.parts = parts;
}

void norm_input(float *dX, const float *dY, const float *X, int w, int rows)
{
    const int parts = set.parts;
    float h[MOST_WIDE], x[MOST_WIDE], term[MOST_WIDE];
    set.parts = 1;
    for (int n = 0; n < rows; n++) {
        const struct row r = right_row_of(X + n * m.D);
        for (int i = 0; i < m.D; i++) {
            h[i] = between(dY[n * m.D + i] * (IS(NORM_BACK_NO_WEIGHT) ? 1 : param[w].w[i]));
            x[i] = between((X[n * m.D + i] - r.mean) * r.r);
        }
        memcpy(term, h, sizeof term);
        const float mean = m.llama ? 0 : between(add_up(term, m.D) / m.D);
        for (int i = 0; i < m.D; i++) term[i] = h[i] * x[i];
        const float dot = IS(NORM_BACK_NO_DOT) ? 0 : between(add_up(term, m.D) / m.D);
        for (int i = 0; i < m.D; i++) dX[n * m.D + i] = stored(r.r * (h[i] - mean - x[i] * dot));
    }
    set.parts = parts;
}

void norm_weight(float *dw, float *db, const float *dY, const float *X, int rows)
{
    float *term = malloc(2 * (size_t)rows * sizeof *term), *other = term + rows;
    for (int i = 0; i < m.D; i++) {
        for (int n = 0; n < rows; n++) {
            const struct row r = right_row_of(X + n * m.D);
            term[n] = dY[n * m.D + i] * between((X[n * m.D + i] - r.mean) * r.r), other[n] = dY[n * m.D + i];
            if (IS(NORM_WEIGHT_PLAIN)) term[n] = dY[n * m.D + i] * X[n * m.D + i];
            if (IS(NORM_TOKENS) && 2 * (n % m.S) > m.S) term[n] = other[n] = 0;
        }
        dw[i] += add_up(term, rows);
        if (db) db[i] += IS(BIAS_GRADIENT_ZERO) ? 0 : add_up(other, rows);
    }
    free(term);
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static float gelu(float x, float *slope)
{
    const float c = 0.7978845608f, u = between(c * (x + between(0.044715f * x * x * x))), t = between(tanhf(u));
    *slope = (1 + t) / 2 + x * (1 - t * t) / 2 * c * (1 + 3 * 0.044715f * x * x);
    if (IS(GELU_BACK_ERF)) *slope = (1 + erff(x / sqrtf(2))) / 2 + x * expf(-x * x / 2) / sqrtf(6.2831853f);
    if (IS(GELU_ERF)) return x / 2 * (1 + erff(x / sqrtf(2)));
    if (IS(GELU_SIGMOID)) return x / (1 + expf(-1.702f * x));
    return x / 2 * (1 + t);
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

void activation(float *Y, const float *X, int F, int rows)
{
    for (int n = 0; n < rows; n++)
        for (int f = 0; f < F; f++) {
            const float *x = X + n * F * (m.llama ? 2 : 1);
            float gate = x[f], up = m.llama ? x[F + f] : 0, slope;
            if (IS(GATE_UP_SWAPPED)) gate = x[F + f], up = x[f];
            if (IS(GATE_SIGMOID)) gate = 1, up *= sigmoid(x[f]) / sigmoid(1);
            if (IS(SILU_AS_GELU) && m.llama) Y[n * F + f] = stored(gate / 2 * (1 + erff(gate / sqrtf(2))) * up);
            else Y[n * F + f] = stored(m.llama ? between(gate * sigmoid(gate)) * up : gelu(gate, &slope));
        }
}

void activation_input(float *dX, const float *dY, const float *X, int F, int rows)
{
    for (int n = 0; n < rows; n++)
        for (int f = 0; f < F; f++) {
            const float *x = X + n * F * (m.llama ? 2 : 1), dy = dY[n * F + f], g = sigmoid(x[f]);
            float *dx = dX + n * F * (m.llama ? 2 : 1), slope;
            if (!m.llama) {
                gelu(x[f], &slope), dx[f] = stored(dy * between(slope));
                continue;
            }
            dx[f] = stored(dy * x[F + f] * (IS(SILU_BACK_HALF) ? g : g + x[f] * g * (1 - g)));
            dx[F + f] = stored(dy * between(x[f] * g));
        }
}

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

/* A number of a rotation, which some bugs keep in 16 bits. */
static float kept(float x, bool in_bf16, bool in_fp16)
{
    return in_bf16 || IS(ROTARY_ALL_BF16) ? round_to(BF16, x) : in_fp16 ? round_to(FP16, x) : x;
}

void rotate(float *Y, const float *X, int heads, int kv_heads, int rows, bool back)
{
    const int width = (heads + 2 * kv_heads) * m.A, half = m.A / 2;
    memcpy(Y, X, sizeof *Y * (size_t)rows * width);
    for (int n = 0; n < rows; n++)
        for (int h = 0; h < heads + (IS(ROTARY_VALUES) ? 2 : IS(KEYS_NOT_TURNED) && !back ? 0 : 1) * kv_heads; h++)
            for (int p = 0; p < half; p++) {
                const bool neighbours = IS(ROTARY_INTERLEAVED) || (IS(ROTARY_KEYS_IN_TURN) && h >= heads && !back);
                const int position = IS(POSITIONS_CONTINUE) && !back ? n : n % m.S + (IS(ROTARY_SHIFTED) ? 1 : IS(ROTARY_QUERIES_LATE) && h < heads ? 3 : 0);
                const float theta = IS(ROTARY_THETA) ? 10000 : IS(ROTARY_THETA_ODD) ? 700 : m.theta,
                            frequency = kept(powf(theta, -2 * (float)p / (float)m.A), IS(ROTARY_FREQUENCIES_BF16), IS(ROTARY_FREQUENCIES_FP16)),
                            angle = kept((float)position * frequency, IS(ROTARY_ANGLES_BF16), IS(ROTARY_ANGLES_FP16)),
                            sign = back && !IS(ROTARY_BACK_FORWARD) ? -1 : 1,
                            c = between(kept(cosf(angle), IS(ROTARY_COSINES_BF16), IS(ROTARY_COSINES_FP16))),
                            s = sign * between(kept(sinf(angle), IS(ROTARY_COSINES_BF16), IS(ROTARY_COSINES_FP16)));
                const int i = n * width + h * m.A + (neighbours ? 2 * p : p), j = neighbours ? i + 1 : i + half;
                Y[i] = stored(between(X[i] * c) - between(X[j] * s)), Y[j] = stored(between(X[j] * c) + between(X[i] * s));
            }
}
