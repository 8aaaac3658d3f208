/* lengths.c -- `orrery bench lengths`: steps of the attention schemes that plan by lengths, beside static ones, all of
 * the same packed samples, and what their papers claim.  bench.c calls bench_lengths_topic().  Each step is planned
 * without numbers, by the words of `orrery plan`.  ERR_USAGE is for devices that are no multiple of 8; other errors are
 * a plan's. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/plan/planning.h"
#include "emulated_devices/run/plan.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/io/time_left.h"
#include <stdio.h>
#include <string.h>

static const double SEEN_GAIN = 0.005;      /* a ratio nearer to 1 than this is 1.00 in the table */

/* Beyond so many devices a bucket of gradients has a million numbers for each device, as Megatron's has: of 25 MiB a
 * thousand devices have parts so small that latency is most of their time. */
static const int USUAL_BUCKETS_UP_TO = 64;
static const int64_t BUCKET_OF_A_DEVICE = 4000000;                      /* bytes */

enum { GROUP = 8, ROWS = 8, WORD = 32 };    /* GROUP: devices that share a sequence of a static mesh */
enum { WORDS = 32 };                        /* of a command */

struct bench_lengths { const char *model, *devices, *pack, *cluster; int64_t seq; int micro; };

/* Schemes by name.  A scheme that plans may have all devices in one group, or groups as a static one has. */
enum lengths_scheme { ULYSSES, RING, FLEXSP, HDP, ZEPPELIN, DCP, SCHEMES };
static const struct { const char *name, *system; bool plans; } schemes[] = {
    [ULYSSES] = { "ulysses", "Ulysses", false }, [RING] = { "ring-zigzag", "ring (zigzag)", false },
    [FLEXSP] = { "flexsp", "FlexSP", true }, [HDP] = { "hdp", "ByteScale", true },
    [ZEPPELIN] = { "zeppelin", "Zeppelin", true }, [DCP] = { "dcp", "DCP", true },
};

/* This word stands where a part's name would: FlexSP then has as many microbatches as static schemes have. */
static const char AS_MANY_MICROS[] = "--micro-tokens";

/* A paper leaves a part out to show what the part gains: `is` without `without` is `of` without what the text names.
 * All are planned with all devices in one group, but schemes in groups of `cp`. */
static const struct {
    enum lengths_scheme of, is;
    int cp;
    const char *without, *text, *unless;
} ablations[] = {
    { FLEXSP, ULYSSES, GROUP, NULL, "groups of 8 only: Ulysses",
      "FlexSP: in one node groups of 8 are the best.  On several nodes they wait for each other:\n"
      "--devices 64." },
    { FLEXSP, ULYSSES, 4 * GROUP, NULL, "groups of 32 only: Ulysses",
      "FlexSP: where most samples need 32 devices, groups of 32 are the best.  With short samples\n"
      "smaller groups exchange inside a node: --devices 64." },
    { FLEXSP, FLEXSP, 0, AS_MANY_MICROS, "choice of microbatches",
      "FlexSP: where groups are cheap, microbatches of samples as they come do as well: --devices 64." },
    { HDP, RING, GROUP, NULL, "data-aware sharding: a ring",
      "ByteScale: a ring inside a node hides what it sends, and one copy waits for no other.  Several\n"
      "copies wait for the longest samples: --devices 64." },
    { HDP, HDP, 0, "balance", "balance over a step",
      "ByteScale: with one microbatch there is nothing to balance over: --devices 64 --micro 4." },
    { ZEPPELIN, ZEPPELIN, 0, "remap", "remapping",
      "Zeppelin: queries, keys and results of remapped rows travel twice in each layer, which costs more\n"
      "than uneven rows if heads are many and links slow.  It gains with 8 heads of keys and linear layers\n"
      "as most of the work: --devices 16 --model llama3-8b:L=2 --seq 32768 --pack lognormal:1500,1.4." },
    { ZEPPELIN, ZEPPELIN, 0, "routing", "routing between nodes",
      "Zeppelin: where all devices send to other nodes, each card is busy without routing, too.  Routing\n"
      "gains where few devices do: --devices 64." },
    { ZEPPELIN, ZEPPELIN, 0, "nodes", "placing on nodes first",
      "Zeppelin: placing on all devices at once balances work better, and rings of short samples hide what\n"
      "they send to other nodes.  Those of longer ones do not: --devices 64." },
    { DCP, DCP, 0, "divisions", "rounds of messages",
      "DCP: each round waits for the one before, which costs more than hiding gains inside a node, whose\n"
      "links are fast.  Between nodes rounds gain: --devices 64." },
    { DCP, DCP, 0, "nodes", "dividing by nodes first",
      "DCP: links between nodes are fast here, and dividing all at once balances work better.  Nodes\n"
      "come first where these links are slow: --devices 64 --cluster a100-ethernet." },
};
enum { ABLATIONS = sizeof ablations / sizeof *ablations };

