# Compiles the programs of a site into /bin, with /packages naming the Debian packages that they load.
# make_images.sh builds site/Dockerfile from it.
ARG DEBIAN=debian:bookworm-slim
FROM ${DEBIAN} AS build
WORKDIR /src
COPY packages.txt CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY containers/build.sh containers/collect.sh containers/
COPY shared shared
COPY services services
COPY trainer trainer
RUN containers/build.sh /out atoll atoll-trainer

FROM scratch
COPY --from=build /out /
