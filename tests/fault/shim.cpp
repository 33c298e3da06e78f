// Loaded into the processes of a stack (LD_PRELOAD): lets their clock jump and their disk be full, as the file of the
// program's name in $ATOLL_FAULT_SHIM says from one moment to the next. Without that file everything is as it is.
#include "tests/fault/shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

using atl::fault::ShimState;

const volatile ShimState* open_state() {
    const char* directory = std::getenv("ATOLL_FAULT_SHIM");
    if (directory == nullptr) return nullptr;
    const int fd = ::open((std::string(directory) + "/" + program_invocation_short_name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void* memory = ::mmap(nullptr, sizeof(ShimState), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<const volatile ShimState*>(memory);
}

// Asked for before main() as well. The first look opens files, which asks for nothing that is replaced here.
const volatile ShimState* state() {
    static const volatile ShimState* const mapped = open_state();
    return mapped;
}

std::int64_t clock_offset_s() {
    return state() == nullptr ? 0 : state()->clock_offset_s;
}

bool disk_is_full() {
    return state() != nullptr && state()->disk_is_full != 0;
}

template <class Function>
Function* original(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
    static auto* const real = original<int(clockid_t, timespec*)>("clock_gettime");
    const int status = real(clock, time);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += clock_offset_s();
    return status;
}

int gettimeofday(timeval* __restrict now, void* __restrict) noexcept {
    timespec time{};
    const int status = clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return status;
}

time_t time(time_t* into) noexcept {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if (into != nullptr) *into = now.tv_sec;
    return now.tv_sec;
}

int statvfs(const char* __restrict path, struct statvfs* __restrict into) noexcept {
    static auto* const real = original<int(const char*, struct statvfs*)>("statvfs");
    const int status = real(path, into);
    if (status == 0 && disk_is_full()) into->f_bavail = 0;
    return status;
}

ssize_t write(int fd, const void* bytes, size_t count) {
    static auto* const real = original<ssize_t(int, const void*, size_t)>("write");
    struct stat info{};
    if (fd > STDERR_FILENO && disk_is_full() && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, count);
}
}
