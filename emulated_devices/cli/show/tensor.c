/* tensor.c -- `orrery show tensor`: reads which layer is drawn.  show.c calls show_tensor().  ERR_USAGE says what a
 * scheme needs of --devices; other errors are those of a drawing. */
#include "emulated_devices/draw/tensor/tensor.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/pictures.h"

enum error_code show_tensor(int argc, char **argv, int *status, struct error *err)
{
    struct tensor_shown a = { .devices = 4, .role = "up" };
    const char *name = tensor_scheme_at(0)->head.name;
    int mesh[TENSOR_AXES];
    double limit = wait_limit(SHORT_WAIT_LIMIT);
    bool help;
    const struct option table[] = {
        { "NAME", NULL, OPTION_STRING, &name, .help = "scheme; `orrery list tensor` shows them" },
        { "--devices", "P", OPTION_INT, &a.devices, .min = 1, .max = SHOW_TENSOR_DEVICES, .help = "of the tp group" },
        { "--role", "ROLE", OPTION_STRING, &a.role,
          .help = "which matrix of a block: qkv, out (of attention), up, down, or head" },
        SVG_OPTION(a.files.svg),
        PAGE_OPTION(a.files.page),
        WAIT_LIMIT_OPTION(limit),
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "show tensor", "[NAME] [options]",
        "Run a linear layer forward and backward under a tensor scheme, and draw step by step\nwhich "
        "device has which block, and what is sent, multiplied and added.", argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    set_wait_limit(limit);
    e = tensor_scheme_find(&a.scheme, name, err);
    if (!e) e = linear_role(&a.matrix, a.role, err);
    const char *needs = e ? NULL : a.scheme->mesh(a.devices, mesh);
    if (needs)
        return fail(err, ERR_USAGE, "show tensor: --devices %d: %s needs %s", a.devices, a.scheme->head.name, needs);
    if (e) return e;
    return under_launcher() ? be_a_device(F64, NULL, tensor_show, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
