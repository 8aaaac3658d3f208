/* report.c -- prints what serving has come to.  cli/train/serve.c calls.  Errors: ERR_FILE and ERR_MEMORY of the
 * answers' file, ERR_CHECK of a wrong token. */
#include "emulated_devices/serve/report.h"
#include "emulated_devices/plan/plan.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/text/generate.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { USUAL_RING = 3 };                /* parts of a window without --ring: schemes/data/stages/stage.h */

enum error_code serving_report_make(struct serving_report *report, struct error *err)
{
    const struct serving_record *const r = report->record;
    report->verdict = (struct verdict){ .first_wrong = -1 };
    for (int64_t i = 0; i < r->requests && report->job->check; i++)
        verdict_add(&report->verdict, &r->answer[i].verdict, report->job->requests->at[i].name);
    return serving_metrics_of(&report->metrics, r, report->job->requests, &report->job->limits, &report->target, err);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static double per_second(int64_t count, double seconds) { return seconds > 0 ? (double)count / seconds : 0; }

static void print_head(const struct serving_report *report)
{
    const struct plan *const p = report->job->plan;
    const struct serving_metrics *const m = &report->metrics;
    static const char *const sums_of_rule[] = { "", " with exact sums", " with exact sums of two slices" };
    char cp[24] = "", ep[24] = "";
    if (p->mesh.size[CP] > 1) snprintf(cp, sizeof cp, " x cp %d", p->mesh.size[CP]);
    if (p->ep > 1) snprintf(ep, sizeof ep, ", ep %d,", p->ep);
    say(stdout, 8, "model   %s, %s%s, on dp %d%s x tp %d x pp %d%s of %s", p->model.name, dtype_name(p->dtype),
        sums_of_rule[p->model.exact], p->mesh.size[DP], cp, p->mesh.size[TP], p->mesh.size[PP], ep,
        report->cluster);
    if (!report->numbers) say(stdout, 8, "        times alone: no number was computed");
    if (report->job->prompt_replicas > 0)
        say(stdout, 8, "        %d replica%s for prompts, %d for answers", report->job->prompt_replicas,
            plural(report->job->prompt_replicas), p->mesh.size[DP] - report->job->prompt_replicas);
    say(stdout, 8, "served  %lld request%s of %s", (long long)m->requests, plural(m->requests),
        printable_path(report->trace).text);
    say(stdout, 8, "        %lld token%s of prompts, %lld of answers", (long long)m->prompt_tokens,
        plural(m->prompt_tokens), (long long)m->tokens);
}

static void print_experts(const struct serving_report *report)
{
    const struct serving_job *const job = report->job;
    if (job->plan->ep <= 1) return;
    say(stdout, 8, "experts %s went to experts on other devices, and back; requests are %s",
        size_format((double)report->record->dispatched).text,
        job->placed ? "on replicas with experts that they probably need" : "dealt in turn");
}

static void print_cache(const struct serving_report *report)
{
    const struct serving_metrics *const m = &report->metrics;
    const struct serving_limits *const l = &report->job->limits;
    say(stdout, 8, "cache   %lld blocks of %lld tokens a replica, %s a device", (long long)l->blocks,
        (long long)l->block_tokens, size_format(report->record->replica[0].cache_bytes).text);
    say(stdout, 8, "        at most %lld used, %.1f %% on average; %lld preemption%s", (long long)m->most_blocks,
        100 * m->used, (long long)m->preemptions, plural(m->preemptions));
    say(stdout, 8, "        %lld token%s of prompts were found in it", (long long)m->shared_tokens,
        plural(m->shared_tokens));
    if (l->host_blocks > 0)
        say(stdout, 8, "host    %lld blocks a replica; %lld went there, %lld came back: %s of the devices that draw",
            (long long)l->host_blocks, (long long)m->outs, (long long)m->ins,
            size_format((double)m->host_bytes).text);
    say(stdout, 8, "steps   %lld iteration%s of %.1f tokens on average, %lld allowed", (long long)m->iterations,
        plural(m->iterations), per_second(m->computed, (double)m->iterations), (long long)l->step_tokens);
    if (l->ahead)
        say(stdout, 8, "        planned ahead: %lld token%s behind stop tokens thrown away", (long long)m->wasted,
            plural(m->wasted));
}

/* Sums of all replicas. */
static struct proposal_counts proposals_of(const struct serving_record *record)
{
    struct proposal_counts sum = { .proposed = 0 };
    for (int64_t r = 0; r < record->replicas; r++) {
        const struct proposal_counts *const c = &record->replica[r].proposals;
        sum.proposed += c->proposed, sum.tested += c->tested, sum.taken += c->taken;
        sum.expected += c->expected, sum.variance += c->variance;
        sum.tokens += c->tokens;
        for (int i = 0; i <= PROPOSALS_MOST; i++) sum.passes[i] += c->passes[i];
    }
    return sum;
}

/* Passes with proposals, and the tokens that they give on average if each proposal has the same chance. */
static int64_t proposal_passes(const struct proposal_counts *counts, double chance, double *tokens)
{
    int64_t passes = 0;
    double sum = 0;
    for (int i = 1; i <= PROPOSALS_MOST; i++)
        passes += counts->passes[i], sum += (double)counts->passes[i] * proposal_tokens(chance, i);
    *tokens = per_second(1, (double)passes) * sum;
    return passes;
}

void serving_proposals_print(const struct serving_job *job, const struct serving_record *record)
{
    const struct speculation *const how = &job->speculation;
    const struct proposal_counts c = proposals_of(record);
    if (how->most == 0) return;
    say(stdout, 8, "drafts  %lld proposed, up to %lld at a time, by %s", (long long)c.proposed, (long long)how->most,
        how->module ? "its own layer" : how->config ? how->config->name : "n-gram");
    say(stdout, 8, "        %lld tested, %lld taken; by the formula %.1f, deviation %.1f", (long long)c.tested,
        (long long)c.taken, c.expected, sqrt(c.variance));
    const double chance = per_second(c.taken, (double)c.tested);
    double alike;
    const int64_t passes = proposal_passes(&c, chance, &alike);
    say(stdout, 8, "        %.3f tokens a pass with proposals; %.3f if each is taken with %.1f %%",
        per_second(c.tokens, (double)passes), alike, 100 * chance);
}

/* The sums of all replicas, and the class that computes most tokens. */
static struct nano_counts nano_of(const struct serving_record *record, int *usual)
{
    struct nano_counts sum = { .passed = 0 };
    *usual = 0;
    for (int64_t r = 0; r < record->replicas; r++) {
        const struct nano_counts *const c = &record->replica[r].nano;
        for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) sum.engine[e] += c->engine[e];
        sum.passed += c->passed;
        for (int i = 0; i < NANO_CLASSES; i++) {
            if (sum.iterations[i] == 0) sum.cut[i] = c->cut[i];
            sum.iterations[i] += c->iterations[i];
        }
    }
    for (int i = 0; i < NANO_CLASSES; i++)
        if (ldexp((double)sum.iterations[i], i) > ldexp((double)sum.iterations[*usual], *usual)) *usual = i;
    return sum;
}

