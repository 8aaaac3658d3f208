/* config_rotary.c -- reads and writes rotary positions in a config.json.
 *
 * transformers 4 writes "rope_theta" and "rope_scaling", an object or null; its kind is in "type", from 4.43 on in
 * "rope_type".  transformers 5 writes both into "rope_parameters"; in a model with different types of layers, one
 * object for each type.  We write the older form: all versions read it.  config_decoder.c and families/deepseek_v2.c
 * call these functions.  ERR_FORMAT names the key of rotary positions that does not fit.
 */
#include "ref/model/config_json/config_json.h"
#include "ref/exact/scalars.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one object -------------------------------------------------------------------------------------------------- */

struct rope_object {
    const char *rope_type, *type;
    struct rotary r;
    double mscale, mscale_all_dim;      /* of YaRN; 0: not in the file */
    bool truncate;
    double part;                        /* of a head, which is turned; 0: not in the file */
    const cJSON *shorter, *longer;      /* of LongRoPE */
};

#define ROPE_TO(name, kind, field) KEY_TO(name, kind, struct rope_object, field)

/* A kind must have its own numbers and none of the other kinds; then come the keys of all kinds. */
enum { FACTOR, LOW, HIGH, ORIGINAL, FAST, SLOW, ENLARGED, MSCALE, MSCALE_ALL, TRUNCATE, SHORT, LONG, ROPE_NUMBERS };
static const struct config_key rope_keys[] = {
    [FACTOR] = ROPE_TO("factor", KEY_REAL, r.factor),
    [LOW] = ROPE_TO("low_freq_factor", KEY_REAL, r.low_frequency),
    [HIGH] = ROPE_TO("high_freq_factor", KEY_REAL, r.high_frequency),
    [ORIGINAL] = ROPE_TO("original_max_position_embeddings", KEY_SIZE_OR_NULL, r.original_positions),
    [FAST] = ROPE_TO("beta_fast", KEY_REAL, r.high_frequency),
    [SLOW] = ROPE_TO("beta_slow", KEY_REAL, r.low_frequency),
    [ENLARGED] = ROPE_TO("attention_factor", KEY_REAL, r.enlarged),
    [MSCALE] = ROPE_TO("mscale", KEY_REAL, mscale),
    [MSCALE_ALL] = ROPE_TO("mscale_all_dim", KEY_REAL, mscale_all_dim),
    [TRUNCATE] = ROPE_TO("truncate", KEY_FLAG, truncate),
    [SHORT] = ROPE_TO("short_factor", KEY_LIST, shorter),
    [LONG] = ROPE_TO("long_factor", KEY_LIST, longer),
    ROPE_TO("rope_type", KEY_STRING, rope_type),
    ROPE_TO("type", KEY_STRING, type),
    ROPE_TO("rope_theta", KEY_REAL, r.theta),
    ROPE_TO("partial_rotary_factor", KEY_REAL_OR_NULL, part),
    { .name = NULL },
};

