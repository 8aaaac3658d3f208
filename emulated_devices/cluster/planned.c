/* planned.c -- asks plans what jobs take.  price.c calls.  Errors: ERR_USAGE of a plan's words; ERR_MEMORY.  A plan
 * that cannot be made on some number of devices is no error: it does not fit there. */
#include "emulated_devices/cluster/planned.h"
#include "emulated_devices/model/collection/moves.h"
#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/run/plan.h"
#include "emulated_devices/run/run.h"
#include "ref/io/options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_WORDS_MOST = 64 };

/* Words of jobs say neither how many copies there are nor where they run. */
static const char *const not_of_jobs[] = { "--dp", "--cluster", "--memory", "--steps", "--json", "--help", NULL };

/* The words of a plan, cut from its text. */
struct plan_text { char text[JOB_PLAN], copies[16]; const char *word[PLAN_WORDS_MOST + 8]; int words; };

static enum error_code cut_plan(struct plan_text *plan, const char *text, struct error *err)
{
    plan->words = 0;
    snprintf(plan->text, sizeof plan->text, "%s", text);
    for (char *rest = plan->text, *word; (word = strtok_r(rest, " \t", &rest)) != NULL;) {
        for (const char *const *no = not_of_jobs; *no; no++)
            if (strncmp(word, *no, strlen(*no)) == 0 && (word[strlen(*no)] == '\0' || word[strlen(*no)] == '='))
                return fail(err, ERR_USAGE, "%s: a job's plan has no %s: its devices and the cluster say that", text,
                            *no);
        if (plan->words == PLAN_WORDS_MOST)
            return fail(err, ERR_USAGE, "%s: a plan of a job has at most %d words", text, PLAN_WORDS_MOST);
        plan->word[plan->words++] = word;
    }
    return OK;
}

/* A plan that is read; options point into its text. */
struct read_plan { struct plan_text plan; struct train_options options; };

