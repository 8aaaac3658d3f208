/* reshard.c -- `orrery reshard`: a sharded checkpoint for another mesh, or a model for other programs.
 * main.c calls command_reshard().  Errors: ERR_USAGE of the words, ERR_PLAN of a mesh that the state does not fit,
 * ERR_FORMAT and ERR_FILE of the folders, ERR_CHECK if other bytes were moved than foreseen.
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/train/mesh_words.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/model/checkpoint/sharded/reshard.h"
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "emulated_devices/run/run.h"
#include "ref/io/document.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include "ref/model/weights_cut.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct reshard_options { const char *dir, *to, *out; uint64_t size; };

static enum error_code parse(struct reshard_options *options, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "DIR", NULL, OPTION_STRING, &options->dir, .required = true,
          .help = "a checkpoint of `orrery train --save DIR --sharded`; with --file-size any checkpoint" },
        { "--to", "WORDS", OPTION_STRING, &options->to,
          .help = "the new mesh in quotes, as `orrery train` takes it, such as \"--dp 2 --tp 4\"" },
        { "--out", "DIR", OPTION_STRING, &options->out,
          .help = "the folder to write; default: none, and it is only said what would move" },
        { "--file-size", "SIZE", OPTION_SIZE, &options->size, .min = 1, .max = 1e15,
          .help = "in place of --to: write the model alone into --out, as transformers reads it: config.json, and "
                  "files of at most this size with an index, such as 5GB" },
        { 0 }
    };
    return parse_command("reshard", "DIR --to WORDS [--out DIR]  |  orrery reshard DIR --file-size SIZE --out DIR",
                         "Cut a sharded checkpoint for another mesh. Device n keeps what it has; what it lacks comes\n"
                         "from other devices' files, and no way moves fewer bytes. The new folder is the one that a\n"
                         "run on the new mesh would have saved at the same step.", argc - 2, argv + 2, table, help,
                         err);
}

/* The job of the checkpoint on the new mesh: every other setting is the checkpoint's own. */
static enum error_code read_plan(struct train_options *run, const struct reshard_options *options,
                                 struct mesh_text *mesh, char *words[], struct error *err)
{
    static char resume[] = "--resume", steps[] = "--steps", one[] = "1";
    int n = 0;
    words[n++] = resume, words[n++] = (char *)(uintptr_t)options->dir, words[n++] = steps, words[n++] = one;
    for (int i = 0; i < mesh->count; i++) words[n++] = mesh->word[i];
    return train_parse(run, &run_train, n, words, err);
}

static void print_devices(const struct resharding *resharding)
{
    struct table t = table_start("devices", 1, "device\tkeeps bytes\tgets bytes\tgives bytes");
    for (int r = 0; r < resharding->moves.ranks; r++) {
        const struct moved *const m = &resharding->moves.of[r];
        table_row(&t, "%d\t%llu\t%llu\t%llu", r, (unsigned long long)m->stays, (unsigned long long)m->received,
                  (unsigned long long)m->sent);
    }
    table_end(&t);
}

/* Every byte that moves is foreseen, counted and needed. */
static void print(const struct resharding *resharding, const struct reshard_options *options, const char *mesh)
{
    const struct moves *const m = &resharding->moves;
    uint64_t counted = 0;
    for (int r = 0; r < m->ranks; r++) counted += resharding->counted[r].received;
    say(stdout, 8, "from    %s: step %lld, %s on %d device%s, %s", printable_path(options->dir).text,
        (long long)resharding->from->step, resharding->files.manifest.mesh, resharding->files.manifest.files,
        plural(resharding->files.manifest.files), size_format(resharding->bytes).text);
    say(stdout, 8, "to      %s on %d device%s", mesh, resharding->manifest.files, plural(resharding->manifest.files));
    print_devices(resharding);
    say(stdout, 8, "moves   %llu bytes in %d boxes, the fewest there can be; %llu bytes stay",
        (unsigned long long)m->bytes, m->count, (unsigned long long)m->stays);
    if (options->out)
        say(stdout, 8, "wrote   %s: counted %llu bytes moved, as foreseen on every device",
            printable_path(options->out).text, (unsigned long long)counted);
    json_add(document_data(), "step %g from_mesh %s to_mesh %s state_bytes %g moved_bytes %g stays_bytes %g boxes %d",
             (double)resharding->from->step, resharding->files.manifest.mesh, mesh, (double)resharding->bytes,
             (double)m->bytes, (double)m->stays, m->count);
    if (options->out) json_add(document_data(), "counted_bytes %g", (double)counted);
}

