/* device.c -- what one device of a verifying job does: families of cases, one after the other; rank 0 speaks. */
#include "emulated_devices/cli/verify/verify.h"
#include "emulated_devices/verify/case.h"
#include "emulated_devices/verify/collectives.h"
#include "ref/io/json.h"
#include "ref/numeric/distance.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 32 };

struct job {
    struct comm *world;
    bool speaks, prints;                /* rank 0; and lines for people */
    cJSON *cases;
    struct verify_count count;
    struct { uint64_t key, hash; const char *schedule; } bits[MOST_KEYS];   /* of the mesh at hand: the first weights of each key */
    int keys;
    uint64_t resident;                  /* the weights of the last case of data schemes that offloads nothing */
};

/* ---- one case of training: three runs ---------------------------------------------------------------------------------- */

enum { FP64_TIED, FP64_UNTIED, FP32_TIED, BF16_UNTIED, FP16_UNTIED, RUNS };
static const char *const run_name[RUNS] = { "fp64 tied", "fp64 untied dropout", "fp32 tied", "bf16, fp32 gradients", "fp16, fp16 gradients" };

/* Where a family varies it. */
static const char *const recompute_of_run[RUNS] = { "none", "full", "selective", "none", "none" };

static struct plan variation(const struct plan *plan, int run)
{
    struct plan p = *plan;
    if (run == FP64_UNTIED) {
        p.model.tied = false;
        p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
    }
    if (run == FP32_TIED) p.dtype = F32;
    if (run == BF16_UNTIED) p.dtype = BF16;
    if (run == FP16_UNTIED) p.dtype = F16;
    if (run == FP16_UNTIED && !p.optimizer->forward_only) p.data.narrow_gradients = !p.optimizer->low_rank, p.loss_scale = 1024;
    if (run >= BF16_UNTIED) p.model.tied = false;
    if (p.recompute) p.recompute = recompute_of_run[run];
    return p;
}

struct found {
    int runs;                           /* with the 16-bit ones or without: who keeps what in which format is the data schemes' */
    struct outcome run[RUNS];
    const char *bits;                   /* "==", "other", or "-" where no other case must have the same */
    struct error verdict;
};

/* Schedules of one key end with the bits of the first of them on this mesh. */
static void compare_bits(struct job *j, const struct plan *p, struct found *f)
{
    const uint64_t hash = f->run[FP64_UNTIED].whole_hash;
    uint64_t key = 0;
    int i = 0;
    if (case_bits_key(p, &key, NULL) != OK || key == 0) return;
    while (i < j->keys && j->bits[i].key != key) i++;
    if (i == MOST_KEYS) return;
    if (i == j->keys) j->bits[j->keys].key = key, j->bits[j->keys].schedule = p->schedule, j->bits[j->keys++].hash = hash;
    f->bits = j->bits[i].hash == hash ? "==" : "other";
    if (j->bits[i].hash != hash && !f->verdict.code)
        fail(&f->verdict, ERR_CHECK, "weights have other bits than those of %s, which adds in the same order", j->bits[i].schedule);
}

/* Where numbers lie changes none of them. */
static void compare_offloaded(struct job *j, const struct plan *p, struct found *f)
{
    const uint64_t hash = f->run[FP64_UNTIED].whole_hash;
    if (p->data.offload == 0) {
        j->resident = hash;
        return;
    }
    f->bits = j->resident == hash ? "==" : "other";
    if (j->resident != hash && !f->verdict.code) fail(&f->verdict, ERR_CHECK, "weights have other bits than those of %s without offloading", p->data.scheme);
}

static double larger(double a, double b) { return exceeds(b, a) ? b : a; }

struct ratio_text { char text[16]; };

/* Three decimals where it matters, above 100 the size of it. */
static struct ratio_text ratio(double r)
{
    struct ratio_text t;
    snprintf(t.text, sizeof t.text, r < 100 ? "%.3f" : "%.0e", r);
    return t;
}

/* The worst of the runs in 16 bits, where there are such. */
static struct ratio_text narrow_ratio(const struct found *f)
{
    double worst = 0;
    for (int run = BF16_UNTIED; run < f->runs; run++) worst = larger(worst, comparison_ratio(&f->run[run].comparison));
    return f->runs > BF16_UNTIED ? ratio(worst) : (struct ratio_text){ "-" };
}

