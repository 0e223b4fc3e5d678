// libcuda.so: nothing but a need of libcuda.so.1 beside it, for programs that open the driver by the name without a number.
// No symbolic link, because a wheel has none: a copy would be a second shim in the same process.
