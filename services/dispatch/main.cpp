#include "services/dispatch/service.h"

int main(int argc, char** argv) {
    return atl::service::run(argc, argv, atl::dispatch::definition());
}
