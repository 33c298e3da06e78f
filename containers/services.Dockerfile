# The coordinator's programs: the four services, the gateway (`atoll gateway` runs nginx) and the command line.
# make_images.sh builds it: PROGRAMS is the image with the programs.
ARG DEBIAN=debian:bookworm-slim
ARG PROGRAMS=atoll-programs
FROM ${PROGRAMS} AS programs
FROM ${DEBIAN}
COPY --from=programs / /opt/atoll
# The packages' own scripts must start no server. The list of packages is the image's bill of materials.
RUN printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d \
    && apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get upgrade -y -q --no-install-recommends \
    && DEBIAN_FRONTEND=noninteractive xargs -a /opt/atoll/packages apt-get install -y -q --no-install-recommends \
        ca-certificates curl nginx openssh-client \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /usr/sbin/policy-rc.d \
    && dpkg-query -W >/opt/atoll/contents
ARG ATOLL_UID=1000
RUN useradd --uid ${ATOLL_UID} --user-group --create-home atoll \
    && install -d -o atoll -g atoll /srv/atoll /srv/atoll/blobs /credentials \
        /credentials/public /credentials/signing /credentials/aggregation /credentials/kafka \
        /credentials/kafka-broker /credentials/kafka-registry /credentials/kafka-store /credentials/kafka-dispatch \
        /credentials/kafka-aggregation /credentials/admin /srv/gateway \
    && install -d -o atoll -g atoll -m 700 /run/postgresql  # a new volume takes their owner
ENV PATH=/opt/atoll/bin:$PATH
USER ${ATOLL_UID}
WORKDIR /srv/atoll
ENTRYPOINT []
CMD ["atoll", "--help"]
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="atoll-services" org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
ENV ATOLL_REVISION=${REVISION}
