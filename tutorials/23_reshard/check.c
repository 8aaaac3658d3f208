/* check.c -- judges lesson 23.  The student writes reshard.c: the boxes of a mesh, what two of them have in common, the
 * moves from one mesh to another, and the change itself.  Plans are held to a table of who has which number, made here
 * number by number; bytes are held to the least there can be.  emulated_devices/course/judge.c runs each check in a
 * process of its own; a failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 8, SIDE = 18, MOST = SIDE * SIDE };

/* These three have the same members in reshard.h. */
struct box { int64_t row, rows, column, columns; };
struct mesh { int copies, down, across; };
struct move { int64_t from; struct box box; };

/* Number n of the matrix lies at row n / C and column n mod C. */
struct task { struct mesh then, now; int64_t R, C; int lost; };

static int devices_of(struct mesh m) { return m.copies * m.down * m.across; }
static int larger(int a, int b) { return a > b ? a : b; }

/* The copy and the place in it of a device; the variant ORDER lets copies count first. */
static int copy_of(const struct judge *j, struct mesh m, int device)
{
    return judge_choice(j, "ORDER") == 1 ? device % m.copies : device / (m.down * m.across);
}

static int place_of(const struct judge *j, struct mesh m, int device)
{
    return judge_choice(j, "ORDER") == 1 ? device / m.copies : device % (m.down * m.across);
}

static struct box box_at(const struct judge *j, struct mesh m, int64_t R, int64_t C, int device)
{
    if (device >= devices_of(m)) return (struct box){ 0, 0, 0, 0 };
    const int place = place_of(j, m, device);
    const struct interval rows = block_at(R, m.down, place / m.across), columns = block_at(C, m.across,
                                                                                           place % m.across);
    if (rows.count == 0 || columns.count == 0) return (struct box){ 0, 0, 0, 0 };
    return (struct box){ rows.first, rows.count, columns.first, columns.count };
}

static bool box_has(const struct box *b, int64_t row, int64_t column)
{
    return row >= b->row && row < b->row + b->rows && column >= b->column && column < b->column + b->columns;
}

static bool same_box(const struct box *a, const struct box *b) { return memcmp(a, b, sizeof *a) == 0; }

/* This is a box in words of a message. */
struct box_text { char text[120]; };
static struct box_text box_text(const struct box *b)
{
    struct box_text t;
    snprintf(t.text, sizeof t.text, "{ %lld, %lld, %lld, %lld }", (long long)b->row, (long long)b->rows,
             (long long)b->column, (long long)b->columns);
    return t;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* Small meshes come first, each beside the next one; then those with copies. */
static const struct mesh usual[] = { { 1, 1, 2 }, { 1, 1, 3 }, { 1, 2, 2 }, { 1, 3, 1 }, { 2, 1, 2 }, { 2, 2, 1 },
                                     { 3, 1, 2 }, { 1, 2, 3 }, { 2, 2, 2 }, { 2, 1, 1 }, { 1, 1, 1 }, { 4, 1, 2 } };
static const int64_t sides[][2] = { { 2, 6 }, { 4, 6 }, { 7, 5 }, { 1, 3 }, { 9, 11 } };
enum { MESHES = sizeof usual / sizeof *usual, SIDES = sizeof sides / sizeof *sides, RUNS = 24 };

static struct mesh draw_mesh(struct judge *j, int i)
{
    if (!j->hidden) return usual[i % MESHES];
    const int down = (int)judge_draw(j, 1, 3), across = (int)judge_draw(j, 1, 8 / down);
    return (struct mesh){ (int)judge_draw(j, 1, MOST_DEVICES / (down * across)), down, across };
}

/* Change from a mesh to the next one, or behind the last of these to one that lies farther. */
static struct task draw_task(struct judge *j, int i)
{
    struct task t = { .then = draw_mesh(j, i), .now = draw_mesh(j, i < MESHES ? i + 1 : 5 * i + 2), .lost = -1 };
    t.R = j->hidden ? judge_draw(j, 1, SIDE) : sides[i % SIDES][0];
    t.C = j->hidden ? judge_draw(j, 1, SIDE) : sides[i % SIDES][1];
    return t;
}

/* A device is lost whose numbers others have: the mesh has copies.  The new mesh may be the same. */
static struct task draw_loss(struct judge *j, int i)
{
    struct task t = draw_task(j, i);
    if (t.then.copies == 1) t.then.copies = larger(2, MOST_DEVICES / devices_of(t.then) / 2);
    while (devices_of(t.then) > MOST_DEVICES) t.then.across--;
    if (i % 3 == 0) t.now = t.then;
    t.lost = (int)judge_draw(j, 0, devices_of(t.then) - 1);
    return t;
}

static struct trial *open_task(struct judge *j, const char *function, const struct task *t)
{
    char lost[40] = "";
    if (t->lost >= 0) snprintf(lost, sizeof lost, ", device %d lost", t->lost);
    struct trial *const r = trial_open(j, function, larger(devices_of(t->then), devices_of(t->now)),
                                       "%lld x %lld numbers, mesh { %d, %d, %d } becomes { %d, %d, %d }%s",
                                       (long long)t->R, (long long)t->C, t->then.copies, t->then.down, t->then.across,
                                       t->now.copies, t->now.down, t->now.across, lost);
    for (int d = 0; d < r->devices; d++) {
        int64_t *const n = r->device[d].number;
        n[0] = t->then.copies, n[1] = t->then.down, n[2] = t->then.across;
        n[3] = t->now.copies, n[4] = t->now.down, n[5] = t->now.across;
        n[6] = t->R, n[7] = t->C, n[8] = t->lost;
    }
    return r;
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

/* One device more than the mesh has is asked, too. */
static void check_boxes(struct judge *j)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        const struct task t = draw_task(j, i);
        struct trial *r = trial_open(j, "box_of", devices_of(t.then) + 1, "%lld x %lld numbers, mesh { %d, %d, %d }",
                                     (long long)t.R, (long long)t.C, t.then.copies, t.then.down, t.then.across);
        for (int d = 0; d < r->devices; d++) {
            int64_t *const n = r->device[d].number;
            n[0] = t.then.copies, n[1] = t.then.down, n[2] = t.then.across, n[6] = t.R, n[7] = t.C;
            trial_buffer(r, d, 0, sizeof(struct box), BUFFER_OUT);
        }
        if (trial_call(r))
            for (int d = 0; d < r->devices && !j->failed; d++) {
                const struct box want = box_at(j, t.then, t.R, t.C, d), *const got = r->device[d].buffer[0].data;
                if (!same_box(got, &want))
                    trial_fails(r, "device %d: its box is %s; it should be %s%s", d, box_text(got).text,
                                box_text(&want).text, d == r->devices - 1 ? ": the mesh has no such device" : "");
            }
        trial_close(r);
    }
}

