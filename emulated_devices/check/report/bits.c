/* bits.c -- runs the one-device model over a dump with exact sums, and compares bits after each operation.
 * cli/check_exact.c calls bits_check.  A tensor that differs is a finding, not an error; ERR_FORMAT is for a dump that
 * no bit can be compared with, ERR_FILE and ERR_MEMORY for reading the dump. */
#include "emulated_devices/check/report/bits.h"
#include "emulated_devices/check/report/sums.h"
#include "ref/golden/replay.h"
#include "ref/model/kinds.h"
#include "ref/numeric/convert.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *bits_finding_words(enum bits_finding finding)
{
    static const char *const words[] = {
        [BITS_SAME] = "has the bits of the rule", [BITS_DIFFER] = "has other bits than the rule",
        [BITS_COPIES] = "has copies with other bits", [BITS_MISFIT] = "does not fit",
        [BITS_NOT_JUDGED] = "cannot be judged" };
    return words[finding];
}

/* This is what the judge of one check knows. */
struct bits_judge {
    const struct golden *golden;
    const struct actual *actual;
    enum dtype dtype;
    struct bits_found *found;
    int room;                           /* tensors that found->all has memory for */
    enum error_code failed;             /* the first failure; nothing is judged after it */
    struct error *err;
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool is_number_name(const char *name)
{
    const char *const slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    static const char *const numbers[] = { "loss", "norm", "balance_loss", "z_loss" };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(last, numbers[i]) == 0) return true;
    return false;
}

/* A mixture's loss has a part of its routers, which devices add in fp64, device by device (docs/checking/exact.md). */
static bool number_rounds(const struct bits_judge *judge, const char *name)
{
    const size_t n = strlen(name);
    return judge->golden->config.mlp == MLP_MIXTURE && is_number_name(name) && n >= 4 &&
           strcmp(name + n - 4, "loss") == 0;
}

static struct bits_tensor *find_tensor(const struct bits_found *found, const char *name)
{
    for (int i = 0; i < found->count; i++)
        if (strcmp(found->all[i].name, name) == 0) return &found->all[i];
    return NULL;
}

/* The name of tensor k of a file, without the piece behind it. */
static void name_in_file(const struct actual_file *file, int k, char out[ACTUAL_OUR_NAME])
{
    const char *const name = file->st.entry[k].name;
    snprintf(out, ACTUAL_OUR_NAME, "%.*s", (int)strcspn(name, "#"), name);
}

/* Whether a tensor has the rows that experts compute.  Programs that compute all experts at once do not show them. */
static bool has_rows_of_experts(const struct bits_judge *judge, const char *name)
{
    static const char *const rows[] = { "mlp.up", "mlp.act", "experts.out" };
    const char *const at = strstr(name, "h.");
    int layer = -1, end = 0;
    if (at == NULL || sscanf(at, "h.%d.%n", &layer, &end) != 1 || layer < 0 || layer >= judge->golden->config.L ||
        layer_mlp(&judge->golden->config, layer) != MLP_MIXTURE)
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(at + end, rows[i]) == 0) return true;
    return false;
}

