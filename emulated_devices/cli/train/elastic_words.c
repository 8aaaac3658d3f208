/* elastic_words.c -- reads the file of --elastic, and parses the run once more with the mesh of each line.
 * train.c and options.c call.  Errors name the file and the line. */
#include "emulated_devices/cli/train/elastic_words.h"
#include "emulated_devices/cli/train/mesh_words.h"
#include "emulated_devices/model/checkpoint/sharded/manifest.h"
#include "emulated_devices/plan/sections_file.h"
#include "emulated_devices/run/elastic/elastic.h"
#include "emulated_devices/run/elastic/uneven.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 20 };

/* The words of a run with another mesh; they live as long as its options. */
struct other_words { struct mesh_text mesh; char **word; int count; char micro[24]; };

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
        free(all->elastic.change[i].options), free(all->elastic.change[i].process), free(all->of[i].word);
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

/* Outputs of one mesh, and what another mesh would change. */
static enum error_code refuse(const struct train_options *o, struct error *err)
{
    const struct { bool given; const char *what, *why; } no[] = {
        { o->golden, "--check FILE", "a golden file is of one mesh; --check ref compares every mesh" },
        { o->infers, "orrery infer", "there is no state that moves" },
        { o->dry_run, "--dry-run", "a dry run has one mesh; plan each mesh by itself" },
        { o->plan.batches, "--batches", "its file says the microbatches of one mesh" },
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
        { data_outer(&o->plan.data).every > 0, "--data-parallel",
          "its replicas train apart, so another mesh has other models" },
        { data_quantises(&o->plan.data), "--quantize-weights", "blocks of codes are cut by the mesh, so that another "
          "mesh has other numbers" },
    };
    const char *const flag = o->elastic_file ? "--elastic" : "--lose";
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (no[i].given) return fail(err, ERR_USAGE, "%s: not with %s: %s", flag, no[i].what, no[i].why);
    if (o->lose && plan_has_tier(&o->plan))
        return fail(err, ERR_USAGE, "--lose: not with --offload: the engine that copies snapshots is in use");
    return elastic_refuse_state(o, flag, err);
}

enum error_code elastic_refuse_state(const struct train_options *o, const char *flag, struct error *err)
{
    const struct { bool given; const char *what, *why; } no[] = {
        { o->plan.optimizer->low_rank, "--optimizer", "its directions are kept whole beside weights that are cut; "
          "adamw and the others of one state for each weight move" },
        { o->plan.updates > 1, "--schedule", "it steps the optimizer inside a step" },
    };
    struct schedule s;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (no[i].given) return fail(err, ERR_USAGE, "%s: not with %s: %s", flag, no[i].what, no[i].why);
    const enum error_code e = plan_schedule(&o->plan, &s, err);
    if (e) return e;
    const int versions = s.weight_versions;
    schedule_free(&s);
    return versions > 1
        ? fail(err, ERR_USAGE, "%s: not with --schedule %s: it keeps two versions of the weights", flag,
               o->plan.schedule) : OK;
}

/* ---- a line ------------------------------------------------------------------------------------------------------ */

static bool elastic_is_flag(const char *word, const char *flag)
{
    const size_t n = strcspn(word, "=");
    return strlen(flag) == n && strncmp(word, flag, n) == 0;
}

/* Whether a word of the command line gives way: an axis, for a line says the whole mesh, or what the line says itself;
 * the file of --elastic.  Sections say the layers of each stage, too. */
