/* spatial.c -- runs operations on tiles of the sphere on all devices, beside the same operation on the whole globe.
 * Callers are verify/jobs/spatial.c and test_spatial.c.  A wrong tile or volume is a verdict; ERR_MEMORY and
 * ERR_COMM are errors. */
#include "emulated_devices/verify/cases/spatial.h"
#include "emulated_devices/device/compute.h"
#include <math.h>
#include <stdlib.h>

enum { NLAT = 13, NLON = 22, IN = 2, OUT = 3, MOST = 16 };

/* Sums of at most a few hundred products in another order. */
#define LIMIT 1e-12

static const double pi = 3.14159265358979323846;

/* One call and its backward pass on this device. */
struct trial {
    struct tiling *t;
    struct spatial_outcome *o;
    struct error *err;
    enum error_code e;                  /* after an error nothing more is computed or sent */
    double *globe[MOST];
    struct tensor tile[MOST];
    int globes, tiles;
    struct account counted, entered, cost;      /* before a call; foreseen of it */
};

static struct comm *comm_of(const struct trial *trial) { return trial->t->all.comm; }

/* Free all globes and tiles of a call, also after an error. */
static void close_trial(struct trial *trial)
{
    for (int i = 0; i < trial->globes; i++) free(trial->globe[i]);
    for (int i = 0; i < trial->tiles; i++) device_free(comm_of(trial)->device, trial->tile[i]);
}

/* ---- fields of the globe, on every device, and tiles of them ----------------------------------------------------- */

/* Make zeros for n numbers of the globe.  After an error the trial has the error, and the result is NULL. */
static double *room(struct trial *trial, int64_t n)
{
    double *const to = calloc((size_t)n + 1, sizeof *to);
    if (to == NULL) trial->e = fail(trial->err, ERR_MEMORY, "no memory for %lld numbers of the globe", (long long)n);
    else trial->globe[trial->globes++] = to;
    return to;
}

/* Make n numbers from -1 to 1 that depend on index and seed alone, so devices have one globe. */
static double *some(struct trial *trial, int64_t n, int seed)
{
    double *const to = room(trial, n);
    for (int64_t i = 0; i < n && to; i++) to[i] = sin((double)(i * 37 + seed) * 1.7 + (double)(i % 11));
    return to;
}

/* Four dimensions of the globe, and the axis that cuts each: enum tile_axis, or -1. */
struct shape { int64_t size[4]; int axis[4]; };

static struct shape fields(int64_t N) { return (struct shape){ { N, NLAT, NLON, 1 }, { -1, POLAR, AZIMUTH, -1 } }; }
static struct shape spectra(int64_t N, int64_t L)
{
    return (struct shape){ { N, L, L, 2 }, { -1, POLAR, AZIMUTH, -1 } };
}
static struct shape spatial_whole(int64_t a, int64_t b, int64_t c)
{
    return (struct shape){ { a, b, c, 1 }, { -1, -1, -1, -1 } };
}

/* The result is this device's part of one dimension: all of it if no axis cuts the dimension. */
static struct interval spatial_cut(const struct trial *trial, struct shape shape, int i)
{
    return shape.axis[i] < 0 ? (struct interval){ 0, shape.size[i] }
           : tiling_part(trial->t, (enum tile_axis)shape.axis[i], shape.size[i]);
}

/* This device's tile has the product of its parts as elements. */
static int64_t spatial_count(const struct trial *trial, struct shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < 4; i++) n *= spatial_cut(trial, shape, i).count;
    return n;
}

/* Where an element of the tile is in the globe. */
static int64_t spatial_place(const struct trial *trial, struct shape shape, int64_t at)
{
    int64_t in_globe = 0, left = at, digit[4];
    /* The index in the tile is taken apart, the last dimension first, then joined with the sizes of the globe. */
    for (int i = 3; i >= 0; i--) {
        const int64_t n = spatial_cut(trial, shape, i).count;
        digit[i] = left % n + spatial_cut(trial, shape, i).first, left /= n;
    }
    for (int i = 0; i < 4; i++) in_globe = in_globe * shape.size[i] + digit[i];
    return in_globe;
}

/* Make an undefined tile of this shape; an empty tile has one number, so that its memory exists. */
static struct tensor empty(struct trial *trial, struct shape shape)
{
    const struct tensor to = trial->e ? tensor_none
        : device_tensor_in(comm_of(trial)->device, BUFFERS, F64,
                           spatial_count(trial, shape) ? spatial_count(trial, shape) : 1);
    if (to.data) trial->tile[trial->tiles++] = to;
    else if (!trial->e) trial->e = fail(trial->err, ERR_MEMORY, "no memory for a tile of %lld numbers",
                                        (long long)spatial_count(trial, shape));
    return to;
}

