/* published.c -- `orrery bench published`: what papers printed, beside what this program computes for the same.
 * bench.c calls bench_published_topic().  Errors: ERR_USAGE of the words, ERR_CHECK if a claim does not hold,
 * ERR_FORMAT of a file of claims. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/bench/claims_table.h"
#include "emulated_devices/cli/bench/published_summary.h"
#include "emulated_devices/cli/train/train.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct asked {
    const char *folder, *measured, *only, *json, *draw;
    bool every, quiet;
};

static enum error_code published_parse(struct asked *asked, int argc, char **argv, bool *help, struct error *err)
{
    const struct option table[] = {
        { "--folder", "DIR", OPTION_STRING, &asked->folder,
          .help = "where published numbers are, in place of the program's own: files as those of golden/published" },
        { "--measured", "FILE", OPTION_STRING, &asked->measured,
          .help = "steps of your own in place of all, in the columns of vtrain-cluster.txt or of vTrain's files" },
        { "--only", "NAME", OPTION_STRING, &asked->only,
          .help = "one table alone: the name of its file in golden/published, such as megatron-core" },
        { "--every", NULL, OPTION_SWITCH, &asked->every, .help = "print every row, also of hundreds" },
        { "--json", "FILE", OPTION_STRING, &asked->json,
          .help = "every row as JSON; - for stdout, without the tables" },
        { "--draw", "FILE", OPTION_STRING, &asked->draw,
          .help = "a picture of all planned rows as SVG: predicted over measured" },
        { 0 }
    };
    return parse_command("bench published", "[options]",
                         "Compute what papers printed, and say by how many per cent it differs.\n"
                         "Exit status 3 if a difference is larger than the file of the numbers allows.",
                         argc - 3, argv + 3, table, help, err);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* Compute and show claims, and free them.  @param unlike  the first that do not hold. */
static enum error_code published_show(struct claims *claims, const struct asked *asked, cJSON *sections,
                                      struct published_summary *summary, struct error *unlike, struct error *err)
{
    enum error_code e = claims_compute(claims, &(struct claims_setting){ .every = asked->every,
                                                                           .plan = train_plan_words }, err);
    if (!e && !asked->quiet) claims_print(claims, asked->every);
    if (!e && sections) claims_add(claims, sections);
    if (!e) e = summary_add(summary, claims, err);
    if (!e && unlike->code == OK) claims_hold(claims, unlike);
    claims_free(claims);
    return e;
}

/* Nobody says how far steps of one's own may differ. */
static enum error_code find_measured(struct claims *claims, const struct asked *asked, struct error *err)
{
    enum error_code e = claims_find(claims, "vtrain-cluster", asked->folder, err);
    if (!e) e = claims_replace(claims, asked->measured, err);
    claims->musts = 0, claims->brief = false;
    claims->title = "Measured steps of your own", claims->source = asked->measured;
    return e;
}

static enum error_code published_compare(const struct asked *asked, cJSON *sections,
                                         struct published_summary *summary, struct error *unlike, struct error *err)
{
    static const char *const names[] = {
        "zero-bubble", "zero-memory", "activations", "llama3", "plan-2021", "plan-2022", "megatron-starts",
        "megatron-core-starts", "vtrain-node",
        "vtrain-cluster", "plan-orders", "dcp-masks", "modalities", "modalities-packed", "se-moe-fused",
        "se-moe-elastic", "megatron-core", "dgx-cloud", "nemo", "torchtitan", "nanotron", "kempner",
        "torchtitan-memory", "nanotron-memory", "kempner-memory", "goodput", "saves-bytes",
        "saves-hidden", "saves-gain" };
    struct claims claims;
    enum error_code e = OK;
    if (asked->measured) {
        e = find_measured(&claims, asked, err);
        return e ? e : published_show(&claims, asked, sections, summary, unlike, err);
    }
    if (asked->only) {
        e = claims_find(&claims, asked->only, asked->folder, err);
        return e ? e : published_show(&claims, asked, sections, summary, unlike, err);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && !e; i++) {
        e = claims_find(&claims, names[i], asked->folder, err);
        if (!e) e = published_show(&claims, asked, sections, summary, unlike, err);
    }
    return e;
}

enum error_code bench_published_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked asked = { .folder = NULL };
    struct error unlike = { 0 };
    struct published_summary summary = { .files = 0 };
    bool help;
    (void)status;
    enum error_code e = published_parse(&asked, argc, argv, &help, err);
    if (e || help) return e;
    asked.quiet = asked.json && strcmp(asked.json, "-") == 0;
    cJSON *root = asked.json ? document_start("orrery bench published") : NULL;
    e = published_compare(&asked, asked.json ? cJSON_AddArrayToObject(root, "sections") : NULL, &summary, &unlike,
                          err);
    if (!e && !asked.quiet) summary_print(&summary);
    if (!e && asked.json) summary_json(&summary, root);
    if (!e && asked.draw) e = fail_about(err, summary_draw(&summary, asked.draw, err), "--draw");
    if (!e && asked.json) e = json_write(asked.json, root, err);
    cJSON_Delete(root);
    summary_free(&summary);
    return e ? e : unlike.code ? fail(err, unlike.code, "%s", unlike.text) : OK;
}
