/* dtype.c -- properties of number formats, from the table DTYPES in dtype.h.  All rooms use this file; no function
 * here can fail.  Files of schemes/, verify/, check/, cli/ and other rooms call these functions. */
#include "ref/numeric/dtype.h"
#include <string.h>

static const struct { const char *name, *file_name; size_t size; double unit, step, largest; } info[] = {
#define X(id, name, file_name, bytes, unit, step, largest) [id] = { name, file_name, bytes, unit, step, largest },
    DTYPES(X)
#undef X
};

size_t dtype_size(enum dtype dtype) { return info[dtype].size; }
const char *dtype_name(enum dtype dtype) { return info[dtype].name; }
const char *dtype_file_name(enum dtype dtype) { return info[dtype].file_name; }
double dtype_unit(enum dtype dtype) { return info[dtype].unit; }
double dtype_step(enum dtype dtype) { return info[dtype].step; }
double dtype_largest(enum dtype dtype) { return info[dtype].largest; }
enum dtype dtype_wide(enum dtype dtype) { return dtype == BF16 || dtype == F16 ? F32 : dtype; }

bool dtype_is_narrow(enum dtype dtype) { return dtype_wide(dtype) != dtype; }

/* An unknown name gives DTYPE_COUNT. */
enum dtype dtype_by_name(const char *name)
{
    int t = 0;
    while (t < DTYPE_COUNT && strcmp(name, info[t].name) != 0 && strcmp(name, info[t].file_name) != 0) t++;
    return (enum dtype)t;
}
