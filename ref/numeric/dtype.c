#include "ref/numeric/dtype.h"
#include <string.h>

static const struct { const char *name, *file_name; size_t size; double unit, step; } info[] = {
#define X(id, name, file_name, bytes, unit, step) [id] = { name, file_name, bytes, unit, step },
    DTYPES(X)
#undef X
};

size_t dtype_size(enum dtype t) { return info[t].size; }
const char *dtype_name(enum dtype t) { return info[t].name; }
const char *dtype_file_name(enum dtype t) { return info[t].file_name; }
double dtype_unit(enum dtype t) { return info[t].unit; }
double dtype_step(enum dtype t) { return info[t].step; }
enum dtype dtype_wide(enum dtype t) { return t == BF16 || t == F16 ? F32 : t; }

bool dtype_is_narrow(enum dtype t) { return dtype_wide(t) != t; }

enum dtype dtype_by_name(const char *name)
{
    int t = 0;
    while (t < DTYPE_COUNT && strcmp(name, info[t].name) != 0 && strcmp(name, info[t].file_name) != 0) t++;
    return (enum dtype)t;
}