static void print_case(const struct plan *p, const char *scheme, const struct found *f)
{
    char mesh[64] = "one device", size[32];
    const struct outcome *a = &f->run[FP64_TIED], *b = &f->run[FP64_UNTIED], *c = &f->run[FP32_TIED];
    int used = 0;
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        if (p->mesh.size[axis] > 1)
            used += snprintf(mesh + used, sizeof mesh - (size_t)used, "%s%s=%d", used ? " " : "", axis_name(axis), p->mesh.size[axis]);
    snprintf(size, sizeof size, "M=%d v=%d", p->micros, p->chunks);
    bool traffic = true, memory = true;
    for (int run = 0; run < f->runs; run++) traffic = traffic && !f->run[run].traffic.code, memory = memory && !f->run[run].memory.code;
    printf("  %-14s %-19s %-7s %7.1e %5s %7.1e %5s %6s %-5s %-5s %-4s %s\n", mesh, scheme, size,
           larger(a->comparison.largest_error, b->comparison.largest_error), ratio(larger(comparison_ratio(&a->comparison), comparison_ratio(&b->comparison))).text,
           c->comparison.largest_error, ratio(comparison_ratio(&c->comparison)).text, narrow_ratio(f).text, traffic ? "==" : "other", memory ? "==" : "other", f->bits,
           f->verdict.code ? "FAILED" : "ok");
    if (f->verdict.code) printf("      %s\n", f->verdict.text);
    fflush(stdout);
}

static void add_worst(cJSON *to, const char *name, const struct worst *w)
{
    cJSON *o = cJSON_AddObjectToObject(to, name);
    cJSON_AddStringToObject(o, "tensor", w->tensor);
    cJSON_AddNumberToObject(o, "device", w->rank);
    cJSON_AddNumberToObject(o, "step", (double)w->step);
    cJSON_AddNumberToObject(o, "error", w->error);
    cJSON_AddNumberToObject(o, "bound", w->bound);
}

static void add_run(cJSON *list, const char *name, const struct outcome *o)
{
    cJSON *run = cJSON_CreateObject();
    cJSON_AddItemToArray(list, run);
    cJSON_AddStringToObject(run, "run", name);
    cJSON_AddNumberToObject(run, "compared", (double)o->comparison.compared);
    cJSON_AddNumberToObject(run, "largest_error", o->comparison.largest_error);
    cJSON_AddNumberToObject(run, "largest_ratio", comparison_ratio(&o->comparison));
    add_worst(run, "loss", &o->comparison.loss);
    add_worst(run, "gradients", &o->comparison.gradient);
    add_worst(run, "weights", &o->comparison.weight);
    cJSON_AddBoolToObject(run, "traffic_equals_formulas", o->traffic.code == OK);
    cJSON_AddBoolToObject(run, "memory_equals_formulas", o->memory.code == OK);
}

/* What every case has in common. */
static cJSON *begin_case(struct job *j, const char *family, const char *scheme, const struct error *verdict)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(j->cases, o);
    cJSON_AddStringToObject(o, "family", family);
    cJSON_AddStringToObject(o, "scheme", scheme);
    cJSON_AddNumberToObject(o, "devices", j->world->size);
    cJSON_AddBoolToObject(o, "passed", verdict->code == OK);
    if (verdict->code) cJSON_AddStringToObject(o, "why", verdict->text);
    j->count.cases++;
    j->count.passed += verdict->code == OK;
    return o;
}

static void record_case(struct job *j, const char *family, const char *scheme, const struct plan *p, const struct found *f)
{
    cJSON *o = begin_case(j, family, scheme, &f->verdict), *mesh = cJSON_AddObjectToObject(o, "mesh");
    for (int a = 0; a < AXIS_COUNT; a++) cJSON_AddNumberToObject(mesh, axis_name(a), p->mesh.size[a]);
    cJSON_AddNumberToObject(o, "micro", p->micros);
    cJSON_AddNumberToObject(o, "chunks", p->chunks);
    cJSON_AddStringToObject(o, "bits", f->bits);
    cJSON *runs = cJSON_AddArrayToObject(o, "runs");
    for (int run = 0; run < f->runs; run++) add_run(runs, run_name[run], &f->run[run]);
}

