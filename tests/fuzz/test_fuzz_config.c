/* A config.json from anybody: what is accepted is a possible model, and comes back the same when written and read. */
#include "ref/routers/router.h"
#include "ref/model/config.h"
#include "ref/model/config_json/config_keys.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct model_config c, again;
    const char *path = as_file(data, size);
    if (model_config_read(&c, path, &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    if (model_config_check(&c, &err) != OK) return;
    must(c.S > 0 && c.D > 0 && c.L > 0 && c.V > 0 && c.F > 0 && c.H > 0 && c.A > 0, "a shape that cannot be");
    must(heads_width(&c) == c.D || config_keys_have(c.family->keys, "head_dim") || c.norm == NORM_RMS,
         "heads of a width that its family does not have");
    must(model_elements(&c) > 0 && model_param_count(&c) > 0, "a model without parameters");
    for (int i = 0; i < model_param_count(&c); i += 1 + model_param_count(&c) / 64)
        must(model_param(&c, i).dim[0] > 0, "an empty parameter");
    must(model_config_write(&c, path, &err) == OK, "cannot be written: %s", err.text);
    must(model_config_read(&again, path, &err) == OK, "written and refused: %s", err.text);
    const struct rotary *r = &c.rotary, *s = &again.rotary;
    const struct mixture_config *m = &c.mixture, *n = &again.mixture;
    must(c.K == again.K && c.A == again.A && c.biases == again.biases &&
             c.family == again.family,
         "written and read, it is of another family");
    must(r->theta == s->theta && r->scaling == s->scaling && r->factor == s->factor &&
             r->low_frequency == s->low_frequency && r->high_frequency == s->high_frequency &&
             r->original_positions == s->original_positions && r->enlarged == s->enlarged &&
             r->between_pairs == s->between_pairs,
         "written and read, it turns otherwise");
    must(c.mlp != MLP_MIXTURE ||
             (m->E == n->E && m->k == n->k && m->zero == n->zero && m->zero_is_null == n->zero_is_null &&
              router_same(&m->router, &n->router) &&
              m->capacity_factor == n->capacity_factor && m->sequence_coefficient == n->sequence_coefficient &&
              m->z_coefficient == n->z_coefficient && m->balance_coefficient == n->balance_coefficient),
         "written and read, it is another mixture");
    must(c.latent.q == again.latent.q && c.latent.kv == again.latent.kv && c.latent.v == again.latent.v &&
             r->turned == s->turned && r->all_dim == s->all_dim,
         "written and read, it has other latents");
    must(c.dense.F == again.dense.F && memcmp(&c.dense.at, &again.dense.at, sizeof c.dense.at) == 0,
         "written and read, it has other dense layers");
    must(c.S == again.S && c.D == again.D && c.H == again.H && c.F == again.F && c.L == again.L && c.V == again.V &&
             c.tied == again.tied && c.eps == again.eps && c.dropout_embedding == again.dropout_embedding &&
             c.dropout_residual == again.dropout_residual && c.dropout_attention == again.dropout_attention &&
             c.init_std == again.init_std,
         "written and read, it is another");
}

FUZZ_TARGET("config")
