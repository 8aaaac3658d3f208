/* probe.c -- says which part of a named activation a device has.  verify/reference/probes.c,
 * verify/reference/compare.c and check/recompute/replay.c call.  The answers depend on the plan alone, so no
 * messages are sent.  No function reports errors. */
#include "emulated_devices/model/probe.h"
#include "emulated_devices/model/link/link.h"
#include "ref/model/kinds.h"
#include "ref/model/naming.h"
#include "ref/model/params.h"
#include <stdio.h>
#include <string.h>

/* ---- the names of activations, from the model's table ------------------------------------------------------------ */

static const struct node *maker_of(const struct node *table, const char *name)
{
    for (const struct node *n = table; n->op != OP_END; n++)
        if (n->out && strcmp(n->out, name) == 0) return n;
    return NULL;
}

static bool shows(const struct node *table, const char *name)
{
    const struct node *maker = maker_of(table, name);
    return maker && !maker->unseen;
}

static const struct node *table_of(const struct program *program, const char *name)
{
    const struct node *const tables[] = { program->embedding, program->block, program->loss, program->dense_block };
    for (int i = 0; i < 4; i++)
        if (tables[i] && shows(tables[i], name)) return tables[i];
    return NULL;
}

static enum activation_width width_in(const struct node *table, const char *name)
{
    const struct node *maker = maker_of(table, name);
    return maker ? operation_width(maker, width_in(table, maker->in[0])) : WIDTH_MODEL;
}

bool activation_width_of(const struct model_config *config, const char *name, enum activation_width *width)
{
    const struct node *table = table_of(model_program(config), name);
    if (table) *width = width_in(table, name);
    return table != NULL;
}

/* ---- what makes them, as text ------------------------------------------------------------------------------------ */

struct words { char *out; size_t size, used; };

static void probe_say(struct words *words, const char *format, const char *name)
{
    const int n = snprintf(words->out + words->used, words->size - words->used, format, name);
    if (n > 0) words->used += (size_t)n < words->size - words->used ? (size_t)n : words->size - words->used - 1;
}

/* Describe a node: its operation, and its parameters' full name, or without parameters its output. */
static void say_node(struct words *words, const struct model_config *config, const struct node *node, int layer)
{
    char name[PARAM_NAME] = "", prefix[32] = "";
    const bool inside = layer >= 0 && layer < config->L;
    const int weight = program_weight(config, node, layer);
    if (inside) snprintf(prefix, sizeof prefix, naming_of(config)->block, layer);
    if (weight >= 0) snprintf(name, sizeof name, "%s", model_param(config, weight).name);
    else snprintf(name, sizeof name, "%s%s", prefix, node->out ? node->out : "");
    char *suffix = strstr(name, ".weight");
    if (suffix) *suffix = 0;
    probe_say(words, node_words(config, node), name);
}

/* The node whose result a name is: past a node that does nothing in this model, the one before it. */
static const struct node *running_maker(const struct node *table, const struct model_config *config, const char *name,
                                        int layer)
{
    const struct node *maker = maker_of(table, name);
    while (maker && node_does_nothing(config, maker, layer) && maker_of(table, maker->in[0]))
        maker = maker_of(table, maker->in[0]);
    return maker;
}

static bool probe_reads(const struct node *node, const char *name)
{
    for (int k = 0; k < NODE_INPUTS && node->in[k]; k++)
        if (strcmp(node->in[k], name) == 0) return true;
    return false;
}

/* List the readers from the last to the first, the order in which backward adds their gradients.  For a node that
 * passes its gradient on, name the gradient of its output; for one that does nothing, its readers. */
static void say_readers(struct words *words, const struct model_config *config, const struct node *table,
                        const char *name, int layer)
{
    int count = 0;
    while (table[count].op != OP_END) count++;
    for (int i = count - 1; i >= 0; i--) {
        const struct node *n = &table[i];
        if (!probe_reads(n, name)) continue;
        if (node_does_nothing(config, n, layer)) {
            if (strcmp(n->in[0], name) == 0) say_readers(words, config, table, n->out, layer);
            continue;
        }
        probe_say(words, words->used ? ", added to %s" : "%s",
                  operation_info(n->op)->passes_on ? "the gradient of " : "the backward pass of ");
        say_node(words, config, n, layer);
        if (operation_info(n->op)->has_weight_pass) probe_say(words, "%s", " for its input");
    }
}

void activation_made_by(char *out, size_t size, const struct model_config *config, const char *name, int layer,
                        bool gradient)
{
    const struct program *p = model_program(config);
    const struct node *table = program_part(p, config, layer);
    struct words w = { out, size, 0 };
    out[0] = 0;
    if (!shows(table, name)) return;
    const struct node *last = table;
    while (last[1].op != OP_END) last++;
    if (!gradient) say_node(&w, config, running_maker(table, config, name, layer), layer);
    else if (last->out && running_maker(table, config, name, layer) == running_maker(table, config, last->out, layer))
        say_readers(&w, config, program_part(p, config, layer + 1), "in", layer + 1);
    else say_readers(&w, config, table, name, layer);
}

