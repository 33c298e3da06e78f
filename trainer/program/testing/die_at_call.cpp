// Preloaded into a program (LD_PRELOAD), kills it as `kill -9` does right before the ATOLL_DIE_AT-th call that changes
// a file under a directory *.state: a write, fsync, rename or removal. Of ranks only number ATOLL_DIE_RANK dies. With
// ATOLL_DIE_READING it dies right before it reads of a file whose path has that in it; with ATOLL_STOP_READING it
// stands still there (SIGSTOP), and with ATOLL_STOP_AT_START right before the first exchange of all ranks.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

int number(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
}

bool is_victim() {
    static const bool is = number("OMPI_COMM_WORLD_RANK", 0) == number("ATOLL_DIE_RANK", 0);
    return is;
}

void count_call(std::string_view path) {
    static std::atomic<int> calls = 0;
    static const int last = number("ATOLL_DIE_AT", 0);
    if (!is_victim() || path.find(".state") == std::string_view::npos) return;
    if (++calls == last) kill(getpid(), SIGKILL);
}

// Empty: of no file.
std::string path_of(int file) {
    std::array<char, 4096> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    const ssize_t length = readlink(link.c_str(), path.data(), path.size());
    return {path.data(), static_cast<std::size_t>(length > 0 ? length : 0)};
}

void end_before_reading(int file) {
    static const char* const die = std::getenv("ATOLL_DIE_READING");
    static const char* const stop = std::getenv("ATOLL_STOP_READING");
    const char* const where = die != nullptr ? die : stop;
    if (where == nullptr || !is_victim() || path_of(file).find(where) == std::string::npos) return;
    kill(getpid(), die != nullptr ? SIGKILL : SIGSTOP);
}

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
    static const auto real = next<ssize_t(int, void*, size_t, off_t)>("pread");
    end_before_reading(file);
    return real(file, bytes, count, offset);
}

ssize_t write(int file, const void* bytes, size_t count) {
    static const auto real = next<ssize_t(int, const void*, size_t)>("write");
    count_call(path_of(file));
    return real(file, bytes, count);
}

int fsync(int file) {
    static const auto real = next<int(int)>("fsync");
    count_call(path_of(file));
    return real(file);
}

int rename(const char* from, const char* to) noexcept {
    static const auto real = next<int(const char*, const char*)>("rename");
    count_call(to);
    return real(from, to);
}

// Its handles are integers or pointers: which of them does not matter here.
int MPI_Comm_dup(void* comm, void** copy) {
    static const auto real = next<int(void*, void**)>("MPI_Comm_dup");
    if (std::getenv("ATOLL_STOP_AT_START") != nullptr && is_victim()) kill(getpid(), SIGSTOP);
    return real(comm, copy);
}

int remove(const char* path) noexcept {
    static const auto real = next<int(const char*)>("remove");
    count_call(path);
    return real(path);
}

}  // extern "C"
