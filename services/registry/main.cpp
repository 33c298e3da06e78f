#include "services/registry/service.h"

int main(int argc, char** argv) {
    return atl::service::run(argc, argv, atl::registry::definition());
}