/* How the second box of a pair lies to the first. */
enum pair { OVERLAPS, INSIDE, EQUAL, TOUCHES, APART_IN_ROWS, APART_IN_COLUMNS, FAR, IS_EMPTY, PAIRS };

static struct box draw_second(struct judge *j, const struct box *a, enum pair pair)
{
    const int64_t step = judge_draw(j, 1, 3);
    struct box b = { a->row + step, a->rows, a->column - step, a->columns };
    if (pair == INSIDE) b = (struct box){ a->row + 1, a->rows - 2, a->column + 1, a->columns - 2 };
    if (pair == EQUAL) b = *a;
    if (pair == TOUCHES) b.row = a->row + a->rows;
    if (pair == APART_IN_ROWS) b.row = a->row + a->rows + step;
    if (pair == APART_IN_COLUMNS) b.column = a->column + a->columns + step;
    if (pair == FAR) b.row = a->row + a->rows + step, b.column = a->column + a->columns + step;
    if (pair == IS_EMPTY) b = (struct box){ 0, 0, 0, 0 };
    return b;
}

/* The common part, by a look at each row and each column. */
static struct box common_of(const struct box *a, const struct box *b)
{
    struct box common = { 0, 0, 0, 0 };
    for (int64_t r = a->row; r < a->row + a->rows; r++)
        if (r >= b->row && r < b->row + b->rows && common.rows++ == 0) common.row = r;
    for (int64_t c = a->column; c < a->column + a->columns; c++)
        if (c >= b->column && c < b->column + b->columns && common.columns++ == 0) common.column = c;
    return common.rows > 0 && common.columns > 0 ? common : (struct box){ 0, 0, 0, 0 };
}

