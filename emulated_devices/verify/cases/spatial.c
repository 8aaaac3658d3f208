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

static struct comm *comm_of(const struct trial *x) { return x->t->all.comm; }

static void close_trial(struct trial *x)
{
    for (int i = 0; i < x->globes; i++) free(x->globe[i]);
    for (int i = 0; i < x->tiles; i++) device_free(comm_of(x)->device, x->tile[i]);
}

/* ---- fields of the globe, on every device, and tiles of them ----------------------------------------------------- */

static double *room(struct trial *x, int64_t n)
{
    double *const to = calloc((size_t)n + 1, sizeof *to);
    if (to == NULL) x->e = fail(x->err, ERR_MEMORY, "no memory for %lld numbers of the globe", (long long)n);
    else x->globe[x->globes++] = to;
    return to;
}

static double *some(struct trial *x, int64_t n, int seed)
{
    double *const to = room(x, n);
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
static struct shape whole(int64_t a, int64_t b, int64_t c)
{
    return (struct shape){ { a, b, c, 1 }, { -1, -1, -1, -1 } };
}

static struct interval cut(const struct trial *x, struct shape s, int i)
{
    return s.axis[i] < 0 ? (struct interval){ 0, s.size[i] } : tiling_part(x->t, (enum tile_axis)s.axis[i], s.size[i]);
}

static int64_t count(const struct trial *x, struct shape s)
{
    int64_t n = 1;
    for (int i = 0; i < 4; i++) n *= cut(x, s, i).count;
    return n;
}

/* Where an element of the tile is in the globe. */
static int64_t place(const struct trial *x, struct shape s, int64_t at)
{
    int64_t in_globe = 0, left = at, digit[4];
    for (int i = 3; i >= 0; i--) {
        const int64_t n = cut(x, s, i).count;
        digit[i] = left % n + cut(x, s, i).first, left /= n;
    }
    for (int i = 0; i < 4; i++) in_globe = in_globe * s.size[i] + digit[i];
    return in_globe;
}

static struct tensor empty(struct trial *x, struct shape s)
{
    const struct tensor to = x->e ? tensor_none
        : device_tensor_in(comm_of(x)->device, BUFFERS, F64, count(x, s) ? count(x, s) : 1);
    if (to.data) x->tile[x->tiles++] = to;
    else if (!x->e) x->e = fail(x->err, ERR_MEMORY, "no memory for a tile of %lld numbers", (long long)count(x, s));
    return to;
}

static struct tensor tile_of(struct trial *x, struct shape s, const double *globe)
{
    const struct tensor to = empty(x, s);
    struct views v = views_of(comm_of(x)->device);
    double *const own = x->e ? NULL : view_write(&v, to).data;
    for (int64_t i = 0; i < count(x, s) && own; i++) own[i] = globe[place(x, s, i)];
    views_end(&v);
    return to;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* Hold a tile against the globe. */
static void hold(struct trial *x, struct shape s, const char *what, struct tensor tile, const double *globe,
                 double limit)
{
    double most = 0, largest = 0;
    if (x->e) return;
    struct views v = views_of(comm_of(x)->device);
    const double *const own = view_read(&v, tile).data;
    for (int64_t i = 0; i < s.size[0] * s.size[1] * s.size[2] * s.size[3]; i++) largest = fmax(largest, fabs(globe[i]));
    for (int64_t i = 0; i < count(x, s); i++) {
        const double d = fabs(own[i] - globe[place(x, s, i)]) / largest;
        if (!(d <= most)) most = d;
    }
    views_end(&v);
    if (!(most <= x->o->error)) x->o->error = most;
    if (!(most <= limit) && !x->o->verdict.code)
        fail(&x->o->verdict, ERR_CHECK, "%s of tile %d %d of %d x %d, part %d of %d members, is off by %.3g", what,
             x->t->place[POLAR], x->t->place[AZIMUTH], x->t->size[POLAR], x->t->size[AZIMUTH], x->t->place[ENSEMBLE],
             x->t->size[ENSEMBLE], most);
}

/* Before a call: every device has all that it needs. */
static void begin(struct trial *x)
{
    x->e = comm_agree(comm_of(x), x->e, x->err);
    x->counted = comm_of(x)->counted.of[TRAFFIC_SPATIAL], x->entered = comm_of(x)->expected.of[TRAFFIC_SPATIAL];
    x->cost = (struct account){ 0 };
}

/* After it: what was counted equals what was foreseen, and what was entered call by call. */
static struct account sent(struct trial *x, const char *what)
{
    struct account here = comm_of(x)->counted.of[TRAFFIC_SPATIAL], entered = comm_of(x)->expected.of[TRAFFIC_SPATIAL];
    account_add(&here, x->counted, -1), account_add(&entered, x->entered, -1);
    const struct traffic now = account_total(&here), foreseen = account_total(&x->cost), said = account_total(&entered);
    x->o->calls++, x->o->bytes += now.bytes_sent;
    if (!x->e && !x->o->verdict.code && !(traffic_equal(&now, &foreseen, -1) && traffic_equal(&now, &said, -1)))
        fail(&x->o->verdict, ERR_CHECK, "%s: %llu bytes, %llu additions; foreseen %llu, %llu; entered %llu, %llu", what,
             (unsigned long long)now.bytes_sent, (unsigned long long)now.additions,
             (unsigned long long)foreseen.bytes_sent, (unsigned long long)foreseen.additions,
             (unsigned long long)said.bytes_sent, (unsigned long long)said.additions);
    return here;
}

/* What one operation has sent equals the formula of this file. */
static void holds_volume(struct trial *x, const char *what, const struct account *sent, enum operation op,
                         int64_t elements)
{
    const uint64_t want = (uint64_t)elements * sizeof(double), bytes = sent->of[op].bytes_sent;
    if (!x->e && !x->o->verdict.code && bytes != want)
        fail(&x->o->verdict, ERR_CHECK, "%s: %s of %llu bytes, by formula %llu", what, operation_name(op),
             (unsigned long long)bytes, (unsigned long long)want);
}

/* Of n, what others get, and what this device gets. */
static int64_t others(const struct trial *x, enum tile_axis axis, int64_t n)
{
    return n - tiling_part(x->t, axis, n).count;
}
static int64_t own(const struct trial *x, enum tile_axis axis, int64_t n) { return tiling_part(x->t, axis, n).count; }

/* ---- transforms -------------------------------------------------------------------------------------------------- */

/* The four all-to-alls of a transform, from its two ends: elements that leave. */
static int64_t transform_volume(const struct trial *x, int64_t N, int64_t L, bool to_spectrum)
{
    const int64_t rows = own(x, POLAR, NLAT), lon = own(x, AZIMUTH, NLON), l = own(x, POLAR, L), m = own(x, AZIMUTH, L);
    const int64_t n = own(x, AZIMUTH, N), k = own(x, POLAR, N);
    if (to_spectrum)
        return others(x, AZIMUTH, N) * rows * lon + n * rows * others(x, AZIMUTH, L) * 2 +
               others(x, POLAR, N) * rows * m * 2 + k * others(x, POLAR, L) * m * 2;
    return others(x, POLAR, N) * l * m * 2 + k * others(x, POLAR, NLAT) * m * 2 +
           others(x, AZIMUTH, N) * rows * m * 2 + n * rows * others(x, AZIMUTH, NLON);
}

/* Both directions with the factors of one transform. */
static void transform_of(struct trial *x, const struct harmonics *h, enum transform kind, int64_t N)
{
    const struct shape grid = fields(N), spectrum = spectra(N, h->degrees);
    const int64_t L = h->degrees;
    double *const f = some(x, N * NLAT * NLON, 1), *const c = some(x, N * L * L * 2, 2);
    double *const f_of_c = room(x, N * NLAT * NLON), *const c_of_f = room(x, N * L * L * 2);
    if (!x->e) x->e = harmonics_to_spectrum(h, kind, N, f, c_of_f, x->err);
    if (!x->e) x->e = harmonics_to_grid(h, kind, N, c, f_of_c, x->err);
    const struct tensor own_f = tile_of(x, grid, f), own_c = tile_of(x, spectrum, c), to_c = empty(x, spectrum),
                        to_f = empty(x, grid);
    begin(x);
    if (!x->e) x->e = spatial_to_spectrum(x->t, h, kind, N, own_f, to_c, &x->cost, x->err);
    if (!x->e) x->e = spatial_to_spectrum(x->t, h, kind, N, own_f, to_c, NULL, x->err);
    struct account done = sent(x, "to the spectrum");
    holds_volume(x, "to the spectrum", &done, ALLTOALL, transform_volume(x, N, L, true));
    begin(x);
    if (!x->e) x->e = spatial_to_grid(x->t, h, kind, N, own_c, to_f, &x->cost, x->err);
    if (!x->e) x->e = spatial_to_grid(x->t, h, kind, N, own_c, to_f, NULL, x->err);
    done = sent(x, "to the grid");
    holds_volume(x, "to the grid", &done, ALLTOALL, transform_volume(x, N, L, false));
    hold(x, spectrum, kind == ANALYSIS ? "analysis" : "synthesis backward", to_c, c_of_f, 0);
    hold(x, grid, kind == ANALYSIS ? "analysis backward" : "synthesis", to_f, f_of_c, 0);
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* One device's results. */
struct convolved { double *y, *out, *d_x, *d_w; };

static struct convolved serial(struct trial *x, const struct filter *f, struct mixing m, const double *in,
                               const double *w, const double *d)
{
    const int64_t N = m.B * m.in;
    const struct range all = { 0, NLAT };
    const struct convolved c = { room(x, N * m.K * m.points), room(x, m.B * m.out * m.points), room(x, N * m.points),
                                 room(x, m.out * m.in * m.K) };
    double *const d_y = room(x, N * m.K * m.points);
    if (x->e) return c;
    filter_apply(f, N, all, in, all, c.y);
    mixing_forward(m, c.y, w, c.out);
    mixing_backward(m, c.y, w, d, d_y, c.d_w);
    filter_apply_transposed(f, N, all, c.d_x, all, d_y);
    return c;
}

/* Rows that others need of this device's, or it of theirs: those within reach, counted one by one. */
static int64_t lent_rows(const struct trial *x, int64_t reach, bool borrowed)
{
    const int size = x->t->size[POLAR], place = x->t->place[POLAR];
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
static int64_t rows_of_next(const struct trial *x)
{
    const int size = x->t->size[POLAR];
    return size == 1 ? NLAT : block_at(NLAT, size, (x->t->place[POLAR] + 1) % size).count;
}

static void convolution_of(struct trial *x, const struct filter *f, enum convolution_form form, int64_t B)
{
    const struct spatial_convolution s = { f, form, B, IN, OUT };
    const struct mixing m = { B, IN, OUT, f->K, NLAT * NLON };
    const bool halo = form == HALO;
    const int64_t N = B * IN, n = own(x, AZIMUTH, N), rows = own(x, POLAR, NLAT), lon = own(x, AZIMUTH, NLON);
    const struct shape in = fields(N), out = fields(B * OUT), weights = whole(OUT, IN, f->K), kept = fields(N * f->K);
    double *const globe = some(x, N * m.points, 1), *const w = some(x, OUT * IN * f->K, 2);
    double *const d = some(x, B * OUT * m.points, 3);
    const struct convolved want = serial(x, f, m, globe, w, d);
    const struct tensor own_x = tile_of(x, in, globe), own_w = tile_of(x, weights, w), own_d = tile_of(x, out, d),
                        y = empty(x, kept), to = empty(x, out), d_x = empty(x, in), d_w = empty(x, weights);
    const char *const name = halo ? "convolution with halo" : "convolution with reduce-scatter";
    begin(x);
    if (!x->e) x->e = spatial_convolve(x->t, &s, own_x, own_w, y, to, &x->cost, x->err);
    if (!x->e) x->e = spatial_convolve(x->t, &s, own_x, own_w, y, to, NULL, x->err);
    struct account done = sent(x, name);
    holds_volume(x, name, &done, ALLTOALL, others(x, AZIMUTH, N) * rows * lon +
                                               n * f->K * rows * others(x, AZIMUTH, NLON));
    holds_volume(x, name, &done, halo ? POINT_TO_POINT : REDUCE_SCATTER,
                 halo ? n * lent_rows(x, f->reach, false) * NLON : n * f->K * others(x, POLAR, NLAT) * NLON);
    begin(x);
    if (!x->e) x->e = spatial_convolve_backward(x->t, &s, y, own_w, own_d, d_x, d_w, &x->cost, x->err);
    if (!x->e) x->e = spatial_convolve_backward(x->t, &s, y, own_w, own_d, d_x, d_w, NULL, x->err);
    done = sent(x, name);
    holds_volume(x, name, &done, ALLTOALL, others(x, AZIMUTH, N) * f->K * rows * lon +
                                               n * rows * others(x, AZIMUTH, NLON));
    holds_volume(x, name, &done, halo ? POINT_TO_POINT : ALLGATHER,
                 halo ? n * lent_rows(x, f->reach, true) * NLON : n * f->K * (NLAT - rows_of_next(x)) * NLON);
    hold(x, kept, "what a convolution keeps", y, want.y, halo ? 0 : LIMIT);
    hold(x, out, name, to, want.out, halo ? 0 : LIMIT);
    hold(x, in, "gradient of a convolution's input", d_x, want.d_x, LIMIT);
    hold(x, weights, "gradient of a convolution's weights", d_w, want.d_w, LIMIT);
}

/* ---- score ------------------------------------------------------------------------------------------------------- */

static void score_of(struct trial *x, const struct harmonics *h, int64_t members)
{
    const struct spatial_score s = { h, members, 2, 0.75 };
    const struct crps c = { members, 2, NLAT * NLON, 0.75 };
    double *const f = some(x, members * 2 * c.points, 1), *const o = some(x, 2 * c.points, 2);
    double *const d = room(x, members * 2 * c.points), *const area = room(x, c.points), loss[2];
    const double slope[2] = { 1.5, -0.25 };
    for (int64_t p = 0; p < c.points && !x->e; p++) area[p] = h->weight[p / NLON] / NLON / 2;
    if (!x->e) crps_forward(c, f, o, area, loss), crps_backward(c, f, o, area, slope, d);
    const struct shape cut_members = { { members, 2, NLAT, NLON }, { ENSEMBLE, -1, POLAR, AZIMUTH } };
    const struct shape losses = whole(2, 1, 1);
    const struct tensor own_f = tile_of(x, cut_members, f), own_o = tile_of(x, fields(2), o), to = empty(x, losses),
                        own_slope = tile_of(x, losses, slope), d_f = empty(x, cut_members);
    begin(x);
    if (!x->e) x->e = spatial_crps(x->t, &s, own_f, own_o, to, own_slope, d_f, &x->cost, x->err);
    if (!x->e) x->e = spatial_crps(x->t, &s, own_f, own_o, to, own_slope, d_f, NULL, x->err);
    const struct account done = sent(x, "score");
    const int64_t all = own(x, POLAR, NLAT) * own(x, AZIMUTH, NLON), mine = own(x, ENSEMBLE, members);
    holds_volume(x, "score", &done, ALLTOALL, mine * 2 * others(x, ENSEMBLE, all) +
                                                  others(x, ENSEMBLE, members) * 2 * own(x, ENSEMBLE, all));
    hold(x, losses, "score", to, loss, LIMIT);
    hold(x, cut_members, "gradient of the score", d_f, d, LIMIT);
}

/* ---- a case ------------------------------------------------------------------------------------------------------ */

static void call(struct trial *x, const struct spatial_scheme *s, const struct harmonics *h, const struct filter *f,
                 int64_t number)
{
    if (s->operation == TRANSFORMS) transform_of(x, h, number < 0 ? SYNTHESIS : ANALYSIS, llabs(number));
    if (s->operation == CONVOLUTION) convolution_of(x, f, s->form, number);
    if (s->operation == SCORE) score_of(x, h, number);
}

/* Numbers of fields or members; negative: of a synthesis. */
static const int64_t numbers[][7] = {
    [TRANSFORMS] = { 1, 3, 5, -1, -3, -5 }, [CONVOLUTION] = { 1, 3 }, [SCORE] = { 1, 3, 5 },
};

enum error_code verify_tiling(struct tiling *t, const struct spatial_scheme *s, struct spatial_outcome *o,
                              struct error *err)
{
    struct harmonics h = { 0 };
    struct filter f = { 0 };
    *o = (struct spatial_outcome){ 0 };
    enum error_code e = harmonics_open(&h, EQUIANGULAR, NLAT, NLON, 0, err);
    if (!e) e = filter_open(&f, EQUIANGULAR, NLAT, NLON, 3, 3, 2 * pi / (NLAT - 1), err);
    for (int i = 0; numbers[s->operation][i] != 0; i++) {       /* on every device, whatever happened on this one */
        struct trial x = { .t = t, .o = o, .err = err, .e = e };
        call(&x, s, &h, &f, numbers[s->operation][i]);
        close_trial(&x);
        e = x.e;
    }
    e = comm_agree(t->all.comm, e, err);
    if (!e) comm_agree(t->all.comm, o->verdict.code, &o->verdict);
    if (e == ERR_CHECK) o->verdict = *err, e = OK;      /* of comm, for example of a missing wait */
    filter_close(&f), harmonics_close(&h);
    return e;
}
