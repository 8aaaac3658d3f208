/* walk.c -- all results of a graph, each from what is behind it. */
#include "emulated_devices/check/recompute/routing.h"
#include <stdio.h>
#include <string.h>

static struct single_name act_name(const struct single_slot *slot)
{
    return single_name(slot->number ? "" : "act/", slot->name);
}

/* ---- what a pass reads ------------------------------------------------------------------------------------------- */

struct tensor single_param(struct single *s, int param)
{
    if (param < 0) return tensor_none;
    const struct param_spec p = model_param(s->context->config, param);
    return single_input(s, single_param_name(s, "start/", param), p.ndim > 1 ? p.dim[0] : 1, p.dim[p.ndim - 1]);
}

struct tensor single_param_block(struct single *s, int param, struct single_block block)
{
    const struct param_spec p = model_param(s->context->config, param);
    return single_input_block(s, single_param_name(s, "start/", param), block, p.dim[0], p.dim[1]);
}

/* An operation that has no such pass in recompute/: what needs it is not recomputed. */
static struct single_value not_known(struct single *s, const struct single_node *n)
{
    if (!s->reading.unknown) s->reading.unknown = n->operation ? n->operation->words : n->words;
    return single_stop(s);
}

static struct single_value run(struct single *s, const struct single_node *n, single_pass *pass)
{
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = pass ? pass(s, n) : not_known(s, n);
    return single_going(s) ? v : single_stop(s);
}

struct single_value single_attempt(struct single *s, const struct single_node *n, single_pass *pass)
{
    const struct single_reading outer = single_read_anew(s);
    const struct single_value v = run(s, n, pass);
    s->reading = outer;
    return v;
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    return run(s, n, n->operation ? n->operation->forward : NULL);
}

static int64_t rows_of(struct single *s, const struct single_slot *slot)
{
    return slot->route < 0 ? single_rows(s, slot) : routing_rows(s, slot);
}

/* The rows that experts compute of a tile's tokens. */
static struct tensor routed_input(struct single *s, struct single_name name, const struct single_slot *slot)
{
    enum single_found found = SINGLE_HAS;
    const struct routing r = routing_of(s, slot->route);
    const struct tensor t = single_going(s) ? routing_input(s, name, &r, slot->cols, &found) : tensor_none;
    if (single_going(s) && found != SINGLE_HAS) memcpy(s->reading.lacks, name.text, sizeof s->reading.lacks);
    return t;
}

static struct tensor input_of(struct single *s, struct single_name name, const struct single_slot *slot)
{
    if (slot->route >= 0 && single_is_tile(s)) return routed_input(s, name, slot);
    const int64_t rows = rows_of(s, slot);
    if (single_in_streams(s, rows)) return single_input_streams(s, name, rows, slot->cols);
    return rows == s->cursor.N ? single_input_rows(s, name, rows, slot->cols) : single_input(s, name, rows, slot->cols);
}

static struct single_sizes sizes_of(struct single *s, struct single_name name, struct tensor x,
                                    const struct single_slot *slot)
{
    if (slot->route >= 0 && single_is_tile(s)) {
        const struct routing r = routing_of(s, slot->route);
        return single_going(s) ? routing_sizes(s, name, &r, x) : (struct single_sizes){ .parts = 1 };
    }
    const bool of_tile = tensor_rows(x) == s->cursor.N || single_in_streams(s, tensor_rows(x));
    return single_sizes_of(s, name, x, of_tile ? single_first_row(s, s->cursor.N) : 0,
                           of_tile ? single_whole_rows(s, tensor_rows(x)) : 0);
}

/* The program's own.  If its ranks have parts of it, whoever reads it has added these up, one by one, and stored each
 * sum. */
static struct single_value fetched(struct single *s, struct single_name name, const struct single_slot *slot)
{
    const int64_t rows = rows_of(s, slot);
    const struct tensor y = input_of(s, name, slot);
    const struct single_value v = { .y = y, .fused = single_new(s, rows, slot->cols),
                                    .steps = single_new(s, rows, slot->cols), .stored = true };
    if (!single_going(s) || !single_has_parts(s, name)) return v;
    const struct single_sizes sizes = sizes_of(s, name, y, slot);
    for (int64_t i = 0; !s->failed && i < tensor_count(y); i++)
        numbers(v.fused)[i] = numbers(v.steps)[i] =
            (sizes.parts - 1) * rounding_when_stored(&s->rounding, numbers(sizes.absolute)[i], 0);
    return v;
}

struct single_value single_value_of(struct single *s, int i)
{
    const struct single_slot *slot = single_slot(s, i);
    if (!slot->unseen) return fetched(s, act_name(slot), slot);
    return single_settled(s, forward(s, &s->context->graph->node[slot->maker]));
}