static void check_common(struct judge *j)
{
    for (int turn = 0; turn < 4 && !j->failed; turn++) {
        struct trial *r = trial_open(j, "box_common", PAIRS, "%s", "a pair of boxes each");
        for (int d = 0; d < PAIRS; d++) {
            const struct box a = { judge_draw(j, 3, 20), judge_draw(j, 4, 9), judge_draw(j, 3, 20),
                                   judge_draw(j, 4, 9) };
            struct box *const pair = trial_buffer(r, d, 0, 2 * sizeof a, BUFFER_IN);
            /* In every second turn the boxes change places. */
            pair[turn % 2] = a, pair[1 - turn % 2] = draw_second(j, &a, d);
            trial_buffer(r, d, 1, sizeof a, BUFFER_OUT);
        }
        if (trial_call(r))
            for (int d = 0; d < PAIRS && !j->failed; d++) {
                const struct box *const pair = r->device[d].buffer[0].data, *const got = r->device[d].buffer[1].data;
                const struct box want = common_of(&pair[0], &pair[1]);
                if (!same_box(got, &want))
                    trial_fails(r, "device %d: of %s and %s it returned %s; it should be %s", d,
                                box_text(&pair[0]).text, box_text(&pair[1]).text, box_text(got).text,
                                box_text(&want).text);
            }
        trial_close(r);
    }
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

static bool has(const struct judge *j, const struct task *t, int device, int64_t row, int64_t column)
{
    const struct box b = box_at(j, t->then, t->R, t->C, device);
    return device != t->lost && box_has(&b, row, column);
}

/* Count what a device wants and has not, number by number. */
static int64_t lacks(const struct judge *j, const struct task *t, int device)
{
    const struct box want = box_at(j, t->now, t->R, t->C, device);
    int64_t count = 0;
    for (int64_t r = want.row; r < want.row + want.rows; r++)
        for (int64_t c = want.column; c < want.column + want.columns; c++) count += !has(j, t, device, r, c);
    return count;
}

static void check_least(struct judge *j)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        const struct task t = i % 4 == 3 ? draw_loss(j, i) : draw_task(j, i);
        struct trial *r = open_task(j, "least_numbers", &t);
        if (trial_call(r))
            for (int d = 0; d < r->devices && !j->failed; d++)
                if (r->device[d].result != lacks(j, &t, d))
                    trial_fails(r, "device %d: it returned %lld; of the numbers that it wants it has not %lld", d,
                                (long long)r->device[d].result, (long long)lacks(j, &t, d));
        trial_close(r);
    }
}

/* Who must give a number: the device itself, else the copy that the header names.  @return -1: nobody has it. */
static int giver_of(const struct judge *j, const struct task *t, int device, int64_t row, int64_t column)
{
    if (has(j, t, device, row, column)) return device;
    for (int i = 0; i < t->then.copies; i++) {
        const int way = judge_choice(j, "NEXT") == 1 ? -i : i;
        const int copy = ((device + way) % t->then.copies + t->then.copies) % t->then.copies;
        for (int from = 0; from < devices_of(t->then); from++)
            if (copy_of(j, t->then, from) == copy && has(j, t, from, row, column)) return from;
    }
    return -1;
}

enum look { AT_NUMBERS, AT_GIVERS, AT_LOSS, AT_VALUES, AT_SENT };

/* Follow the moves of one device: each wanted number must come once, from a device that has it. */
static void follow(const struct judge *j, struct trial *r, const struct task *t, int d, bool givers)
{
    static int from[MOST];
    const struct move *const moves = r->device[d].buffer[0].data;
    const struct box want = box_at(j, t->now, t->R, t->C, d);
    const int64_t count = r->device[d].result;
    if (count < 0 || count > MOST_DEVICES) {
        trial_fails(r, "device %d: it returned %lld moves; it has at most %d", d, (long long)count, MOST_DEVICES);
        return;
    }
    for (int n = 0; n < MOST; n++) from[n] = -1;
    for (int64_t i = 0; i < count; i++) {
        const struct box *const b = &moves[i].box;
        const int giver = (int)moves[i].from;
        if (moves[i].from < 0 || moves[i].from >= devices_of(t->then)) {
            trial_fails(r, "device %d: move %lld is from device %lld, which the old mesh has not", d, (long long)i,
                        (long long)moves[i].from);
            return;
        }
        if (b->rows < 1 || b->columns < 1 || b->row < 0 || b->column < 0 || b->rows > t->R - b->row
            || b->columns > t->C - b->column) {
            trial_fails(r, "device %d: move %lld has the box %s, which is empty or not in the matrix", d, (long long)i,
                        box_text(b).text);
            return;
        }
        for (int64_t k = 0; k < i; k++)
            if (moves[k].from == moves[i].from) {
                trial_fails(r, "device %d: moves %lld and %lld are both from device %d", d, (long long)k, (long long)i,
                            giver);
                return;
            }
        for (int64_t row = b->row; row < b->row + b->rows; row++)
            for (int64_t column = b->column; column < b->column + b->columns; column++) {
                int *const at = &from[row * t->C + column];
                const char *const wrong = !box_has(&want, row, column) ? "does not want"
                                        : *at >= 0 ? "gets twice" : NULL;
                if (wrong)
                    trial_fails(r, "device %d: move %lld, %s from device %d, has the number at row %lld, column %lld, "
                                "which device %d %s", d, (long long)i, box_text(b).text, giver, (long long)row,
                                (long long)column, d, wrong);
                else if (!has(j, t, giver, row, column))
                    trial_fails(r, "device %d: move %lld, %s, is from device %d, which has not the number at row "
                                "%lld, column %lld%s", d, (long long)i, box_text(b).text, giver, (long long)row,
                                (long long)column, giver == t->lost ? ": it was lost" : "");
                if (j->failed) return;
                *at = giver;
            }
    }
    for (int64_t row = want.row; row < want.row + want.rows && !j->failed; row++)
        for (int64_t column = want.column; column < want.column + want.columns && !j->failed; column++) {
            const int got = from[row * t->C + column], right = giver_of(j, t, d, row, column);
            if (got < 0)
                trial_fails(r, "device %d: no move has the number at row %lld, column %lld, which it wants", d,
                            (long long)row, (long long)column);
            else if (givers && got != right)
                trial_fails(r, "device %d: it gets the number at row %lld, column %lld from device %d; it should be "
                            "device %d%s", d, (long long)row, (long long)column, got, right,
                            right == d ? ", itself" : "");
        }
}

/* Whether a wanted number of this device is on no device. */
static bool is_gone(const struct judge *j, const struct task *t, int device)
{
    const struct box want = box_at(j, t->now, t->R, t->C, device);
    for (int64_t r = want.row; r < want.row + want.rows; r++)
        for (int64_t c = want.column; c < want.column + want.columns; c++)
            if (giver_of(j, t, device, r, c) < 0) return true;
    return false;
}

static void try_moves(struct judge *j)
{
    const enum look look = j->check->look;
    for (int i = 0; i < RUNS && !j->failed; i++) {
        struct task t = look == AT_LOSS ? draw_loss(j, i) : draw_task(j, i);
        /* Every fourth loss leaves no copy. */
        if (look == AT_LOSS && i % 4 == 3) t.then.copies = 1, t.lost %= devices_of(t.then);
        struct trial *r = open_task(j, "plan_moves", &t);
        for (int d = 0; d < r->devices; d++) trial_buffer(r, d, 0, sizeof(struct move) * MOST_DEVICES, BUFFER_OUT);
        if (trial_call(r))
            for (int d = 0; d < r->devices && !j->failed; d++) {
                if (!is_gone(j, &t, d)) follow(j, r, &t, d, look != AT_NUMBERS);
                else if (r->device[d].result != -1)
                    trial_fails(r, "device %d: it returned %lld; only device %d had some of what it wants, so it "
                                "should be -1", d, (long long)r->device[d].result, t.lost);
            }
        trial_close(r);
    }
}

/* ---- the change -------------------------------------------------------------------------------------------------- */

/* Copy a device's box out of the matrix. */
static int64_t cut(const float *matrix, int64_t C, const struct box *b, float *out)
{
    int64_t used = 0;
    for (int64_t r = b->row; r < b->row + b->rows; r++)
        for (int64_t c = b->column; c < b->column + b->columns; c++) out[used++] = matrix[r * C + c];
    return used;
}

/* Count the devices that have something for others; the least bytes are those that a device has not. */
static void expect_least(const struct judge *j, struct trial *r, const struct task *t)
{
    static bool gives[MOST_DEVICES][MOST_DEVICES];
    static uint64_t numbers[MOST_DEVICES];
    memset(gives, 0, sizeof gives), memset(numbers, 0, sizeof numbers);
    for (int d = 0; d < r->devices; d++) {
        const struct box want = box_at(j, t->now, t->R, t->C, d);
        for (int64_t row = want.row; row < want.row + want.rows; row++)
            for (int64_t column = want.column; column < want.column + want.columns; column++) {
                const int from = giver_of(j, t, d, row, column);
                if (from != d) gives[from][d] = true, numbers[from]++;
            }
    }
    for (int from = 0; from < r->devices && !j->failed; from++) {
        uint64_t messages = 0;
        for (int d = 0; d < r->devices; d++) messages += gives[from][d];
        trial_expect_sent(r, from, messages, 4 * numbers[from],
                          "one message for each device that gets something, 4 bytes a number");
    }
}