static const struct rope_kind {
    const char *name;
    enum rotary_scaling scaling;
    unsigned numbers, may;      /* sets of rope_keys: its own numbers, and those that it may have */
} kinds[] = {
#define ROPE_KEY(key) (1u << (key))
    { "default", SCALING_NONE, 0, 0 }, { "linear", SCALING_LINEAR, ROPE_KEY(FACTOR), 0 },
    { "llama3", SCALING_LLAMA3, ROPE_KEY(FACTOR) | ROPE_KEY(LOW) | ROPE_KEY(HIGH), ROPE_KEY(ORIGINAL) },
    { "dynamic", SCALING_DYNAMIC, ROPE_KEY(FACTOR), 0 },
    { "yarn", SCALING_YARN, ROPE_KEY(FACTOR),
      ROPE_KEY(ORIGINAL) | ROPE_KEY(FAST) | ROPE_KEY(SLOW) | ROPE_KEY(ENLARGED) | ROPE_KEY(MSCALE) |
          ROPE_KEY(MSCALE_ALL) | ROPE_KEY(TRUNCATE) },
    { "longrope", SCALING_LONG, ROPE_KEY(SHORT) | ROPE_KEY(LONG),
      ROPE_KEY(FACTOR) | ROPE_KEY(ORIGINAL) | ROPE_KEY(ENLARGED) },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *config_rotary_name_of(enum rotary_scaling scaling)
{
    int i = 0;
    while (kinds[i].scaling != scaling) i++;
    return kinds[i].name;
}

static enum error_code check_numbers(const struct rope_kind *kind, const cJSON *object, const char *where,
                                     struct error *err)
{
    for (int i = 0; i < ROPE_NUMBERS; i++) {
        const bool own = kind->numbers & ROPE_KEY(i), there = json_has(object, rope_keys[i].name);
        if (there != own && !(kind->may & ROPE_KEY(i)))
            return fail(err, ERR_FORMAT, "%s: \"%s\" is %s; rotary positions of type \"%s\" have %s", where,
                        rope_keys[i].name, own ? "missing" : "there", kind->name, own ? "one" : "none");
    }
    return OK;
}

/* The kind is checked before the keys: for an unsupported kind the error names the kind, not its keys. */
static enum error_code find_kind(const struct rope_kind **kind, const cJSON *object, const char *where,
                                 struct error *err)
{
    const char *type = "default", *older;
    const bool newer = json_has(object, "rope_type");
    enum error_code e = OK;
    if (newer || json_has(object, "type")) e = json_string(object, where, newer ? "rope_type" : "type", &type, err);
    else if (!json_has(object, "rope_theta")) e = json_string(object, where, "rope_type", &type, err);
    if (!e && newer && json_has(object, "type")) {
        e = json_string(object, where, "type", &older, err);
        if (!e && strcmp(older, type) != 0)
            return fail(err, ERR_FORMAT, "%s: rope_type is \"%.40s\", type is \"%.40s\"; they must be the same", where,
                        printable(type).text, printable(older).text);
    }
    if (e) return e;
    for (*kind = kinds; *kind < kinds + KINDS; ++*kind)
        if (strcmp((*kind)->name, type) == 0) return OK;
    return fail(err, ERR_FORMAT,
                "%s: rotary positions are of type \"%.60s\"; Orrery has only \"default\", \"linear\", \"llama3\", "
                "\"dynamic\", \"yarn\" and \"longrope\"", where, printable(type).text);
}

/* A Phi-3's older files call LongRoPE by other names. */
static enum error_code long_by_any_name(const struct rope_kind **kind, const cJSON *object, const char *where,
                                        struct error *err)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(object, json_has(object, "rope_type") ? "rope_type" : "type");
    const char *word = cJSON_IsString(type) ? type->valuestring : "default";
    for (*kind = kinds; *kind < kinds + KINDS; ++*kind) {
        const bool plain = strcmp(word, "default") == 0, longer = strcmp(word, "longrope") == 0 ||
                           strcmp(word, "su") == 0 || strcmp(word, "yarn") == 0;
        if ((*kind)->scaling == SCALING_NONE ? plain : (*kind)->scaling == SCALING_LONG && longer) return OK;
    }
    return fail(err, ERR_FORMAT, "%s: rotary positions are of type \"%.60s\"; a Phi-3 has only \"default\" and "
                "\"longrope\"", where, printable(word).text);
}

/* YaRN's defaults; cosines and sines grow with the logarithm of the factor, or by DeepSeek's two numbers. */
static void finish_yarn(struct rope_object *object)
{
    struct rotary *r = &object->r;
    const bool both = object->mscale != 0 && object->mscale_all_dim != 0;
    const double log_factor = r->factor > 1 ? 0.1 * scalar_log(r->factor) : 0;
    if (r->high_frequency == 0) r->high_frequency = 32;
    if (r->low_frequency == 0) r->low_frequency = 1;
    if (r->enlarged == 0)
        r->enlarged = both ? (object->mscale * log_factor + 1) / (object->mscale_all_dim * log_factor + 1)
            : log_factor + 1;
    r->between_pairs = !object->truncate;
    r->all_dim = object->mscale_all_dim;
}

/* The numbers that are turned of each head; 0: all. */
static int64_t turned_of(const struct config_reading *reading, double part)
{
    if (LATENT(&reading->c)) return reading->turned;
    return part == 1 ? 0 : (int64_t)((double)reading->c.A * part);
}

static enum error_code read_pairs(double *to, int64_t pairs, const cJSON *list, const char *key, const char *where,
                                  struct error *err)
{
    const cJSON *x;
    int64_t i = 0;
    if (cJSON_GetArraySize(list) != pairs || pairs > ROTARY_PAIRS)
        return fail(err, ERR_FORMAT, "%s: %s must be a list of %lld numbers, one for each pair that is turned%s", where,
                    key, (long long)pairs, pairs > ROTARY_PAIRS ? "; Orrery has at most 128" : "");
    cJSON_ArrayForEach(x, list) {
        if (!cJSON_IsNumber(x))
            return fail(err, ERR_FORMAT, "%s: %s has something that is no number, of pair %lld", where, key,
                        (long long)i);
        to[i++] = x->valuedouble;
    }
    return OK;
}