/* Note what a summand of the current result comes from. */
static struct single_value noted(struct single *s, const struct single_node *n, enum single_pass_kind pass,
                                 single_pass *run, struct single_value v)
{
    if (s->verdict.terms < SINGLE_TERMS && v.status == SINGLE_DONE)
        s->verdict.term[s->verdict.terms++] = (struct single_term){ n, pass, run, v.y };
    return v;
}

/* result: it is the current result, not something behind it. */
static struct single_value gradient_sum(struct single *s, int slot, bool result)
{
    struct single_value term[SINGLE_TERMS];
    int terms = 0;
    for (int v = s->context->graph->nodes - 1; v >= 0; v--)
        for (int k = 0; k < SINGLE_INPUTS; k++) {
            const struct single_node *n = &s->context->graph->node[v];
            if (n->in[k] != slot || terms == SINGLE_TERMS) continue;
            single_pass *const pass = n->operation ? n->operation->input[k] : NULL;
            term[terms] = run(s, n, pass);
            if (result) noted(s, n, SINGLE_INPUT, pass, term[terms]);
            terms++;
        }
    if (terms == SINGLE_TERMS && !s->failed)
        s->failed = fail(s->context->err, ERR_PLAN, "%s has %d readers or more", single_slot(s, slot)->name,
                         SINGLE_TERMS);
    return terms > 0 && single_going(s) ? single_sum(s, term, terms) : single_stop(s);
}

struct single_value single_gradient_of(struct single *s, int i)
{
    const struct single_slot *slot = single_slot(s, i);
    if (!slot->unseen) return fetched(s, single_name("grad/", slot->name), slot);
    return single_settled(s, gradient_sum(s, i, false));
}

/* Whether a computed value has exact numbers. */
static bool is_exact(struct single_value v)
{
    for (int64_t i = 0; i < tensor_count(v.y); i++)
        if (numbers(v.fused)[i] > 0 || numbers(v.steps)[i] > 0) return false;
    return true;
}

static struct tensor exact(struct single *s, struct single_value v, struct single_name name)
{
    if (single_going(s) && !is_exact(v)) memcpy(s->reading.lacks, name.text, sizeof s->reading.lacks);
    return v.y;
}

/* A sum of parts is rounded by whoever reads it. */
static struct tensor whole(struct single *s, struct single_name name, const struct single_slot *of)
{
    const struct tensor x = input_of(s, name, of);
    if (single_going(s) && single_has_parts(s, name))
        snprintf(s->reading.lacks, sizeof s->reading.lacks, "the sum of the parts of %.*s", SINGLE_NAME - 32,
                 name.text);
    return x;
}

struct tensor single_act(struct single *s, int slot)
{
    const struct single_slot *of = single_slot(s, slot);
    if (!of->unseen) return whole(s, act_name(of), of);
    return exact(s, single_value_of(s, slot), act_name(of));
}

/* Of a hypothesis: gradients of some tokens only. */
static struct tensor of_counted(const struct single *s, struct tensor x)
{
    const int64_t cols = tensor_present(x) ? tensor_cols(x) : 0;
    for (int64_t r = 0; s->hypothesis.counted && !s->failed && cols > 0 && tensor_rows(x) == s->cursor.N &&
         r < s->cursor.N; r++)
        if (!s->hypothesis.counted[s->cursor.first + r])
            memset(numbers(x) + r * cols, 0, (size_t)cols * sizeof(double));
    return x;
}

struct tensor single_grad(struct single *s, int slot)
{
    const struct single_slot *of = single_slot(s, slot);
    if (!of->unseen) return of_counted(s, whole(s, single_name("grad/", of->name), of));
    return of_counted(s, exact(s, single_gradient_of(s, slot), single_name("grad/", of->name)));
}