static double nano_alone(const struct nano_counts *counts)
{
    double sum = 0;
    for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) sum += counts->engine[e];
    return sum;
}

static int window_parts(const struct data_request *data) { return data->ring > 0 ? data->ring : USUAL_RING; }

static void print_window(const struct serving_report *report)
{
    const struct window_counts *const w = &report->record->replica[0].window;
    const struct data_request *const data = &report->job->plan->data;
    if (data->offload == 0) return;
    say(stdout, 8, "window  %d parts of the model on a device, weights of %s at most, as by the formula",
        window_parts(data), size_format((double)w->most).text);
    say(stdout, 8, "        %s read in %llu copies", size_format((double)w->read.bytes_read).text,
        (unsigned long long)w->read.reads);
}

static void print_nano(const struct serving_report *report)
{
    int usual;
    const struct nano_counts c = nano_of(report->record, &usual);
    const struct nano_cut *const cut = &c.cut[usual];
    if (!report->job->nano.cuts) return;
    say(stdout, 8, "nano    %d and %d parts of iterations of %lld to %lld tokens, %s first; shares %.1f %.1f %.1f",
        cut->batches[0], cut->batches[1], 1LL << usual, (2LL << usual) - 1, cut->rule.by_rows ? "rows" : "operations",
        cut->rule.share[0], cut->rule.share[1], cut->rule.share[2]);
    say(stdout, 8, "        layers computed for %s, read for %s, sent for %s",
        time_format(c.engine[OVERLAP_COMPUTE] / 1e12).text, time_format(c.engine[OVERLAP_MEMORY] / 1e12).text,
        time_format(c.engine[OVERLAP_NETWORK] / 1e12).text);
    say(stdout, 8, "        %s one after another, %s together: %.3f times as fast",
        time_format(nano_alone(&c) / 1e12).text, time_format(c.passed / 1e12).text,
        per_second(1, c.passed) * nano_alone(&c));
}

