/* elastic_words.c -- reads the file of --elastic, and parses the run once more with the mesh of each line.
 * train.c and options.c call.  Errors name the file and the line. */
#include "emulated_devices/cli/train/elastic_words.h"
#include "emulated_devices/cli/train/mesh_words.h"
#include "emulated_devices/run/elastic/elastic.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 20 };

/* The words of a run with another mesh; they live as long as its options. */
struct other_words { struct mesh_text mesh; char **word; int count; };

/* This is owned by the run's options, which have a pointer to its first member. */
struct elastic_words { struct elastic elastic; struct other_words *of; };

static struct elastic_words *words_of(const struct train_options *options)
{
    return (struct elastic_words *)options->elastic;
}

void elastic_free(struct train_options *options)
{
    struct elastic_words *const all = words_of(options);
    if (all == NULL) return;
    for (int i = 0; i < all->elastic.count; i++) {
        if (all->elastic.change[i].options) train_options_free(all->elastic.change[i].options);
        free(all->elastic.change[i].options), free(all->of[i].word);
    }
    free(all->elastic.change), free(all->of), free(all);
    options->elastic = NULL;
}

static enum error_code line_wrong(const struct train_options *options, int line, enum error_code code, const char *why,
                                  struct error *err)
{
    return fail(err, code, "--elastic %s, line %d: %s", printable_path(options->elastic_file).text, line, why);
}

/* ---- what does not go with it ------------------------------------------------------------------------------------ */

/* Outputs of one mesh, and state that lies outside the collection of the job's tensors. */
static enum error_code refuse(const struct train_options *o, struct error *err)
{
    const struct { bool given; const char *what, *why; } no[] = {
        { o->golden, "--check FILE", "a golden file is of one mesh; --check ref compares every mesh" },
        { o->infers, "orrery infer", "there is no state that moves" },
        { o->dry_run, "--dry-run", "a dry run has one mesh; plan each mesh by itself" },
        { o->plan.batches, "--batches", "its file says the microbatches of one mesh" },
        { o->plan.sections, "--plan", "its sections are of one mesh" },
        { o->slots, "--slots", "its places are of one mesh" },
        { o->log, "--log", "a log is of one mesh; --json has the losses of all" },
        { o->tensorboard, "--tensorboard", "its file is of one mesh" },
        { o->trace, "--trace", "a trace is of one mesh" },
        { o->record, "--record", "a device's records are of one mesh" },
        { o->disturbances.count > 0, "--disturb", "its devices are of one mesh" },
        { o->timeline, "--timeline", "a timeline is of one mesh" },
        { o->page, "--page", "a page is of one mesh" },
        { o->film, "--film", "a film is of one mesh" },
        { o->live != LIVE_OFF, "--live", "a page is of one mesh" },
        { o->owners_out, "--owners-out", "owners are of one mesh" },
        { o->save_load, "--save-load", "choices are listed for one mesh" },
        { o->plan.encoders.kinds > 0, "--modalities", "encoders are not in the state that moves" },
        { data_outer(&o->plan.data).every > 0, "--data-parallel",
          "its replicas train apart, so another mesh has other models" },
        { data_quantises(&o->plan.data), "--quantize-weights", "blocks of codes are cut by the mesh, so that another "
          "mesh has other numbers" },
        { o->plan.optimizer->low_rank, "--optimizer", "its directions are kept whole beside weights that are cut; "
          "adamw and the others of one state for each weight move" },
        { o->plan.updates > 1, "--schedule", "it steps the optimizer inside a step" },
    };
    struct schedule s;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (no[i].given) return fail(err, ERR_USAGE, "--elastic: not with %s: %s", no[i].what, no[i].why);
    const enum error_code e = plan_schedule(&o->plan, &s, err);
    if (e) return e;
    const int versions = s.weight_versions;
    schedule_free(&s);
    return versions > 1
        ? fail(err, ERR_USAGE, "--elastic: not with --schedule %s: it keeps two versions of the weights",
               o->plan.schedule) : OK;
}

/* ---- a line ------------------------------------------------------------------------------------------------------ */

static bool elastic_is_flag(const char *word, const char *flag)
{
    const size_t n = strcspn(word, "=");
    return strlen(flag) == n && strncmp(word, flag, n) == 0;
}

/* Whether a word of the command line gives way: an axis, for a line says the whole mesh, or what the line says itself;
 * the file of --elastic. */
static bool gives_way(const char *word, const struct mesh_text *mesh)
{
    static const char *const axes[] = { "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--elastic" };
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (elastic_is_flag(word, axes[i])) return true;
    for (int i = 0; i < mesh->count; i++)
        if (strncmp(mesh->word[i], "--", 2) == 0 && strcspn(mesh->word[i], "=") == strcspn(word, "=")
            && strncmp(mesh->word[i], word, strcspn(word, "=")) == 0) return true;
    return false;
}

