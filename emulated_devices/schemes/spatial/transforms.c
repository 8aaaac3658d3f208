#include "emulated_devices/schemes/spatial/walk.h"

#define SIZE(...) ((const int64_t[WALK_DIMS]){ __VA_ARGS__ })

/* This device's part. */
static int64_t part(const struct tiling *t, enum tile_axis axis, int64_t count)
{
    return tiling_part(t, axis, count).count;
}

static struct range own_orders(const struct tiling *t, const struct harmonics *h)
{
    const struct interval own = tiling_part(t, AZIMUTH, h->degrees);
    return (struct range){ own.first, own.count };
}

enum error_code spatial_to_spectrum(struct tiling *t, const struct harmonics *h, enum transform kind, int64_t N,
                                    struct tensor x, struct tensor c, struct account *cost, struct error *err)
{
    const int64_t rows = part(t, POLAR, h->nlat), M = part(t, AZIMUTH, h->degrees), n = part(t, AZIMUTH, N);
    struct walk w = walk_from(t, cost, SIZE(N, rows, part(t, AZIMUTH, h->nlon), 1), x, err);
    /* The Fourier transform needs whole circles, so fields are exchanged for longitudes. */
    walk_turn(&w, AZIMUTH, 0, 2, h->nlon);
    struct walk_views v = walk_compute(&w, SIZE(n, rows, h->degrees, 2));
    if (v.to) harmonics_orders(h, kind, n * rows, v.from, v.to), walk_computed(&w, &v);
    walk_turn(&w, AZIMUTH, 2, 0, N);
    /* The Legendre transform needs all latitudes of an order. */
    walk_turn(&w, POLAR, 0, 1, h->nlat);
    v = walk_compute(&w, SIZE(part(t, POLAR, N), h->degrees, M, 2));
    if (v.to) harmonics_degrees(h, kind, own_orders(t, h), part(t, POLAR, N), v.from, v.to), walk_computed(&w, &v);
    walk_turn(&w, POLAR, 1, 0, N);
    return walk_to(&w, c);
}

enum error_code spatial_to_grid(struct tiling *t, const struct harmonics *h, enum transform kind, int64_t N,
                                struct tensor c, struct tensor x, struct account *cost, struct error *err)
{
    const int64_t rows = part(t, POLAR, h->nlat), M = part(t, AZIMUTH, h->degrees), n = part(t, AZIMUTH, N);
    struct walk w = walk_from(t, cost, SIZE(N, part(t, POLAR, h->degrees), M, 2), c, err);
    /* The way back first sums over degrees (Legendre), then over orders (Fourier). */
    walk_turn(&w, POLAR, 0, 1, h->degrees);
    struct walk_views v = walk_compute(&w, SIZE(part(t, POLAR, N), h->nlat, M, 2));
    if (v.to) harmonics_latitudes(h, kind, own_orders(t, h), part(t, POLAR, N), v.from, v.to), walk_computed(&w, &v);
    walk_turn(&w, POLAR, 1, 0, N);
    walk_turn(&w, AZIMUTH, 0, 2, h->degrees);
    v = walk_compute(&w, SIZE(n, rows, h->nlon, 1));
    if (v.to) harmonics_longitudes(h, kind, n * rows, v.from, v.to), walk_computed(&w, &v);
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
