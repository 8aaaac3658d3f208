/* make.c -- `orrery golden make`: a golden file of somebody's own model and batches, with its bounds.  ERR_USAGE is
 * for flags that do not fit, ERR_PLAN for a model without a row for each byte; nothing is written then. */
#include "emulated_devices/cli/golden/make_options.h"
#include "ref/golden/batch.h"
#include "ref/golden/bounds.h"
#include "ref/golden/cover.h"
#include "ref/golden/make.h"
#include "ref/io/samples.h"
#include "ref/optim/rates.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".safetensors"
enum { USUAL_STEPS = 3, USUAL_SEQUENCES = 4, USUAL_TOKENS = 32 };

static enum error_code make_parse(struct make_options *options, int argc, char **argv, bool *help, struct error *err)
{
    static const char *const kept[] = { "all", "last", NULL };
    const struct option table[] = {
        { "--out", "FILE", OPTION_STRING, &options->out, .required = true,
          .help = "the golden file, NAME" SUFFIX "; its bounds go to NAME.bounds.json beside it" },
        { "--model", "NAME|DIR", OPTION_STRING, &options->model,
          .help = "a preset of `orrery list`, or a Hugging Face folder with weights" },
        { "--seed", "N", OPTION_UINT64, &options->seed,
          .help = "seed of a preset's weights, of dropout, and of batches that are drawn" },
        { .kind = OPTION_HEADING, .help = "Batches" },
        { "--batch", "FILE", OPTION_STRING, &options->batch,
          .help = "safetensors with ids and labels, integers [sequences, tokens] (the same in every step) or "
                  "[steps, sequences, tokens]; labels -1 and -100 are ignored; with packed documents also "
                  "positions, each token's place in its document" },
        { "--text", "FILE", OPTION_STRING, &options->text, .help = "a text; every byte is a token" },
        { "--pack", "FILE", OPTION_STRING, &options->pack,
          .help = "with --text: cut the text into documents with the lengths in FILE, one on each line, and pack them "
                  "into sequences, as orrery train does; lognormal draws lengths" },
        { "--cover", NULL, OPTION_SWITCH, &options->cover,
          .help = "draw tokens and labels that show as many kinds of mistakes as fit; what does not fit is said, with "
                  "the size that it needs" },
        { "--sequences", "N", OPTION_INT, &options->sequences, .min = 1, .max = 1 << 20,
          .help = "with --text and --cover: sequences in a batch; default: 4" },
        { "--tokens", "N", OPTION_INT, &options->tokens, .min = 1, .max = 1 << 20,
          .help = "with --text and --cover: tokens in a sequence; default: 32, or the model's positions if they are "
                  "fewer; with --cover one less where that is a multiple of 8" },
        { "--micro", "M", OPTION_INT, &options->micros, .min = 1, .max = 1 << 20,
          .help = "also store what each of M microbatches adds to loss and gradients; default: no microbatches" },
        { .kind = OPTION_HEADING, .help = "Steps" },
        { "--steps", "N", OPTION_INT, &options->steps, .min = 1, .max = GOLDEN_MOST_STEPS,
          .help = "steps of each optimizer; default: as many as --batch has batches, and 3 with --text and "
                  "--cover" },
        { "--optimizer", "LIST", OPTION_STRING, &options->optimizers,
          .help = "optimizers, each from the same start, with commas: adamw, sgd, momentum" },
        { "--lr", "RATE", OPTION_DOUBLE, &options->lr, .min = 0, .max = INFINITY,
          .help = "learning rate; default: the optimizer's usual one" },
        { "--lr-schedule", "NAME", OPTION_CHOICE, &options->schedule, .choices = rate_schedule_names,
          .help = "course of the learning rate after the warm-up, as in orrery train; default: the rate does not "
                  "change" },
        { "--lr-decay", "N", OPTION_INT, &options->lr_decay, .min = 1, .max = 1e9,
          .help = "for wsd: the last steps, in which the rate falls; default: a fifth of --lr-steps" },
        { "--min-lr", "RATE", OPTION_DOUBLE, &options->min_lr, .min = 0, .max = 1e6,
          .help = "with --lr-schedule: learning rate at the end; default: a tenth of --lr" },
        { "--warmup", "N", OPTION_INT, &options->warmup, .min = 0, .max = 1e9,
          .help = "steps of linear warm-up; default: none; with --lr-schedule a tenth of --lr-steps" },
        { "--lr-steps", "N", OPTION_INT, &options->lr_steps, .min = 1, .max = 1e9,
          .help = "with --lr-schedule: step at which the schedule ends; default: the last step" },
        { "--lr-file", "FILE", OPTION_STRING, &options->lr_file,
          .help = "a text with the learning rate of each step, one a line, instead" },
        { "--weight-decay", "X", OPTION_DOUBLE, &options->weight_decay, .min = 0, .max = 1e6,
          .help = "decoupled weight decay of matrices; default: the optimizer's usual one" },
        { "--clip", "NORM", OPTION_DOUBLE, &options->clip, .min = 0, .max = 1e30,
          .help = "largest global gradient norm, 0: no clipping; default: the optimizer's usual one" },
        MOMENT_OPTIONS(options->moments),
        { "--as", "PROFILE", OPTION_STRING, &options->as,
          .help = "conventions of the steps: torch, megatron, deepspeed, galore-torch; of losses, too: "
                  "PROFILE,LOSS,CONVENTION=VALUE,...: orrery list profiles" },
        { "--dropout", "P", OPTION_DOUBLE, &options->dropout, .min = 0, .max = 0.99,
          .help = "probability of dropout, wherever the model has dropout; the masks are in the file" },
        { "--keep", "STEPS", OPTION_CHOICE, &options->kept, .choices = kept,
          .help = "all: gradients, weights and states of every step; last: weights and states of the last step" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command(
        "golden make", "--out FILE [--model NAME|DIR] --batch FILE|--text FILE|--cover [options]",
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
static bool make_is_kept(const struct optimizer *optimizer) { return !optimizer->low_rank && !optimizer->forward_only; }

static enum error_code take_optimizer(struct golden_request *request, const struct make_options *options,
                                      const struct conventions *as, const char *name, struct error *err)
{
    const struct optimizer *found;
    enum error_code e = optimizer_find(&found, name, err);
    if (e) return e;
    for (int i = 0; i < request->optimizers; i++)
        if (request->optimizer[i] == found) return fail(err, ERR_USAGE, "--optimizer %s: is there twice", name);
    if (!make_is_kept(found) || request->optimizers == GOLDEN_MOST_OPTIMIZERS)
        return fail(err, ERR_USAGE, "--optimizer %s: golden files have steps of adamw, sgd and momentum", name);
    struct hyperparameters h = optimizer_usual(found, as);
    if (options->lr >= 0) h.lr = options->lr;
    if (options->weight_decay >= 0) h.weight_decay = options->weight_decay;
    if (options->clip >= 0) h.clip = options->clip;
    moments_take(&h, found, &options->moments);
    request->hyper[request->optimizers] = h;
    request->optimizer[request->optimizers++] = found;
    return OK;
}

static enum error_code take_optimizers(struct golden_request *request, const struct make_options *options,
                                       struct error *err)
{
    struct conventions as = { 0 };
    enum error_code e = options->as ? conventions_parse(&as, options->as, err) : OK;
    for (const char *list = options->optimizers; list && !e;) {
        char name[64];
        const size_t n = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), list);
        e = take_optimizer(request, options, &as, name, err);
        list = list[n] == ',' ? list + n + 1 : NULL;
    }
    return e ? e : moments_check(request->optimizer, request->optimizers, &options->moments, err);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* The shape of batches that are drawn. */
static void take_shape(struct golden *golden, const struct make_options *options)
{
    golden->steps = options->steps ? options->steps : USUAL_STEPS;
    golden->B = options->sequences ? options->sequences : USUAL_SEQUENCES;
    golden->S = options->tokens ? options->tokens : golden->config.S < USUAL_TOKENS ? golden->config.S : USUAL_TOKENS;
}

static enum error_code take_cover(struct golden *golden, const struct make_options *options, const char *weights,
                                  struct error *err)
{
    take_shape(golden, options);
    if (options->tokens == 0 && golden->S % 8 == 0) golden->S--;
    enum error_code e = batch_allocate(golden, err);
    if (!e) e = cover_draw(golden, weights, err);
    return e ? fail_about(err, e, "--cover") : batch_check(golden, "--cover", err);
}

static enum error_code pack_text(struct golden *golden, struct text *text, const char *lengths, struct error *err)
{
    const enum error_code e = batch_pack(golden, err);
    return e ? e : fail_about(err, samples_pack(text, lengths, golden->S, golden->seed, err), "--pack");
}

/* The batch of a step is that of `orrery train` with this text and seed. */
static void make_fill(struct golden *golden, const struct text *text, int64_t step)
{
    const int64_t at = step * golden->B * golden->S;
    if (golden->positions)
        samples_batch(text, golden->seed, step, 0, golden->B, golden->ids + at, golden->labels + at,
                      golden->positions + at);
    else
        text_batch(text, TEXT_TRAIN, golden->seed, step, golden->S, 0, golden->B, golden->ids + at,
                   golden->labels + at);
}

static enum error_code take_text(struct golden *golden, const struct make_options *options, struct error *err)
{
    struct text text;
    if (golden->config.V < TEXT_VOCABULARY)
        return fail(err, ERR_PLAN, "--text: model %s has V=%lld tokens; text needs %d, one for each byte",
                    golden->config.name, (long long)golden->config.V, TEXT_VOCABULARY);
    take_shape(golden, options);
    enum error_code e = text_load(&text, &options->text, 1, err);
    if (e) return fail_about(err, e, "--text");
    e = text_check_length(&text, golden->S, err);
    if (!e) e = batch_allocate(golden, err);
    if (!e && options->pack) e = pack_text(golden, &text, options->pack, err);
    for (int64_t t = 0; t < golden->steps && !e; t++) make_fill(golden, &text, t);
    text_free(&text);
    if (!e) e = batch_check(golden, printable_path(options->text).text, err);
    return fail_about(err, e, "--text");
}

static enum error_code take_batches(struct golden *golden, const struct make_options *options, const char *weights,
                                    struct error *err)
{
    const int sources = (options->batch != NULL) + (options->text != NULL) + options->cover;
    if (sources != 1)
        return fail(err, ERR_USAGE, "golden make: it needs one of --batch FILE, --text FILE and --cover%s",
                    sources ? ", not two" : "");
    if (options->pack && !options->text)
        return fail(err, ERR_USAGE, "--pack: needs --text, which it cuts into documents");
    if (options->batch && (options->sequences || options->tokens))
        return fail(err, ERR_USAGE, "%s: --batch %s says how many there are",
                    options->sequences ? "--sequences" : "--tokens", printable_path(options->batch).text);
    enum error_code e = options->text    ? take_text(golden, options, err)
                        : options->cover ? take_cover(golden, options, weights, err)
                                         : fail_about(err, batch_read(golden, options->batch, options->steps, err),
                                                      "--batch");
    if (!e && golden->steps > GOLDEN_MOST_STEPS)
        e = fail(err, ERR_USAGE, "--batch: has %lld steps; at most %d, or fewer by --steps", (long long)golden->steps,
                 GOLDEN_MOST_STEPS);
    if (!e && options->micros > golden->B)
        e = fail(err, ERR_USAGE, "--micro %d: a batch has %lld sequence%s", options->micros, (long long)golden->B,
                 plural(golden->B));
    return e;
}

static enum error_code take_model(struct golden *golden, const struct make_options *options, const char **dir,
                                  struct error *err)
{
    enum error_code e = find_model(&golden->config, options->model, dir, err);
    golden->seed = options->seed;
    golden->micros = options->micros;
    if (!e) e = golden_take_conventions(golden, options->as, err);
    golden->config.initial = (int)convention(&golden->as, INITIAL);
    golden->every_step = strcmp(options->kept, "all") == 0;
    golden->config.dropout_embedding = golden->config.dropout_residual = golden->config.dropout_attention =
        options->dropout;
    return e;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Who is told of the making. */
struct make_watch { struct time_left line; bool cover; };

static void progress(void *context, const char *what)
{
    struct make_watch *watch = context;
    time_left_end(&watch->line);
    printf("%s\n", what);
    fflush(stdout);
}

static void make_twin(void *context, enum dtype dtype, int number)
{
    struct make_watch *watch = context;
    golden_show_twin(&watch->line, dtype, number);
}

/* Before the bounds are measured, which takes longest. */
static void make_computed(void *context, const struct replay *run)
{
    struct make_watch *watch = context;
    if (golden_show_gaps(run) > 0 && !watch->cover) printf("--cover draws a batch that shows as many as fit\n");
    fflush(stdout);
}

enum error_code golden_make_command(int argc, char **argv, int *status, struct error *err)
{
    struct make_options o = { .model = "tiny", .optimizers = "adamw", .kept = "all", .seed = 42, .lr = -1,
                              .weight_decay = -1, .clip = -1, .moments = MOMENTS_NOT_GIVEN,
                              .min_lr = -1, .warmup = -1 };
    struct golden g = { 0 };
    struct make_watch watch;
    double rates[GOLDEN_MOST_STEPS];
    struct golden_request q = { .progress = progress, .computed = make_computed, .twin = make_twin,
                                .context = &watch };
    int tensors = 0;
    bool help;
    (void)status;
    enum error_code e = make_parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    q.path = o.out, watch.cover = o.cover;
    e = take_optimizers(&q, &o, err);
    if (!e) e = take_model(&g, &o, &q.weights, err);
    if (!e) e = golden_read_rates(&o, rates, &q, err);
    if (!e) e = take_batches(&g, &o, q.weights, err);
    if (!e) e = golden_take_rates(&q, &o, g.steps, err);
    if (!e) e = check_out(o.out, err);
    time_left_begin(&watch.line);
    if (!e) e = golden_make(&g, &q, &tensors, err);
    time_left_end(&watch.line);
    if (!e)
        printf("%s: %d tensors of model %s, %lld step%s of %lld x %lld tokens; bounds in %s\n", o.out, tensors,
               g.config.name, (long long)g.steps, plural(g.steps), (long long)g.B, (long long)g.S,
               bounds_beside(o.out).text);
    golden_close(&g);
    return e;
}
