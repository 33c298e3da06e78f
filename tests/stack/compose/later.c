// LD_PRELOAD library: what asks for the date gets that of SECONDS_LATER seconds later, and waits until such a date end when they
// should. faketime cannot stand in for it: it slows a JVM down until it stands still, and knows nothing of C11's cnd_timedwait(),
// in which librdkafka then waits for a year.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static time_t later(void) {
    static time_t seconds;
    if (seconds == 0) seconds = atol(getenv("SECONDS_LATER"));
    return seconds;
}

// As the kernel has it. A time of the monotonic clock is that since the machine started, and no date.
static struct timespec kernels(const struct timespec* until) {
    struct timespec real = *until;
    if (real.tv_sec > 1000000000) real.tv_sec -= later();
    return real;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
    const long result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += later();
    return (int)result;
}

int gettimeofday(struct timeval* now, void* zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t* into) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    if (into != NULL) *into = exact.tv_sec;
    return exact.tv_sec;
}

int timespec_get(struct timespec* now, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const struct timespec* until) {
    static int (*wait)(cnd_t*, mtx_t*, const struct timespec*);
    if (wait == NULL) *(void**)&wait = dlsym(RTLD_NEXT, "cnd_timedwait");
    const struct timespec real = kernels(until);
    return wait(condition, mutex, &real);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const struct timespec* until) {
    static int (*wait)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
    if (wait == NULL) *(void**)&wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");  // x86-64's newest
    if (wait == NULL) *(void**)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    const struct timespec real = kernels(until);
    return wait(condition, mutex, &real);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
    static int (*wait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
    if (wait == NULL) *(void**)&wait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    const struct timespec real = kernels(until);
    return wait(condition, mutex, clock, &real);
}
