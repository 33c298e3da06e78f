#include "trainer/comm/start_watch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "shared/log/warn.h"
#include "trainer/comm/mpi.h"
#include "trainer/comm/wait_text.h"

namespace atl::comm {
namespace {

constexpr double kTellAfter_s = 30;

// How Docker, Podman, libvirt and Kubernetes' networks name theirs.
constexpr std::array<std::string_view, 9> kBridges = {"docker", "br-",     "podman", "virbr", "veth",
                                                      "cni",    "flannel", "cali",   "lxc"};

std::string host_name() {
    utsname names{};
    uname(&names);
    return names.nodename;
}

// How to name the interface to this MPI; `name` is the one to take.
std::string remedy(const std::string& mpi, const std::string& name) {
    if (mpi.starts_with("Open MPI"))
        return "set OMPI_MCA_btl_tcp_if_include=" + name + " (with UCX: UCX_NET_DEVICES=" + name +
               ") in the environment of all ranks";
    return "name it to MPI in the environment of all ranks (Open MPI: OMPI_MCA_btl_tcp_if_include=" + name +
           ", MPICH and Intel MPI: FI_TCP_IFACE=" + name + ")";
}

}  // namespace

std::vector<Interface> network_interfaces() {
    std::vector<Interface> found;
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return found;
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
        const bool is_up = (at->ifa_flags & IFF_UP) != 0, is_loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
        if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || !is_up || is_loopback) continue;
        std::array<char, INET_ADDRSTRLEN> text{};
        const auto* const address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
        ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
        found.push_back({at->ifa_name, text.data()});
    }
    ::freeifaddrs(first);
    return found;
}

bool is_bridge(const Interface& interface) {
    return std::ranges::any_of(kBridges, [&](std::string_view begin) { return interface.name.starts_with(begin); });
}

std::string start_text(const StartState& state) {
    std::string list, between, bridge;
    for (const Interface& interface : state.interfaces) {
        list += (list.empty() ? "" : ", ") + interface.name + " " + interface.address;
        if (is_bridge(interface)) {
            if (bridge.empty()) bridge = interface.name;
        } else {
            between += (between.empty() ? "" : ",") + interface.name;
        }
    }
    return "rank " + std::to_string(state.rank) + (state.ranks > 1 ? " of " + std::to_string(state.ranks) : "") +
           " on " + state.host + " has waited " + std::to_string(std::lround(state.waited_s)) +
           " s for the first exchange between the ranks. Either another rank does not start, or MPI uses a network "
           "interface by which the machines do not reach each other" +
           (bridge.empty() ? "" : ", such as the bridge " + bridge) +
           ". Interfaces here: " + (list.empty() ? "none" : list) + ". To choose one, " +
           remedy(state.mpi, between.empty() ? "NAME" : between);
}

StartWatch::StartWatch(int rank, int ranks, double limit_s)
    : state_{.rank = rank, .ranks = ranks, .host = host_name(), .mpi = mpi_version(), .waited_s = 0, .interfaces = {}},
      thread_([this, limit_s](const std::stop_token& end) { watch(end, limit_s); }) {}

void StartWatch::watch(const std::stop_token& end, double limit_s) {
    const auto wait = [&](double seconds) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, end, std::chrono::duration<double>(seconds), [] { return false; });
        state_.waited_s += seconds;
        return !end.stop_requested();
    };
    const double tell_s = limit_s > 0 ? std::min(kTellAfter_s, limit_s / 2) : kTellAfter_s;
    if (!wait(tell_s)) return;
    state_.interfaces = network_interfaces();
    log::warn(start_text(state_));
    if (limit_s <= 0 || !wait(limit_s - tell_s)) return;
    log::warn(start_text(state_) + kLimitText);
    std::_Exit(1);  // MPI cannot be asked to end the ranks: this process's other thread is within it
}

}  // namespace atl::comm
