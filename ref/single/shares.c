#include "ref/single/shares.h"

/* ---- flat shards ------------------------------------------------------------------------------------------------- */

static bool in_block(const struct model_config *c, const struct param_spec *p)
{
    return p->layer >= 0 && p->layer < c->L;
}

static bool same_unit(const struct model_config *c, enum share_cut cut, const struct param_spec *a,
                      const struct param_spec *b)
{
    switch (cut) {
    case SHARE_FLAT_LAYER: case SHARE_FLAT_LAYER_NORMS:
        return in_block(c, a) ? a->layer == b->layer : !in_block(c, b);
    case SHARE_FLAT_GROUP: return a->decay == b->decay;
    default: return true;
    }
}

/* Whether a lies before b, which is after it in the list. */
static bool stays_before(const struct model_config *c, enum share_cut cut, const struct param_spec *a,
                         const struct param_spec *b)
{
    const bool norms = cut == SHARE_FLAT_LAYER_NORMS || cut == SHARE_FLAT_ALL_NORMS;
    return !norms || !in_block(c, a) || a->layer != b->layer || a->role != ROLE_NORM || b->role == ROLE_NORM;
}

static int64_t count_of(const struct param_spec *p) { return p->ndim > 1 ? p->dim[0] * p->dim[1] : p->dim[0]; }

struct share share_of(const struct model_config *c, enum share_cut cut, int param)
{
    struct share s = { .config = c, .cut = cut, .param = param, .spec = model_param(c, param) };
    if (cut < SHARE_FLAT_EACH) return s;
    s.unit = count_of(&s.spec);
    for (int i = 0; i < model_param_count(c) && cut > SHARE_FLAT_EACH; i++) {
        const struct param_spec other = model_param(c, i);
        if (i == param || !same_unit(c, cut, &s.spec, &other)) continue;
        s.unit += count_of(&other);
        if (i < param ? stays_before(c, cut, &other, &s.spec) : !stays_before(c, cut, &s.spec, &other))
            s.before += count_of(&other);
    }
    return s;
}

/* ---- along tp ---------------------------------------------------------------------------------------------------- */

static bool is_block(const struct share *s, enum block_param which)
{
    return in_block(s->config, &s->spec) && param_of_block(s->config, s->spec.layer, which) == s->param;
}

static int along_tp(const struct share *s, int64_t r, int64_t c, int parts)
{
    const struct model_config *m = s->config;
    int64_t at = -1, of = 0;
    if (is_block(s, QKV_W) || is_block(s, QKV_B)) {
        const int64_t row = is_block(s, QKV_B) ? c : r, head = row / m->A;
        at = head < m->H ? head / (m->H / m->K) : (head - m->H) % m->K, of = m->K;
    } else if (is_block(s, UP_W) || is_block(s, UP_B)) at = (is_block(s, UP_B) ? c : r) % m->F, of = m->F;
    else if (is_block(s, PROJ_W)) at = c / m->A / (m->H / m->K), of = m->K;
    else if (is_block(s, DOWN_W)) at = c, of = m->F;
    for (int k = 0; k < parts && at >= 0; k++)
        if (at < of / parts * (k + 1) + (k + 1 < of % parts ? k + 1 : of % parts)) return k;
    return -1;
}

int share_owner(const struct share *s, int64_t r, int64_t c, int parts)
{
    const int64_t rows = s->spec.dim[0], cols = s->spec.ndim > 1 ? s->spec.dim[1] : 1;
    if (s->cut == SHARE_ALONG_TP) return along_tp(s, r, c, parts);
    if (s->cut == SHARE_ROWS) return (int)((s->spec.ndim > 1 ? r : c) / ((rows + parts - 1) / parts));
    return (int)((s->before + r * cols + c) / ((s->unit + parts - 1) / parts));
}
