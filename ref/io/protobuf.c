#include "ref/io/protobuf.h"
#include <assert.h>
#include <string.h>

enum wire { VARINT, FIXED64, BYTES, FIXED32 = 5 };

void proto_raw(struct proto *m, const void *bytes, size_t n)
{
    assert(m->used + n <= PROTO_ROOM);
    memcpy(m->byte + m->used, bytes, n);
    m->used += n;
}

void proto_varint(struct proto *m, uint64_t x)
{
    /* A byte has 7 bits of the number, the lowest first; its eighth bit says that more follow. */
    for (; x >= 0x80; x >>= 7) m->byte[m->used++] = (uint8_t)(x | 0x80);
    m->byte[m->used++] = (uint8_t)x;
}

void proto_little(struct proto *m, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) m->byte[m->used++] = (uint8_t)(x >> 8 * i);
}

static void put_key(struct proto *m, int field, enum wire wire) { proto_varint(m, (uint64_t)field << 3 | wire); }

void proto_number(struct proto *m, int field, uint64_t x)
{
    put_key(m, field, VARINT);
    proto_varint(m, x);
}

void proto_bytes(struct proto *m, int field, const void *bytes, size_t n)
{
    put_key(m, field, BYTES);
    proto_varint(m, n);
    proto_raw(m, bytes, n);
}

void proto_text(struct proto *m, int field, const char *text) { proto_bytes(m, field, text, strlen(text)); }

void proto_double(struct proto *m, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED64);
    proto_little(m, bits, 8);
}

void proto_float(struct proto *m, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED32);
    proto_little(m, bits, 4);
}
