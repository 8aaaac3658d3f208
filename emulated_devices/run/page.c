/* page.c -- makes the film of a run or a plan, and writes the page of --page.  run/session.c calls page_finish on all
 * ranks together, run/plan.c calls page_of_plan.  Errors: ERR_FILE, ERR_MEMORY, ERR_COMM; ERR_USAGE of a plan with too
 * many devices.  After an error there is no page. */
#include "emulated_devices/run/page.h"
#include "emulated_devices/device/trace.h"
#include "emulated_devices/draw/page/page_html.h"
#include "emulated_devices/run/report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RED = 64 };                 /* devices whose wrong tensor is listed */

bool page_is_asked(const struct train_options *options)
{
    return options->page || options->film || options->live != LIVE_OFF;
}

/* Words with a value, and one without, that say where results go. */
static int words_skipped(const char *word)
{
    static const char *const with_value[] = { "--page", "--page-steps", "--json", "--live", NULL };
    for (int i = 0; with_value[i]; i++) {
        const size_t length = strlen(with_value[i]);
        if (strcmp(word, with_value[i]) == 0) return 2;
        if (strncmp(word, with_value[i], length) == 0 && word[length] == '=') return 1;
    }
    return strcmp(word, "--film") == 0 || strcmp(word, "--quiet") == 0;
}

const char *page_title(const struct train_options *options, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "orrery %s", options->command);
    for (int i = 0; i < options->argc && used < size;) {
        const int skipped = words_skipped(options->argv[i]);
        if (skipped == 0) used += (size_t)snprintf(out + used, size - used, " %s", options->argv[i]);
        i += skipped ? skipped : 1;
    }
    return out;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* The first failure, once for each device that has it wrong. */
static void add_first(struct film *film, const struct comparison *comparison, const struct plan *plan)
{
    const struct worst *const f = &comparison->first;
    const struct evidence *const on = &comparison->where.on;
    char name[PARAM_NAME + 64], place[160], evidence[400], scale[160];
    snprintf(name, sizeof name, "%s%s%s, step %lld", comparison->number ? "" : comparison->first_kind,
             comparison->number ? "" : " ", f->tensor, (long long)f->step);
    snprintf(evidence, sizeof evidence,
             "first to differ in order of execution; wrong on %s; %lld of %lld comparisons do not hold",
             comparison->number || plan->mesh.devices == 1 ? "all devices"
             : diagnose_place(place, sizeof place, &plan->mesh, on), (long long)comparison->wrong,
             (long long)comparison->compared);
    struct film_check c = { .tensor = name, .device = f->rank, .error = f->error, .bound = f->bound,
                            .evidence = evidence,
                            .diagnosis = diagnose_scale(scale, sizeof scale, &plan->mesh, plan->micros, on) };
    if (c.diagnosis[0] == '\0') c.diagnosis = comparison->from[0] ? comparison->from : NULL;
    film_check(film, c);
    for (int d = 0, listed = 0; d < plan->mesh.devices && !comparison->number && listed < MOST_RED; d++) {
        if (d == f->rank || !devices_have(&on->failing, d)) continue;
        c.device = d, c.error = c.bound = NAN, listed++;
        film_check(film, c);
    }
}

/* The worst of each kind.  What only follows from the first failure is listed, too. */
static void add_checks(struct film *film, const struct train_record *record)
{
    const struct comparison *const c = &record->comparison;
    const struct worst *w;
    const char *kind;
    char name[PARAM_NAME + 64];
    if (record->options->check == NULL) return;
    if (c->failed) add_first(film, c, &record->options->plan);
    for (int i = 0; (w = comparison_kind(c, i, &kind)) != NULL; i++) {
        if (w->tensor[0] == '\0') continue;
        snprintf(name, sizeof name, "%s: %s, step %lld", kind, w->tensor, (long long)w->step);
        film_check(film, (struct film_check){ .tensor = name, .device = w->rank, .holds = w->ratio <= 1,
                                              .error = w->error, .bound = w->bound,
                                              .evidence = "the largest of its kind, by error over bound" });
    }
    film_note(film, "%lld tensors compared with %s, %lld are wrong", (long long)c->compared, record->truth,
              (long long)c->wrong);
    if (c->unjudged > 0) film_note(film, "%lld tensors could not be judged", (long long)c->unjudged);
}

void page_add_results(struct film *film, const struct train_record *record)
{
    for (int64_t i = 0; i < record->steps && record->has_numbers; i++) film_loss(film, record->step[i].loss);
    add_checks(film, record);
}

/* The page and the film for the report, of a film that is complete.  Rank 0. */
static enum error_code write_film(struct film *film, struct train_record *record, struct error *err)
{
    const struct train_options *const o = record->options;
    struct film *const films[] = { film };
    enum error_code e = o->page ? fail_about(err, page_html_write(o->page, films, 1, err), "--page") : OK;
    if (!e && o->film && (record->film = film_json(film)) == NULL) e = fail(err, ERR_MEMORY, "no memory for the film");
    return e;
}