static void add_row(struct table *table, const char *what, const struct time_spread *spread)
{
    if (spread->count == 0) return;
    table_row(table, "%s\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g", what, spread->mean * 1e3, spread->p50 * 1e3,
              spread->p90 * 1e3, spread->p99 * 1e3, spread->most * 1e3);
}

static void print_times(const struct serving_metrics *metrics)
{
    struct table t = table_start("times", 1, "virtual time\tmean ms\tp50 ms\tp90 ms\tp99 ms\tmost ms");
    add_row(&t, "to first token", &metrics->first_token);
    add_row(&t, "per output token", &metrics->per_token);
    add_row(&t, "between two tokens", &metrics->gap);
    add_row(&t, "of a request", &metrics->latency);
    printf("\n");
    table_end(&t);
    printf("\n");
}

static void print_rates(const struct serving_report *report)
{
    const struct serving_metrics *const m = &report->metrics;
    const struct serving_target *const t = &report->target;
    say(stdout, 8, "rate    %.4g requests/s in %s of virtual time", per_second(m->requests, m->seconds),
        time_format(m->seconds).text);
    say(stdout, 8, "        %.4g tokens/s of answers, %.4g of prompts and answers", per_second(m->tokens, m->seconds),
        per_second(m->prompt_tokens + m->tokens, m->seconds));
    if (t->first_token == 0 && t->per_token == 0) return;
    say(stdout, 8, "target  %s%s%s%s%s", t->first_token > 0 ? "first token within " : "",
        t->first_token > 0 ? time_format(t->first_token).text : "",
        t->first_token > 0 && t->per_token > 0 ? ", " : "", t->per_token > 0 ? time_format(t->per_token).text : "",
        t->per_token > 0 ? " a token" : "");
    say(stdout, 8, "        met by %lld of %lld requests (%.1f %%): goodput %.4g requests/s", (long long)m->attained,
        (long long)m->requests, 100 * per_second(m->attained, (double)m->requests),
        per_second(m->attained, m->seconds));
}

