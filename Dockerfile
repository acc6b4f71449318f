# One image for node1 and node2, for CPU and GPU: torch's wheels carry CUDA, and the NVIDIA
# container toolkit brings the driver. The scripts in image/ say what is in it and why.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS system
COPY image/system.sh /workshop/image/
RUN /workshop/image/system.sh

# What only building needs, pip's tools and Horovod's compiler, stays in these two stages.
FROM ${BASE} AS python
COPY image/python.sh /workshop/image/
COPY pyproject.toml constraints.txt /workshop/
RUN /workshop/image/python.sh

FROM python AS horovod
COPY image/horovod.sh /workshop/image/
COPY image/wheels /workshop/image/wheels
COPY workspace/distlab/errors.py /workshop/horovod/distlab/
COPY workspace/distlab/horovod_wheel /workshop/horovod/distlab/horovod_wheel
RUN /workshop/image/horovod.sh

# Up to here this is what Singularity has before its last stage; tests make one root file system serve both.
FROM system AS installed
COPY --from=horovod /opt/venv /opt/venv
COPY --from=horovod /workshop /workshop

FROM installed
ARG UID=1000
ARG GID=1000
COPY image/user.sh image/entrypoint.sh /workshop/image/
RUN /workshop/image/user.sh
COPY image/ssh_config /etc/ssh/ssh_config.d/workshop.conf
COPY --chown=${UID}:${GID} workspace /workspace

ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/home/attendee \
    LANG=C.UTF-8 \
    DISTLAB_IMAGE=1 \
    DISTLAB_SHARED=/shared \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# The version in pyproject.toml, which `make` hands over: a label cannot read a file. Another than that
# one stops the build.
ARG VERSION=unknown
RUN [ "$VERSION" = unknown ] || grep -qxF "version = \"$VERSION\"" /workshop/pyproject.toml
LABEL org.opencontainers.image.title="distlab" \
      org.opencontainers.image.description="A workshop on distributed deep learning with PyTorch, on two hosts" \
      org.opencontainers.image.version="${VERSION}" \
      distlab.torch="2.14.1" \
      distlab.torchvision="0.29.1" \
      distlab.horovod="0.28.1" \
      distlab.jupyterlab="4.6.6"

USER ${UID}:${GID}
WORKDIR /workspace
EXPOSE 8888 6006
HEALTHCHECK --interval=5s --timeout=4s --start-period=90s --retries=5 \
    CMD ["curl", "--fail", "--silent", "--output", "/dev/null", "http://127.0.0.1:8888/api"]
ENTRYPOINT ["/workshop/image/entrypoint.sh"]
CMD ["distlab", "node"]
