// Loaded into the processes of a stack (LD_PRELOAD): lets their clock jump, their disk be full and a server be cut off
// from them, as the file of the program's name in $ATOLL_FAULT_SHIM says from one moment to the next. Without that file
// everything is as it is.
#include "tests/fault/shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
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

// Whether it is a file of a full disk; errno says so then.
bool cannot_grow(int fd) {
    struct stat info{};
    if (fd <= STDERR_FILENO || !disk_is_full() || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    errno = ENOSPC;
    return true;
}

bool is_cut_off(const sockaddr_storage& server) {
    if (server.ss_family == AF_INET)
        return state()->cut_off_port != 0 &&
               ntohs(reinterpret_cast<const sockaddr_in&>(server).sin_port) == state()->cut_off_port;
    const char* path = const_cast<const ShimState*>(state())->cut_off_socket.data();
    return server.ss_family == AF_UNIX && path[0] != '\0' &&
           std::strcmp(reinterpret_cast<const sockaddr_un&>(server).sun_path, path) == 0;
}

// Whether it is a connection to what is cut off, which ends then; errno says so.
bool is_cut_off(int fd) {
    if (state() == nullptr ||
        (state()->cut_off_port == 0 && const_cast<const ShimState*>(state())->cut_off_socket.front() == '\0'))
        return false;
    const int before = errno;
    sockaddr_storage server{};
    socklen_t size = sizeof server;
    const bool is_cut = ::getpeername(fd, reinterpret_cast<sockaddr*>(&server), &size) == 0 && is_cut_off(server);
    // For good, as after a real one: libpq sends no more after an error and waits for the end of what it reads.
    if (is_cut) ::shutdown(fd, SHUT_RDWR);
    errno = is_cut ? ECONNRESET : before;
    return is_cut;
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

int connect(int fd, const sockaddr* server, socklen_t size) {
    static auto* const real = original<int(int, const sockaddr*, socklen_t)>("connect");
    sockaddr_storage known{};
    std::memcpy(&known, server, size < sizeof known ? size : sizeof known);
    if (state() == nullptr || !is_cut_off(known)) return real(fd, server, size);
    errno = ECONNREFUSED;
    return -1;
}

ssize_t send(int fd, const void* bytes, size_t count, int flags) {
    static auto* const real = original<ssize_t(int, const void*, size_t, int)>("send");
    return is_cut_off(fd) ? -1 : real(fd, bytes, count, flags);
}

ssize_t recv(int fd, void* bytes, size_t count, int flags) {
    static auto* const real = original<ssize_t(int, void*, size_t, int)>("recv");
    return is_cut_off(fd) ? -1 : real(fd, bytes, count, flags);
}

ssize_t read(int fd, void* bytes, size_t count) {
    static auto* const real = original<ssize_t(int, void*, size_t)>("read");
    return is_cut_off(fd) ? -1 : real(fd, bytes, count);
}

ssize_t readv(int fd, const iovec* parts, int count) {
    static auto* const real = original<ssize_t(int, const iovec*, int)>("readv");
    return is_cut_off(fd) ? -1 : real(fd, parts, count);
}

ssize_t writev(int fd, const iovec* parts, int count) {
    static auto* const real = original<ssize_t(int, const iovec*, int)>("writev");
    return is_cut_off(fd) ? -1 : real(fd, parts, count);
}

ssize_t write(int fd, const void* bytes, size_t count) {
    static auto* const real = original<ssize_t(int, const void*, size_t)>("write");
    return cannot_grow(fd) || is_cut_off(fd) ? -1 : real(fd, bytes, count);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
    static auto* const real = original<ssize_t(int, const void*, size_t, off_t)>("pwrite");
    return cannot_grow(fd) ? -1 : real(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) {
    return pwrite(fd, bytes, count, offset);
}
}
