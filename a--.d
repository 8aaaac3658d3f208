-: emulated_devices/schemes/tensor/tensor.h \
 emulated_devices/collectives/collective.h emulated_devices/comm/comm.h \
 emulated_devices/comm/mesh.h ref/error.h \
 emulated_devices/device/device.h emulated_devices/device/arena.h \
 emulated_devices/device/clock.h emulated_devices/device/cluster.h \
 ref/numeric/dtype.h ref/ops/ops.h ref/numeric/tensor.h \
 ref/numeric/float16.h emulated_devices/device/layout.h \
 ref/model/config.h
emulated_devices/collectives/collective.h:
emulated_devices/comm/comm.h:
emulated_devices/comm/mesh.h:
ref/error.h:
emulated_devices/device/device.h:
emulated_devices/device/arena.h:
emulated_devices/device/clock.h:
emulated_devices/device/cluster.h:
ref/numeric/dtype.h:
ref/ops/ops.h:
ref/numeric/tensor.h:
ref/numeric/float16.h:
emulated_devices/device/layout.h:
ref/model/config.h:
