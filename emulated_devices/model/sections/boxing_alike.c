/* boxing_alike.c -- finds whether devices that are a part further along both sides of a boundary box alike.
 * train/dry_run/alike.c and tied.c ask, to let one part of the devices stand for all.  No function returns an error
 * code. */
#include "emulated_devices/model/sections/boxing.h"
#include <stdlib.h>

/* ---- parts that turn --------------------------------------------------------------------------------------------- */

/* Whether a list is another one, moved on within a whole as a ring; no interval goes across its end. */
static bool is_moved(const struct intervals *list, const struct intervals *of, struct interval whole, int64_t by)
{
    if (list->count != of->count) return false;
    for (int i = 0; i < list->count; i++) {
        const int64_t place = (of->at[i].first - whole.first + by) % whole.count;
        if (list->at[i].count != of->at[i].count || list->at[i].first != whole.first + place
            || place + of->at[i].count > whole.count) return false;
    }
    return true;
}

static bool has_all(const struct intervals *list, struct interval whole)
{
    return list->count == 1 && interval_equal(list->at[0], whole);
}

/* From the first row that a device of the side has to the last. */
static struct interval side_rows(const struct boxing_side *side)
{
    struct interval whole = { 0, 0 };
    for (int i = 0; i < boxing_side_devices(side); i++) {
        const struct interval own = intervals_span(&side->part[i].rows);
        if (own.count == 0) continue;
        if (whole.count == 0) whole = own;
        const int64_t first = own.first < whole.first ? own.first : whole.first,
            end = interval_end(own) > interval_end(whole) ? interval_end(own) : interval_end(whole);
        whole = (struct interval){ first, end - first };
    }
    return whole;
}

/* Whether the device that is a part further has the same columns, and rows that are moved on by so many. */
static bool side_moves(const struct boxing_side *side, int parts, struct interval whole, int64_t by)
{
    const int n = boxing_side_devices(side);
    bool moves = n % parts == 0;
    for (int i = 0; i < n && moves; i++) {
        const struct part *const own = &side->part[i], *const next = &side->part[(i + n / parts) % n];
        moves = is_moved(&next->cols, &own->cols, (struct interval){ 0, own->dim[1] }, 0)
            && ((has_all(&own->rows, whole) && has_all(&next->rows, whole))
                || is_moved(&next->rows, &own->rows, whole, by));
    }
    return moves;
}

bool boxing_side_turns(const struct boxing_side *side, int parts)
{
    const struct interval whole = side_rows(side);
    return whole.count % parts == 0 && side_moves(side, parts, whole, whole.count / parts);
}

/* ---- elements of both sides -------------------------------------------------------------------------------------- */

/* Who has elements: a sum over all devices with them of a number that side, part and place in the part decide.  moved:
 * the same of the devices that are a part further. */
struct owners { uint64_t own, moved; };
struct owned { struct owners owners; int64_t count; };

/* At an element a device begins or ends to have them, on either side. */
struct turning_point { int64_t at; struct owners by; };

static int by_place(const void *a, const void *b)
{
    const struct turning_point *const x = a, *const y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_owners(const void *a, const void *b)
{
    const struct owned *const x = a, *const y = b;
    return (x->owners.own > y->owners.own) - (x->owners.own < y->owners.own);
}

static int by_moved(const void *a, const void *b)
{
    const struct owned *const x = a, *const y = b;
    return (x->owners.moved > y->owners.moved) - (x->owners.moved < y->owners.moved);
}

/* A number of 64 bits for a device: random enough that no sums of other devices are equal by chance. */
static uint64_t device_number(int side, int device)
{
    uint64_t h = ((uint64_t)side << 32) + (uint64_t)device + 1;
    for (int i = 0; i < 3; i++) h = (h ^ h >> 29) * 0x9e3779b97f4a7c15u;
    return h;
}

static int add_points(const struct boxing_side *side, int which, int parts, struct turning_point *point)
{
    const int n = boxing_side_devices(side);
    int count = 0;
    for (int i = 0; i < n; i++) {
        const struct owners by = { device_number(which, i), device_number(which, (i + n / parts) % n) };
        const struct intervals *const rows = &side->part[i].rows;
        for (int k = 0; k < rows->count; k++) {
            point[count++] = (struct turning_point){ rows->at[k].first, by };
            point[count++] = (struct turning_point){ interval_end(rows->at[k]), { -by.own, -by.moved } };
        }
    }
    return count;
}

static int count_points(const struct boxing_side *side)
{
    int count = 0;
    for (int i = 0; i < boxing_side_devices(side); i++) count += 2 * side->part[i].rows.count;
    return count;
}

/* Between two points all elements have the same owners.  @return how many stretches. */
static int list_owned(struct turning_point *point, int points, struct owned *owned)
{
    struct owners now = { 0, 0 };
    int count = 0;
    qsort(point, (size_t)points, sizeof *point, by_place);
    for (int i = 0; i + 1 < points; i++) {
        now.own += point[i].by.own, now.moved += point[i].by.moved;
        if (point[i + 1].at > point[i].at) owned[count++] = (struct owned){ now, point[i + 1].at - point[i].at };
    }
    return count;
}

/* Whether the same owners have as many elements when all of them are a part further. */
static bool owned_alike(struct owned *owned, struct owned *moved, int count)
{
    qsort(owned, (size_t)count, sizeof *owned, by_owners);
    qsort(moved, (size_t)count, sizeof *moved, by_moved);
    int i = 0, k = 0;
    while (i < count && k < count) {
        const uint64_t own = owned[i].owners.own, next = moved[k].owners.moved;
        int64_t elements = 0;
        for (; i < count && owned[i].owners.own == own; i++) elements += owned[i].count;
        for (; k < count && moved[k].owners.moved == next; k++) elements -= moved[k].count;
        if (own != next || elements != 0) return false;
    }
    return i == count && k == count;
}

bool boxing_sides_alike(const struct boxing_side *one, const struct boxing_side *other, int parts)
{
    const size_t points = (size_t)(count_points(one) + count_points(other));
    if (boxing_side_devices(one) % parts != 0 || boxing_side_devices(other) % parts != 0) return false;
    struct turning_point *const point = calloc(points + 1, sizeof *point);
    struct owned *const owned = calloc(2 * points + 2, sizeof *owned);
    bool alike = point && owned;
    if (alike) {
        const int of_one = add_points(one, 0, parts, point), of_other = add_points(other, 1, parts, point + of_one);
        const int count = list_owned(point, of_one + of_other, owned);
        struct owned *const moved = owned + points + 1;
        for (int i = 0; i < count; i++) moved[i] = owned[i];
        alike = owned_alike(owned, moved, count);
    }
    free(point), free(owned);
    return alike;
}
