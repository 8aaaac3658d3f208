#include "emulated_devices/check/mistakes/shares.h"
#include <stdlib.h>

static bool in_block(const struct model_config *config, const struct param_spec *spec)
{
    return spec->layer >= 0 && spec->layer < config->L;
}

/* ---- flat shards ------------------------------------------------------------------------------------------------- */

static int64_t shares_count_of(const struct param_spec *spec)
{
    return spec->ndim > 1 ? spec->dim[0] * spec->dim[1] : spec->dim[0];
}

/* The unit of a parameter: a layer, or L for what is in none; what decays, or the rest; or all. */
static int64_t shares_unit_of(const struct model_config *config, const struct share *share)
{
    switch (share->cut) {
    case SHARE_FLAT_LAYER: case SHARE_FLAT_LAYER_NORMS: return in_block(config, &share->spec)
        ? share->spec.layer : config->L;
    case SHARE_FLAT_GROUP: return share->spec.decay;
    default: return 0;
    }
}

/* The end of the layer that a parameter is in, in the list. */
static int end_of_layer(const struct model_config *config, const struct share list[], int first, int params)
{
    int end = first + 1;
    while (end < params && in_block(config, &list[first].spec) && in_block(config, &list[end].spec) &&
           list[end].spec.layer == list[first].spec.layer)
        end++;
    return end;
}

/* One parameter after another is laid behind those of its unit; of a layer, in some cuts, the norms after the rest. */
static void lay_flat(const struct model_config *config, struct share list[], int params, int64_t laid[])
{
    const bool norms_last = list->cut == SHARE_FLAT_LAYER_NORMS || list->cut == SHARE_FLAT_ALL_NORMS;
    for (int first = 0, end; first < params; first = end) {
        end = end_of_layer(config, list, first, params);
        for (int norms = 0; norms < 2; norms++)
            for (int i = first; i < end; i++) {
                if ((norms_last && list[i].spec.role == ROLE_NORM) != (norms == 1)) continue;
                int64_t *const so_far = &laid[shares_unit_of(config, &list[i])];
                list[i].before = *so_far, *so_far += shares_count_of(&list[i].spec);
            }
    }
    for (int i = 0; i < params; i++) list[i].unit = laid[shares_unit_of(config, &list[i])];
}

/* ---- all parameters ---------------------------------------------------------------------------------------------- */

/* The matrix or bias of a block that a parameter is, if it is one that tp cuts. */
static enum block_param shares_block_of(const struct share *share)
{
    static const enum block_param cut[] = { QKV_W, QKV_B, UP_W, UP_B, PROJ_W, DOWN_W };
    for (size_t i = 0; in_block(share->config, &share->spec) && i < sizeof cut / sizeof *cut; i++)
        if (param_of_block(share->config, share->spec.layer, cut[i]) == share->param) return cut[i];
    return BLOCK_PARAMS;
}

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
    if (list && laid && cut > SHARE_FLAT_EACH) lay_flat(config, list, params, laid);
    if (laid == NULL) free(list), list = NULL;
    free(laid);
    return list;
}

/* ---- along tp ---------------------------------------------------------------------------------------------------- */

static int along_tp(const struct share *share, int64_t r, int64_t c, int parts)
{
    const struct model_config *m = share->config;
    const enum block_param is = share->block;
    int64_t at = -1, of = 0;
    if (is == QKV_W || is == QKV_B) {
        const int64_t row = is == QKV_B ? c : r, head = row / m->A;
        at = head < m->H ? head / (m->H / m->K) : (head - m->H) % m->K, of = m->K;
    } else if (is == UP_W || is == UP_B) at = (is == UP_B ? c : r) % m->F, of = m->F;
    else if (is == PROJ_W) at = c / m->A / (m->H / m->K), of = m->K;
    else if (is == DOWN_W) at = c, of = m->F;
    for (int k = 0; k < parts && at >= 0; k++)
        if (at < of / parts * (k + 1) + (k + 1 < of % parts ? k + 1 : of % parts)) return k;
    return -1;
}

int share_owner(const struct share *share, int64_t r, int64_t c, int parts)
{
    const int64_t rows = share->spec.dim[0], cols = share->spec.ndim > 1 ? share->spec.dim[1] : 1;
    if (share->cut == SHARE_ALONG_TP) return along_tp(share, r, c, parts);
    if (share->cut == SHARE_ROWS) return (int)((share->spec.ndim > 1 ? r : c) / ((rows + parts - 1) / parts));
    return (int)((share->before + r * cols + c) / ((share->unit + parts - 1) / parts));
}

int64_t share_end(const struct share *share, int64_t at, int parts)
{
    const bool matrix = share->spec.ndim > 1;
    const int64_t rows = share->spec.dim[0], cols = matrix ? share->spec.dim[1] : 1, count = rows * cols;
    int64_t end = at + 1;
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