/* Whether the dump has a tensor of the same kind: of the same folder, and a parameter's if this is one. */
static bool has_kind(const struct bits_judge *judge, const char *name)
{
    const struct actual *const actual = judge->actual;
    const char *const end = strrchr(name, '/');
    const size_t folder = end ? (size_t)(end - name) + 1 : 0;
    char other[ACTUAL_OUR_NAME];
    for (int f = 0; f < actual->files && folder > 0; f++)
        for (int k = 0; k < actual->file[f].st.count; k++) {
            name_in_file(&actual->file[f], k, other);
            if (strncmp(name, other, folder) == 0 && strchr(other + folder, '/') == NULL &&
                param_is_name(name) == param_is_name(other) &&
                has_rows_of_experts(judge, name) == has_rows_of_experts(judge, other))
                return true;
        }
    return false;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

/* Finds the first rank that has an element; -1: none yet.  Pieces are gone when all have been seen. */
struct bits_holder { int64_t at; int rank; };

static void bits_hold(void *context, int group, const struct actual_piece *piece, int64_t at, int64_t length,
                      const double *values)
{
    struct bits_holder *const holder = context;
    (void)group, (void)values;
    if (holder->rank < 0 && at <= holder->at && holder->at < at + length) holder->rank = piece->file->rank;
}

/* Name the first rank that has element `at` of a tensor. */
static void name_holder(const struct bits_judge *judge, struct bits_tensor *tensor, double *whole)
{
    struct bits_holder holder = { .at = tensor->at, .rank = -1 };
    const struct assembly_watch watch = { .see = bits_hold, .context = &holder };
    struct assembly again;
    struct error err = { 0 };
    if (judge->actual->ranks < 2) return;
    if (assembly_make(&again, judge->actual, tensor->name, tensor->dim, whole, &watch, &err) || holder.rank < 0) return;
    assembly_rank(judge->actual, holder.rank, tensor->on, sizeof tensor->on);
}

static bool same_bits(double have, double want) { return have == want || (isnan(have) && isnan(want)); }

/* Why no bit of these pieces can be compared; NULL: all can. */
static const char *bits_unusable(const struct bits_judge *judge, const struct actual_pieces *pieces, char *out,
                                 size_t size)
{
    int rank[MESH_MOST_LISTED], exponent;
    for (int i = 0; i < pieces->count; i++) {
        const struct actual_piece *const p = &pieces->all[i];
        const int members = p->partial ? actual_members(judge->actual, p, rank) : 1;
        if (members > 1) {
            snprintf(out, size, "%d ranks have parts of a sum, each rounded: dump the finished sum", members);
            return out;
        }
        if (frexp(fabs(p->times), &exponent) != 0.5) {
            snprintf(out, size, "its numbers are multiplied by %g, which rounds: \"times\" must be a power of two",
                     p->times);
            return out;
        }
    }
    return NULL;
}

/* Read the dump's numbers of a tensor.  @return whether all are there; else the finding and the reason are set. */
static bool read_whole(struct bits_judge *judge, struct bits_tensor *tensor, double *whole)
{
    struct actual_pieces pieces;
    struct assembly all;
    struct error why = { 0 };
    char text[200];
    enum error_code e = actual_find(judge->actual, tensor->name, tensor->dim, &pieces, &why);
    if (!e) {
        const char *const unusable = bits_unusable(judge, &pieces, text, sizeof text);
        actual_pieces_free(&pieces);
        if (unusable) {
            tensor->finding = BITS_NOT_JUDGED;
            snprintf(tensor->why, sizeof tensor->why, "%s", unusable);
            return false;
        }
        e = assembly_make(&all, judge->actual, tensor->name, tensor->dim, whole, NULL, &why);
    }
    if (e && e != ERR_CHECK) {
        judge->failed = e, *judge->err = why;
        return false;
    }
    if (e || all.missing > 0) {
        tensor->finding = BITS_MISFIT;
        if (e) snprintf(tensor->why, sizeof tensor->why, "%.290s", why.text);
        else snprintf(tensor->why, sizeof tensor->why, "%lld of its elements are on no rank, the first is %lld",
                      (long long)all.missing, (long long)all.hole);
        return false;
    }
    if (all.copies.elements == 0) return true;
    tensor->finding = BITS_COPIES, tensor->differing = all.copies.elements, tensor->at = all.copies.worst;
    tensor->want = all.copies.value[0], tensor->have = all.copies.value[1];
    assembly_rank(judge->actual, all.copies.rank[1], tensor->on, sizeof tensor->on);
    return true;
}

/* The model's number i, rounded as files have it.  A finished sum is stored in fp32; a starting weight may also be
 * stored in the format of the computation. */
static double stored_number(struct tensor t, int64_t i, double scale)
{
    float rounded;
    if (t.dtype != EXACT) return tensor_get(t, i) / scale;
    tensor_convert(tensor_1d(&rounded, F32, 1),
                   tensor_1d((char *)t.data + (size_t)i * dtype_size(EXACT), EXACT, 1));
    return (double)rounded / scale;
}

/* A starting weight may be stored in the 16 bits that the model computes with. */
static bool is_start_rounded(const struct bits_judge *judge, const char *name, double have, double want)
{
    double room;
    struct tensor one = tensor_1d(&room, judge->dtype, 1);
    if (strncmp(name, "start/", 6) != 0) return false;
    tensor_set(one, 0, want);
    return have == tensor_get(one, 0);
}

/* Compare all elements, and give the model the dump's. */
static void hold_elements(const struct bits_judge *judge, struct bits_tensor *tensor, struct tensor t, double scale,
                          double *whole)
{
    const bool rounds = number_rounds(judge, tensor->name);
    int64_t differing = 0, first = -1;
    double want_first = 0;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        const double have = whole[i], want = stored_number(t, i, scale);
        if (same_bits(have, want) || is_start_rounded(judge, tensor->name, have, want)) continue;
        if (rounds && fabs(have - want) <= 0x1p-48 * fabs(want)) continue;
        if (differing++ == 0) first = i, want_first = want;
        tensor_set(t, i, have * scale);
    }
    /* The first rank's copy is in `whole`: where it is right, the copy of the rank that was named is wrong. */
    if (differing > 0) {
        tensor->finding = BITS_DIFFER, tensor->differing = differing, tensor->at = first;
        tensor->have = whole[first], tensor->want = want_first;
        name_holder(judge, tensor, whole);
    }
    if (tensor->finding == BITS_SAME) return;
    tensor->unit = sums_last_place(t.dtype == EXACT ? F32 : t.dtype, tensor->want * scale) - ilogb(scale);
    tensor->units = ldexp(tensor->have - tensor->want, -tensor->unit);
}

