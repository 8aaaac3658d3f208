/* walk.c -- all results of a graph, each from what is behind it.
 * single_check is called by replay.c and tests.  Passes of the operations read through this file; their results end
 * in verdict.c. */
#include "emulated_devices/check/recompute/summed.h"
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/config.h"
#include "ref/model/params.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of slots are "act/NAME"; numbers such as the loss have no prefix. */
static struct single_name act_name(const struct single_slot *slot)
{
    return single_name(slot->number ? "" : "act/", slot->name);
}

/* ---- what a pass reads ------------------------------------------------------------------------------------------- */

/* Weights are read where the step begins: the program's, or those of the golden file. */
struct tensor single_param(struct single *single, int param)
{
    if (param < 0) return tensor_none;
    const struct param_spec p = single_spec(single, param);
    return single_input(single, single_param_name(single, "start/", param), p.ndim > 1 ? p.dim[0] : 1,
                        p.dim[p.ndim - 1]);
}

struct tensor single_param_block(struct single *single, int param, struct single_block block)
{
    const struct param_spec p = single_spec(single, param);
    return single_input_block(single, single_param_name(single, "start/", param), block, p.dim[0], p.dim[1]);
}

/* An operation that recompute/ does not have: what needs it is not recomputed. */
static struct single_value not_known(struct single *single, const struct single_node *node)
{
    if (!single->reading.unknown) single->reading.unknown = node->operation ? node->operation->words : node->words;
    return single_stop(single);
}

/* Run a pass and turn a missing input into its status.  A sum of parts is no missing input if its rounding can be
 * bounded. */
static struct single_value walk_run(struct single *single, const struct single_node *node, single_pass *pass)
{
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = pass ? pass(single, node) : not_known(single, node);
    if (single->reading.sum.parts > 1 && single->reading.sum.take == SUM_LACKS && !single->failed)
        return sums_run(single, node, pass);
    return single_going(single) ? v : single_stop(single);
}

/* A pass that misses something does not stop who asks: the reading outside is kept and restored. */
struct single_value single_attempt(struct single *single, const struct single_node *node, single_pass *pass)
{
    const struct single_reading outer = single_read_anew(single);
    const struct single_value v = walk_run(single, node, pass);
    single->reading = outer;
    return v;
}

static struct single_value walk_forward(struct single *single, const struct single_node *node)
{
    return walk_run(single, node, node->operation ? node->operation->forward : NULL);
}

/* A slot has so many rows; those of a mixture follow from its choices. */
static int64_t walk_rows_of(struct single *single, const struct single_slot *slot)
{
    return slot->route < 0 ? single_rows(single, slot) : routing_rows(single, slot);
}

/* Read the rows that experts compute of a tile's tokens. */
static struct tensor routed_input(struct single *single, struct single_name name, const struct single_slot *slot)
{
    enum single_found found = SINGLE_HAS;
    const struct routing r = routing_of(single, slot->route);
    const struct tensor t = single_going(single) ? routing_input(single, name, &r, slot->cols, &found) : tensor_none;
    if (single_going(single) && found != SINGLE_HAS)
        memcpy(single->reading.lacks, name.text, sizeof single->reading.lacks);
    return t;
}

/* Read a slot's tensor for the tile: rows of experts, of streams, of tokens, or all of it. */
static struct tensor input_of(struct single *single, struct single_name name, const struct single_slot *slot)
{
    if (slot->route >= 0 && single_is_tile(single)) return routed_input(single, name, slot);
    const int64_t rows = walk_rows_of(single, slot);
    if (single_in_streams(single, rows)) return single_input_streams(single, name, rows, slot->cols);
    return rows == single->cursor.N ? single_input_rows(single, name, rows, slot->cols)
           : single_input(single, name, rows, slot->cols);
}

