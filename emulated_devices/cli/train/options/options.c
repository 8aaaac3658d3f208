/* options.c -- reads the command line of `orrery train`, and of commands with most of its options.  Errors: ERR_USAGE
 * names the flag, ERR_PLAN what does not fit, ERR_FILE or ERR_FORMAT a file of --config; ERR_MEMORY; the caller frees
 * the options in any case. */
#include "emulated_devices/cli/train/options/options.h"
#include "emulated_devices/cli/train/elastic_words.h"
#include "emulated_devices/run/from/from.h"
#include "ref/optim/rates.h"
#include "ref/weather/network.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool options_is_one_of(const char *const *names, const struct option *option)
{
    for (; names && *names && option->name; names++)
        if (strcmp(option->name, *names) == 0) return true;
    return false;
}

void option_list_add(struct option_list *list, const struct option *option, size_t n)
{
    assert(list->count + n <= OPTIONS_MOST);
    memcpy(&list->of[list->count], option, n * sizeof *option);
    list->count += n;
}

/* All options of training, in the order of the help. */
static void all_options(struct option_list *list, struct train_options *options, struct train_words *words)
{
    *list = (struct option_list){ .count = 0 };
    scheme_options(list, options, words);
    data_options(list, options, words);
    training_options(list, options, words);
    output_options(list, options, words);
}

/* Leave out the options that a command does not have, and headings without options. */
static void own_options(struct option_list *own, const struct run_kind *kind, const struct option_list *all)
{
    *own = (struct option_list){ .count = 0 };
    for (size_t i = 0; i < all->count; i++) {
        if (options_is_one_of(kind->without, &all->of[i])) continue;
        const bool bare = own->count > 0 && own->of[own->count - 1].kind == OPTION_HEADING;
        if (all->of[i].kind == OPTION_HEADING && bare) own->count--;
        option_list_add(own, &all->of[i], 1);
    }
    for (const struct option *o = kind->more; o && o->kind != OPTION_END; o++) option_list_add(own, o, 1);
}

static const char *const of_plans[] = { "--unfolded", "--tokens", OF_FAILURES, "--memory-of", "--from", NULL };

const struct run_kind run_train = { .command = "train", .steps = 100, .without = of_plans,
                                    .what = "Train a model on a mesh of emulated devices." };

static struct train_words usual_words(const struct run_kind *kind)
{
    return (struct train_words){
        .infers = kind->infers, .serves = kind->serves, .batch = kind->batch, .vocabulary = kind->vocabulary,
        .model = kind->model,
        .placement = "even", .dtype = "fp32", .cluster = CLUSTER_USUAL, .optimizer = "adamw",
        .rates = rate_schedule_names[0],
        .size = { 1, 1, 1, 1, 1 }, .steps = kind->steps, .warmup = -1,
        .lr = -1, .min_lr = -1, .clip = -1, .decay = -1, .dropout = -1, .distance = -1,
        .limit = wait_limit(WAIT_LIMIT), .bucket = 25 << 20,
        .changed = { .speed = -1, .z_loss = -1, .shared = -1 },
        .data = { .zero = -1, .block = 256, .reshard = true, .prefetch = true },
        .low_rank = { .scale = -1, .damping = -1 }, .fields = { 1, 1, 1, 0, 1, "scattered" },
        .moments = MOMENTS_NOT_GIVEN,
    };
}

static struct train_options usual_options(void)
{
    return (struct train_options){ .trace_steps = 2, .trace_format = "chrome", .page_steps = 1, .live = LIVE_OFF,
                                   .failures = { .restart = -1, .checkpoint = "sync" },
                                   .log_every = 1,
                                   .plan = { .seed = 42, .chunks = 1, .comm_streams = USUAL_COMM_STREAMS,
                                             .tensor = tensor_scheme_at(0)->head.name,
                                             .attention = attention_scheme_at(0)->head.name,
                                             .ep = 1, .etp = 1, .degree = -1, .row_parts = -1,
                                             .data = { .scheme = data_scheme_at(0)->head.name },
                                             .schedule = schedule_generator_at(0)->head.name,
                                             .allreduce = algorithm_find(ALLREDUCE, NULL)->name } };
}

/* Print what the words set, as YAML, into memory for free(). */
static enum error_code options_describe(char **text, const struct option *table, const struct train_words *words,
                                        bool comments, struct error *err)
{
    size_t bytes;
    *text = NULL;
    FILE *f = open_memstream(text, &bytes);
    if (f) settings_print(f, table, words->argc, words->argv, comments);
    return f && fclose(f) == 0 ? OK : fail(err, ERR_MEMORY, "no memory for the run's settings");
}

static bool options_have(const struct option_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->of[i].name && strcmp(list->of[i].name, name) == 0) return true;
    return false;
}