/* How much cosines and sines grow if no file says it: by the factor, or by how much longer sequences may be. */
static double long_enlarged(double factor, int64_t S, int64_t original)
{
    if (factor == 0) factor = (double)S / (double)original;
    return factor <= 1 ? 1 : sqrt(1 + scalar_log(factor) / scalar_log((double)original));
}

/* The original length beside the object, if the family has one, is what counts, also its default; but two that are
 * written must be the same. */
static enum error_code finish_long(struct rope_object *object, const struct config_reading *reading, const char *where,
                                   struct error *err)
{
    struct rotary *r = &object->r;
    const int64_t turned = turned_of(reading, object->part), pairs = (turned ? turned : reading->c.A) / 2;
    if (reading->original_said && r->original_positions && r->original_positions != reading->original_positions)
        return fail(err, ERR_FORMAT, "%s: original_max_position_embeddings is %lld, and beside it %lld", where,
                    (long long)r->original_positions, (long long)reading->original_positions);
    if (reading->original_positions) r->original_positions = reading->original_positions;
    if (r->original_positions == 0) r->original_positions = reading->c.S;
    if (r->enlarged == 0) r->enlarged = long_enlarged(r->factor, reading->c.S, r->original_positions);
    r->factor = 0;
    const enum error_code e = read_pairs(r->shorter, pairs, object->shorter, "short_factor", where, err);
    return e ? e : read_pairs(r->longer, pairs, object->longer, "long_factor", where, err);
}

/* Part of the file, and of one of its objects. */
static enum error_code find_part(double *part, const struct config_reading *reading, const char *where,
                                 struct error *err)
{
    if (*part && reading->rope_part && *part != reading->rope_part)
        return fail(err, ERR_FORMAT, "%s: partial_rotary_factor is %g, and beside it %g; they must be the same", where,
                    *part, reading->rope_part);
    if (*part == 0) *part = reading->rope_part ? reading->rope_part : reading->usual_part ? reading->usual_part : 1;
    if (reading->usual_part == 0 && *part != 1)
        return fail(err, ERR_FORMAT, "%s: partial_rotary_factor is %g; Orrery has only 1 or null", where, *part);
    if (!(*part > 0 && *part <= 1))
        return fail(err, ERR_FORMAT, "%s: partial_rotary_factor is %g; it must be above 0 and at most 1", where, *part);
    if (!LATENT(&reading->c) && (int64_t)((double)reading->c.A * *part) == 0)
        return fail(err, ERR_FORMAT, "%s: partial_rotary_factor is %g, less than one of the %lld numbers of a head",
                    where, *part, (long long)reading->c.A);
    return OK;
}

/* rotary->theta does not change if the object has none. */
static enum error_code read_object(struct rotary *rotary, const struct config_reading *reading, const cJSON *object,
                                   const char *where, struct error *err)
{
    const struct config_key *const lists[] = { rope_keys };
    const struct rope_kind *kind;
    struct rope_object o = { .r = { .theta = rotary->theta, .neighbours = rotary->neighbours }, .truncate = true };
    enum error_code e = (reading->only_long ? long_by_any_name : find_kind)(&kind, object, where, err);
    if (!e) e = config_keys_read(lists, 1, object, where, &o, err);
    if (!e) e = check_numbers(kind, object, where, err);
    if (!e) e = find_part(&o.part, reading, where, err);
    if (!e && reading->c.local_theta > 0 && !o.truncate)
        return fail(err, ERR_FORMAT, "%s: truncate is false, which transformers 5 passes over in this model_type; "
                    "Orrery has only true", where);
    if (!e && kind->scaling == SCALING_LONG) e = finish_long(&o, reading, where, err);
    if (e) return e;
    if (o.r.original_positions == 0 && kind->may & ROPE_KEY(ORIGINAL)) o.r.original_positions = reading->c.S;
    if (kind->scaling == SCALING_YARN) finish_yarn(&o);
    *rotary = o.r;
    rotary->scaling = kind->scaling, rotary->turned = turned_of(reading, o.part);
    return OK;
}

/* ---- both forms -------------------------------------------------------------------------------------------------- */

struct rope_by_layer { const cJSON *full, *local; };

/* If there is one object per type of layer, full attention must be the only type, except of families whose layers with
 * a window have a theta of their own.  local: their object; NULL: there is none. */