/* Sizes of the same rows, for sums of parts that ranks have. */
static struct single_sizes sizes_of(struct single *single, struct single_name name, struct tensor x,
                                    const struct single_slot *slot)
{
    if (slot->route >= 0 && single_is_tile(single)) {
        const struct routing r = routing_of(single, slot->route);
        return single_going(single) ? routing_sizes(single, name, &r, x) : (struct single_sizes){ .parts = 1 };
    }
    const bool of_tile = tensor_rows(x) == single->cursor.N || single_in_streams(single, tensor_rows(x));
    return single_sizes_of(single, name, x, of_tile ? single_first_row(single, single->cursor.N) : 0,
                           of_tile ? single_whole_rows(single, tensor_rows(x)) : 0);
}

/* These are the program's own numbers.  If its ranks have parts of them, the reader has added these up one by one
 * and stored each sum. */
static struct single_value fetched(struct single *single, struct single_name name, const struct single_slot *slot)
{
    const int64_t rows = walk_rows_of(single, slot);
    const struct tensor y = input_of(single, name, slot);
    const struct single_value v = { .y = y, .fused = single_new(single, rows, slot->cols),
                                    .steps = single_new(single, rows, slot->cols), .stored = true };
    if (!single_going(single) || !single_has_parts(single, name)) return v;
    const struct single_sizes sizes = sizes_of(single, name, y, slot);
    /* Both bounds have the parts' roundings, since the reader stores each sum. */
    for (int64_t i = 0; !single->failed && i < tensor_count(y); i++)
        numbers(v.fused)[i] = numbers(v.steps)[i] =
            (sizes.parts - 1) * rounding_when_stored(&single->rounding, numbers(sizes.absolute)[i], 0);
    return v;
}

/* A slot that programs do not show is computed from what its maker reads. */
struct single_value single_value_of(struct single *single, int i)
{
    const struct single_slot *slot = single_slot(single, i);
    if (!slot->unseen) return fetched(single, act_name(slot), slot);
    return single_settled(single, walk_forward(single, &single->context->graph->node[slot->maker]));
}

/* Note what a summand of the current result comes from: mistakes/ tries its operation. */
static struct single_value noted(struct single *single, const struct single_node *node, enum single_pass_kind pass,
                                 single_pass *walk_run, struct single_value value)
{
    if (single->verdict.terms < SINGLE_TERMS && value.status == SINGLE_DONE)
        single->verdict.term[single->verdict.terms++] = (struct single_term){ node, pass, walk_run, value.y };
    return value;
}

/* Make room for as many summands as nodes can give.  NULL: there is no memory, and single.failed is set. */
static struct single_value *walk_terms(struct single *single)
{
    struct single_value *term = calloc((size_t)single->context->graph->nodes * SINGLE_INPUTS + 1, sizeof *term);
    if (term == NULL && !single->failed)
        single->failed = fail(single->context->err, ERR_MEMORY, "no memory for the summands of %s",
                              single->verdict.result.name);
    return term;
}

/* Add the summands up, if none is missing, and free their list. */
static struct single_value walk_sum_of(struct single *single, struct single_value *term, int terms)
{
    const struct single_value sum = terms > 0 && single_going(single) ? single_sum(single, term, terms)
        : single_stop(single);
    free(term);
    return sum;
}

/* Add up what all readers contribute to a slot's gradient.  result: the sum is the current result, not something
 * behind it. */
static struct single_value gradient_sum(struct single *single, int slot, bool result)
{
    struct single_value *const term = walk_terms(single);
    int terms = 0;
    /* Readers are walked from the last to the first, as a backward pass meets them. */
    for (int v = single->context->graph->nodes - 1; v >= 0 && term; v--)
        for (int k = 0; k < SINGLE_INPUTS; k++) {
            const struct single_node *n = &single->context->graph->node[v];
            if (n->in[k] != slot) continue;
            single_pass *const pass = n->operation ? n->operation->input[k] : NULL;
            term[terms] = walk_run(single, n, pass);
            if (result) noted(single, n, SINGLE_INPUT, pass, term[terms]);
            terms++;
        }
    return walk_sum_of(single, term, terms);
}