/* A tensor that the dump has not. */
static void note_absent(struct bits_judge *judge, const char *name)
{
    struct bits_found *const f = judge->found;
    if (safetensors_find(&judge->golden->file, name) == NULL || golden_is_input(name)) return;
    if (actual_leaves_out(judge->actual, name) || actual_declares(judge->actual, name)) f->declared++;
    else if (has_kind(judge, name) && f->missing++ == 0)
        snprintf(f->first_missing, sizeof f->first_missing, "%s", name);
}

static struct bits_tensor *new_tensor(struct bits_judge *judge, const char *name, struct tensor t)
{
    struct bits_found *const f = judge->found;
    if (f->count == judge->room) {
        const int room = judge->room * 2 + 64;
        struct bits_tensor *const more = realloc(f->all, (size_t)room * sizeof *more);
        if (more == NULL) {
            judge->failed = fail(judge->err, ERR_MEMORY, "no memory for %d tensors", room);
            return NULL;
        }
        f->all = more, judge->room = room;
    }
    struct bits_tensor *const one = &f->all[f->count++];
    *one = (struct bits_tensor){ .finding = BITS_SAME, .dim = { t.dim[0], t.ndim > 1 && t.dim[1] ? t.dim[1] : 1 } };
    snprintf(one->name, sizeof one->name, "%s", name);
    return one;
}

/* The model announces each tensor here.  Those of the first pass come again with each optimizer: what was found of them
 * then stands, and the model takes the dump's numbers again. */
static void bits_see(void *context, const char *name, struct tensor t, double scale)
{
    struct bits_judge *const judge = context;
    if (judge->failed) return;
    const bool again = find_tensor(judge->found, name) != NULL;
    if (!actual_has(judge->actual, name)) {
        if (!again) note_absent(judge, name);
        return;
    }
    double *const whole = malloc((size_t)tensor_count(t) * sizeof *whole + 1);
    struct bits_tensor *const one = whole ? new_tensor(judge, name, t) : NULL;
    if (whole == NULL) judge->failed = fail(judge->err, ERR_MEMORY, "no memory to hold %s to the rule", name);
    if (one && read_whole(judge, one, whole)) hold_elements(judge, one, t, scale, whole);
    if (one && again) judge->found->count--;
    free(whole);
    if (one && !judge->failed) actual_seen(judge->actual, name, tensor_count(t));
}

/* Steps of an optimizer are run if the dump has any of them. */
static bool bits_wants(void *context, const char *optimizer)
{
    const struct bits_judge *const judge = context;
    const size_t n = strlen(optimizer);
    for (int f = 0; f < judge->actual->files; f++)
        for (int k = 0; k < judge->actual->file[f].st.count; k++) {
            const char *const name = judge->actual->file[f].st.entry[k].name;
            if (strncmp(name, optimizer, n) == 0 && name[n] == '/') return true;
        }
    return false;
}

/* ---- the whole dump ---------------------------------------------------------------------------------------------- */

/* A pattern that is of no golden tensor has a slip in it. */
static enum error_code check_patterns(const struct golden *golden, const struct actual *actual, struct error *err)
{
    char pattern[ACTUAL_OUR_NAME];
    for (int which = 0; actual_declared(actual, which, pattern); which++) {
        bool any = false;
        for (int i = 0; i < golden->file.count && !any; i++)
            any = actual_pattern_is_of(pattern, golden->file.entry[i].name);
        if (!any) return fail(err, ERR_FORMAT, "not recorded: no golden tensor is called %s", printable(pattern).text);
    }
    return OK;
}

