/* shares.c -- finds the rank that has an element of a parameter, for each usual cut.  norms.c adds up squares of
 * gradients with it, and clipping.c clips what each rank has.  Only shares_of can fail: without memory it returns
 * NULL. */
#include "emulated_devices/check/mistakes/shares.h"
#include "emulated_devices/check/recompute/turns.h"
#include <stdlib.h>

/* Parameters outside the blocks, such as embeddings, have a layer of -1 or L. */
static bool in_block(const struct model_config *config, int layer) { return layer >= 0 && layer < config->L; }

/* ---- flat shards ------------------------------------------------------------------------------------------------- */

static int64_t shares_count_of(const struct share *share) { return share->rows * share->cols; }

/* Flat shards are cut from a unit: a layer, or L for parameters in none; what decays, or the rest; or all. */
static int64_t shares_unit_of(const struct share *share, bool decays)
{
    const struct model_config *config = share->config;
    switch (share->cut) {
    case SHARE_FLAT_LAYER: case SHARE_FLAT_LAYER_NORMS: return in_block(config, share->layer)
        ? share->layer : config->L;
    case SHARE_FLAT_GROUP: return decays;
    default: return 0;
    }
}

/* Find the index behind the last parameter of the layer that list[first] is in. */
static int end_of_layer(const struct share list[], int first, int params)
{
    const struct model_config *config = list->config;
    int end = first + 1;
    while (end < params && in_block(config, list[first].layer) && in_block(config, list[end].layer) &&
           list[end].layer == list[first].layer)
        end++;
    return end;
}

/* Lay the parameters of each unit end to end: `before` counts the elements before each.  In some cuts the norms of
 * a layer come after the rest. */
static void lay_flat(const struct single *single, struct share list[], int params, int64_t laid[])
{
    const bool norms_last = list->cut == SHARE_FLAT_LAYER_NORMS || list->cut == SHARE_FLAT_ALL_NORMS;
    for (int first = 0, end; first < params; first = end) {
        end = end_of_layer(list, first, params);
        /* Two passes over the layer: first all but norms, then norms, if norms are last. */
        for (int norms = 0; norms < 2; norms++)
            for (int i = first; i < end; i++) {
                const struct param_spec spec = single_spec(single, i);
                if ((norms_last && spec.role == ROLE_NORM) != (norms == 1)) continue;
                int64_t *const so_far = &laid[shares_unit_of(&list[i], spec.decay)];
                list[i].before = *so_far, *so_far += shares_count_of(&list[i]);
            }
    }
    /* All parameters of a unit know its size, from which a rank's part follows. */
    for (int i = 0; i < params; i++) list[i].unit = laid[shares_unit_of(&list[i], single_spec(single, i).decay)];
}

/* ---- all parameters ---------------------------------------------------------------------------------------------- */

/* Find how tp cuts a parameter of a block: by its role, for each expert as for a feed-forward alone.  Biases of rows
 * are cut as the rows. */
static enum share_along along_of(const struct model_config *config, const struct param_spec *spec)
{
    const bool matrix = spec->ndim > 1;
    if (!in_block(config, spec->layer)) return ALONG_NONE;
    switch (spec->role) {
    case ROLE_QKV: return spec->dim[0] == qkv_width(config) ? ALONG_QKV : ALONG_NONE;
    case ROLE_UP: case ROLE_DENSE_UP: case ROLE_SHARED_UP: return ALONG_UP;
    case ROLE_ATTENTION_OUT: return matrix && spec->dim[1] == config->H * config->A ? ALONG_HEADS : ALONG_NONE;
    case ROLE_DOWN: case ROLE_DENSE_DOWN: case ROLE_SHARED_DOWN: return matrix ? ALONG_DOWN : ALONG_NONE;
    default: return ALONG_NONE;
    }
}

/* The list has a share for each parameter in the model's order. */
struct share *shares_of(const struct single *single, enum share_cut cut)
{
    const struct model_config *config = single->context->config;
    const int params = single_spec_count(single);
    struct share *list = calloc((size_t)params + 1, sizeof *list);
    int64_t *laid = calloc((size_t)config->L + 2, sizeof *laid);
    for (int i = 0; list && laid && i < params; i++) {
        const struct param_spec spec = single_spec(single, i);
        list[i] = (struct share){ .config = config, .cut = cut, .vector = spec.ndim < 2, .rows = spec.dim[0],
                                  .cols = spec.ndim > 1 ? spec.dim[1] : 1, .along = along_of(config, &spec),
                                  .layer = spec.layer, .expert = spec.expert };
        list[i].unit = shares_count_of(&list[i]);
    }
    /* Cuts by single parameters need no list of units. */
    if (list && laid && cut > SHARE_FLAT_EACH) lay_flat(single, list, params, laid);
    if (laid == NULL) free(list), list = NULL;
    free(laid);
    return list;
}

