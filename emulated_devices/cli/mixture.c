/* mixture.c -- `orrery mixture`: joins dense models, each trained alone, into a mixture.  main.c calls
 * command_mixture().  Errors: ERR_USAGE of the words, and those of model/join_experts.c, which writes the model. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/model/join_experts.h"
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "ref/io/disk.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct mixture_words { const char *out, *of, *like, *dtype; uint64_t seed; };

static enum error_code mixture_parse(struct mixture_words *words, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "OUT", NULL, OPTION_STRING, &words->out, .required = true, .help = "the folder to write" },
        { "--of", "DIR,DIR,..", OPTION_STRING, &words->of, .required = true,
          .help = "folders of dense models: expert 0, 1 and so on; a folder may be there more than once" },
        { "--like", "NAME|DIR", OPTION_STRING, &words->like,
          .help = "a mixture whose routers, balance and names of tensors it has; the rest is that of the models" },
        { "--dtype", "NAME", OPTION_CHOICE, &words->dtype, .choices = (const char *const[]){ "fp32", "fp64", NULL },
          .help = "number format of the file" },
        { "--seed", "N", OPTION_UINT64, &words->seed, .help = "seed of the routers, which are new" },
        { 0 }
    };
    return parse_command("mixture", "OUT --of DIR,DIR,.. [options]",
                         "Join dense models into a mixture: the feed-forward of model n becomes expert n in every\n"
                         "layer, with the same bits. All else must be the same in all models, also encoders: train\n"
                         "each alone with --train-only feed. Routers are drawn (docs/parallelism/trained.md).",
                         argc - 2, argv + 2, table, help, err);
}

/* Cut the list at its commas, in place. */
static enum error_code list_models(struct joining *joining, char *list, struct error *err)
{
    for (char *at = list; at; joining->models++) {
        char *const comma = strchr(at, ',');
        if (joining->models == JOINED_MOST) return fail(err, ERR_USAGE, "--of: at most %d models", JOINED_MOST);
        if (comma) *comma = 0;
        if (*at == 0) return fail(err, ERR_USAGE, "--of: a folder has no name");
        joining->dir[joining->models] = at;
        at = comma ? comma + 1 : NULL;
    }
    return OK;
}

static enum error_code mixture_configs(struct joining *joining, const char *like, struct error *err)
{
    struct model_config other;
    const char *dir;
    enum error_code e = fail_about(err, model_config_read_folder(&joining->dense, joining->dir[0], err), "--of");
    if (!e) e = find_model(&other, like, &dir, err);
    return e ? e : joining_config(joining, &other, err);
}

static enum error_code mixture_write(struct joining *joining, const char *out, struct error *err)
{
    const struct kept kept = { "OUT", out, true };
    struct stat st;
    for (int m = 0; m < joining->models; m++)
        if (strcmp(joining->dir[m], out) == 0)
            return fail(err, ERR_USAGE, "%s: is one of the models", printable_path(out).text);
    if (disk_make_folder(out) != 0 && !(stat(out, &st) == 0 && S_ISDIR(st.st_mode)))
        return fail(err, ERR_FILE, "%s: this folder cannot be made", printable_path(out).text);
    origin_name_run();
    enum error_code e = keeping_take(&kept, 1, stdout, err);
    if (!e) e = join_experts(joining, out, err);
    keeping_release();
    return e;
}

enum error_code command_mixture(int argc, char **argv, int *status, struct error *err)
{
    struct mixture_words words = { .like = "mixtral-tiny", .dtype = "fp32", .seed = 42 };
    struct joining joining = { .models = 0 };
    char list[4096];
    bool help;
    (void)status;
    enum error_code e = mixture_parse(&words, argc, argv, &help, err);
    if (e || help) return e;
    if (strlen(words.of) >= sizeof list)
        return fail(err, ERR_USAGE, "--of: has more than %zu letters", sizeof list - 1);
    strcpy(list, words.of);
    joining.dtype = dtype_by_name(words.dtype), joining.seed = words.seed;
    e = list_models(&joining, list, err);
    if (!e) e = mixture_configs(&joining, words.like, err);
    if (!e) e = mixture_write(&joining, words.out, err);
    if (e) return e;
    printf("experts  %d, %lld numbers, with the bits of the models' feed-forwards\n"
           "shared   %lld numbers, the same in all models%s\n"
           "routers  %lld numbers, drawn\n"
           "wrote    %s\n", joining.models, (long long)joining.joined, (long long)joining.shared,
           joining.encoders ? ", with their encoders" : "", (long long)joining.drawn, printable_path(words.out).text);
    json_add(document_data(), "experts %d joined %g shared %g drawn %g encoders %d", joining.models,
             (double)joining.joined, (double)joining.shared, (double)joining.drawn, joining.encoders);
    return OK;
}
