/* reduce.c -- the arithmetic of collectives. */
#include "emulated_devices/comm/comm.h"

const char *reduction_name(enum reduction r)
{
    static const char *const name[] = {
#define X(id, text) [id] = text,
        REDUCTIONS(X)
#undef X
    };
    return r < REDUCTION_COUNT ? name[r] : "unknown reduction";
}

/* x != x is NaN: once one is in, it stays.  For integers the compiler drops that comparison. */
#define MAX_OF(x, y) ((y) > (x) || (y) != (y) ? (y) : (x))
#define MIN_OF(x, y) ((y) < (x) || (y) != (y) ? (y) : (x))

/* One loop for each number format and reduction.  Integers add and multiply as unsigned, so that they wrap round
 * instead of being undefined. */
#define REDUCE(suffix, type, wide)                                                                                \
static void reduce_##suffix(enum reduction how, type *restrict into, const type *restrict from, int64_t n)         \
{                                                                                                                  \
    switch (how) {                                                                                                 \
    case SUM:                                                                                                      \
    case AVERAGE: for (int64_t i = 0; i < n; i++) into[i] = (type)((wide)into[i] + (wide)from[i]); break;          \
    case PRODUCT: for (int64_t i = 0; i < n; i++) into[i] = (type)((wide)into[i] * (wide)from[i]); break;          \
    case MAX:     for (int64_t i = 0; i < n; i++) into[i] = MAX_OF(into[i], from[i]); break;                       \
    case MIN:     for (int64_t i = 0; i < n; i++) into[i] = MIN_OF(into[i], from[i]); break;                       \
    case REDUCTION_COUNT: break;                                                                                   \
    }                                                                                                              \
}                                                                                                                  \
static void divide_##suffix(type *x, int64_t n, int by)                                                            \
{                                                                                                                  \
    for (int64_t i = 0; i < n; i++) x[i] = (type)(x[i] / by);                                                      \
}

REDUCE(f32, float, float)
REDUCE(f64, double, double)
REDUCE(i32, int32_t, uint32_t)
REDUCE(i64, int64_t, uint64_t)
REDUCE(u8, uint8_t, unsigned)

void reduce_local(struct exchange *x, enum reduction how, enum dtype t, void *into, const void *from, int64_t count)
{
    struct comm *c = x->group->comm;
    switch (t) {
    case F32: reduce_f32(how, into, from, count); break;
    case F64: reduce_f64(how, into, from, count); break;
    case I32: reduce_i32(how, into, from, count); break;
    case I64: reduce_i64(how, into, from, count); break;
    case U8:  reduce_u8(how, into, from, count); break;
    case DTYPE_COUNT: break;
    }
    c->traffic[x->group->axes][x->operation].additions += (uint64_t)count;
    if (x->operation == CONTROL) return;
    clock_compute(&c->device->clock, "reduce", elementwise_cost(count, 3, 1, t));
    if (c->listener != NULL) c->listener->reduced(c->listener->context, x, t, into, count);
}

void reduce_finish(struct exchange *x, enum reduction how, enum dtype t, void *data, int64_t count)
{
    const int by = x->group->size;
    if (how != AVERAGE || count == 0) return;
    switch (t) {
    case F32: divide_f32(data, count, by); break;
    case F64: divide_f64(data, count, by); break;
    case I32: divide_i32(data, count, by); break;
    case I64: divide_i64(data, count, by); break;
    case U8:  divide_u8(data, count, by); break;
    case DTYPE_COUNT: break;
    }
    if (x->operation != CONTROL) clock_compute(&x->group->comm->device->clock, "divide", elementwise_cost(count, 2, 1, t));
}