static void refuse_case(struct job *j, const char *family, const char *scheme, const struct error *why)
{
    j->count.refused++;
    if (!j->speaks) return;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(j->cases, o);
    cJSON_AddStringToObject(o, "family", family);
    cJSON_AddStringToObject(o, "scheme", scheme);
    cJSON_AddNumberToObject(o, "devices", j->world->size);
    cJSON_AddStringToObject(o, "refused", why->text);
}

enum { MOST_IN_16_BITS = 4 };           /* devices: on more, the same code takes longer */

/* Copies that train apart take no fp16, the last of the runs. */
static int runs_of(const char *family, const struct plan *p)
{
    if (strcmp(family, "data") != 0 || p->mesh.devices > MOST_IN_16_BITS) return BF16_UNTIED;
    return data_outer(&p->data).every > 0 ? FP16_UNTIED : RUNS;
}

static enum error_code run_case(struct job *j, const char *family, const char *scheme, const struct plan *plan, struct error *err)
{
    struct found f = { .bits = "-", .runs = runs_of(family, plan) };
    for (int run = 0; run < f.runs; run++) {
        const struct plan p = variation(plan, run);
        enum error_code e = case_run(&p, &f.run[run], err);
        if (e) return e;
        if (!f.verdict.code && f.run[run].verdict.code) fail(&f.verdict, ERR_CHECK, "%s: %.340s", run_name[run], f.run[run].verdict.text);
    }
    if (!j->speaks) return OK;
    if (strcmp(family, "pipeline") == 0) compare_bits(j, plan, &f);
    if (strcmp(family, "data") == 0) compare_offloaded(j, plan, &f);
    record_case(j, family, scheme, plan, &f);
    if (j->prints) print_case(plan, scheme, &f);
    return OK;
}

/* ---- families ------------------------------------------------------------------------------------------------------------ */

/* A mesh fits a family that splits its axis; one device fits all. */
static bool fits(const struct plan *p, enum axis axis) { return p->mesh.size[axis] > 1 || p->mesh.devices == 1; }

static enum error_code run_if_it_fits(struct job *j, const char *family, const char *scheme, struct plan p, struct error *err)
{
    struct error why;
    if (plan_check(&p, &why) == OK) return run_case(j, family, scheme, &p, err);
    refuse_case(j, family, scheme, &why);
    return OK;
}

/* A Llama on the same mesh and schemes. */
static enum error_code run_llama(struct job *j, const char *family, struct plan p, const char *scheme, struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s llama", scheme);
    case_take_llama(&p);
    return run_if_it_fits(j, family, name, p, err);
}

/* Every schedule, then layers placed by speed; a Llama under the first. */
static enum error_code run_pipeline(struct job *j, const struct plan *mesh, struct error *err)
{
    enum error_code e = OK;
    j->keys = 0;
    for (int i = 0; schedule_generator_at(i) && !e; i++) {
        struct plan p = *mesh;
        struct error why;
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &why) != OK) refuse_case(j, "pipeline", schedule_generator_at(i)->head.name, &why);
        else e = run_case(j, "pipeline", p.schedule, &p, err);
    }
    if (e || mesh->mesh.size[PP] == 1) return e;
    struct plan p = *mesh;
    case_take_speeds(&p);
    e = case_take_schedule(&p, schedule_generator_at(0)->head.name, err);
    if (!e) e = run_case(j, "pipeline", "by speed", &p, err);
    j->keys = 0;                        /* another model has other bits */
    p = *mesh;
    return e ? e : run_llama(j, "pipeline", p, p.schedule, err);
}

static enum error_code run_tensor(struct job *j, const struct plan *mesh, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; tensor_scheme_at(i) && !e; i++) {
        struct plan p = *mesh;
        p.tensor = tensor_scheme_at(i)->head.name;
        p.recompute = recompute_of_run[0];
        e = run_if_it_fits(j, "tensor", p.tensor, p, err);
        if (!e) e = run_llama(j, "tensor", p, p.tensor, err);
    }
    return e;
}

