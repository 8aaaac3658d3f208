/* backend.h -- computing and memory of one kind of device, as a table of functions.
 *
 * A backend is one file in device/backends/ and one line in its registry.  All code above it (collectives, schemes, the
 * model) has only addresses of device memory.  It may add offsets to them and pass them on, but never dereferences
 * them.  Code that needs the numbers gets a host view, and ends it:
 *
 *   struct views v = views_of(d);
 *   tensor_convert(view_write(&v, Y), view_read(&v, X));
 *   views_end(&v);
 *
 * Host memory (a batch's ids and labels, a message's header, homes of the slow tier) may be passed wherever device
 * memory may: a host view of it is the memory itself, and an operation copies it to the device.
 *
 * REQUIRED entries are never NULL.  If an OPTIONAL one is NULL, generic.c computes it through host views, with the same
 * bits as the one-device model.  So a new backend can start with the required entries, and add operations that are slow
 * without it.  tests/devices/test_backend.c checks every entry of every backend that has numbers.
 */
#ifndef ORRERY_BACKEND_H
#define ORRERY_BACKEND_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/device/reduction.h"

struct backend {
    const char *name;                   /* as typed */
    const char *description;            /* one line */
    bool has_numbers;                   /* false: it only counts; a host view of its memory shows zeros */

    /* ---- REQUIRED: memory ---- */

    /* Memory aligned to 64 bytes, its content undefined; NULL if there is no more.  bytes > 0. */
    void *(*allocate)(struct device *, size_t bytes);
    /* @param bytes  as allocated.  No host view of it is open. */
    void (*release)(struct device *, void *, size_t bytes);
    /* Rows of `width` bytes, a pitch apart.  Either side may be the host's.  A single row may overlap itself. */
    void (*copy)(struct device *, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                 size_t rows);
    /* A host view, after all operations so far.  host_write's also has the current contents; data written through it is
     * on the device after host_done at the latest.  Nothing else writes those bytes until then.  No virtual time. */
    const void *(*host_read)(struct device *, const void *, size_t bytes);
    void *(*host_write)(struct device *, void *, size_t bytes);
    void (*host_done)(struct device *, const void *view);

    /* ---- REQUIRED: operations ----
     * Those of ref/ops/ops.h in this format; NULL: it does not compute in it.  Bits may differ from ref's as sums in
     * another order do.  Entries that may be NULL, OPTIONAL: OPTIONAL_OPERATIONS below.  Without numbers none of them
     * is called. */
    const struct ops *(*ops)(enum dtype);

    /* ---- OPTIONAL: the device itself ---- */

    enum error_code (*open)(struct device *, struct error *);   /* may set device->state */
    void (*close)(struct device *);                             /* all memory has been released */
    void (*begin)(struct device *);                             /* before an operation of `ops` */
    void (*end)(struct device *);                               /* after it */

    /* ---- OPTIONAL: more operations ---- */

    void (*zero)(struct device *, void *, size_t bytes);
    void (*convert)(struct device *, struct tensor Y, struct tensor X);     /* Y = X, rounded to nearest even */
    /* reduction.h */
    void (*reduce)(struct device *, enum reduction, enum dtype, void *into, const void *from, int64_t n);
    void (*divide)(struct device *, enum dtype, void *x, int64_t n, int by);
};

