/* train.c -- `orrery train` and `infer`: read the words, then start the devices or be one.
 *
 * The words are the strings of the command line behind the command's name, with those of --config in front.
 * cli/main.c calls the two command functions, through the list of cli/commands.h.  Each device's process calls
 * command_train or command_infer again, under the launcher.
 * run/session.c makes the outputs: reports, logs and checkpoints.  --dry-run prints on rank 0 only.
 * *status is changed if devices have printed their own errors, or a signal has stopped the run.  Wrong words are
 * ERR_USAGE or ERR_PLAN; other errors come from files, memory and the run.  All that was opened is closed before an
 * error is returned.
 */
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/cli/train/elastic_words.h"
#include "emulated_devices/cli/train/survive_words.h"
#include "emulated_devices/cli/train/weather.h"
#include "emulated_devices/run/elastic/elastic.h"
#include "emulated_devices/run/plan.h"
#include "emulated_devices/run/session.h"
#include "emulated_devices/run/survive/surviving.h"
#include <stdlib.h>

/* Under a launcher: run as one device. */
static enum error_code train_device(const struct train_options *options, int *status, struct error *err)
{
    struct device device;
    struct comm comm;
    enum error_code e = session_open_device(&device, options, err);
    if (e) return e;
    e = comm_open(&comm, &device, err);
    if (!e) e = session_run(&comm, options, status, err), comm_close(&comm);
    device_close(&device);
    return e;
}

static enum error_code launch_all(const struct train_options *options, int argc, char **argv, int *status,
                                  struct error *err)
{
    return options->survive ? surviving_launch(options, argc, argv, status, err)
        : launch_devices(elastic_devices(options), argc, argv, status, err);
}

/* Devices get the command line.  A pipe can be read only once, so they get what was in the pipe of --config instead. */
static enum error_code launch_words(struct train_options *options, int argc, char **argv, int *status,
                                    struct error *err)
{
    if (!options->words.once) return launch_all(options, argc, argv, status, err);
    settings_drop_file(&options->words);
    char **all = calloc((size_t)options->words.argc + 3, sizeof *all);
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for %d words", options->words.argc);
    all[0] = argv[0], all[1] = argv[1];
    for (int i = 0; i < options->words.argc; i++) all[2 + i] = options->words.argv[i];
    const enum error_code e = launch_all(options, options->words.argc + 2, all, status, err);
    free(all);
    return e;
}

/* Errors in files are reported once, before the devices start. */
static enum error_code launch_checked(struct train_options *options, int argc, char **argv, int *status,
                                      struct error *err)
{
    struct train_data data;
    char overridden[240];
    enum error_code e = session_load_data(&data, options, err);
    if (e) return e;
    e = train_check_saved(options, &data, overridden, sizeof overridden, err);
    train_data_free(&data);
    if (!e) e = session_probe_outputs(options, err);
    if (!e) e = session_check_memory(options, err);
    return e ? e : launch_words(options, argc, argv, status, err);
}

static enum error_code train_fields(const struct train_options *options, int argc, char **argv, int *status,
                                    struct error *err)
{
    const struct weather_asked asked = { .job = options->weather, .cluster = &options->cluster,
                                         .steps = options->steps, .checks = options->check != NULL,
                                         .json = options->json, .memory = options->memory,
                                         .save = options->save, .resume = options->resume };
    return weather_train(&asked, one_process(), argc, argv, status, err);
}

/* Choose the way of the run: only plan it, run all devices in this process, be one device, or start the devices. */
static enum error_code train_train_run(const struct run_kind *kind, int argc, char **argv, int *status,
                                       struct error *err)
{
    struct train_options o;
    enum error_code e = train_parse(&o, kind, argc - 2, argv + 2, err);
    if (!e && o.weather) {
        if (o.dry_run && !o.help) e = launcher_rank() == 0 ? plan_fields(&o, err) : OK;
        else if (!o.help) e = train_fields(&o, argc, argv, status, err);
        train_options_free(&o);
        return e;
    }
    if (!e && !o.help) e = elastic_read(&o, kind, err);
    if (!e && !o.help) e = survive_check(&o, err);
    const bool alone = under_launcher() || (!e && elastic_devices(&o) == 1 && !o.survive);
    if (!e && !o.help && o.dry_run) e = launcher_rank() == 0 ? train_plan(&o, err) : OK;
    else if (!e && !o.help && !alone && one_process()) e = train_in_one_process(&o, status, err);
    else if (!e && !o.help) e = alone ? train_device(&o, status, err) : launch_checked(&o, argc, argv, status, err);
    train_options_free(&o);
    return e;
}

enum error_code command_train(int argc, char **argv, int *status, struct error *err)
{
    return train_train_run(&run_train, argc, argv, status, err);
}

enum error_code command_infer(int argc, char **argv, int *status, struct error *err)
{
    return train_train_run(&run_infer, argc, argv, status, err);
}
