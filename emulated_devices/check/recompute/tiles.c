/* tiles.c -- some tokens of the batch, or some rows of a matrix, at a time: so memory grows with neither.
 *
 * A result whose rows are tokens is computed tile by tile.  A tile has any tokens where a row comes from that row only
 * (`by_rows`), else whole sequences: attention, and what knows positions.  Rows of experts are those of a tile's tokens
 * (routed.c); of parallel streams, which are one below the other, a tile has its tokens' rows of each.  Not in tiles: a
 * router's choices.
 * Gradients of parameters are sums over tiles (matrix.c, norm.c, embedding.c), and large ones are computed some rows, a
 * block, at a time.
 */
#include "emulated_devices/check/recompute/parts.h"

/* About nine such matrices of doubles are there at once.  A block costs a pass over what its gradient is made of, so it
 * is larger; a matrix is read for each tile of tokens, so these are not too few, for each expert. */
enum { USUAL_TILE = 1 << 18, USUAL_BLOCK = 1 << 21, LEAST_ROWS = 32 };

/* ---- what can be in tiles ---------------------------------------------------------------------------------------- */

/* The choices of a router are found from all of its logits. */
static bool node_fits(const struct single *s, const struct single_node *n, bool by_rows)
{
    (void)s;
    return n->operation && n->operation != &single_route && (!by_rows || n->operation->by_rows);
}

static bool inputs_fit(const struct single *, const struct single_node *, bool by_rows);

/* A slot that programs do not show is computed from what its maker reads. */
static bool value_fits(const struct single *s, int slot, bool by_rows)
{
    if (slot < 0 || !single_slot(s, slot)->unseen) return true;
    const struct single_node *maker = &s->context->graph->node[single_slot(s, slot)->maker];
    return node_fits(s, maker, by_rows) && inputs_fit(s, maker, by_rows);
}

static bool inputs_fit(const struct single *s, const struct single_node *n, bool by_rows)
{
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (!value_fits(s, n->in[k], by_rows)) return false;
    return true;
}

static bool is_read_by(const struct single_node *n, int slot)
{
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (n->in[k] == slot) return true;
    return false;
}

/* All that is added up to the gradient of a slot. */
static bool sum_fits(const struct single *s, int slot, bool by_rows)
{
    for (int v = 0; v < s->context->graph->nodes; v++) {
        const struct single_node *n = &s->context->graph->node[v];
        if (!is_read_by(n, slot)) continue;
        if (!node_fits(s, n, by_rows) || !inputs_fit(s, n, by_rows)) return false;
        if (single_slot(s, n->out)->unseen && !sum_fits(s, n->out, by_rows)) return false;
    }
    return true;
}

/* ---- how much is in one ------------------------------------------------------------------------------------------ */

static int64_t usual(const struct single *s, int64_t numbers)
{
    return s->context->source.tile ? s->context->source.tile : numbers;
}

static struct single_tiles tiles(const struct single *s, bool fits, bool by_rows, int64_t cols)
{
    const int64_t S = s->context->all.S, all = s->context->all.B * S, most = usual(s, USUAL_TILE) / cols,
                  experts = s->context->config->mlp == MLP_MIXTURE
                      ? s->context->config->mixture.E / s->context->config->mixture.k + 1 : 1,
                  least = s->context->source.tile ? 1 : LEAST_ROWS * experts, sequences = most / S < 1 ? 1 : most / S;
    struct single_tiles t = { .tokens = by_rows ? most < least ? least : most : sequences * S };
    if (!fits || s->context->source.fetch_rows == NULL || t.tokens > all) t.tokens = all;
    return t;
}

/* Whether so many rows are those of all tokens in each of several streams. */
static bool of_streams(const struct single *s, int64_t rows)
{
    return STREAMS(s->context->config) > 1 &&
           rows == STREAMS(s->context->config) * s->context->all.B * s->context->all.S;
}

/* Numbers of a token. */
static int64_t wider(const struct single *s, int slot, int64_t cols)
{
    const int64_t each = slot < 0 ? 1 : single_slot(s, slot)->route >= 0 ? s->context->config->mixture.k
                                      : of_streams(s, single_slot(s, slot)->rows) ? STREAMS(s->context->config) : 1;
    return slot >= 0 && each * single_slot(s, slot)->cols > cols ? each * single_slot(s, slot)->cols : cols;
}