struct tensor single_act_sized(struct single *s, int slot, struct single_sizes *sizes)
{
    const struct single_slot *of = single_slot(s, slot);
    const struct tensor x = of->unseen ? single_act(s, slot) : input_of(s, act_name(of), of);
    *sizes = (struct single_sizes){ .parts = 1 };
    if (single_going(s)) *sizes = sizes_of(s, act_name(of), x, of);
    return x;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static const char *words_of(const struct single_node *n, const char *words)
{
    return words ? words : n->operation && n->operation->words ? n->operation->words : n->words;
}

/* Dropout of rate 0 computes nothing. */
static bool is_nothing(const struct single_node *n) { return n->operation == &single_dropout && n->rate == 0; }

/* The words for a value: those of the first node before it that computes something. */
static const char *value_words(const struct single *s, const struct single_node *n)
{
    while (is_nothing(n) && n->in[0] >= 0) n = &s->context->graph->node[single_slot(s, n->in[0])->maker];
    return words_of(n, NULL);
}

/* The same of the rows that experts compute of a tile's tokens. */
static bool begin_routed(struct single *s, struct single_name name, const char *words, const struct single_slot *slot)
{
    enum single_found found = SINGLE_HAS_NOT;
    const struct routing r = routing_of(s, slot->route);
    const struct tensor have = single_going(s) ? routing_input(s, name, &r, slot->cols, &found) : tensor_none;
    if (single_going(s) && found == SINGLE_HAS) {
        single_begin_with(s, name, words, have);
        routing_note_rows(s, &r);
        s->verdict.result.head = slot->head, s->verdict.slot = slot;
        return true;
    }
    single_release(s, 0);
    return false;
}

static bool begin(struct single *s, struct single_name name, const char *words, const struct single_slot *slot)
{
    s->verdict.result = (struct single_result){ 0 };
    single_read_anew(s);
    if (!single_wanted(s, name)) return false;          /* nor are a router's choices, which counting rows makes */
    if (slot->route >= 0 && single_is_tile(s)) return begin_routed(s, name, words, slot);
    if (!single_begin(s, name, words, rows_of(s, slot), slot->cols)) return false;
    s->verdict.result.head = slot->head, s->verdict.slot = slot;
    return true;
}

/* What makes a result of the slot: the forward pass of a node, or its gradient. */
struct made { const struct single_slot *slot; const struct single_node *node; int gradient_of; const char *words; };

static struct single_value make(struct single *s, const struct made *m)
{
    return m->node ? forward(s, m->node) : gradient_sum(s, m->gradient_of, false);
}

static struct single_name made_name(const struct made *m)
{
    return m->node ? act_name(m->slot) : single_name("grad/", m->slot->name);
}

/* Compute tile by tile, as long as all is right.  @return whether it is, and has been reported. */
static bool right_in_tiles(struct single *s, const struct made *m)
{
    const int64_t all = s->context->all.B * s->context->all.S;
    struct single_tiles t = m->node ? single_tiles_forward(s, m->node) : single_tiles_gradient(s, m->gradient_of);
    struct single_result sum = { 0 };
    bool right = t.tokens < all && (m->slot->rows % all == 0 || m->slot->route >= 0);
    while (right && single_next_tile(s, &t))
        right = begin(s, made_name(m), m->words, m->slot) && single_end_tile(s, make(s, m), s->cursor.first, &sum);
    single_take_all(s);
    if (right) single_end_tiles(s, &sum, m->slot->route < 0 ? m->slot->rows : s->routed.rows);
    return right || s->failed;
}

static void check_forward(struct single *s, const struct single_node *n)
{
    const struct single_slot *slot = single_slot(s, n->out);
    const struct made made = { .slot = slot, .node = n, .words = value_words(s, n) };
    if (slot->unseen || right_in_tiles(s, &made) || !begin(s, act_name(slot), made.words, slot)) return;
    single_end(s, noted(s, n, SINGLE_FORWARD, n->operation ? n->operation->forward : NULL, forward(s, n)));
}

static bool reads(const struct single_node *n, int slot)
{
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (n->in[k] == slot) return true;
    return false;
}

/* The words for a gradient: those of its first reader that computes something. */
static const char *gradient_words(const struct single *s, int slot)
{
    const char *words = NULL;
    for (int v = 0; v < s->context->graph->nodes; v++) {
        const struct single_node *n = &s->context->graph->node[v];
        const struct single_operation *is = n->operation;
        if (!reads(n, slot) || (words && is && is->passes_on)) continue;
        words = is_nothing(n) ? gradient_words(s, n->out) : words_of(n, is ? is->input_words : NULL);
        if (is == NULL || !is->passes_on) return words;
    }
    return words;
}

static void check_gradient(struct single *s, int i)
{
    const struct single_slot *slot = single_slot(s, i);
    const struct made made = { .slot = slot, .gradient_of = i, .words = gradient_words(s, i) };
    if (slot->unseen || slot->number || right_in_tiles(s, &made)) return;
    if (!begin(s, made_name(&made), made.words, slot)) return;
    single_end(s, gradient_sum(s, i, true));
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static int experts_of(const struct single_node *n) { return n->experts > 0 ? n->experts : 1; }

/* The expert whose weight (or bias) a parameter is, if expert 0's is `first`; 0 of a node without experts; -1: it is
 * none's. */
static int64_t expert_of(const struct single_node *n, int first, int param)
{
    for (int e = 0; first >= 0 && e < experts_of(n); e++)
        if (first + e * n->stride == param) return e;
    return -1;
}

static bool has(const struct single_node *n, int param)
{
    return expert_of(n, n->weight, param) >= 0 || expert_of(n, n->bias, param) >= 0;
}

/* What a node contributes to a parameter's gradient. */
static struct single_value contribution(struct single *s, const struct single_node *n, int param)
{
    const enum single_pass_kind kind = expert_of(n, n->weight, param) >= 0 ? SINGLE_WEIGHT : SINGLE_BIAS;
    s->cursor.expert = expert_of(n, kind == SINGLE_WEIGHT ? n->weight : n->bias, param);
    single_pass *const pass = n->operation == NULL    ? NULL
                              : kind == SINGLE_WEIGHT ? n->operation->weight
                                                      : n->operation->bias;
    return noted(s, n, kind, pass, run(s, n, pass));
}

static bool is_first(const struct single *s, int v, int param)
{
    for (int before = 0; before < v; before++)
        if (has(&s->context->graph->node[before], param)) return false;
    return true;
}

/* All that is added up to the gradient of the parameter, from node v on. */
static struct single_value gradient_of_param(struct single *s, int v, int param)
{
    struct single_value term[SINGLE_TERMS];
    int terms = 0;
    for (int w = s->context->graph->nodes - 1; w >= v && terms < SINGLE_TERMS; w--)
        if (has(&s->context->graph->node[w], param))
            term[terms++] = contribution(s, &s->context->graph->node[w], param);
    return single_going(s) ? single_sum(s, term, terms) : single_stop(s);
}

static bool has_blocks(const struct single *s, int v, int param)
{
    for (int w = v; w < s->context->graph->nodes; w++) {
        const struct single_node *n = &s->context->graph->node[w];
        if (has(n, param) && (n->weight != param || n->operation == NULL || !n->operation->in_blocks)) return false;
    }
    return true;
}

/* As right_in_tiles, some rows of a matrix at a time. */
static bool right_in_blocks(struct single *s, int v, int param, const char *words)
{
    const struct param_spec p = model_param(s->context->config, param);
    const int64_t rows = p.dim[0], step = p.ndim > 1 ? single_block(s, p.dim[1]) : rows;
    struct single_result sum = { 0 };
    bool right = p.ndim > 1 && step < rows && has_blocks(s, v, param);
    for (int64_t first = 0; first < rows && right; first += step) {
        s->cursor.block = (struct single_block){ first, rows - first < step ? rows - first : step };
        right = single_begin_block(s, single_param_name(s, "grad/", param), words, s->cursor.block, rows, p.dim[1]) &&
                single_end_tile(s, gradient_of_param(s, v, param), first, &sum);
    }
    s->cursor.block = (struct single_block){ 0, 0 };
    if (right) single_end_tiles(s, &sum, rows);
    return right || s->failed;
}

static void check_param(struct single *s, int v, int param, const char *words)
{
    if (param < 0 || !is_first(s, v, param) || right_in_blocks(s, v, param, words)) return;
    const struct param_spec p = model_param(s->context->config, param);
    const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1];
    const struct single_node *n = &s->context->graph->node[v];
    if (!single_begin(s, single_param_name(s, "grad/", param), words, rows, cols)) return;
    if (n->operation == &single_matrix) {
        const int64_t out = single_slot(s, n->out)->head;
        s->verdict.result.row_head = p.ndim > 1 ? out : 0;
        s->verdict.result.head = p.ndim > 1 ? single_slot(s, n->in[0])->head : out;
    }
    single_end(s, gradient_of_param(s, v, param));
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static bool is_first_reader(const struct single *s, int v, int slot)
{
    for (int before = 0; before < v; before++)
        if (reads(&s->context->graph->node[before], slot)) return false;
    return true;
}

static void check_backward(struct single *s, int v)
{
    const struct single_node *n = &s->context->graph->node[v];
    const struct single_operation *is = n->operation;
    for (int e = 0; n->bias >= 0 && e < experts_of(n); e++)
        check_param(s, v, n->bias + e * n->stride, words_of(n, is ? is->bias_words : NULL));
    for (int e = 0; n->weight >= 0 && e < experts_of(n); e++)
        check_param(s, v, n->weight + e * n->stride, words_of(n, is ? is->weight_words : NULL));
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (n->in[k] >= 0 && is_first_reader(s, v, n->in[k])) check_gradient(s, n->in[k]);
}

enum error_code single_check(const struct model_config *c, const struct single_graph *graph, struct single_batch batch,
                             struct rounding rounding, struct single_source source, struct error *err)
{
    const struct single_context context = { c, graph, ops_for(F64), batch, source, err };
    struct single s = { .context = &context, .cursor = { .batch = batch, .N = batch.B * batch.S },
                        .rounding = rounding };
    for (int v = 0; v < graph->nodes; v++) check_forward(&s, &graph->node[v]);
    for (int v = graph->nodes - 1; v >= 0; v--) check_backward(&s, v);
    single_gradient_norm(&s);
    routing_forget(&s);
    single_close(&s);
    return s.failed;
}
