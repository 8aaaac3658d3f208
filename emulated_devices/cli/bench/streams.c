/* streams.c -- `orrery bench streams`: published runs with parallel streams, beside the formula of their parameters and
 * the law of their losses.  bench.c calls bench_streams_topic().  Errors: ERR_USAGE of the words, ERR_FILE of the
 * results, ERR_MEMORY. */
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/model/stream_law.h"
#include <stdio.h>

static void print_parameters(void)
{
    int same = 0;
    say(stdout, 0, "Parameters without embeddings: M. Chen et al., arXiv:2505.10475, and ours: those of P = 1 and\n"
        "P D^2 + D + P D + P that weigh the streams, and 2 L P %d D/%d of the prefixes; L = %d\n", STREAM_PREFIX,
        STREAM_KEY_SHARE, STREAM_LAYERS);
    struct table t = table_start("parameters", 2, "D\tP\tpublished\tours\tapart");
    for (int i = 0; i < STREAM_SIZES; i++)
        for (int j = 1; j < STREAM_COUNTS; j++) {
            const int64_t D = stream_widths[i], published = stream_parameters[j][i];
            const int64_t ours = stream_parameters[0][i] + stream_extra_parameters(stream_counts[j], D, STREAM_LAYERS,
                                                                                   STREAM_PREFIX, D / STREAM_KEY_SHARE);
            table_row(&t, "%lld\t%d\t%lld\t%lld\t%lld", (long long)D, stream_counts[j], (long long)published,
                      (long long)ours, (long long)(ours - published));
            same += ours == published;
        }
    table_end(&t);
    printf("\n%d of %d are the same to the last digit.\n\n", same, STREAM_SIZES * (STREAM_COUNTS - 1));
}

static void print_losses(const struct stream_losses *losses)
{
    const struct stream_law l = stream_law_fit(losses);
    say(stdout, 0, "%s: E %.4f, A %.4f, alpha %.4f, k %.4f; R^2 %.4f; misfit %.4g\n", losses->corpus, l.E, l.A,
        l.alpha, l.k, stream_law_explained(&l, losses), stream_law_misfit(&l, losses));
    struct table t = table_start(losses->corpus, 2, "D\tP\tpublished\tours");
    for (int i = 0; i < STREAM_SIZES; i++)
        for (int j = 0; j < STREAM_COUNTS; j++)
            table_row(&t, "%lld\t%d\t%.4f\t%.4f", (long long)stream_widths[i], stream_counts[j], losses->loss[j][i],
                      stream_law_loss(&l, (double)stream_parameters[j][i], stream_counts[j]));
    table_end(&t);
    printf("\n");
}

/* Elements that the busiest of n devices sends, in rows of width D for each token, forward and backward. */
static void print_exchange(void)
{
    say(stdout, 0, "P streams on n devices: rows of D elements that a device sends for each token of a microbatch,\n"
           "forward and backward.  Ours: all streams of a token to one device, 2 (P/n) (n-1)/n if n divides P;\n"
           "counted in tests/devices/test_parscale.c.  Sums: two all-reduces each way, of the first product\n"
           "and of the mean.\n");
    struct table t = table_start("exchange", 2, "P\tn\tours\tsums");
    for (int P = 2; P <= 8; P *= 2)
        for (int n = 2; n <= P; n *= 2)
            table_row(&t, "%d\t%d\t%.3f\t%.3f", P, n, 2.0 * P / n * (n - 1) / n, 4 * 2.0 * (n - 1) / n);
    table_end(&t);
    printf("\n");
}

enum error_code bench_streams_topic(int argc, char **argv, int *status, struct error *err)
{
    bool help;
    (void)status;
    const struct option table[] = { { 0 } };
    enum error_code e = parse_command(
        "bench streams", "",
        "Models with P parallel streams (ParScale): published numbers of parameters beside the formula,\n"
        "what devices send that share them, and the law of their losses fitted anew to the published ones.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    print_parameters();
    print_exchange();
    say(stdout, 0, "The law: loss = E + (A 10^9 / (N (k ln P + 1)))^alpha, fitted to %d losses of each corpus.  The\n"
           "misfit is the sum of Huber losses (delta 0.001) of logarithms.  Then each loss, published and ours.\n",
        STREAM_RUNS);
    for (int i = 0; i < STREAM_CORPORA; i++) print_losses(&stream_losses[i]);
    return OK;
}