/* Make this device's tile of a field of the globe. */
static struct tensor tile_of(struct trial *trial, struct shape shape, const double *globe)
{
    const struct tensor to = empty(trial, shape);
    struct views v = views_of(comm_of(trial)->device);
    double *const own = trial->e ? NULL : view_write(&v, to).data;
    for (int64_t i = 0; i < spatial_count(trial, shape) && own; i++) own[i] = globe[spatial_place(trial, shape, i)];
    views_end(&v);
    return to;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* Hold a tile against the globe: the largest difference over the largest number of the globe.  A limit of 0 asks for
 * equal bits. */
static void spatial_hold(struct trial *trial, struct shape shape, const char *what, struct tensor tile,
                         const double *globe, double limit)
{
    double most = 0, largest = 0;
    if (trial->e) return;
    struct views v = views_of(comm_of(trial)->device);
    const double *const own = view_read(&v, tile).data;
    for (int64_t i = 0; i < shape.size[0] * shape.size[1] * shape.size[2] * shape.size[3]; i++)
        largest = fmax(largest, fabs(globe[i]));
    for (int64_t i = 0; i < spatial_count(trial, shape); i++) {
        const double d = fabs(own[i] - globe[spatial_place(trial, shape, i)]) / largest;
        if (!(d <= most)) most = d;
    }
    views_end(&v);
    if (!(most <= trial->o->error)) trial->o->error = most;
    if (!(most <= limit) && !trial->o->verdict.code)
        fail(&trial->o->verdict, ERR_CHECK, "%s of tile %d %d of %d x %d, part %d of %d members, is off by %.3g", what,
             trial->t->place[POLAR], trial->t->place[AZIMUTH], trial->t->size[POLAR], trial->t->size[AZIMUTH],
             trial->t->place[ENSEMBLE],
             trial->t->size[ENSEMBLE], most);
}

/* Agree before a call that every device has all that it needs, and note what was counted so far. */
static void spatial_begin(struct trial *trial)
{
    trial->e = comm_agree(comm_of(trial), trial->e, trial->err);
    trial->counted = comm_of(trial)->counted.of[TRAFFIC_SPATIAL],
        trial->entered = comm_of(trial)->expected.of[TRAFFIC_SPATIAL];
    trial->cost = (struct account){ 0 };
}

/* After it: what was counted equals what was foreseen, and what was entered call by call. */
static struct account spatial_sent(struct trial *trial, const char *what)
{
    struct account here = comm_of(trial)->counted.of[TRAFFIC_SPATIAL],
        entered = comm_of(trial)->expected.of[TRAFFIC_SPATIAL];
    account_add(&here, trial->counted, -1), account_add(&entered, trial->entered, -1);
    const struct traffic now = account_total(&here), foreseen = account_total(&trial->cost),
        said = account_total(&entered);
    trial->o->calls++, trial->o->bytes += now.bytes_sent;
    if (!trial->e && !trial->o->verdict.code && !(traffic_equal(&now, &foreseen, -1) && traffic_equal(&now, &said, -1)))
        fail(&trial->o->verdict, ERR_CHECK, "%s: %llu bytes, %llu additions; foreseen %llu, %llu; entered %llu, %llu",
             what, (unsigned long long)now.bytes_sent, (unsigned long long)now.additions,
             (unsigned long long)foreseen.bytes_sent, (unsigned long long)foreseen.additions,
             (unsigned long long)said.bytes_sent, (unsigned long long)said.additions);
    return here;
}

/* The bytes that one operation has sent must equal the formula of this file. */
static void holds_volume(struct trial *trial, const char *what, const struct account *sent, enum operation op,
                         int64_t elements)
{
    const uint64_t want = (uint64_t)elements * sizeof(double), bytes = sent->of[op].bytes_sent;
    if (!trial->e && !trial->o->verdict.code && bytes != want)
        fail(&trial->o->verdict, ERR_CHECK, "%s: %s of %llu bytes, by formula %llu", what, operation_name(op),
             (unsigned long long)bytes, (unsigned long long)want);
}

/* These say how many of n the other devices get, and how many this device gets. */
static int64_t others(const struct trial *trial, enum tile_axis axis, int64_t n)
{
    return n - tiling_part(trial->t, axis, n).count;
}
static int64_t own(const struct trial *trial, enum tile_axis axis, int64_t n)
{
    return tiling_part(trial->t, axis, n).count;
}

/* ---- transforms -------------------------------------------------------------------------------------------------- */

/* The four all-to-alls of a transform, from its two ends: elements that leave. */
static int64_t transform_volume(const struct trial *trial, int64_t N, int64_t L, bool to_spectrum)
{
    const int64_t rows = own(trial, POLAR, NLAT), lon = own(trial, AZIMUTH, NLON), l = own(trial, POLAR, L),
        m = own(trial, AZIMUTH, L);
    const int64_t n = own(trial, AZIMUTH, N), k = own(trial, POLAR, N);
    if (to_spectrum)
        return others(trial, AZIMUTH, N) * rows * lon + n * rows * others(trial, AZIMUTH, L) * 2 +
               others(trial, POLAR, N) * rows * m * 2 + k * others(trial, POLAR, L) * m * 2;
    return others(trial, POLAR, N) * l * m * 2 + k * others(trial, POLAR, NLAT) * m * 2 +
           others(trial, AZIMUTH, N) * rows * m * 2 + n * rows * others(trial, AZIMUTH, NLON);
}

/* Run both directions with the factors of one transform.  Each call is made twice: with `cost` the library foresees,
 * without it computes and sends. */
static void transform_of(struct trial *trial, const struct harmonics *harmonics, enum transform kind, int64_t N)
{
    const struct shape grid = fields(N), spectrum = spectra(N, harmonics->degrees);
    const int64_t L = harmonics->degrees;
    double *const f = some(trial, N * NLAT * NLON, 1), *const c = some(trial, N * L * L * 2, 2);
    double *const f_of_c = room(trial, N * NLAT * NLON), *const c_of_f = room(trial, N * L * L * 2);
    if (!trial->e) trial->e = harmonics_to_spectrum(harmonics, kind, N, f, c_of_f, trial->err);
    if (!trial->e) trial->e = harmonics_to_grid(harmonics, kind, N, c, f_of_c, trial->err);
    const struct tensor own_f = tile_of(trial, grid, f), own_c = tile_of(trial, spectrum, c),
        to_c = empty(trial, spectrum),
                        to_f = empty(trial, grid);
    spatial_begin(trial);
    if (!trial->e) trial->e = spatial_to_spectrum(trial->t, harmonics, kind, N, own_f, to_c, &trial->cost, trial->err);
    if (!trial->e) trial->e = spatial_to_spectrum(trial->t, harmonics, kind, N, own_f, to_c, NULL, trial->err);
    struct account done = spatial_sent(trial, "to the spectrum");
    holds_volume(trial, "to the spectrum", &done, ALLTOALL, transform_volume(trial, N, L, true));
    spatial_begin(trial);
    if (!trial->e) trial->e = spatial_to_grid(trial->t, harmonics, kind, N, own_c, to_f, &trial->cost, trial->err);
    if (!trial->e) trial->e = spatial_to_grid(trial->t, harmonics, kind, N, own_c, to_f, NULL, trial->err);
    done = spatial_sent(trial, "to the grid");
    holds_volume(trial, "to the grid", &done, ALLTOALL, transform_volume(trial, N, L, false));
    spatial_hold(trial, spectrum, kind == ANALYSIS ? "analysis" : "synthesis backward", to_c, c_of_f, 0);
    spatial_hold(trial, grid, kind == ANALYSIS ? "analysis backward" : "synthesis", to_f, f_of_c, 0);
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* These are the results of one device: kept y, output, and gradients of input and weights. */
struct convolved { double *y, *out, *d_x, *d_w; };

/* Compute forward and backward pass on the whole globe, with ref/sphere. */
static struct convolved serial(struct trial *trial, const struct filter *filter, struct mixing mixing, const double *in,
                               const double *w, const double *d)
{
    const int64_t N = mixing.B * mixing.in;
    const struct range all = { 0, NLAT };
    const struct convolved c = { room(trial, N * mixing.K * mixing.points),
                                room(trial, mixing.B * mixing.out * mixing.points), room(trial, N * mixing.points),
                                 room(trial, mixing.out * mixing.in * mixing.K) };
    double *const d_y = room(trial, N * mixing.K * mixing.points);
    if (trial->e) return c;
    filter_apply(filter, N, all, in, all, c.y);
    mixing_forward(mixing, c.y, w, c.out);
    mixing_backward(mixing, c.y, w, d, d_y, c.d_w);
    filter_apply_transposed(filter, N, all, c.d_x, all, d_y);
    return c;
}

/* Rows that others need of this device's, or it of theirs: those within reach, counted one by one. */
static int64_t lent_rows(const struct trial *trial, int64_t reach, bool borrowed)
{
    const int size = trial->t->size[POLAR], place = trial->t->place[POLAR];
    int64_t rows = 0;
    for (int other = 0; other < size; other++) {
        const struct interval mine = block_at(NLAT, size, place), its = block_at(NLAT, size, other);
        const struct interval owner = borrowed ? its : mine, guest = borrowed ? mine : its;
        for (int64_t i = 0; i < NLAT && other != place && guest.count > 0; i++)
            rows += i >= owner.first && i < interval_end(owner) && i >= guest.first - reach &&
                    i < interval_end(guest) + reach;
    }
    return rows;
}

/* Around a ring a device passes on everything but what its successor began with. */
static int64_t rows_of_next(const struct trial *trial)
{
    const int size = trial->t->size[POLAR];
    return size == 1 ? NLAT : block_at(NLAT, size, (trial->t->place[POLAR] + 1) % size).count;
}

/* Run a convolution in one form, forward and backward.  With a halo each device adds as one device does, so the
 * forward results have equal bits.  A reduce-scatter adds in another order. */
static void convolution_of(struct trial *trial, const struct filter *filter, enum convolution_form form, int64_t B)
{
    const struct spatial_convolution s = { filter, form, B, IN, OUT, 1, false };
    const struct mixing m = { B, IN, OUT, filter->K, NLAT * NLON, 1 };
    const bool halo = form == HALO;
    const int64_t N = B * IN, n = own(trial, AZIMUTH, N), rows = own(trial, POLAR, NLAT),
        lon = own(trial, AZIMUTH, NLON);
    const struct shape in = fields(N), out = fields(B * OUT), weights = spatial_whole(OUT, IN, filter->K),
        kept = fields(N * filter->K);
    double *const globe = some(trial, N * m.points, 1), *const w = some(trial, OUT * IN * filter->K, 2);
    double *const d = some(trial, B * OUT * m.points, 3);
    const struct convolved want = serial(trial, filter, m, globe, w, d);
    const struct tensor own_x = tile_of(trial, in, globe), own_w = tile_of(trial, weights, w),
        own_d = tile_of(trial, out, d),
                        y = empty(trial, kept), to = empty(trial, out), d_x = empty(trial, in),
                            d_w = empty(trial, weights);
    const char *const name = halo ? "convolution with halo" : "convolution with reduce-scatter";
    spatial_begin(trial);
    if (!trial->e) trial->e = spatial_convolve(trial->t, &s, own_x, own_w, y, to, &trial->cost, trial->err);
    if (!trial->e) trial->e = spatial_convolve(trial->t, &s, own_x, own_w, y, to, NULL, trial->err);
    struct account done = spatial_sent(trial, name);
    holds_volume(trial, name, &done, ALLTOALL, others(trial, AZIMUTH, N) * rows * lon +
                                               n * filter->K * rows * others(trial, AZIMUTH, NLON));
    holds_volume(trial, name, &done, halo ? POINT_TO_POINT : REDUCE_SCATTER,
                 halo ? n * lent_rows(trial, filter->reach, false) * NLON
                     : n * filter->K * others(trial, POLAR, NLAT) * NLON);
    spatial_begin(trial);
    if (!trial->e) trial->e = spatial_convolve_backward(trial->t, &s, y, own_w, own_d, d_x, d_w,
                                                        &trial->cost, trial->err);
    if (!trial->e) trial->e = spatial_convolve_backward(trial->t, &s, y, own_w, own_d, d_x, d_w, NULL, trial->err);
    done = spatial_sent(trial, name);
    holds_volume(trial, name, &done, ALLTOALL, others(trial, AZIMUTH, N) * filter->K * rows * lon +
                                               n * rows * others(trial, AZIMUTH, NLON));
    holds_volume(trial, name, &done, halo ? POINT_TO_POINT : ALLGATHER,
                 halo ? n * lent_rows(trial, filter->reach, true) * NLON
                     : n * filter->K * (NLAT - rows_of_next(trial)) * NLON);
    spatial_hold(trial, kept, "what a convolution keeps", y, want.y, halo ? 0 : LIMIT);
    spatial_hold(trial, out, name, to, want.out, halo ? 0 : LIMIT);
    spatial_hold(trial, in, "gradient of a convolution's input", d_x, want.d_x, LIMIT);
    spatial_hold(trial, weights, "gradient of a convolution's weights", d_w, want.d_w, LIMIT);
}

/* ---- score ------------------------------------------------------------------------------------------------------- */

/* Run the score of an ensemble whose members are cut over devices, and its gradient. */
static void score_of(struct trial *trial, const struct harmonics *harmonics, int64_t members)
{
    const struct spatial_score s = { harmonics, members, 2, 0.75 };
    const struct crps c = { members, 2, NLAT * NLON, 0.75 };
    double *const f = some(trial, members * 2 * c.points, 1), *const o = some(trial, 2 * c.points, 2);
    double *const d = room(trial, members * 2 * c.points), *const area = room(trial, c.points), loss[2];
    const double slope[2] = { 1.5, -0.25 };
    for (int64_t p = 0; p < c.points && !trial->e; p++) area[p] = harmonics->weight[p / NLON] / NLON / 2;
    if (!trial->e) crps_forward(c, f, o, area, loss), crps_backward(c, f, o, area, slope, d);
    const struct shape cut_members = { { members, 2, NLAT, NLON }, { ENSEMBLE, -1, POLAR, AZIMUTH } };
    const struct shape losses = spatial_whole(2, 1, 1);
    const struct tensor own_f = tile_of(trial, cut_members, f), own_o = tile_of(trial, fields(2), o),
        to = empty(trial, losses),
                        own_slope = tile_of(trial, losses, slope), d_f = empty(trial, cut_members);
    spatial_begin(trial);
    if (!trial->e) trial->e = spatial_crps(trial->t, &s, own_f, own_o, to, own_slope, d_f, &trial->cost, trial->err);
    if (!trial->e) trial->e = spatial_crps(trial->t, &s, own_f, own_o, to, own_slope, d_f, NULL, trial->err);
    const struct account done = spatial_sent(trial, "score");
    const int64_t all = own(trial, POLAR, NLAT) * own(trial, AZIMUTH, NLON), mine = own(trial, ENSEMBLE, members);
    holds_volume(trial, "score", &done, ALLTOALL, mine * 2 * others(trial, ENSEMBLE, all) +
                                                  others(trial, ENSEMBLE, members) * 2 * own(trial, ENSEMBLE, all));
    spatial_hold(trial, losses, "score", to, loss, LIMIT);
    spatial_hold(trial, cut_members, "gradient of the score", d_f, d, LIMIT);
}

/* ---- a case ------------------------------------------------------------------------------------------------------ */

/* Run one operation of a scheme for `number` fields or members. */
static void call(struct trial *trial, const struct spatial_scheme *scheme, const struct harmonics *harmonics,
                 const struct filter *filter, int64_t number)
{
    if (scheme->operation == TRANSFORMS)
        transform_of(trial, harmonics, number < 0 ? SYNTHESIS : ANALYSIS, llabs(number));
    if (scheme->operation == CONVOLUTION) convolution_of(trial, filter, scheme->form, number);
    if (scheme->operation == SCORE) score_of(trial, harmonics, number);
}

/* These are numbers of fields or members; negative numbers ask for a synthesis. */
static const int64_t numbers[][7] = {
    [TRANSFORMS] = { 1, 3, 5, -1, -3, -5 }, [CONVOLUTION] = { 1, 3 }, [SCORE] = { 1, 3, 5 },
};

enum error_code verify_tiling(struct tiling *tiling, const struct spatial_scheme *scheme,
                              struct spatial_outcome *outcome, struct error *err)
{
    struct harmonics h = { 0 };
    struct filter f = { 0 };
    *outcome = (struct spatial_outcome){ 0 };
    enum error_code e = harmonics_open(&h, EQUIANGULAR, NLAT, NLON, 0, err);
    if (!e) e = filter_open(&f, EQUIANGULAR, NLAT, NLON, 3, 3, 2 * pi / (NLAT - 1), err);
    /* on every device, whatever happened on this one */
    for (int i = 0; numbers[scheme->operation][i] != 0; i++) {
        struct trial x = { .t = tiling, .o = outcome, .err = err, .e = e };
        call(&x, scheme, &h, &f, numbers[scheme->operation][i]);
        close_trial(&x);
        e = x.e;
    }
    e = comm_agree(tiling->all.comm, e, err);
    if (!e) comm_agree(tiling->all.comm, outcome->verdict.code, &outcome->verdict);
    if (e == ERR_CHECK) outcome->verdict = *err, e = OK;      /* of comm, for example of a missing wait */
    filter_close(&f), harmonics_close(&h);
    return e;
}
