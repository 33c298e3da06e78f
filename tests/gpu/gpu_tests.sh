# shellcheck shell=bash disable=SC2034
# Sourced: the tests that run on a GPU as they stand. `./dev cuda` and `rocm` build and run them; bench/gpu/run.sh takes
# them to a machine with a card.

# They run on every backend (trainer/kernels/testing/backends.h); which one is in a test's name.
gpu_tests=(kernels_test optim_test model_test train_test engine_test llama_golden_test lora_golden_test
    bf16_gradient_golden_test real_size_test)
gpu_test_filter='*gpu*:GpuDeviceTest.*:*EachGradientIsAsNearToFp64*:SelfCheckTest.EveryBackendPasses'

# Tests of the program that hold on a GPU as well: not of the CPU's own kernels and memory, nor of quantised weights.
gpu_program_tests='ResumeTest.*:StateFilesTest.*:SaveProgramTest.*:StandingStillTest.*:ProximalProgramTest.*'
gpu_program_tests+='-ResumeTest.OtherKernelsAreToldAndADeterministicRunDoesNotGoOnWithThem'