/* ---- each device's part ------------------------------------------------------------------------------------------ */

int plan_stage_of(const struct plan *plan, const char *name, int layer, bool gradient)
{
    const int l = layer + (gradient && strcmp(name, "out") == 0);
    int stage = 0;
    while (stage + 1 < plan->stages && plan_first_layer(plan, stage + 1) <= l) stage++;
    return stage;
}

/* Keys, then values. */
static void add_keys(struct intervals *intervals, const struct model_config *config, struct heads heads)
{
    intervals_add(intervals, heads_columns(config, interval_moved(heads.keys, config->H)));
    intervals_add(intervals, heads_columns(config, interval_moved(heads.keys, config->H + config->K)));
}

struct intervals activation_columns(const struct tensor_parallel *tp, enum activation_width width, bool gradient)
{
    const struct heads h = tp->heads;
    const struct model_config *c = tp->config;
    struct intervals s = { 0 };
    switch (width) {
    case WIDTH_MODEL:      intervals_add(&s, tp->channels); break;
    case WIDTH_QKV:
        intervals_add(&s, heads_columns(c, h.queries));
        if (!gradient || h.copies == 1) add_keys(&s, c, h);
        break;
    case WIDTH_HEADS:      intervals_add(&s, heads_columns(c, h.queries)); break;
    case WIDTH_UP:
        for (int64_t first = 0; first < up_width(c); first += c->F)
            intervals_add(&s, interval_moved(tp->columns, first));
        break;
    case WIDTH_ACT:        intervals_add(&s, tp->columns); break;
    case WIDTH_VOCABULARY: intervals_add(&s, tp->tokens); break;
    case WIDTH_EXPERTS:    return intervals_whole(mixture_columns(&c->mixture));
    case WIDTH_CHOICES:    return intervals_whole(c->mixture.k);
    case WIDTH_SHARED_UP:
        intervals_add(&s, tp->shared), intervals_add(&s, interval_moved(tp->shared, c->mixture.shared));
        break;
    case WIDTH_SHARED_ACT: intervals_add(&s, tp->shared); break;
    case WIDTH_Q_LATENT:   return intervals_whole(c->latent.q);
    case WIDTH_KV_LATENT:  return intervals_whole(kv_latent_width(c));
    case WIDTH_KV_NORMED:  return intervals_whole(c->latent.kv);
    case WIDTH_EXPANDED:
        intervals_add(&s, (struct interval){ h.queries.first * expanded_width(c),
                                             h.queries.count * expanded_width(c) });
        break;
    case WIDTH_VALUES:
        intervals_add(&s, (struct interval){ h.queries.first * value_width(c), h.queries.count * value_width(c) });
        break;
    case WIDTH_DENSE_UP:
        intervals_add(&s, tp->dense), intervals_add(&s, interval_moved(tp->dense, c->dense.F));
        break;
    case WIDTH_DENSE_ACT:  intervals_add(&s, tp->dense); break;
    case WIDTH_GATE:       return intervals_whole(1);
    case WIDTH_BESIDE:     return intervals_whole(c->D * STREAMS(c));
    case WIDTH_MEAN:       return intervals_whole(c->D);
    case WIDTH_STREAMS:    return intervals_whole(STREAMS(c));
    }
    return s;
}

int64_t plan_columns(const struct plan *plan, int rank, enum activation_width width)
{
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    struct intervals columns = activation_columns(&tp, width, false);
    const int64_t total = intervals_total(&columns);
    intervals_free(&columns);
    return total;
}

/* A device's rows of a tensor in one microbatch; the columns are to be added. */
static struct part rows_of_part(const struct plan *plan, const struct tensor_parallel *tp, int rank,
                                enum activation_width width, int64_t cols, int micro)
{
    const bool tokens = width_of_tokens(width);
    struct part part = { .dim = { (tokens ? 1 : STREAMS(&plan->model)) * plan->B * plan->S, cols } };
    struct intervals rows = tokens ? plan_loss_rows(plan, rank, micro) : plan_rows(plan, rank, micro);
    intervals_add_part(&part.rows, &rows, tensor_rows_at(tp, place_of_width(width), intervals_total(&rows)));
    if (intervals_lost(&rows)) part.rows.room = -1;
    intervals_free(&rows);
    return part;
}

struct part plan_part(const struct plan *plan, int rank, enum activation_width width, int64_t cols, int micro,
                      bool gradient)
{
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    struct part part = rows_of_part(plan, &tp, rank, width, cols, micro);
    part.cols = activation_columns(&tp, width, gradient);
    return part;
}

struct part plan_copied_part(const struct plan *plan, int rank, enum activation_width width, int64_t cols, int micro)
{
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    if (width != WIDTH_QKV || tp.heads.copies == 1) return (struct part){ .dim = { 0, 0 } };
    struct part part = rows_of_part(plan, &tp, rank, width, cols, micro);
    add_keys(&part.cols, tp.config, tp.heads);
    return part;
}