static bool is_same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static enum error_code reshard_run(const struct train_options *run, const struct reshard_options *options,
                                   struct error *err)
{
    struct resharding r;
    char mesh[MESH_WORDS_LINE];
    const struct kept kept = { "--out", options->out, true };
    if (options->out && is_same_folder(run->resume, options->out))
        return fail(err, ERR_USAGE, "--out %s: is the folder of the checkpoint itself",
                    printable_path(options->out).text);
    enum error_code e = OK;
    if (options->out) origin_name_run(), e = keeping_take(&kept, 1, stdout, err);
    if (e) return e;
    e = reshard_open(&r, &run->saved, &run->plan, err);
    if (!e && options->out) e = fail_about(err, reshard_write(&r, options->out, err), "--out");
    if (!e) print(&r, options, mesh_words(&run->plan, mesh, sizeof mesh));
    reshard_close(&r);
    keeping_release();
    return e;
}

/* ---- a model for other programs ---------------------------------------------------------------------------------- */

/* A folder that has a model would have files of both afterwards. */
static enum error_code make_folder(const char *dir, struct error *err)
{
    static const char *const files[] = { WEIGHTS_FILE, WEIGHTS_FILE ".index.json" };
    char path[4200];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%.4000s/%s", dir, files[i]);
        if (access(path, F_OK) == 0)
            return fail(err, ERR_FILE, "--out %s: has a model already; give another folder", printable_path(dir).text);
    }
    if (mkdir(dir, 0777) == 0 || errno == EEXIST) return OK;
    return fail(err, ERR_FILE, "--out %s: cannot be made: %s", printable_path(dir).text, strerror(errno));
}

static enum error_code model_write(const struct reshard_options *options, const struct checkpoint *saved,
                                   struct error *err)
{
    struct model_config config;
    struct transformer model;
    int files = 0;
    const cJSON *const dtype = cJSON_GetObjectItemCaseSensitive(saved->run, "--dtype");
    const bool wide = cJSON_IsString(dtype) && strcmp(dtype->valuestring, dtype_name(F64)) == 0;
    enum error_code e = checkpoint_config(saved, &config, err);
    if (!e) e = transformer_open(&model, &config, wide ? F64 : F32, 0, err);
    if (e) return e;
    e = checkpoint_load_serial(&model, saved, err);
    if (!e) e = make_folder(options->out, err);
    if (!e) e = fail_about(err, weights_save(&model, options->out, err), "--out");
    if (!e) e = fail_about(err, weights_cut(options->out, options->size, &files, err), "--out");
    if (!e) {
        const double elements = (double)model_elements(&config);
        say(stdout, 8, "wrote   %s: %s parameters of step %lld in %d file%s%s", printable_path(options->out).text,
            count_format(elements).text, (long long)saved->step, files, plural(files),
            files > 1 ? " with an index" : "");
        json_add(document_data(), "step %g parameters %g files %d", (double)saved->step, elements, files);
    }
    transformer_close(&model);
    return e;
}

static enum error_code model_run(const struct reshard_options *options, struct error *err)
{
    struct checkpoint saved;
    if (options->to || options->out == NULL)
        return fail(err, ERR_USAGE, "--file-size: writes a model for other programs into --out DIR, and takes no --to");
    enum error_code e = checkpoint_open(&saved, options->dir, err);
    if (e) return e;
    e = saved.there ? model_write(options, &saved, err)
        : fail(err, ERR_USAGE, "%s: is no checkpoint of orrery", printable_path(options->dir).text);
    checkpoint_close(&saved);
    return e;
}

enum error_code command_reshard(int argc, char **argv, int *status, struct error *err)
{
    struct reshard_options o = { 0 };
    struct train_options run;
    struct mesh_text mesh;
    char *words[MESH_WORDS_MOST + 4];
    bool help;
    (void)status;
    enum error_code e = parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    if (o.size > 0) return model_run(&o, err);
    if (o.to == NULL) return fail(err, ERR_USAGE, "--to: a mesh is missing, such as --to \"--dp 2 --tp 4\"");
    e = mesh_text_read(&mesh, o.to, "--to", err);
    if (e) return e;
    e = read_plan(&run, &o, &mesh, words, err);
    if (!e) e = reshard_run(&run, &o, err);
    train_options_free(&run);
    return e;
}
