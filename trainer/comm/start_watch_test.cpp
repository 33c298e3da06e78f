#include "trainer/comm/start_watch.h"

#include <gtest/gtest.h>

namespace atl::comm {
namespace {

StartState state_with(const std::vector<Interface>& interfaces) {
    return {.rank = 1, .ranks = 4, .host = "node7", .mpi = "Open MPI v4.1.4", .waited_s = 30, .interfaces = interfaces};
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
}

TEST(StartWatchTest, TheRankItsInterfacesAndTheVariableThatMendsItAreNamed) {
    expect_words(start_text(state_with({{"docker0", "172.17.0.1"}, {"eth0", "10.1.0.7"}})),
                 {"rank 1 of 4 on node7 has waited 30 s", "docker0 172.17.0.1, eth0 10.1.0.7", "the bridge docker0",
                  "OMPI_MCA_btl_tcp_if_include=eth0 "});
}

TEST(StartWatchTest, EachInterfaceThatMayLeadToTheOthersIsOffered) {
    expect_words(start_text(state_with({{"br-1a2b", "172.18.0.1"}, {"eno1", "10.1.0.7"}, {"ib0", "10.2.0.7"}})),
                 {"OMPI_MCA_btl_tcp_if_include=eno1,ib0 "});
    expect_words(start_text(state_with({})), {"Interfaces here: none", "OMPI_MCA_btl_tcp_if_include=NAME "});
}

TEST(StartWatchTest, AnotherMpiHasAnotherVariable) {
    StartState state = state_with({{"eth0", "10.1.0.7"}});
    state.mpi = "MPICH Version: 4.0.2";
    expect_words(start_text(state), {"FI_TCP_IFACE=eth0"});
}

TEST(StartWatchTest, TheInterfacesAreThoseOfThisMachineButTheLoopback) {
    for (const Interface& interface : network_interfaces()) {
        EXPECT_NE(interface.name, "lo");
        EXPECT_NE(interface.address.find('.'), std::string::npos) << interface.name;
    }
}

}  // namespace
}  // namespace atl::comm
