/* check_operations.c -- prints and writes as JSON what a check says of each single operation.  cli/check.c calls
 * after the operations are recomputed.  Inputs are the verdicts in struct singles.  No function reports errors. */
#include "emulated_devices/cli/check_operations.h"
#include "ref/io/pair.h"
#include "ref/io/terminal.h"
#include <string.h>

const char *operation_verdict(enum single_verdict verdict)
{
    static const char *const words[] = { "right", "right if its steps store their results", "wrong",
                                         "cannot be recomputed: an input is missing",
                                         "not recomputed" };
    return words[verdict];
}

const char *operation_word(enum single_verdict verdict)
{
    static const char *const words[] = { "right", "by steps", "wrong", "lacks input",
                                         "not recomputed" };
    return words[verdict];
}

void operations_print_wrong(FILE *out, const struct single_result *result, const char *where)
{
    char text[300];
    say(out, 12, "  wrong     %s, %s", result->name, result->made_by);
    say(out, 12, "            %s", single_describe(result, text, sizeof text));
    if (where[0]) say(out, 12, "            only on %s", where);
    const struct pair_text two = pair_text('g', 6, result->have, result->want);
    say(out, 12, "            largest error/bound %.3g, in row %lld, column %lld: %s, its inputs give %s",
            result->ratio, (long long)(result->worst / result->cols), (long long)(result->worst % result->cols),
            two.first, two.second);
}

/* Whether no result before it has the same maker. */
static bool is_news(const struct singles *singles, int i)
{
    for (int k = 0; k < i; k++)
        if (singles->all[k].verdict == SINGLE_UNKNOWN && strcmp(singles->all[k].made_by, singles->all[i].made_by) == 0)
            return false;
    return true;
}

void operations_print(FILE *out, const struct singles *singles, bool all)
{
    enum { MOST = 10 };
    int wrong = 0;
    if (singles->why_none[0]) {
        say(out, 12, "operations by themselves: %s", singles->why_none);
        return;
    }
    say(out, 12, "operations by themselves, each recomputed from ACTUAL's own inputs%s:",
            singles->golden_weights ? " and the golden file's weights" : "");
    for (int v = 0; v < SINGLE_VERDICTS; v++)
        if (singles->found[v]) say(out, 12, "  %5d  %s", singles->found[v], operation_verdict((enum single_verdict)v));
    if (singles->count == 0) say(out, 12, "      0  ACTUAL has no result of one");
    for (int i = 0; i < singles->count; i++)
        if (singles->all[i].verdict == SINGLE_WRONG && (wrong++ < MOST || all))
            operations_print_wrong(out, &singles->all[i], singles->where[i]);
    if (wrong > MOST && !all) say(out, 12, "  ...       %d more are wrong: --all", wrong - MOST);
    if (singles->parts > 0)
        say(out, 12, "  parts     with --parts %d the first of them is right: if the program stores %d parts of a sum "
            "and then adds them, as of microbatches or along tp", singles->parts, singles->parts);
    for (int i = 0; i < singles->count; i++)
        if (singles->all[i].verdict == SINGLE_LACKS) {
            say(out, 12, "  missing   %s, for %s%s; such results have only the bounds of the whole pass",
                    singles->all[i].lacks, singles->all[i].name, singles->found[SINGLE_LACKS] > 1 ? ", the first" : "");
            break;
        }
    for (int i = 0; i < singles->count; i++)
        if (singles->all[i].verdict == SINGLE_UNKNOWN && is_news(singles, i))
            say(out, 12, "  not recomputed: %s", singles->all[i].made_by);
}

static void add_wrong(cJSON *o, const struct single_result *result)
{
    char text[300];
    cJSON_AddStringToObject(o, "it_is", single_describe(result, text, sizeof text));
    cJSON_AddNumberToObject(o, "elements_wrong", (double)result->wrong);
    cJSON_AddNumberToObject(o, "rows_wrong", (double)result->wrong_rows);
    cJSON_AddNumberToObject(o, "columns_wrong", (double)result->wrong_cols);
    cJSON_AddNumberToObject(o, "row", (double)(result->worst / result->cols));
    cJSON_AddNumberToObject(o, "column", (double)(result->worst % result->cols));
    cJSON_AddNumberToObject(o, "has", result->have);
    cJSON_AddNumberToObject(o, "expected", result->want);
    cJSON_AddNumberToObject(o, "factor", result->factor);
}

void operations_json(cJSON *root, const struct singles *singles)
{
    cJSON *list = cJSON_AddArrayToObject(root, "operations");
    if (singles->why_none[0]) cJSON_AddStringToObject(root, "operations_not_recomputed", singles->why_none);
    for (int i = 0; i < singles->count; i++) {
        const struct single_result *r = &singles->all[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        cJSON_AddStringToObject(o, "result", r->name);
        cJSON_AddStringToObject(o, "made_by", r->made_by);
        cJSON_AddStringToObject(o, "verdict", operation_verdict(r->verdict));
        if (r->verdict == SINGLE_LACKS) cJSON_AddStringToObject(o, "missing", r->lacks);
        else cJSON_AddNumberToObject(o, "ratio", r->ratio);
        if (r->verdict == SINGLE_WRONG) add_wrong(o, r);
        if (singles->where[i][0]) cJSON_AddStringToObject(o, "only_on", singles->where[i]);
    }
}
