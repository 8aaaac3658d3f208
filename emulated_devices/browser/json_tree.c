/* json_tree.c -- the functions of cJSON that a plan uses, for a browser: Debian has cJSON only for processors.
 *
 * ref/io/json.h includes cJSON's own header, so that each function has the type that its callers know.  Trees and texts
 * are those of cJSON 1.7, to the byte; tests/browser/ holds both against each other.  NULL, and false, is what
 * cJSON returns without memory and of wrong arguments.
 */
#include "ref/io/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void *cJSON_malloc(size_t size) { return malloc(size); }
void cJSON_free(void *object) { free(object); }

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int json_kind(const cJSON *item) { return item ? item->type & 0xff : cJSON_Invalid; }

cJSON_bool cJSON_IsTrue(const cJSON *item) { return json_kind(item) == cJSON_True; }
cJSON_bool cJSON_IsBool(const cJSON *item) { return (json_kind(item) & (cJSON_True | cJSON_False)) != 0; }
cJSON_bool cJSON_IsNull(const cJSON *item) { return json_kind(item) == cJSON_NULL; }
cJSON_bool cJSON_IsNumber(const cJSON *item) { return json_kind(item) == cJSON_Number; }
cJSON_bool cJSON_IsString(const cJSON *item) { return json_kind(item) == cJSON_String; }
cJSON_bool cJSON_IsArray(const cJSON *item) { return json_kind(item) == cJSON_Array; }
cJSON_bool cJSON_IsObject(const cJSON *item) { return json_kind(item) == cJSON_Object; }
char *cJSON_GetStringValue(const cJSON *item) { return cJSON_IsString(item) ? item->valuestring : NULL; }
double cJSON_GetNumberValue(const cJSON *item) { return cJSON_IsNumber(item) ? item->valuedouble : NAN; }

static cJSON *json_make(int type)
{
    cJSON *const item = calloc(1, sizeof *item);
    if (item) item->type = type;
    return item;
}