/* A line says what was judged, the next what could not be, and how near the logits were. */
void verdict_print(const struct verdict *v, bool exact)
{
    char line[300];
    const char *const word = v->wrong > 0 ? "WRONG" : v->open > 0 ? "NOT ENOUGH" : "OK";
    snprintf(line, sizeof line, "%s: %lld of %lld tokens are those of the request alone on one device", word,
             (long long)v->right, (long long)v->tokens);
    say(stdout, 8, "check   %s", line);
    if (v->open > 0)
        say(stdout, 8, "        %lld cannot be judged: rounding could choose another; %lld of these are equal",
            (long long)v->open, (long long)v->open_equal);
    if (v->wrong > 0) say(stdout, 8, "        %lld wrong; first: %s", (long long)v->wrong, v->why);
    if (exact) say(stdout, 8, "        logits of right tokens have the reference's bits");
    else
        say(stdout, 8, "        logits are at most %.2e off; twins of the reference allow %.2e", v->farthest,
            v->bound);
    if (document_is_quiet()) document_verdict(line);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static const char *finish_word(enum finish finish) { return finish == FINISH_STOP ? "stop" : "length"; }

static void add_answer(cJSON *row, const struct serving_report *report, int64_t i)
{
    const struct serving_record *const r = report->record;
    const struct answer *const a = &r->answer[i];
    const int64_t *const time = r->time + r->first[i];
    const struct request *const asked = &report->job->requests->at[i];
    json_add(row, "id %s finish %s prompt_tokens %g tokens %g arrival %g first_token %g end %g preempted %g"
             " shared_tokens %g", asked->name, finish_word(a->finish), (double)asked->prompt.count,
             (double)a->tokens, (double)asked->arrival / 1e12, (double)time[0] / 1e12,
             (double)time[a->tokens - 1] / 1e12, (double)a->preempted, (double)a->shared);
    if (report->numbers)
        cJSON_AddItemToObject(row, "ids", cJSON_CreateIntArray(r->token + r->first[i], (int)a->tokens));
}

void verdict_add_json(cJSON *data, const struct verdict *v)
{
    json_add(cJSON_AddObjectToObject(data, "check"), "tokens %g right %g wrong %g cannot_be_judged %g farthest %g"
             " bound %g holds %hhd first_wrong %s", (double)v->tokens, (double)v->right, (double)v->wrong,
             (double)v->open, v->farthest, v->bound, v->wrong == 0 && v->open == 0, v->why);
}

static void add_proposals(cJSON *data, const struct serving_report *report)
{
    const struct speculation *const how = &report->job->speculation;
    const struct proposal_counts c = proposals_of(report->record);
    double alike;
    if (how->most == 0) return;
    const int64_t passes = proposal_passes(&c, per_second(c.taken, (double)c.tested), &alike);
    json_add(cJSON_AddObjectToObject(data, "proposals"), "by %s at_a_time %g take %s proposed %g tested %g taken %g"
             " expected %g deviation %g passes %g tokens %g tokens_per_pass_by_formula %g",
             how->config ? how->config->name : "ngram", (double)how->most,
             how->rule == RULE_RATIO ? "ratio" : "same", (double)c.proposed, (double)c.tested,
             (double)c.taken, c.expected, sqrt(c.variance), (double)passes, (double)c.tokens, alike);
}

static void add_window(cJSON *data, const struct serving_report *report)
{
    const struct window_counts *const w = &report->record->replica[0].window;
    const struct data_request *const asked = &report->job->plan->data;
    if (asked->offload == 0) return;
    json_add(cJSON_AddObjectToObject(data, "window"), "parts %d weight_bytes %g predicted_weight_bytes %g reads %g"
             " bytes_read %g", window_parts(asked), (double)w->most, (double)w->predicted,
             (double)w->read.reads, (double)w->read.bytes_read);
}

static void add_nano(cJSON *data, const struct serving_report *report)
{
    int usual;
    const struct nano_counts c = nano_of(report->record, &usual);
    if (!report->job->nano.cuts) return;
    cJSON *const nano = cJSON_AddObjectToObject(data, "nano");
    json_add(nano, "compute %g memory %g network %g together %g", c.engine[OVERLAP_COMPUTE] / 1e12,
             c.engine[OVERLAP_MEMORY] / 1e12, c.engine[OVERLAP_NETWORK] / 1e12, c.passed / 1e12);
    cJSON *const cuts = cJSON_AddArrayToObject(nano, "cuts");
    for (int i = 0; i < NANO_CLASSES; i++)
        if (c.iterations[i] > 0)
            json_add(json_row(cuts), "tokens %g iterations %g up_to_attention %d behind %d first_eighths %d"
                     " by_rows %hhd compute_share %g memory_share %g network_share %g", ldexp(1, i),
                     (double)c.iterations[i],
                     c.cut[i].batches[0], c.cut[i].batches[1], c.cut[i].first, c.cut[i].rule.by_rows,
                     c.cut[i].rule.share[0], c.cut[i].rule.share[1], c.cut[i].rule.share[2]);
}

static void add_data(const struct serving_report *report)
{
    cJSON *const data = document_data();
    const struct serving_metrics *const m = &report->metrics;
    const struct plan *const p = report->job->plan;
    if (data == NULL) return;
    if (!report->numbers) json_add(data, "numbers %hhd", false);
    json_add(data, "model %s dtype %s exact %hhd dp %d tp %d pp %d cluster %s requests %g prompt_tokens %g tokens %g"
             " seconds %g iterations %g computed_tokens %g preemptions %g shared_tokens %g", p->model.name,
             dtype_name(p->dtype), p->model.exact != SUMS_ROUND, p->mesh.size[DP], p->mesh.size[TP], p->mesh.size[PP],
             report->cluster, (double)m->requests, (double)m->prompt_tokens, (double)m->tokens, m->seconds,
             (double)m->iterations, (double)m->computed, (double)m->preemptions, (double)m->shared_tokens);
    json_add(data, "requests_per_second %g tokens_per_second %g attained %g cache_blocks %g block_tokens %g"
             " most_blocks %g cache_used %g cache_bytes %g swapped_out_blocks %g swapped_in_blocks %g"
             " host_bytes %g", per_second(m->requests, m->seconds),
             per_second(m->tokens, m->seconds), (double)m->attained, (double)m->blocks,
             (double)report->job->limits.block_tokens, (double)m->most_blocks, m->used,
             (double)report->record->replica[0].cache_bytes, (double)m->outs, (double)m->ins, (double)m->host_bytes);
    json_add(data, "cp %d ep %d prompt_replicas %d host_blocks %g", p->mesh.size[CP], p->ep > 1 ? p->ep : 1,
             report->job->prompt_replicas, (double)report->job->limits.host_blocks);
    if (p->ep > 1)
        json_add(data, "dispatched_bytes %g placed %hhd", (double)report->record->dispatched,
                 report->job->placed != NULL);
    if (report->job->limits.ahead) json_add(data, "wasted_tokens %g", (double)m->wasted);
    add_proposals(data, report);
    add_window(data, report);
    add_nano(data, report);
    if (report->job->check) verdict_add_json(data, &report->verdict);
    cJSON *const answers = cJSON_AddArrayToObject(data, "answers");
    for (int64_t i = 0; i < report->record->requests; i++) add_answer(json_row(answers), report, i);
}

void serving_report_print(const struct serving_report *report)
{
    print_head(report);
    print_experts(report);
    print_cache(report);
    serving_proposals_print(report->job, report->record);
    print_window(report);
    print_nano(report);
    print_times(&report->metrics);
    print_rates(report);
    if (report->job->check) verdict_print(&report->verdict, report->job->plan->model.exact);
    add_data(report);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* The text that an answer adds to its prompt, for free(); NULL: no memory, or a token that the tokenizer lacks. */
static char *text_of(const struct serving_report *report, int64_t i)
{
    const struct serving_record *const r = report->record;
    const struct token_ids *const prompt = &report->job->requests->at[i].prompt;
    struct text_stream all = { .tokenizer = report->tokenizer };
    struct error unread;
    char *text = NULL;
    size_t bytes;
    enum error_code e = OK;
    FILE *const out = open_memstream(&text, &bytes);
    for (int64_t k = 0; k < prompt->count && !e && out; k++) e = text_stream_add(&all, prompt->id[k], &unread);
    text_stream_show(&all, out);
    for (int64_t k = 0; k < r->answer[i].tokens && !e && out; k++)
        e = text_stream_add(&all, r->token[r->first[i] + k], &unread);
    if (out) text_stream_end(&all);
    text_stream_free(&all);
    if (out && fclose(out) == 0 && !e) return text;
    free(text);
    return NULL;
}

enum error_code serving_answers_write(const struct serving_report *report, const char *path, struct error *err)
{
    char *all = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&all, &bytes);
    bool ok = out != NULL;
    for (int64_t i = 0; i < report->record->requests && ok; i++) {
        cJSON *const row = cJSON_CreateObject();
        char *const words = text_of(report, i);
        add_answer(row, report, i);
        if (words) json_add(row, "text %s", words);
        char *const text = json_text(row, false);
        ok = text && fprintf(out, "%s\n", text) > 0;
        cJSON_free(text), cJSON_Delete(row);
        free(words);
    }
    ok = out && fclose(out) == 0 && ok;
    const enum error_code e = ok ? file_write_all(path, all, bytes, err)
                                 : fail(err, ERR_MEMORY, "no memory to write the answers");
    free(all);
    return e;
}

enum error_code verdict_holds(const struct verdict *v, bool exact, struct error *err)
{
    if (v->wrong > 0)
        return fail(err, ERR_CHECK, "%lld of %lld tokens are wrong; first: %s", (long long)v->wrong,
                    (long long)v->tokens, v->why);
    if (v->open == 0) return OK;
    return fail(err, ERR_CHECK, "NOT ENOUGH: %lld of %lld tokens cannot be judged%s", (long long)v->open,
                (long long)v->tokens, exact ? "" : "; --arithmetic exact judges all");
}

enum error_code serving_verdict(const struct serving_report *report, struct error *err)
{
    return report->job->check ? verdict_holds(&report->verdict, report->job->plan->model.exact, err) : OK;
}
