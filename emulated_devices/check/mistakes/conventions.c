/* conventions.c -- what the loss, or a router's gradient, is under each other convention that the registry names.
 * A convention is tried by computing the pass again with a copy of the model's configuration that has its rules.  So a
 * loss of ref/optim/conventions.c needs no line here.  loss.c and mixture.c call suspect_conventions.
 * No errors: a convention that the batch cannot have is left out. */
#include "emulated_devices/check/mistakes/conventions.h"
#include "emulated_devices/check/recompute/graph.h"
#include "ref/model/balance.h"
#include "ref/model/kinds.h"
#include "ref/model/loss_rule.h"
#include <stdio.h>
#include <string.h>

enum { MOST_CUTS = 12 };

/* The conventions that a configuration has its rules from. */
static struct conventions conventions_of(const struct model_config *config)
{
    struct conventions as;
    const struct loss_rule *loss = &config->loss;
    const struct balance_rule *balance = &config->mixture.balance;
    (void)conventions_parse(&as, profile_names[AS_TORCH], NULL);
    as.value[BALANCE_OVER] = balance->over, as.value[BALANCE_LAYERS] = balance->layers;
    as.value[BALANCE_CHOICES] = balance->choices;
    as.value[LABEL_SMOOTHING] = loss->smoothing, as.value[SMOOTHING_OVER] = loss->over, as.value[LOGITS_Z] = loss->z;
    as.value[LOSS_MEAN] = loss->mean, as.value[LOSS_PARTS] = (double)loss->parts;
    as.value[LOSS_DIVISOR] = loss->divisor > 0 ? loss->divisor : 1;
    return as;
}

/* Compute the pass as if these conventions, and so many microbatches, were the golden file's.  @return whether y is
 * there. */
static bool pass_under(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass,
                       const struct conventions *as, int64_t micros, double *y)
{
    struct single *s = suspect->s;
    const struct single_context *const was = s->context;
    const int64_t cursor_micros = s->cursor.batch.micros;
    const int used = s->memory.used;
    struct model_config config = *was->config;
    struct single_context context = *was;
    config.loss = loss_rule_of(as), config.mixture.balance = balance_rule_of(as);
    context.config = &config, context.all.micros = s->cursor.batch.micros = micros;
    s->context = &context;
    single_read_anew(s);
    const struct single_value v = pass == SINGLE_FORWARD ? node->operation->forward(s, node)
                                                         : node->operation->input[0](s, node);
    const bool made = single_going(s) && tensor_count(v.y) == suspect->count;
    if (made) memcpy(y, numbers(v.y), (size_t)suspect->count * sizeof *y);
    single_release(s, used);
    s->context = was, s->cursor.batch.micros = cursor_micros;
    single_read_anew(s);
    return made;
}

/* Parts into which ranks and microbatches may have cut the batch: those of the mesh first.  @return how many. */
static int conventions_cuts(const struct single *single, int64_t cuts[MOST_CUTS])
{
    const struct single_mesh *mesh = &single->context->source.mesh;
    const int64_t tried[] = { (int64_t)mesh->dp * mesh->micros, mesh->dp, mesh->micros, 2, 3, 4, 5, 6, 8 };
    int n = 0;
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        bool before = tried[i] < 2 || tried[i] > single->context->all.B;
        for (int k = 0; k < n; k++) before = before || cuts[k] == tried[i];
        if (!before) cuts[n++] = tried[i];
    }
    return n;
}

/* Whether two conventions give the pass different rules: logits have the loss's, routers those of balance losses. */
static bool conventions_differ(const struct single *single, const struct single_node *node,
                               enum single_pass_kind pass, const struct conventions *one,
                               const struct conventions *two)
{
    const struct model_config *config = single->context->config;
    const bool is_loss = node->operation == &single_loss,
               balances = config->mlp == MLP_MIXTURE && config->mixture.balance_coefficient > 0;
    for (int row = LOSS_CONVENTION; row < LOSS_CONVENTIONS_END; row++) {
        const bool counts = row < LABEL_SMOOTHING ? balances && !(is_loss && pass == SINGLE_INPUT) : is_loss;
        if (counts && one->value[row] != two->value[row]) return true;
    }
    return false;
}

/* Offer one named loss, with each number of parts where it is of microbatches or parts. */
static void try_loss(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass,
                     const struct loss_name *loss, double *y)
{
    const struct model_config *const config = suspect->s->context->config;
    const struct conventions own = conventions_of(config);
    struct conventions as = own;
    int64_t cuts[MOST_CUTS];
    conventions_take_loss(&as, loss);
    const bool parts = as.value[LOSS_MEAN] == MEAN_OF_PARTS && as.value[LOSS_PARTS] == 0,
               micros = as.value[BALANCE_OVER] == OVER_MICROBATCH && own.value[BALANCE_OVER] != OVER_MICROBATCH;
    if (!conventions_differ(suspect->s, node, pass, &own, &as)) return;
    const int n = parts || micros ? conventions_cuts(suspect->s, cuts) : 1;
    for (int i = 0; i < n && suspect->words[0] == 0; i++) {
        if (parts) as.value[LOSS_PARTS] = (double)cuts[i];
        if (!pass_under(suspect, node, pass, &as, micros ? cuts[i] : suspect->s->context->all.micros, y)) continue;
        if (parts) suspect_explained(suspect, y, "%s, %lld parts: --as ...,loss-mean=parts,loss-parts=%lld",
                                     loss->what, (long long)cuts[i], (long long)cuts[i]);
        else if (micros) suspect_explained(suspect, y, "%s, of %lld: --as ...,%s --micro %lld", loss->what,
                                           (long long)cuts[i], loss->name, (long long)cuts[i]);
        else suspect_explained(suspect, y, "%s: --as ...,%s", loss->what, loss->name);
    }
}

/* A number is near many hypotheses by chance, so conventions are not added to those that came near it. */
void suspect_conventions(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass,
                         double *y)
{
    for (const struct loss_name *loss = loss_names; loss->name; loss++)
        if (suspect->words[0] == 0 && suspect->chance.count == 0) try_loss(suspect, node, pass, loss, y);
}
