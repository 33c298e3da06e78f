# The coordinator's programs: the four services, the gateway (`atoll gateway` runs nginx) and the command line.
#   docker build -f containers/services.Dockerfile -t atoll-services .
ARG DEBIAN=debian:bookworm-slim
FROM ${DEBIAN} AS build
WORKDIR /src
COPY . .
RUN ATOLL_CMAKE_OPTIONS=-DATOLL_TRAINER=OFF containers/build.sh /out \
    atoll atoll-registry atoll-store atoll-dispatch atoll-aggregation

FROM ${DEBIAN}
ARG ATOLL_UID=1000
COPY --from=build /out /opt/atoll
# nginx' package would start a server of its own.
RUN printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d \
    && apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive xargs -a /opt/atoll/packages apt-get install -y -q --no-install-recommends \
        ca-certificates nginx openssh-client \
    && rm -rf /var/lib/apt/lists/* /usr/sbin/policy-rc.d \
    && useradd --uid ${ATOLL_UID} --user-group --create-home atoll \
    && install -d -o atoll -g atoll /srv/atoll /srv/atoll/blobs /credentials \
        /credentials/public /credentials/signing /credentials/aggregation /credentials/kafka  # a new volume takes their owner
ENV PATH=/opt/atoll/bin:$PATH
USER atoll
WORKDIR /srv/atoll
ENTRYPOINT []
CMD ["atoll", "--help"]