/* The claims of the papers: so many times as fast as another scheme; why a step does not go the paper's way, and which
 * does. */
static const struct {
    enum lengths_scheme of, beside;
    double least;
    const char *text, *unless;
} claims[] = {
    { FLEXSP, ULYSSES, 1, "up to 1.72 times DeepSpeed's Ulysses",
      "FlexSP: one copy of a static mesh waits for no other, and inside a node Ulysses exchanges fast.\n"
      "Groups gain where copies wait for those with the longest samples, --devices 64, or where a group of 8\n"
      "is on two nodes: --devices 8 --cluster a100-ethernet." },
    { HDP, RING, 1, "up to 7.89 times a static mesh",
      "ByteScale: the devices of the longest sample have more work than others, and only other\n"
      "microbatches can make up for that: --micro 4, on several nodes." },
    { ZEPPELIN, RING, 1, "2.80 times a ring, on average",
      "Zeppelin: one copy waits for no other, and in one node nothing is routed.  Of very many copies the\n"
      "slowest has one sample as long as its sequence, for which a ring is made.  It gains between these,\n"
      "where copies wait for those with the longest samples: --devices 64." },
    { DCP, RING, 0.94, "0.94 to 1.16 times a ring, causal",
      "DCP: blocks between nodes take longer than the work that hides them, where sequences are short.  Of\n"
      "very many copies the slowest has one sample as long as its sequence, for which a ring is made.\n"
      "It gains with --seq 131072 and --devices 64." },
};
enum { CLAIMS = sizeof claims / sizeof *claims };

/* The seconds of a step, of each scheme in groups of GROUP and in one group; 0: not planned. */
struct measured { double in_groups, in_one, without[ABLATIONS]; };

static double best_of(const struct measured *m)
{
    return m->in_one > 0 && m->in_one < m->in_groups ? m->in_one : m->in_groups;
}

/* The words of a command, which may be one value each after an option. */
struct words { const char *word[WORDS]; int count; };

static void words_add(struct words *words, const char *option, const char *value)
{
    words->word[words->count++] = option, words->word[words->count++] = value;
}

/* FlexSP's devices may hold a step's share of tokens at once, so it may choose fewer microbatches than others have;
 * --micro-tokens lets it choose as many as take the least time. */
static void words_add_micros(struct words *words, const struct bench_lengths *wanted, enum lengths_scheme scheme,
                             const char *without, char number[WORD])
{
    const bool chooses = scheme == FLEXSP && without != AS_MANY_MICROS;
    if (chooses) snprintf(number, WORD, "%lld", (long long)(wanted->seq * wanted->micro / GROUP));
    else snprintf(number, WORD, "%d", wanted->micro);
    words_add(words, chooses ? "--micro-tokens" : "--micro", number);
    if (without && without != AS_MANY_MICROS) words_add(words, "--attention-without", without);
}

/* Plan a step with so many devices along cp. */
static enum error_code lengths_plan(const struct bench_lengths *wanted, enum lengths_scheme scheme,
                                    const char *without, int devices, int cp, struct plan_numbers *numbers,
                                    struct error *err)
{
    char seq[WORD], batch[WORD], micro[WORD], along_cp[WORD], along_dp[WORD], bucket[WORD];
    struct words w = { .count = 0 };
    snprintf(seq, sizeof seq, "%lld", (long long)wanted->seq);
    snprintf(batch, sizeof batch, "%d", devices / GROUP * wanted->micro);
    snprintf(along_cp, sizeof along_cp, "%d", cp), snprintf(along_dp, sizeof along_dp, "%d", devices / cp);
    /* Rings of nodes and of devices in them need far fewer messages than one to each device; one node has no such. */
    words_add(&w, "--allreduce", devices > GROUP ? "torus_2d" : "two_shot");
    words_add(&w, "--model", wanted->model), words_add(&w, "--vocabulary", "1024");
    words_add(&w, "--pack", wanted->pack), words_add(&w, "--seq", seq), words_add(&w, "--batch", batch);
    words_add(&w, "--cp", along_cp), words_add(&w, "--dp", along_dp);
    words_add(&w, "--attention", schemes[scheme].name), words_add(&w, "--dtype", "bf16");
    words_add(&w, "--cluster", wanted->cluster);
    words_add_micros(&w, wanted, scheme, without, micro);
    snprintf(bucket, sizeof bucket, "%lld", (long long)(BUCKET_OF_A_DEVICE * devices));
    if (devices > USUAL_BUCKETS_UP_TO) words_add(&w, "--bucket", bucket);
    return train_plan_words(numbers, w.count, w.word, err);
}

