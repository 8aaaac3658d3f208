/* attention.c -- `orrery show attention`: reads which attention is drawn.  show.c calls show_attention().  ERR_USAGE
 * says which word does not fit; other errors are those of a drawing. */
#include "emulated_devices/draw/attention/attention.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/pictures.h"

enum error_code show_attention(int argc, char **argv, int *status, struct error *err)
{
    /* by default the first scheme that cuts sequences */
    struct attention_shown a = { .devices = 4, .name = attention_scheme_at(1)->head.name };
    double limit = wait_limit(SHORT_WAIT_LIMIT);
    struct plan p;
    bool help;
    const struct option table[] = {
        { "NAME", NULL, OPTION_STRING, &a.name, .help = "scheme; `orrery list attention` shows them" },
        { "--devices", "P", OPTION_INT, &a.devices, .min = 1, .max = SHOW_ATTENTION_DEVICES,
          .help = "that share a sequence, --cp of `orrery train`" },
        { "--seq", "S", OPTION_INT, &a.tokens, .min = 0, .max = SHOW_ATTENTION_TOKENS,
          .help = "tokens; 0: 2 for each device, at least 16" },
        { "--heads", "H", OPTION_INT, &a.heads, .min = 0, .max = SHOW_ATTENTION_HEADS,
          .help = "query heads; 0: one for each device" },
        CONTEXT_SPLIT_OPTIONS(a.split),
        SVG_OPTION(a.files.svg),
        PAGE_OPTION(a.files.page),
        WAIT_LIMIT_OPTION(limit),
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "show attention", "[NAME] [options]",
        "Run attention over sequences that are cut over devices, and draw which device has which\n"
        "tokens, and which pairs of a query and a key it computes, step by step.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    set_wait_limit(limit);
    if (a.tokens == 0) a.tokens = a.devices > 8 ? 2 * a.devices : 16;
    if (a.heads == 0) a.heads = a.devices;
    e = attention_shown_plan(&p, &a, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F64, NULL, attention_show, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