static void call_reshard(struct judge *j, const struct task *t, bool meets, bool gone)
{
    static float matrix[MOST], box[MOST];
    struct trial *r = open_task(j, "reshard", t);
    if (meets) trial_meets(r);
    judge_whole(j, matrix, t->R * t->C, 999);
    for (int d = 0; d < r->devices; d++) {
        const struct box had = box_at(j, t->then, t->R, t->C, d), want = box_at(j, t->now, t->R, t->C, d);
        const int64_t n = cut(matrix, t->C, &had, box);
        /* What stands in the lost device's memory is nobody's number. */
        for (int64_t i = 0; i < n && d == t->lost; i++) box[i] = -12345;
        trial_in(r, d, 0, box, n);
        trial_out(r, d, 1, want.rows * want.columns);
    }
    if (trial_call(r))
        for (int d = 0; d < r->devices && !j->failed; d++) {
            const struct box want = box_at(j, t->now, t->R, t->C, d);
            if (r->device[d].result != (gone ? -1 : 0))
                trial_fails(r, "device %d: it returned %lld; it should be %d%s", d, (long long)r->device[d].result,
                            gone ? -1 : 0, gone ? ": some numbers are gone" : "");
            else if (gone) trial_expect_sent(r, d, 0, 0, "nobody sends if numbers are gone");
            else if (j->check->look == AT_VALUES) {
                const int64_t n = cut(matrix, t->C, &want, box);
                trial_expect_floats(r, d, 1, box, n, "want");
            }
        }
    if (!gone && !j->failed && j->check->look == AT_SENT) expect_least(j, r, t);
    trial_close(r);
}

static void try_reshard(struct judge *j)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        const struct task t = i % 4 == 3 ? draw_loss(j, i) : draw_task(j, i);
        call_reshard(j, &t, i % 2 == 1, false);
    }
}

/* The only copy loses a device. */
static void check_gone(struct judge *j)
{
    for (int i = 0; i < MESHES && !j->failed; i++) {
        struct task t = draw_task(j, i);
        t.then.copies = 1, t.lost = (int)judge_draw(j, 0, devices_of(t.then) - 1);
        const struct box had = box_at(j, t.then, t.R, t.C, t.lost);
        call_reshard(j, &t, false, had.rows > 0);
    }
}

static const char *const functions[] = { "box_of", "box_common", "least_numbers", "plan_moves", "reshard", NULL };

extern const struct lesson lesson_23_reshard;
const struct lesson lesson_23_reshard = {
    .folder = "23_reshard", .title = "From one mesh to another, with the fewest bytes", .file = "reshard.c",
    .functions = functions, .vary = { { "ORDER", 2 }, { "NEXT", 2 } },
    .check = {
        { 1, "boxes", "every device has its box", 3, { check_boxes },
          { "Which copy, which piece and which box of that piece is device 5 of { 2, 2, 2 }?",
            "block_of(R, down, i) has the rows, block_of(C, across, j) the columns.",
            "A piece without rows is the empty box, with 0 everywhere." } },
        { 2, "common", "what two boxes have in common", 2, { check_common },
          { "Do rows first, as if there were no columns.",
            "The common rows begin at the later begin, and end at the earlier end.",
            "Boxes may have rows in common, but no columns.  Then they have no number in common." } },
        { 3, "least", "the least that a device must get", 3, { check_least },
          { "What does the device want, and what of that does it have?",
            "A lost device has nothing, whatever its number had before." } },
        { 4, "moves", "every wanted number once, from a device that has it", 4, { try_moves, AT_NUMBERS },
          { "Which boxes does one copy of the old mesh have?  They cover the matrix, without overlap.",
            "What a device wants of each of these is box_common; an empty one is no move.",
            "All copies have the same boxes: look at those of one copy, or numbers come twice." } },
        { 4, "givers", "its own first, then the copies in turn", 3, { try_moves, AT_GIVERS },
          { "A device that has a number need not ask for it.",
            "If all ask copy 0, its devices send everything.  Which copy does the header name?" } },
        { 4, "lost", "without the device that was lost", 3, { try_moves, AT_LOSS },
          { "The lost device's number is that of a new device.  What does that one have?",
            "With one copy its numbers are on no device; but not every device wants some of them." } },
        { 5, "values", "every device has its new box", 4, { try_reshard, AT_VALUES },
          { "Your plan says what you get.  What do you send?  The plans of the others say that.",
            "Rows of a box lie apart in a larger one: pack them into memory of their own.",
            "Begin all sends, then receive; wait for the sends at the end." },
          { [2] = FITS(DEADLOCK) } },
        { 5, "sent", "with the fewest messages and bytes", 3, { try_reshard, AT_SENT },
          { "What a device has itself is copied, not sent.",
            "An empty box is no message." } },
        { 5, "gone", "if numbers are gone, all know, and nobody sends", 2, { check_gone },
          { "Nobody has to ask whether something is gone: each device can make the plans of all." } },
    },
};
