/* shares.c -- finds the rank that has an element of a parameter, for each usual cut.  clipping.c and
 * gradient_norm.c add up squares of gradients with it.  Only shares_of can fail: without memory it returns NULL. */
#include "emulated_devices/check/mistakes/shares.h"
#include "ref/model/config.h"
#include "ref/model/params.h"
#include <stdlib.h>

/* Parameters outside the blocks, such as embeddings, have a layer of -1 or L. */
static bool in_block(const struct model_config *config, const struct param_spec *spec)
{
    return spec->layer >= 0 && spec->layer < config->L;
}

/* ---- flat shards ------------------------------------------------------------------------------------------------- */

/* This counts the elements of a parameter. */
static int64_t shares_count_of(const struct param_spec *spec)
{
    return spec->ndim > 1 ? spec->dim[0] * spec->dim[1] : spec->dim[0];
}

/* Flat shards are cut from a unit: a layer, or L for parameters in none; what decays, or the rest; or all. */
static int64_t shares_unit_of(const struct model_config *config, const struct share *share)
{
    switch (share->cut) {
    case SHARE_FLAT_LAYER: case SHARE_FLAT_LAYER_NORMS: return in_block(config, &share->spec)
        ? share->spec.layer : config->L;
    case SHARE_FLAT_GROUP: return share->spec.decay;
    default: return 0;
    }
}

/* Find the index behind the last parameter of the layer that list[first] is in. */
static int end_of_layer(const struct model_config *config, const struct share list[], int first, int params)
{
    int end = first + 1;
    while (end < params && in_block(config, &list[first].spec) && in_block(config, &list[end].spec) &&
           list[end].spec.layer == list[first].spec.layer)
        end++;
    return end;
}

/* Lay the parameters of each unit end to end: `before` counts the elements before each.  In some cuts the norms of
 * a layer come after the rest. */
static void lay_flat(const struct model_config *config, struct share list[], int params, int64_t laid[])
{
    const bool norms_last = list->cut == SHARE_FLAT_LAYER_NORMS || list->cut == SHARE_FLAT_ALL_NORMS;
    for (int first = 0, end; first < params; first = end) {
        end = end_of_layer(config, list, first, params);
        /* Two passes over the layer: first all but norms, then norms, if norms are last. */
        for (int norms = 0; norms < 2; norms++)
            for (int i = first; i < end; i++) {
                if ((norms_last && list[i].spec.role == ROLE_NORM) != (norms == 1)) continue;
                int64_t *const so_far = &laid[shares_unit_of(config, &list[i])];
                list[i].before = *so_far, *so_far += shares_count_of(&list[i].spec);
            }
    }
    /* All parameters of a unit know its size, from which a rank's part follows. */
    for (int i = 0; i < params; i++) list[i].unit = laid[shares_unit_of(config, &list[i])];
}

/* ---- all parameters ---------------------------------------------------------------------------------------------- */

/* Find which matrix or bias of a block a parameter is, if tp cuts it. */
static enum block_param shares_block_of(const struct share *share)
{
    static const enum block_param cut[] = { QKV_W, QKV_B, UP_W, UP_B, PROJ_W, DOWN_W };
    for (size_t i = 0; in_block(share->config, &share->spec) && i < sizeof cut / sizeof *cut; i++)
        if (param_of_block(share->config, share->spec.layer, cut[i]) == share->param) return cut[i];
    return BLOCK_PARAMS;
}

/* The list has a share for each parameter in the model's order. */
struct share *shares_of(const struct model_config *config, enum share_cut cut)
{
    const int params = model_param_count(config);
    struct share *list = calloc((size_t)params + 1, sizeof *list);
    int64_t *laid = calloc((size_t)config->L + 2, sizeof *laid);
    for (int i = 0; list && laid && i < params; i++) {
        list[i] = (struct share){ .config = config, .cut = cut, .param = i, .spec = model_param(config, i) };
        list[i].unit = shares_count_of(&list[i].spec);
        list[i].block = cut == SHARE_ALONG_TP ? shares_block_of(&list[i]) : BLOCK_PARAMS;
    }
    /* Cuts by single parameters need no list of units. */
    if (list && laid && cut > SHARE_FLAT_EACH) lay_flat(config, list, params, laid);
    if (laid == NULL) free(list), list = NULL;
    free(laid);
    return list;
}

/* ---- along tp ---------------------------------------------------------------------------------------------------- */

/* Find the rank along tp that has the element: heads for attention, columns of F for the feed-forward.  -1: all ranks
 * have it. */
static int along_tp(const struct share *share, int64_t r, int64_t c, int parts)
{
    const struct model_config *m = share->config;
    const enum block_param is = share->block;
    int64_t at = -1, of = 0;
    if (is == QKV_W || is == QKV_B) {
        /* Rows of the fused matrix are queries, then keys, then values.  A query head goes with its group's keys. */
        const int64_t row = is == QKV_B ? c : r, head = row / m->A;
        at = head < m->H ? head / (m->H / m->K) : (head - m->H) % m->K, of = m->K;
    } else if (is == UP_W || is == UP_B) at = (is == UP_B ? c : r) % m->F, of = m->F;
    else if (is == PROJ_W) at = c / m->A / (m->H / m->K), of = m->K;
    else if (is == DOWN_W) at = c, of = m->F;
    for (int k = 0; k < parts && at >= 0; k++)
        if (at < of / parts * (k + 1) + (k + 1 < of % parts ? k + 1 : of % parts)) return k;
    return -1;
}

/* Flat shards and rows are cut into equal parts, rounded up; the last part may be smaller. */
int share_owner(const struct share *share, int64_t r, int64_t c, int parts)
{
    const int64_t rows = share->spec.dim[0], cols = share->spec.ndim > 1 ? share->spec.dim[1] : 1;
    if (share->cut == SHARE_ALONG_TP) return along_tp(share, r, c, parts);
    if (share->cut == SHARE_ROWS) return (int)((share->spec.ndim > 1 ? r : c) / ((rows + parts - 1) / parts));
    return (int)((share->before + r * cols + c) / ((share->unit + parts - 1) / parts));
}

/* Runs end at a row, a part or the parameter's end, so that one owner holds for the whole run. */
int64_t share_end(const struct share *share, int64_t at, int parts)
{
    const bool matrix = share->spec.ndim > 1;
    const int64_t rows = share->spec.dim[0], cols = matrix ? share->spec.dim[1] : 1, count = rows * cols;
    int64_t end = at + 1;
    /* All ranks have the parameter: the run is all of it. */
    if (share->cut == SHARE_ALONG_TP && share->block == BLOCK_PARAMS) return count;
    if (share->cut == SHARE_ALONG_TP && (share->block == QKV_W || share->block == UP_W)) end = (at / cols + 1) * cols;
    if (share->cut == SHARE_ROWS) {
        const int64_t each = (rows + parts - 1) / parts * cols;
        end = (at / each + 1) * each;
    }
    if (share->cut >= SHARE_FLAT_EACH) {
        const int64_t each = (share->unit + parts - 1) / parts;
        end = at + each - (share->before + at) % each;
    }
    return end < count ? end : count;
}
