// A thread that an object starts when there is something to do, and that ends when nothing is left.
//
// Nobody waits for the thread when the object is destroyed or the process ends: until it publishes its result, it uses
// nothing of the object, and then it finds the object gone. fork() copies memory, not threads: in the child the thread
// is missing, and what it had locked would stay locked. So it takes locks only inside `Publishing`, for which fork()
// waits, and the child finds by the process number that the thread was left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace hamtarget {

class Background {
    struct State {
        std::mutex mutex;
        bool is_alive = true;  // the object that started the thread
    };

  public:
    // What a thread knows of the object that started it.
    using Life = std::shared_ptr<State>;

    Background() = default;
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    // Tell the thread that the object is gone. At most, wait for it to publish a result.
    ~Background() {
        const std::lock_guard lock(life_->mutex);
        life_->is_alive = false;
    }

    // Call work(Life) in a thread. Return false if no thread can be had.
    template <class Work>
    bool start(Work work) {
        wait_before_forks();
        try {
            std::thread(std::move(work), life_).detach();
        } catch (const std::system_error&) {
            return false;
        } catch (const std::bad_alloc&) {
            return false;
        }
        process_ = this_process();
        return true;
    }

    // Tell whether a thread that was started is missing, because this process is a child of the one that has it.
    bool was_left_behind() const { return process_ != 0 && process_ != this_process(); }

    // Locks a mutex of the object in the thread, if the object is still there.
    class Publishing {
      public:
        // `find_mutex` is called only while the object is there.
        template <class FindMutex>
        Publishing(const Life& life, FindMutex find_mutex) : gate_(gate(), std::defer_lock) {
            // Waiting for the mutex inside the gate would make fork() wait for a writer.
            for (;; std::this_thread::sleep_for(std::chrono::microseconds(50))) {
                gate_.lock();
                std::unique_lock alive(life->mutex);
                if (!life->is_alive) return;
                std::unique_lock<std::mutex> lock(find_mutex(), std::try_to_lock);
                if (lock) {
                    alive_ = std::move(alive), lock_ = std::move(lock);
                    return;
                }
                alive.unlock();
                gate_.unlock();
            }
        }

        // Tell whether the object is there, and the mutex locked.
        explicit operator bool() const { return lock_.owns_lock(); }

      private:
        std::unique_lock<std::mutex> gate_;
        std::unique_lock<std::mutex> alive_;
        std::unique_lock<std::mutex> lock_;
    };

  private:
    // What fork() waits for.
    static std::mutex& gate();
    static void wait_before_forks();
    static pid_t this_process();

    Life life_ = std::make_shared<State>();
    pid_t process_ = 0;
};

}  // namespace hamtarget
