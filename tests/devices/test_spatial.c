/* Tiles of the sphere (schemes/spatial) beside one device: transforms, both forms of the convolution, the score,
 * forward and backward, on every tiling of the devices; and what they send, by formulas.
 * ranks: 1 2 3 4 6
 * verify ranks: 8
 */
#include "tests/devices/on_devices.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/spatial/spatial.h"
#include <math.h>

enum { NLAT = 13, NLON = 24, IN = 2, OUT = 3 };

/* Sums of at most a few hundred products in another order. */
#define LIMIT 1e-12

static const double pi = 3.14159265358979323846;
static struct error err;

#define MUST(call) ASSERT_ALL((call) == OK, "%s", err.text)

/* ---- fields of the globe, on every device, and tiles of them ----------------------------------------------------- */

static double *room(int64_t n)
{
    double *const x = calloc((size_t)n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static double *some(int64_t n, int seed)
{
    double *const x = room(n);
    for (int64_t i = 0; i < n; i++) x[i] = sin((double)(i * 37 + seed) * 1.7 + (double)(i % 11));
    return x;
}

/* [first, second, third, fourth] of the globe; first, second and third may be cut. */
struct shape { int64_t size[4]; int axis[4]; };              /* axis: enum tile_axis, or -1 */

static struct shape shape_of(int64_t a, int64_t b, int64_t c, int64_t d, int cut_a, int cut_b, int cut_c)
{
    return (struct shape){ { a, b, c, d }, { cut_a, cut_b, cut_c, -1 } };
}
static struct shape fields(int64_t N) { return shape_of(N, NLAT, NLON, 1, -1, POLAR, AZIMUTH); }
static struct shape spectra(int64_t N, int64_t L) { return shape_of(N, L, L, 2, -1, POLAR, AZIMUTH); }

static struct interval cut(const struct tiling *t, struct shape s, int i)
{
    return s.axis[i] < 0 ? (struct interval){ 0, s.size[i] } : tiling_part(t, (enum tile_axis)s.axis[i], s.size[i]);
}

static int64_t count(const struct tiling *t, struct shape s)
{
    int64_t n = 1;
    for (int i = 0; i < 4; i++) n *= cut(t, s, i).count;
    return n;
}

/* A function of each element of the tile: its place in the tile and in the globe. */
static int64_t place(const struct tiling *t, struct shape s, int64_t at)
{
    int64_t whole = 0, left = at, digit[4];
    for (int i = 3; i >= 0; i--) {
        const int64_t n = cut(t, s, i).count;
        digit[i] = left % n + cut(t, s, i).first, left /= n;
    }
    for (int i = 0; i < 4; i++) whole = whole * s.size[i] + digit[i];
    return whole;
}

static struct tensor empty(const struct tiling *t, struct shape s)
{
    const struct tensor x = device_tensor_in(&device, ACTIVATIONS, F64, count(t, s) ? count(t, s) : 1);
    assert_non_null(x.data);
    return x;
}

static struct tensor tile_of(const struct tiling *t, struct shape s, const double *globe)
{
    const struct tensor x = empty(t, s);
    double *const own = room(count(t, s));
    for (int64_t i = 0; i < count(t, s); i++) own[i] = globe[place(t, s, i)];
    device_copy(&device, x.data, own, (uint64_t)count(t, s) * sizeof *own);
    free(own);
    return x;
}

/* The largest difference, over the largest number of the globe. */
static double apart(const struct tiling *t, struct shape s, struct tensor x, const double *globe)
{
    double most = 0, largest = 0, *const own = room(count(t, s));
    device_copy(&device, own, x.data, (uint64_t)count(t, s) * sizeof *own);
    for (int64_t i = 0; i < s.size[0] * s.size[1] * s.size[2] * s.size[3]; i++) largest = fmax(largest, fabs(globe[i]));
    for (int64_t i = 0; i < count(t, s); i++) {
        const double d = fabs(own[i] - globe[place(t, s, i)]);
        if (!(d <= most)) most = d;
    }
    free(own);
    return most / largest;
}

static void hold(const struct tiling *t, struct shape s, const char *what, struct tensor x, const double *globe,
                 double limit)
{
    const double off = apart(t, s, x, globe);
    ASSERT_ALL(off <= limit, "%s of tile %d %d of %d x %d, part %d of %d members, is off by %.3g", what,
               t->place[POLAR], t->place[AZIMUTH], t->size[POLAR], t->size[AZIMUTH],
               t->place[ENSEMBLE], t->size[ENSEMBLE], off);
    device_free(&device, x);
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

static struct account before;

static void begin(void) { before = comm.counted.of[TRAFFIC_SPATIAL]; }

/* Counted since begin, entered call by call, foreseen by the same function, and by the formula of this file. */
static void holds_volume(const char *what, const struct account *cost, enum operation op, int64_t elements)
{
    struct account sent = comm.counted.of[TRAFFIC_SPATIAL];
    account_add(&sent, before, -1);
    const struct traffic now = account_total(&sent), foreseen = account_total(cost);
    ASSERT_ALL(traffic_equal(&now, &foreseen, -1), "%s: %llu bytes, %llu additions; foreseen %llu, %llu", what,
               (unsigned long long)now.bytes_sent, (unsigned long long)now.additions,
               (unsigned long long)foreseen.bytes_sent, (unsigned long long)foreseen.additions);
    const uint64_t want = (uint64_t)elements * sizeof(double);
    ASSERT_ALL(sent.of[op].bytes_sent == want, "%s: %s of %llu bytes, not %llu", what, operation_name(op),
               (unsigned long long)sent.of[op].bytes_sent, (unsigned long long)want);
    const struct traffic counted = ledger_kind(&comm.counted, TRAFFIC_SPATIAL),
                         expected = ledger_kind(&comm.expected, TRAFFIC_SPATIAL);
    ASSERT_ALL(traffic_equal(&counted, &expected, -1), "%s: counted %llu bytes, expected %llu", what,
               (unsigned long long)counted.bytes_sent, (unsigned long long)expected.bytes_sent);
}

/* Of n, what others get. */
static int64_t others(const struct tiling *t, enum tile_axis axis, int64_t n)
{
    return n - tiling_part(t, axis, n).count;
}
static int64_t own(const struct tiling *t, enum tile_axis axis, int64_t n) { return tiling_part(t, axis, n).count; }

/* The four all-to-alls of a transform, from its two ends: elements that leave. */
static int64_t transform_volume(const struct tiling *t, int64_t N, int64_t L, bool to_spectrum)
{
    const int64_t rows = own(t, POLAR, NLAT), lon = own(t, AZIMUTH, NLON), l = own(t, POLAR, L), m = own(t, AZIMUTH, L);
    const int64_t n = own(t, AZIMUTH, N), k = own(t, POLAR, N);
    if (to_spectrum)
        return others(t, AZIMUTH, N) * rows * lon + n * rows * others(t, AZIMUTH, L) * 2 +
               others(t, POLAR, N) * rows * m * 2 + k * others(t, POLAR, L) * m * 2;
    return others(t, POLAR, N) * l * m * 2 + k * others(t, POLAR, NLAT) * m * 2 +
           others(t, AZIMUTH, N) * rows * m * 2 + n * rows * others(t, AZIMUTH, NLON);
}

/* ---- every tiling ------------------------------------------------------------------------------------------------ */

static void on_every_tiling(void (*test)(struct tiling *))
{
    for (int e = 1; e <= test_size; e++)
        for (int h = 1; e * h <= test_size; h++) {
            if (test_size % (e * h) != 0) continue;
            struct tiling t;
            MUST(tiling_open(&t, &comm, (const int[]){ e, h, test_size / (e * h) }, &err));
            test(&t);
            tiling_close(&t);
        }
}

static void transform_of(struct tiling *t, const struct harmonics *h, enum transform kind, int64_t N)
{
    const struct shape grid = fields(N), spectrum = spectra(N, h->degrees);
    const int64_t L = h->degrees;
    double *const x = some(N * NLAT * NLON, 1), *const c = some(N * L * L * 2, 2);
    double *const x_of_c = room(N * NLAT * NLON), *const c_of_x = room(N * L * L * 2);
    MUST(harmonics_to_spectrum(h, kind, N, x, c_of_x, &err));
    MUST(harmonics_to_grid(h, kind, N, c, x_of_c, &err));
    struct tensor own_x = tile_of(t, grid, x), own_c = tile_of(t, spectrum, c), to_c = empty(t, spectrum),
                  to_x = empty(t, grid);
    struct account cost = { 0 };
    MUST(spatial_to_spectrum(t, h, kind, N, own_x, to_c, &cost, &err));
    begin();
    MUST(spatial_to_spectrum(t, h, kind, N, own_x, to_c, NULL, &err));
    holds_volume("to the spectrum", &cost, ALLTOALL, transform_volume(t, N, L, true));
    cost = (struct account){ 0 };
    MUST(spatial_to_grid(t, h, kind, N, own_c, to_x, &cost, &err));
    begin();
    MUST(spatial_to_grid(t, h, kind, N, own_c, to_x, NULL, &err));
    holds_volume("to the grid", &cost, ALLTOALL, transform_volume(t, N, L, false));
    hold(t, spectrum, kind == ANALYSIS ? "analysis" : "synthesis backward", to_c, c_of_x, 0);
    hold(t, grid, kind == ANALYSIS ? "analysis backward" : "synthesis", to_x, x_of_c, 0);
    device_free(&device, own_x), device_free(&device, own_c);
    free(x), free(c), free(x_of_c), free(c_of_x);
}

/* Bits of one device; also with fewer fields than devices. */
static void transforms(struct tiling *t)
{
    struct harmonics h;
    MUST(harmonics_open(&h, EQUIANGULAR, NLAT, NLON, 0, &err));
    for (enum transform kind = ANALYSIS; kind <= SYNTHESIS; kind++)
        for (int64_t N = 1; N <= 5; N += 2) transform_of(t, &h, kind, N);
    harmonics_close(&h);
}

/* One device's results. */
struct convolved { double *y, *out, *d_x, *d_w; };

static struct convolved serial(const struct filter *f, struct mixing m, const double *x, const double *w,
                               const double *d)
{
    const int64_t N = m.B * m.in;
    const struct range all = { 0, NLAT };
    struct convolved c = { room(N * m.K * m.points), room(m.B * m.out * m.points), room(N * m.points),
                           room(m.out * m.in * m.K) };
    double *const d_y = room(N * m.K * m.points);
    filter_apply(f, N, all, x, all, c.y);
    mixing_forward(m, c.y, w, c.out);
    mixing_backward(m, c.y, w, d, d_y, c.d_w);
    filter_apply_transposed(f, N, all, c.d_x, all, d_y);
    free(d_y);
    return c;
}

/* Rows that others need of this device's: those within reach, counted one by one. */
static int64_t lent_rows(const struct tiling *t, int64_t reach, bool borrowed)
{
    int64_t rows = 0;
    for (int other = 0; other < t->size[POLAR]; other++) {
        const struct interval mine = tiling_part(t, POLAR, NLAT), its = block_at(NLAT, t->size[POLAR], other);
        const struct interval owner = borrowed ? its : mine, guest = borrowed ? mine : its;
        for (int64_t i = 0; i < NLAT && other != t->place[POLAR]; i++)
            rows += i >= owner.first && i < interval_end(owner) && i >= guest.first - reach &&
                    i < interval_end(guest) + reach;
    }
    return rows;
}

/* Around a ring a device passes on everything but what its successor began with. */
static int64_t rows_of_next(const struct tiling *t)
{
    if (t->size[POLAR] == 1) return NLAT;
    return block_at(NLAT, t->size[POLAR], (t->place[POLAR] + 1) % t->size[POLAR]).count;
}

static void convolution_of(struct tiling *t, const struct filter *f, enum convolution_form form, int64_t B)
{
    const struct spatial_convolution s = { f, form, B, IN, OUT };
    const struct mixing m = { B, IN, OUT, f->K, NLAT * NLON };
    const int64_t N = B * IN, n = own(t, AZIMUTH, N), rows = own(t, POLAR, NLAT), lon = own(t, AZIMUTH, NLON);
    const struct shape in = fields(N), out = fields(B * OUT), weights = shape_of(OUT, IN, f->K, 1, -1, -1, -1),
                       kept = shape_of(N * f->K, NLAT, NLON, 1, -1, POLAR, AZIMUTH);
    double *const x = some(N * m.points, 1), *const w = some(OUT * IN * f->K, 2);
    double *const d = some(B * OUT * m.points, 3);
    struct convolved want = serial(f, m, x, w, d);
    struct tensor own_x = tile_of(t, in, x), own_w = tile_of(t, weights, w), own_d = tile_of(t, out, d),
                  y = empty(t, kept), to = empty(t, out), d_x = empty(t, in), d_w = empty(t, weights);
    const char *const name = form == HALO ? "convolution with halo" : "convolution with reduce-scatter";
    struct account cost = { 0 };
    MUST(spatial_convolve(t, &s, own_x, own_w, y, to, &cost, &err));
    begin();
    MUST(spatial_convolve(t, &s, own_x, own_w, y, to, NULL, &err));
    holds_volume(name, &cost, ALLTOALL, others(t, AZIMUTH, N) * rows * lon +
                                            n * f->K * rows * others(t, AZIMUTH, NLON));
    holds_volume(name, &cost, form == HALO ? POINT_TO_POINT : REDUCE_SCATTER,
                 form == HALO ? n * lent_rows(t, f->reach, false) * NLON
                              : n * f->K * others(t, POLAR, NLAT) * NLON);
    cost = (struct account){ 0 };
    MUST(spatial_convolve_backward(t, &s, y, own_w, own_d, d_x, d_w, &cost, &err));
    begin();
    MUST(spatial_convolve_backward(t, &s, y, own_w, own_d, d_x, d_w, NULL, &err));
    holds_volume(name, &cost, ALLTOALL, others(t, AZIMUTH, N) * f->K * rows * lon +
                                            n * rows * others(t, AZIMUTH, NLON));
    holds_volume(name, &cost, form == HALO ? POINT_TO_POINT : ALLGATHER,
                 form == HALO ? n * lent_rows(t, f->reach, true) * NLON
                              : n * f->K * (NLAT - rows_of_next(t)) * NLON);
    hold(t, kept, "what a convolution keeps", y, want.y, form == HALO ? 0 : LIMIT);
    hold(t, out, name, to, want.out, form == HALO ? 0 : LIMIT);
    hold(t, in, "gradient of a convolution's input", d_x, want.d_x, LIMIT);
    hold(t, weights, "gradient of a convolution's weights", d_w, want.d_w, LIMIT);
    device_free(&device, own_x), device_free(&device, own_w), device_free(&device, own_d);
    free(x), free(w), free(d), free(want.y), free(want.out), free(want.d_x), free(want.d_w);
}

static void convolutions(struct tiling *t)
{
    struct filter f;
    MUST(filter_open(&f, EQUIANGULAR, NLAT, NLON, 3, 3, 2 * pi / (NLAT - 1), &err));
    for (int64_t B = 1; B <= 3; B += 2)
        for (enum convolution_form form = SCATTERED; form <= HALO; form++) convolution_of(t, &f, form, B);
    filter_close(&f);
}

static void score_of(struct tiling *t, const struct harmonics *h, int64_t members)
{
    const struct spatial_score s = { h, members, 2, 0.75 };
    const struct crps c = { members, 2, NLAT * NLON, 0.75 };
    double *const f = some(members * 2 * c.points, 1), *const o = some(2 * c.points, 2);
    double *const d = room(members * 2 * c.points), *const area = room(c.points), loss[2], slope[2] = { 1.5, -0.25 };
    for (int64_t p = 0; p < c.points; p++) area[p] = h->weight[p / NLON] / NLON / 2;
    crps_forward(c, f, o, area, loss);
    crps_backward(c, f, o, area, slope, d);
    struct shape cut_members = shape_of(members, 2, NLAT, NLON, ENSEMBLE, -1, POLAR);
    cut_members.axis[3] = AZIMUTH;
    const struct shape observed = fields(2), losses = shape_of(2, 1, 1, 1, -1, -1, -1);
    struct tensor own_f = tile_of(t, cut_members, f), own_o = tile_of(t, observed, o), to = empty(t, losses),
                  own_slope = tile_of(t, losses, slope), d_f = empty(t, cut_members);
    struct account cost = { 0 };
    MUST(spatial_crps(t, &s, own_f, own_o, to, own_slope, d_f, &cost, &err));
    begin();
    MUST(spatial_crps(t, &s, own_f, own_o, to, own_slope, d_f, NULL, &err));
    const int64_t all = own(t, POLAR, NLAT) * own(t, AZIMUTH, NLON), mine = own(t, ENSEMBLE, members);
    holds_volume("score", &cost, ALLTOALL, mine * 2 * others(t, ENSEMBLE, all) +
                                               others(t, ENSEMBLE, members) * 2 * own(t, ENSEMBLE, all));
    hold(t, losses, "score", to, loss, LIMIT);
    hold(t, cut_members, "gradient of the score", d_f, d, LIMIT);
    device_free(&device, own_f), device_free(&device, own_o), device_free(&device, own_slope);
    free(f), free(o), free(d), free(area);
}

static void scores(struct tiling *t)
{
    struct harmonics h;
    MUST(harmonics_open(&h, EQUIANGULAR, NLAT, NLON, 0, &err));
    for (int64_t members = 1; members <= 5; members += 2) score_of(t, &h, members);
    harmonics_close(&h);
}

static void test_transforms(void **state) { (void)state, on_every_tiling(transforms); }
static void test_convolutions(void **state) { (void)state, on_every_tiling(convolutions); }
static void test_scores(void **state) { (void)state, on_every_tiling(scores); }

static void test_refused(void **state)
{
    (void)state;
    struct tiling t;
    const enum error_code many = tiling_open(&t, &comm, (const int[]){ 1, test_size, 2 }, &err);
    ASSERT_ALL(many == ERR_PLAN, "more tiles than devices: %s", error_meaning(many));
    const enum error_code none = tiling_open(&t, &comm, (const int[]){ 1, 0, 1 }, &err);
    ASSERT_ALL(none == ERR_PLAN, "no tiles: %s", error_meaning(none));
}

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_transforms), ON_DEVICES(test_convolutions),
                                        ON_DEVICES(test_scores), ON_DEVICES(test_refused) };
    return MPI_RUN("tiles of the sphere", tests);
}
