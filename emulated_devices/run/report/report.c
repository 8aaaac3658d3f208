/* report.c -- what `orrery train` prints as a run starts, and of each step.  run/session.c, run/plan.c, run/between.c
 * and run/golden.c call these functions.  No function returns an error code. */
#include "ref/io/time_left.h"
#include "emulated_devices/run/report/report.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include "ref/model/attention_mask.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/optim/moments.h"
#include <math.h>
#include <stdio.h>

void report_packing(FILE *out, const struct packing *packing)
{
    const double S = (double)packing->S, room = (double)packing->sequences * S;
    say(out, 8,
        "packed  %lld samples in %lld sequences: %.1f %% padding, %.1f %% with a sample each; attention to %.1f %% of "
        "the pairs",
        (long long)packing->samples, (long long)packing->sequences, 100 * (1 - (double)packing->tokens / room),
        100 * (1 - (double)packing->tokens / ((double)packing->samples * S)),
                100 * packing->pairs / (room * (S + 1) / 2));
}

/* The mask, and how many pairs it leaves of those that causal attention has: of samples, or of whole sequences. */
static void report_mask(FILE *out, const struct plan *plan, const struct packing *packing)
{
    const struct attention_mask *const mask = &plan->model.mask, causal = { 0 };
    double seen = 0, all = 0;
    if (attention_mask_is_causal(mask)) return;
    for (int64_t i = 0; i < (packing ? packing->samples : 1); i++) {
        const int64_t n = packing ? packing->length[i] : plan->S;
        seen += attention_mask_pairs(mask, n), all += attention_mask_pairs(&causal, n);
    }
    say(out, 8, "mask    %s: tokens see %.1f %% of the pairs of causal %s", attention_mask_text(mask).text,
        100 * seen / (all > 0 ? all : 1), packing ? "samples" : "sequences");
}