/* Weights and gradients as codes, in blocks that nothing divides by; where the mesh has nothing to quantise, no case. */
static enum error_code run_quantised(struct job *j, struct plan p, const char *scheme, int weights, int gradients, struct error *err)
{
    char name[64];
    p.data.quantise_weights = (struct block_format){ weights, 100 };
    p.data.quantise_gradients = (struct block_format){ gradients, 100 };
    snprintf(name, sizeof name, "%s int%d int%d", scheme, weights, gradients);
    return plan_check(&p, NULL) == OK ? run_case(j, "data", name, &p, err) : OK;
}

/* All numbers of devices that can share weights, gradients and optimizer state; on meshes with other axes, one choice. */
static enum error_code run_chains(struct job *j, const struct plan *mesh, struct error *err)
{
    const int P = mesh->mesh.size[DP];
    struct plan p = *mesh;
    enum error_code e = OK;
    p.data.scheme = "chain";
    for (int o = 1; o <= P && !e; o++)
        for (int g = 1; g <= o && !e; g++)
            for (int w = 1; w <= g && !e; w++) {
                char name[48];
                if (P % o != 0 || o % g != 0 || g % w != 0 || (P != mesh->mesh.devices && (w == g || g == o || w == 1))) continue;
                snprintf(name, sizeof name, "%d | %d | %d", w, g, o);
                p.data.shards[0] = w, p.data.shards[1] = g, p.data.shards[2] = o;
                e = run_if_it_fits(j, "data", name, p, err);
            }
    return e;
}

/* Optimizers that change what is reduced: whole gradients in the first and the third step, projected ones in the second; a Llama
 * with the one that does everything the other does. */
static enum error_code run_low_rank(struct job *j, const struct plan *mesh, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; optimizers[i] && !e && mesh->mesh.size[TP] == 1; i++) {
        struct plan p = *mesh;
        if (!optimizers[i]->low_rank) continue;
        case_take_low_rank(&p, optimizers[i]);
        e = run_if_it_fits(j, "data", optimizers[i]->name, p, err);
        if (!e && optimizers[i]->natural) e = run_llama(j, "data", p, optimizers[i]->name, err);
    }
    return e;
}

/* Everything on the slow tier, after the same scheme without: stepped by the device, and by device and host in turn. */
static enum error_code run_offload(struct job *j, struct plan p, struct error *err)
{
    enum error_code e = OK;
    p.data.offload = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER;
    p.data.offload_slice = 100;
    for (p.data.offload_stride = 1; p.data.offload_stride <= 3 && !e; p.data.offload_stride += 2) {
        char name[48];
        snprintf(name, sizeof name, "%s offload /%d", p.data.scheme, p.data.offload_stride);
        e = run_if_it_fits(j, "data", name, p, err);
    }
    return e;
}

/* Matrices in tiles, with and without recomputing; then everything on the slow tier, with the same bits; and a Llama. */
static enum error_code run_tiles(struct job *j, struct plan p, struct error *err)
{
    if (p.mesh.size[DP] == 1) return OK;
    p.data.tiles = 3;
    p.recompute = "none";
    enum error_code e = run_if_it_fits(j, "data", "tiles 3", p, err);
    p.data.offload = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER;
    p.data.offload_slice = 100;
    if (!e) e = run_if_it_fits(j, "data", "tiles 3 offload", p, err);
    p.data.offload = 0, p.data.tiles = 5;
    return e ? e : run_llama(j, "data", p, "tiles 5", err);
}

/* Without a backward pass: each copy takes both losses; or one of them, of weights in shards. */
static enum error_code run_mezo(struct job *j, const struct plan *mesh, struct error *err)
{
    static const struct { const char *name, *scheme; int sides; } forms[] = {
        { "mezo", "ddp", 1 }, { "mezo /2 zero3", "zero3", 2 },
    };
    enum error_code e = OK;
    for (int i = 0; i < 2 && !e; i++) {
        struct plan p = *mesh;
        if (p.mesh.size[DP] % forms[i].sides != 0) continue;
        p.data.scheme = forms[i].scheme;
        case_take_mezo(&p, forms[i].sides);
        e = run_if_it_fits(j, "data", forms[i].name, p, err);
    }
    return e;
}

