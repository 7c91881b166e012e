#include "background.hpp"

#include <pthread.h>
#include <unistd.h>

namespace hamtarget {

std::mutex& Background::gate() {
    // Never destroyed: a thread may publish while the process ends.
    static auto* const mutex = new std::mutex;
    return *mutex;
}

void Background::wait_before_forks() {
    static const int registered =
        pthread_atfork([] { gate().lock(); }, [] { gate().unlock(); }, [] { gate().unlock(); });
    static_cast<void>(registered);
}

pid_t Background::this_process() { return ::getpid(); }

}  // namespace hamtarget