/* The gradient of a slot that programs do not show is the sum of its readers' contributions. */
struct single_value single_gradient_of(struct single *single, int i)
{
    const struct single_slot *slot = single_slot(single, i);
    if (!slot->unseen) return fetched(single, single_name("grad/", slot->name), slot);
    return single_settled(single, gradient_sum(single, i, false));
}

/* Whether a computed value has exact numbers. */
static bool is_exact(struct single_value value)
{
    for (int64_t i = 0; i < tensor_count(value.y); i++)
        if (numbers(value.fused)[i] > 0 || numbers(value.steps)[i] > 0) return false;
    return true;
}

/* Operations that need exact numbers treat a computed one as missing if it may be off. */
static struct tensor exact(struct single *single, struct single_value value, struct single_name name)
{
    if (single_going(single) && !is_exact(value))
        memcpy(single->reading.lacks, name.text, sizeof single->reading.lacks);
    return value.y;
}

/* Read a sum of parts as the running pass wants it.  As the exact sum it counts as missing: sums_run then runs the pass
 * once more. */
static struct tensor walk_sum(struct single *single, struct single_name name, const struct single_slot *of, int parts,
                              bool gradient)
{
    struct single_sum_reading *const sum = &single->reading.sum;
    const bool is_wanted = sum->take != SUM_LACKS && sum->gradient == gradient;
    char which[24];
    snprintf(which, sizeof which, "part/%d/", sum->number);
    const struct tensor x = input_of(single, is_wanted && sum->take == SUM_PART ? single_name(which, name.text) : name,
                                     of);
    if (!single_going(single) || (!is_wanted && single->hypothesis.sums)) return x;
    if (is_wanted && sum->take == SUM_PROBE) sums_probe(single, x, sizes_of(single, name, x, of));
    else if (!is_wanted) {
        snprintf(single->reading.lacks, sizeof single->reading.lacks, "the sum of the parts of %.*s", SINGLE_NAME - 32,
                 name.text);
        sum->parts = parts, sum->gradient = gradient;
    }
    return x;
}

/* Read a tensor for operations that need exact numbers. */
static struct tensor walk_whole(struct single *single, struct single_name name, const struct single_slot *of,
                                bool gradient)
{
    const int parts = single_going(single) ? single_parts(single, name) : 1;
    return parts > 1 ? walk_sum(single, name, of, parts, gradient) : input_of(single, name, of);
}

struct tensor single_act(struct single *single, int slot)
{
    const struct single_slot *of = single_slot(single, slot);
    if (!of->unseen) return walk_whole(single, act_name(of), of, false);
    return exact(single, single_value_of(single, slot), act_name(of));
}

/* A hypothesis may count the gradients of some tokens, or columns, only: all other rows, or columns, become zero. */
static struct tensor of_counted(const struct single *single, struct tensor x)
{
    const int64_t cols = tensor_present(x) ? tensor_cols(x) : 0, first = single->hypothesis.first_column,
        end = first + single->hypothesis.columns;
    for (int64_t i = 0; end > first && !single->failed && cols > 0 && i < tensor_count(x); i++)
        if (i % cols < first || i % cols >= end) numbers(x)[i] = 0;
    for (int64_t r = 0; single->hypothesis.counted && !single->failed && cols > 0
         && tensor_rows(x) == single->cursor.N && r < single->cursor.N; r++)
        if (!single->hypothesis.counted[single->cursor.first + r])
            memset(numbers(x) + r * cols, 0, (size_t)cols * sizeof(double));
    return x;
}

struct tensor single_grad(struct single *single, int slot)
{
    const struct single_slot *of = single_slot(single, slot);
    if (!of->unseen) return of_counted(single, walk_whole(single, single_name("grad/", of->name), of, true));
    return of_counted(single, exact(single, single_gradient_of(single, slot), single_name("grad/", of->name)));
}

