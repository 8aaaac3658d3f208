/* cli.h -- declares what the subcommands of orrery share: reading words, help, and models by their names.  Files of
 * cli/ call these functions. */
#ifndef ORRERY_CLI_H
#define ORRERY_CLI_H

#include "emulated_devices/cli/commands.h"
#include "emulated_devices/launch/launch.h"
#include "ref/numeric/dtype.h"
#include "ref/error.h"
#include "ref/io/figures.h"
#include "ref/io/options.h"
#include "ref/machine/threads.h"
#include <stdbool.h>
#include <stdint.h>

struct model_config;
struct yaml;

/* A subcommand; without a name, its description is the heading of those that follow.  argv: all words, argv[0] the
 * program, argv[1] the subcommand.  It prints its result and returns an error for main to print.  *status, initially 0,
 * is the exit status if there is no error: that of launched processes, which have printed their own errors. */
typedef enum error_code command_fn(int argc, char **argv, int *status, struct error *);
struct command {
    const char *name, *description;     /* the word behind `orrery`; one line for the help */
    command_fn *run;                    /* does the work; returns the exit status */
};

#define HEADING(words)
#define COMMAND(name, words) command_fn command_##name;
COMMANDS(HEADING, COMMAND)
#undef HEADING
#undef COMMAND
extern const struct command commands[];             /* of main.c; ends with { 0 } */
/* of command_verify: `orrery verify plugin` */
enum error_code verify_plugin(int argc, char **argv, struct error *);
/* of command_show */
command_fn show_actors, show_attention, show_cluster, show_collective, show_data, show_dispatch, show_elastic,
           show_memory, show_plan, show_sbp, show_tensor;

/* The option --cluster of every command that shows virtual time or whose algorithms depend on nodes; word: for
 * cluster_find.  what: its purpose, in a few words. */
#define CLUSTER_OPTION(word, what) { "--cluster", "NAME|FILE", OPTION_STRING, &(word), \
                                     .help = what "; `orrery list clusters` shows them" }

/* The option --wait-limit of commands that run devices; seconds: a double with wait_limit(the command's default). */
#define WAIT_LIMIT_OPTION(seconds) { "--wait-limit", "SECONDS", OPTION_DOUBLE, &(seconds), .min = 0.1, .max = 1e9, \
    .help = "end the job, and say which devices wait for which, when no device has computed and no message " \
            "has moved for so long" }
/* The option --threads of every command that computes.  parse_command and be_a_device set as many. */
#define THREADS_OPTION { "--threads", "N", OPTION_INT, &threads_asked, .min = 1, .max = THREADS_MOST, \
    .help = "threads of each device; default: OMP_NUM_THREADS, or else the cores that the device has for itself " \
            "(docs/using/runs.md)" }
/* How attention schemes of two dimensions arrange the devices that share a sequence; split: a struct context_split. */
#define CONTEXT_SPLIT_OPTIONS(split)                                                                                   \
    { "--head-parallel", "N", OPTION_INT, &(split).heads, .min = 1, .max = 4096,                                       \
      .help = "for usp and loongtrain: N neighbours of the cp devices exchange tokens for heads, the others form a "   \
              "ring; default: as many as the heads allow" },                                                           \
    { "--ring-window", "W", OPTION_INT, &(split).window, .min = 1, .max = 4096,                                        \
      .help = "for loongtrain: W devices form an inner ring; default: all devices form one ring" },                    \
    { "--context-first", NULL, OPTION_SWITCH, &(split).context_first,                                                  \
      .help = "for usp and loongtrain: neighbours form the ring, and distant devices exchange heads" }
enum { SHORT_WAIT_LIMIT = 10 };         /* for commands whose devices write no large files */

extern const char *const number_formats[];          /* the words of --dtype */

/* ---- commands.c -------------------------------------------------------------------------------------------------- */

/** Find a command in a table, which ends with a NULL description.  @param of  the text before the word: "" or "show ".
 *  @return NULL with ERR_USAGE in err if there is none (suggests the most similar). */
const struct command *command_find(const struct command *table, const char *of, const char *word, struct error *err);

/** Read a subcommand's words; with --help print what it does, its usage and its options to stdout: then *help is true,
 *  and there is nothing else to do.  @param argc,argv  the words after the subcommand.  @return as options_parse. */
enum error_code parse_command(const char *command, const char *usage, const char *what, int argc, char *const argv[],
                              const struct option *table, bool *help, struct error *err);

/** Who is told of help instead of having it printed: of options by parse_command, of topics by run_topic. */
struct help_listener {
    void *context;                      /* first argument of both functions */
    void (*options)(void *context, const char *usage, const char *what, const struct option *table);
    void (*topics)(void *context, const char *what, const struct command *topics); /**< Told of a list of topics. */
};

/** From now on help goes to a listener, which is copied; NULL: it is printed. */
void listen_to_help(const struct help_listener *);

/** The shape of --model: of a folder's config.json, or else of a preset.
 *  @param[out] dir  the folder; NULL for a preset.  @return OK or the first problem. */
enum error_code find_model(struct model_config *, const char *word, const char **dir, struct error *);

/** Whether `orrery train --config` would take a setting.
 *  @param file  names it in messages.  @return as settings_check. */
enum error_code train_check_setting(const struct yaml *setting, const char *file, struct error *);

/** Print names and descriptions, a line each, to stdout. */
void print_commands(const struct command *table);

/**
 * Run a command that consists of topics: the topic named by argv[2] gets all words; its own begin at argv[3].
 * @param what         a description of the topics, in one line, for the help.
 * @param has_default  without argv[2], or if that is a flag, run topics[0]; otherwise show the help.
 */
enum error_code run_topic(const char *what, const struct command *topics, bool has_default, int argc, char **argv,
                          int *status, struct error *);

struct transformer;

/** Write a model's weights for --save, into a folder that is made if it is not there, and locked meanwhile.  In dump.c;
 *  dump and prune call, on rank 0.  @return OK; ERR_FILE, with the flag; as keeping_take; as weights_save. */
enum error_code dump_save_weights(const struct transformer *, const char *folder, struct error *);

#endif
