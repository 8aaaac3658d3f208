/* carrier.c -- the texts of what is wrong with a message, for both carriers (transport.c, crew.c). All return
 * ERR_COMM. */
#include "emulated_devices/comm/carrier.h"
#include <stdarg.h>
#include <stdio.h>

enum error_code message_wrong(const struct exchange *exchange, struct error *err, const char *format, ...)
{
    char axes[64], text[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(err, ERR_COMM, "%s over %s: %s", operation_name(exchange->operation),
                axes_describe(exchange->group->axes, axes, sizeof axes), text);
}

enum error_code message_wrong_length(const struct exchange *exchange, int peer, uint64_t expected, uint64_t sent,
                                     struct error *err)
{
    return message_wrong(exchange, err, "device %d expected %llu bytes from device %d, which sent %llu",
                         exchange->group->comm->rank,
                         (unsigned long long)expected, exchange->group->member[peer], (unsigned long long)sent);
}

enum error_code message_wrong_call(const struct exchange *exchange, int peer, struct error *err)
{
    return message_wrong(exchange, err,
                         "devices %d and %d were called with different arguments (algorithm, count, dtype, "
                         "reduction, root or counts); ORRERY_CHECK_CALLS=1 says which", exchange->group->comm->rank,
                         exchange->group->member[peer]);
}
