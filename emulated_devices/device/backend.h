/* backend.h -- computing and memory of one kind of device, as a table of functions.
 *
 * A backend is one file in device/backends/ and one line in its registry.  All code above it (collectives, schemes, the
 * model) has only addresses of device memory.  It may add offsets to them and pass them on, but never dereferences
 * them.  Code that needs the numbers gets a host view, and ends it:
 *
 *   struct views v = views_of(d);
 *   const double first = tensor_get(view_read(&v, X), 0);
 *   views_end(&v);
 *
 * Host memory (a batch's ids and labels, a message's header, homes of the slow tier) may be passed wherever device
 * memory may: a host view of it is the memory itself, and an operation copies it to the device.
 *
 * REQUIRED entries are never NULL.  If an OPTIONAL one is NULL, generic.c computes it through host views, with the same
 * bits as the one-device model.  So a new backend can start with the required entries, and add operations that are slow
 * without it.  tests/devices/test_backend.c and test_backend_entries.c check every entry of every backend that has
 * numbers.  Files of schemes/, collectives/ and model/ call a backend's operations by device/compute.h.
 */
#ifndef ORRERY_BACKEND_H
#define ORRERY_BACKEND_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/device/drawn.h"
#include "emulated_devices/device/outward.h"
#include "emulated_devices/device/reduction.h"
#include "ref/numeric/block_quantise.h"
#include "ref/numeric/exact_sum.h"

struct low_rank;
struct low_rank_parts;

/* ---- lists of products ------------------------------------------------------------------------------------------- */

/* Products, one for each expert of a mixture.  They may have different numbers of rows, or none, and
 * write to different memory, so a kernel may compute them together.
 *
 * PRODUCT_FORWARD   Y = X W^T + b, as linear_forward of ref/ops/ops.h
 * PRODUCT_INPUT     dX = dY W, as linear_backward_input
 * PRODUCT_WEIGHT    dW += dY^T X, db += the sum of rows of dY, as linear_backward_weight */
enum product_pass { PRODUCT_FORWARD, PRODUCT_INPUT, PRODUCT_WEIGHT };

/* Y [N,O], X [N,I], W [O,I], b [O] or none, or the gradients that the pass names in their place. */
struct device_product { struct tensor Y, X, W, b; };

enum { PRODUCTS_MOST = 64 };            /* of one list */

enum { REDUCE_MOST = 8 };               /* parts of one reduction */

/* ---- OPTIONAL: operations on any tensors --------------------------------------------------------------------------
 * The numbers of a model outside `ops`: any part of a tensor, also an empty one, in any format that the function in
 * ref/ takes.  All that training computes is here or in `ops`; host views are for moving, checking and storing.
 *
 * X(name, parameters, arguments, what the host computes through views).  For each there is an entry of the table; a
 * function device_name, for everybody, which calls it; and generic_name, the host's form, for a backend that takes over
 * some cases only.  None is charged. */
#define OPTIONAL_ENTRIES(X)                                                                                            \
    /* to zeros */                                                                                                     \
    X(zero, (T y), (y), clear(OUT(y)))                                                                                 \
    /* y = x, rounded to nearest even */                                                                               \
    X(convert, (T y, T x), (y, x), tensor_convert(OUT(y), IN(x)))                                                      \
    /* reduction.h, on n elements */                                                                                   \
    X(reduce, (enum reduction how, enum dtype t, void *into, const void *from, int64_t n), (how, t, into, from, n),    \
      reduction_apply(how, t, OUT(tensor_1d(into, t, n)).data, IN(tensor_1d(UNCONST(from), t, n)).data, n))            \
    X(reduce_all, (enum reduction how, enum dtype t, void *into, const void *const *part, int parts, int64_t n),       \
      (how, t, into, part, parts, n), reduce_seen(&seen, how, t, into, part, parts, n))                                \
    X(divide, (enum dtype t, void *x, int64_t n, int by), (t, x, n, by),                                               \
      reduction_divide(t, OUT(tensor_1d(x, t, n)).data, n, by))                                                        \
    /* exact_sum.h, of all tensors of a list.  The sum is the host's, which waits for it; it has no rounding, and      \
     * tells of infinities and NaNs */                                                                                 \
    X(add_squares, (struct exact_sum *sum, const T *list, int count), (sum, list, count),                              \
      squares_of_each(seen.device, sum, list, count))                                                                  \
    /* block_quantise.h */                                                                                             \
    X(quantise, (void *code, T x, struct block_format f), (code, x, f),                                                \
      block_quantise(OUT(codes(code, x, f)).data, IN(x), f))                                                           \
    X(dequantise, (T y, const void *code, struct block_format f), (y, code, f),                                        \
      block_dequantise(OUT(y), IN(codes(UNCONST(code), y, f)).data, f))                                                \
    /* drawn.h: initial weights, and directions */                                                                     \
    X(draw, (T w, struct drawn which, uint64_t seed), (w, which, seed), drawn_weights(OUT(w), which, seed))            \
    X(move_along, (T w, struct drawn which, uint64_t key, double along), (w, which, key, along),                       \
      drawn_move(OUT(w), which, key, along))                                                                           \
    X(step_along, (const struct optimizer *o, T w, struct drawn which, uint64_t key, struct step s),                   \
      (o, w, which, key, s), drawn_step(o, OUT(w), which, key, s))                                                     \
    /* optimizer.h, any part of a parameter.  Where the host steps (--offload), all tensors are the host's */          \
    X(optimizer_step, (const struct optimizer *o, T w, T g, const T *state, struct step s), (o, w, g, state, s),       \
      optimizer_step(o, OUT(w), IN(g), STATES(o, state), s))                                                           \
    /* outward.h: the outer step of copies that train apart */                                                         \
    X(outward_way, (T way, T anchor, T theta), (way, anchor, theta), outward_way(OUT(way), IN(anchor), IN(theta)))     \
    X(outward_step, (T theta, T anchor, T momentum, T sum, int replicas, struct outward f),                            \
      (theta, anchor, momentum, sum, replicas, f),                                                                     \
      outward_step(OUT(theta), OUT(anchor), OUT(momentum), IN(sum), replicas, f))                                      \
    /* galore.h */                                                                                                     \
    X(galore_refresh, (struct low_rank p, T P, T g, T scratch, enum error_code *e, struct error *err),                 \
      (p, P, g, scratch, e, err), *e = galore_refresh(p, OUT(P), IN(g), OUT(scratch).data, NULL, err))                 \
    X(galore_project, (struct low_rank p, T g, T P, T scratch), (p, g, P, scratch),                                    \
      galore_project(p, OUT(g), IN(P), OUT(scratch).data))                                                             \
    X(galore_parts_step,                                                                                               \
      (const struct optimizer *o, const struct low_rank_parts *p, T w, T g, const T *state, struct step s),            \
      (o, p, w, g, state, s), galore_parts_step(o, p, OUT(w), OUT(g), STATES(o, state), s))                            \
    /* A list of products.  Unlike the others it is computed by the device if the backend has no entry, one by one. */ \
    X(products, (enum product_pass pass, const struct device_product *list, int count), (pass, list, count),           \
      one_by_one(seen.device, pass, list, count))

