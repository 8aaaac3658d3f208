#include "emulated_devices/schemes/data/tiles.h"

static bool is_tiled(const struct param_spec *s) { return s->ndim == 2 && s->role != ROLE_POSITIONS; }

int tiles_of(const struct data_request *q, const struct param_spec *s)
{
    return uses_tiles(q) && is_tiled(s) ? q->tiles : 1;
}

/* The rows of a matrix's boxes lie one below the other. */
struct layout tile_layout(const struct layout *whole, int tiles, int t)
{
    const int64_t rows = layout_rows(whole), first = block_start(rows, tiles, t), end = block_start(rows, tiles, t + 1);
    struct layout l = layout_none(whole->ndim, whole->dim);
    int64_t row = 0;
    for (int b = 0; b < whole->boxes; b++) {
        const struct box *box = &whole->box[b];
        const struct interval own =
            interval_meet((struct interval){ row, box->extent[0] }, (struct interval){ first, end - first });
        if (own.count > 0)
            layout_add_box(&l, (int64_t[]){ box->start[0] + own.first - row, box->start[1] },
                           (int64_t[]){ own.count, box->extent[1] });
        row += box->extent[0];
    }
    return l;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

enum { BLOCK_MATRICES = 4 };

/* In the order of the model's list. */
static int matrix_number(const struct model_config *c, const struct param_spec *s)
{
    static const int in_block[] = { [ROLE_QKV] = 0, [ROLE_ATTENTION_OUT] = 1, [ROLE_UP] = 2, [ROLE_DOWN] = 3 };
    if (s->role == ROLE_TOKENS) return 0;
    return 1 + BLOCK_MATRICES * (s->role == ROLE_HEAD ? (int)c->L : s->layer) +
           (s->role == ROLE_HEAD ? 0 : in_block[s->role]);
}

/* What is not tiled first, then matrix after matrix. */
int data_unit_count(const struct model_config *c, const struct data_request *q)
{
    const int matrices = 1 + BLOCK_MATRICES * (int)c->L + !c->tied;
    return unit_count(c) + (uses_tiles(q) ? matrices * q->tiles : 0);
}

int data_unit_of(const struct model_config *c, const struct data_request *q, const struct param_spec *s, int tile)
{
    return tiles_of(q, s) > 1 ? unit_count(c) + matrix_number(c, s) * q->tiles + tile : unit_of(s);
}

static int untiled_unit(int part) { return part == 0 ? UNIT_POSITIONS : UNIT_BLOCKS + part - 1; }

/* Where matrices are tiled, what a part has besides. */
int data_units_of_part(const struct model_config *c, const struct data_request *q, int part, int unit[2])
{
    if (!uses_tiles(q)) return data_units_of(c, part, unit);
    unit[0] = untiled_unit(part);
    return 1;
}