/* An operation that each rank applies to its part needs the sizes of the parts. */
struct tensor single_act_sized(struct single *single, int slot, struct single_sizes *sizes)
{
    const struct single_slot *of = single_slot(single, slot);
    const struct tensor x = of->unseen ? single_act(single, slot) : input_of(single, act_name(of), of);
    *sizes = (struct single_sizes){ .parts = 1 };
    if (single_going(single)) *sizes = sizes_of(single, act_name(of), x, of);
    return x;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static const char *words_of(const struct single_node *node, const char *words)
{
    return words ? words : node->operation && node->operation->words ? node->operation->words : node->words;
}

/* Dropout of rate 0 computes nothing. */
static bool is_nothing(const struct single_node *node) { return node->operation == &single_dropout && node->rate == 0; }

/* The words for a value: those of the first node before it that computes something. */
static const char *value_words(const struct single *single, const struct single_node *node)
{
    while (is_nothing(node) && node->in[0] >= 0)
        node = &single->context->graph->node[single_slot(single, node->in[0])->maker];
    return words_of(node, NULL);
}

/* Begin a result of the rows that experts compute of a tile's tokens. */
static bool begin_routed(struct single *single, struct single_name name, const char *words,
                         const struct single_slot *slot)
{
    enum single_found found = SINGLE_HAS_NOT;
    const struct routing r = routing_of(single, slot->route);
    const struct tensor have = single_going(single) ? routing_input(single, name, &r, slot->cols, &found) : tensor_none;
    if (single_going(single) && found == SINGLE_HAS) {
        single_begin_with(single, name, words, have);
        routing_note_rows(single, &r);
        single->verdict.result.head = slot->head, single->verdict.slot = slot;
        return true;
    }
    single_release(single, 0);
    return false;
}

/* The parts' sizes of a result that ranks have parts of: each part is rounded when it is stored. */
static void note_parts(struct single *single, struct single_name name, const struct single_slot *slot)
{
    if (single_going(single) && single_has_parts(single, name))
        single->verdict.absolute = sizes_of(single, name, single->verdict.have, slot).absolute;
}

/* Begin a result of a slot: what it is made of is noted for its place and for diagnoses. */
static bool walk_begin(struct single *single, struct single_name name, const char *words,
                       const struct single_slot *slot)
{
    single->verdict.result = (struct single_result){ 0 };
    single_read_anew(single);
    if (!single_wanted(single, name)) return false;          /* nor are a router's choices, which counting rows makes */
    if (slot->route >= 0 && single_is_tile(single)) return begin_routed(single, name, words, slot);
    if (!single_begin(single, name, words, walk_rows_of(single, slot), slot->cols)) return false;
    single->verdict.result.head = slot->head, single->verdict.slot = slot;
    note_parts(single, name, slot);
    return true;
}

/* A result of a slot: the forward pass of a node, or the gradient of the slot. */
struct made { const struct single_slot *slot; const struct single_node *node; int gradient_of; const char *words; };

static struct single_value walk_make(struct single *single, const struct made *made)
{
    const struct single_node *const node = made->node;
    if (node == NULL) return gradient_sum(single, made->gradient_of, true);
    return noted(single, node, SINGLE_FORWARD, node->operation ? node->operation->forward : NULL,
                 walk_forward(single, node));
}

static struct single_name made_name(const struct made *made)
{
    return made->node ? act_name(made->slot) : single_name("grad/", made->slot->name);
}

/* How many rows the result has. */
static int64_t rows_of_made(const struct single *single, const struct made *made)
{
    return made->slot->route < 0 ? made->slot->rows : single->routed.rows;
}

/* Say why a result is wrong that is too large to be looked at as a whole: by a tile that begins with the first wrong
 * sequence; with the first wrong token, if a tile is smaller than a sequence.  @return whether it was computed. */
static bool explain_window(struct single *single, const struct made *made, const struct single_tally *tally,
                           int64_t tokens)
{
    const int64_t S = single->context->all.S, all = single->context->all.B * S, unit = tokens < S ? 1 : S,
                  /* Rows of streams, and of experts, are several of a token: the tile's first token is near enough. */
                  token = tally->token + (made->slot->rows == all && made->slot->route < 0 ? tally->row : 0),
                  count = tokens / unit * unit, last = all - count;
    single_take(single, token / unit * unit < last ? token / unit * unit : last, count);
    const bool explained = walk_begin(single, made_name(made), made->words, made->slot) &&
                           single_end_window(single, walk_make(single, made), single->cursor.first, tally,
                                             rows_of_made(single, made));
    single_take_all(single);
    return explained;
}

/* Compute a result tile by tile, and say of some of it why it is wrong.  @return whether it has been reported. */
static bool judged_in_tiles(struct single *single, const struct made *made)
{
    const int64_t all = single->context->all.B * single->context->all.S;
    struct single_tiles t = made->node ? single_tiles_forward(single, made->node)
        : single_tiles_gradient(single, made->gradient_of);
    struct single_tally tally = { 0 };
    /* Only results whose rows are tokens, or choices of tokens, are cut. */
    bool judged = t.tokens < all && (made->slot->rows % all == 0 || made->slot->route >= 0);
    while (judged && single_next_tile(single, &t))
        judged = walk_begin(single, made_name(made), made->words, made->slot)
            && single_count_tile(single, walk_make(single, made), single->cursor.first, &tally);
    single_take_all(single);
    if (judged && tally.sum.wrong > 0) judged = explain_window(single, made, &tally, t.tokens);
    else if (judged) single_end_tiles(single, &tally, rows_of_made(single, made));
    free(tally.col);
    return judged || single->failed;
}

/* Check a node's value.  A slot that programs do not show has no value to compare. */
static void walk_check_forward(struct single *single, const struct single_node *node)
{
    const struct single_slot *slot = single_slot(single, node->out);
    const struct made made = { .slot = slot, .node = node, .words = value_words(single, node) };
    if (!single_wanted(single, made_name(&made)) || slot->unseen || judged_in_tiles(single, &made)) return;
    if (!walk_begin(single, act_name(slot), made.words, slot)) return;
    single_end(single, walk_make(single, &made));
}

static bool walk_reads(const struct single_node *node, int slot)
{
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (node->in[k] == slot) return true;
    return false;
}

/* The words for a gradient: those of its first reader that computes something. */
static const char *gradient_words(const struct single *single, int slot)
{
    const char *words = NULL;
    for (int v = 0; v < single->context->graph->nodes; v++) {
        const struct single_node *n = &single->context->graph->node[v];
        const struct single_operation *is = n->operation;
        if (!walk_reads(n, slot) || (words && is && is->passes_on)) continue;
        words = is_nothing(n) ? gradient_words(single, n->out) : words_of(n, is ? is->input_words : NULL);
        if (is == NULL || !is->passes_on) return words;
    }
    return words;
}

/* Numbers, such as the loss, have no gradient. */
static void check_gradient(struct single *single, int i)
{
    const struct single_slot *slot = single_slot(single, i);
    const struct made made = { .slot = slot, .gradient_of = i, .words = gradient_words(single, i) };
    if (!single_wanted(single, made_name(&made)) || slot->unseen || slot->number || judged_in_tiles(single, &made))
        return;
    if (!walk_begin(single, made_name(&made), made.words, slot)) return;
    single_end(single, walk_make(single, &made));
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* These are the experts that a node computes; a node without them has one matrix. */
static int experts_of(const struct single_node *node) { return node->experts > 0 ? node->experts : 1; }

/* Find the expert whose weight or bias a parameter is, if expert 0's is `first`.  0: the node has no experts; -1: the
 * parameter is none of them. */
static int64_t expert_of(const struct single_node *node, int first, int param)
{
    const int from = param - first;
    if (first < 0 || from < 0) return -1;
    if (node->stride == 0) return from == 0 ? 0 : -1;
    return from % node->stride == 0 && from / node->stride < experts_of(node) ? from / node->stride : -1;
}

static bool has(const struct single_node *node, int param)
{
    return expert_of(node, node->weight, param) >= 0 || expert_of(node, node->bias, param) >= 0;
}

/* A node contributes this to a parameter's gradient.  The cursor says which expert's rows are added. */
static struct single_value contribution(struct single *single, const struct single_node *node, int param)
{
    const enum single_pass_kind kind = expert_of(node, node->weight, param) >= 0 ? SINGLE_WEIGHT : SINGLE_BIAS;
    single->cursor.expert = expert_of(node, kind == SINGLE_WEIGHT ? node->weight : node->bias, param);
    single_pass *const pass = node->operation == NULL    ? NULL
                              : kind == SINGLE_WEIGHT ? node->operation->weight
                                                      : node->operation->bias;
    return noted(single, node, kind, pass, walk_run(single, node, pass));
}

/* A parameter that several nodes have is reported once, at the first of them. */
static bool is_first(const struct single *single, int v, int param)
{
    for (int before = 0; before < v; before++)
        if (has(&single->context->graph->node[before], param)) return false;
    return true;
}

/* Add up all contributions to the gradient of a parameter, from node v on. */
struct single_value single_gradient_of_param(struct single *single, int v, int param)
{
    struct single_value *const term = walk_terms(single);
    int terms = 0;
    /* Terms are added in the order of a backward pass. */
    for (int w = single->context->graph->nodes - 1; w >= v && term; w--)
        if (has(&single->context->graph->node[w], param))
            term[terms++] = contribution(single, &single->context->graph->node[w], param);
    return walk_sum_of(single, term, terms);
}

/* All nodes with the parameter must have a pass for some rows of its gradient. */
static bool has_blocks(const struct single *single, int v, int param)
{
    for (int w = v; w < single->context->graph->nodes; w++) {
        const struct single_node *n = &single->context->graph->node[w];
        if (has(n, param) && (n->weight != param || n->operation == NULL || !n->operation->in_blocks)) return false;
    }
    return true;
}

/* A matrix of heads has the columns of its inputs and outputs. */
static void note_heads(struct single *single, int v, bool matrix)
{
    const struct single_node *n = &single->context->graph->node[v];
    if (n->operation != &single_matrix) return;
    const int64_t out = single_slot(single, n->out)->head;
    single->verdict.result.row_head = matrix ? out : 0;
    single->verdict.result.head = matrix ? single_slot(single, n->in[0])->head : out;
}

/* Begin a block of a parameter's gradient.  The cursor's block tells each summand which rows are asked for. */
static bool begin_block(struct single *single, int v, int param, const char *words, struct single_block block)
{
    const struct param_spec p = single_spec(single, param);
    single->cursor.block = block;
    const bool begun = single_begin_block(single, single_param_name(single, "grad/", param), words, block,
                                          block.rows < p.dim[0] ? p.dim[0] : 0, p.dim[1]);
    if (begun) note_heads(single, v, true);
    return begun;
}

/* Say why a large matrix is wrong, by a block of it that has the first wrong row.  @return whether it was computed. */
static bool explain_block(struct single *single, int v, int param, const char *words, const struct single_tally *tally)
{
    const struct param_spec p = single_spec(single, param);
    const int64_t rows = single_window(single, p.dim[1]), first = tally->sum.first_row, last = p.dim[0] - rows;
    const struct single_block block = { last < 0 ? 0 : first < last ? first : last, last < 0 ? p.dim[0] : rows };
    return begin_block(single, v, param, words, block) &&
           single_end_window(single, single_gradient_of_param(single, v, param), block.first, tally, p.dim[0]);
}

/* This does the same as judged_in_tiles, with some rows of a matrix at a time.  A matrix that is one block is computed
 * again as a whole if it is wrong. */
static bool judged_in_blocks(struct single *single, int v, int param, const char *words)
{
    const struct param_spec p = single_spec(single, param);
    const int64_t rows = p.dim[0], step = p.ndim > 1 ? single_block(single, p.dim[1]) : rows;
    struct single_tally tally = { 0 };
    /* Known parts are added up only if their estimate does not hold. */
    bool judged = p.ndim > 1 && (step < rows || single_knows_parts(single)) && has_blocks(single, v, param);
    for (int64_t first = 0; first < rows && judged; first += step)
        judged = begin_block(single, v, param, words,
                             (struct single_block){ first, rows - first < step ? rows - first : step }) &&
                 single_count_tile(single, single_gradient_of_param(single, v, param), first, &tally);
    if (judged && tally.sum.wrong > 0) judged = step < rows && explain_block(single, v, param, words, &tally);
    else if (judged) single_end_tiles(single, &tally, rows);
    single->cursor.block = (struct single_block){ 0, 0 };
    free(tally.col);
    return judged || single->failed;
}

/* Check a parameter's gradient. */
static void check_param(struct single *single, int v, int param, const char *words)
{
    if (param < 0 || !single_wanted(single, single_param_name(single, "grad/", param)) || !is_first(single, v, param) ||
        judged_in_blocks(single, v, param, words)) return;
    const struct param_spec p = single_spec(single, param);
    const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1];
    /* The program may not have this gradient. */
    if (!single_begin(single, single_param_name(single, "grad/", param), words, rows, cols)) return;
    note_heads(single, v, p.ndim > 1);
    single_end(single, single_gradient_of_param(single, v, param));
}

/* Check a weight's gradient, then those of its adapters. */
static void walk_check_weight(struct single *single, int v, int param, const char *words)
{
    check_param(single, v, param, words);
    if (single->context->source.adapters && is_first(single, v, param)) single_check_adapters(single, v, param);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* A slot that several nodes read is reported once. */
static bool is_first_reader(const struct single *single, int v, int slot)
{
    for (int before = 0; before < v; before++)
        if (walk_reads(&single->context->graph->node[before], slot)) return false;
    return true;
}

/* Check the gradients of the node's parameters, then those of its inputs. */
static void walk_check_backward(struct single *single, int v)
{
    const struct single_node *n = &single->context->graph->node[v];
    const struct single_operation *is = n->operation;
    for (int e = 0; n->bias >= 0 && e < experts_of(n); e++)
        check_param(single, v, n->bias + e * n->stride, words_of(n, is ? is->bias_words : NULL));
    for (int e = 0; n->weight >= 0 && e < experts_of(n); e++)
        walk_check_weight(single, v, n->weight + e * n->stride, words_of(n, is ? is->weight_words : NULL));
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (n->in[k] >= 0 && is_first_reader(single, v, n->in[k])) check_gradient(single, n->in[k]);
}

/* Results are reported in the order in which a program computes them, backward in reverse order.  The norm of all
 * gradients comes last. */
enum error_code single_check(const struct model_config *config, const struct single_graph *graph,
                             struct single_batch batch,
                             struct rounding rounding, struct single_source source, struct error *err)
{
    const struct single_context context = { config, graph, ops_for(F64), batch, source, err };
    struct single s = { .context = &context, .cursor = { .batch = batch, .N = batch.B * batch.S },
                        .rounding = rounding };
    for (int v = 0; v < graph->nodes; v++) walk_check_forward(&s, &graph->node[v]);
    for (int v = graph->nodes - 1; v >= 0; v--) walk_check_backward(&s, v);
    single_gradient_norm(&s);
    routing_forget(&s);
    single_close(&s);
    return s.failed;
}