/* Read the words; those of --from or --config stand before them. */
static enum error_code options_options_parse(struct train_options *options, const struct run_kind *kind,
                                             struct train_words *words,
                                             const struct option_list *own, const struct option_list *all,
                                             struct error *err)
{
    const bool help = options_ask_for_help(options->argc, options->argv);
    const bool foreign = !help && options_have(own, "--from");
    enum error_code e = foreign ? from_expand(&options->from, options->argc, options->argv, err) : OK;
    const int argc = options->from ? options->from->argc : options->argc;
    char *const *const argv = options->from ? options->from->argv : options->argv;
    if (!e && !help) e = settings_expand(&options->words, kind->command, own->of, all->of, argc, argv, err);
    words->argc = help ? options->argc : options->words.argc, words->argv = help ? options->argv : options->words.argv;
    return e ? e : parse_command(kind->command, "[options]", kind->what, words->argc, words->argv, own->of,
                                 &options->help, err);
}

/* A plan has no text: it takes the lengths of --pack alone. */
static enum error_code options_take_lengths(struct train_options *options, const struct run_kind *kind,
                                            struct error *err)
{
    const struct train_data_source source = { .plan = &options->plan, .data = options->data,
                                              .tokenizer = options->tokenizer, .pack = options->pack };
    const bool has_text = kind == &run_train || kind == &run_infer, runs = has_text && !options->dry_run;
    /* A file of settings may be that of a run, with its text. */
    if (!has_text && options_given(options->argc, options->argv, "--data") && !options->pack)
        return fail(err, ERR_USAGE, "--data: a plan reads no text; with --pack the text says how many samples there "
                    "are");
    if (options->pack == NULL || runs) return OK;
    if (options->plan.batches)
        return fail(err, ERR_USAGE, "--batches: a plan of packed samples has the same number of sequences in each "
                    "microbatch");
    const enum error_code e = train_data_lengths(&options->lengths, &source, err);
    options->plan.lengths = e ? NULL : &options->lengths;
    return e;
}

/* A model has tokens, or fields on a globe. */
static enum error_code options_take(struct train_options *options, const struct run_kind *kind,
                                    struct train_words *words, const struct option *table, struct error *err)
{
    const bool fields = weather_shape_find(words->model) != NULL;
    if (fields && (kind == &run_train || kind == &run_plan)) return train_take_weather(options, words, table, err);
    enum error_code e = fields
        ? fail(err, ERR_USAGE, "--model %s: has fields on a globe, which only orrery train and plan take", words->model)
        : train_refuse_fields(words, err);
    if (!e) e = train_take(options, words, table, err);
    return e ? e : options_take_lengths(options, kind, err);
}

enum error_code train_parse(struct train_options *options, const struct run_kind *kind, int argc, char **argv,
                            struct error *err)
{
    return train_parse_at(options, kind, argc, argv, NULL, err);
}

enum error_code train_parse_at(struct train_options *options, const struct run_kind *kind, int argc, char **argv,
                               const int *places, struct error *err)
{
    struct train_words w = usual_words(kind);
    struct option_list all, own;
    char *shown = NULL;
    *options = usual_options();
    options->command = kind->command, options->argc = argc, options->argv = argv;
    w.places = places;
    all_options(&all, options, &w);
    own_options(&own, kind, &all);
    enum error_code e = options_options_parse(options, kind, &w, &own, &all, err);
    if (e || options->help) return e;
    e = options_describe(&options->settings, own.of, &w, false, err);
    if (!e && w.print_config) e = options_describe(&shown, own.of, &w, true, err);
    if (!e) e = options_take(options, kind, &w, all.of, err);
    if (!e && shown && launcher_rank() == 0) fputs(shown, stdout);
    options->help = shown != NULL;
    free(shown);
    return e;
}

enum error_code train_check_setting(const struct yaml *setting, const char *file, struct error *err)
{
    struct train_options o = usual_options();
    struct train_words w = usual_words(&run_train);
    struct option_list all, own;
    bool passed;
    all_options(&all, &o, &w);
    own_options(&own, &run_train, &all);
    const enum error_code e = settings_check("train", own.of, all.of, setting, file, &passed, err);
    train_options_free(&o);
    return e;
}

void train_options_free(struct train_options *options)
{
    settings_free(&options->words);
    from_free(options->from);
    free(options->settings);
    free(options->weather);
    checkpoint_close(&options->saved);
    batch_plan_free(&options->batches);
    sections_free(&options->sections), yml_free(options->plan_file), free(options->slots);
    affinity_free(&options->affinity);
    expert_owners_free(&options->owners);
    load_close(&options->load);
    packing_free(&options->lengths);
    elastic_free(options);
}
