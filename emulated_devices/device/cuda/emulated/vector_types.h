/* vector_types.h -- short vectors, with CUDA's alignment.
 *
 * machine.h and sixteen.h include this file; kernels use its types by NVIDIA's names.  No function returns an error
 * code.
 */
#ifndef ORRERY_EMULATED_VECTOR_TYPES_H
#define ORRERY_EMULATED_VECTOR_TYPES_H

#define VECTORS(name, T, bytes2, bytes4)                                                                               \
    struct name##1 { T x; };                                                                                           \
    struct alignas(bytes2) name##2 { T x, y; };                                                                        \
    struct name##3 { T x, y, z; };                                                                                     \
    struct alignas(bytes4) name##4 { T x, y, z, w; };                                                                  \
    static inline name##1 make_##name##1(T x) { return { x }; }                                                        \
    static inline name##2 make_##name##2(T x, T y) { return { x, y }; }                                                \
    static inline name##3 make_##name##3(T x, T y, T z) { return { x, y, z }; }                                        \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return { x, y, z, w }; }
VECTORS(char, signed char, 2, 4)
VECTORS(uchar, unsigned char, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(ushort, unsigned short, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(uint, unsigned, 8, 16)
VECTORS(longlong, long long, 16, 16)
VECTORS(ulonglong, unsigned long long, 16, 16)
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
#undef VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) { }
    constexpr dim3(uint3 of) : x(of.x), y(of.y), z(of.z) { }
};

#endif
