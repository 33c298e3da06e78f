# Compiles the programs, for make_images.sh: those of the coordinator (--target services) and, going on from there, those of a
# site (--target site), each into /bin, with /packages naming the Debian packages that they load.
ARG DEBIAN=debian:bookworm-slim
FROM ${DEBIAN} AS build
WORKDIR /src
COPY packages.txt CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY containers/build.sh containers/collect.sh containers/
COPY shared shared
COPY services services
RUN ATOLL_CMAKE_OPTIONS=-DATOLL_TRAINER=OFF containers/build.sh /out \
    atoll atoll-registry atoll-store atoll-dispatch atoll-aggregation

FROM scratch AS services
COPY --from=build /out /

FROM build AS build-site
COPY trainer trainer
RUN ATOLL_CMAKE_OPTIONS=-DATOLL_TRAINER=ON containers/build.sh /site atoll atoll-trainer

FROM scratch AS site
COPY --from=build-site /site /