/* Read the plan on so many devices.  *fits false: there is no such plan, and `err` says why. */
static enum error_code read_plan(struct read_plan *read, const struct planned_source *source, const char *text,
                                 int devices, bool *fits, struct error *err)
{
    struct plan_text *const plan = &read->plan;
    struct train_options *const options = &read->options;
    enum error_code e = cut_plan(plan, text, err);
    *fits = false;
    if (e) return e;
    plan->word[plan->words++] = "--cluster", plan->word[plan->words++] = source->cluster;
    e = source->parse(options, plan->words, plan->word, err);   /* one copy: how many devices it has */
    const int copy = e ? 1 : options->plan.mesh.devices;
    source->free(options);
    if (e) return e == ERR_PLAN ? OK : e;
    if (devices % copy != 0)
        return fail(err, ERR_PLAN, "a copy has %d devices, and %d are no whole number of copies", copy, devices), OK;
    snprintf(plan->copies, sizeof plan->copies, "%d", devices / copy);
    plan->word[plan->words++] = "--dp", plan->word[plan->words++] = plan->copies;
    e = source->parse(options, plan->words, plan->word, err);
    if (!e) return *fits = true, OK;
    source->free(options);
    return e == ERR_PLAN ? OK : e;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void slow_down(struct cluster *cluster, int percent)
{
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (cluster->flop_rate[t] > 0) cluster->flop_rate[t] = cluster->flop_rate[t] / 100 * percent;
}

static enum error_code planned_step_of(void *context, const char *plan, int devices, int percent,
                                       struct job_price *price, struct error *err)
{
    const struct planned_source *const source = context;
    struct read_plan read;
    struct plan_numbers numbers;
    struct error why = { OK, "" };
    *price = (struct job_price){ .fits = false };
    enum error_code e = read_plan(&read, source, plan, devices, &price->fits, &why);
    if (e) return fail(err, e, "%s", why.text);
    if (!price->fits) return snprintf(price->why, sizeof price->why, "%.*s", PRICE_WHY - 1, why.text), OK;
    slow_down(&read.options.cluster, percent);
    e = plan_numbers_of(&read.options, &numbers, err);
    source->free(&read.options);
    if (e) return e;
    price->step = (picoseconds)(1e12 * numbers.speed.seconds + 0.5);
    price->computing = numbers.computing;
    price->peak = numbers.peak;
    price->fits = source->memory == 0 || numbers.peak <= source->memory;
    if (!price->fits)
        snprintf(price->why, sizeof price->why, "a device needs %s of %s", size_format(numbers.peak).text,
                 memory_format(source->memory).text);
    return OK;
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

/* A plan and its tensors, on some devices of a range. */
struct mesh_of_job { struct read_plan read; struct outlined outline; int place[2 * JOB_DEVICES_MOST]; };

static enum error_code mesh_open(struct mesh_of_job *mesh, const struct planned_source *source, const char *plan,
                                 int devices, int first, int all, struct error *err)
{
    bool fits;
    enum error_code e = read_plan(&mesh->read, source, plan, devices, &fits, err);
    if (!e && !fits) e = ERR_PLAN;
    if (e) return e;
    e = outlined_open(&mesh->outline, &mesh->read.options.plan, FOR_DEVICES, -1, err);
    if (e) return source->free(&mesh->read.options), e;
    for (int d = 0; d < all; d++) mesh->place[d] = d >= first && d < first + devices ? d - first : -1;
    mesh->outline.collection.place = mesh->place;
    return OK;
}

static void mesh_close(struct mesh_of_job *mesh, const struct planned_source *source)
{
    outlined_close(&mesh->outline);
    source->free(&mesh->read.options);
}

static void sum_moves(struct job_move *move, const struct moves *moves, const struct planned_source *source, int all)
{
    const struct cluster *const c = &source->description;
    move->bytes = moves->bytes, move->most = 0;
    for (int r = 0; r < moves->ranks; r++) {
        const struct moved *const m = &moves->of[r];
        const uint64_t most = m->sent > m->received ? m->sent : m->received;
        move->most = most > move->most ? most : move->most;
    }
    const struct link *const link = &c->link[all <= planned_node(source, all) ? 0 : c->levels - 1];
    move->time = move->most > 0 ? link->latency + time_at_rate(move->most, link->rate) : 0;
}

static enum error_code planned_move_of(void *context, const char *plan, int from, int to, bool apart,
                                       struct job_move *move, struct error *err)
{
    const struct planned_source *const source = context;
    const int second = apart ? from : 0, ends = second + to > from ? second + to : from;
    struct mesh_of_job *const mesh = malloc(2 * sizeof *mesh);
    struct moves moves = { .cluster = NULL };
    if (mesh == NULL) return fail(err, ERR_MEMORY, "no memory for the moves of a job");
    enum error_code e = mesh_open(&mesh[0], source, plan, from, 0, ends, err);
    if (e) return free(mesh), e;
    e = mesh_open(&mesh[1], source, plan, to, second, ends, err);
    if (!e) {
        e = moves_open(&moves, ends, &source->description, err);
        if (!e) e = moves_between(&moves, &mesh[0].outline.collection, &mesh[1].outline.collection, err);
        if (!e) sum_moves(move, &moves, source, apart ? JOB_DEVICES_MOST : ends);
        moves_close(&moves);
        mesh_close(&mesh[1], source);
    }
    mesh_close(&mesh[0], source);
    free(mesh);
    return e;
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

int planned_node(const struct planned_source *source, int devices)
{
    const struct cluster *const c = &source->description;
    for (int l = 0; l < c->levels; l++)
        if (strcmp(c->link[l].level, "pair") != 0) return c->link[l].devices > 0 ? c->link[l].devices : devices;
    return devices;
}

enum error_code planned_open(struct planned_source *source, const char *cluster, planned_parse_fn *parse,
                             planned_free_fn *free_options, struct error *err)
{
    *source = (struct planned_source){ .cluster = cluster, .parse = parse, .free = free_options };
    const enum error_code e = cluster_find(&source->description, cluster, err);
    if (e) return fail_about(err, e, "--cluster");
    source->memory = source->description.memory;
    if (!job_size_is_whole(planned_node(source, 1)))
        return fail(err, ERR_PLAN, "--cluster %s: nodes of %d devices: blocks of jobs need a power of two",
                    source->description.name, planned_node(source, 1));
    return OK;
}

struct price_source planned_prices(struct planned_source *source)
{
    return (struct price_source){ source, planned_step_of, planned_move_of };
}
