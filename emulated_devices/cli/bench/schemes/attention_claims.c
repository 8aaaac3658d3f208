/* attention_claims.c -- what papers claim of their attention schemes, beside our virtual time; and where a scheme
 * should not help. */
#include "emulated_devices/cli/bench/schemes/attention.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>

/* One side of a comparison: a scheme on P devices, in nodes of `node`. */
struct side { const char *scheme; int P, node; int64_t S; struct context_split split; };

/* The other's count over that of the first must be at least `least`, or where the scheme should not help at most
 * `most`; one of these is 0. */
struct claim {
    const char *source, *says;          /* source: "" as in the row before */
    struct side first, other;
    int64_t K, A;                       /* of 16 query heads; their width */
    int count;
    double claimed, least, most;        /* claimed 0: no number */
    const char *otherwise;              /* why it is not shown, if it is not */
};

enum { HEADS = 16, LONG = 65536, USUAL = 24576, SHORT = 4096 };
#define NONE { 0, 0, false }

static const struct claim claims[] = {
    { "Ulysses, arXiv:2309.14509", "a device sends the same if tokens and devices double",
      { "ulysses", 8, 8, SHORT, NONE }, { "ulysses", 4, 8, SHORT / 2, NONE }, 16, 8, COUNT_BYTES, 1.0, 0.85, 0, NULL },
    { "", "a ring does not", { "ring", 8, 8, SHORT, NONE }, { "ring", 4, 8, SHORT / 2, NONE }, 16, 8, COUNT_BYTES,
      0, 0, 0.5, NULL },
    { "Striped Attention, arXiv:2311.09431", "a training step, at 256K tokens on 8 GPUs",
      { "ring-striped", 8, 8, LONG, NONE }, { "ring", 8, 8, LONG, NONE }, 16, 4, COUNT_TIME, 1.45, 1.1, 0, NULL },
    { "", "no gain where messages take longest", { "ring-striped", 8, 1, SHORT, NONE }, { "ring", 8, 1, SHORT, NONE },
      16, 8, COUNT_TIME, 0, 0, 1.05, NULL },
    { "Llama 3, arXiv:2407.21783", "2P chunks balance the work", { "ring-zigzag", 8, 8, LONG, NONE },
      { "ring", 8, 8, LONG, NONE }, 16, 4, COUNT_TIME, 0, 1.1, 0, NULL },
    { "", "all-gather first: hardly slower with few key heads", { "allgather-kv", 4, 4, LONG, NONE },
      { "ring-zigzag", 4, 4, LONG, NONE }, 2, 32, COUNT_TIME, 0, 0.95, 0, NULL },
    { "", "but slower with many", { "allgather-kv", 4, 4, LONG, NONE }, { "ring-zigzag", 4, 4, LONG, NONE }, 16, 8,
      COUNT_TIME, 0, 0, 0.9, NULL },
    { "LoongTrain, arXiv:2406.18485", "838/706 tokens/s over a ring, few key heads, 128K, 32 GPUs",
      { "loongtrain", 16, 8, LONG, { 8, 0, false } }, { "ring-zigzag", 16, 8, LONG, NONE }, 4, 16, COUNT_TIME,
      1.19, 1.05, 0, NULL },
    { "", "838/630 tokens/s over Ulysses", { "loongtrain", 16, 8, LONG, { 8, 0, false } },
      { "ulysses", 16, 8, LONG, NONE }, 4, 16, COUNT_TIME, 1.33, 1.05, 0, NULL },
    { "", "no gain over a ring in one node, where its messages hide behind computing",
      { "loongtrain", 16, 16, LONG, { 8, 0, false } }, { "ring-zigzag", 16, 16, LONG, NONE }, 4, 16, COUNT_TIME,
      0, 0, 1.0, NULL },
    { "LoongTrain, section 4.3", "rings in rings: few messages leave a node",
      { "loongtrain", 8, 4, SHORT, { 1, 4, false } }, { "ring-zigzag", 8, 4, SHORT, NONE }, 16, 8, COUNT_TIME,
      0, 1.1, 0, NULL },
    { "", "no gain in one node", { "loongtrain", 8, 8, SHORT, { 1, 4, false } }, { "ring-zigzag", 8, 8, SHORT, NONE },
      16, 8, COUNT_TIME, 0, 0, 1.0, NULL },
    { "TokenRing, arXiv:2412.20501", "7.6 over 3.5 to 4.6 ms, 24K tokens, 4 GPUs on PCIe",
      { "tokenring", 4, 1, USUAL, NONE }, { "ring-zigzag", 4, 1, USUAL, NONE }, 16, 8, COUNT_FORWARD, 1.65, 1.05, 0,
      "here both ways of a device share a port, and results travel in fp32" },
    { "", "with backward, which the paper leaves open", { "tokenring", 4, 1, USUAL, NONE },
      { "ring-zigzag", 4, 1, USUAL, NONE }, 16, 8, COUNT_TIME, 0, 1.05, 0, NULL },
    { "", "a loss with few key heads", { "tokenring", 4, 1, USUAL, NONE }, { "ring-zigzag", 4, 1, USUAL, NONE }, 2, 8,
      COUNT_FORWARD, 0, 0, 1.0, NULL },
    { "Zeppelin, arXiv:2509.21841", "all cards of a node carry a ring's messages to another: 1.6, in an ablation",
      { "zeppelin", 8, 4, LONG, NONE }, { "ring-zigzag", 8, 4, LONG, NONE }, 16, 8, COUNT_TIME, 1.6, 1.1, 0, NULL },
    { "", "no gain where messages hide behind computing", { "zeppelin", 8, 8, LONG, NONE },
      { "ring-zigzag", 8, 8, LONG, NONE }, 16, 8, COUNT_TIME, 0, 0, 1.0, NULL },
};

