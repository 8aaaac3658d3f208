/* dump_experts.c -- the rows of a mixture's experts in a dump of ranks: choices of the whole batch, sorted by expert,
 * then by token (docs/checking/dumps.md).
 *
 * dump_ranks.c calls dump_ranks_experts on all devices.  A device has rows of its own experts; where they stand among
 * those of the batch follows from the choices of all tokens, which devices tell each other first.  Errors are
 * ERR_MEMORY, and ERR_CHECK if a row is of a token that has not chosen its expert.
 */
#include "emulated_devices/verify/dump/dump_pieces.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The places of a layer's rows among those of the batch. */
struct places {
    int32_t *at;                        /* [E, tokens] the row of each choice; -1: the token did not choose it */
    int64_t E, tokens, rows;            /* experts, tokens of the batch, choices that experts compute */
};

/* @param chosen  [tokens, k].  @return false without memory. */
static bool places_find(struct places *places, const int32_t *chosen, int64_t k)
{
    const int64_t all = places->E * places->tokens;
    places->at = malloc((size_t)(all + 1) * sizeof *places->at);
    if (places->at == NULL) return false;
    for (int64_t i = 0; i < all; i++) places->at[i] = -1;
    for (int64_t i = 0; i < places->tokens * k; i++)
        if (choice_is_computed(chosen[i], places->E)) places->at[chosen[i] * places->tokens + i / k] = 0;
    places->rows = 0;
    for (int64_t i = 0; i < all; i++)
        if (places->at[i] == 0) places->at[i] = (int32_t)places->rows++;
    return true;
}

/* A row of a piece: where it stands among those of the batch, and in memory. */
struct placed { int64_t at, from; };

static int placed_compare(const void *a, const void *b)
{
    const struct placed *const x = a, *const y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The devices that add up their results, as places along the axes in which they differ. */
static cJSON *experts_summed(const struct mesh *mesh, const struct kept_rows *kept)
{
    cJSON *partial = kept->devices > 0 ? cJSON_CreateObject() : NULL;
    for (enum axis axis = 0; axis < AXIS_COUNT && partial; axis++) {
        struct intervals places = { 0 };
        for (int place = 0; place < mesh->size[axis]; place++) {
            bool has = false;
            for (int i = 0; i < kept->devices; i++) has = has || mesh_coordinate(mesh, kept->device[i], axis) == place;
            if (has) intervals_add(&places, (struct interval){ place, 1 });
        }
        if (intervals_total(&places) > 1) cJSON_AddItemToObject(partial, axis_name(axis), dump_intervals(&places));
        intervals_free(&places);
    }
    return partial;
}

/* The columns of the whole that a piece has: with a gate, the same of both halves. */
static void add_columns(struct part *part, const struct kept_rows *kept, const struct model_config *config)
{
    const bool up = strcmp(kept->name, sorted_by_expert[0]) == 0, out = strcmp(kept->name, sorted_by_expert[2]) == 0;
    part->dim[1] = out ? config->D : (1 + up) * config->F;
    for (int half = 0; half <= up; half++) intervals_add(&part->cols, interval_moved(kept->columns, half * config->F));
}

/* One piece: its rows in the order of the batch's. */
static enum error_code add_rows(struct dump_ranks *ranks, const struct probes *probes, const char *key,
                                const struct kept_rows *kept, const struct places *places, double times,
                                struct error *err)
{
    const struct plan *plan = &probes->trainer->plan;
    const int64_t n = tensor_rows(kept->t);
    const size_t bytes = (size_t)tensor_cols(kept->t) * dtype_size(kept->t.dtype);
    struct part part = { .dim = { places->rows, 0 } };
    struct placed *placed = malloc((size_t)n * sizeof *placed);
    char *sorted = malloc((size_t)n * bytes + 1);
    for (int64_t i = 0; i < n && placed; i++)
        placed[i] = (struct placed){ places->at[kept->expert[i] * places->tokens + kept->row[i]], i };
    if (placed) qsort(placed, (size_t)n, sizeof *placed, placed_compare);
    for (int64_t i = 0; i < n && placed && sorted && placed[0].at >= 0; i++) {
        intervals_add(&part.rows, (struct interval){ placed[i].at, 1 });
        memcpy(sorted + (size_t)i * bytes, (const char *)kept->t.data + (size_t)placed[i].from * bytes, bytes);
    }
    add_columns(&part, kept, &plan->model);
    enum error_code e = placed && sorted && part_made(&part) ? OK : fail(err, ERR_MEMORY, "no memory to dump %s", key);
    if (!e && placed[0].at < 0)
        e = fail(err, ERR_CHECK, "%s: device %d computes a row of a token that has not chosen the expert", key,
                 probes->trainer->comm->rank);
    if (!e)
        e = dump_add_piece(ranks, key, &part, tensor_1d(sorted, kept->t.dtype, tensor_count(kept->t)), kept->micro,
                           times, experts_summed(&plan->mesh, kept), err);
    part_free(&part), free(placed), free(sorted);
    return e;
}

/* The rows of one layer. */
static enum error_code add_layer(struct dump_ranks *ranks, const struct probes *probes, const char *prefix, int layer,
                                 const struct places *places, double loss_scale, struct error *err)
{
    enum error_code e = OK;
    char name[64], key[RECORD_NAME];
    for (int i = 0; i < probes->sorted_count && !e; i++) {
        const struct kept_rows *const kept = &probes->sorted[i];
        if (kept->layer != layer) continue;
        activation_name(name, sizeof name, kept->name, layer, (int)probes->trainer->plan.model.L);
        /* A device that gathers slices of experts has several pieces of a microbatch. */
        snprintf(key, sizeof key, "%.40s%s/%s#%d.%d", prefix, kept->gradient ? "grad" : "act", name, kept->micro, i);
        e = add_rows(ranks, probes, key, kept, places, kept->gradient ? 1 / loss_scale : 1, err);
    }
    return e;
}

enum error_code dump_ranks_experts(struct dump_ranks *ranks, struct probes *probes, const char *prefix,
                                   double loss_scale, struct error *err)
{
    const struct plan *plan = &probes->trainer->plan;
    const struct mixture_config *m = &plan->model.mixture;
    const int64_t tokens = plan->B * plan->S;
    enum error_code e = OK;
    if (probes->routers == 0) return OK;
    int32_t *const chosen = probes_share_routes(probes);
    if (chosen == NULL || probes->sorted_room < 0) e = fail(err, ERR_MEMORY, "no memory to dump rows of experts");
    /* The entries behind those of tensors are the layers with experts. */
    for (int i = probes->count; i < probes->count + probes->routers && !e; i++) {
        const int l = probes->expected[i].layer;
        struct places places = { .E = m->E, .tokens = tokens };
        e = places_find(&places, chosen + l * tokens * m->k, m->k)
            ? add_layer(ranks, probes, prefix, l, &places, loss_scale, err)
            : fail(err, ERR_MEMORY, "no memory to dump rows of experts");
        free(places.at);
    }
    free(chosen);
    return comm_agree(probes->trainer->comm, e, err);
}