/* A rank along tp has at least one group of keys and values, one along ep an expert, a stage a layer. */
bool share_can(const struct model_config *config, enum share_cut cut, int parts)
{
    const bool experts = cut == SHARE_EXPERTS || cut == SHARE_EXPERTS_IN_TURN;
    return (cut != SHARE_ALONG_TP || parts <= config->K) && (cut != SHARE_STAGES || parts <= config->L) &&
           (!experts || (config->mlp == MLP_MIXTURE && parts <= config->mixture.E));
}

/* ---- along tp ---------------------------------------------------------------------------------------------------- */

/* A row, or column, belongs to one of `of` units that tp deals out; `wide`: columns of a unit. */
struct dealt { int64_t at, of, wide; };

/* Heads are dealt out by groups of keys and values; the hidden width of a feed-forward column by column. */
static struct dealt dealt_of(const struct share *share, int64_t r, int64_t c)
{
    const struct model_config *m = share->config;
    const int64_t each = m->H / m->K, head = r / m->A, F = m->mlp == MLP_GELU ? share->rows : share->rows / 2;
    switch (share->along) {
    /* Rows of the fused matrix are queries, then keys, then values.  A query head goes with its group's keys. */
    case ALONG_QKV: return (struct dealt){ head < m->H ? head / each : (head - m->H) % m->K, m->K, 0 };
    case ALONG_UP: return (struct dealt){ F > 0 ? r % F : 0, F, 0 };
    case ALONG_HEADS: return (struct dealt){ c / m->A / each, m->K, m->A * each };
    case ALONG_DOWN: return (struct dealt){ c, share->cols, 1 };
    default: return (struct dealt){ -1, 0, 0 };
    }
}

/* ---- all cuts ---------------------------------------------------------------------------------------------------- */

/* Flat shards and rows are cut into equal parts, rounded up; the last part may be smaller. */
int share_owner(const struct share *share, int64_t r, int64_t c, int parts)
{
    const struct model_config *m = share->config;
    const int64_t at = share->vector && share->cut == SHARE_ALONG_TP ? c : r;
    switch (share->cut) {
    case SHARE_ALONG_TP: {
        const struct dealt d = dealt_of(share, at, c);
        return d.at < 0 ? -1 : part_with(d.of, parts, d.at);
    }
    case SHARE_EXPERTS: return share->expert < 0 ? -1 : part_with(m->mixture.E, parts, share->expert);
    case SHARE_EXPERTS_IN_TURN: return share->expert < 0 ? -1 : share->expert % parts;
    case SHARE_STAGES: return share->layer < 0 ? 0 : share->layer >= m->L ? parts - 1
                            : part_with(m->L, parts, share->layer);
    case SHARE_ROWS: return (int)((share->vector ? c : r) / ((share->rows + parts - 1) / parts));
    default: return (int)((share->before + r * share->cols + c) / ((share->unit + parts - 1) / parts));
    }
}

/* Runs end at a row, a part or the parameter's end, so that one owner holds for the whole run. */
int64_t share_end(const struct share *share, int64_t at, int parts)
{
    const int64_t cols = share->cols, count = share->rows * cols, row_end = (at / cols + 1) * cols;
    int64_t end = at + 1;
    if (share->cut == SHARE_ALONG_TP) {
        const struct dealt d = dealt_of(share, at / cols, at % cols);
        /* All ranks have the parameter: the run is all of it. */
        if (d.at < 0) return count;
        /* Columns run to the part's last column, rows of a matrix to their end. */
        if (d.wide > 0)
            end = row_end - cols + part_begin(d.of, parts, part_with(d.of, parts, d.at) + 1) * d.wide;
        else if (!share->vector) end = row_end;
        if (end > row_end) end = row_end;
    } else if (share->cut <= SHARE_STAGES) return count;
    else if (share->cut == SHARE_ROWS) {
        const int64_t each = (share->rows + parts - 1) / parts * cols;
        end = (at / each + 1) * each;
    } else {
        const int64_t each = (share->unit + parts - 1) / parts;
        end = at + each - (share->before + at) % each;
    }
    return end < count ? end : count;
}