static enum error_code of_full_attention(const cJSON **object, const cJSON **local,
                                         const struct config_reading *reading, const char *where, struct error *err)
{
    static const struct config_key keys[] = { KEY_TO("full_attention", KEY_OBJECT, struct rope_by_layer, full),
                                              { .name = NULL } },
        more[] = { KEY_TO("sliding_attention", KEY_OBJECT, struct rope_by_layer, local), { .name = NULL } };
    const struct config_key *const lists[] = { keys, more };
    struct rope_by_layer by = { NULL, NULL };
    const bool two = reading->c.local_theta > 0;
    if (!json_has(*object, "full_attention") && !(two && json_has(*object, "sliding_attention"))) return OK;
    const enum error_code e = config_keys_read(lists, two ? 2 : 1, *object, where, &by, err);
    if (!e) *object = by.full, *local = by.local;
    return e;
}

static bool same_rotary(const struct rotary *a, const struct rotary *b)
{
    return a->theta == b->theta && a->scaling == b->scaling && a->factor == b->factor
           && a->low_frequency == b->low_frequency && a->high_frequency == b->high_frequency
           && a->original_positions == b->original_positions && a->enlarged == b->enlarged
           && a->between_pairs == b->between_pairs && a->turned == b->turned
           && memcmp(a->shorter, b->shorter, sizeof a->shorter) == 0
           && memcmp(a->longer, b->longer, sizeof a->longer) == 0;
}

/* The theta of layers with a window, which have no scaling. */
static enum error_code read_local(double *theta, const struct config_reading *reading, const cJSON *object,
                                  const char *where, struct error *err)
{
    struct rotary r = { .theta = reading->c.local_theta };
    char inside[330];
    snprintf(inside, sizeof inside, "%s: sliding_attention", where);
    if (object == NULL || object->child == NULL) return OK;
    const enum error_code e = read_object(&r, reading, object, inside, err);
    if (!e && r.scaling != SCALING_NONE)
        return fail(err, ERR_FORMAT, "%s: rotary positions are of type \"%s\"; of layers with a window Orrery has only "
                    "\"default\"", inside, config_rotary_name_of(r.scaling));
    *theta = r.theta;
    return e;
}

/* An empty object is as none, as in transformers. */
static enum error_code read_form(struct rotary *rotary, double *theta, const struct config_reading *reading,
                                 const cJSON *object, const char *path, const char *key, struct error *err)
{
    const cJSON *local = NULL;
    char where[300];
    snprintf(where, sizeof where, "%.200s: %s", path, key);
    enum error_code e = of_full_attention(&object, &local, reading, where, err);
    if (!e) e = read_local(theta, reading, local, where, err);
    return e || object == NULL || object->child == NULL ? e : read_object(rotary, reading, object, where, err);
}

/* The key of theta beside the objects. */
static const char *theta_key_of(const struct model_config *config)
{
    return config_keys_have(config->family->keys, "rotary_emb_base") ? "rotary_emb_base" : "rope_theta";
}

enum error_code rotary_from_json(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    const struct { const char *key; const cJSON *object; } form[] = {
        { "rope_scaling", reading->rope_scaling }, { "rope_parameters", reading->rope_parameters },
    };
    const char *const theta_key = theta_key_of(&reading->c);
    const bool said = json_has(root, theta_key), local_said = json_has(root, "rope_local_base_freq");
    struct rotary r[2];
    double part = 0, theta = reading->c.local_theta;
    enum error_code e = find_part(&part, reading, path, err);
    if (e) return e;
    reading->original_said = json_has(root, "original_max_position_embeddings");
    if (reading->c.local_theta > 0 && reading->rope_scaling && json_has(reading->rope_scaling, "type"))
        return fail(err, ERR_FORMAT, "%s: rope_scaling has \"type\", which transformers 5 does not read in this "
                    "model_type; call it rope_type", path);
    for (int i = 0; i < 2; i++) {
        r[i] = reading->c.rotary;
        r[i].theta = reading->rope_theta, r[i].turned = turned_of(reading, part);
        if (form[i].object == NULL) continue;
        e = read_form(&r[i], &theta, reading, form[i].object, path, form[i].key, err);
        if (e) return e;
        if (local_said && theta != reading->c.local_theta)
            return fail(err, ERR_FORMAT, "%s: rope_local_base_freq is %.17g, in %s it is %.17g; they must be the same",
                        path, reading->c.local_theta, form[i].key, theta);
        if (said && r[i].theta != reading->rope_theta)
            return fail(err, ERR_FORMAT, "%s: %s is %.17g, in %s it is %.17g; they must be the same", path,
                        theta_key, reading->rope_theta, form[i].key, r[i].theta);
    }
    if (form[0].object && form[1].object && !same_rotary(&r[0], &r[1]))
        return fail(err, ERR_FORMAT, "%s: rope_scaling and rope_parameters say different things; one of them must go",
                    path);
    reading->c.rotary = form[0].object ? r[0] : r[1], reading->c.local_theta = theta;
    if (!LATENT(&reading->c)) reading->c.rotary.all_dim = 0;
    return OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool add_pairs(cJSON *object, const char *key, const double *x, int64_t pairs)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    bool ok = list != NULL;
    for (int64_t i = 0; i < pairs && ok; i++) ok = cJSON_AddItemToArray(list, cJSON_CreateNumber(x[i]));
    return ok;
}

