#!/usr/bin/env python3
"""Prints JSON lines of what a machine has for the GPU benchmarks: card, driver, clocks, libraries, Python packages.

    facts.py                  everything; what is not there is named
    facts.py --library NAME   the file of one library of CUDA (libcublasLt.so.13), "" where there is none

Libraries are looked for where Python packages of CUDA lie (nvidia/*/lib), in CUDA's usual folders and where the
dynamic linker looks. cuDNN's own description of the card (JSON) is what its planner takes where there is no card.
"""
import argparse
import ctypes
import glob
import importlib.metadata
import json
import os
import platform
import shutil
import site
import subprocess
import sys

CARD_FIELDS = ["name", "driver_version", "compute_cap", "memory.total", "memory.used", "clocks.sm", "clocks.max.sm",
               "clocks.mem", "clocks.max.mem", "power.limit", "power.draw", "temperature.gpu", "pcie.link.gen.current",
               "pcie.link.width.current", "ecc.mode.current", "mig.mode.current", "persistence_mode"]
LIBRARIES = {"cublasLt": "libcublasLt.so.13", "cudnn": "libcudnn.so.9", "nccl": "libnccl.so.2",
             "nvrtc": "libnvrtc.so.13", "cudart": "libcudart.so.13", "driver": "libcuda.so.1"}
PACKAGES = ["torch", "transformers", "triton", "peft", "numpy", "nvidia-cudnn-cu13", "nvidia-cublas",
            "nvidia-nccl-cu13"]

# Of cudnn_graph.h, cuDNN 9.8 and later.
CUDNN_DEVICEPROP_DESCRIPTOR = 38
CUDNN_DEVICEPROP_DEVICE_ID = 2700
CUDNN_DEVICEPROP_JSON = 2702
CUDNN_TYPE_INT32 = 23
CUDNN_TYPE_CHAR = 24
CUDNN_DEVICEPROP_SINCE = 90800


def library_folders():
    packages = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    folders = [folder for package in packages if package
               for folder in sorted(glob.glob(os.path.join(package, "nvidia", "*", "lib")))]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folders += [os.path.join(root, "build/cuda-toolkit/lib"), *sorted(glob.glob("/usr/local/cuda*/lib64")),
                "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
    return list(dict.fromkeys(folder for folder in folders if os.path.isdir(folder)))


def find_library(name):
    return next((path for folder in library_folders() if os.path.exists(path := os.path.join(folder, name))), "")


def load(name):
    return ctypes.CDLL(find_library(LIBRARIES[name]) or LIBRARIES[name], mode=ctypes.RTLD_GLOBAL)


def version_by_pointer(function):
    value = ctypes.c_int(0)
    status = function(ctypes.byref(value))
    if status != 0:
        raise OSError(f"status {status}")
    return value.value


def cublas_version():
    function = load("cublasLt").cublasLtGetVersion
    function.restype = ctypes.c_size_t
    return function()


def cudnn_version():
    function = load("cudnn").cudnnGetVersion
    function.restype = ctypes.c_size_t
    return function()


VERSIONS = {"cublasLt": cublas_version, "cudnn": cudnn_version,
            "nccl": lambda: version_by_pointer(load("nccl").ncclGetVersion),
            "cudart": lambda: version_by_pointer(load("cudart").cudaRuntimeGetVersion),
            "driver": lambda: version_by_pointer(load("driver").cuDriverGetVersion)}


def describe_library(name):
    path = find_library(LIBRARIES[name])
    line = {"name": f"library.{name}", "path": path}
    if name not in VERSIONS:
        return line if path else line | {"lacks": f"there is no {LIBRARIES[name]}"}
    try:
        return line | {"version": VERSIONS[name]()}
    except (OSError, AttributeError) as error:
        return line | {"lacks": str(error)}


def cudnn_device_properties(properties=None):
    """cuDNN's description of card 0; of `properties` (its JSON) where given, as a check without a card."""
    cudnn = load("cudnn")
    if cudnn_version() < CUDNN_DEVICEPROP_SINCE:
        raise OSError("this cuDNN describes no device; 9.8 and later do")

    def must(status, what):
        if status != 0:
            text = ctypes.create_string_buffer(4096)
            cudnn.cudnnGetLastErrorString(text, ctypes.c_size_t(len(text)))
            raise OSError(f"cuDNN: {what}: status {status} {text.value.decode(errors='replace')}".strip())

    descriptor = ctypes.c_void_p()
    must(cudnn.cudnnBackendCreateDescriptor(CUDNN_DEVICEPROP_DESCRIPTOR, ctypes.byref(descriptor)), "a description")
    if properties is None:
        device = ctypes.c_int32(0)
        must(cudnn.cudnnBackendSetAttribute(descriptor, CUDNN_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32,
                                            ctypes.c_int64(1), ctypes.byref(device)), "the device")
    else:
        text = properties.encode()
        must(cudnn.cudnnBackendSetAttribute(descriptor, CUDNN_DEVICEPROP_JSON, CUDNN_TYPE_CHAR,
                                            ctypes.c_int64(len(text)), text), "the given properties")
    must(cudnn.cudnnBackendFinalize(descriptor), "the description's end")
    size = ctypes.c_int64(0)
    must(cudnn.cudnnBackendGetAttribute(descriptor, CUDNN_DEVICEPROP_JSON, CUDNN_TYPE_CHAR, ctypes.c_int64(0),
                                        ctypes.byref(size), None), "its length")
    text = ctypes.create_string_buffer(size.value + 1)
    must(cudnn.cudnnBackendGetAttribute(descriptor, CUDNN_DEVICEPROP_JSON, CUDNN_TYPE_CHAR, size, ctypes.byref(size),
                                        text), "its text")
    cudnn.cudnnBackendDestroyDescriptor(descriptor)
    return json.loads(text.value)


def query_card(fields):
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def card_line():
    if not shutil.which("nvidia-smi"):
        return {"name": "card", "lacks": "there is no nvidia-smi"}
    fields, result = CARD_FIELDS, query_card(CARD_FIELDS)
    if result.returncode != 0:  # a driver that does not know one of them answers none
        fields = CARD_FIELDS[:4]
        result = query_card(fields)
    if result.returncode != 0:
        return {"name": "card", "lacks": f"nvidia-smi: {(result.stderr or result.stdout).strip()}"}
    values = [value.strip() for value in result.stdout.splitlines()[0].split(",")]
    return {"name": "card", "name_of_card": values[0]} | dict(zip(fields[1:], values[1:]))


def host_line():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    return {"name": "host", "cpu": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "libc": " ".join(platform.libc_ver()), "python": platform.python_version(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def package_line():
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {"name": "packages"} | versions


def tool_line():
    return {"name": "tools"} | {name: shutil.which(name) for name in
                                ("nvcc", "cuobjdump", "compute-sanitizer", "ncu", "nsys", "mpirun")}


def properties_line():
    line = {"name": "cudnn_device_properties"}
    try:
        return line | {"json": cudnn_device_properties()}
    except (OSError, AttributeError, ValueError) as error:
        return line | {"lacks": str(error)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library")
    options = parser.parse_args()
    if options.library:
        print(find_library(options.library))
        return
    for describe in (card_line, host_line, package_line, tool_line):
        print(json.dumps(describe()), flush=True)
    for name in LIBRARIES:
        print(json.dumps(describe_library(name)), flush=True)
    print(json.dumps(properties_line()), flush=True)


if __name__ == "__main__":
    main()
