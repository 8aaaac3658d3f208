/* cover.c -- draws a batch that covers what coverage.c looks for: borders, repeats, ignored labels, experts.
 *
 * cli/golden/make.c calls cover_draw.  A step is drawn a few times, and the draw with the fewest gaps is kept.  Errors
 * are those of the model, which only a mixture runs, and ERR_MEMORY.
 */
#include "ref/golden/cover.h"
#include "ref/golden/coverage.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "ref/model/transformer.h"
#include "ref/model/weights.h"
#include "ref/numeric/philox.h"
#include <stdlib.h>
#include <string.h>

enum { DRAWS = 32 };

/* One draw of one step. */
struct draw {
    const struct golden *golden;
    int64_t step, number;
    int64_t kinds;                      /* different tokens that it may have; 0: all */
};

/* A number from 0 to before `below`. */
static int64_t drawn_below(const struct draw *draw, const char *what, int64_t index, int64_t below)
{
    const uint64_t at = (uint64_t)(draw->step << 40 | draw->number << 32 | index);
    return (int64_t)(random_uniform(draw->golden->seed, random_stream(what), at) * (double)below);
}

/* A token that may be an input.  Token `kinds` of a step with few kinds is token 0's neighbour again. */
static int32_t drawn_token(const struct draw *draw, int64_t index)
{
    const struct model_config *c = &draw->golden->config;
    const int64_t kind = draw->kinds ? drawn_below(draw, "kind of a covering token", index, draw->kinds) : index;
    const int64_t token = drawn_below(draw, "covering token", kind, c->V);
    return (int32_t)(token + 1 != c->padding ? token : token > 0 ? token - 1 : token + 1 < c->V);
}

static void drawn_order(const struct draw *draw, int64_t *list, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = drawn_below(draw, "place of a covering token", i, i + 1), was = list[i];
        list[i] = list[j], list[j] = was;
    }
}

/* Put tokens at borders of the vocabulary where they are an input and a label that counts. */
static void place_borders(const struct draw *draw, int32_t *stream, int64_t *rooms)
{
    const struct golden *g = draw->golden;
    int64_t token[COVERAGE_ALL_BORDERS], count = 0;
    const int borders = coverage_all_borders(&g->config, token);
    for (int64_t b = 0; b < g->B; b++)
        for (int64_t s = coverage_ignored(g, b) + 1; s < g->S; s++) rooms[count++] = b * (g->S + 1) + s;
    drawn_order(draw, rooms, count);
    for (int64_t i = 0; i < count && i < borders; i++) stream[rooms[i]] = (int32_t)token[i];
}

/* Count the labels that bf16 would hold exactly, and ignore one more. */
static void make_odd(const struct golden *golden, int32_t *labels)
{
    int64_t counted = 0, first = 0;
    for (int64_t i = 0; i < golden->B * golden->S; i++) counted += labels[i] != IGNORE_LABEL;
    while (labels[first] == IGNORE_LABEL) first++;
    if (counted % 2 == 0 && counted > 1) labels[first] = IGNORE_LABEL;
}

