/* encoder.c -- the encoders of all modalities on one device.  model/encoders.c, verify/reference/encoders.c and
 * verify/reference/reference.c call these functions.  The only error is ERR_MEMORY; then close is still due. */
#include "ref/model/modality.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters -------------------------------------------------------------------------------------------------- */

int64_t encoder_count(const struct modality *modality, int64_t D, enum encoder_param param)
{
    const int64_t count[ENCODER_PARAMS] = { modality->F * modality->C, modality->F, D * modality->F, D };
    return count[param];
}

int64_t encoder_counts(const struct modality *modality, int64_t D)
{
    int64_t sum = 0;
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) sum += encoder_count(modality, D, p);
    return sum;
}

struct tensor encoder_view(const struct modality *modality, int64_t D, struct tensor all, enum encoder_param which)
{
    /* The four parameters of an encoder lie one after another in `all`. */
    char *at = all.data;
    for (enum encoder_param p = 0; p < which; p++) at += encoder_count(modality, D, p) * (int64_t)dtype_size(all.dtype);
    return which == ENCODER_UP_W ? tensor_2d(at, all.dtype, modality->F, modality->C)
         : which == ENCODER_OUT_W ? tensor_2d(at, all.dtype, D, modality->F)
                                  : tensor_1d(at, all.dtype, encoder_count(modality, D, which));
}

