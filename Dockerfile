# dpsweep on the CPU. State (ledger, private store, key) lies on the volume /state: keep it, or nothing says what was spent.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
RUN python -m venv /opt/dpsweep
ENV PATH=/opt/dpsweep/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY constraints.txt ./
RUN pip install -c constraints.txt --index-url https://download.pytorch.org/whl/cpu torch
COPY . .
RUN pip install -c constraints.txt '.[arrow,parallel,postgres]'

FROM python:3.11-slim-bookworm
COPY --from=build /opt/dpsweep /opt/dpsweep
RUN useradd --create-home --uid 1000 sweeper && install -d -o sweeper /state /work
USER 1000
ENV PATH=/opt/dpsweep/bin:$PATH \
    XDG_STATE_HOME=/state/state XDG_CONFIG_HOME=/state/config XDG_DATA_HOME=/state/data
VOLUME /state
WORKDIR /work
ENTRYPOINT ["dpsweep"]
CMD ["--help"]