/* stream [B,S+1]: the tokens of a sequence, and the label of its last; rooms [B S] is scratch. */
static void draw_step(const struct draw *draw, int32_t *ids, int32_t *labels, int32_t *stream, int64_t *rooms)
{
    const struct golden *g = draw->golden;
    const int64_t S = g->S;
    for (int64_t i = 0; i < g->B * (S + 1); i++) stream[i] = drawn_token(draw, i);
    if (draw->kinds == 0) place_borders(draw, stream, rooms);
    /* The first token of the last sequence is its last one, too; no border has that place. */
    if (S > 1) stream[(g->B - 1) * (S + 1)] = stream[(g->B - 1) * (S + 1) + S - 1];
    for (int64_t b = 0; b < g->B; b++)
        for (int64_t s = 0; s < S; s++) {
            ids[b * S + s] = stream[b * (S + 1) + s];
            labels[b * S + s] = s < coverage_ignored(g, b) ? IGNORE_LABEL : stream[b * (S + 1) + s + 1];
        }
    make_odd(g, labels);
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

struct expert_count { const struct transformer *model; int64_t idle; };

/* Count the experts that no token of a layer chose, when its router has chosen. */
static void count_idle(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct expert_count *count = context;
    (void)t, (void)terms;
    if (gradient || strcmp(name, "router.weights") != 0) return;
    const struct tensor experts = count->model->block[layer].experts;
    const int32_t *chosen = experts.data;
    for (int64_t e = 0; e < count->model->config.mixture.E; e++) {
        bool found = false;
        for (int64_t i = 0; i < tensor_count(experts) && !found; i++) found = chosen[i] == e;
        count->idle += !found;
    }
}

/* The experts of all layers to which no token of a step goes.  @param model  NULL: no mixture, so none. */
static enum error_code cover_idle(struct transformer *model, const struct golden *golden, int64_t step, int64_t *idle,
                                  struct error *err)
{
    struct expert_count count = { .model = model };
    const int64_t at = step * golden->B * golden->S;
    double loss;
    *idle = 0;
    if (model == NULL) return OK;
    model->observer = (struct observer){ count_idle, &count };
    const enum error_code e = transformer_forward(model, golden->ids + at, golden->labels + at, golden->B, golden->S,
                                                  &loss, err);
    *idle = count.idle;
    return e;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

struct cover_scratch { int32_t *stream; int64_t *rooms; };

static void draw_into(struct golden *golden, const struct draw *draw, const struct cover_scratch *scratch)
{
    const int64_t at = draw->step * golden->B * golden->S;
    draw_step(draw, golden->ids + at, golden->labels + at, scratch->stream, scratch->rooms);
}

/* The first step is drawn until it has no gap that another draw could close, and every expert has a token. */
static enum error_code draw_first(struct golden *golden, struct transformer *model,
                                  const struct cover_scratch *scratch, struct error *err)
{
    int64_t best = 0, least = INT64_MAX;
    enum error_code e = OK;
    for (int64_t number = 0; number < DRAWS && least > 0 && !e; number++) {
        const struct draw draw = { .golden = golden, .number = number };
        int64_t idle;
        draw_into(golden, &draw, scratch);
        e = cover_idle(model, golden, 0, &idle, err);
        const int64_t gaps = coverage_gaps(&(struct coverage_view){ golden, NULL }, NULL) + idle;
        if (gaps < least) least = gaps, best = number;
    }
    if (!e) draw_into(golden, &(struct draw){ .golden = golden, .number = best }, scratch);
    return e;
}

/* The last step has as many kinds of tokens as leave a quarter of the spare experts without any.  The weights are those
 * of the start, so one idle expert might have a token when the step is made. */
static enum error_code draw_last(struct golden *golden, struct transformer *model, const struct cover_scratch *scratch,
                                 struct error *err)
{
    const struct mixture_config *x = &golden->config.mixture;
    const int64_t enough = (mixture_layers(&golden->config) * (x->E - x->k) + 3) / 4;
    enum error_code e = OK;
    int64_t idle = 0;
    for (int64_t kinds = golden->B * golden->S; kinds > 0 && idle < enough && !e; kinds /= 2) {
        draw_into(golden, &(struct draw){ .golden = golden, .step = golden->steps - 1, .kinds = kinds }, scratch);
        e = cover_idle(model, golden, golden->steps - 1, &idle, err);
    }
    return e;
}

static enum error_code cover_steps(struct golden *golden, struct transformer *model, struct error *err)
{
    const size_t n = (size_t)(golden->B * (golden->S + 1));
    struct cover_scratch scratch = { malloc(n * sizeof *scratch.stream), malloc(n * sizeof *scratch.rooms) };
    enum error_code e = scratch.stream && scratch.rooms ? OK : fail(err, ERR_MEMORY, "no memory to draw %zu tokens", n);
    for (int64_t step = 1; step < golden->steps && !e; step++)
        draw_into(golden, &(struct draw){ .golden = golden, .step = step }, &scratch);
    if (!e) e = draw_first(golden, model, &scratch, err);
    if (!e && model && golden->steps > 1) e = draw_last(golden, model, &scratch, err);
    free(scratch.stream), free(scratch.rooms);
    return e;
}

enum error_code cover_draw(struct golden *golden, const char *weights, struct error *err)
{
    struct transformer m;
    if (mixture_layers(&golden->config) == 0) return cover_steps(golden, NULL, err);
    enum error_code e = transformer_open(&m, &golden->config, F64, golden->seed, err);
    if (e) return e;
    if (weights) e = weights_load(&m, weights, err);
    if (!e) e = cover_steps(golden, &m, err);
    transformer_close(&m);
    return e;
}
