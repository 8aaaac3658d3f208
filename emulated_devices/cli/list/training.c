/* training.c -- what a step of training takes by name, for `orrery list`: optimizers, routers, models, conventions,
 * formats, backends.  list.c has a row for each part.  Nothing here fails. */
#include "emulated_devices/cli/list/list.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/device/backend.h"
#include "ref/model/config.h"
#include "ref/ops/ops.h"
#include "ref/optim/conventions.h"
#include "ref/optim/loss_scale.h"
#include "ref/optim/optimizer.h"
#include "ref/policy/policy.h"
#include "ref/routers/router.h"
#include "ref/weather/network.h"
#include <stdio.h>

void list_optimizers(void)
{
    for (const struct optimizer *const *o = optimizers; *o; o++) {
        list_entry((*o)->name, (*o)->description);
        if ((*o)->forward_only) list_field("two forward passes a step; keeps and sends no gradients");
        if ((*o)->memory) list_field("keeps %s", (*o)->memory);
        else list_field("keeps %d tensor%s for each parameter", (*o)->states, plural((*o)->states));
        list_field("from %s", (*o)->source);
    }
}

void list_routers(void)
{
    for (const struct router *const *r = routers; *r; r++) {
        const struct router_rule *rule = &(*r)->rule;
        list_entry((*r)->name, (*r)->description);
        list_field("%s", (*r)->formula);
        if (rule->scale != 1) list_field("scale %g", rule->scale);
        if (rule->groups > 1)
            list_field("groups %lld, of which %lld are kept; with few experts fewer", (long long)rule->groups,
                  (long long)rule->kept);
        list_field("from %s", (*r)->source);
    }
}

void list_policies(void)
{
    const struct policy_rule *rule;
    for (int i = 0; (rule = policy_rule_at(i)) != NULL; i++) {
        list_entry(rule->name, rule->title);
        if (rule->values) list_field("a critic's values: gamma %g, lambda %g, whitened over all devices", rule->gamma,
                                     rule->lambda);
        else list_field("groups of answers: less their mean%s", rule->scale == SCALE_GROUP ? ", over the deviation"
                        : rule->scale == SCALE_BATCH ? ", over the deviation of all rewards" : "");
        list_field("ratio clipped to 1 - %g .. 1 + %g", rule->low, rule->high);
        list_field("from %s", rule->source);
    }
}

void list_models(void)
{
    for (const struct model_preset *m = model_presets; m->config.name[0]; m++) {
        const struct model_config *c = &m->config;
        list_entry(c->name, m->description);
        list_field("L=%lld H=%lld D=%lld F=%lld V=%lld S=%lld", (long long)c->L, (long long)c->H, (long long)c->D,
              (long long)c->F, (long long)c->V, (long long)c->S);
    }
    for (const struct weather_shape *s = weather_shapes(); s->name; s++) {
        list_entry(s->name, "fields on a globe: FourCastNet 3 (orrery train, orrery plan)");
        list_field("%lld x %lld points, %lld degrees, %lld channels, %lld blocks", (long long)s->nlat,
                   (long long)s->nlon, (long long)s->degrees, (long long)weather_channels(s), (long long)s->layers);
    }
}

void list_backends(void)
{
    for (int i = 0; backends[i] != NULL; i++) list_entry(backends[i]->name, backends[i]->description);
}

/* A row for each convention: its value in every profile. */
void list_profiles(void)
{
    for (int p = 0; p < PROFILES; p++) list_entry(profile_names[p], profile_packages[p]);
    for (int i = 0; i < CONVENTIONS; i++) {
        const struct convention_row *r = &convention_rows[i];
        char text[300];
        int used = 0;
        for (int p = 0; p < PROFILES; p++)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %s", p ? ", " : "", profile_names[p],
                             convention_value((enum convention)i, r->value[p]).text);
        list_group("");
        list_entry(r->name, r->what);
        list_field("%s", text);
        list_field("from %s", r->source);
    }
    list_group("Losses, by name: --as PROFILE,LOSS");
    for (const struct loss_name *loss = loss_names; loss->name; loss++) {
        list_entry(loss->name, loss->what);
        list_field("%s", loss->rows);
        list_field("as %s", loss->source);
    }
}

void list_dtypes(void)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (ops_for(t) == NULL) continue;
        char text[80];
        snprintf(text, sizeof text, "%zu bytes, unit roundoff %.3g", dtype_size(t), dtype_unit(t));
        list_entry(dtype_name(t), text);
        if (dtype_wide(t) != (enum dtype)t)
            list_field("sums, statistics, masters and optimizer state in fp32%s", dtype_is_scaled(t) ? "; loss "
                       "scaled" : "");
    }
}
