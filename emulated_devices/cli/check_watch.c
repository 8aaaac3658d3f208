/* check_watch.c -- judges the steps of a running program, one after the other, as their files come.
 * cli/check.c calls with --watch; files come from check/report/arrivals.h.  A step is judged as a dump that has its
 * tensors only.  What cannot be judged is ERR_CHECK at the end, as what is wrong is. */
#include "emulated_devices/cli/check_watch.h"
#include "emulated_devices/check/report/arrivals.h"
#include "emulated_devices/launch/stopping.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <signal.h>
#include <string.h>
#include <time.h>

/* Counts of steps, and what is said at the end. */
struct watching {
    const struct check_options *options;
    const struct golden *golden;
    struct arrivals arrivals;
    FILE *out;
    cJSON *steps;                       /* for --json; NULL: nobody wants them */
    double began;                       /* to wait for the step: seconds of the clock */
    enum arrival_state before;          /* of the step, in the look before */
    bool ended_before;                  /* that look saw the program's end */
    bool said_begins;                   /* that the program was resumed */
    int right, open, wrong;             /* steps; open: not all of it could be judged */
    int declared;                       /* tensors of right steps that are declared as not recorded */
    struct error first_wrong, first_open;       /* with the step */
};

enum error_code check_watch_options(const struct check_options *options, struct error *err)
{
    const char *const flag = options->steps_given ? "--steps" : options->timeout_given ? "--timeout"
                           : options->go_on ? "--go-on" : NULL;
    if (options->watch && options->map)
        return fail(err, ERR_USAGE, "--map %s: what --watch reads says itself what is in it (docs/checking/dumps.md)",
                    printable_path(options->map).text);
    if (options->watch && options->first)
        return fail(err, ERR_USAGE, "--first does not go with --watch, which ends at the first wrong step and names "
                    "its first wrong tensor anyway");
    if (options->watch || flag == NULL) return OK;
    return fail(err, ERR_USAGE, "%s: says how --watch goes on, which is not given", flag);
}

static double watch_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Print a line of a step.  Whoever reads a pipe sees it at once. */
static void watch_say(struct watching *watching, int64_t step, const char *word, const char *text)
{
    say(watching->out, 22, "step %-4lld %-10s  %s", (long long)step, word, text);
    fflush(watching->out);
}

static void watch_open(struct watching *watching, int64_t step, const char *word, const char *text)
{
    if (watching->open++ == 0) fail(&watching->first_open, ERR_CHECK, "step %lld: %s", (long long)step, text);
    watch_say(watching, step, word, text);
}

/* Say a step that is wrong: how many tensors, the first, and what is known of it by itself. */
static void watch_wrong(struct watching *watching, int64_t step, const struct verdicts *verdicts, int wrong, int all,
                        const char *why)
{
    const struct check_result *const r = verdicts->whole;
    const struct single_result *const alone =
        verdicts->first_by_itself || r->first < 0 ? NULL : singles_find(verdicts->single, r->all[r->first].name);
    char words[300] = "", text[1000];
    if (alone && alone->verdict == SINGLE_WRONG) single_describe(alone, words, sizeof words);
    snprintf(text, sizeof text, "%d of %d tensors wrong: %s%s%s", wrong, all, why, words[0] ? ": " : "", words);
    if (watching->wrong++ == 0)
        fail(&watching->first_wrong, ERR_CHECK, "step %lld: %s%s%s", (long long)step, why, words[0] ? ": " : "", words);
    watch_say(watching, step, check_verdict_word(CHECK_FAILED), text);
}

