/* The tensor-parallel schemes: one line each. */
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/io/options.h"
#include <string.h>

extern const struct tensor_scheme tensor_scheme_1d, tensor_scheme_1d_sp, tensor_scheme_1d_sp_keep, tensor_scheme_1d_sp_overlap,
    tensor_scheme_2d, tensor_scheme_2_5d, tensor_scheme_3d;

const struct tensor_scheme *const tensor_schemes[] = {
    &tensor_scheme_1d, &tensor_scheme_1d_sp, &tensor_scheme_1d_sp_keep, &tensor_scheme_1d_sp_overlap,
    &tensor_scheme_2d, &tensor_scheme_2_5d, &tensor_scheme_3d,
    NULL,
};

enum error_code tensor_scheme_find(const struct tensor_scheme **found, const char *name, struct error *err)
{
    const char *names[sizeof tensor_schemes / sizeof *tensor_schemes];
    size_t n = 0;
    for (; tensor_schemes[n]; n++) {
        names[n] = tensor_schemes[n]->name;
        if (strcmp(names[n], name) == 0) {
            *found = tensor_schemes[n];
            return OK;
        }
    }
    return fail_unknown_name(err, "--tensor", name, names, n);
}