/* A dump with which no bit can be compared is refused, and the reason is named. */
static enum error_code check_usable(const struct golden *golden, const struct actual *actual, enum dtype dtype,
                                    struct error *err)
{
    const struct model_config *const c = &golden->config;
    if (actual->sums != DTYPE_COUNT)
        return fail(err, ERR_FORMAT, "the dump says that its sums are in %s: such sums round",
                    dtype_name(actual->sums));
    if (actual->begins > 0)
        return fail(err, ERR_FORMAT, "the dump is of a run that was resumed after step %lld: what it went on with has "
                    "no operation to compare with; dump a run from its start", (long long)actual->begins);
    if (actual->adapters.count > 0) return fail(err, ERR_FORMAT, "low-rank adapters have no exact sums");
    if (ops_of(dtype, SUMS_EXACT) == NULL)
        return fail(err, ERR_FORMAT, "there are no exact sums in %s, only in fp32, bf16 and fp16", dtype_name(dtype));
    if (LATENT(c)) return fail(err, ERR_FORMAT, "latents of %s have no exact sums", c->name);
    if (STREAMS(c) > 1) return fail(err, ERR_FORMAT, "parallel streams of %s have no exact sums", c->name);
    if (c->sinks) return fail(err, ERR_FORMAT, "sinks of %s have no exact sums", c->name);
    if (golden_balance_micros(golden) > 0)
        return fail(err, ERR_FORMAT, "a balance loss of each microbatch has no exact sum");
    return check_patterns(golden, actual, err);
}

/* The loss scale: by what gradients of the dump are multiplied, or what a single file says.  Fp32 and bf16 need none,
 * and a power of two changes no bit of theirs. */
static double loss_scale_of(const struct actual *actual, enum dtype dtype)
{
    int exponent;
    for (int i = 0; i < actual->entries; i++) {
        const cJSON *const times = cJSON_GetObjectItemCaseSensitive(actual->entry[i].layout, "times");
        if (strstr(actual->entry[i].stored->name, "grad/") == NULL || !cJSON_IsNumber(times)) continue;
        if (times->valuedouble > 0 && frexp(times->valuedouble, &exponent) == 0.5) return 1 / times->valuedouble;
    }
    if (actual->loss_scale > 0) return actual->loss_scale;
    return dtype == F16 && !actual->dump ? REPLAY_LOSS_SCALE : 1;
}

static bool is_kind_of_rule(const struct golden *golden, const char *name)
{
    char optimizer[32];
    for (const char *at = golden_next_optimizer(golden, NULL, optimizer); at;
         at = golden_next_optimizer(golden, at, optimizer))
        if (strncmp(name, optimizer, strlen(optimizer)) == 0 && name[strlen(optimizer)] == '/') return true;
    return strstr(name, "act/") || strstr(name, "grad/") || strncmp(name, "start/", 6) == 0 || is_number_name(name);
}

/* List what the dump has and nothing was compared with. */
static void note_unknown(struct bits_judge *judge)
{
    struct bits_found *const f = judge->found;
    char name[ACTUAL_OUR_NAME], before[ACTUAL_OUR_NAME] = "";
    for (int file = 0; file < judge->actual->files; file++)
        for (int k = 0; k < judge->actual->file[file].st.count; k++) {
            name_in_file(&judge->actual->file[file], k, name);
            if (strcmp(name, before) == 0 || !is_kind_of_rule(judge->golden, name) || find_tensor(f, name)) continue;
            const struct safetensors_entry *const input = safetensors_find(&judge->golden->file, name);
            if (input && golden_is_input(name)) continue;
            snprintf(before, sizeof before, "%s", name);
            if (f->unknown++ == 0) snprintf(f->first_unknown, sizeof f->first_unknown, "%.95s", name);
        }
}

static void count_findings(struct bits_found *found)
{
    found->first = -1;
    for (int i = found->count - 1; i >= 0; i--) {
        const struct bits_tensor *const t = &found->all[i];
        found->of[t->finding]++;
        found->numbers += is_number_name(t->name);
        if (t->finding != BITS_SAME && t->finding != BITS_NOT_JUDGED) found->first = i;
    }
}

enum error_code bits_check(const struct golden *golden, const struct actual *actual, enum dtype dtype,
                           struct bits_found *found, struct error *err)
{
    struct bits_judge judge = { .golden = golden, .actual = actual, .dtype = dtype, .found = found, .err = err };
    const struct replay_judge shown = { bits_see, bits_wants, &judge };
    *found = (struct bits_found){ .first = -1 };
    enum error_code e = check_usable(golden, actual, dtype, err);
    if (!e) e = replay_judged(golden, dtype, actual->exact, loss_scale_of(actual, dtype), &shown, err);
    if (!e) e = judge.failed;
    if (e) {
        bits_found_free(found);
        return e;
    }
    note_unknown(&judge);
    count_findings(found);
    return OK;
}

void bits_found_free(struct bits_found *found)
{
    free(found->all);
    *found = (struct bits_found){ 0 };
}
