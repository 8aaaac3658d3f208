/* reshard.c -- `orrery reshard`: a sharded checkpoint for another mesh.  main.c calls command_reshard().  Errors:
 * ERR_USAGE of the words, ERR_PLAN of a mesh that the state does not fit, ERR_FORMAT and ERR_FILE of the folders,
 * ERR_CHECK if other bytes were moved than foreseen. */
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
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct reshard_options { const char *dir, *to, *out; };

static enum error_code parse(struct reshard_options *options, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "DIR", NULL, OPTION_STRING, &options->dir, .required = true,
          .help = "a checkpoint of `orrery train --save DIR --sharded`" },
        { "--to", "WORDS", OPTION_STRING, &options->to, .required = true,
          .help = "the new mesh in quotes, as `orrery train` takes it, such as \"--dp 2 --tp 4\"" },
        { "--out", "DIR", OPTION_STRING, &options->out,
          .help = "the folder to write; default: none, and it is only said what would move" },
        { 0 }
    };
    return parse_command("reshard", "DIR --to WORDS [--out DIR]",
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
    char mesh[256];
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
    e = mesh_text_read(&mesh, o.to, "--to", err);
    if (e) return e;
    e = read_plan(&run, &o, &mesh, words, err);
    if (!e) e = reshard_run(&run, &o, err);
    train_options_free(&run);
    return e;
}
