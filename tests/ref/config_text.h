/* config_text.h -- a config.json of a few keys: a start such as "{\"model_type\": .." and what a test adds to it.
 * Tests of config.json in tests/ref/ call these functions.  A text that must be read and is not fails the test. */
#ifndef TESTS_CONFIG_TEXT_H
#define TESTS_CONFIG_TEXT_H

#include "ref/model/config.h"
#include "tests/ref/scratch.h"
#include <stdlib.h>

static inline enum error_code parse(struct model_config *c, const char *start, const char *more, struct error *err)
{
    char text[2000];
    *err = (struct error){ OK, "" };
    snprintf(text, sizeof text, "%s%s%s}", start, more[0] ? ", " : "", more);
    return model_config_parse(c, text, "config.json", err);
}

static inline struct model_config parsed(const char *start, const char *more)
{
    struct model_config c;
    struct error err;
    if (parse(&c, start, more, &err) != OK) fail_msg("%s: %s", more, err.text);
    return c;
}

/* A config that is written reads back the same. */
static inline struct model_config read_back(const struct model_config *c)
{
    struct model_config r;
    struct error err;
    char *text;
    assert_int_equal(model_config_text(c, &text, &err), OK);
    if (model_config_parse(&r, text, "written", &err) != OK) fail_msg("%s: %s", text, err.text);
    free(text);
    return r;
}

#endif
