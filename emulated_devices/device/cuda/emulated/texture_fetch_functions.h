/* texture_fetch_functions.h -- refused: the emulator does not have it (cuda_runtime.h). */
#error "textures are not emulated"
