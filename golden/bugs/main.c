/* main.c -- the command line. */
#include "program.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct setting set = { .parts = 1, .pp = 1, .dp = 1, .tp = 1, .ep = 1, .micros = 1, .optimizer = "adamw", .scale = 1, .from = 1 };
enum bug bug;

#define BUG(id, ...) { __VA_ARGS__ },
static const struct { const char *name, *model, *run, *formats, *check, *operation, *diagnosis, *words; } bugs[] = {
    { "none", "", "", "", "", "", "", "" },
#include "list.h"
};
#undef BUG

enum bug bug_named(const char *name)
{
    for (int i = 0; i < BUG_COUNT; i++)
        if (strcmp(bugs[i].name, name) == 0) return (enum bug)i;
    fprintf(stderr, "buggy: there is no bug %s; `buggy list` has all\n", name);
    exit(2);
}

void list_bugs(void)
{
    for (int i = 1; i < BUG_COUNT; i++)
        printf("%s|%s|%s|%s|%s|%s|%s|%s\n", bugs[i].name, bugs[i].model, bugs[i].run, bugs[i].formats, bugs[i].check, bugs[i].operation,
               bugs[i].diagnosis, bugs[i].words);
}

static int choose(const char *what, const char *text, const char *const names[], int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], text) == 0) return i;
    fprintf(stderr, "buggy: %s %s: unknown\n", what, text);
    exit(2);
}

static int number(const char *what, const char *text)
{
    const int n = atoi(text);
    if (n < 1 || n > 64) fprintf(stderr, "buggy: %s %s: must be 1 to 64\n", what, text), exit(2);
    return n;
}

static void option(const char *what, const char *text)
{
    static const char *const formats[] = { "fp32", "bf16", "fp16" },
                      *const orders[] = { "sequential", "reversed", "blocked", "pairwise", "shuffled", "apart" }, *const stores[] = { "results", "steps" },
                      *const begins[] = { "golden", "own" },
                      *const cuts[] = { "runs", "strided", "uneven" },
                      *const masters[] = { "shown", "rounded" },
                      *const gradients[] = { "fp32", "stored", "sums" }, *const copies[] = { "parts", "summed" };
    if (strcmp(what, "dtype") == 0) set.format = (enum format)choose(what, text, formats, 3);
    else if (strcmp(what, "order") == 0) set.order = (enum order)choose(what, text, orders, 6);
    else if (strcmp(what, "store") == 0) set.steps = choose(what, text, stores, 2);
    else if (strcmp(what, "masters") == 0) set.rounded = choose(what, text, masters, 2);
    else if (strcmp(what, "gradients") == 0) set.gradients = (enum accumulation)choose(what, text, gradients, 3);
    else if (strcmp(what, "copies") == 0) set.copies_summed = choose(what, text, copies, 2);
    else if (strcmp(what, "parts") == 0) set.parts = number(what, text);
    else if (strcmp(what, "pp") == 0) set.pp = number(what, text);
    else if (strcmp(what, "dp") == 0) set.dp = number(what, text);
    else if (strcmp(what, "ep") == 0) set.ep = set.dp = number(what, text);
    else if (strcmp(what, "tp") == 0) set.tp = number(what, text);
    else if (strcmp(what, "cut") == 0) set.cut = (enum batch_cut)choose(what, text, cuts, 3);
    else if (strcmp(what, "from") == 0) set.from = number(what, text);
    else if (strcmp(what, "micros") == 0) set.micros = number(what, text);
    else if (strcmp(what, "resume") == 0) set.resume = number(what, text);
    else if (strcmp(what, "begin") == 0) set.own = choose(what, text, begins, 2);
    else if (strcmp(what, "seed") == 0) set.seed = strtoull(text, NULL, 10);
    else if (strcmp(what, "optimizer") == 0) set.optimizer = text;
    else if (strcmp(what, "bug") == 0) bug = bug_named(text);
    else fprintf(stderr, "buggy: there is no option %s\n", what), exit(2);
}

static int usage(void)
{
    fprintf(stderr, "usage: buggy list | model gpt2|llama|moe|dropout|warmup|mqa|gqa DIR | run GOLDEN OUT [dtype fp32|bf16|fp16] [bug NAME] [pp N] [dp N] [ep N] [tp N] [micros N]\n"
                    "             [order sequential|reversed|blocked|pairwise|shuffled|apart] [seed N] [parts N] [store results|steps] [masters shown|rounded] [optimizer NAME]\n"
                    "             [gradients fp32|stored|sums] [copies parts|summed] [cut runs|strided|uneven] [from STEP] [resume STEP] [begin golden|own]\n");
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0) return list_bugs(), 0;
    if (argc == 4 && strcmp(argv[1], "model") == 0) return model_write(argv[2], argv[3]), 0;
    if (argc < 4 || argc % 2 != 0 || strcmp(argv[1], "run") != 0) return usage();
    for (int i = 4; i < argc; i += 2) option(argv[i], argv[i + 1]);
    if (set.format == FP16 || IS(SCALE_KEPT) || IS(SCALE_TWICE) || IS(SCALE_AFTER_CLIP) || IS(SCALE_IN_STEP)) set.scale = 1024;
    golden_open(argv[2]);
    if (set.pp * set.dp * set.tp > MOST_RANKS || set.pp > m.L || set.dp > m.B || set.tp > m.H || set.micros > m.B)
        return fprintf(stderr, "buggy: not so many ranks or microbatches\n"), 2;
    if (m.moe && set.micros > 1) return fprintf(stderr, "buggy: a mixture has one microbatch\n"), 2;
    if (m.rate > 0 && set.cut != RUNS) return fprintf(stderr, "buggy: dropout needs runs of sequences\n"), 2;
    if (set.ep > 1 && (!m.moe || set.ep > m.E)) return fprintf(stderr, "buggy: not so many experts\n"), 2;
    if (set.resume >= m.steps) return fprintf(stderr, "buggy: the golden file has no step after %d\n", set.resume), 2;
    if (set.resume) golden_resume(set.resume);
    ranks_make();
    train();
    dump_write(argv[3]);
    return 0;
}
