#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace atl::comm {

// A network interface of this machine that is up, but for the loopback.
struct Interface {
    std::string name;     // "eth0"
    std::string address;  // IPv4: "10.1.0.7"
};
std::vector<Interface> network_interfaces();

// Whether only processes of this machine reach each other by it: a bridge of containers or virtual machines.
bool is_bridge(const Interface& interface);

// What a rank knows while the others do not answer yet.
struct StartState {
    int rank = 0;
    int ranks = 1;  // 1: not known
    std::string host;
    std::string mpi;  // its name: "Open MPI v4.1.4"
    double waited_s = 0;
    std::vector<Interface> interfaces;
};

// "rank 1 of 4 on node7 has waited 30 s for the first exchange …", with the interfaces and the variable that names the
// right one to MPI.
std::string start_text(const StartState& state);

// Watches the start of MPI and the first exchange of all ranks, in which MPI itself cannot be asked and no other watch
// is there yet: from a thread of its own it warns after half a minute, and after `limit_s` seconds it ends the process
// with exit code 1, so that the launcher ends the others. One object a process, made before MPI.
class StartWatch {
  public:
    // `rank` of `ranks` as the launcher tells them; limit_s 0: it only warns.
    StartWatch(int rank, int ranks, double limit_s);
    // Ends the watch: the first exchange is done.
    ~StartWatch() = default;
    StartWatch(const StartWatch&) = delete;
    StartWatch& operator=(const StartWatch&) = delete;

  private:
    void watch(const std::stop_token& end, double limit_s);

    StartState state_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::jthread thread_;  // the last member: it uses the others
};

}  // namespace atl::comm
