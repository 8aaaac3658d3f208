/* Tiles of the sphere (schemes/spatial) beside one device, on every tiling of the devices: what `orrery verify spatial`
 * runs.  Tilings that are refused.
 * ranks: 1 2 3 4 6
 * verify ranks: 8 14
 */
#include "tests/devices/on_devices.h"
#include "emulated_devices/verify/cases/spatial.h"

static struct error err;

static void test_every_tiling(void **state)
{
    (void)state;
    const struct spatial_scheme *s;
    for (int e = 1; e <= test_size; e++)
        for (int h = 1; e * h <= test_size; h++) {
            struct tiling t;
            if (test_size % (e * h) != 0) continue;
            const enum error_code opened = tiling_open(&t, &comm, (const int[]){ 1, e, h, test_size / (e * h) }, &err);
            ASSERT_ALL(opened == OK, "%s", err.text);
            for (int i = 0; (s = spatial_scheme_at(i)) != NULL; i++) {
                struct spatial_outcome o;
                ASSERT_ALL(verify_tiling(&t, s, &o, &err) == OK, "%s", err.text);
                ASSERT_ALL(o.verdict.code == OK, "%s: %s", s->head.name, o.verdict.text);
            }
            tiling_close(&t);
        }
}

static void test_refused(void **state)
{
    (void)state;
    struct tiling t;
    const enum error_code many = tiling_open(&t, &comm, (const int[]){ 1, 1, test_size, 2 }, &err);
    ASSERT_ALL(many == ERR_PLAN, "more tiles than devices: %s", error_meaning(many));
    const enum error_code none = tiling_open(&t, &comm, (const int[]){ 1, 1, 0, 1 }, &err);
    ASSERT_ALL(none == ERR_PLAN, "no tiles: %s", error_meaning(none));
}

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_every_tiling), ON_DEVICES(test_refused) };
    return MPI_RUN("tiles of the sphere", tests);
}
