#include "services/aggregation/service.h"

int main(int argc, char** argv) {
    return atl::service::run(argc, argv, atl::aggregation::definition());
}
