/* tracking.c -- exact sums and error bounds of numbers that collectives quantise, in the host's memory.
 *
 * quantised.c, quantised_ring.c and schemes/data/ call this file where a check tracks errors; tracking.h says which
 * bounds.  Errors are ERR_MEMORY and ERR_COMM, on this member alone.
 */
#include "emulated_devices/collectives/tracking.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A single allocation holds both arrays, so that a message can carry sums and bounds together. */
enum error_code tracking_open(struct tracking *tracking, int64_t n, struct error *err)
{
    double *both = calloc(2 * (size_t)n + 1, sizeof *both);
    *tracking = (struct tracking){ 0 };
    if (both == NULL) return fail(err, ERR_MEMORY, "no memory to track %lld elements", (long long)n);
    *tracking = (struct tracking){ .exact = both, .bound = both + n };
    return OK;
}

void tracking_close(struct tracking *tracking)
{
    free(tracking->exact);
    *tracking = (struct tracking){ 0 };
}

void tracking_clear(struct tracking tracking, int64_t n)
{
    for (int64_t i = 0; i < n; i++) tracking.exact[i] = tracking.bound[i] = 0;
}

void tracking_start(struct device *device, struct tracking tracking, struct tensor x)
{
    struct views v = views_of(device);
    const struct tensor seen = view_read(&v, x);
    for (int64_t i = 0; i < tensor_count(x); i++) tracking.exact[i] = tensor_get(seen, i), tracking.bound[i] = 0;
    views_end(&v);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* Sums without quantising are in double; their rounding is added to the bound. */
static double exact_sum(double a, double b, double *bound)
{
    *bound += dtype_unit(F64) * fabs(a + b);
    return a + b;
}

/* |r - x| <= u |x| <= u/(1-u) |r| for r = x rounded; fp16 adds half its smallest number for underflow. */
static double stored(struct tensor x, int64_t i)
{
    const double u = dtype_unit(x.dtype);
    return u / (1 - u) * fabs(tensor_get(x, i)) + (x.dtype == F16 ? 0x1p-25 : 0);
}

/* The bound grows by the rounding of each stored number, which the stored number itself bounds. */
void tracking_add_storing(struct device *device, double *bound, struct tensor x)
{
    struct views v = views_of(device);
    const struct tensor seen = view_read(&v, x);
    for (int64_t i = 0; i < tensor_count(x); i++) bound[i] += stored(seen, i);
    views_end(&v);
}

void tracking_add(struct device *device, struct tracking into, struct tracking tracking, struct tensor now)
{
    struct views v = views_of(device);
    const struct tensor seen = view_read(&v, now);
    for (int64_t i = 0; i < tensor_count(now); i++) {
        into.bound[i] += tracking.bound[i] + stored(seen, i);
        into.exact[i] = exact_sum(into.exact[i], tracking.exact[i], &into.bound[i]);
    }
    views_end(&v);
}

/* |x| <= |x'| + 2 s for every code. */
void tracking_add_codes(double *bound, double *magnitude, const void *code, struct block_format format,
                        struct tensor value, enum dtype from)
{
    const double by_fp32 = from == F64 ? dtype_unit(F32) : 0;
    const float *const scale = code;
    block_add_bounds(bound, code, format, tensor_count(value));
    for (int64_t i = 0; i < tensor_count(value); i++) {
        const double size = fabs(tensor_get(value, i));
        if (by_fp32 > 0 && size > 0) bound[i] += by_fp32 * (size + 2 * scale[i / format.block]);
        magnitude[i] += size;
    }
}

/* The factor m u / (1 - m u) bounds m roundings of relative size u, one after another. */
void tracking_add_rounding(double *bound, const double *magnitude, int64_t n, int m, enum dtype dtype)
{
    const double mu = m * dtype_unit(dtype), underflow = dtype == F16 ? m * 0x1p-25 : 0;
    for (int64_t i = 0; i < n; i++) bound[i] += mu / (1 - mu) * magnitude[i] + (magnitude[i] > 0 ? underflow : 0);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Pack the `each` segments for one member: sums, then bounds. */
static void tracking_pack(double *out, struct tracking tracking, int64_t n, int64_t each, int member, int P)
{
    for (int64_t i = 0; i < each; i++) {
        memcpy(out + i * n, tracking.exact + (i * P + member) * n, (size_t)n * sizeof *out);
        memcpy(out + (each + i) * n, tracking.bound + (i * P + member) * n, (size_t)n * sizeof *out);
    }
}

/* Add the received sums and bounds of `count` elements to this member's. */
static void add_packed(struct tracking tracking, const double *in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        tracking.bound[i] += in[count + i];
        tracking.exact[i] = exact_sum(tracking.exact[i], in[i], &tracking.bound[i]);
    }
}

/* The direct algorithm: in step k each member sends to the k-th after it, and adds what came from the k-th before. */
enum error_code tracking_scatter(struct group *group, struct tracking x, int64_t n, int64_t each, struct tracking y,
                                 struct error *err)
{
    struct exchange control = exchange_begin(group, CONTROL);
    const int P = group->size;
    const int64_t count = each * n;
    const uint64_t bytes = 2 * (uint64_t)count * sizeof(double);
    double *out = malloc(2 * bytes + 1), *in = out + 2 * count;
    if (out == NULL) return fail(err, ERR_MEMORY, "no memory to track %lld elements", (long long)count);
    enum error_code e = OK;
    tracking_pack(out, x, n, each, group->rank, P);
    add_packed(y, out, count);
    for (int k = 1; k < P && !e; k++) {
        const int to = (group->rank + k) % P, from = (group->rank - k + P) % P;
        tracking_pack(out, x, n, each, to, P);
        e = exchange_both(&control, to, out, bytes, from, in, bytes, err);
        if (!e) add_packed(y, in, count);
    }
    free(out);
    return e;
}

/* Each number was rounded at most once per member; its magnitude is at most |exact value| + bound. */
static void add_sum(struct tracking tracking, double *magnitude, const double *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) magnitude[i] += fabs(in[i]) + in[n + i];
    add_packed(tracking, in, n);
}

/* Each member receives the numbers of all others and adds them itself, in the order of the list. */
enum error_code tracking_sum(struct exchange *control, int members, const int *member, struct tracking tracking,
                             struct tensor sum, struct error *err)
{
    const int64_t n = tensor_count(sum);
    const uint64_t bytes = 2 * (uint64_t)n * sizeof(double);
    double *own = malloc(2 * bytes + (uint64_t)n * sizeof *own + 1), *in = own + 2 * n, *magnitude = in + 2 * n;
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory to track %lld elements", (long long)n);
    enum error_code e = OK;
    tracking_pack(own, tracking, n, 1, 0, 1);
    for (int64_t i = 0; i < n; i++) tracking.exact[i] = tracking.bound[i] = magnitude[i] = 0;
    for (int k = 0; k < members && !e; k++) {
        const int other = member ? member[k] : k;
        const bool self = other == control->group->rank;
        if (!self) e = exchange_both(control, other, own, bytes, other, in, bytes, err);
        if (!e) add_sum(tracking, magnitude, self ? own : in, n);
    }
    if (!e) tracking_add_rounding(tracking.bound, magnitude, n, members, sum.dtype);
    if (!e && sum.dtype == F16) tracking_add_storing(control->group->comm->device, tracking.bound, sum);
    free(own);
    return e;
}
