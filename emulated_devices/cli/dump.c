/* dump.c -- `orrery dump`: writes every tensor of the one-device model on one batch to a file.  main.c calls
 * command_dump().  ERR_FILE means that the folder of --save cannot be made; other errors are those of reading and
 * writing. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "ref/golden/batch.h"
#include "ref/golden/replay.h"
#include "ref/model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct dump_options {
    const char *model, *batch, *out, *dtype, *save;
    uint64_t seed;
};

static enum error_code dump_parse(struct dump_options *options, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "OUT", NULL, OPTION_STRING, &options->out, .required = true, .help = "the file to write, safetensors" },
        { "--batch", "FILE", OPTION_STRING, &options->batch, .required = true,
          .help = "safetensors with ids and labels, integers [sequences, tokens]; labels -1 and -100 are ignored" },
        { "--model", "NAME|DIR", OPTION_STRING, &options->model,
          .help = "a preset of `orrery list`, or a Hugging Face folder with weights" },
        { "--dtype", "NAME", OPTION_CHOICE, &options->dtype, .choices = number_formats, .help = "number format" },
        { "--seed", "N", OPTION_UINT64, &options->seed, .help = "seed of the initial weights of a preset" },
        { "--save", "DIR", OPTION_STRING, &options->save, .help = "also save the model as a Hugging Face folder" },
        THREADS_OPTION,
        { 0 }
    };
    return parse_command(
        "dump", "OUT --batch FILE [options]",
        "Run the one-device model forward and backward on a batch, without dropout. Write every activation,\n"
        "every gradient, the loss and the norm, with the names of golden/README.md.",
        argc - 2, argv + 2, table, help, err);
}

enum error_code dump_save_weights(const struct transformer *transformer, const char *folder, struct error *err)
{
    const struct kept kept = { "--save", folder, true };
    struct stat st;
    if (mkdir(folder, 0777) != 0 && !(stat(folder, &st) == 0 && S_ISDIR(st.st_mode)))
        return fail(err, ERR_FILE, "--save %s: this folder cannot be made", printable_path(folder).text);
    origin_name_run();
    enum error_code e = keeping_take(&kept, 1, stdout, err);
    if (e) return e;
    e = fail_about(err, weights_save(transformer, folder, err), "--save");
    keeping_release();
    return e;
}

enum error_code command_dump(int argc, char **argv, int *status, struct error *err)
{
    struct dump_options o = { .model = "tiny", .dtype = "fp64", .seed = 42 };
    struct golden g = { 0 };
    struct replay r;
    const char *dir;
    bool help;
    (void)status;
    enum error_code e = dump_parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    e = find_model(&g.config, o.model, &dir, err);
    if (!e) e = fail_about(err, batch_read(&g, o.batch, 1, err), "--batch");
    g.seed = o.seed;
    g.config.dropout_embedding = g.config.dropout_residual = g.config.dropout_attention = 0;
    if (!e) {
        e = replay_batch(&r, &g, dtype_by_name(o.dtype), dir, err);
        if (!e) {
            const struct safetensors_pair about[] = { { "generator", "orrery dump" }, { "model", g.config.name } };
            e = records_write(r.record, r.records, about, 2, o.out, err);
            if (!e && o.save) e = dump_save_weights(&r.model, o.save, err);
            if (!e) printf("%s: %d tensors of model %s\n", o.out, r.records, g.config.name);
            replay_free(&r);
        }
    }
    golden_close(&g);
    return e;
}