enum error_code page_finish(struct comm *comm, const cJSON *part, struct train_record *record, struct live *live,
                            bool ends, struct error *err)
{
    const struct train_options *const o = record->options;
    struct film_run run;
    char title[FILM_TEXT];
    film_run_open(&run, "run", page_title(o, title, sizeof title), &o->plan.mesh);
    enum error_code e = film_run_gather(comm, part, &run, err);
    if (!e && comm->rank == 0) {
        if (record->steps > o->page_steps)
            film_note(&run.film, "steps 1 to %d of %lld; losses of all (--page-steps)", o->page_steps,
                      (long long)record->steps);
        page_add_results(&run.film, record);
        if (live) live_show(live, page_data((struct film *const[]){ &run.film }, 1));
        if (ends) e = write_film(&run.film, record, err);
    }
    film_run_close(&run);
    return comm_agree(comm, e, err);
}

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

/* The traces of a plan's devices, and their film. */
struct plan_filmed {
    struct trace *trace;                /* [devices] of the mesh */
    cJSON **part;                       /* [devices] of those that ran: the last one counts */
};

static enum error_code film_begin(struct trainer *trainer, void *context, struct error *err)
{
    struct plan_filmed *const filmed = context;
    struct trace *const trace = &filmed->trace[trainer->comm->rank];
    (void)err;
    trace_free(trace);
    trace->layers = (int)trainer->plan.model.L;
    trainer->device->clock.trace = trace;
    return OK;
}

static enum error_code film_after(struct trainer *trainer, void *context, struct error *err)
{
    struct plan_filmed *const filmed = context;
    const int rank = trainer->comm->rank;
    const int64_t now = trainer->device->clock.now;
    trainer->device->clock.trace = NULL;
    cJSON_Delete(filmed->part[rank]);
    filmed->part[rank] = film_part(trainer, &filmed->trace[rank], &now, 1);
    trace_free(&filmed->trace[rank]);
    return filmed->part[rank] ? OK : fail(err, ERR_MEMORY, "no memory for device %d's part of a film", rank);
}

static enum error_code too_many(int devices, struct error *err)
{
    return fail(err, ERR_USAGE, "--page: %d devices run, and a page can show %d", devices, FILM_RUN_DEVICES);
}

enum error_code page_check_plan(const struct train_options *options, struct error *err)
{
    const int devices = options->plan.mesh.devices;
    if (page_is_asked(options) && options->unfolded && devices > FILM_RUN_DEVICES) return too_many(devices, err);
    return options->page ? fail_about(err, output_probe(options->page, err), "--page") : OK;
}

static enum error_code film_plan(struct film_run *run, const struct train_record *record, struct plan_filmed *filmed,
                                 struct error *err)
{
    const struct train_options *const o = record->options;
    const int devices = o->plan.mesh.devices;
    struct plan p = o->plan;
    struct dry_run folded;
    int ran = 0;
    train_set_rates(&p.hyper, o, 0);
    enum error_code e = dry_run(&p, o->steps < o->page_steps ? o->steps : o->page_steps,
                                o->unfolded || devices <= FILM_RUN_DEVICES, NULL, film_begin, film_after, filmed,
                                &folded, err);
    for (int d = 0; d < devices && !e; d++) ran += filmed->part[d] != NULL;
    if (!e && ran > FILM_RUN_DEVICES) e = too_many(ran, err);
    for (int d = 0; d < devices && !e; d++)
        if (filmed->part[d]) e = film_run_take(run, filmed->part[d], err);
    film_run_end(run);
    if (ran < devices)
        film_note(&run->film, "%d of %d devices are drawn; each of the others does what one of them does", ran,
                  devices);
    if (cluster_replays(&o->cluster))
        film_note(&run->film, "times are those before messages that share links, or hinder computing, slow each other");
    return e;
}

/* Where the same plan has sliders: the address of `make wasm`'s page has the words, each blank as a plus. */
static void note_sliders(struct film *film, const char *title)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    const char *const words = strstr(title, "--");
    char address[FILM_TEXT] = "";
    size_t used = 0;
    for (const char *at = words ? words : ""; *at && used + 4 < sizeof address; at++) {
        if (strchr(plain, *at)) address[used++] = *at;
        else if (*at == ' ') address[used++] = '+';
        else used += (size_t)snprintf(address + used, sizeof address - used, "%%%02X", (unsigned char)*at);
    }
    film_note(film, "with sliders: make wasm, then build/wasm/plan.html#plan=%s (docs/plans/browser.md)", address);
}

enum error_code page_of_plan(struct train_record *record, struct error *err)
{
    const struct train_options *const o = record->options;
    const size_t devices = (size_t)o->plan.mesh.devices;
    struct plan_filmed filmed = { calloc(devices, sizeof *filmed.trace), calloc(devices, sizeof *filmed.part) };
    struct film_run run;
    char title[FILM_TEXT];
    film_run_open(&run, "plan", page_title(o, title, sizeof title), &o->plan.mesh);
    enum error_code e = filmed.trace && filmed.part ? OK : fail(err, ERR_MEMORY, "no memory for a film");
    if (!e) e = film_plan(&run, record, &filmed, err);
    if (o->page) note_sliders(&run.film, title);
    if (!e) e = write_film(&run.film, record, err);
    for (size_t d = 0; d < devices && filmed.trace && filmed.part; d++)
        trace_free(&filmed.trace[d]), cJSON_Delete(filmed.part[d]);
    free(filmed.trace), free(filmed.part);
    film_run_close(&run);
    return e;
}