/* Older versions have this key for a kind; families and kinds that they do not know have the newer word, and some of
 * these families only that. */
static const char *key_of_kind(const struct model_config *config)
{
    const enum rotary_scaling scaling = config->rotary.scaling;
    const bool turns = scaling == SCALING_YARN || scaling == SCALING_LLAMA3;
    return turns || config->sinks || config->local_theta > 0 ? "rope_type" : "type";
}

/* Older versions take these three keys and no others, so the rest is written only where it says something new. */
static bool add_long(const struct model_config *config, cJSON *root, cJSON *object)
{
    const struct rotary *r = &config->rotary;
    const int64_t pairs = (r->turned ? r->turned : config->A) / 2;
    bool ok = cJSON_AddStringToObject(object, key_of_kind(config), config_rotary_name_of(SCALING_LONG)) &&
              add_pairs(object, "short_factor", r->shorter, pairs) &&
              add_pairs(object, "long_factor", r->longer, pairs);
    const bool beside = config_keys_have(config->family->keys, "original_max_position_embeddings");
    ok = cJSON_AddNumberToObject(beside ? root : object, "original_max_position_embeddings",
                                 (double)r->original_positions) && ok;
    if (r->enlarged != long_enlarged(0, config->S, r->original_positions))
        ok = config_add_real(object, "attention_factor", r->enlarged) && ok;
    return ok;
}

/* The part of a head that gives this number again. */
static double config_rotary_part_of(const struct model_config *config)
{
    const double part = config->rotary.turned ? (double)config->rotary.turned / (double)config->A : 1;
    return (int64_t)((double)config->A * part) < config->rotary.turned ? nextafter(part, 1) : part;
}

bool rotary_to_json(const struct model_config *config, cJSON *root)
{
    const struct rotary *r = &config->rotary;
    const struct config_key *keys = config->family->keys;
    const char *part_key = config_keys_have(keys, "rotary_pct") ? "rotary_pct" : "partial_rotary_factor";
    bool ok = config_add_real(root, theta_key_of(config), r->theta);
    const bool says_part = r->turned || fmod(config->family->defaults->usual_part, 1) > 0;
    if (says_part && !LATENT(config))
        ok = cJSON_AddNumberToObject(root, part_key, config_rotary_part_of(config)) && ok;
    if (r->scaling == SCALING_NONE && config->family->defaults->c.rotary.scaling == SCALING_NONE) return ok;
    const bool yarn = r->scaling == SCALING_YARN, turns = yarn || r->scaling == SCALING_LLAMA3;
    cJSON *object = cJSON_AddObjectToObject(root, "rope_scaling");
    if (r->scaling == SCALING_LONG) return object && add_long(config, root, object) && ok;
    ok = object && cJSON_AddStringToObject(object, key_of_kind(config), config_rotary_name_of(r->scaling)) && ok;
    if (r->scaling == SCALING_NONE) return ok;
    ok = config_add_real(object, "factor", r->factor) && ok;
    if (!turns) return ok;
    if (r->all_dim > 0) ok = config_add_real(object, "mscale_all_dim", r->all_dim) && ok;
    if (yarn) ok = config_add_real(object, "attention_factor", r->enlarged)
                   && cJSON_AddBoolToObject(object, "truncate", !r->between_pairs) && ok;
    return config_add_real(object, yarn ? "beta_slow" : "low_freq_factor", r->low_frequency)
           && config_add_real(object, yarn ? "beta_fast" : "high_freq_factor", r->high_frequency)
           && cJSON_AddNumberToObject(object, "original_max_position_embeddings", (double)r->original_positions) && ok;
}
