/* encoder.c -- the encoders of all modalities on one device. */
#include "ref/model/modality.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters -------------------------------------------------------------------------------------------------- */

int64_t encoder_count(const struct modality *m, int64_t D, enum encoder_param p)
{
    const int64_t count[ENCODER_PARAMS] = { m->F * m->C, m->F, D * m->F, D };
    return count[p];
}

int64_t encoder_counts(const struct modality *m, int64_t D)
{
    int64_t sum = 0;
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) sum += encoder_count(m, D, p);
    return sum;
}

struct tensor encoder_view(const struct modality *m, int64_t D, struct tensor all, enum encoder_param which)
{
    /* The four parameters of an encoder lie one after another in `all`. */
    char *at = all.data;
    for (enum encoder_param p = 0; p < which; p++) at += encoder_count(m, D, p) * (int64_t)dtype_size(all.dtype);
    return which == ENCODER_UP_W ? tensor_2d(at, all.dtype, m->F, m->C)
         : which == ENCODER_OUT_W ? tensor_2d(at, all.dtype, D, m->F)
                                  : tensor_1d(at, all.dtype, encoder_count(m, D, which));
}

void encoder_draw(const struct modality *m, int64_t D, uint64_t seed, struct tensor all)
{
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) {
        const struct tensor w = encoder_view(m, D, all, p);
        const double std = p == ENCODER_UP_W ? 1 / sqrt((double)m->C) : p == ENCODER_OUT_W ? 1 / sqrt((double)m->F) : 0;
        const uint64_t stream = random_stream(m->name) ^ (uint64_t)(p + 1);
        for (int64_t i = 0; i < tensor_count(w); i++)
            tensor_set(w, i, std > 0 ? std * random_normal(seed, stream, (uint64_t)i) : 0);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static struct tensor zeros(enum dtype dtype, int64_t rows, int64_t cols)
{
    return tensor_2d(calloc((size_t)(rows * cols) + 1, dtype_size(dtype)), dtype, rows, cols);
}

static struct tensor zeros_1d(enum dtype dtype, int64_t n)
{
    return tensor_1d(calloc((size_t)n + 1, dtype_size(dtype)), dtype, n);
}

static enum error_code no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for encoders"); }

enum error_code serial_encoders_open(struct serial_encoders *s, int kinds, int64_t D, enum dtype dtype, uint64_t seed,
                                     int states, struct error *err)
{
    bool ok = true;
    *s = (struct serial_encoders){ .kinds = kinds, .D = D, .dtype = dtype };
    for (int m = 0; m < kinds; m++) {
        const int64_t n = encoder_counts(&modalities[m], D);
        s->w[m] = zeros_1d(dtype, n), s->g[m] = zeros_1d(dtype, n);
        for (int i = 0; i < states; i++) s->state[m][i] = zeros_1d(dtype, n), ok = ok && s->state[m][i].data;
        ok = ok && s->w[m].data && s->g[m].data;
        if (ok) encoder_draw(&modalities[m], D, seed, s->w[m]);
    }
    return ok ? OK : no_memory(err);
}

static void drop_batch(struct serial_encoders *s)
{
    clips_free(&s->clips);
    for (int m = 0; m < s->kinds; m++) {
        free(s->x[m].data), free(s->up[m].data), free(s->act[m].data), free(s->out[m].data);
        s->x[m] = s->up[m] = s->act[m] = s->out[m] = tensor_none;
    }
    free(s->rows.data), free(s->d_rows.data), free(s->at);
    s->rows = s->d_rows = tensor_none, s->at = NULL;
}

void serial_encoders_close(struct serial_encoders *s)
{
    drop_batch(s);
    for (int m = 0; m < s->kinds; m++) {
        free(s->w[m].data), free(s->g[m].data);
        for (int i = 0; i < OPTIMIZER_MAX_STATES; i++) free(s->state[m][i].data);
    }
    *s = (struct serial_encoders){ 0 };
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

static int64_t patches_of(const struct serial_encoders *s, int modality)
{
    int64_t n = 0;
    for (int i = 0; i < s->clips.count; i++) n += s->clips.clip[i].modality == modality ? s->clips.clip[i].count : 0;
    return n;
}

static struct tensor rows_at(struct tensor t, int64_t first, int64_t n)
{
    return tensor_2d((char *)t.data + (size_t)(first * tensor_cols(t)) * dtype_size(t.dtype), t.dtype, n,
                     tensor_cols(t));
}

/* Copy between the rows of one modality's patches and those of all. */
static void visit_rows(const struct serial_encoders *s, int modality, struct tensor own, struct tensor all, bool to_all)
{
    int64_t at = 0;
    for (int i = 0; i < s->clips.count; i++) {
        const struct clip *c = &s->clips.clip[i];
        if (c->modality != modality) continue;
        const struct tensor part = rows_at(own, at, c->count), whole = rows_at(all, c->first, c->count);
        memcpy(to_all ? whole.data : part.data, to_all ? part.data : whole.data, tensor_bytes(part));
        at += c->count;
    }
}

enum error_code serial_encoders_begin(struct serial_encoders *s, struct error *err)
{
    bool ok = true;
    s->rows = zeros(s->dtype, s->clips.patches, s->D), s->d_rows = zeros(s->dtype, s->clips.patches, s->D);
    for (int m = 0; m < s->kinds; m++) {
        const int64_t n = patches_of(s, m), F = modalities[m].F;
        s->x[m] = zeros(s->dtype, n, modalities[m].C);
        s->up[m] = zeros(s->dtype, n, F), s->act[m] = zeros(s->dtype, n, F), s->out[m] = zeros(s->dtype, n, s->D);
        ok = ok && s->x[m].data && s->up[m].data && s->act[m].data && s->out[m].data;
    }
    return ok && s->rows.data && s->d_rows.data ? OK : no_memory(err);
}

void serial_encoders_compute(struct serial_encoders *s, const struct ops *op)
{
    for (int m = 0; m < s->kinds; m++) {
        const struct modality *is = &modalities[m];
        if (tensor_rows(s->x[m]) == 0) continue;
        /* out [patches,D] = W_out gelu(W_up x + b_up) + b_out, for all patches of the modality. */
        op->linear_forward(s->up[m], s->x[m], encoder_view(is, s->D, s->w[m], ENCODER_UP_W),
                           encoder_view(is, s->D, s->w[m], ENCODER_UP_B));
        op->gelu_forward(s->act[m], s->up[m]);
        op->linear_forward(s->out[m], s->act[m], encoder_view(is, s->D, s->w[m], ENCODER_OUT_W),
                           encoder_view(is, s->D, s->w[m], ENCODER_OUT_B));
        /* rows [patches,D] has the clips of all modalities in the order of the batch. */
        visit_rows(s, m, s->out[m], s->rows, true);
    }
}

/* The patch of each row of the batch. */
static bool place_patches(struct serial_encoders *s, int64_t rows)
{
    s->at = malloc((size_t)rows * sizeof *s->at);
    for (int64_t row = 0; s->at && row < rows; row++) s->at[row] = -1;
    for (int i = 0; s->at && i < s->clips.count; i++)
        /* Row `row + k` of the batch is patch `first + k`. */
        for (int64_t k = 0; k < s->clips.clip[i].count; k++)
            s->at[s->clips.clip[i].row + k] = (int32_t)(s->clips.clip[i].first + k);
    return s->at;
}

enum error_code serial_encoders_forward(struct serial_encoders *s, const struct ops *op, uint64_t seed, int64_t step,
                                        int64_t B, int64_t S, struct error *err)
{
    int64_t at[MODALITIES] = { 0 };
    drop_batch(s);
    enum error_code e = clips_of_step(&s->clips, s->kinds, seed, step, B, S, err);
    if (!e) e = serial_encoders_begin(s, err);
    if (!e && !place_patches(s, B * S)) e = no_memory(err);
    for (int i = 0; i < s->clips.count && !e; i++) {
        const struct clip *c = &s->clips.clip[i];
        clip_draw(c, seed, step, rows_at(s->x[c->modality], at[c->modality], c->count));
        at[c->modality] += c->count;
    }
    if (!e) serial_encoders_compute(s, op);
    return e;
}

enum error_code serial_encoders_backward(struct serial_encoders *s, const struct ops *op, struct error *err)
{
    for (int m = 0; m < s->kinds; m++) {
        const struct modality *is = &modalities[m];
        const int64_t n = patches_of(s, m);
        struct tensor d_out = zeros(s->dtype, n, s->D), d_up = zeros(s->dtype, n, is->F),
                      d_act = zeros(s->dtype, n, is->F);
        const bool ok = d_out.data && d_up.data && d_act.data;
        if (ok && n > 0) {
            /* d_out takes the gradients of this modality's rows, clip after clip. */
            visit_rows(s, m, d_out, s->d_rows, false);
            /* The backward pass is that of a block's feed-forward; patches themselves have no gradient. */
            op->linear_backward_weight(encoder_view(is, s->D, s->g[m], ENCODER_OUT_W),
                                       encoder_view(is, s->D, s->g[m], ENCODER_OUT_B), d_out, s->act[m]);
            op->linear_backward_input(d_act, d_out, encoder_view(is, s->D, s->w[m], ENCODER_OUT_W));
            op->gelu_backward_input(d_up, d_act, s->up[m]);
            op->linear_backward_weight(encoder_view(is, s->D, s->g[m], ENCODER_UP_W),
                                       encoder_view(is, s->D, s->g[m], ENCODER_UP_B), d_up, s->x[m]);
        }
        free(d_out.data), free(d_up.data), free(d_act.data);
        if (!ok) return no_memory(err);
    }
    return OK;
}
