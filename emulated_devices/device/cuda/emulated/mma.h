/* mma.h -- refused: the emulator does not have it (cuda_runtime.h). */
#error "wmma is not emulated"
