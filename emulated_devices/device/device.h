/* device.h -- one emulated device: memory, time and a backend that computes (backend.h).
 *
 * device.c defines these functions; cli/, model/, collectives/attempt.c and tests open devices.  Every device is a
 * rank, and functions here concern that device alone: none is collective.
 */
#ifndef ORRERY_DEVICE_H
#define ORRERY_DEVICE_H

#include "emulated_devices/device/arena.h"
#include "emulated_devices/device/flight.h"
#include "ref/error.h"

struct backend;

/* The ways in which memory is used.  An operand is read or written. */
enum memory_use { MEMORY_READ, MEMORY_WRITTEN, MEMORY_OPERAND, MEMORY_RECEIVED, MEMORY_FREED };

/* Who is told of each use of memory between two addresses: comm, of the buffers of messages (comm/watch.h). */
struct watch {
    const char *first, *end;            /* equal: no memory is watched */
    /* @return of memory that is freed: whether it has to stay, because a message will still be received there. */
    bool (*used)(struct watch *, enum memory_use, const void *data, uint64_t bytes, const char *by);
};

struct device {
    const struct backend *backend;      /* entry points that compute and allocate */
    void *state;                        /* the backend's */
    struct arena arena;                 /* counts and owns all memory of this device */
    struct clock clock;                 /* virtual time of this device */
    struct flight_mode streams;         /* whether what is in flight can be seen; looked at by comm_open */
    struct watch *watch;                /* NULL: nobody is told */
    enum dtype dtype;                   /* of weights and activations */
    enum dtype sums;                    /* of partial sums and gradients, unless a plan keeps gradients in dtype */
    enum exact_rule exact;              /* SUMS_ROUND, or sums do not round before they are finished: sums is EXACT */
    uint64_t operations;                /* charged so far, and what they came to */
    struct op_cost done;                /* operations and bytes charged so far */
    const struct ops *ops;   /* the backend's for that format, called through compute.h only; NULL: it has no numbers */
};

/** Tell who watches of a use of memory.  @param by  the operation that uses it, for people, or NULL.
 *  @return as watch.used. */
static inline bool device_used(const struct device *device, enum memory_use use, const void *data, uint64_t bytes,
                               const char *by)
{
    struct watch *const w = device->watch;
    if (w == NULL || (const char *)data >= w->end || (const char *)data + bytes <= w->first) return false;
    return w->used(w, use, data, bytes, by);
}

/**
 * Prepare a device that computes in one number format.
 * It is part of the usual cluster; clock_open(&device->clock, ...), before comm_open, makes it one of another.
 * @param device       stays where it is until device_close.
 * @param backend NULL: the one that ORRERY_BACKEND names; without that "cpu", or in debug builds "discrete".
 * @param budget  bytes of emulated memory; 0: no limit.
 * @return OK; ERR_USAGE if the backend does not compute in this format, or ORRERY_BACKEND names none; or the backend's
 *     own
 *         error.  After failure there is nothing to close.
 */
enum error_code device_open(struct device *device, const struct backend *backend, enum dtype, uint64_t budget,
                            struct error *);
void device_close(struct device *);

/** Begin to count anew, as a device that has just been opened: the peaks of memory are what is in use now, and nothing
 *  is charged.  For a device that another plan uses from now on. */
void device_count_anew(struct device *);

/**
 * From now on sums do not round before they are finished (ref/exact/).  The backend must compute with the host's
 * operations.  @return OK, or ERR_USAGE: it does not, or not in this format; the device computes as before.
 */
enum error_code device_compute_exactly(struct device *, enum exact_rule, struct error *);

/* Tensors from the device's arena, in its format.  .data is an address for the backend (backend.h),
 * NULL if it has no memory. */
struct tensor device_tensor_1d(struct device *, enum arena_tag, int64_t n);
struct tensor device_tensor_2d(struct device *, enum arena_tag, int64_t rows, int64_t cols);

/** Allocate in another format: for gradients and optimizer state of 16-bit weights. */
struct tensor device_tensor_in(struct device *, enum arena_tag, enum dtype, int64_t n);

/** Integers in BUFFERS that the host and other devices read: real on every backend (arena_alloc_list). */
struct tensor device_list(struct device *, int64_t n);

/** Statistics that operations keep (ops.h): fp32 where the device's format has 16 bits.  cols 0: a vector. */
struct tensor device_statistics(struct device *, enum arena_tag, int64_t rows, int64_t cols);
void device_free(struct device *, struct tensor);

#endif
