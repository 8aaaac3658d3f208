/* partial.c -- `orrery bench partial`: trainings by partial pipelines beside a whole one, and the claims of SkipPipe.
 * bench.c calls bench_partial_topic().  Errors: ERR_USAGE of the words, ERR_PLAN of the schedule, ERR_MEMORY. */
#include "emulated_devices/bench/partial.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/threads.h"
#include <math.h>

enum { PARTIAL_MOST = 64 };             /* stages */

/* Its abstract says that a step is up to 55 % shorter, and that half of the model has 7 % more perplexity. */
static const double SAID_SHORTER = 55, SAID_HALF = 7;

static double perplexity_more(double loss, double than) { return 100 * (exp(loss - than) - 1); }

static void partial_add_row(struct table *table, int skip, const struct partial_found *found,
                            const struct partial_found *whole)
{
    table_row(table, "%d\t%.0f\t%.3f\t%.4f\t%+.1f\t%.4f\t%+.1f", skip, 100 * found->layers, found->span, found->loss,
              perplexity_more(found->loss, whole->loss), found->half, perplexity_more(found->half, found->loss));
}

/* Rows that say whether ours goes as published.  whole: without skips; most: with the most that the table has. */
static void print_directions(const struct partial_found *whole, const struct partial_found *most)
{
    const double shorter = 100 * (1 - most->span), half = perplexity_more(most->half, most->loss);
    const bool sooner = shorter > 0, stands = half < perplexity_more(whole->half, whole->loss);
    struct table t = table_start("claims", 1, "SkipPipe, arXiv:2502.19913\tsaid %%\tours %%\tgoes that way");
    table_row(&t, "a step is shorter, at most by\t%.0f\t%.0f\t%s", SAID_SHORTER, shorter, sooner ? "yes" : "NO");
    table_row(&t, "perplexity more without half of the layers\t%.0f\t%.1f\t%s", SAID_HALF, half, stands ? "yes" : "NO");
    table_row(&t, "the same, of the whole training\t\t%.1f\t", perplexity_more(whole->half, whole->loss));
    table_end(&t);
    say(stdout, 0,
        "\nTheirs are models of 500M to 7B parameters, on nodes of which some are slow.  This one has\n"
        "learnt for some steps on one short text, so that only directions are comparable.  \"yes\": a step is\n"
        "shorter, and less is lost than by the whole training.");
    if (!stands)
        say(stdout, 0, "\"NO\": after so few steps the whole model needs its depth little, and loses no more by "
            "less.");
    json_add(document_data(), "shorter %g half_partial %g half_whole %g converges %g", shorter, half,
             perplexity_more(whole->half, whole->loss), perplexity_more(most->loss, whole->loss));
}

static enum error_code partial_print(const struct partial_setting *setting, int skips, struct error *err)
{
    struct partial_found whole = { 0 }, found = { 0 };
    enum error_code e = OK;
    say(stdout, 0, "%s on one device by the rule of pp %d, %d microbatches: %lld steps of %lld sequences;\n"
        "loss of held-out text by the whole model, and without half of the layers", setting->model.name, setting->pp,
        setting->micro, (long long)setting->steps, (long long)setting->batch);
    struct table t = table_start("partial", 1, "skipped\tlayers %\ttime\tloss\tperplexity %\thalf\tperplexity %");
    for (int skip = 0; skip <= skips && !e; skip++) {
        e = partial_train(setting, skip, &found, err);
        if (skip == 0) whole = found;
        if (!e) partial_add_row(&t, skip, &found, &whole);
    }
    if (e) return table_drop(&t), e;
    table_end(&t);
    printf("\n");
    print_directions(&whole, &found);
    return OK;
}

enum error_code bench_partial_topic(int argc, char **argv, int *status, struct error *err)
{
    struct partial_setting s = { .pp = 8, .micro = 6, .held = 4 };
    const char *model = "tiny";
    int batch = 12, steps = 400, skips = 2;
    int64_t usual_batch;
    double lr = 0.01;
    struct text text;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &model, .help = "as for `orrery train`" },
        { "--pp", "P", OPTION_INT, &s.pp, .min = 3, .max = PARTIAL_MOST, .help = "stages" },
        { "--micro", "M", OPTION_INT, &s.micro, .min = 1, .max = 4096, .help = "microbatches of a step" },
        { "--batch", "B", OPTION_INT, &batch, .min = 1, .max = 65536, .help = "sequences of a step" },
        { "--steps", "N", OPTION_INT, &steps, .min = 1, .max = 1e6, .help = "steps of each training" },
        { "--skip", "N", OPTION_INT, &skips, .min = 1, .max = PARTIAL_MOST,
          .help = "stages skipped at most; each number up to it is tried" },
        { "--lr", "X", OPTION_DOUBLE, &lr, .min = 1e-9, .max = 1, .help = "learning rate of AdamW" },
        { 0 }
    };
    enum error_code e = parse_command("bench partial", "[options]",
                                      "Train with partial pipelines, in which each microbatch skips some stages, and\n"
                                      "with a whole one; compare losses, times, and models without half of the\n"
                                      "layers.  The claims are those of SkipPipe.", argc - 3, argv + 3, table, &help,
                                      err);
    if (e || help) return e;
    if (batch % s.micro != 0)
        return fail(err, ERR_USAGE, "--batch %d: must be a multiple of the %d microbatches", batch, s.micro);
    e = model_config_preset(&s.model, &usual_batch, model, err);
    if (!e && s.pp > s.model.L)
        e = fail(err, ERR_USAGE, "--pp %d: model %s has %lld layers", s.pp, model, (long long)s.model.L);
    if (!e) e = text_load_own(&text, err);
    if (e) return e;
    s.text = &text, s.batch = batch, s.steps = steps, s.lr = lr;
    threads_set(1);                     /* the same bits on every machine; and devices of a pipeline have one each */
    e = partial_print(&s, skips, err);
    text_free(&text);
    return e;
}