/* Each scheme; those that ask for a group, or whose copies train apart, with groups of every size between one device and all. */
static enum error_code run_data(struct job *j, const struct plan *mesh, struct error *err)
{
    const int P = mesh->mesh.size[DP];
    enum error_code e = OK;
    for (int i = 0; data_scheme_at(i) && !e; i++) {
        struct plan p = *mesh;
        struct shards any;
        case_take_data(&p, data_scheme_at(i));
        if (data_shards(&any, &p.data, P, 0, NULL) == OK) {
            e = run_if_it_fits(j, "data", p.data.scheme, p, err);
            if (!e && strcmp(p.data.scheme, "zero3") == 0) e = run_offload(j, p, err);
            if (!e && strcmp(p.data.scheme, "zero3") == 0) e = run_tiles(j, p, err);
            if (!e && data_scheme_at(i)->outer.every == 0) e = run_llama(j, "data", p, p.data.scheme, err);
            if (!e) e = run_quantised(j, p, p.data.scheme, i % 2 ? 8 : 4, i % 2 ? 4 : 8, err);
            if (data_scheme_at(i)->outer.every == 0) continue;
        }
        for (int N = 2; N < P && !e; N++) {
            char name[48];
            p.data.group = N;
            if (data_shards(&any, &p.data, P, 0, NULL) != OK) continue;
            snprintf(name, sizeof name, "%s /%d", p.data.scheme, N);
            e = run_if_it_fits(j, "data", name, p, err);
            if (!e) e = run_quantised(j, p, name, 8, 4, err);
        }
    }
    if (!e) e = run_chains(j, mesh, err);
    if (!e) e = run_low_rank(j, mesh, err);
    return e ? e : run_mezo(j, mesh, err);
}

static const char *plural(int n) { return n == 1 ? "" : "s"; }

static enum error_code run_meshes(struct job *j, const char *family, enum axis axis,
                                  enum error_code (*run)(struct job *, const struct plan *, struct error *), struct error *err)
{
    const int P = j->world->size;
    enum error_code e = OK;
    if (j->prints)
        printf("\n%d device%s, %-*s %7s %5s %7s %5s %6s sent  mem   bits\n", P, plural(P), P > 9 ? 32 : 34 - (P > 1), family, "fp64",
               "ratio", "fp32", "ratio", "16-bit");
    for (int pp = 1; pp <= P; pp++)
        for (int dp = 1; dp * pp <= P; dp++) {
            if (P % (dp * pp) != 0 || e) continue;
            const struct plan p = case_plan(dp, P / (dp * pp), pp);
            if (fits(&p, axis)) e = run(j, &p, err);
        }
    return e;
}

static enum error_code verify_pipeline(struct job *j, struct error *err) { return run_meshes(j, "pipeline", PP, run_pipeline, err); }
static enum error_code verify_tensor(struct job *j, struct error *err) { return run_meshes(j, "tensor", TP, run_tensor, err); }
static enum error_code verify_data(struct job *j, struct error *err) { return run_meshes(j, "data", DP, run_data, err); }

/* ---- collectives --------------------------------------------------------------------------------------------------------- */

/* What has been found of one operation, for a line. */
struct tally { char names[400], refused[200]; int calls; bool failed; };

static void add_name(char *list, size_t size, const char *name)
{
    const size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? " " : "", name);
}

static void print_tally(enum operation op, const struct tally *t)
{
    char line[800];
    int used = snprintf(line, sizeof line, "%s, %d calls: %s", t->failed ? "FAILED" : "ok", t->calls, t->names);
    if (t->refused[0]) snprintf(line + used, sizeof line - (size_t)used, "; not for this group: %s", t->refused);
    printf("  %-15s ", operation_name(op));
    print_wrapped(stdout, 18, line);
    fflush(stdout);
}

static void record_algorithm(struct job *j, const struct algorithm *a, const struct algorithm_outcome *o, struct tally *t)
{
    char scheme[80];
    snprintf(scheme, sizeof scheme, "%s %s", operation_name(a->operation), a->name);
    if (o->refused) {
        struct error why;
        fail(&why, ERR_PLAN, "%s", o->refused);
        refuse_case(j, "collectives", scheme, &why);
        add_name(t->refused, sizeof t->refused, a->name);
        return;
    }
    cJSON *c = begin_case(j, "collectives", scheme, &o->verdict);
    cJSON_AddNumberToObject(c, "calls", o->calls);
    cJSON_AddNumberToObject(c, "elements", (double)o->elements);
    t->calls += o->calls;
    t->failed = t->failed || o->verdict.code != OK;
    add_name(t->names, sizeof t->names, a->name);
    if (j->prints && o->verdict.code) printf("      %s\n", o->verdict.text);
}

