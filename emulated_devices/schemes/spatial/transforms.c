/* transforms.c -- the spherical transform of tiled fields, to the spectrum and back.
 *
 * verify/cases/spatial.c runs both directions beside ref/sphere/harmonics.h.  Each direction has four all-to-alls:
 * two along azimuth, two along polar.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/spatial/walk.h"

#define SIZE(...) ((const int64_t[WALK_DIMS]){ __VA_ARGS__ })

/* This device's part. */
static int64_t part(const struct tiling *tiling, enum tile_axis axis, int64_t count)
{
    return tiling_part(tiling, axis, count).count;
}

/* This device has these orders m, so its Legendre transforms need only the tables of these orders. */
static struct range own_orders(const struct tiling *tiling, const struct harmonics *harmonics)
{
    const struct interval own = tiling_part(tiling, AZIMUTH, harmonics->degrees);
    return (struct range){ own.first, own.count };
}

/* The clock is charged for fast Fourier transforms, as in the released code, though ref/sphere adds term by term. */
static void charge_fourier(struct walk *walk, const struct harmonics *harmonics, int64_t rows)
{
    int64_t stages = 0, left = harmonics->nlon;
    /* A stage for each prime factor p is as p - 1 of those with 2, so a power of 2 has its logarithm of them. */
    for (int64_t p = 2; left > 1; p++)
        while (left % p == 0) stages += p - 1, left /= p;
    walk_charge(walk, "Fourier transform", 2.5 * (double)(harmonics->nlon * stages * rows),
                rows * (harmonics->nlon + 2 * harmonics->degrees));
}

/* A real matrix for each order, times complex numbers. */
static void charge_legendre(struct walk *walk, const struct harmonics *harmonics, int64_t fields, int64_t orders)
{
    walk_charge(walk, "Legendre transform",
                4 * (double)(harmonics->nlat * harmonics->degrees) * (double)(fields * orders),
                2 * fields * orders * (harmonics->nlat + harmonics->degrees));
}

enum error_code spatial_to_spectrum(struct tiling *tiling, const struct harmonics *harmonics,
                                    enum transform kind, int64_t N,
                                    struct tensor x, struct tensor c, struct account *cost, struct error *err)
{
    /* x [N, rows, longitudes] on this device becomes c [N, degrees, M orders, 2]. */
    const int64_t rows = part(tiling, POLAR, harmonics->nlat), M = part(tiling, AZIMUTH, harmonics->degrees),
        n = part(tiling, AZIMUTH, N);
    struct walk w = walk_from(tiling, cost, SIZE(N, rows, part(tiling, AZIMUTH, harmonics->nlon), 1), x, err);
    /* The Fourier transform needs whole circles, so fields are exchanged for longitudes. */
    walk_turn(&w, AZIMUTH, 0, 2, harmonics->nlon);
    struct walk_views v = walk_compute(&w, SIZE(n, rows, harmonics->degrees, 2));
    /* [n, rows, all longitudes] becomes [n, rows, all orders, 2]. */
    if (v.to) harmonics_orders(harmonics, kind, n * rows, v.from, v.to), walk_computed(&w, &v);
    charge_fourier(&w, harmonics, n * rows);
    walk_turn(&w, AZIMUTH, 2, 0, N);
    /* The Legendre transform needs all latitudes of an order. */
    walk_turn(&w, POLAR, 0, 1, harmonics->nlat);
    v = walk_compute(&w, SIZE(part(tiling, POLAR, N), harmonics->degrees, M, 2));
    /* [N', all rows, M, 2] becomes [N', all degrees, M, 2]. */
    if (v.to) harmonics_degrees(harmonics, kind, own_orders(tiling, harmonics), part(tiling, POLAR, N), v.from, v.to),
        walk_computed(&w, &v);
    charge_legendre(&w, harmonics, part(tiling, POLAR, N), M);
    walk_turn(&w, POLAR, 1, 0, N);
    return walk_to(&w, c);
}

enum error_code spatial_to_grid(struct tiling *tiling, const struct harmonics *harmonics,
                                enum transform kind, int64_t N,
                                struct tensor c, struct tensor x, struct account *cost, struct error *err)
{
    const int64_t rows = part(tiling, POLAR, harmonics->nlat), M = part(tiling, AZIMUTH, harmonics->degrees),
        n = part(tiling, AZIMUTH, N);
    struct walk w = walk_from(tiling, cost, SIZE(N, part(tiling, POLAR, harmonics->degrees), M, 2), c, err);
    /* The way back first sums over degrees (Legendre), then over orders (Fourier). */
    walk_turn(&w, POLAR, 0, 1, harmonics->degrees);
    struct walk_views v = walk_compute(&w, SIZE(part(tiling, POLAR, N), harmonics->nlat, M, 2));
    /* [N', all degrees, M, 2] becomes [N', all rows, M, 2]. */
    if (v.to) harmonics_latitudes(harmonics, kind, own_orders(tiling, harmonics), part(tiling, POLAR, N), v.from, v.to),
        walk_computed(&w, &v);
    charge_legendre(&w, harmonics, part(tiling, POLAR, N), M);
    walk_turn(&w, POLAR, 1, 0, N);
    walk_turn(&w, AZIMUTH, 0, 2, harmonics->degrees);
    v = walk_compute(&w, SIZE(n, rows, harmonics->nlon, 1));
    /* [n, rows, all orders, 2] becomes [n, rows, all longitudes]. */
    if (v.to) harmonics_longitudes(harmonics, kind, n * rows, v.from, v.to), walk_computed(&w, &v);
    charge_fourier(&w, harmonics, n * rows);
    walk_turn(&w, AZIMUTH, 2, 0, N);
    return walk_to(&w, x);
}

const struct spatial_scheme spatial_scheme_transforms = {
    .head = { .kind = SPATIAL_SCHEME, .equality = PERMUTES, .name = "transforms",
              .description = "distributed real Fourier and Legendre transforms: a grid to its spectrum and back",
              .source = "FourCastNet 3, arXiv:2507.12144; torch-harmonics",
              .volume = "four all-to-alls, each (g-1)/g of the local tile for a group of g",
              .memory = "what an exchange packs, and what arrives", .needs = "nothing" },
    .operation = TRANSFORMS,
};
