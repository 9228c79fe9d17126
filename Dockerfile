# gymnasium-solver on the CPU: docker build -t gsolve .
FROM python:3.12-slim-bookworm

# The pins hold for the isolated build too. TORCH_INDEX: the index of torch's CPU wheels, which leave
# out 3 GB of CUDA libraries on x86_64; without it pip's own index is used.
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_CONSTRAINT=/src/constraints.txt \
    PIP_BUILD_CONSTRAINT=/src/constraints.txt \
    PYTHONUNBUFFERED=1 \
    GSOLVE_RUNS=/runs

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY gymnasium_solver ./gymnasium_solver
# PIP_CONSTRAINT pins every version.
# hadolint ignore=DL3013
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch \
 && pip install '.[train,ui,mcp,hub,video]' \
 && python -m compileall -q "$(python -P -c 'import gymnasium_solver; print(gymnasium_solver.__path__[0])')"

# Not root: the runs belong to the user with this id, as on most hosts.
ARG UID=1000
RUN useradd --create-home --uid "$UID" gsolve && mkdir /runs && chown gsolve /runs
USER $UID
WORKDIR /home/gsolve
VOLUME /runs
EXPOSE 7070
HEALTHCHECK NONE
STOPSIGNAL SIGTERM
ENTRYPOINT ["gsolve"]
CMD ["--help"]
