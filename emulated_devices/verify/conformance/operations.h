/* operations.h -- each operation of ops.def with operands of any size, for conformance.h and the tests of backends.
 *
 * Each file that includes this header has its own tables, and its own sizes B, S, H, A, V.  conformance.c calls these
 * functions.  No function returns an error code.
 */
#ifndef ORRERY_CONFORMANCE_OPERATIONS_H
#define ORRERY_CONFORMANCE_OPERATIONS_H

#include "emulated_devices/device/compute.h"
#include <string.h>

/* Sizes: B sequences of S tokens, H query heads and one of keys, of A numbers, V columns of logits. */
static int64_t B = 2, S = 3, H = 2, A = 4, V = 10;
#define N (B * S)
#define D (H * A)
#define WIDTH ((H + 2) * A)

enum { E = 4, K = 2, WAYS = 3, OPERANDS = 10, TOKENS_MOST = 256 };

/* An operand holds random numbers, or fp32 statistics where numbers are narrow.  Whole numbers are below `most` and
 * differ in a row, or are 0, 1, 2, ... */
enum { ASCENDING = -1 };
struct operand { int64_t rows, cols; bool statistic; int most; };

/* Copy the operands of a row.  @return how many. */
static int listed(struct operand *to, const struct operand of[], size_t count)
{
    memcpy(to, of, count * sizeof *of);
    return (int)count;
}

static const struct router_rule rule = { .normalized = true, .scale = 1 };
/* Statistics are drawn, not those of a softmax over one key: .more. */
#define heads ((struct attention){ .S = S, .H = H, .K = 1, .A = A, .scale = 2 / (double)A, .cap = 4, .more = true,     \
                                   .pairs = 12,                                                                        \
                                   .drop = { .p = 0.25, .seed = 3, .cols = H } })
#define SOME (S < 2 ? S : 2)            /* keys of a sequence */
#define SCORES(t) tensor_2d((t).data, (t).dtype, N * H, S)
/* This is the usual attention with a sink for each head. */
static struct attention with_sinks(struct tensor sinks)
{
    struct attention a = heads;
    a.sinks = sinks;
    return a;
}
static const struct clamped clamps = { .alpha = 1.702, .limit = 1.25 };
#define dropped ((struct dropout){ .p = 0.25, .seed = 5, .cols = D })
static const double slopes[E] = { 0.5, -1, 2, 0.25 };
static double numbers[2 * E + 1];        /* that an operation returns to the host */

#define NUMBERS(rows, cols) { rows, cols, false, 0 }
#define STATISTIC(rows) { rows, 0, true, 0 }
#define WHOLE(rows, cols, most) { rows, cols, false, (int)(most) }
#define STREAM_WEIGHTS { N, WAYS, true, 0 }
#define X_Y NUMBERS(N, D), NUMBERS(N, D)

/* Three blocks of A/2 + 1 columns move beside each other or to one place. */
#define blocks_beside ((struct column_blocks){ 3, A / 2 + 1, 1, A / 2 + 2, 0, A / 2 + 1 })
#define blocks_together ((struct column_blocks){ 3, A / 2 + 1, 1, 0, 0, A / 2 + 1 })

/* ---- each operation of ops.def, with operands of the shapes that its row says ------------------------------------ */

#define SHAPE(item) SHAPE_##item
#define SHAPE_OUT(x, ...) { .rows = __VA_ARGS__ },
#define SHAPE_INOUT SHAPE_OUT
#define SHAPE_IN SHAPE_OUT
#define SHAPE_SUM_OUT SHAPE_OUT
#define SHAPE_STAT_OUT(x, ...) { .statistic = true, .rows = __VA_ARGS__ },
#define SHAPE_STAT_INOUT SHAPE_STAT_OUT
#define SHAPE_STAT_IN SHAPE_STAT_OUT
#define SHAPE_INT_OUT(x, below, ...) { .most = (int)(below), .rows = __VA_ARGS__ },
#define SHAPE_INT_INOUT SHAPE_INT_OUT
#define SHAPE_INT_IN SHAPE_INT_OUT
#define SHAPE_ATTENTION(a)
#define SHAPE_WITH_SINKS(a) { .rows = H },
#define SHAPE_ARG(type, x, value)