/* Say how much of a step is right, and what is not. */
static void watch_tell(struct watching *watching, int64_t step, const struct verdicts *verdicts,
                       const struct actual *actual)
{
    const struct checked_kinds *const k = &verdicts->kinds;
    const int right = checked_kinds_of(k, JUDGED_RIGHT) + checked_kinds_of(k, JUDGED_LOOSELY),
              wrong = checked_kinds_of(k, JUDGED_WRONG) + k->beside,
              all = right + checked_kinds_of(k, JUDGED_WRONG) + checked_kinds_of(k, CANNOT_BE_JUDGED) + k->beside;
    const char *const word = check_verdict_word(verdicts->verdict);
    char text[sizeof verdicts->lacking.text + 96];
    struct error why = { 0 };
    check_conclude(verdicts, actual, &why);
    if (verdicts->verdict == CHECK_FAILED) {
        watch_wrong(watching, step, verdicts, wrong, all, why.text);
        return;
    }
    const int loose = checked_kinds_of(k, JUDGED_LOOSELY);
    const int n = snprintf(text, sizeof text, "%d of %d tensors right", right, all);
    if (loose > 0) snprintf(text + n, sizeof text - (size_t)n, ", %d only within bounds above %g", loose, LOOSE_BOUND);
    if (check_verdict_holds(verdicts->verdict)) {
        watching->right++, watching->declared += k->declared;
        if (k->declared > 0)
            snprintf(text + strlen(text), sizeof text - strlen(text), "; %d declared not recorded", k->declared);
        watch_say(watching, step, word, text);
        return;
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), ": %s", why.text);
    watch_open(watching, step, word, text);
}

static void watch_document(struct watching *watching, int64_t step, const struct verdicts *verdicts,
                           const struct actual *actual)
{
    if (watching->steps == NULL) return;
    cJSON *const document = check_document(verdicts, actual);
    cJSON_AddNumberToObject(document, "step", (double)step);
    cJSON_AddItemToArray(watching->steps, document);
}

/* Judge the step after those that are passed.  A step whose files do not fit together is not judged, and said. */
static enum error_code watch_judge(struct watching *watching, struct error *err)
{
    const struct check_options *const options = watching->options;
    const int64_t step = watching->arrivals.passed + 1;
    struct actual actual;
    struct check_judged judged;
    struct verdicts v;
    struct error why = { 0 };
    enum error_code e = arrivals_enter(&watching->arrivals, &actual, &why);
    const bool entered = !e;
    if (!e) e = check_find(options, watching->golden, &actual, step, &judged, &v, &why);
    if (e == ERR_MEMORY) {
        if (entered) actual_leave(&actual);
        return fail(err, e, "%s", why.text);
    }
    if (e) watch_open(watching, step, "not judged", why.text);
    const bool found = !e;
    e = OK;
    if (found) {
        e = check_write_page(options, &v, &actual, step, err);
        watch_tell(watching, step, &v, &actual);
        if (options->all || (v.verdict == CHECK_FAILED && !options->go_on))
            fprintf(watching->out, "\n"), check_print(watching->out, options, &v, &actual);
        watch_document(watching, step, &v, &actual);
        check_judged_free(&judged);
    }
    if (entered) actual_leave(&actual);
    return e;
}

