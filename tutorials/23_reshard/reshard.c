/* reshard.c -- lesson 23: from one mesh to another.  README.md says what to
 * do, reshard.h what each function must return. */
#include "reshard.h"

/*SOLUTION*/
static int boxes_of(const struct mesh *m) { return m->down * m->across; }

static int device_of(const struct mesh *m, int copy, int place)
{
    return /*ORDER*/copy * boxes_of(m) + place/*|place * m->copies + copy*/;
}

static int place_of(const struct mesh *m, int device)
{
    return /*ORDER*/device % boxes_of(m)/*|device / m->copies*/;
}

static int is_empty(struct box b) { return b.rows == 0 || b.columns == 0; }
/*SKELETON*/
struct box box_of(const struct mesh *m, int64_t R, int64_t C, int device)
{
/*SOLUTION*/
    const struct box none = { 0, 0, 0, 0 };
    if (device >= m->copies * boxes_of(m)) return none;
    const int place = place_of(m, device);
    const struct block rows = block_of(R, m->down, place / m->across);
    const struct block columns = block_of(C, m->across, place % m->across);
    const struct box own = { rows.start, rows.count, columns.start, columns.count };
    return is_empty(own) ? none : own;
/*SKELETON
    // your code: which copy, piece and box of it is this device?
    return (struct box){ 0, 0, 0, 0 };
*/
}

/*SOLUTION*/
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/*SKELETON*/
struct box box_common(struct box a, struct box b)
{
/*SOLUTION*/
    const int64_t row = most(a.row, b.row), column = most(a.column, b.column);
    const int64_t rows = least(a.row + a.rows, b.row + b.rows) - row;
    const int64_t columns = least(a.column + a.columns, b.column + b.columns) - column;
    if (rows <= 0 || columns <= 0) return (struct box){ 0, 0, 0, 0 };
    return (struct box){ row, rows, column, columns };
/*SKELETON
    // your code: where does the common part begin, and where does it end?
    return (struct box){ 0, 0, 0, 0 };
*/
}

/*SOLUTION*/
static struct box box_had(const struct change *c, int device)
{
    if (device == c->lost) return (struct box){ 0, 0, 0, 0 };
    return box_of(&c->then, c->R, c->C, device);
}

static struct box box_wanted(const struct change *c, int device)
{
    return box_of(&c->now, c->R, c->C, device);
}
/*SKELETON*/
int64_t least_numbers(const struct change *c, int device)
{
/*SOLUTION*/
    const struct box want = box_wanted(c, device), kept = box_common(want, box_had(c, device));
    return want.rows * want.columns - kept.rows * kept.columns;
/*SKELETON
    // your code: what it wants, without what it has
    return 0;
*/
}

/*SOLUTION*/
/* Who gives numbers of a box of `then` to a device; -1: nobody has them. */
static int giver(const struct change *c, int place, int device)
{
    const int copies = c->then.copies;
    if (device != c->lost && device < copies * boxes_of(&c->then) && place_of(&c->then, device) == place)
        return device;
    for (int i = 0; i < copies; i++) {
        const int from = device_of(&c->then, mod(device /*NEXT*/+ i/*|- i*/, copies), place);
        if (from != c->lost) return from;
    }
    return -1;
}
/*SKELETON*/
int plan_moves(const struct change *c, int device, struct move *moves)
{
/*SOLUTION*/
    const struct box want = box_wanted(c, device);
    int count = 0;
    for (int place = 0; place < boxes_of(&c->then); place++) {
        const struct box there = box_of(&c->then, c->R, c->C, device_of(&c->then, 0, place));
        const struct box common = box_common(want, there);
        if (is_empty(common)) continue;
        const int from = giver(c, place, device);
        if (from < 0) return -1;
        moves[count++] = (struct move){ from, common };
    }
    return count;
/*SKELETON
    // your code: for each box of the old mesh, what of it does the device
    // want, and who gives that?
    return 0;
*/
}

/*SOLUTION*/
/* Copy the numbers of `part`, which both boxes have, from one to the other. */
static void copy_part(float *to, struct box to_box, const float *from, struct box from_box, struct box part)
{
    for (int64_t r = part.row; r < part.row + part.rows; r++) {
        float *out = to + (r - to_box.row) * to_box.columns + part.column - to_box.column;
        const float *in = from + (r - from_box.row) * from_box.columns + part.column - from_box.column;
        memcpy(out, in, sizeof *out * (size_t)part.columns);
    }
}

static size_t bytes_of(struct box b) { return sizeof(float) * (size_t)(b.rows * b.columns); }
/*SKELETON*/
int reshard(const struct group *g, const struct change *c, const float *have,
            float *want)
{
/*SOLUTION*/
    const struct box had = box_had(c, g->rank), wanted = box_wanted(c, g->rank);
    struct move moves[MOST_DEVICES];
    struct message sent[MOST_DEVICES];
    float *packed[MOST_DEVICES];
    int sends = 0;
    for (int device = 0; device < g->size; device++)
        if (plan_moves(c, device, moves) < 0) return -1;
    for (int device = 0; device < g->size; device++) {
        const int count = plan_moves(c, device, moves);
        for (int i = 0; i < count && device != g->rank; i++) {
            if (moves[i].from != g->rank) continue;
            const struct box part = moves[i].box;
            packed[sends] = allocate(bytes_of(part));
            copy_part(packed[sends], part, have, had, part);
            sent[sends] = message_send(g, device, packed[sends], bytes_of(part));
            sends++;
        }
    }
    const int count = plan_moves(c, g->rank, moves);
    for (int i = 0; i < count; i++) {
        const struct box part = moves[i].box;
        if (moves[i].from == g->rank) {
            copy_part(want, wanted, have, had, part);
            continue;
        }
        float *in = allocate(bytes_of(part));
        message_wait(message_receive(g, (int)moves[i].from, in, bytes_of(part)));
        copy_part(want, wanted, in, part, part);
        release(in);
    }
    for (int i = 0; i < sends; i++) message_wait(sent[i]), release(packed[i]);
    return 0;
/*SKELETON
    // your code: the plans of all devices say what this one sends
    return 0;
*/
}