/* Operands by their names in the row, from those that t points to. */
#define TAKE(item) TAKE_##item
#define TAKE_OUT(x, ...) const struct tensor x = *t++;
#define TAKE_INOUT TAKE_OUT
#define TAKE_IN TAKE_OUT
#define TAKE_SUM_OUT TAKE_OUT
#define TAKE_STAT_OUT TAKE_OUT
#define TAKE_STAT_INOUT TAKE_OUT
#define TAKE_STAT_IN TAKE_OUT
#define TAKE_INT_OUT TAKE_OUT
#define TAKE_INT_INOUT TAKE_OUT
#define TAKE_INT_IN TAKE_OUT
#define TAKE_ATTENTION(a) const struct attention a = heads;
#define TAKE_WITH_SINKS(a) const struct attention a = with_sinks(*t++);
#define TAKE_ARG(type, x, value)

#define GIVE(item) GIVE_##item
#define GIVE_OUT(x, ...) x
#define GIVE_INOUT GIVE_OUT
#define GIVE_IN GIVE_OUT
#define GIVE_SUM_OUT GIVE_OUT
#define GIVE_STAT_OUT GIVE_OUT
#define GIVE_STAT_INOUT GIVE_OUT
#define GIVE_STAT_IN GIVE_OUT
#define GIVE_INT_OUT GIVE_OUT
#define GIVE_INT_INOUT GIVE_OUT
#define GIVE_INT_IN GIVE_OUT
#define GIVE_ATTENTION GIVE_OUT
#define GIVE_WITH_SINKS GIVE_OUT
#define GIVE_ARG(type, x, value) value

#define OPERATION(name, need, operands, cost)                                                                          \
    static void run_##name(struct device *d, struct tensor *t)                                                         \
    {                                                                                                                  \
        EACH_OF(TAKE, operands)                                                                                        \
        dev_##name(d, LIST_OF(GIVE, operands));                                                                        \
    }                                                                                                                  \
    static int operands_##name(struct operand *o)                                                                      \
    {                                                                                                                  \
        const struct operand of[] = { EACH_OF(SHAPE, operands) };                                                      \
        return listed(o, of, sizeof of / sizeof *of);                                                                  \
    }
#include "ref/ops/ops.def"

/* ---- other calls of them, and operations that are not in ops.def ------------------------------------------------- */

#include "emulated_devices/verify/conformance/variants.h"

#define UNPACK(...) __VA_ARGS__
#define X(name, how, operands, arguments)                                                                              \
    static void run_##name##_##how(struct device *d, struct tensor *t) { dev_##name arguments; }                       \
    static int operands_##name##_##how(struct operand *o)                                                              \
    {                                                                                                                  \
        const struct operand of[] = { UNPACK operands };                                                               \
        return listed(o, of, sizeof of / sizeof *of);                                                                  \
    }
VARIANTS(X)
#undef X

#include "emulated_devices/verify/conformance/entries.h"

#define X(name, how, operands, call)                                                                                   \
    static void run_##name##_##how(struct device *d, struct tensor *t) { call; }                                       \
    static int operands_##name##_##how(struct operand *o)                                                              \
    {                                                                                                                  \
        const struct operand of[] = { UNPACK operands };                                                               \
        return listed(o, of, sizeof of / sizeof *of);                                                                  \
    }
ENTRIES(X)
#undef X

static const struct operation {
    const char *name;
    void (*run)(struct device *, struct tensor *);
    int (*operands)(struct operand *);          /* how many it has; those without rows, too */
} all[] = {
#define OPERATION(name, need, operands, cost) { #name, run_##name, operands_##name },
#include "ref/ops/ops.def"
#define X(name, how, operands, call) { #name ", " #how, run_##name##_##how, operands_##name##_##how },
    VARIANTS(X)
    ENTRIES(X)
#undef X
};
enum { ALL = sizeof all / sizeof *all };

/* number(operand, i) is a drawn number from 0.125 to 2, which 16 bits hold exactly. */
static double number(int operand, int64_t i) { return (double)((i * 37 + operand * 11) % 61) / 32 + 0.125; }

/* Fill an operand by its kind: numbers, ascending indices, or whole numbers below `most` that differ within a row. */
static void fill(struct tensor t, int operand, int most)
{
    int32_t *whole = t.data;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (most == 0) tensor_set(t, i, number(operand, i));
        else if (most == ASCENDING) whole[i] = (int32_t)i;
        else whole[i] = (int32_t)((i * 5 + i / most) % most);
    }
}

#endif
