# Compiles the coordinator's programs into /bin, with /packages naming the Debian packages that they load.
# make_images.sh builds services.Dockerfile from it.
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

FROM scratch
COPY --from=build /out /
