/* tiles.c -- some tokens of the batch, or some rows of a matrix, at a time: so memory grows with neither.
 *
 * A result whose rows are tokens is computed tile by tile.  A tile has any tokens where a row comes from that row only
 * (`by_rows`), else whole sequences: attention, and what knows positions.  Rows of experts are those of a tile's tokens
 * (routed.c); of parallel streams, which are one below the other, a tile has its tokens' rows of each.  Not in tiles: a
 * router's choices.
 * Gradients of parameters are sums over tiles (matrix.c, norm.c, embedding.c), and large ones are computed some rows, a
 * block, at a time.
 * walk.c asks how many tokens a result can be cut into; operations ask for blocks.  Memory is then that of about nine
 * matrices.
 */
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"

/* About nine such matrices of doubles are there at once.  A block costs a pass over what its gradient is made of, so it
 * is larger; a matrix is read for each tile of tokens, so these are not too few, for each expert. */
enum { USUAL_TILE = 1 << 18, USUAL_BLOCK = 1 << 21, LEAST_ROWS = 32 };

/* ---- what can be in tiles ---------------------------------------------------------------------------------------- */

/* Whether a node can be computed in tiles.  A router's choices are found from all of its logits. */
static bool node_fits(const struct single *single, const struct single_node *node, bool by_rows)
{
    (void)single;
    return node->operation && node->operation != &single_route && (!by_rows || node->operation->by_rows);
}

static bool inputs_fit(const struct single *, const struct single_node *, bool by_rows);

/* Whether a slot's value can be read in tiles.  A slot that programs do not show is computed from what its maker
 * reads. */
static bool value_fits(const struct single *single, int slot, bool by_rows)
{
    if (slot < 0 || !single_slot(single, slot)->unseen) return true;
    const struct single_node *maker = &single->context->graph->node[single_slot(single, slot)->maker];
    return node_fits(single, maker, by_rows) && inputs_fit(single, maker, by_rows);
}

static bool inputs_fit(const struct single *single, const struct single_node *node, bool by_rows)
{
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (!value_fits(single, node->in[k], by_rows)) return false;
    return true;
}

/* Whether the slot is an input of the node. */
static bool is_read_by(const struct single_node *node, int slot)
{
    for (int k = 0; k < SINGLE_INPUTS; k++)
        if (node->in[k] == slot) return true;
    return false;
}

/* Whether all summands of a slot's gradient can be computed in tiles. */
static bool sum_fits(const struct single *single, int slot, bool by_rows)
{
    for (int v = 0; v < single->context->graph->nodes; v++) {
        const struct single_node *n = &single->context->graph->node[v];
        if (!is_read_by(n, slot)) continue;
        if (!node_fits(single, n, by_rows) || !inputs_fit(single, n, by_rows)) return false;
        if (single_slot(single, n->out)->unseen && !sum_fits(single, n->out, by_rows)) return false;
    }
    return true;
}

/* ---- how much is in one ------------------------------------------------------------------------------------------ */

/* The source may ask for a smaller unit; tests do, to see tiles of every size. */
static int64_t usual(const struct single *single, int64_t numbers)
{
    return single->context->source.tile ? single->context->source.tile : numbers;
}

/* How many tokens a tile has: enough numbers, or whole sequences.  Below LEAST_ROWS rows of an expert a tile costs
 * more than it saves. */
static struct single_tiles tiles(const struct single *single, bool fits, bool by_rows, int64_t cols)
{
    const int64_t S = single->context->all.S, all = single->context->all.B * S, most = usual(single, USUAL_TILE) / cols,
                  experts = single->context->config->mlp == MLP_MIXTURE
                      ? single->context->config->mixture.E / single->context->config->mixture.k + 1 : 1,
                  least = single->context->source.tile ? 1 : LEAST_ROWS * experts, sequences = most / S < 1
                      ? 1 : most / S;
    struct single_tiles t = { .tokens = by_rows ? most < least ? least : most : sequences * S };
    if (!fits || single->context->source.fetch_rows == NULL || t.tokens > all) t.tokens = all;
    return t;
}

/* Whether so many rows are those of all tokens in each of several streams. */
static bool of_streams(const struct single *single, int64_t rows)
{
    return STREAMS(single->context->config) > 1 &&
           rows == STREAMS(single->context->config) * single->context->all.B * single->context->all.S;
}

/* This is the larger of cols and the numbers that a token has in a slot. */
static int64_t wider(const struct single *single, int slot, int64_t cols)
{
    const int64_t each = slot < 0 ? 1 : single_slot(single, slot)->route >= 0 ? single->context->config->mixture.k
                                      : of_streams(single, single_slot(single, slot)->rows)
                                          ? STREAMS(single->context->config) : 1;
    return slot >= 0 && each * single_slot(single, slot)->cols > cols ? each * single_slot(single, slot)->cols : cols;
}