/* The members in reverse: who confuses devices with members fails. */
static enum error_code open_group(struct group *g, struct comm *world, struct error *err)
{
    int ranks[VERIFY_MOST_DEVICES];
    for (int i = 0; i < world->size; i++) ranks[i] = world->size - 1 - i;
    return comm_agree(world, group_of(g, world, ranks, world->size, TRAFFIC_OTHER, 0, err), err);
}

static enum error_code verify_collectives(struct job *j, struct error *err)
{
    struct group g;
    enum error_code e = open_group(&g, j->world, err);
    if (e) return e;
    const struct cluster *m = &j->world->device->clock.cluster;
    if (j->prints)
        printf("\n%d device%s of %s, collectives: exact results, messages, bytes and additions\n", j->world->size, plural(j->world->size), m->name);
    struct tally t = { .calls = 0 };
    for (int i = 0; algorithms[i] && !e; i++) {
        struct algorithm_outcome o;
        e = verify_algorithm(&g, algorithms[i], &o, err);
        if (!e && j->speaks) record_algorithm(j, algorithms[i], &o, &t);
        if (e || (algorithms[i + 1] && algorithms[i + 1]->operation == algorithms[i]->operation)) continue;
        if (j->prints) print_tally(algorithms[i]->operation, &t);       /* the last of its operation */
        t = (struct tally){ .calls = 0 };
    }
    group_close(&g);
    return e;
}

/* ---- a job --------------------------------------------------------------------------------------------------------------- */

static const struct { const char *name; enum error_code (*verify)(struct job *, struct error *); } families[] = {
    { "collectives", verify_collectives }, { "tensor", verify_tensor }, { "data", verify_data }, { "pipeline", verify_pipeline },
};
enum { FAMILIES = sizeof families / sizeof *families };
const char *const verify_families[] = { "collectives", "tensor", "data", "pipeline", NULL };

static enum error_code write_job(struct job *j, const char *path, struct error *err)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "devices", j->world->size);
    cJSON_AddNumberToObject(root, "run", j->count.cases);
    cJSON_AddNumberToObject(root, "passed", j->count.passed);
    cJSON_AddNumberToObject(root, "refused", j->count.refused);
    cJSON_AddItemReferenceToObject(root, "cases", j->cases);
    enum error_code e = json_write(path, root, err);
    cJSON_Delete(root);
    return e;
}

void verify_print_count(struct verify_count all)
{
    printf("%d case%s, %d passed", all.cases, all.cases == 1 ? "" : "s", all.passed);
    if (all.refused) printf("; %d not run, refused by their schemes", all.refused);
}

static void print_count(const struct job *j)
{
    printf("\n%d device%s: ", j->world->size, plural(j->world->size));
    verify_print_count(j->count);
    printf("\n");
    fflush(stdout);
}

static enum error_code run_families(struct job *j, const struct verify_options *o, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < FAMILIES && !e; i++)
        if (o->what == NULL || strcmp(o->what, families[i].name) == 0) e = families[i].verify(j, err);
    if (!e && j->prints) print_count(j);
    if (!e && j->speaks && o->json) e = write_job(j, o->json, err);
    if (!e && j->speaks && j->count.passed != j->count.cases)
        e = fail(err, ERR_CHECK, "on %d device%s, %d of %d cases did not hold", j->world->size, plural(j->world->size),
                 j->count.cases - j->count.passed, j->count.cases);
    return comm_agree(j->world, e, err);
}

enum error_code verify_device(struct comm *world, const void *asked, struct error *err)
{
    const struct verify_options *o = asked;
    struct job j = { .world = world, .speaks = world->rank == 0, .prints = world->rank == 0 && !o->quiet };
    if (world->size > VERIFY_MOST_DEVICES) return fail(err, ERR_PLAN, "verify: %d devices are too many; at most %d", world->size, VERIFY_MOST_DEVICES);
    j.cases = cJSON_CreateArray();
    const enum error_code e = run_families(&j, o, err);
    cJSON_Delete(j.cases);
    return e;
}
