/* curand_kernel.h -- refused: the emulator does not have it (cuda_runtime.h). */
#error "cuRAND is not emulated"
