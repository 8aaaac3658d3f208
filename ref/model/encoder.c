/* encoder.c -- the encoders of all modalities on one device.  model/encoders.c, verify/reference/encoders.c and
 * verify/reference/reference.c call these functions.  The only error is ERR_MEMORY; then close is still due. */
#include "ref/model/modality.h"
#include "ref/numeric/convert.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdio.h>
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

struct param_spec encoder_spec(const struct modality *modality, int64_t D, enum encoder_param which)
{
    static const char *const name[ENCODER_PARAMS] = { "up.weight", "up.bias", "out.weight", "out.bias" };
    const bool up = which < ENCODER_OUT_W, matrix = which == ENCODER_UP_W || which == ENCODER_OUT_W;
    const int64_t in = up ? modality->C : modality->F;
    struct param_spec s = { .role = up ? ROLE_UP : ROLE_DOWN, .expert = -1, .ndim = matrix ? 2 : 1,
                            .dim = { up ? modality->F : D, matrix ? in : 0 }, .std = matrix ? 1 / sqrt((double)in) : 0,
                            .decay = matrix, .parts = 1 };
    snprintf(s.name, sizeof s.name, "encoders.%s.%s", modality->name, name[which]);
    s.part[0].rows = s.dim[0], s.part[0].rows_apart = 1;
    memcpy(s.part[0].name, s.name, sizeof s.name);
    return s;
}

void encoder_draw(const struct modality *modality, int64_t D, uint64_t seed, struct tensor all)
{
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) {
        const struct param_spec spec = encoder_spec(modality, D, p);
        const struct tensor w = encoder_view(modality, D, all, p);
        param_init(&spec, seed, w.dtype, 0, tensor_count(w), w.data);
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

/* One encoder's tensors that stay from step to step. */
static bool open_encoder(struct serial_encoders *encoders, int m, const struct ops *op, uint64_t seed, int states)
{
    const int64_t n = encoder_counts(&modalities[m], encoders->D);
    const bool narrow = dtype_is_narrow(encoders->dtype);
    const enum dtype wide = dtype_wide(encoders->dtype);
    encoders->w[m] = zeros_1d(encoders->dtype, n);
    encoders->g[m] = zeros_1d(op->sums, n);
    encoders->master[m] = narrow ? zeros_1d(wide, n) : encoders->w[m];
    bool ok = encoders->w[m].data && encoders->g[m].data && encoders->master[m].data;
    for (int i = 0; i < states; i++)
        encoders->state[m][i] = zeros_1d(wide, n), ok = ok && encoders->state[m][i].data;
    if (!ok) return false;
    /* Masters are drawn, not widened, so that they have the digits that rounding takes from weights. */
    encoder_draw(&modalities[m], encoders->D, seed, encoders->w[m]);
    if (narrow) encoder_draw(&modalities[m], encoders->D, seed, encoders->master[m]);
    return true;
}

enum error_code serial_encoders_open(struct serial_encoders *encoders, int kinds, int64_t D, const struct ops *op,
                                     uint64_t seed, int states, struct error *err)
{
    bool ok = true;
    *encoders = (struct serial_encoders){ .kinds = kinds, .D = D, .dtype = op->dtype };
    for (int m = 0; m < kinds && ok; m++) ok = open_encoder(encoders, m, op, seed, states);
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
        if (encoders->master[m].data != encoders->w[m].data) free(encoders->master[m].data);
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

/* The observer, if there is one, sees each tensor just after it was computed. */
static void encoder_computed(const struct serial_encoders *encoders, const char *name, bool gradient, struct tensor t,
                             int64_t terms)
{
    if (encoders->observer.see) encoders->observer.see(encoders->observer.context, name, -1, gradient, t, terms);
}

void serial_encoders_compute(struct serial_encoders *encoders, const struct ops *op)
{
    for (int m = 0; m < encoders->kinds; m++) {
        const struct modality *is = &modalities[m];
        if (tensor_rows(encoders->x[m]) == 0) continue;
        /* out [patches,D] = W_out gelu(W_up x + b_up) + b_out, for all patches of the modality. */
        op->linear_forward(encoders->up[m], encoders->x[m], encoder_view(is, encoders->D, encoders->w[m], ENCODER_UP_W),
                           encoder_view(is, encoders->D, encoders->w[m], ENCODER_UP_B));
        encoder_computed(encoders, "encoder.up", false, encoders->up[m], is->C);
        op->gelu_forward(encoders->act[m], encoders->up[m]);
        encoder_computed(encoders, "encoder.act", false, encoders->act[m], 1);
        op->linear_forward(encoders->out[m], encoders->act[m],
                           encoder_view(is, encoders->D, encoders->w[m], ENCODER_OUT_W),
                           encoder_view(is, encoders->D, encoders->w[m], ENCODER_OUT_B));
        encoder_computed(encoders, "encoder.out", false, encoders->out[m], is->F);
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

static bool copy_clips(struct clips *to, const struct clips *from)
{
    *to = *from;
    to->clip = malloc(((size_t)from->count + 1) * sizeof *to->clip);
    if (to->clip) memcpy(to->clip, from->clip, (size_t)from->count * sizeof *to->clip);
    else to->count = 0;
    return to->clip;
}

enum error_code serial_encoders_forward(struct serial_encoders *encoders, const struct ops *op,
                                        const struct clips *clips, uint64_t seed, int64_t step, int64_t rows,
                                        struct error *err)
{
    int64_t at[MODALITIES] = { 0 };
    drop_batch(encoders);
    enum error_code e = copy_clips(&encoders->clips, clips) ? serial_encoders_begin(encoders, err)
                                                            : encoder_no_memory(err);
    if (!e && !place_patches(encoders, rows)) e = encoder_no_memory(err);
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
            encoder_computed(encoders, "encoder.act", true, d_act, encoders->D);
            op->gelu_backward_input(d_up, d_act, encoders->up[m]);
            encoder_computed(encoders, "encoder.up", true, d_up, 1);
            op->linear_backward_weight(encoder_view(is, encoders->D, encoders->g[m], ENCODER_UP_W),
                                       encoder_view(is, encoders->D, encoders->g[m], ENCODER_UP_B), d_up,
                                       encoders->x[m]);
            encoder_computed(encoders, "encoder.weight", true, encoders->g[m], n);
        }
        free(d_out.data), free(d_up.data), free(d_act.data);
        if (!ok) return encoder_no_memory(err);
    }
    return OK;
}

void serial_encoder_step(struct serial_encoders *encoders, int m, const struct optimizer *optimizer, struct step step)
{
    const struct modality *is = &modalities[m];
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) {
        struct tensor state[OPTIMIZER_MAX_STATES];
        for (int i = 0; i < optimizer->states; i++)
            state[i] = encoder_view(is, encoders->D, encoders->state[m][i], p);
        step.weight_decay = weight_decay_of(step.hyper, encoder_spec(is, encoders->D, p).decay);
        optimizer_step(optimizer, encoder_view(is, encoders->D, encoders->master[m], p),
                       encoder_view(is, encoders->D, encoders->g[m], p), state, step);
    }
    if (encoders->master[m].data != encoders->w[m].data) tensor_convert(encoders->w[m], encoders->master[m]);
}
