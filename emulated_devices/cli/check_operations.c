#include "emulated_devices/cli/check_operations.h"
#include "ref/io/pair.h"
#include "ref/io/terminal.h"
#include <string.h>

const char *operation_verdict(enum single_verdict v)
{
    static const char *const words[] = { "right", "right if its steps store their results", "wrong",
                                         "cannot be recomputed: an input is missing",
                                         "not recomputed" };
    return words[v];
}

const char *operation_word(enum single_verdict v)
{
    static const char *const words[] = { "right", "by steps", "wrong", "lacks input",
                                         "not recomputed" };
    return words[v];
}

/* where: ranks and microbatches, or empty. */
static void print_wrong(FILE *out, const struct single_result *r, const char *where)
{
    char text[300];
    say(out, 12, "  wrong     %s, %s", r->name, r->made_by);
    say(out, 12, "            %s", single_describe(r, text, sizeof text));
    if (where[0]) say(out, 12, "            only on %s", where);
    const struct pair_text two = pair_text('g', 6, r->have, r->want);
    say(out, 12, "            largest error/bound %.3g, in row %lld, column %lld: %s, its inputs give %s",
            r->ratio, (long long)(r->worst / r->cols), (long long)(r->worst % r->cols), two.first, two.second);
}

/* Whether no result before it has the same maker. */
static bool is_news(const struct singles *s, int i)
{
    for (int k = 0; k < i; k++)
        if (s->all[k].verdict == SINGLE_UNKNOWN && strcmp(s->all[k].made_by, s->all[i].made_by) == 0) return false;
    return true;
}

void operations_print(FILE *out, const struct singles *s, bool all)
{
    enum { MOST = 10 };
    int wrong = 0;
    if (s->why_none[0]) {
        say(out, 12, "operations by themselves: %s", s->why_none);
        return;
    }
    say(out, 12, "operations by themselves, each recomputed from ACTUAL's own inputs%s:",
            s->golden_weights ? " and the golden file's weights" : "");
    for (int v = 0; v < SINGLE_VERDICTS; v++)
        if (s->found[v]) say(out, 12, "  %5d  %s", s->found[v], operation_verdict((enum single_verdict)v));
    if (s->count == 0) say(out, 12, "      0  ACTUAL has no result of one");
    for (int i = 0; i < s->count; i++)
        if (s->all[i].verdict == SINGLE_WRONG && (wrong++ < MOST || all))
            print_wrong(out, &s->all[i], s->where[i]);
    if (wrong > MOST && !all) say(out, 12, "  ...       %d more are wrong: --all", wrong - MOST);
    if (s->parts > 0)
        say(out, 12, "  parts     with --parts %d the first of them is right: if the program stores %d parts of a sum "
            "and then adds them, as of microbatches or along tp", s->parts, s->parts);
    for (int i = 0; i < s->count; i++)
        if (s->all[i].verdict == SINGLE_LACKS) {
            say(out, 12, "  missing   %s, for %s%s; such results have only the bounds of the whole pass",
                    s->all[i].lacks, s->all[i].name, s->found[SINGLE_LACKS] > 1 ? ", the first" : "");
            break;
        }
    for (int i = 0; i < s->count; i++)
        if (s->all[i].verdict == SINGLE_UNKNOWN && is_news(s, i))
            say(out, 12, "  not recomputed: %s", s->all[i].made_by);
}

static void add_wrong(cJSON *o, const struct single_result *r)
{
    char text[300];
    cJSON_AddStringToObject(o, "it_is", single_describe(r, text, sizeof text));
    cJSON_AddNumberToObject(o, "elements_wrong", (double)r->wrong);
    cJSON_AddNumberToObject(o, "rows_wrong", (double)r->wrong_rows);
    cJSON_AddNumberToObject(o, "columns_wrong", (double)r->wrong_cols);
    cJSON_AddNumberToObject(o, "row", (double)(r->worst / r->cols));
    cJSON_AddNumberToObject(o, "column", (double)(r->worst % r->cols));
    cJSON_AddNumberToObject(o, "has", r->have);
    cJSON_AddNumberToObject(o, "expected", r->want);
    cJSON_AddNumberToObject(o, "factor", r->factor);
}

void operations_json(cJSON *root, const struct singles *s)
{
    cJSON *list = cJSON_AddArrayToObject(root, "operations");
    if (s->why_none[0]) cJSON_AddStringToObject(root, "operations_not_recomputed", s->why_none);
    for (int i = 0; i < s->count; i++) {
        const struct single_result *r = &s->all[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        cJSON_AddStringToObject(o, "result", r->name);
        cJSON_AddStringToObject(o, "made_by", r->made_by);
        cJSON_AddStringToObject(o, "verdict", operation_verdict(r->verdict));
        if (r->verdict == SINGLE_LACKS) cJSON_AddStringToObject(o, "missing", r->lacks);
        else cJSON_AddNumberToObject(o, "ratio", r->ratio);
        if (r->verdict == SINGLE_WRONG) add_wrong(o, r);
        if (s->where[i][0]) cJSON_AddStringToObject(o, "only_on", s->where[i]);
    }
}
