/* commands.c -- finds a command by its name, reads its words, runs commands that have topics; words that they
 * share.  cli/bench/bench.c calls run_topic().  Errors: ERR_USAGE, which names the most similar command; ERR_MEMORY. */
#include "emulated_devices/cli/cli.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *const number_formats[] = { "fp32", "fp64", "bf16", "fp16", NULL };

/* ---- options of a command ---------------------------------------------------------------------------------------- */

struct output_words { const char *json; bool quiet; };

static bool has_option(const struct option *table, const char *name)
{
    for (; table->kind != OPTION_END; table++)
        if (table->name && strcmp(table->name, name) == 0) return true;
    return false;
}

/* A command's options, and those of every command that it does not have itself; in memory for free(). */
static struct option *with_output_options(const struct option *table, struct output_words *to)
{
    const struct option every[] = {
        { .kind = OPTION_HEADING, .help = "Every command" },
        { "--json", "FILE", OPTION_STRING, &to->json,
          .help = "write all results as JSON (docs/using/json.md); - writes them to stdout, and nothing else" },
        { "--quiet", NULL, OPTION_SWITCH, &to->quiet, .help = "print verdicts and errors only" },
    };
    size_t n = 0;
    while (table[n].kind != OPTION_END) n++;
    struct option *all = calloc(n + sizeof every / sizeof *every + 1, sizeof *all);
    if (all == NULL) return NULL;
    memcpy(all, table, n * sizeof *all);
    for (size_t i = 0; i < sizeof every / sizeof *every; i++)
        if (every[i].kind == OPTION_HEADING || !has_option(table, every[i].name)) all[n++] = every[i];
    if (all[n - 1].kind == OPTION_HEADING) all[n - 1] = (struct option){ 0 };
    return all;
}

static struct help_listener listener;

void listen_to_help(const struct help_listener *help_listener) { listener = help_listener ? *help_listener
                                                                : (struct help_listener){ 0 }; }

static void print_help_of(const char *command, const char *usage, const char *what, const struct option *table)
{
    if (listener.options) {
        listener.options(listener.context, usage, what, table);
        return;
    }
    say(stdout, 0, "%s", what);
    say(stdout, 7, "\nusage: orrery %s%s%s\n", command, *usage ? " " : "", usage);
    options_print_help(stdout, table);
}

/* Known before the work that it is for, which may take hours. */
static enum error_code probe_json(const struct option *table, struct error *err)
{
    while (table->kind != OPTION_END && (table->name == NULL || strcmp(table->name, "--json") != 0)) table++;
    const char *path = table->kind == OPTION_STRING ? *(const char *const *)table->to : NULL;
    return path ? fail_about(err, output_probe(path, err), "--json") : OK;
}

enum error_code parse_command(const char *command, const char *usage, const char *what, int argc, char *const argv[],
                              const struct option *table, bool *help, struct error *err)
{
    struct output_words to = { NULL, false };
    struct option *const all = with_output_options(table, &to);
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for a table of options");
    enum error_code e = options_parse(command, argc, argv, all, help, err);
    if (!e && *help && launcher_rank() == 0) print_help_of(command, usage, what, all);
    if (!e && !*help && launcher_rank() == 0) e = probe_json(all, err);
    free(all);
    if (!e && !*help) threads_use(cores_usable());
    if (e || *help || launcher_rank() != 0) return e;
    return document_open(command, argc, argv, to.json, to.quiet, err);
}

/* ---- what commands share ----------------------------------------------------------------------------------------- */

enum error_code find_model(struct model_config *config, const char *word, const char **dir, struct error *err)
{
    struct stat st;
    int64_t batch;
    *dir = stat(word, &st) == 0 && S_ISDIR(st.st_mode) ? word : NULL;
    if (*dir == NULL) return model_config_preset(config, &batch, word, err);
    return fail_about(err, model_config_read_folder(config, *dir, err), "--model");
}

const struct command *command_find(const struct command *table, const char *of, const char *word, struct error *err)
{
    enum { MOST = 64 };
    const char *names[MOST];
    size_t n = 0;
    for (const struct command *c = table; c->description != NULL && n < MOST; c++) {
        if (c->name == NULL) continue;
        if (strcmp(c->name, word) == 0) return c;
        names[n++] = c->name;
    }
    const char *near = nearest_name(word, names, n);
    if (near) fail(err, ERR_USAGE, "%s%s: there is no such command; did you mean %s?", of, printable(word).text, near);
    else
        fail(err, ERR_USAGE, "%s%s: there is no such command; orrery %s--help shows them", of, printable(word).text,
             of);
    return NULL;
}

void print_commands(const struct command *table)
{
    for (const struct command *c = table; c->description != NULL; c++) {
        if (c->name == NULL) {
            printf("%s%s:\n", c == table ? "" : "\n", c->description);
            continue;
        }
        printf("  %-14s ", c->name);
        print_wrapped(stdout, 17, c->description);
    }
}

static void print_topics(const char *command, const char *what, const struct command *topics)
{
    if (launcher_rank() != 0) return;
    if (listener.topics) {
        listener.topics(listener.context, what, topics);
        return;
    }
    say(stdout, 0, "%s", what);
    printf("\nusage: orrery %s WHAT [options]        orrery %s WHAT --help\n\n", command, command);
    print_commands(topics);
}

/* Run with the default topic inserted into the words. */
static enum error_code run_default(const struct command *command, int argc, char **argv, int *status, struct error *err)
{
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (words == NULL) return fail(err, ERR_MEMORY, "no memory for %d words", argc + 1);
    for (int i = 0; i < argc; i++) words[i < 2 ? i : i + 1] = argv[i];
    words[2] = (char *)command->name;
    const enum error_code e = command->run(argc + 1, words, status, err);
    free(words);
    return e;
}

enum error_code run_topic(const char *what, const struct command *topics, bool has_default, int argc, char **argv,
                          int *status, struct error *err)
{
    const char *command = argv[1], *word = argc > 2 ? argv[2] : NULL;
    const bool help = word && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0);
    if (help || (word == NULL && !has_default)) {
        print_topics(command, what, topics);
        *status = help ? 0 : 2;
        return OK;
    }
    if (has_default && (word == NULL || word[0] == '-')) return run_default(&topics[0], argc, argv, status, err);
    char of[32];
    snprintf(of, sizeof of, "%s ", command);
    const struct command *c = command_find(topics, of, word, err);
    return c ? c->run(argc, argv, status, err) : ERR_USAGE;
}
