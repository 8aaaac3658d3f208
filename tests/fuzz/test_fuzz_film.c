/* Films from anybody: what is accepted has only devices, kinds and times that there are, and its page has no '<' of it.
 * tier: check
 */
#include "emulated_devices/draw/page/film_report.h"
#include "emulated_devices/draw/page/page_html.h"
#include "ref/io/json.h"
#include "tests/fuzz/fuzz.h"

static void look_at(const struct film *film)
{
    for (int i = 0; i < film->passes; i++) {
        const struct film_pass *const p = &film->pass[i];
        must(p->device >= 0 && p->device < film->devices && p->kind >= 0 && p->kind < film->kinds, "pass %d: nowhere",
             i);
        must(p->lane >= 0 && p->lane < film->lanes && p->detail < film->details, "pass %d: no such lane or detail", i);
        must(p->start >= 0 && p->start <= p->end && p->end <= film->end, "pass %d: out of time", i);
    }
    for (int i = 0; i < film->messages; i++) {
        const struct film_message *const m = &film->message[i];
        must(m->from >= 0 && m->from < film->devices && m->to >= 0 && m->to < film->devices, "message %d: nowhere", i);
    }
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct film film;
    struct film *const films[] = { &film };
    cJSON *root;
    char *text, *const copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = '\0';
    if (json_parse(copy, size, "film", &root, &err) == OK) {
        if (film_of_report(&film, root, "film", &err) == OK) {
            look_at(&film);
            text = page_data(films, 1);
            must(text && strchr(text, '<') == NULL, "the page has a '<'");
            free(text);
        } else must(err.text[0] != '\0', "refused without a word");
        film_close(&film);
        cJSON_Delete(root);
    }
    free(copy);
}

FUZZ_TARGET("film")
