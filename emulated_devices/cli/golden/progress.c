/* progress.c -- how far the measuring of bounds is: twins take nearly the same time in every format.  golden.c and
 * make.c call golden_show_twin().  No function returns an error code. */
#include "emulated_devices/cli/golden/golden.h"
#include <stdio.h>

void golden_show_twin(void *line, enum dtype dtype, int number)
{
    int before = 0, all = 0;
    char what[48];
    for (int f = 0; f < BOUND_FORMATS; f++) {
        if (bound_formats[f] == dtype) before = all;
        all += bound_twins(bound_formats[f]);
    }
    snprintf(what, sizeof what, "%s, twin %d of %d", dtype_name(dtype), number, bound_twins(dtype));
    time_left_show(line, (before + number) / (double)all, "measuring bounds", what);
}