/* Shorthands of the list. */
#define T struct tensor
#define UNPACK(...) __VA_ARGS__

/* These are the calls that a backend has made to its device's library so far. */
struct backend_calls {
    uint64_t launches, products;        /* of its own kernels; of the library's */
    uint64_t copies;                    /* of memory, or filled */
    uint64_t allocations;               /* of memory, and given back */
    uint64_t waits;                     /* how often the host waited: a copy from or to its memory, memory given back */
    uint64_t lookups;                   /* whose memory an address is of */
};

struct backend {
    const char *name;                   /* as typed */
    const char *description;            /* one line */
    bool has_numbers;                   /* false: it only counts; a host view of its memory shows zeros */

    /* ---- REQUIRED: memory ---- */

    /* Memory aligned to 64 bytes, its content undefined; NULL if there is no more.  bytes > 0. */
    void *(*allocate)(struct device *, size_t bytes); /**< Allocates device memory; NULL if none is left. */
    /* @param bytes  as allocated.  No host view of it is open. */
    void (*release)(struct device *, void *, size_t bytes); /**< Frees memory of `allocate`. */
    /* Rows of `width` bytes, a pitch apart.  Either side may be the host's.  A single row may overlap itself. */
    void (*copy)(struct device *, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                 size_t rows);                              /**< Copies rows of bytes. */
    /* A host view, after all operations so far.  host_write's also has the current contents; data written through it is
     * on the device after host_done at the latest.  Nothing else writes those bytes until then.  No virtual time. */
    const void *(*host_read)(struct device *, const void *, size_t bytes); /**< Host view for reading. */
    void *(*host_write)(struct device *, void *, size_t bytes);            /**< Host view for reading and writing. */
    void (*host_done)(struct device *, const void *view);                  /**< Closes a host view. */

    /* ---- REQUIRED: operations ----
     * Those of ref/ops/ops.def in this format; NULL: it does not compute in it.  Bits may differ from ref's as sums in
     * another order do.  Operations that are OPTIONAL in ref/ops/ops.def may be NULL.  Without numbers none of them is
     * called. */
    const struct ops *(*ops)(enum dtype);                                  /**< Operations in this format, or NULL. */

    /* ---- OPTIONAL: the device itself ---- */

    enum error_code (*open)(struct device *, struct error *);   /* may set device->state */
    void (*close)(struct device *);                             /* all memory has been released */
    void (*begin)(struct device *);                             /* before an operation of `ops` */
    void (*end)(struct device *);                               /* after it */
    bool (*holds)(const struct device *, const void *);         /* without numbers: whether an address is of its memory,
                                                                 * so that there is nothing to copy */

    /* The address at which a library that knows this memory, such as a CUDA-aware MPI, reads, or also writes, once all
     * operations so far are done.  NULL: no library does. */
    void *(*direct)(struct device *, void *, size_t bytes, bool writes); /**< Address for a library, such as MPI. */
    struct backend_calls (*calls)(const struct device *);       /* for people; of the whole process */