/* Plan a scheme on one mesh, and add its row. */
static enum error_code lengths_row(const struct bench_lengths *wanted, struct table *table, enum lengths_scheme scheme,
                                   int devices, int cp, double *seconds, struct error *err)
{
    struct plan_numbers n;
    const struct planning before = planning_so_far();
    const enum error_code e = lengths_plan(wanted, scheme, NULL, devices, cp, &n, err);
    char planner[WORD] = "";
    if (e) return e;
    *seconds = n.speed.seconds;
    /* Every copy plans its own step, and the copies of a cluster plan at once. */
    if (schemes[scheme].plans)
        snprintf(planner, sizeof planner, "%.3f", (planning_so_far().seconds - before.seconds) * cp / devices);
    table_row(table, "%d\t%s\t%d x %d\t%.1f\t%.0f\t%.1f\t%s", devices, schemes[scheme].system, cp, devices / cp,
              1e3 * n.speed.seconds, n.speed.tokens, (double)n.peak / (1 << 30), planner);
    return OK;
}

/* All schemes on so many devices. */
static enum error_code lengths_measure(const struct bench_lengths *wanted, struct table *table, int devices,
                                       struct measured measured[SCHEMES], struct error *err)
{
    enum error_code e = OK;
    for (enum lengths_scheme s = 0; s < SCHEMES && !e; s++) {
        measured[s] = (struct measured){ .in_one = 0 };
        e = lengths_row(wanted, table, s, devices, GROUP, &measured[s].in_groups, err);
        if (!e && schemes[s].plans && devices > GROUP)
            e = lengths_row(wanted, table, s, devices, devices, &measured[s].in_one, err);
    }
    return e;
}

/* Measure every ablation; those of a scheme are kept with it. */
static enum error_code lengths_ablate(const struct bench_lengths *wanted, int devices,
                                      struct measured measured[SCHEMES], struct error *err)
{
    enum error_code e = OK;
    for (int a = 0; a < ABLATIONS && !e; a++) {
        struct plan_numbers n;
        const int cp = ablations[a].cp > 0 ? ablations[a].cp : devices;
        if (devices % cp != 0) continue;
        /* Ulysses and the ring in groups of GROUP have been planned already. */
        if (ablations[a].cp == GROUP) n.speed.seconds = measured[ablations[a].is].in_groups;
        else e = lengths_plan(wanted, ablations[a].is, ablations[a].without, devices, cp, &n, err);
        if (!e) measured[ablations[a].of].without[a] = n.speed.seconds;
    }
    return e;
}

/* Whether a ratio is at least what a paper has; "same": there is no difference that the table shows.  A part for nodes
 * has nothing to change on one node. */
static const char *way_of(double ratio, double least)
{
    return ratio >= least * (1 + SEEN_GAIN) ? "yes" : ratio > least * (1 - SEEN_GAIN) ? "same" : "NO";
}

/* Say of each part whether a step takes longer without it. */
static void print_ablations(const int devices[], int count, struct measured measured[][SCHEMES])
{
    bool missed[ABLATIONS] = { false };
    say(stdout, 0, "\nWhat each part gains: the time of a step without the part, over that with all parts.  All\n"
        "devices are along cp, but in groups and rings where the row says so.\n");
    struct table t = table_start("ablations", 2, "devices\tsystem\twithout\tratio\tits way");
    for (int i = 0; i < count; i++)
        for (int a = 0; a < ABLATIONS; a++) {
            const struct measured *const of = &measured[i][ablations[a].of];
            const double with = of->in_one > 0 ? of->in_one : of->in_groups, ratio = of->without[a] / with;
            if (of->without[a] <= 0) continue;
            table_row(&t, "%d\t%s\t%s\t%.2f\t%s", devices[i], schemes[ablations[a].of].system, ablations[a].text, ratio,
                      way_of(ratio, 1));
            missed[a] = missed[a] || ratio <= 1 - SEEN_GAIN;
        }
    table_end(&t);
    for (int a = 0; a < ABLATIONS; a++)
        if (missed[a]) say(stdout, 0, "\n%s", ablations[a].unless);
}