/* A step that will not be whole any more. */
static void watch_give_up(struct watching *watching)
{
    const int64_t step = watching->arrivals.passed + 1;
    int ranks;
    char text[128];
    const int lacking = arrivals_lacking(&watching->arrivals, step, &ranks);
    snprintf(text, sizeof text, "rank %d of %d has no file of it, but of later steps or the end", lacking, ranks);
    watch_open(watching, step, "not judged", text);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* These words say what a step lacks whose files are not all there. */
struct watch_words { char text[400]; };
static struct watch_words watch_lacks(const struct watching *watching)
{
    const struct arrivals *const a = &watching->arrivals;
    struct watch_words words;
    int ranks;
    const long long step = (long long)a->passed + 1;
    const int lacking = arrivals_lacking(a, step, &ranks);
    const char *const more = a->crowded ? "; more files than may be open at once: raise `ulimit -n`" : "";
    if (!a->there) snprintf(words.text, sizeof words.text, "there is no folder %s", printable_path(a->folder).text);
    else if (ranks == 0)
        snprintf(words.text, sizeof words.text, "no file of step %lld is in %s%s", step,
                 printable_path(a->folder).text, more);
    else
        snprintf(words.text, sizeof words.text, "step %lld has no file of rank %d of %d%s", step, lacking, ranks,
                 more);
    return words;
}

/* The last line.  ended: why no more steps are judged; empty: the last was. */
static enum error_code watch_conclude(struct watching *watching, const char *ended, struct error *err)
{
    const struct arrivals *const a = &watching->arrivals;
    const int judged = watching->right + watching->wrong;
    char text[1000], steps[64] = "no step was judged", open[96] = "", files[96] = "";
    if (watching->open > 0) snprintf(open, sizeof open, ", %d not, or not all of it", watching->open);
    if (a->unusable + a->late > 0)
        snprintf(files, sizeof files, "; %d file%s could not be used", a->unusable + a->late,
                 plural(a->unusable + a->late));
    const bool enough = watching->open == 0 && ended[0] == 0 && files[0] == 0;
    const enum check_verdict verdict = watching->wrong ? CHECK_FAILED : !enough ? CHECK_NOT_ENOUGH
                                       : watching->declared > 0 ? CHECK_RECORDED : CHECK_OK;
    if (judged + watching->open > 0)
        snprintf(steps, sizeof steps, "%d of %d step%s right", watching->right, judged + watching->open,
                 plural(judged + watching->open));
    snprintf(text, sizeof text, "%s: %s%s%s%s%s", check_verdict_word(verdict), steps, open, files,
             ended[0] ? "; " : "", ended);
    fprintf(watching->out, "\n");
    say_verdict(watching->out, check_verdict_holds(verdict) ? GOOD_NEWS : BAD_NEWS, text);
    fflush(watching->out);
    if (check_verdict_holds(verdict)) return OK;
    if (watching->wrong) return fail(err, ERR_CHECK, "%s", watching->first_wrong.text);
    if (watching->open) return fail(err, ERR_CHECK, "%s", watching->first_open.text);
    return fail(err, ERR_CHECK, "not all was judged%s%s%s", files, ended[0] ? ": " : "", ended);
}

static enum error_code watch_write_json(const struct watching *watching, cJSON *root, enum error_code found,
                                        struct error *err)
{
    if (root == NULL) return OK;
    const char *const word = check_verdict_word(watching->wrong ? CHECK_FAILED : found ? CHECK_NOT_ENOUGH
                                                : watching->declared > 0 ? CHECK_RECORDED : CHECK_OK);
    cJSON_AddBoolToObject(root, "holds", found == OK);
    cJSON_AddStringToObject(root, "verdict", word);
    return fail_about(err, json_write(watching->options->json, root, err), "--json");
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static void watch_hear(void *context, const char *line)
{
    const struct watching *const w = context;
    say(w->out, 22, "file      %-10s  %s", "not used", line);
    fflush(w->out);
}

/* Nothing to do: sleep.  A signal wakes. */
static void watch_nap(void) { nanosleep(&(struct timespec){ .tv_nsec = 200 * 1000 * 1000 }, NULL); }

/* Whether the watch is over, and why; `ended` stays empty if all steps are judged. */
static bool is_over(const struct watching *watching, char *ended, size_t size)
{
    const struct arrivals *const a = &watching->arrivals;
    const struct check_options *const o = watching->options;
    const bool waits = arrivals_next(a) == ARRIVAL_WAITS;
    if (a->begins >= a->last)
        snprintf(ended, size, "the program begins after step %lld, so none of steps 1 to %lld is in its dump",
                 (long long)a->begins, (long long)a->last);
    if (a->passed >= a->last || (watching->wrong && !o->go_on)) return true;
    if (stopping_asked()) snprintf(ended, size, "ended by %s, before step %lld", stopping_name(stopping_asked()),
                                   (long long)a->passed + 1);
    else if (waits && watching->ended_before)
        snprintf(ended, size, "the program has ended, but %s", watch_lacks(watching).text);
    else if (waits && watch_clock() - watching->began > o->timeout)
        snprintf(ended, size, "nothing for %g s: %s", o->timeout, watch_lacks(watching).text);
    return ended[0] != 0;
}

/* A resumed program's first step is not step 1; said once. */
static void watch_say_begins(struct watching *watching)
{
    const long long begins = (long long)watching->arrivals.begins;
    if (begins == 0 || watching->said_begins) return;
    watching->said_begins = true;
    say(watching->out, 22, "resumed   after step %lld", begins);
    fflush(watching->out);
}

/* A look may miss a file that was there before another which it has seen.  The next look sees it.  So what is known of
 * a step counts when two looks agree. */
static enum error_code watch_steps(struct watching *watching, char *ended, size_t size, struct error *err)
{
    struct arrivals *const a = &watching->arrivals;
    enum error_code e = arrivals_look(a, err);
    watching->began = watch_clock();
    while (!e && !is_over(watching, ended, size)) {
        const enum arrival_state state = arrivals_next(a);
        const bool settled = state != ARRIVAL_WAITS && state == watching->before;
        watch_say_begins(watching);
        watching->before = state, watching->ended_before = a->ended;
        if (state == ARRIVAL_WAITS) watch_nap();
        if (settled) {
            if (state == ARRIVAL_IS_THERE) e = watch_judge(watching, err);
            else watch_give_up(watching);
            arrivals_pass(a);
            watching->before = ARRIVAL_WAITS, watching->began = watch_clock();
        }
        if (!e) e = arrivals_look(a, err);
    }
    return e;
}

/* A golden file must have every step, so that each can be judged by itself. */
static enum error_code watch_fits(const struct golden *golden, int64_t last, struct error *err)
{
    if (last > golden->steps)
        return fail(err, ERR_USAGE, "--steps %lld: the golden file has steps 1 to %lld", (long long)last,
                    (long long)golden->steps);
    if (last > 1 && !golden->every_step)
        return fail(err, ERR_PLAN, "--watch: the golden file has what is there after the last step only; make one with "
                    "every step, or watch --steps 1");
    if (last > 1 && golden->config.mixture.router.biased)
        return fail(err, ERR_PLAN, "--watch: corrections of routers follow from all steps before; check the whole dump "
                    "when it is there, or watch --steps 1");
    return OK;
}

enum error_code check_watch(const struct check_options *options, const struct golden *golden, struct error *err)
{
    const int64_t last = options->steps ? options->steps : golden->steps;
    const bool document = options->json != NULL, only = document && strcmp(options->json, "-") == 0;
    struct watching w = { .options = options, .golden = golden, .out = only ? stderr : stdout };
    char ended[500] = "";
    enum error_code e = watch_fits(golden, last, err);
    if (!e) e = fail_about(err, arrivals_open(&w.arrivals, golden, options->actual, last, err), "ACTUAL");
    if (e) return e;
    cJSON *const root = document ? document_start("orrery check --watch") : NULL;
    w.steps = root ? cJSON_AddArrayToObject(root, "steps") : NULL;
    w.arrivals.tell = watch_hear, w.arrivals.context = &w;
    stopping_listen(true);
    say(w.out, 8, "golden  %s", options->golden);
    say(w.out, 8, "watched %s, steps 1 to %lld, %g s for each\n", options->actual, (long long)last, options->timeout);
    fflush(w.out);
    e = watch_steps(&w, ended, sizeof ended, err);
    if (!e) {
        struct error found = { 0 };
        const enum error_code verdict = watch_conclude(&w, ended, &found);
        e = watch_write_json(&w, root, verdict, err);
        if (!e && verdict) e = fail(err, verdict, "%s", found.text);
    }
    cJSON_Delete(root);
    arrivals_close(&w.arrivals);
    return e;
}