static char *json_copy(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *const copy = malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static cJSON *json_make_text(int type, const char *text)
{
    cJSON *const item = text ? json_make(type) : NULL;
    if (item == NULL || (item->valuestring = json_copy(text)) != NULL) return item;
    free(item);
    return NULL;
}

/* The whole number nearest to zero, or the least or greatest one: as cJSON has it beside the double. */
static int json_nearest_int(double number)
{
    return number >= 2147483647.0 ? 2147483647 : number <= -2147483648.0 ? -2147483647 - 1 : (int)number;
}

cJSON *cJSON_CreateNull(void) { return json_make(cJSON_NULL); }
cJSON *cJSON_CreateTrue(void) { return json_make(cJSON_True); }
cJSON *cJSON_CreateBool(cJSON_bool boolean) { return json_make(boolean ? cJSON_True : cJSON_False); }
cJSON *cJSON_CreateArray(void) { return json_make(cJSON_Array); }
cJSON *cJSON_CreateObject(void) { return json_make(cJSON_Object); }
cJSON *cJSON_CreateString(const char *text) { return json_make_text(cJSON_String, text); }
cJSON *cJSON_CreateRaw(const char *text) { return json_make_text(cJSON_Raw, text); }

cJSON *cJSON_CreateNumber(double number)
{
    cJSON *const item = json_make(cJSON_Number);
    if (item) item->valuedouble = number, item->valueint = json_nearest_int(number);
    return item;
}

void cJSON_Delete(cJSON *item)
{
    while (item) {
        cJSON *const next = item->next;
        cJSON_Delete(item->child);
        free(item->valuestring);
        free(item->string);
        free(item);
        item = next;
    }
}

/* ---- trees: the first child's prev is the last child ------------------------------------------------------------- */

cJSON_bool cJSON_AddItemToArray(cJSON *array, cJSON *item)
{
    if (array == NULL || item == NULL || array == item) return false;
    if (array->child) {
        item->prev = array->child->prev;
        item->prev->next = item;
        array->child->prev = item;
    } else array->child = item, item->prev = item;
    item->next = NULL;
    return true;
}

cJSON_bool cJSON_AddItemToObject(cJSON *object, const char *name, cJSON *item)
{
    if (object == NULL || name == NULL || item == NULL || object == item) return false;
    char *const copy = json_copy(name);
    if (copy == NULL) return false;
    free(item->string);
    item->string = copy;
    return cJSON_AddItemToArray(object, item);
}

static cJSON *json_add_made(cJSON *object, const char *name, cJSON *item)
{
    if (cJSON_AddItemToObject(object, name, item)) return item;
    cJSON_Delete(item);
    return NULL;
}

#define ADDS(what, parameters, made)                                                                                   \
    cJSON *cJSON_Add##what##ToObject parameters { return json_add_made(object, name, made); }
ADDS(Null, (cJSON *object, const char *name), cJSON_CreateNull())
ADDS(True, (cJSON *object, const char *name), cJSON_CreateTrue())
ADDS(Bool, (cJSON *object, const char *name, cJSON_bool boolean), cJSON_CreateBool(boolean))
ADDS(Number, (cJSON *object, const char *name, double number), cJSON_CreateNumber(number))
ADDS(String, (cJSON *object, const char *name, const char *text), cJSON_CreateString(text))
ADDS(Raw, (cJSON *object, const char *name, const char *text), cJSON_CreateRaw(text))
ADDS(Object, (cJSON *object, const char *name), cJSON_CreateObject())
ADDS(Array, (cJSON *object, const char *name), cJSON_CreateArray())
#undef ADDS

cJSON *cJSON_CreateDoubleArray(const double *numbers, int count)
{
    cJSON *const array = numbers ? cJSON_CreateArray() : NULL;
    for (int i = 0; i < count && array; i++)
        if (!cJSON_AddItemToArray(array, cJSON_CreateNumber(numbers[i]))) return cJSON_Delete(array), NULL;
    return array;
}

int cJSON_GetArraySize(const cJSON *array)
{
    int n = 0;
    for (const cJSON *c = array ? array->child : NULL; c; c = c->next) n++;
    return n;
}

cJSON *cJSON_GetArrayItem(const cJSON *array, int index)
{
    cJSON *c = array && index >= 0 ? array->child : NULL;
    while (c && index-- > 0) c = c->next;
    return c;
}

cJSON *cJSON_GetObjectItemCaseSensitive(const cJSON *object, const char *name)
{
    cJSON *c = object && name ? object->child : NULL;
    while (c && !(c->string && strcmp(c->string, name) == 0)) c = c->next;
    return c;
}

cJSON *cJSON_GetObjectItem(const cJSON *object, const char *name)
{
    cJSON *c = object && name ? object->child : NULL;
    while (c && !(c->string && strcasecmp(c->string, name) == 0)) c = c->next;
    return c;
}

cJSON *cJSON_DetachItemFromObjectCaseSensitive(cJSON *object, const char *name)
{
    cJSON *const item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (item == NULL) return NULL;
    if (item != object->child) item->prev->next = item->next;
    if (item->next) item->next->prev = item->prev;
    if (item == object->child) object->child = item->next;
    else if (item->next == NULL) object->child->prev = item->prev;
    item->prev = item->next = NULL;
    return item;
}

void cJSON_DeleteItemFromObjectCaseSensitive(cJSON *object, const char *name)
{
    cJSON_Delete(cJSON_DetachItemFromObjectCaseSensitive(object, name));
}

cJSON *cJSON_Duplicate(const cJSON *item, cJSON_bool recurse)
{
    cJSON *const copy = item ? json_make(item->type) : NULL;
    if (copy == NULL) return NULL;
    copy->valueint = item->valueint, copy->valuedouble = item->valuedouble;
    bool whole = true;
    if (item->valuestring) whole = (copy->valuestring = json_copy(item->valuestring)) != NULL;
    if (item->string) whole = (copy->string = json_copy(item->string)) != NULL && whole;
    for (const cJSON *c = recurse ? item->child : NULL; c && whole; c = c->next)
        whole = cJSON_AddItemToArray(copy, cJSON_Duplicate(c, true));
    if (whole) return copy;
    cJSON_Delete(copy);
    return NULL;
}

/* Numbers may differ by rounding, as cJSON has it. */
static bool json_same_number(double a, double b)
{
    const double most = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return fabs(a - b) <= most * 0x1p-52;
}

static bool json_same_children(const cJSON *a, const cJSON *b, cJSON_bool sensitive)
{
    if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b)) return false;
    const cJSON *other = b->child;
    for (const cJSON *c = a->child; c; c = c->next) {
        if (json_kind(a) == cJSON_Object)
            other = sensitive ? cJSON_GetObjectItemCaseSensitive(b, c->string) : cJSON_GetObjectItem(b, c->string);
        if (!cJSON_Compare(c, other, sensitive)) return false;
        other = json_kind(a) == cJSON_Object ? NULL : other->next;
    }
    return true;
}

cJSON_bool cJSON_Compare(const cJSON *a, const cJSON *b, cJSON_bool sensitive)
{
    if (a == NULL || b == NULL || json_kind(a) != json_kind(b)) return false;
    if (a == b) return true;
    if (cJSON_IsNumber(a)) return json_same_number(a->valuedouble, b->valuedouble);
    if (a->valuestring || b->valuestring)
        return a->valuestring && b->valuestring && strcmp(a->valuestring, b->valuestring) == 0;
    return json_same_children(a, b, sensitive);
}
