/* Functions of NVIDIA's driver that cuDNN looks for when it makes a plan for a card that is not here. They say that there
   is one device, and do nothing. */

static char object[64];

static int give(void** into) {
    *into = object;
    return 0;
}

#define ATOLL_GIVES(name) \
    int name(void** into) { \
        return give(into); \
    }
#define ATOLL_NUMBER(name, number) \
    int name(int* into) { \
        *into = number; \
        return 0; \
    }
#define ATOLL_TEXT(name) \
    int name(int error, const char** into) { \
        (void)error; \
        *into = "there is no driver here"; \
        return 0; \
    }
#define ATOLL_NOTHING(name) \
    int name(void) { \
        return 0; \
    }

ATOLL_NUMBER(cuDeviceGet, 0)
ATOLL_NUMBER(cuDeviceGetCount, 1)
ATOLL_NUMBER(cuDriverGetVersion, 13000)
ATOLL_NUMBER(cuKernelGetAttribute, 0)
ATOLL_GIVES(cuCtxGetCurrent)
ATOLL_GIVES(cuKernelGetFunction)
ATOLL_GIVES(cuLibraryGetKernel)
ATOLL_GIVES(cuLibraryLoadData)
ATOLL_GIVES(cuModuleGetFunction)
ATOLL_GIVES(cuModuleLoadData)
ATOLL_GIVES(cuStreamGetCtx)
ATOLL_TEXT(cuGetErrorName)
ATOLL_TEXT(cuGetErrorString)
ATOLL_NOTHING(cuCtxGetLimit)
ATOLL_NOTHING(cuCtxPopCurrent)
ATOLL_NOTHING(cuCtxPushCurrent)
ATOLL_NOTHING(cuKernelSetAttribute)
ATOLL_NOTHING(cuLaunchCooperativeKernel)
ATOLL_NOTHING(cuLaunchKernel)
ATOLL_NOTHING(cuLaunchKernelEx)
ATOLL_NOTHING(cuLibraryLoadFromFile)
ATOLL_NOTHING(cuLibraryUnload)
ATOLL_NOTHING(cuLinkAddData)
ATOLL_NOTHING(cuLinkComplete)
ATOLL_NOTHING(cuLinkCreate)
ATOLL_NOTHING(cuLinkDestroy)
ATOLL_NOTHING(cuModuleUnload)
ATOLL_NOTHING(cuOccupancyMaxPotentialClusterSize)
ATOLL_NOTHING(cuTensorMapEncodeIm2col)
ATOLL_NOTHING(cuTensorMapEncodeTiled)
