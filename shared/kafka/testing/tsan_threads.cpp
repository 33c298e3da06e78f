// librdkafka's threads, mutexes and condition variables are those of <threads.h>, which ThreadSanitizer of gcc 12 does
// not know: a thread that it has not seen start ends the process. In builds with it these definitions take the place of
// the C library's and call the POSIX ones, which it knows.
#include <pthread.h>
#include <threads.h>

#include <cerrno>
#include <cstdint>
#include <memory>

namespace {

static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t) && sizeof(cnd_t) >= sizeof(pthread_cond_t));

pthread_mutex_t* posix(mtx_t* mutex) {
    return reinterpret_cast<pthread_mutex_t*>(mutex);
}
pthread_cond_t* posix(cnd_t* condition) {
    return reinterpret_cast<pthread_cond_t*>(condition);
}

int word(int error) {
    return error == 0 ? thrd_success : error == ETIMEDOUT ? thrd_timedout : error == EBUSY ? thrd_busy : thrd_error;
}

struct Start {
    thrd_start_t function;
    void* argument;
};

void* run(void* pointer) {
    const std::unique_ptr<Start> start(static_cast<Start*>(pointer));
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(start->function(start->argument)));
}

}  // namespace

extern "C" {

const char* __tsan_default_suppressions() {  // NOLINT: the name is the sanitizer's
    return "race:librdkafka.so\n";
}

int thrd_create(thrd_t* thread, thrd_start_t function, void* argument) {
    auto start = std::make_unique<Start>(Start{function, argument});
    const int error = pthread_create(thread, nullptr, run, start.get());
    if (error == 0) static_cast<void>(start.release());
    return word(error);
}
int thrd_join(thrd_t thread, int* result) {
    void* returned = nullptr;
    const int error = pthread_join(thread, &returned);
    if (result != nullptr) *result = static_cast<int>(reinterpret_cast<std::intptr_t>(returned));
    return word(error);
}

int mtx_init(mtx_t* mutex, int type) noexcept {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if ((type & mtx_recursive) != 0) pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    const int error = pthread_mutex_init(posix(mutex), &attributes);
    pthread_mutexattr_destroy(&attributes);
    return word(error);
}
int mtx_lock(mtx_t* mutex) {
    return word(pthread_mutex_lock(posix(mutex)));
}
int mtx_unlock(mtx_t* mutex) noexcept {
    return word(pthread_mutex_unlock(posix(mutex)));
}
void mtx_destroy(mtx_t* mutex) noexcept {
    pthread_mutex_destroy(posix(mutex));
}

int cnd_init(cnd_t* condition) noexcept {
    return word(pthread_cond_init(posix(condition), nullptr));
}
int cnd_signal(cnd_t* condition) noexcept {
    return word(pthread_cond_signal(posix(condition)));
}
int cnd_broadcast(cnd_t* condition) noexcept {
    return word(pthread_cond_broadcast(posix(condition)));
}
int cnd_wait(cnd_t* condition, mtx_t* mutex) {
    return word(pthread_cond_wait(posix(condition), posix(mutex)));
}
int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until) {
    return word(pthread_cond_timedwait(posix(condition), posix(mutex), until));
}
void cnd_destroy(cnd_t* condition) noexcept {
    pthread_cond_destroy(posix(condition));
}
}