/* The places of the first devices in the machine, in the order of ranks. */
static void report_slots(const struct train_record *record)
{
    enum { SHOWN = 16 };
    const int devices = record->options->plan.mesh.devices;
    char text[SHOWN * 8 + 8] = "";
    for (int r = 0, used = 0; r < devices && r < SHOWN; r++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%d", r ? " " : "", record->options->slots[r]);
    say(record->out, 8, "slots   devices 0, 1, .. are at places %s%s of the machine", text,
        devices > SHOWN ? " .." : "");
}

void report_mesh(const struct train_record *record)
{
    const struct plan *const p = &record->options->plan;
    const int threads = record->arithmetic.threads;
    char mesh[64] = "one device";
    int used = 0;
    for (int a = 0; a < AXIS_COUNT; a++)
        if (p->mesh.size[a] > 1)
            used += snprintf(mesh + used, sizeof mesh - (size_t)used, "%s%s=%d", used ? " x " : "", axis_name(a),
                             p->mesh.size[a]);
    if (p->sections) snprintf(mesh, sizeof mesh, "%d stage%s", p->stages, plural(p->stages));
    fprintf(record->out, "mesh    %s, %d device%s", mesh, p->mesh.devices, plural(p->mesh.devices));
    if (threads > 0) fprintf(record->out, ", %d thread%s each", threads, plural(threads));
    fprintf(record->out, "\n");
}

void report_shape(const struct train_record *record)
{
    const struct plan *p = &record->options->plan;
    static const char *const sums_of_rule[] = { "", ", exact sums", ", exact sums of two slices" };
    char slices[64] = "", room[64] = "";
    say(record->out, 8, "model   %s: L=%lld H=%lld D=%lld F=%lld V=%lld, %s parameters, %s%s", p->model.name,
            (long long)p->model.L, (long long)p->model.H, (long long)p->model.D, (long long)p->model.F,
            (long long)p->model.V, count_format((double)model_elements(&p->model)).text, dtype_name(p->dtype),
            p->model.exact ? sums_of_rule[p->model.exact] : !dtype_is_narrow(p->dtype) ? ""
                : p->data.narrow_gradients ? " with gradients, fp32 masters" : " with fp32 gradients and masters");
    report_mesh(record);
    if (record->options->slots) report_slots(record);
    for (int i = 0; p->sections && i < p->sections->count; i++) {
        char section[160];
        say(record->out, 8, "stage   %d: %s", p->sections->stage[i],
            section_describe(&p->sections->at[i], section, sizeof section));
    }
    if (plan_etp(p) > 1) snprintf(slices, sizeof slices, "each in %d slices, ", plan_etp(p));
    if (plan_ep(p) * plan_etp(p) > 1)
        say(record->out, 8,
            "experts %lld of each layer in %d part%s, %son neighbours; each part on %d device%s of a stage",
            (long long)p->model.mixture.E, plan_ep(p), plural(plan_ep(p)), slices, plan_expert_copies(p),
            plural(plan_expert_copies(p)));
    if (p->model.mlp == MLP_MIXTURE && (record->plan || record->options->load_word))
        say(record->out, 8, "load    %s: %s", record->options->load_word ? record->options->load_word : "even",
            p->load && p->load->kind != LOAD_EVEN ? "tokens go to these experts, whatever their routers prefer"
                                                  : "all experts get as many tokens, whatever their routers prefer");
    if (p->micro_tokens > 0)
        snprintf(room, sizeof room, ", with %lld tokens of each on a device", (long long)p->micro_tokens);
    say(record->out, 8, "batch   %s%lld sequences of %lld tokens, %s%d microbatch%s a copy%s",
        p->batches ? "up to " : "", (long long)plan_most_sequences(p), (long long)p->S,
        p->batches || p->micro_tokens ? "up to " : "", p->micros,
        p->micros == 1 ? "" : "es", room);
    if (!p->packed) report_mask(record->out, p, NULL);
}

/* Files of tokens, and whose sequences come how often. */
static void report_tokens(FILE *out, const struct corpus *corpus)
{
    int64_t tokens = 0;
    for (int i = 0; i < corpus->parts; i++) tokens += corpus->part[i].count;
    say(out, 8, "tokens  %lld, in %lld windows of %lld: each once, then all in another order", (long long)tokens,
        (long long)corpus->windows, (long long)corpus->S);
    for (int i = 0; i < corpus->groups; i++) {
        const struct corpus_group *g = &corpus->group[i];
        const struct token_file *const file = corpus->part[g->part].file;
        char share[48] = "", more[32] = "", documents[64] = "";
        if (corpus->groups > 1) snprintf(share, sizeof share, "%d of %d: ", g->share, corpus->period);
        if (g->parts > 1) snprintf(more, sizeof more, " and %d more", g->parts - 1);
        if (g->parts == 1 && file->documents)
            snprintf(documents, sizeof documents, ", %lld document%s of %d-bit tokens by its index",
                     (long long)file->documents, plural(file->documents), 8 * file->bytes);
        say(out, 8, "        %s%s%s, %lld windows%s", share, file->name, more, (long long)g->windows, documents);
    }
}

static void report_data(FILE *out, const struct train_data *data, const struct plan *plan)
{
    if (train_data_has_tokens(data)) report_tokens(out, &data->train);
    else say(out, 8, "text    %s, %lld bytes", printable_path(data->text.name).text, (long long)data->text.count);
    if (data->text.packing.samples) report_packing(out, &data->text.packing);
    if (data->text.packing.samples) report_mask(out, plan, &data->text.packing);
    if (plan->model.V > TEXT_VOCABULARY && (!train_data_has_tokens(data) || data->file[0].bytes == 1))
        say(out, 8, "warning model V=%lld, but the text is bytes, 0 to 255: --tokenizer PATH",
            (long long)plan->model.V);
}

/* A resumed run has the bits of one that was not stopped only with the same arithmetic. */
static void report_arithmetic(const struct train_record *record)
{
    char differs[400];
    checkpoint_compare_arithmetic(&record->options->saved, differs, sizeof differs);
    if (differs[0]) say(record->out, 8, "warning bits may differ from the saved run's: %s", differs);
}

/* Devices read what they keep, so copies along dp read the same bytes. */
static void report_reading(FILE *out, const struct checkpoint_reading *reading)
{
    say(out, 8, "read    %s, the boxes that the devices keep, from the files of %d device%s; for the checksums %s",
        size_format(reading->read).text, reading->files, plural(reading->files), size_format(reading->checked).text);
}

/* Packages differ in what their optimizers take by themselves, so a run that follows one says its numbers; so does a
 * run whose flags give the moments other numbers than the usual ones. */
static void report_step_numbers(FILE *out, const struct plan *plan)
{
    const struct hyperparameters *const h = &plan->hyper;
    bool usual = plan->optimizer->forward_only || h->as.profile == AS_ORRERY;
    const struct moments_text moments = moments_format(plan->optimizer, h);
    for (int i = 0; i < MOMENT_FLAGS; i++)
        usual = usual && moment_number(h, i) == moment_number(&plan->optimizer->usual, i);
    if (usual) return;
    say(out, 8, "steps   %s%s%s: %s%sweight decay %g, clip %g, learning rate %g", plan->optimizer->name,
        h->as.profile == AS_ORRERY ? "" : " as ", h->as.profile == AS_ORRERY ? "" : profile_names[h->as.profile],
        moments.text, moments.text[0] ? ", " : "", h->weight_decay, h->clip, h->lr);
}

void report_start(const struct train_record *record, const struct train_data *data)
{
    const struct train_options *o = record->options;
    report_shape(record);
    report_data(record->out, data, &o->plan);
    report_step_numbers(record->out, &o->plan);
    if (o->resume)
        say(record->out, 8, "resumed %s, at step %lld", printable_path(o->resume).text, (long long)o->saved.step);
    if (record->reading.files > 0) report_reading(record->out, &record->reading);
    if (o->resume) report_arithmetic(record);
    if (record->overridden[0]) say(record->out, 8, "differs from the saved run: %s", record->overridden);
    if (o->save && o->plan.model.mixture.z_coefficient > 0)
        say(record->out, 8, "warning the z loss (--z-loss) is ours: of the saved folder transformers computes the loss "
            "without it, whatever router_z_loss_coef says");
    if (o->check)
        say(record->out, 8,
            "check   against one device, with bounds measured by adding random rounding errors to a second "
            "one-device run");
    fprintf(record->out, "\n");
    fflush(record->out);
}

enum { BAR = 16 };                      /* columns of the progress bar: so a line has 80 */

/* " 38 % 12 min left" in place of the bar, by the pace of the last steps. */
static void tell_time_left(const struct train_record *record, int64_t i, int64_t last, char bar[BAR + 1])
{
    enum { PACE = 100 };
    double pace = 0;
    int64_t n = 0;
    for (; n < PACE && n <= i; n++) pace += record->seconds[i - n];
    const double part = (double)(i + 1) / (double)(last + 1);
    const struct time_left_text left = time_left_of(pace / (double)n * (double)(i + 1), part);
    char text[BAR + 8];
    if (left.text[0] == '\0') return;
    snprintf(text, sizeof text, "%.0f %% %s", floor(100 * part), left.text);
    snprintf(bar, BAR + 1, "%-*.*s", BAR, BAR, text);
}

/* On a terminal one line that is overwritten; otherwise about twenty lines in total. */
void report_step(const struct train_record *record, int64_t i)
{
    const int64_t last = record->options->steps - 1;
    const int64_t every = record->options->steps > 20 ? record->options->steps / 20 : 1;
    const bool live = record->out == stdout && on_terminal(), stays = i % every == 0 || i == last
        || record->step[i].skipped;
    if (!live && !stays) return;
    char bar[BAR + 1];
    for (int b = 0; b < BAR; b++) bar[b] = b * (last + 1) < BAR * (i + 1) ? '#' : '.';
    bar[BAR] = 0;
    if (live && !stays) tell_time_left(record, i, last, bar);
    const struct plan *p = &record->options->plan;
    const double tokens = (double)(plan_sequences_of(p, record->first_step + i) * p->S) / record->seconds[i];
    const bool slope = optimizer_draws(record->options->plan.optimizer);
    fprintf(record->out, "%sstep %5lld/%lld  %s  loss %8.5f  ", live ? "\r" : "",
            (long long)(record->first_step + i + 1),
            (long long)(record->first_step + last + 1 + record->options->later_steps), bar, record->step[i].loss);
    if (!p->optimizer->infers)
        fprintf(record->out, "%s %7.4f  ", slope ? "slope" : "norm",
                slope ? record->step[i].slope : record->step[i].norm);
    fprintf(record->out, "%6s tokens/s", count_format(tokens).text);
    if (record->step[i].skipped)
        fprintf(record->out, "  skipped: overflow at loss scale %g", record->step[i].loss_scale);
    if (!live || stays) fprintf(record->out, "\n");
    fflush(record->out);
}

void report_evaluation(const struct train_record *record, int64_t step, double loss)
{
    const bool live = record->out == stdout && on_terminal();
    fprintf(record->out, "%sheld-out text, after step %lld  loss %8.5f\n", live ? "\n" : "", (long long)step, loss);
    fflush(record->out);
}