/* Find the width of the widest tensor that a node reads or makes. */
static int64_t width_near(const struct single *single, const struct single_node *node, int64_t cols)
{
    cols = wider(single, node->out, cols);
    for (int k = 0; k < SINGLE_INPUTS; k++) cols = wider(single, node->in[k], cols);
    return cols;
}

/* Without tiles by rows, a tile must hold the widest tensor of the graph. */
static int64_t widest(const struct single *single)
{
    int64_t cols = 1;
    for (int i = 0; i < single->context->graph->slots; i++) cols = wider(single, i, cols);
    return cols;
}

/* by_rows is asked first: any number of tokens is better than whole sequences. */
struct single_tiles single_tiles_forward(const struct single *single, const struct single_node *node)
{
    const bool by_rows = node_fits(single, node, true) && inputs_fit(single, node, true);
    return tiles(single, node_fits(single, node, false) && inputs_fit(single, node, false), by_rows,
                 by_rows ? width_near(single, node, 1) : widest(single));
}

struct single_tiles single_tiles_gradient(const struct single *single, int slot)
{
    const bool by_rows = sum_fits(single, slot, true);
    int64_t cols = by_rows ? 1 : widest(single);
    for (int v = 0; v < single->context->graph->nodes && by_rows; v++)
        if (is_read_by(&single->context->graph->node[v], slot))
            cols = width_near(single, &single->context->graph->node[v], cols);
    return tiles(single, sum_fits(single, slot, false), by_rows, cols);
}

/* fits[0]: in tiles of sequences; fits[1]: in tiles of any tokens. */
struct single_tiles single_tiles_weight(const struct single *single, const struct single_node *node)
{
    const struct single_slot *out = single_slot(single, node->out);
    bool fits[2];
    for (int rows = 0; rows < 2; rows++)
        fits[rows] = (!rows || node->operation->weight_by_rows) && inputs_fit(single, node, rows) &&
                     (!out->unseen || sum_fits(single, node->out, rows));
    return tiles(single, fits[0], fits[1], width_near(single, node, 1));
}

/* Sources that cannot read rows give the whole matrix at once. */
int64_t single_block(const struct single *single, int64_t cols)
{
    const int64_t rows = usual(single, USUAL_BLOCK) / cols;
    return single->context->source.fetch_rows == NULL ? INT64_MAX : rows < 1 ? 1 : rows;
}

int64_t single_window(const struct single *single, int64_t cols)
{
    const int64_t rows = usual(single, USUAL_TILE) / cols;
    return rows < 1 ? 1 : rows;
}

/* ---- taking one -------------------------------------------------------------------------------------------------- */

bool single_is_tile(const struct single *single) { return single->cursor.N < single->context->all.B
                                                  * single->context->all.S; }

/* A tile that is not whole sequences is taken as a single sequence.  Only operations that know no positions are
 * given such tiles. */
void single_take(struct single *single, int64_t first, int64_t tokens)
{
    const int64_t S = single->context->all.S;
    const bool sequences = first % S == 0 && tokens % S == 0;
    single->cursor.first = first, single->cursor.N = tokens;
    single->cursor.batch = single->context->all;
    single->cursor.batch.ids += first, single->cursor.batch.labels += first;
    if (single->cursor.batch.positions) single->cursor.batch.positions += first;
    single->cursor.batch.B = sequences ? tokens / S : 1, single->cursor.batch.S = sequences ? S : tokens;
}

void single_take_all(struct single *single) { single_take(single, 0, single->context->all.B * single->context->all.S); }

/* The cursor is left on the whole batch when the last tile has been taken. */
bool single_next_tile(struct single *single, struct single_tiles *tiles)
{
    const int64_t all = single->context->all.B * single->context->all.S, left = all - tiles->next;
    if (left <= 0) {
        single_take_all(single);
        return false;
    }
    single_take(single, tiles->next, left < tiles->tokens ? left : tiles->tokens);
    tiles->next += tiles->tokens;
    return true;
}

/* A slot has so many rows in the tile: tokens, tokens of each stream, or all rows of anything else. */
int64_t single_rows(const struct single *single, const struct single_slot *slot)
{
    return slot->rows == single->context->all.B * single->context->all.S ? single->cursor.N
           : of_streams(single, slot->rows)       ? STREAMS(single->context->config) * single->cursor.N : slot->rows;
}

bool single_in_streams(const struct single *single, int64_t rows)
{
    return single_is_tile(single) && STREAMS(single->context->config) > 1
           && rows == STREAMS(single->context->config) * single->cursor.N;
}

int64_t single_row_of_whole(const struct single *single, int64_t rows, int64_t first, int64_t row)
{
    return single_in_streams(single, rows)
           ? row / single->cursor.N * single->context->all.B * single->context->all.S + single->cursor.first
               + row % single->cursor.N : first + row;
}

struct single_block single_block_of(const struct single *single, int64_t rows)
{
    return single->cursor.block.rows > 0 ? single->cursor.block : (struct single_block){ 0, rows };
}