static enum error_code make_words(struct other_words *other, const struct train_options *options, struct error *err)
{
    const struct settings_words *const own = &options->words;
    other->word = calloc((size_t)own->argc + MESH_WORDS_MOST + 1, sizeof *other->word);
    if (other->word == NULL) return fail(err, ERR_MEMORY, "no memory for %d words", own->argc);
    for (int i = 0; i < own->argc; i++) {
        if (strncmp(own->argv[i], "--", 2) == 0 && gives_way(own->argv[i], &other->mesh)) {
            i += strchr(own->argv[i], '=') == NULL;
            continue;
        }
        other->word[other->count++] = own->argv[i];
    }
    for (int i = 0; i < other->mesh.count; i++) other->word[other->count++] = other->mesh.word[i];
    return OK;
}

/* A change comes after a step of this run and before its last one. */
static enum error_code check_step(const struct train_options *options, const struct elastic *elastic, int64_t step,
                                  int line, struct error *err)
{
    const int64_t first = options->resume ? options->saved.step : 0, last = first + options->steps;
    const int64_t before = elastic->count > 0 ? first + elastic->change[elastic->count - 1].step : first;
    char why[200];
    if (step > before && step < last) return OK;
    if (elastic->count > 0 && step <= before && step > first)
        snprintf(why, sizeof why, "step %lld does not come after step %lld of an earlier line", (long long)step,
                 (long long)before);
    else
        snprintf(why, sizeof why, "step %lld is impossible: the run goes from step %lld to %lld, and the mesh changes "
                 "after one of them but the last", (long long)step, (long long)first + 1, (long long)last);
    return line_wrong(options, line, ERR_USAGE, why, err);
}

static enum error_code elastic_read_line(struct train_options *options, const struct run_kind *kind, char *text,
                                         int line, struct error *err)
{
    struct elastic_words *const all = words_of(options);
    char where[sizeof(struct printable) + 40], *rest;
    const long long step = strtoll(text, &rest, 10);
    snprintf(where, sizeof where, "--elastic %s, line %d", printable_path(options->elastic_file).text, line);
    if (rest == text || (*rest != ' ' && *rest != '\t'))
        return line_wrong(options, line, ERR_USAGE, "must be a step and a mesh, such as 4 --dp 4", err);
    enum error_code e = check_step(options, &all->elastic, step, line, err);
    if (e) return e;
    struct elastic_change *const change = &all->elastic.change[all->elastic.count];
    struct other_words *const other = &all->of[all->elastic.count];
    change->step = step - (options->resume ? options->saved.step : 0), change->line = line;
    all->elastic.count++;
    if (strlen(rest) >= sizeof change->words) return line_wrong(options, line, ERR_USAGE, "too many words", err);
    strcpy(change->words, rest + strspn(rest, " \t"));
    e = mesh_text_read(&other->mesh, change->words, where, err);
    if (!e && other->mesh.count == 0)
        e = line_wrong(options, line, ERR_USAGE, "names no mesh; --dp 1 is one device", err);
    if (!e) e = make_words(other, options, err);
    change->options = e ? NULL : calloc(1, sizeof *change->options);
    if (!e && change->options == NULL) e = fail(err, ERR_MEMORY, "no memory for another mesh");
    snprintf(where, sizeof where, "--elastic %s, line %d:", printable_path(options->elastic_file).text, line);
    if (!e) e = fail_about(err, train_parse(change->options, kind, other->count, other->word, err), where);
    return e ? e : fail_about(err, refuse(change->options, err), where);
}

static enum error_code elastic_read_lines(struct train_options *options, const struct run_kind *kind, char *text,
                                  struct error *err)
{
    enum error_code e = OK;
    int line = 0;
    for (char *next = text; next && !e;) {
        char *const own = next + strspn(next, " \t\r");
        next = strchr(own, '\n');
        if (next) *next++ = '\0';
        own[strcspn(own, "\r")] = '\0';
        line++;
        if (own[0] != '\0' && own[0] != '#') e = elastic_read_line(options, kind, own, line, err);
    }
    if (!e && options->elastic->count == 0)
        e = fail(err, ERR_USAGE, "--elastic %s: has no line with a step and a mesh",
                 printable_path(options->elastic_file).text);
    return e;
}

enum error_code elastic_read(struct train_options *options, const struct run_kind *kind, struct error *err)
{
    char *text;
    size_t count, lines = 1;
    if (options->elastic_file == NULL) return OK;
    enum error_code e = refuse(options, err);
    if (!e) e = fail_about(err, file_read_all(options->elastic_file, FILE_LIMIT, &text, &count, err), "--elastic");
    if (e) return e;
    for (size_t i = 0; i < count; i++) lines += text[i] == '\n';
    struct elastic_words *const all = calloc(1, sizeof *all);
    if (all) all->elastic.change = calloc(lines, sizeof *all->elastic.change), all->of = calloc(lines, sizeof *all->of);
    options->elastic = all ? &all->elastic : NULL;
    if (all == NULL || all->elastic.change == NULL || all->of == NULL)
        e = fail(err, ERR_MEMORY, "no memory for a list of meshes");
    if (!e && strlen(text) != count)
        e = fail(err, ERR_FORMAT, "--elastic %s: is no text", printable_path(options->elastic_file).text);
    if (!e) e = elastic_read_lines(options, kind, text, err);
    free(text);
    return e;
}
