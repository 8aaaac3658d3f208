/* dump.c -- `orrery dump`: writes every tensor of the one-device model on one batch to a file. */
#include "emulated_devices/cli/cli.h"
#include "ref/golden/replay.h"
#include "ref/model/weights.h"
#include "ref/ops/threads.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct dump_options {
    const char *model, *batch, *out, *dtype, *save;
    uint64_t seed;
};

static enum error_code parse(struct dump_options *o, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "OUT", NULL, OPTION_STRING, &o->out, .required = true, .help = "the file to write, safetensors" },
        { "--batch", "FILE", OPTION_STRING, &o->batch, .required = true,
          .help = "safetensors with ids and labels, integers [sequences, tokens]; label -1 is ignored" },
        { "--model", "NAME|DIR", OPTION_STRING, &o->model,
          .help = "a preset of `orrery list`, or a Hugging Face folder with weights" },
        { "--dtype", "NAME", OPTION_CHOICE, &o->dtype, .choices = number_formats, .help = "number format" },
        { "--seed", "N", OPTION_UINT64, &o->seed, .help = "seed of the initial weights of a preset" },
        { "--save", "DIR", OPTION_STRING, &o->save, .help = "also save the model as a Hugging Face folder" },
        { 0 }
    };
    return parse_command(
        "dump", "OUT --batch FILE [options]",
        "Run the one-device model forward and backward on a batch, without dropout. Write every activation,\n"
        "every gradient, the loss and the norm, with the names of golden/README.md.",
        argc - 2, argv + 2, table, help, err);
}

static enum error_code read_batch(struct golden *g, const char *path, struct error *err)
{
    enum error_code e = safetensors_open(&g->file, path, err);
    if (e) return e;
    const struct safetensors_entry *ids = safetensors_find(&g->file, "ids");
    if (ids == NULL || ids->ndim != 2 || ids->count < 1)
        return fail(err, ERR_FORMAT, "%s: a batch needs tensors ids and labels [sequences, tokens]",
                    printable_path(path).text);
    g->steps = 1, g->B = ids->dim[0], g->S = ids->dim[1];
    g->ids = malloc((size_t)ids->count * sizeof *g->ids);
    g->labels = malloc((size_t)ids->count * sizeof *g->labels);
    if (g->ids == NULL || g->labels == NULL)
        return fail(err, ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)ids->count);
    e = golden_read(g, "ids", I32, ids->count, g->ids, err);
    if (!e) e = model_config_check_inputs(&g->config, g->ids, ids->count, printable_path(path).text, err);
    return e ? e : golden_read(g, "labels", I32, ids->count, g->labels, err);
}

static enum error_code save(const struct replay *r, const char *dir, struct error *err)
{
    struct stat st;
    if (mkdir(dir, 0777) != 0 && !(stat(dir, &st) == 0 && S_ISDIR(st.st_mode)))
        return fail(err, ERR_FILE, "--save %s: this folder cannot be made", printable_path(dir).text);
    return fail_about(err, weights_save(&r->model, dir, err), "--save");
}

enum error_code command_dump(int argc, char **argv, int *status, struct error *err)
{
    struct dump_options o = { .model = "tiny", .dtype = "fp64", .seed = 42 };
    struct golden g = { 0 };
    struct replay r;
    const char *dir;
    bool help;
    (void)status;
    enum error_code e = parse(&o, argc, argv, &help, err);
    if (e || help) return e;
    use_cores(1);
    e = find_model(&g.config, o.model, &dir, err);
    if (!e) e = fail_about(err, read_batch(&g, o.batch, err), "--batch");
    g.seed = o.seed;
    g.config.dropout_embedding = g.config.dropout_residual = g.config.dropout_attention = 0;
    if (!e) {
        e = replay_batch(&r, &g, dtype_by_name(o.dtype), dir, err);
        if (!e) {
            e = records_write(r.record, r.records, "orrery dump", g.config.name, o.out, err);
            if (!e && o.save) e = save(&r, o.save, err);
            if (!e) printf("%s: %d tensors of model %s\n", o.out, r.records, g.config.name);
            replay_free(&r);
        }
    }
    golden_close(&g);
    return e;
}
