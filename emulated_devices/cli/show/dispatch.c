/* dispatch.c -- `orrery show dispatch`: reads which call of an expert scheme is drawn.  show.c calls show_dispatch().
 * ERR_USAGE says which word does not fit; other errors are those of a drawing. */
#include "emulated_devices/draw/dispatch/dispatch.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/pictures.h"

enum error_code show_dispatch(int argc, char **argv, int *status, struct error *err)
{
    /* by default the first scheme that cuts experts */
    struct dispatch_shown a = { .devices = 4, .etp = 1, .tokens = 3, .choices = 2,
                                .name = expert_scheme_at(1)->head.name };
    double limit = wait_limit(SHORT_WAIT_LIMIT);
    bool help;
    const struct option table[] = {
        { "NAME", NULL, OPTION_STRING, &a.name, .help = "scheme; `orrery list dispatch` shows them" },
        { "--devices", "P", OPTION_INT, &a.devices, .min = 1, .max = SHOW_DISPATCH_DEVICES,
          .help = "that share the experts: ep x etp" },
        { "--etp", "N", OPTION_INT, &a.etp, .min = 1, .max = SHOW_DISPATCH_DEVICES, .help = "slices of each expert" },
        { "--node", "N", OPTION_INT, &a.node, .min = 0, .max = SHOW_DISPATCH_DEVICES,
          .help = "devices of a node, for schemes that use nodes; 0: as the usual cluster says" },
        { "--experts", "E", OPTION_INT, &a.experts, .min = 0, .max = SHOW_DISPATCH_EXPERTS,
          .help = "0: two for each device" },
        { "--tokens", "N", OPTION_INT, &a.tokens, .min = 1, .max = SHOW_DISPATCH_TOKENS, .help = "of each device" },
        { "--choices", "K", OPTION_INT, &a.choices, .min = 1, .max = 8, .help = "experts of each token" },
        SVG_OPTION(a.files.svg),
        PAGE_OPTION(a.files.page),
        WAIT_LIMIT_OPTION(limit),
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "show dispatch", "[NAME] [options]",
        "Send tokens to experts on several devices and back, and draw which token goes where in each\n"
        "hop, and which expert computes it.", argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    set_wait_limit(limit);
    e = dispatch_shown_check(&a, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F64, NULL, dispatch_show, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