    /* ---- OPTIONAL: operations on any tensors: OPTIONAL_ENTRIES above ---- */

#define X(name, parameters, arguments, host) void (*name)(struct device *, UNPACK parameters);
    OPTIONAL_ENTRIES(X)
#undef X
};

/* generic.c has a function for each OPTIONAL operation of ops.def, and for each such entry, that a backend leaves
 * NULL. */
#define GENERIC_REQUIRED(name, operands)
#define GENERIC_OPTIONAL(name, operands) void generic_##name(struct device *d, LIST_OF(PARAMETER, operands));
#define OPERATION(name, need, operands, cost) GENERIC_##need(name, operands)
#include "ref/ops/ops.def"
#undef GENERIC_REQUIRED
#undef GENERIC_OPTIONAL
#define X(name, parameters, arguments, host)                                                                           \
    void generic_##name(struct device *d, UNPACK parameters);                                                          \
    void device_##name(struct device *d, UNPACK parameters);
OPTIONAL_ENTRIES(X)
#undef X
#undef UNPACK
#undef T

/* ---- the registry ------------------------------------------------------------------------------------------------ */

enum { BACKENDS_MOST = 16 };
extern const struct backend *backends[BACKENDS_MOST];           /* ends with NULL */

/** Add one to the list, as the last: before a device is opened.  It must live as long as the program.
 *  @return OK; ERR_FORMAT: it lacks something, or the name is taken; ERR_MEMORY: the list is full. */
enum error_code backend_add(const struct backend *, struct error *);

/** The backend of this name, or NULL. */
const struct backend *backend_find(const char *name);

/** Whether a name is one.  @param flag  what gave it: "--backend".  @return OK, or ERR_USAGE naming the nearest. */
enum error_code backend_check(const char *flag, const char *name, struct error *);

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/** Copy bytes; either side may be the host's.  Local; no virtual time passes. */
void device_copy(struct device *, void *to, const void *from, uint64_t bytes);

/** Copy rows of `width` bytes, a pitch apart on each side. */
void device_copy_rows(struct device *, void *to, uint64_t to_pitch, const void *from, uint64_t from_pitch,
                      uint64_t width, int64_t rows);

/* ---- host views -------------------------------------------------------------------------------------------------- */

static inline const void *host_read(struct device *device, const void *data, uint64_t bytes)
{
    device_used(device, MEMORY_READ, data, bytes, "a host view");
    return device->backend->host_read(device, data, (size_t)bytes);
}

static inline void *host_write(struct device *device, void *data, uint64_t bytes)
{
    device_used(device, MEMORY_WRITTEN, data, bytes, "a host view");
    return device->backend->host_write(device, data, (size_t)bytes);
}

static inline void host_done(struct device *device, const void *view) { device->backend->host_done(device, view); }

/** Whether an address is of a device's memory that has no numbers: it reads as zeros, and writing it is nothing. */
static inline bool device_holds_zeros(const struct device *device, const void *data)
{
    return device->backend->holds != NULL && device->backend->holds(device, data);
}

/* Views that are given back together, in the order in which they were asked for. */
enum { VIEWS_MOST = 16 };
struct views {
    struct device *device;              /**< Device that has the memory. */
    int count;                          /**< Number of open views. */
    const void *view[VIEWS_MOST];       /**< Open views, in order. */
};

static inline struct views views_of(struct device *device) { return (struct views){ .device = device }; }

/** A view has the tensor's shape, and its data where the host can read or write them.  A tensor without data stays
 * without. */
struct tensor view_read(struct views *, struct tensor);
struct tensor view_write(struct views *, struct tensor);

/** Give all of them back. */
void views_end(struct views *);

/* ---- operations whose operands are watched ----------------------------------------------------------------------- */

static inline bool device_is_watched(const struct device *device)
{
    return device->watch && device->watch->first != device->watch->end;
}

static inline void device_operands(const struct device *device, const char *operation,
                                   const struct tensor *tensor, int count)
{
    for (int i = 0; i < count; i++)
        if (tensor[i].data != NULL)
            device_used(device, MEMORY_OPERAND, tensor[i].data, tensor_bytes(tensor[i]), operation);
}

/* The tensors among the arguments of an operation; tensor_none in the places of the others. */
#define OPERAND(x) _Generic((x), struct tensor: (x), default: tensor_none)

/* Tell who watches of an operation's tensors. */
#define WATCH_OPERANDS(d, operation, ...)                                                                              \
    do {                                                                                                               \
        if (!device_is_watched(d)) break;                                                                              \
        const struct tensor operands_[] = { LIST_OF(OPERAND, (__VA_ARGS__)) };                                         \
        device_operands(d, #operation, operands_, (int)(sizeof operands_ / sizeof operands_[0]));                      \
    } while (0)

/* ---- operations for any backend ---------------------------------------------------------------------------------- */

/** Charge a device's clock with an operation, and count it. */
static inline void device_charge(struct device *device, const char *what, struct op_cost cost)
{
    device->operations++;
    device->done.flops += cost.flops, device->done.bytes += cost.bytes;
    clock_compute(&device->clock, what, cost);
}

#endif
