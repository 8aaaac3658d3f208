/* The data-parallel schemes: one line each. */
#include "emulated_devices/schemes/data/data.h"
#include "ref/io/options.h"
#include <string.h>

extern const struct data_scheme data_scheme_ddp;

const struct data_scheme *const data_schemes[] = {
    &data_scheme_ddp,
    NULL,
};

enum error_code data_scheme_find(const struct data_scheme **found, const char *name, struct error *err)
{
    const char *names[sizeof data_schemes / sizeof *data_schemes];
    size_t n = 0;
    for (; data_schemes[n]; n++) {
        names[n] = data_schemes[n]->name;
        if (strcmp(names[n], name) == 0) {
            *found = data_schemes[n];
            return OK;
        }
    }
    return fail_unknown_name(err, "--data-parallel", name, names, n);
}