static int64_t width_near(const struct single *s, const struct single_node *n, int64_t cols)
{
    cols = wider(s, n->out, cols);
    for (int k = 0; k < SINGLE_INPUTS; k++) cols = wider(s, n->in[k], cols);
    return cols;
}

static int64_t widest(const struct single *s)
{
    int64_t cols = 1;
    for (int i = 0; i < s->context->graph->slots; i++) cols = wider(s, i, cols);
    return cols;
}

struct single_tiles single_tiles_forward(const struct single *s, const struct single_node *n)
{
    const bool by_rows = node_fits(s, n, true) && inputs_fit(s, n, true);
    return tiles(s, node_fits(s, n, false) && inputs_fit(s, n, false), by_rows,
                 by_rows ? width_near(s, n, 1) : widest(s));
}

struct single_tiles single_tiles_gradient(const struct single *s, int slot)
{
    const bool by_rows = sum_fits(s, slot, true);
    int64_t cols = by_rows ? 1 : widest(s);
    for (int v = 0; v < s->context->graph->nodes && by_rows; v++)
        if (is_read_by(&s->context->graph->node[v], slot)) cols = width_near(s, &s->context->graph->node[v], cols);
    return tiles(s, sum_fits(s, slot, false), by_rows, cols);
}

struct single_tiles single_tiles_weight(const struct single *s, const struct single_node *n)
{
    const struct single_slot *out = single_slot(s, n->out);
    bool fits[2];
    for (int rows = 0; rows < 2; rows++)
        fits[rows] = (!rows || n->operation->weight_by_rows) && inputs_fit(s, n, rows) &&
                     (!out->unseen || sum_fits(s, n->out, rows));
    return tiles(s, fits[0], fits[1], width_near(s, n, 1));
}

int64_t single_block(const struct single *s, int64_t cols)
{
    const int64_t rows = usual(s, USUAL_BLOCK) / cols;
    return s->context->source.fetch_rows == NULL ? INT64_MAX : rows < 1 ? 1 : rows;
}

/* ---- taking one -------------------------------------------------------------------------------------------------- */

bool single_is_tile(const struct single *s) { return s->cursor.N < s->context->all.B * s->context->all.S; }

void single_take(struct single *s, int64_t first, int64_t tokens)
{
    const int64_t S = s->context->all.S;
    const bool sequences = first % S == 0 && tokens % S == 0;
    s->cursor.first = first, s->cursor.N = tokens;
    s->cursor.batch = s->context->all;
    s->cursor.batch.ids += first, s->cursor.batch.labels += first;
    s->cursor.batch.B = sequences ? tokens / S : 1, s->cursor.batch.S = sequences ? S : tokens;
}

void single_take_all(struct single *s) { single_take(s, 0, s->context->all.B * s->context->all.S); }

bool single_next_tile(struct single *s, struct single_tiles *t)
{
    const int64_t all = s->context->all.B * s->context->all.S, left = all - t->next;
    if (left <= 0) {
        single_take_all(s);
        return false;
    }
    single_take(s, t->next, left < t->tokens ? left : t->tokens);
    t->next += t->tokens;
    return true;
}

int64_t single_rows(const struct single *s, const struct single_slot *slot)
{
    return slot->rows == s->context->all.B * s->context->all.S ? s->cursor.N
           : of_streams(s, slot->rows)       ? STREAMS(s->context->config) * s->cursor.N : slot->rows;
}

bool single_in_streams(const struct single *s, int64_t rows)
{
    return single_is_tile(s) && STREAMS(s->context->config) > 1 && rows == STREAMS(s->context->config) * s->cursor.N;
}

int64_t single_row_of_whole(const struct single *s, int64_t rows, int64_t first, int64_t row)
{
    return single_in_streams(s, rows)
           ? row / s->cursor.N * s->context->all.B * s->context->all.S + s->cursor.first + row % s->cursor.N
               : first + row;
}

struct single_block single_block_of(const struct single *s, int64_t rows)
{
    return s->cursor.block.rows > 0 ? s->cursor.block : (struct single_block){ 0, rows };
}
