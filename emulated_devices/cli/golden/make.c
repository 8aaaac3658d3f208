/* make.c -- `orrery golden make`: a golden file of somebody's own model and batches, with its bounds. */
#include "emulated_devices/cli/golden/golden.h"
#include "ref/golden/batch.h"
#include "ref/golden/bounds.h"
#include "ref/golden/make.h"
#include "ref/io/text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".safetensors"
enum { USUAL_STEPS = 3, USUAL_SEQUENCES = 4, USUAL_TOKENS = 32 };

struct make_options {
    const char *model, *batch, *text, *out, *optimizers, *kept, *as;
    int steps, sequences, tokens, micros;
    double lr, weight_decay, clip, eps, dropout;
    uint64_t seed;
};

static enum error_code parse(struct make_options *o, int argc, char **argv, bool *help, struct error *err)
{
    static const char *const kept[] = { "all", "last", NULL };
    const struct option table[] = {
        { "--out", "FILE", OPTION_STRING, &o->out, .required = true,
          .help = "the golden file, NAME" SUFFIX "; its bounds go to NAME.bounds.json beside it" },
        { "--model", "NAME|DIR", OPTION_STRING, &o->model,
          .help = "a preset of `orrery list`, or a Hugging Face folder with weights" },
        { "--seed", "N", OPTION_UINT64, &o->seed,
          .help = "seed of a preset's weights, of dropout and of a text's batches" },
        { .kind = OPTION_HEADING, .help = "Batches" },
        { "--batch", "FILE", OPTION_STRING, &o->batch,
          .help = "safetensors with ids and labels, integers [sequences, tokens] (the same in every step) or "
                  "[steps, sequences, tokens]; labels -1 and -100 are ignored" },
        { "--text", "FILE", OPTION_STRING, &o->text, .help = "a text; every byte is a token" },
        { "--sequences", "N", OPTION_INT, &o->sequences, .min = 1, .max = 1 << 20,
          .help = "with --text: sequences in a batch; default: 4" },
        { "--tokens", "N", OPTION_INT, &o->tokens, .min = 1, .max = 1 << 20,
          .help = "with --text: tokens in a sequence; default: 32, or the model's positions if they are fewer" },
        { "--micro", "M", OPTION_INT, &o->micros, .min = 1, .max = 1 << 20,
          .help = "also store what each of M microbatches adds to loss and gradients; default: no microbatches" },
        { .kind = OPTION_HEADING, .help = "Steps" },
        { "--steps", "N", OPTION_INT, &o->steps, .min = 1, .max = GOLDEN_MOST_STEPS,
          .help = "steps of each optimizer; default: as many as --batch has batches, and 3 with --text" },
        { "--optimizer", "LIST", OPTION_STRING, &o->optimizers,
          .help = "optimizers, each from the same start, with commas: adamw, sgd, momentum" },
        { "--lr", "RATE", OPTION_DOUBLE, &o->lr, .min = 0, .max = INFINITY,
          .help = "learning rate of all steps; default: the optimizer's usual one" },
        { "--weight-decay", "X", OPTION_DOUBLE, &o->weight_decay, .min = 0, .max = 1e6,
          .help = "decoupled weight decay of matrices; default: the optimizer's usual one" },
        { "--clip", "NORM", OPTION_DOUBLE, &o->clip, .min = 0, .max = 1e30,
          .help = "largest global gradient norm, 0: no clipping; default: the optimizer's usual one" },
        { "--eps", "X", OPTION_DOUBLE, &o->eps, .min = 0, .max = 1,
          .help = "for adamw: a larger number makes no full-sized steps of rounding noise; default: the usual "
                  "one" },
        { "--as", "PROFILE", OPTION_STRING, &o->as,
          .help = "conventions of the steps: torch, megatron, deepspeed, galore-torch; or "
                  "PROFILE,CONVENTION=VALUE,...: orrery list profiles" },
        { "--dropout", "P", OPTION_DOUBLE, &o->dropout, .min = 0, .max = 0.99,
          .help = "probability of dropout, wherever the model has dropout; the masks are in the file" },
        { "--keep", "STEPS", OPTION_CHOICE, &o->kept, .choices = kept,
          .help = "all: gradients, weights and states of every step; last: weights and states of the last step" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command(
        "golden make", "--out FILE [--model NAME|DIR] --batch FILE|--text FILE [options]",
        "Compute every tensor of your own model and batch in fp64, forward, backward and in the\n"
        "optimizers' steps, and measure the bound of each in fp32, bf16 and fp16. `orrery check FILE YOURS`\n"
        "then names the first tensor of your program that is wrong: docs/checking/backend_authors.md.",
        argc - 3, argv + 3, table, help, err);
}

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

static enum error_code check_out(const char *path, struct error *err)
{
    const size_t n = strlen(path), m = strlen(SUFFIX);
    if (n <= m || strcmp(path + n - m, SUFFIX) != 0)
        return fail(err, ERR_USAGE, "--out %s: must end with " SUFFIX, printable_path(path).text);
    enum error_code e = output_probe(path, err);
    if (!e) e = output_probe(bounds_beside(path).text, err);
    return fail_about(err, e, "--out");
}

/* A golden file has steps of optimizers that keep their states beside the weights. */
static bool is_kept(const struct optimizer *o) { return !o->low_rank && !o->forward_only; }

static enum error_code take_optimizer(struct golden_request *q, const struct make_options *o, const char *name,
                                      struct error *err)
{
    const struct optimizer *found;
    enum error_code e = optimizer_find(&found, name, err);
    if (e) return e;
    for (int i = 0; i < q->optimizers; i++)
        if (q->optimizer[i] == found) return fail(err, ERR_USAGE, "--optimizer %s: is there twice", name);
    if (!is_kept(found) || q->optimizers == GOLDEN_MOST_OPTIMIZERS)
        return fail(err, ERR_USAGE, "--optimizer %s: golden files have steps of adamw, sgd and momentum", name);
    struct hyperparameters h = found->usual;
    if (o->lr >= 0) h.lr = o->lr;
    if (o->weight_decay >= 0) h.weight_decay = o->weight_decay;
    if (o->clip >= 0) h.clip = o->clip;
    if (o->eps >= 0) h.eps = o->eps;
    q->hyper[q->optimizers] = h;
    q->optimizer[q->optimizers++] = found;
    return OK;
}

static enum error_code take_optimizers(struct golden_request *q, const struct make_options *o, struct error *err)
{
    enum error_code e = OK;
    for (const char *list = o->optimizers; list && !e;) {
        char name[64];
        const size_t n = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), list);
        e = take_optimizer(q, o, name, err);
        list = list[n] == ',' ? list + n + 1 : NULL;
    }
    return e;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static enum error_code take_text(struct golden *g, const struct make_options *o, struct error *err)
{
    struct text text;
    if (g->config.V < TEXT_VOCABULARY)
        return fail(err, ERR_PLAN, "--text: model %s has V=%lld tokens; text needs %d, one for each byte",
                    g->config.name, (long long)g->config.V, TEXT_VOCABULARY);
    g->steps = o->steps ? o->steps : USUAL_STEPS;
    g->B = o->sequences ? o->sequences : USUAL_SEQUENCES;
    g->S = o->tokens ? o->tokens : g->config.S < USUAL_TOKENS ? g->config.S : USUAL_TOKENS;
    enum error_code e = text_load(&text, &o->text, 1, err);
    if (e) return fail_about(err, e, "--text");
    e = text_check_length(&text, g->S, err);
    if (!e) e = batch_allocate(g, err);
    for (int64_t t = 0; t < g->steps && !e; t++)
        text_batch(&text, TEXT_TRAIN, g->seed, t, g->S, 0, g->B, g->ids + t * g->B * g->S, g->labels + t * g->B * g->S);
    text_free(&text);
    if (!e) e = batch_check(g, printable_path(o->text).text, err);
    return fail_about(err, e, "--text");
}

static enum error_code take_batches(struct golden *g, const struct make_options *o, struct error *err)
{
    if (!o->batch == !o->text)
        return fail(err, ERR_USAGE, "golden make: it needs --batch FILE or --text FILE%s", o->text ? ", not both" : "");
    if (o->batch && (o->sequences || o->tokens))
        return fail(err, ERR_USAGE, "%s: --batch %s says how many there are", o->sequences ? "--sequences" : "--tokens",
                    printable_path(o->batch).text);
    enum error_code e = o->text ? take_text(g, o, err)
                                : fail_about(err, batch_read(g, o->batch, o->steps, err), "--batch");
    if (!e && g->steps > GOLDEN_MOST_STEPS)
        e = fail(err, ERR_USAGE, "--batch: has %lld steps; at most %d, or fewer by --steps", (long long)g->steps,
                 GOLDEN_MOST_STEPS);
    if (!e && o->micros > g->B)
        e = fail(err, ERR_USAGE, "--micro %d: a batch has %lld sequence%s", o->micros, (long long)g->B, plural(g->B));
    return e;
}

static enum error_code take_model(struct golden *g, const struct make_options *o, const char **dir, struct error *err)
{
    enum error_code e = find_model(&g->config, o->model, dir, err);
    g->seed = o->seed;
    g->micros = o->micros;
    if (!e) e = golden_take_conventions(g, o->as, err);
    g->config.initial = (int)convention(&g->as, INITIAL);
    g->every_step = strcmp(o->kept, "all") == 0;
    g->config.dropout_embedding = g->config.dropout_residual = g->config.dropout_attention = o->dropout;
    return e;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void progress(void *context, const char *what)
{
    time_left_end(context);
    printf("%s\n", what);
    fflush(stdout);
}

enum error_code golden_make_command(int argc, char **argv, int *status, struct error *err)
{
    struct make_options o = { .model = "tiny", .optimizers = "adamw", .kept = "all", .seed = 42, .lr = -1,
                              .weight_decay = -1, .clip = -1, .eps = -1 };
    struct golden g = { 0 };
    struct time_left line;
    struct golden_request q = { .progress = progress, .twin = golden_show_twin, .context = &line };
    int tensors = 0;
    bool help;
    (void)status;
    enum error_code e = parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    q.path = o.out;
    e = take_optimizers(&q, &o, err);
    if (!e) e = take_model(&g, &o, &q.weights, err);
    if (!e) e = take_batches(&g, &o, err);
    if (!e) e = check_out(o.out, err);
    time_left_begin(&line);
    if (!e) e = golden_make(&g, &q, &tensors, err);
    time_left_end(&line);
    if (!e)
        printf("%s: %d tensors of model %s, %lld step%s of %lld x %lld tokens; bounds in %s\n", o.out, tensors,
               g.config.name, (long long)g.steps, plural(g.steps), (long long)g.B, (long long)g.S,
               bounds_beside(o.out).text);
    golden_close(&g);
    return e;
}