void encoder_draw(const struct modality *modality, int64_t D, uint64_t seed, struct tensor all)
{
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) {
        const struct tensor w = encoder_view(modality, D, all, p);
        const double std = p == ENCODER_UP_W ? 1 / sqrt((double)modality->C) : p == ENCODER_OUT_W
            ? 1 / sqrt((double)modality->F) : 0;
        const uint64_t stream = random_stream(modality->name) ^ (uint64_t)(p + 1);
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

static enum error_code encoder_no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for encoders"); }

enum error_code serial_encoders_open(struct serial_encoders *encoders, int kinds, int64_t D, enum dtype dtype,
                                     uint64_t seed, int states, struct error *err)
{
    bool ok = true;
    *encoders = (struct serial_encoders){ .kinds = kinds, .D = D, .dtype = dtype };
    for (int m = 0; m < kinds; m++) {
        const int64_t n = encoder_counts(&modalities[m], D);
        encoders->w[m] = zeros_1d(dtype, n), encoders->g[m] = zeros_1d(dtype, n);
        for (int i = 0; i < states; i++)
            encoders->state[m][i] = zeros_1d(dtype, n), ok = ok && encoders->state[m][i].data;
        ok = ok && encoders->w[m].data && encoders->g[m].data;
        if (ok) encoder_draw(&modalities[m], D, seed, encoders->w[m]);
    }
    return ok ? OK : encoder_no_memory(err);
}

static void drop_batch(struct serial_encoders *encoders)
{
    clips_free(&encoders->clips);
    for (int m = 0; m < encoders->kinds; m++) {
        free(encoders->x[m].data), free(encoders->up[m].data), free(encoders->act[m].data), free(encoders->out[m].data);
        encoders->x[m] = encoders->up[m] = encoders->act[m] = encoders->out[m] = tensor_none;
    }
    free(encoders->rows.data), free(encoders->d_rows.data), free(encoders->at);
    encoders->rows = encoders->d_rows = tensor_none, encoders->at = NULL;
}

void serial_encoders_close(struct serial_encoders *encoders)
{
    drop_batch(encoders);
    for (int m = 0; m < encoders->kinds; m++) {
        free(encoders->w[m].data), free(encoders->g[m].data);
        for (int i = 0; i < OPTIMIZER_MAX_STATES; i++) free(encoders->state[m][i].data);
    }
    *encoders = (struct serial_encoders){ 0 };
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

static int64_t patches_of(const struct serial_encoders *encoders, int modality)
{
    int64_t n = 0;
    for (int i = 0; i < encoders->clips.count; i++)
        n += encoders->clips.clip[i].modality == modality ? encoders->clips.clip[i].count : 0;
    return n;
}

static struct tensor rows_at(struct tensor t, int64_t first, int64_t n)
{
    return tensor_2d((char *)t.data + (size_t)(first * tensor_cols(t)) * dtype_size(t.dtype), t.dtype, n,
                     tensor_cols(t));
}

/* Copy between the rows of one modality's patches and those of all. */
static void visit_rows(const struct serial_encoders *encoders, int modality, struct tensor own,
                       struct tensor all, bool to_all)
{
    int64_t at = 0;
    for (int i = 0; i < encoders->clips.count; i++) {
        const struct clip *c = &encoders->clips.clip[i];
        if (c->modality != modality) continue;
        const struct tensor part = rows_at(own, at, c->count), whole = rows_at(all, c->first, c->count);
        memcpy(to_all ? whole.data : part.data, to_all ? part.data : whole.data, tensor_bytes(part));
        at += c->count;
    }
}

enum error_code serial_encoders_begin(struct serial_encoders *encoders, struct error *err)
{
    bool ok = true;
    encoders->rows = zeros(encoders->dtype, encoders->clips.patches, encoders->D),
        encoders->d_rows = zeros(encoders->dtype, encoders->clips.patches, encoders->D);
    for (int m = 0; m < encoders->kinds; m++) {
        const int64_t n = patches_of(encoders, m), F = modalities[m].F;
        encoders->x[m] = zeros(encoders->dtype, n, modalities[m].C);
        encoders->up[m] = zeros(encoders->dtype, n, F), encoders->act[m] = zeros(encoders->dtype, n, F),
            encoders->out[m] = zeros(encoders->dtype, n, encoders->D);
        ok = ok && encoders->x[m].data && encoders->up[m].data && encoders->act[m].data && encoders->out[m].data;
    }
    return ok && encoders->rows.data && encoders->d_rows.data ? OK : encoder_no_memory(err);
}

void serial_encoders_compute(struct serial_encoders *encoders, const struct ops *op)
{
    for (int m = 0; m < encoders->kinds; m++) {
        const struct modality *is = &modalities[m];
        if (tensor_rows(encoders->x[m]) == 0) continue;
        /* out [patches,D] = W_out gelu(W_up x + b_up) + b_out, for all patches of the modality. */
        op->linear_forward(encoders->up[m], encoders->x[m], encoder_view(is, encoders->D, encoders->w[m], ENCODER_UP_W),
                           encoder_view(is, encoders->D, encoders->w[m], ENCODER_UP_B));
        op->gelu_forward(encoders->act[m], encoders->up[m]);
        op->linear_forward(encoders->out[m], encoders->act[m],
                           encoder_view(is, encoders->D, encoders->w[m], ENCODER_OUT_W),
                           encoder_view(is, encoders->D, encoders->w[m], ENCODER_OUT_B));
        /* rows [patches,D] has the clips of all modalities in the order of the batch. */
        visit_rows(encoders, m, encoders->out[m], encoders->rows, true);
    }
}

/* The patch of each row of the batch. */
static bool place_patches(struct serial_encoders *encoders, int64_t rows)
{
    encoders->at = malloc((size_t)rows * sizeof *encoders->at);
    for (int64_t row = 0; encoders->at && row < rows; row++) encoders->at[row] = -1;
    for (int i = 0; encoders->at && i < encoders->clips.count; i++)
        /* Row `row + k` of the batch is patch `first + k`. */
        for (int64_t k = 0; k < encoders->clips.clip[i].count; k++)
            encoders->at[encoders->clips.clip[i].row + k] = (int32_t)(encoders->clips.clip[i].first + k);
    return encoders->at;
}

enum error_code serial_encoders_forward(struct serial_encoders *encoders, const struct ops *op, uint64_t seed,
                                        int64_t step, int64_t B, int64_t S, struct error *err)
{
    int64_t at[MODALITIES] = { 0 };
    drop_batch(encoders);
    enum error_code e = clips_of_step(&encoders->clips, encoders->kinds, seed, step, B, S, err);
    if (!e) e = serial_encoders_begin(encoders, err);
    if (!e && !place_patches(encoders, B * S)) e = encoder_no_memory(err);
    for (int i = 0; i < encoders->clips.count && !e; i++) {
        const struct clip *c = &encoders->clips.clip[i];
        clip_draw(c, seed, step, rows_at(encoders->x[c->modality], at[c->modality], c->count));
        at[c->modality] += c->count;
    }
    if (!e) serial_encoders_compute(encoders, op);
    return e;
}

enum error_code serial_encoders_backward(struct serial_encoders *encoders, const struct ops *op, struct error *err)
{
    for (int m = 0; m < encoders->kinds; m++) {
        const struct modality *is = &modalities[m];
        const int64_t n = patches_of(encoders, m);
        struct tensor d_out = zeros(encoders->dtype, n, encoders->D), d_up = zeros(encoders->dtype, n, is->F),
                      d_act = zeros(encoders->dtype, n, is->F);
        const bool ok = d_out.data && d_up.data && d_act.data;
        if (ok && n > 0) {
            /* d_out takes the gradients of this modality's rows, clip after clip. */
            visit_rows(encoders, m, d_out, encoders->d_rows, false);
            /* The backward pass is that of a block's feed-forward; patches themselves have no gradient. */
            op->linear_backward_weight(encoder_view(is, encoders->D, encoders->g[m], ENCODER_OUT_W),
                                       encoder_view(is, encoders->D, encoders->g[m], ENCODER_OUT_B), d_out,
                                       encoders->act[m]);
            op->linear_backward_input(d_act, d_out, encoder_view(is, encoders->D, encoders->w[m], ENCODER_OUT_W));
            op->gelu_backward_input(d_up, d_act, encoders->up[m]);
            op->linear_backward_weight(encoder_view(is, encoders->D, encoders->g[m], ENCODER_UP_W),
                                       encoder_view(is, encoders->D, encoders->g[m], ENCODER_UP_B), d_up,
                                       encoders->x[m]);
        }
        free(d_out.data), free(d_up.data), free(d_act.data);
        if (!ok) return encoder_no_memory(err);
    }
    return OK;
}