static enum error_code run_side(const struct claim *claim, const struct side *side, const char *cluster,
                                char *program, double *count, int *status, struct error *err)
{
    static struct attention_rows rows;
    const struct attention_job j = {
        .shape = { 1, side->S, HEADS, claim->K, claim->A }, .split = side->split, .P = side->P, .node = side->node,
            .scheme = side->scheme,
        .dtype = BF16, .cluster = cluster,
    };
    const enum error_code e = attention_job_run(&rows, &j, program, status, err);
    if (!e && *status == 0) *count = rows.row[0].count[claim->count];
    return e;
}

static void add_claim(struct table *table, const struct claim *claim, double ratio)
{
    static const char *const what[ATTENTION_COUNTS] = { [COUNT_TIME] = "time", [COUNT_FORWARD] = "forward",
                                                        [COUNT_BYTES] = "bytes" };
    const bool shown = claim->least > 0 ? ratio >= claim->least : ratio <= claim->most;
    const struct side *s = &claim->first;
    char claimed[16] = "", which[40];
    if (claim->claimed > 0) snprintf(claimed, sizeof claimed, "%.2f", claim->claimed);
    snprintf(which, sizeof which, "%s, %s", s->scheme, claim->other.scheme);
    table_row(table, "%s\t%d\t%d\t%lld\t%lld\t%s\t%s\t%.2f\t%s\t%s%s%s%s%s", which, s->P, s->node, (long long)s->S,
              (long long)claim->K, what[claim->count], claimed, ratio, shown ? "yes" : "NO", claim->source,
              claim->source[0] ? ": " : "",
              claim->says, !shown && claim->otherwise ? "; " : "", !shown && claim->otherwise ? claim->otherwise : "");
}

enum error_code attention_claims(const char *cluster, char *program, int *status, struct error *err)
{
    printf("\n");
    say(stdout, 0, "Claims, and where a scheme should not help: time, forward time or bytes of the second scheme over\n"
           "those of the first.  16 query heads, K key/value heads, bf16.  Shown: ours goes the same way.");
    printf("\n");
    struct table t = table_start(NULL, 1, "\tP\tnode\ttokens\tK\tof\tclaimed\tours\tshown\tclaim");
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        double first = 0, other = 0;
        enum error_code e = run_side(&claims[i], &claims[i].first, cluster, program, &first, status, err);
        if (!e && *status == 0) e = run_side(&claims[i], &claims[i].other, cluster, program, &other, status, err);
        if (e || *status != 0) return table_drop(&t), e;
        add_claim(&t, &claims[i], other / first);
    }
    table_end(&t);
    return OK;
}
