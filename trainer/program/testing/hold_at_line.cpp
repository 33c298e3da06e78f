// Preloaded into atoll-trainer (LD_PRELOAD), holds it right after it has printed a line that has ATOLL_HOLD_AFTER in
// it, once: it makes the file $ATOLL_HOLD.here and goes on when there is $ATOLL_HOLD.go, or after minutes. So a test
// changes something at that instant, however fast the steps are. Programs that only pass the line on go on.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

constexpr int kIntervalUs = 2000;
constexpr int kLooksMax = 90'000;  // three minutes

bool is_of_the_trainer() {
    static const bool is = std::string_view(program_invocation_short_name) == "atoll-trainer";
    return is;
}

// Whether that line is in the stream, to be flushed.
std::atomic<bool> is_printed = false;

void hold() {
    const char* const where = std::getenv("ATOLL_HOLD");
    if (where == nullptr) return;
    const std::string here = std::string(where) + ".here", go = std::string(where) + ".go";
    const int file = open(here.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0) close(file);
    for (int look = 0; look < kLooksMax && access(go.c_str(), F_OK) != 0; ++look) usleep(kIntervalUs);
}

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fputs(const char* text, FILE* stream) {
    static const auto real = next<int(const char*, FILE*)>("fputs");
    static std::atomic<bool> is_found = false;
    const char* const line = std::getenv("ATOLL_HOLD_AFTER");
    const int written = real(text, stream);
    if (line != nullptr && is_of_the_trainer() && std::string_view(text).find(line) != std::string_view::npos &&
        !is_found.exchange(true))
        is_printed = true;
    return written;
}

int fflush(FILE* stream) {
    static const auto real = next<int(FILE*)>("fflush");
    const int flushed = real(stream);
    if (is_printed.exchange(false)) hold();
    return flushed;
}

}  // extern "C"