/* Say of each claim whether the steps go its way. */
static void print_claims(const int devices[], int count, struct measured measured[][SCHEMES])
{
    int slower = 0;
    bool missed[CLAIMS] = { false };
    say(stdout, 0, "\nWhat the papers claim of whole steps, and how many times as fast ours are, on the better mesh\n");
    struct table t = table_start("claims", 2, "devices\tsystem\tclaim\tours\tits way");
    for (int i = 0; i < count; i++)
        for (int c = 0; c < CLAIMS; c++) {
            const struct measured *const own = &measured[i][claims[c].of];
            const double ratio = best_of(&measured[i][claims[c].beside]) / best_of(own);
            table_row(&t, "%d\t%s\t%s\t%.2f\t%s", devices[i], schemes[claims[c].of].system, claims[c].text, ratio,
                      way_of(ratio, claims[c].least));
            slower += own->in_one > own->in_groups;
            missed[c] = missed[c] || ratio < claims[c].least * (1 + SEEN_GAIN);
        }
    table_end(&t);
    for (int c = 0; c < CLAIMS; c++)
        if (missed[c]) say(stdout, 0, "\n%s", claims[c].unless);
    if (slower > 0)
        say(stdout, 0, "\n%d times one group of all devices is slower than groups of a node: blocks that go to\n"
            "another node take longer than the work that hides them.", slower);
}

static enum error_code lengths_print(const struct bench_lengths *wanted, struct error *err)
{
    struct measured measured[ROWS][SCHEMES];
    int devices[ROWS], count = 0;
    enum error_code e = bench_devices(wanted->devices, MESH_MOST_LISTED, ROWS, devices, &count, err);
    for (int i = 0; i < count && !e; i++)
        if (devices[i] % GROUP != 0)
            e = fail(err, ERR_USAGE, "--devices %d: must be a multiple of %d, which share a sequence", devices[i],
                     GROUP);
    if (e) return e;
    say(stdout, 0, "A step of %s in bf16 on %s: %d microbatches, each\n"
        "with a sequence of %lld tokens for each %d devices, of samples of --pack %s.\n"
        "Static meshes have cp %d; schemes that plan by lengths also all devices along cp.\n", wanted->model,
        wanted->cluster, wanted->micro, (long long)wanted->seq, GROUP, wanted->pack, GROUP);
    struct table t = table_start("lengths", 3, "devices\tsystem\tcp x dp\tms\ttokens/s/device\tGiB\tplanner s");
    struct time_left line;
    time_left_begin(&line);
    for (int i = 0; i < count && !e; i++) {
        time_left_show(&line, (double)i / count, "planning", "");
        e = lengths_measure(wanted, &t, devices[i], measured[i], err);
        time_left_show(&line, (i + 0.5) / count, "planning", "");
        if (!e) e = lengths_ablate(wanted, devices[i], measured[i], err);
    }
    time_left_end(&line);
    if (e) return table_drop(&t), e;
    table_end(&t);
    print_claims(devices, count, measured);
    print_ablations(devices, count, measured);
    return OK;
}

enum error_code bench_lengths_topic(int argc, char **argv, int *status, struct error *err)
{
    struct bench_lengths w = { .model = "llama3-8b:L=2,K=32", .devices = "8,64", .pack = "lognormal:6000,1.4",
                               .cluster = BENCH_CLUSTER, .seq = 131072, .micro = 4 };
    int seq = (int)w.seq;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--devices", "LIST", OPTION_STRING, &w.devices, .help = "numbers of devices, multiples of 8 up to 1024" },
        { "--pack", "FILE|lognormal[:M,D]", OPTION_STRING, &w.pack,
          .help = "lengths of the samples, as for `orrery plan`" },
        { "--seq", "N", OPTION_INT, &seq, .min = 64, .max = 1 << 22, .help = "tokens of a sequence" },
        { "--micro", "N", OPTION_INT, &w.micro, .min = 1, .max = 64, .help = "microbatches of a step" },
        { "--model", "NAME", OPTION_STRING, &w.model, .help = "a preset, as for `orrery plan`" },
        { "--cluster", "NAME", OPTION_STRING, &w.cluster, .help = "a cluster, as for `orrery plan`" },
        { 0 },
    };
    const enum error_code e = parse_command(
        "bench lengths", "[options]",
        "FlexSP, ByteScale (hdp), Zeppelin and DCP beside a ring and Ulysses, on samples of the same lengths:\n"
        "steps planned without numbers, and what the papers claim.",
        argc - 3, argv + 3, table, &help, err);
    w.seq = seq;
    return e || help ? e : lengths_print(&w, err);
}
