/* protobuf.c -- encodes fields of protocol buffers into a buffer of fixed size.
 *
 * tfevents.c and draw/ call this file.  A message that is too long is a mistake of the caller, which assert() finds.
 * No function returns an error code.
 */
#include "ref/io/protobuf.h"
#include <assert.h>
#include <string.h>

enum wire { VARINT, FIXED64, BYTES, FIXED32 = 5 };

void proto_raw(struct proto *proto, const void *bytes, size_t n)
{
    assert(proto->used + n <= PROTO_ROOM);
    memcpy(proto->byte + proto->used, bytes, n);
    proto->used += n;
}

void proto_varint(struct proto *proto, uint64_t x)
{
    /* A byte has 7 bits of the number, the lowest first; its eighth bit says that more follow. */
    for (; x >= 0x80; x >>= 7) proto->byte[proto->used++] = (uint8_t)(x | 0x80);
    proto->byte[proto->used++] = (uint8_t)x;
}

void proto_little(struct proto *proto, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) proto->byte[proto->used++] = (uint8_t)(x >> 8 * i);
}

static void put_key(struct proto *proto, int field, enum wire wire)
{
    proto_varint(proto, (uint64_t)field << 3 | wire);
}

void proto_number(struct proto *proto, int field, uint64_t x)
{
    put_key(proto, field, VARINT);
    proto_varint(proto, x);
}

void proto_bytes(struct proto *proto, int field, const void *bytes, size_t n)
{
    put_key(proto, field, BYTES);
    proto_varint(proto, n);
    proto_raw(proto, bytes, n);
}

void proto_text(struct proto *proto, int field, const char *text) { proto_bytes(proto, field, text, strlen(text)); }

void proto_double(struct proto *proto, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(proto, field, FIXED64);
    proto_little(proto, bits, 8);
}

void proto_float(struct proto *proto, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(proto, field, FIXED32);
    proto_little(proto, bits, 4);
}