/* Operations of `ops` that a backend may leave NULL.  X(name, parameters, the same with host views) */
#define OPTIONAL_OPERATIONS(X)                                                                                         \
    X(row_sums, (T sum, T x), (OUT(sum), IN(x)))                                                                       \
    X(row_centred_squares, (T sum, T x, T mean), (OUT(sum), IN(x), IN(mean)))                                          \
    X(layernorm_forward_part, (T y, T rstd, T x, T w, T b, T mean, int64_t width, double eps),                         \
      (OUT(y), OUT(rstd), IN(x), IN(w), IN(b), IN(mean), width, eps))                                                  \
    X(layernorm_backward_sums, (T sums, T dy, T x, T w, T mean, T rstd),                                               \
      (OUT(sums), IN(dy), IN(x), IN(w), IN(mean), IN(rstd)))                                                           \
    X(layernorm_backward_part, (T dx, T dy, T x, T w, T mean, T rstd, T sums, int64_t width),                          \
      (OUT(dx), IN(dy), IN(x), IN(w), IN(mean), IN(rstd), IN(sums), width))                                            \
    X(linear_forward_add, (T y, T x, T w), (OUT(y), IN(x), IN(w)))                                                     \
    X(column_sums, (T db, T dy), (OUT(db), IN(dy)))                                                                    \
    X(linear_forward_columns, (T y, int64_t first, T x, T w, T b), (OUT(y), first, IN(x), IN(w), IN(b)))               \
    X(linear_backward_input_columns, (T dx, T dy, int64_t first, T w, bool accumulate),                                \
      (OUT(dx), IN(dy), first, IN(w), accumulate))                                                                     \
    X(linear_backward_weight_columns, (T dw, T dy, int64_t first, T x), (OUT(dw), IN(dy), first, IN(x)))               \
    X(attention_part_forward, (T O, T lse, T Q, T KV, T q_at, T k_at, struct attention a),                             \
      (OUT(O), OUT(lse), IN(Q), IN(KV), IN(q_at), IN(k_at), MASK(a)))                                                  \
    X(attention_merge, (T O, T lse, T O2, T lse2, struct attention a), (OUT(O), OUT(lse), IN(O2), IN(lse2), a))        \
    X(attention_delta, (T delta, T dO, T O, struct attention a), (OUT(delta), IN(dO), IN(O), a))                       \
    X(attention_part_backward,                                                                                         \
      (T dQ, T dKV, T dO, T delta, T lse, T Q, T KV, T q_at, T k_at, struct attention a),                              \
      (OUT(dQ), OUT(dKV), IN(dO), IN(delta), IN(lse), IN(Q), IN(KV), IN(q_at), IN(k_at), MASK(a)))                     \
    X(route_forward, (T weights, T experts, T logits, bool normalized),                                                \
      (OUT(weights), OUT(experts), IN(logits), normalized))                                                            \
    X(route_backward_input, (T dlogits, T dweights, T weights, T experts, T logits, bool normalized),                  \
      (OUT(dlogits), IN(dweights), IN(weights), IN(experts), IN(logits), normalized))                                  \
    X(expert_order, (T order, T counts, T experts), (OUT(order), OUT(counts), IN(experts)))                            \
    X(gather_forward, (T rows, T x, T order, int64_t k), (OUT(rows), IN(x), IN(order), k))                             \
    X(gather_backward_input, (T dx, T drows, T order, int64_t k), (OUT(dx), IN(drows), IN(order), k))                  \
    X(combine_forward, (T y, T rows, T order, T weights), (OUT(y), IN(rows), IN(order), IN(weights)))                  \
    X(combine_backward_input, (T drows, T dweights, T dy, T rows, T order, T weights),                                 \
      (OUT(drows), OUT(dweights), IN(dy), IN(rows), IN(order), IN(weights)))                                           \
    X(router_losses_forward, (double *sums, T logits, T experts), (sums, IN(logits), IN(experts)))                     \
    X(router_losses_backward_input, (T dlogits, T logits, const double *slope, double z_slope),                        \
      (OUT(dlogits), IN(logits), slope, z_slope))

/* generic.c: what stands in for a declined one. */
#define T struct tensor
#define UNPACK(...) __VA_ARGS__
#define X(name, parameters, arguments) void generic_##name(struct device *d, UNPACK parameters);
OPTIONAL_OPERATIONS(X)
#undef X
#undef UNPACK
#undef T

/* ---- the registry -------------------------------------------------------------------------------------------------
 * */

extern const struct backend *const backends[];      /* ends with NULL */

/** The backend of this name, or NULL. */
const struct backend *backend_find(const char *name);

/** Whether a name is one.  @param flag  what gave it: "--backend".  @return OK, or ERR_USAGE naming the nearest. */
enum error_code backend_check(const char *flag, const char *name, struct error *);

/* ---- memory -------------------------------------------------------------------------------------------------------
 * */

/** Copy bytes; either side may be the host's.  Local; no virtual time passes. */
void device_copy(struct device *, void *to, const void *from, uint64_t bytes);

/** Copy rows of `width` bytes, a pitch apart on each side. */
void device_copy_rows(struct device *, void *to, uint64_t to_pitch, const void *from, uint64_t from_pitch,
                      uint64_t width, int64_t rows);

/** Make it all zeros. */
void device_zero(struct device *, struct tensor);

/* ---- host views ---------------------------------------------------------------------------------------------------
 * */

static inline const void *host_read(struct device *d, const void *data, uint64_t bytes)
{
    return d->backend->host_read(d, data, (size_t)bytes);
}

static inline void *host_write(struct device *d, void *data, uint64_t bytes) { return d->backend->host_write(d, data,
    (size_t)bytes); }

static inline void host_done(struct device *d, const void *view) { d->backend->host_done(d, view); }

/* Views that are given back together, in the order in which they were asked for. */
enum { VIEWS_MOST = 16 };
struct views {
    struct device *device;
    int count;
    const void *view[VIEWS_MOST];
};

static inline struct views views_of(struct device *d) { return (struct views){ .device = d }; }

/** The same tensor, its data where the host can read or write them.  One without data stays without. */
struct tensor view_read(struct views *, struct tensor);
struct tensor view_write(struct views *, struct tensor);

/** Give all of them back. */
void views_end(struct views *);

/* ---- operations for any backend ---------------------------------------------------------------------------------- */

/** Charge a device's clock with an operation, and count it. */
static inline void device_charge(struct device *d, const char *what, struct op_cost cost)
{
    d->operations++;
    d->done.flops += cost.flops, d->done.bytes += cost.bytes;
    clock_compute(&d->clock, what, cost);
}

/** Y = X, rounded.  Not charged: dev_round is. */
void device_convert(struct device *, struct tensor Y, struct tensor X);

/** into[i] = into[i] (op) from[i];  x[i] = x[i] / by.  Not charged. */
void device_reduce(struct device *, enum reduction, enum dtype, void *into, const void *from, int64_t n);
void device_divide(struct device *, enum dtype, void *x, int64_t n, int by);

#endif
