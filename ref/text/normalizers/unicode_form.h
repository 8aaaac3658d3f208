/* unicode_form.h -- the four normal forms of Unicode, as the library `tokenizers` knows them.
 *
 * nfc.c, nfd.c, nfkc.c, nfkd.c and bert.c call it.
 */
#ifndef ORRERY_UNICODE_FORM_H
#define ORRERY_UNICODE_FORM_H

#include "ref/text/text_buffer.h"
#include <stdbool.h>

/* A normal form. */
struct unicode_form {
    bool composed;                      /* C, not D: characters and marks become one character */
    bool compatible;                    /* K: a ligature becomes its letters, and so on */
};

/** Add a text in a normal form.  @param text  valid UTF-8.  @return OK or ERR_MEMORY. */
enum error_code unicode_form_add(struct unicode_form, const char *text, size_t bytes, struct text_buffer *out,
                                 struct error *);

#endif
