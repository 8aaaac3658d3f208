/* learn_page.c -- `orrery learn LESSON --page FILE` and `--draw`: a run of the student's function, and the right one
 * beside it once the student's is right.
 *
 * learn.c calls learn_show_run.  The right run is that of the lesson's solution, where these sources have one; its text
 * is compiled and never shown.  ERR_FILE is for the page; other errors are those of a judge's run, and ERR_MEMORY.
 */
#include "emulated_devices/cli/course/course.h"
#include "emulated_devices/draw/page/page_html.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Run the solution until it has made the student's run.  right->any stays false where there is no solution. */
static enum error_code run_right(const struct folder *folder, const struct lesson *lesson,
                                 const struct judging *judging, struct trial_kept *right, struct error *err)
{
    char *text = NULL;
    bool python;
    struct score *score = malloc(sizeof *score);
    struct judging how = *judging;
    how.kept = right, how.first_failure = false, how.after = NULL;
    enum error_code e = score ? learn_find_solution(folder, lesson, &text, &python, err)
                              : fail(err, ERR_MEMORY, "no memory for a score");
    if (!e && text != NULL) e = judge_source(score, lesson, python, text, strlen(text), &how, err);
    if (right->failed) right->any = false;              /* these sources' solution is no right one */
    free(text), free(score);
    return e;
}

/* Write the page: the student's run alone, or the right one behind it.
 * failure: what the judge says of the first check that fails; NULL: all is right. */
static enum error_code write_learn_page(const char *path, const struct trial_kept *own, const struct trial_kept *right,
                                        const char *failure, struct error *err)
{
    struct film film[2], *const films[] = { &film[0], &film[1] };
    const bool both = right->any && failure == NULL;
    enum error_code e = kept_film(&film[0], own, "yours", own->failed && right->any ? right : NULL, err);
    if (failure != NULL) film_note(&film[0], "The right run is shown beside yours when yours is right.");
    else if (!both) film_note(&film[0], "The lesson's solution is not here, so only your run is shown.");
    if (failure != NULL && !own->failed) film_note(&film[0], "A check fails that this run passes: %s", failure);
    if (!e && both) {
        e = kept_film(&film[1], right, "right", NULL, err);
        if (!e) e = page_html_write(path, films, 2, err);
        film_close(&film[1]);
    } else if (!e) e = page_html_write(path, films, 1, err);
    film_close(&film[0]);
    return e;
}

static void print_run(const char *whose, const struct trial_kept *kept)
{
    printf("\n  %s: %s with %s\n\n", whose, kept->function, kept->label);
    print_indented(kept->drawing, 4);
}

enum error_code learn_show_run(const struct folder *folder, const struct lesson *lesson, const struct judging *how,
                               const char *failure, const char *path, bool draws, struct error *err)
{
    const struct trial_kept *own = how->kept;
    struct trial_kept *right = kept_open();
    if (right == NULL) return fail(err, ERR_MEMORY, "no memory for a run");
    if (!own->any) {
        kept_close(right);
        printf("\n  No run of devices to show: %s.\n", path ? "the page is not written" : "nothing is drawn");
        return OK;
    }
    kept_want(right, own);
    enum error_code e = run_right(folder, lesson, how, right, err);
    if (!e && draws && !own->failed) {                  /* a failed run is drawn with its failure */
        print_run("Yours", own);
        if (right->any && failure == NULL) print_run("Right", right);
    }
    if (!e && path != NULL) e = write_learn_page(path, own, right, failure, err);
    if (!e && path != NULL)
        printf("\n  %s shows %s with %s%s.\n", printable_path(path).text, own->function, own->label,
               right->any && failure == NULL ? ", and the right run beside it" : "");
    kept_close(right);
    return e;
}
