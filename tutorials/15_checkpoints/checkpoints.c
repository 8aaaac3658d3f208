/* checkpoints.c -- lesson 15: checkpoints.  README.md says what to do,
 * checkpoints.h what each function must do. */
#include "checkpoints.h"

/*SOLUTION*/
static int dp_of(const struct mesh *m, int device) { return /*ORDER*/device / m->tp/*|device % m->dp*/; }
static int tp_of(const struct mesh *m, int device) { return /*ORDER*/device % m->tp/*|device / m->dp*/; }
static int device_at(const struct mesh *m, int d, int t) { return /*ORDER*/d * m->tp + t/*|t * m->dp + d*/; }

struct piece { struct block rows, columns; };

static struct piece piece_of(const struct tensor *x, const struct mesh *m,
                             int t)
{
    const struct piece whole = { { 0, x->rows }, { 0, x->columns } };
    if (x->cut == CUT_ROWS) return (struct piece){ block_of(x->rows, m->tp, t), whole.columns };
    if (x->cut == CUT_COLUMNS) return (struct piece){ whole.rows, block_of(x->columns, m->tp, t) };
    return whole;
}

static struct block shard_of(const struct tensor *x, const struct mesh *m,
                             int device)
{
    const struct piece p = piece_of(x, m, tp_of(m, device));
    return block_of(p.rows.count * p.columns.count, m->dp, dp_of(m, device));
}

static int is_inside(struct block b, int64_t i) { return i >= b.start && i < b.start + b.count; }
/*SKELETON
// functions of your own must be static; a piece is two blocks, of rows and of columns
*/

int64_t shard_count(const struct tensor *x, const struct mesh *m, int device)
{
/*SOLUTION*/
    return shard_of(x, m, device).count;
/*SKELETON
    // your code
    return -1;
*/
}

int64_t shard_number(const struct tensor *x, const struct mesh *m, int device,
                     int64_t k)
{
/*SOLUTION*/
    const struct piece p = piece_of(x, m, tp_of(m, device));
    const int64_t i = shard_of(x, m, device).start + k;
    return (p.rows.start + i / p.columns.count) * x->columns + p.columns.start + i % p.columns.count;
/*SKELETON
    // your code: where is number k in the piece, and that in the tensor?
    return -1;
*/
}

int64_t file_count(const struct tensor *x, const struct mesh *m, int device)
{
/*SOLUTION*/
    const int writes = x->cut != CUT_NOTHING || tp_of(m, device) == /*WRITER*/0/*|m->tp - 1*/;
    return writes ? shard_of(x, m, device).count : 0;
/*SKELETON
    // your code
    return -1;
*/
}

/*SOLUTION*/
/* Where number e of tensor i is in the files. */
static struct read find(const struct tensor *x, int count, int i,
                        const struct mesh *m, int64_t e)
{
    const int64_t row = e / x[i].columns, column = e % x[i].columns;
    int t = /*WRITER*/0/*|m->tp - 1*/, d = 0;
    if (x[i].cut != CUT_NOTHING)
        for (t = 0; !is_inside(piece_of(&x[i], m, t).rows, row) || !is_inside(piece_of(&x[i], m, t).columns,
                                                                              column);) t++;
    const struct piece p = piece_of(&x[i], m, t);
    const int64_t at = (row - p.rows.start) * p.columns.count + column - p.columns.start;
    while (!is_inside(shard_of(&x[i], m, device_at(m, d, t)), at)) d++;
    const int device = device_at(m, d, t);
    int64_t from = at - shard_of(&x[i], m, device).start;
    for (int other = 0; other < count; other++)
        if (other /*FILES*/< i/*|> i*/) from += file_count(&x[other], m, device);
    return (struct read){ device, from, 1, 0 };
}
/*SKELETON
// where is a number of a tensor in the files?
*/

int64_t plan_reads(const struct tensor *x, int count, const struct mesh *then,
                   const struct mesh *now, int device, struct read *reads)
{
/*SOLUTION*/
    int64_t used = 0, to = 0;
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < shard_count(&x[i], now, device); k++, to++) {
            struct read one = find(x, count, i, then, shard_number(&x[i], now, device, k));
            struct read *last = &reads[used - 1];
            if (used > 0 && last->file == one.file && last->from + last->count == one.from) {
                last->count++;
                continue;
            }
            one.to = to;
            reads[used++] = one;
        }
    return used;
/*SKELETON
    // your code: number after number is simple, and fast enough
    return -1;
*/
}

void save_checkpoint(const struct group *g, struct disk *disk, int64_t before,
                     int64_t step)
{
/*SOLUTION*/
    float all = 0;
    disk_write(disk, shards_of(step, g->rank), step);
    disk_sync(disk, shards_of(step, g->rank));
    all_reduce(g, &all, 1);
    if (g->rank == 0) {
        disk_write(disk, MANIFEST_NEW, step);
        disk_sync(disk, MANIFEST_NEW);
        disk_rename(disk);
        disk_sync(disk, MANIFEST);
    }
    all_reduce(g, &all, 1);
    disk_remove(disk, shards_of(before, g->rank));
/*SKELETON
    // your code: what must be certain before the manifest is replaced, and what before anything is removed?
*/
}
