/* page.c -- `orrery page`: the page on which a run moves, or several runs on one axis of time.  main.c calls
 * command_page().  Errors: ERR_FILE or ERR_FORMAT of a run's file, ERR_USAGE of the words, ERR_MEMORY. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/draw/page/film_report.h"
#include "emulated_devices/draw/page/page_html.h"
#include "emulated_devices/draw/report/runs.h"
#include "ref/io/json.h"
#include "ref/io/output.h"

/* Read a run's film from a document that has one, or is one; else from what a report can be made of. */
static enum error_code page_read(struct film *film, const char *path, struct error *err)
{
    struct told_run run = { .root = NULL };
    cJSON *root = NULL;
    struct error unread;
    const bool has_film = json_read(path, &root, &unread) == OK && json_has(root, "film");
    enum error_code e = has_film ? OK : run_read(&run, path, err);
    if (!e) e = film_of_report(film, has_film ? root : run.root, path, err);
    cJSON_Delete(root);
    run_free(&run);
    return e;
}

/* Read each run, and write the page of all. */
static enum error_code page_of_runs(const char *const path[], int runs, const char *out, struct error *err)
{
    struct film film[PAGE_MOST_FILMS] = { { .kind = NULL } }, *films[PAGE_MOST_FILMS];
    enum error_code e = fail_about(err, output_probe(out, err), "--out");
    for (int i = 0; i < runs; i++) {
        films[i] = &film[i];
        if (!e) e = page_read(&film[i], path[i], err);
    }
    if (!e) e = fail_about(err, page_html_write(out, films, runs, err), "--out");
    for (int i = 0; i < runs; i++) film_close(&film[i]);
    return e;
}

enum error_code command_page(int argc, char **argv, int *status, struct error *err)
{
    const char *path[PAGE_MOST_FILMS] = { NULL }, *out = "page.html";
    struct option table[PAGE_MOST_FILMS + 2] = { { 0 } };
    bool help;
    int runs = 0;
    (void)status;
    for (int i = 0; i < PAGE_MOST_FILMS; i++)
        table[i] = (struct option){ "RUN", NULL, OPTION_STRING, &path[i], .required = i == 0,
                                    .help = i ? NULL : "what --json of train, infer or plan has written, best with "
                                                       "--film; or a log; at most 4 of them" };
    table[PAGE_MOST_FILMS] = (struct option){ "--out", "FILE", OPTION_STRING, &out,
                                              .help = "the page: one file of HTML" };
    enum error_code e = parse_command("page", "RUN... [--out FILE]",
                                      "A page on which runs move: what every device does when, messages, memory,\n"
                                      "losses, checks. Several runs share one axis of virtual time.",
                                      argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    while (runs < PAGE_MOST_FILMS && path[runs]) runs++;
    return page_of_runs(path, runs, out, err);
}