static bool gives_way(const char *word, const struct mesh_text *mesh)
{
    static const char *const axes[] = { "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--elastic", "--lose",
        "--raise" };
    static const char *const of_stages[] = { "--placement", "--stage-layers" };
    const bool sections = mesh->count > 0 && strcmp(mesh->word[0], "--plan") == 0;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (elastic_is_flag(word, axes[i])) return true;
    for (size_t i = 0; sections && i < sizeof of_stages / sizeof *of_stages; i++)
        if (elastic_is_flag(word, of_stages[i])) return true;
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

/* ---- devices that are lost --------------------------------------------------------------------------------------- */

/* An entry of --lose. */
struct lose_word { int64_t step; int device; enum lose_moment moment; };
struct lose_words { int count, at; struct lose_word of[LOST_MOST]; };

static enum error_code lose_wrong(const struct train_options *options, const char *why, struct error *err)
{
    return fail(err, ERR_USAGE, "--lose %s: %s", printable(options->lose).text, why);
}

static bool read_moment(const char *word, size_t length, enum lose_moment *moment)
{
    for (int m = 0; m < LOSE_MOMENT_COUNT; m++)
        if (strlen(lose_moment_words[m]) == length && strncmp(lose_moment_words[m], word, length) == 0)
            return *moment = (enum lose_moment)m, true;
    return false;
}

static enum error_code lose_read(struct lose_words *words, const struct train_options *options, struct error *err)
{
    static const char form[] = "must be STEP:DEVICE[:MOMENT], such as 7:3:backward; moments are forward, backward, "
        "reduction, update, gather, save";
    const int64_t first = options->resume ? options->saved.step : 0, last = first + options->steps;
    *words = (struct lose_words){ 0 };
    for (const char *at = options->lose; at; ) {
        char *end;
        struct lose_word one = { .moment = LOST_FORWARD };
        one.step = strtoll(at, &end, 10);
        if (end == at || *end != ':') return lose_wrong(options, form, err);
        const char *const device = end + 1;
        const long number = strtol(device, &end, 10);
        const size_t length = *end == ':' ? strcspn(end + 1, ",") : 0;
        if (end == device || number < 0 || number > 1 << 20 || (*end && *end != ',' && *end != ':')
            || (*end == ':' && !read_moment(end + 1, length, &one.moment))) return lose_wrong(options, form, err);
        one.device = (int)number;
        end += *end == ':' ? length + 1 : 0;
        if (one.step <= first || one.step > last)
            return lose_wrong(options, "the run has no such step", err);
        if (words->count == LOST_MOST) return lose_wrong(options, "at most 8 devices", err);
        const struct lose_word *const before = words->count > 0 ? &words->of[words->count - 1] : NULL;
        if (before && (one.step < before->step || (one.step == before->step && one.moment != before->moment)))
            return lose_wrong(options, "steps must ascend, and devices lost in one step are lost at one moment", err);
        words->of[words->count++] = one;
        at = *end == ',' ? end + 1 : NULL;
    }
    return OK;
}

/* The rank in the mesh before the loss of a device of the job; -1: it is not in the mesh. */
static int rank_before(const int *process, int devices, int device)
{
    for (int r = 0; r < devices; r++)
        if ((process ? process[r] : r) == device) return r;
    return -1;
}

/* Devices of the job in the order of their ranks: those that keep their coordinates on the other axes, then any that
 * is left.  Device 0 stays rank 0, unless it is lost.
 * @param axis  on which the places of the lost devices end; AXIS_COUNT: others take their places. */
static bool choose_process(int *to, int wanted, const struct plan *before, const int *process, int started,
                           const struct losses *gone, const struct losses *all_gone, int axis)
{
    const struct mesh *const mesh = &before->mesh;
    int count = 0;
    for (int r = 0; r < mesh->devices; r++) {
        const int own = process ? process[r] : r;
        bool ends = false;
        for (int i = 0; i < gone->count && axis < AXIS_COUNT; i++)
            ends = ends || mesh_coordinate(mesh, r, (enum axis)axis)
                == mesh_coordinate(mesh, rank_before(process, mesh->devices, gone->device[i]), (enum axis)axis);
        if (ends || count == wanted) continue;
        to[count++] = own;
    }
    for (int i = 0; i < count; i++)             /* a spare one in the place of each that is lost */
        for (int d = 0; losses_has(all_gone, to[i]) && d < started; d++)
            if (!losses_has(all_gone, d) && rank_before(process, mesh->devices, d) < 0
                && rank_before(to, count, d) < 0) to[i] = d;
    for (int i = 0; i < count; i++)
        if (losses_has(all_gone, to[i])) return false;
    if (count == wanted && rank_before(to, count, 0) < 0 && !losses_has(all_gone, 0)) to[0] = 0;
    return count == wanted;
}

/* Sections are said in one word.  They have the microbatches of a copy before. */
static enum error_code say_sections(struct other_words *other, const struct train_options *options,
                                    const struct plan *plan, struct error *err)
{
    static char plan_flag[] = "--plan", micro_flag[] = "--micro";
    struct mesh_text *const mesh = &other->mesh;
    if (strlen(sections_words(plan, mesh->text, sizeof mesh->text)) + 1 == sizeof mesh->text)
        return fail(err, ERR_PLAN, "the sections of %d stages are too many words", plan->sections->count);
    mesh->word[mesh->count++] = plan_flag, mesh->word[mesh->count++] = mesh->text;
    if (options_given(options->words.argc, options->words.argv, "--micro")
        || options_given(options->words.argc, options->words.argv, "--micro-tokens")) return OK;
    snprintf(other->micro, sizeof other->micro, "%d", plan->micros);
    mesh->word[mesh->count++] = micro_flag, mesh->word[mesh->count++] = other->micro;
    return OK;
}

/* Parse the run once more with the mesh of a plan.  The devices that are left stay where they are in the machine, so
 * groups follow its nodes, whatever the ranks are now. */
static enum error_code parse_mesh(struct elastic_change *change, struct other_words *other,
                                  const struct train_options *options, const struct run_kind *kind,
                                  const struct plan *plan, struct error *err)
{
    *other = (struct other_words){ 0 };
    if (plan->mesh.devices == 1 && plan->sections == NULL) snprintf(change->words, sizeof change->words, "--dp 1");
    else mesh_words(plan, change->words, sizeof change->words);
    enum error_code e = plan->sections ? say_sections(other, options, plan, err)
                                       : mesh_text_read(&other->mesh, change->words, "--lose", err);
    if (!e) e = make_words(other, options, err);
    change->options = e ? NULL : calloc(1, sizeof *change->options);
    if (!e && change->options == NULL) e = fail(err, ERR_MEMORY, "no memory for another mesh");
    if (!e) e = train_parse_at(change->options, kind, other->count, other->word, change->process, err);
    if (!e) return OK;
    free(change->options), free(other->word);
    change->options = NULL, other->word = NULL;
    return e;
}

/* This tries the same mesh, or one that is smaller on an axis. */
static enum error_code try_mesh(struct elastic_change *change, struct other_words *other,
                                const struct train_options *options, const struct run_kind *kind,
                                const struct plan *before, int axis, struct error *err)
{
    struct plan smaller = *before;
    if (axis < AXIS_COUNT) {
        smaller.mesh.size[axis] -= change->loss.devices.count;
        smaller.mesh.devices = smaller.mesh.devices / before->mesh.size[axis] * smaller.mesh.size[axis];
    }
    return parse_mesh(change, other, options, kind, &smaller, err);
}

/* This tries stages with different numbers of copies.  A device without a part is spare; device 0 is none. */
static enum error_code try_uneven(struct elastic_change *change, struct other_words *other,
                                  const struct train_options *options, const struct run_kind *kind,
                                  const struct plan *before, const int *process, const struct losses *all_gone,
                                  struct error *err)
{
    struct uneven uneven;
    struct plan next = *before;
    enum error_code e = uneven_open(&uneven, before, process, all_gone, err);
    if (e) return e;
    next.sections = &uneven.sections;
    for (int r = 0; r < uneven.devices; r++) change->process[r] = uneven.process[r];
    e = parse_mesh(change, other, options, kind, &next, err);
    if (!e && rank_before(change->process, uneven.devices, 0) < 0 && !losses_has(all_gone, 0)) change->process[0] = 0;
    uneven_close(&uneven);
    return e;
}

/* Devices that are lost before step `until`, or all that are left. */
static enum error_code add_losses(struct train_options *options, const struct run_kind *kind, struct lose_words *lost,
                                  int64_t until, int started, struct error *err)
{
    static const enum axis order[] = { DP, PP, CP, TP, EP };
    struct elastic_words *const all = words_of(options);
    const int64_t first = options->resume ? options->saved.step : 0;
    for (; lost->at < lost->count && lost->of[lost->at].step <= until; ) {
        struct elastic *const elastic = &all->elastic;
        struct elastic_change *const change = &elastic->change[elastic->count];
        const struct elastic_change *const last = elastic->count > 0 ? change - 1 : NULL;
        const struct plan *const before = last ? &last->options->plan : &options->plan;
        const int *const process = last ? last->process : NULL;
        struct losses all_gone = { 0 };
        const int64_t step = lost->of[lost->at].step;
        char why[200];
        for (int i = elastic->count - 1; i >= 0 && elastic->change[i].loss.devices.count > 0; i--)
            for (int d = 0; d < elastic->change[i].loss.devices.count && all_gone.count < LOST_MOST; d++)
                all_gone.device[all_gone.count++] = elastic->change[i].loss.devices.device[d];
        change->step = step - 1 - first;
        for (; lost->at < lost->count && lost->of[lost->at].step == step; lost->at++) {
            const int device = lost->of[lost->at].device;
            snprintf(why, sizeof why, "device %d has no part in step %lld", device, (long long)step);
            if (rank_before(process, before->mesh.devices, device) < 0 || losses_has(&change->loss.devices, device))
                return lose_wrong(options, why, err);
            change->loss.moment = lost->of[lost->at].moment;
            change->loss.devices.device[change->loss.devices.count++] = device;
            if (all_gone.count < LOST_MOST) all_gone.device[all_gone.count++] = device;
        }
        if (change->loss.moment == LOST_SAVE && options->save == NULL)
            return lose_wrong(options, "nothing is saved without --save DIR", err);
        change->process = calloc((size_t)before->mesh.devices, sizeof *change->process);
        if (change->process == NULL) return fail(err, ERR_MEMORY, "no memory for a list of devices");
        bool found = choose_process(change->process, before->mesh.devices, before, process, started,
                                    &change->loss.devices, &all_gone, AXIS_COUNT)
            && !try_mesh(change, &all->of[elastic->count], options, kind, before, AXIS_COUNT, err);
        if (!found)
            found = !try_uneven(change, &all->of[elastic->count], options, kind, before, process, &all_gone, err);
        for (size_t a = 0; a < sizeof order / sizeof *order && !found && before->sections == NULL; a++) {
            const int size = before->mesh.size[order[a]] - change->loss.devices.count;
            if (size < 1) continue;
            found = choose_process(change->process, before->mesh.devices / before->mesh.size[order[a]] * size, before,
                                   process, started, &change->loss.devices, &all_gone, order[a])
                && !try_mesh(change, &all->of[elastic->count], options, kind, before, order[a], err);
        }
        snprintf(why, sizeof why, "no smaller mesh of step %lld can do its work", (long long)step);
        if (!found) return lose_wrong(options, why, err);
        elastic->count++;
        const enum error_code e = refuse(change->options, err);
        if (e) return e;
    }
    return OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static enum error_code elastic_read_lines(struct train_options *options, const struct run_kind *kind, char *text,
                                          struct lose_words *lost, int started, struct error *err)
{
    enum error_code e = OK;
    int line = 0;
    for (char *next = text; next && !e;) {
        char *const own = next + strspn(next, " \t\r");
        next = strchr(own, '\n');
        if (next) *next++ = '\0';
        own[strcspn(own, "\r")] = '\0';
        line++;
        if (own[0] == '\0' || own[0] == '#') continue;
        e = add_losses(options, kind, lost, strtoll(own, NULL, 10), started, err);
        if (!e) e = elastic_read_line(options, kind, own, line, err);
    }
    if (!e && text && options->elastic->count == 0)
        e = fail(err, ERR_USAGE, "--elastic %s: has no line with a step and a mesh",
                 printable_path(options->elastic_file).text);
    return e;
}

enum error_code elastic_read(struct train_options *options, const struct run_kind *kind, struct error *err)
{
    char *text = NULL;
    size_t count = 0, lines = 1 + LOST_MOST;
    struct lose_words lost = { 0 };
    if (options->raise && options->lose == NULL)
        return fail(err, ERR_USAGE, "--raise %d: is for the devices that are left after --lose", options->raise);
    if (options->elastic_file == NULL && options->lose == NULL) return OK;
    if (options->plan.sections)
        return fail(err, ERR_USAGE, "%s: not with --plan: its sections are of one mesh",
                    options->elastic_file ? "--elastic" : "--lose");
    enum error_code e = refuse(options, err);
    if (!e && options->lose) e = lose_read(&lost, options, err);
    if (!e && options->elastic_file)
        e = fail_about(err, file_read_all(options->elastic_file, FILE_LIMIT, &text, &count, err), "--elastic");
    if (e) return e;
    for (size_t i = 0; i < count; i++) lines += text[i] == '\n';
    struct elastic_words *const all = calloc(1, sizeof *all);
    if (all) all->elastic.change = calloc(lines, sizeof *all->elastic.change), all->of = calloc(lines, sizeof *all->of);
    options->elastic = all ? &all->elastic : NULL;
    if (all == NULL || all->elastic.change == NULL || all->of == NULL)
        e = fail(err, ERR_MEMORY, "no memory for a list of meshes");
    if (!e && text && strlen(text) != count)
        e = fail(err, ERR_FORMAT, "--elastic %s: is no text", printable_path(options->elastic_file).text);
    if (!e) all->elastic.snapshots = options->lose != NULL;
    if (!e) e = elastic_read_lines(options, kind, text, &lost, options->plan.mesh.devices, err);
    if (!e) e = add_losses(options, kind, &lost, INT64_MAX, options->plan.mesh.devices, err);
    free(text);
    return e;
}
