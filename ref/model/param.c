/* param.c -- the initial values of a parameter, and which names are those of parameters.  device/drawn.c,
 * verify/reference/reference.c and transformer.c call param_init.  check/report/checker.c and ref/golden/coverage.c
 * call name_ends.  check/report/checked_kinds.c, check/report/checker_names.c, verify/reference/record.c and
 * ref/golden/replay.c call param_is_name.  No function returns an error code. */
#include "ref/model/param.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include <string.h>

enum { DRAWN_AT_ONCE = 1024 };

/* Draw n initial values of a parameter, without its mean. */
static void param_draw(double *x, const struct param_spec *spec, uint64_t seed, uint64_t stream, int64_t first,
                       int64_t n)
{
    float u[DRAWN_AT_ONCE];
    if (spec->uniform) {
        random_uniforms(u, n, seed, stream, (uint64_t)first);
        for (int64_t i = 0; i < n; i++) x[i] = spec->std * (2 * (double)u[i] - 1);
    } else if (spec->std > 0) {
        random_normals(x, n, seed, stream, (uint64_t)first);
        for (int64_t i = 0; i < n; i++) x[i] *= spec->std;
    } else {
        for (int64_t i = 0; i < n; i++) x[i] = 0;
    }
}

void param_init(const struct param_spec *spec, uint64_t seed, enum dtype dtype, int64_t first, int64_t n, void *out)
{
    const uint64_t stream = random_stream(spec->name);
    for (int64_t done = 0; done < n; done += DRAWN_AT_ONCE) {
        const int64_t many = n - done < DRAWN_AT_ONCE ? n - done : DRAWN_AT_ONCE;
        double x[DRAWN_AT_ONCE];
        float stored[DRAWN_AT_ONCE];
        /* Each element has its own place in the stream of numbers, so any range can be drawn alone. */
        param_draw(x, spec, seed, stream, first + done, many);
        for (int64_t i = 0; i < many; i++) x[i] = spec->mean + x[i];
        void *const to = (char *)out + (size_t)done * dtype_size(dtype);
        /* Weights of 16 bits are rounded fp32 masters, wherever they are drawn. */
        if (dtype_is_narrow(dtype)) convert_numbers(stored, F32, x, F64, many);
        if (dtype_is_narrow(dtype)) convert_numbers(to, dtype, stored, F32, many);
        else convert_numbers(to, dtype, x, F64, many);
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

bool name_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

bool param_is_name(const char *name) { return name_ends(name, ".weight") || name_ends(name, ".bias"); }
