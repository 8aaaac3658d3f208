/* model.c -- options of `orrery train` that change the model. */
#include "emulated_devices/cli/train/train.h"
#include "ref/io/output.h"
#include "ref/routers/router.h"

/* Another rule for a mixture's router; of a folder's model, its files' rule is replaced.  Experts without computation
 * return what that rule's do. */
static enum error_code take_router(struct model_config *c, const struct model_flags *f, struct error *err)
{
    const struct router *r = NULL;
    if (f->router && c->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--router %s: is for mixtures of experts; model %s has none",
                    printable(f->router).text, c->name);
    if (f->zero > 0 && c->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--zero-experts %d: is for mixtures of experts; model %s has none", f->zero,
                    c->name);
    const enum error_code e = f->router ? router_find(&r, f->router, err) : OK;
    if (e) return e;
    if (f->zero > 0) c->mixture.zero = f->zero;
    if (r) c->mixture.router = router_fit(r, c->mixture.E, c->mixture.k);
    if (r && c->mixture.zero > 0) c->mixture.zero_is_null = r->zero_is_null;
    if (f->top_p > 0) c->mixture.router.top_p = f->top_p;
    if (f->top_p > 0 && c->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--top-p %g: is for mixtures of experts; model %s has none", f->top_p, c->name);
    if (r && r->rule.top_p > 0) c->mixture.k = mixture_columns(&c->mixture);    /* as released: no other limit */
    if (f->speed >= 0 && !c->mixture.router.biased)
        return fail(err, ERR_USAGE, "--router-speed %g: is for routers with a bias: noaux-tc, longcat", f->speed);
    if (f->speed >= 0) c->mixture.router.bias_speed = f->speed;
    if (f->z_loss >= 0 && c->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--z-loss %g: is for mixtures of experts; model %s has none", f->z_loss, c->name);
    if (f->z_loss >= 0) c->mixture.z_coefficient = f->z_loss;
    return OK;
}

/* Shared experts for a mixture, each as wide as one of its experts; of a folder's model, its files' are replaced. */
static enum error_code take_shared(struct model_config *c, int experts, bool gate, struct error *err)
{
    if ((experts >= 0 || gate) && c->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--shared-%s: is for mixtures of experts; model %s has none",
                    gate ? "gate" : "experts", c->name);
    if (experts >= 0) c->mixture.shared = experts * c->F, c->mixture.shared_gate = false;
    if (gate && c->mixture.shared == 0)
        return fail(err, ERR_USAGE, "--shared-gate: there are no shared experts; --shared-experts N makes some");
    if (gate) c->mixture.shared_gate = true;
    return OK;
}

enum { USUAL_PREFIX = 8 };
#define USUAL_SMOOTHING 0.01            /* as released */

/* Parallel streams; one is a model without any. */
static enum error_code take_streams(struct model_config *c, const struct model_flags *f, struct error *err)
{
    const enum model_family family = model_family(c);
    if (f->streams == 0 && f->prefix == 0) return OK;
    if (family != FAMILY_QWEN2 && family != FAMILY_PARSCALE)
        return fail(err, ERR_USAGE, "--%s: only a Qwen2 has parallel streams; model %s is no Qwen2",
                    f->streams ? "streams" : "prefix", c->name);
    if (f->streams) c->streams.P = f->streams;
    if (STREAMS(c) == 1 && f->prefix)
        return fail(err, ERR_USAGE, "--prefix %d: one stream has no prefix; --streams P makes several", f->prefix);
    if (c->streams.prefix == 0) c->streams.prefix = USUAL_PREFIX, c->streams.smoothing = USUAL_SMOOTHING;
    if (f->prefix) c->streams.prefix = f->prefix;
    if (STREAMS(c) == 1) c->streams = (struct streams_config){ 0 };
    return OK;
}

enum error_code train_change_model(struct model_config *c, const struct model_flags *f, struct error *err)
{
    enum error_code e = take_router(c, f, err);
    if (!e) e = take_shared(c, f->shared, f->shared_gate, err);
    return e ? e : take_streams(c, f, err);
}
