# The worker's image. Its environment is made from the lock file, the sandbox is compiled at build time.

FROM python:3.13-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /app
COPY requirements.lock ./
RUN python -m venv .venv && .venv/bin/pip install --require-hashes -r requirements.lock
COPY . .
# Not editable: the image holds the installed package, and the example graphs beside it.
RUN .venv/bin/pip install --no-deps --no-build-isolation .
ENV FERRATA_CACHE=/app/sandbox
RUN .venv/bin/python -m activities.sandbox.build

FROM python:3.13-slim-bookworm
RUN groupadd --gid 10001 ferrata && useradd --uid 10001 --gid ferrata --create-home ferrata \
    && install -d -o ferrata -g ferrata -m 0700 /data /app/sandbox
WORKDIR /app
COPY --from=build /app/.venv .venv
COPY --from=build /app/worker.py ./
COPY --from=build /app/activities activities
COPY --from=build /app/cli cli
COPY --from=build /app/examples examples
COPY --from=build /app/graph graph
COPY --from=build /app/workflows workflows
COPY --from=build --chown=ferrata:ferrata /app/sandbox sandbox
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FERRATA_CACHE=/app/sandbox \
    FERRATA_STORE=/data \
    FERRATA_GRAPHS=/app/examples
USER ferrata
# SIGTERM drains: give it more than the 10 s that attempts in flight get.
STOPSIGNAL SIGTERM
CMD ["python", "worker.py"]
